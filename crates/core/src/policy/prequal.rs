//! Hot or cold by what backends say of their own load.
//!
//! Prequal (Wydrowski, Kleinberg, Rumble and Archer, "Load is not what you should balance: introducing Prequal",
//! NSDI 2024). Backends are asked ahead of requests how many they work on and how long one takes at that. A request
//! goes by the hot-cold rule: a backend is *hot* if it has more requests in flight than [`HOT_QUANTILE`] of recent
//! answers tell of. Of the cold ones the one of least latency is taken, and if all are hot, the one with the fewest in
//! flight. Answers are not used when they are a second old.
//!
//! What is done otherwise here, and why:
//!
//! - *What this process has sent itself is known to the request*, and is counted as it is now; only what others
//!   sent is as old as the answer. (The paper adds one for each own request and never takes it off.)
//! - *Answers are not used up.* The paper's pool holds sixteen, takes some out with each request, and counts how
//!   often each may be used, as each use makes it less true. Here none gets less true by own requests. And with few
//!   balancers those without an answer in the pool stand idle meanwhile, which hundreds of clients, each with a pool
//!   of its own, do not notice, and one does: at 80 % load its p99 was a sixth above that of two choices.
//! - *[`COMPARED`] backends are compared*, one drawn by weight of all and the rest of the last sixteen that answered;
//!   not all sixteen. Where that is most of the backends, balancers that saw the same answer all went to the same one.
//! - *No backend claims less than is known of it.* What this process has in flight there counts in any case, and the
//!   latency that it measured there in the last second is the least that is believed.
//! - *No backend makes itself cold.* In a small pool the quantile leaves out the busiest (see [`probes`](self)).
//! - *Latencies within a factor of two are the same*, and fewer requests in flight decide; else the least of a few
//!   medians, which is chance, would draw all requests to one backend after the other. (The paper's pools are of
//!   hundreds, of which an answer pool shows a few at random.)
//! - *Weight* divides requests in flight and latency alike.
//! - *Failures* of late count as requests in flight and make a backend hot, whatever it says: who fails fast tells
//!   of little load.
//! - *Who says nothing is no worse for it*: a candidate is drawn by weight first. If that has not spoken for
//!   [`SILENT`], two choices decide as in [`power_of_two`](super::power_of_two), between it and another; if it has,
//!   answers decide. So those that speak and those that do not get each their weight's share to decide about. Two
//!   choices decide, too, where fewer than two of the compared have an answer that can be used.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::live::Live;
use crate::backend::told::Load;
use crate::pool::Claim;
use crate::time::Instant;

use super::power_of_two::PowerOfTwo;
use super::{Membership, Policy, View, below, mix};

mod probes;

pub(crate) use probes::Probes;

/// Answers are used for this long.
const AGE_MAX: Duration = Duration::from_secs(1);
/// One that has not spoken for so long does not speak: it may be asked by a request again.
const SILENT: Duration = Duration::from_secs(3);
/// An answer is hot that tells of more requests in flight than this part of recent answers: 2^-¼, the paper's.
const HOT_QUANTILE: f64 = 0.84;
/// Backends that a pick compares.
const COMPARED: usize = 4;
/// Draws for that many: the last that answered may be the same few, or be out.
const DRAWS: usize = 2 * COMPARED;

/// Latencies within this factor of each other are the same, as the median of a few requests is no surer.
const ALIKE: f64 = 2.0;

/// Makes another random number of a pick's.
const ORDER: u64 = 0x9E0;

/// What `prequal` asks backends for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrequalConfig {
    /// Probes for each request, `0.0..=10.0`. Default 3, the paper's.
    pub probes_per_request: f64,
    /// Probes a second, all backends and threads together, `1..=100_000`. Default 1,000.
    pub probes_per_second_max: u32,
}

impl Default for PrequalConfig {
    fn default() -> Self {
        Self {
            probes_per_request: 3.0,
            probes_per_second_max: 1_000,
        }
    }
}

/// A backend's account of its load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadReport {
    /// Requests that it works on or has queued, whoever sent them; not the one, nor the probe, that this answers.
    /// From 0 to [`IN_FLIGHT_MAX`](Self::IN_FLIGHT_MAX); anything else is ignored.
    pub in_flight: f64,
    /// How long a request takes at that; `None`: what is known here is taken.
    pub latency: Option<Duration>,
}

impl LoadReport {
    /// The most requests in flight that a backend may claim: what no machine holds is no report.
    pub const IN_FLIGHT_MAX: f64 = 1e6;
}

/// What a report came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSource {
    /// The answer of a request that is still in flight; the number is of the thread, as for
    /// [`Pool::observe`](crate::Pool::observe).
    Answer(usize),
    /// The answer of a probe for these threads ([`LoadProbe::workers`]).
    Probe(u8),
}

/// A backend that is to be asked for its load.
#[derive(Clone, Debug)]
pub struct LoadProbe {
    /// Whom to ask.
    pub backend: Arc<crate::Backend>,
    /// For which threads' picks, as bits.
    pub workers: u8,
}

/// See the module.
pub(crate) struct Prequal {
    two_choices: PowerOfTwo,
    probes: Arc<Probes>,
    /// Of each member up to the last candidate, whether it is one.
    is_candidate: Vec<bool>,
    /// 1 ÷ the candidates' mean weight.
    unit: f64,
}

/// A backend while it is compared.
#[derive(Clone, Copy)]
struct Seen {
    index: usize,
    in_flight: f64,
    latency: f64,
}

impl Prequal {
    /// Over `candidates` as (index, weight above 0), with what is known of the same membership.
    pub(crate) fn new(candidates: &[(u32, u32)], probes: Arc<Probes>) -> Self {
        let weights = candidates.iter().map(|&(_, weight)| u64::from(weight));
        let total: u64 = weights.sum();
        let last = candidates.iter().map(|&(index, _)| index as usize).max();
        let mut is_candidate = vec![false; last.map_or(0, |last| last + 1)];
        for &(index, _) in candidates {
            is_candidate[index as usize] = true;
        }
        Self {
            two_choices: PowerOfTwo::new(candidates),
            probes,
            is_candidate,
            unit: candidates.len() as f64 / total.max(1) as f64,
        }
    }

    /// Of those that are compared with `first`, who was drawn by weight.
    fn choose(&self, view: &View<'_>, first: usize) -> Option<Claim> {
        let hot = f64::from(self.probes.shard(view.pick.worker).hot());
        let (drawn, drawn_count) = self.draw(view, first);
        let (mut count, mut cold, mut least) = (0, None::<Seen>, None::<Seen>);
        for &index in &drawn[..drawn_count] {
            let live = view.backend(index).live();
            let Some(load) = live.told.since(view.pick.now, AGE_MAX) else {
                continue;
            };
            let (seen, is_penalised) = self.see((index, live), load, view.pick.now);
            count += 1;
            if least.is_none_or(|least| seen.in_flight < least.in_flight) {
                least = Some(seen);
            }
            let is_cold = !is_penalised && seen.in_flight <= hot;
            if is_cold && cold.is_none_or(|cold| seen.is_better_than(&cold)) {
                cold = Some(seen);
            }
        }
        let best = cold.or(least).filter(|_| count >= 2)?;
        view.claim_at(best.index)
    }

    /// Different ones that may be picked, `first` among them; all where they are few.
    fn draw(&self, view: &View<'_>, first: usize) -> ([usize; COMPARED], usize) {
        let (mut drawn, mut count) = ([first; COMPARED], 1);
        let mut random = mix(view.pick.random ^ ORDER);
        // True when that are enough.
        let mut take = |index: usize| {
            if !drawn[..count].contains(&index) && view.is_eligible(index) {
                drawn[count] = index;
                count += 1;
            }
            count == COMPARED
        };
        if view.candidates.len() <= COMPARED {
            let (before, from) = view
                .candidates
                .split_at(below(random, view.candidates.len()));
            from.iter().chain(before).any(|&index| take(index as usize));
            return (drawn, count);
        }
        let shard = self.probes.shard(view.pick.worker);
        for _ in 0..DRAWS {
            random = mix(random);
            let Some(index) = shard.latest(random) else {
                break;
            };
            // One that is no candidate any more may have answered a moment ago.
            let is_candidate = self.is_candidate.get(index as usize) == Some(&true);
            if is_candidate && take(index as usize) {
                break;
            }
        }
        (drawn, count)
    }

    /// What an answer means now, and whether the backend failed of late.
    fn see(&self, (index, live): (usize, &Live), load: Load, now: Instant) -> (Seen, bool) {
        let weight = f64::from(live.weight()) * self.unit;
        let penalty = f64::from(live.penalty.at(now));
        let in_flight = f64::from(load.others) + f64::from(live.in_flight()) + penalty;
        let seen = Seen {
            index,
            in_flight: in_flight / weight,
            latency: f64::from(load.latency) / weight,
        };
        (seen, penalty > 0.0)
    }
}

/// How long a request takes at a backend that claims `claimed`: no less than was measured here a moment ago, and the
/// least of a few medians, which is chance, is less. What was measured longer ago does not count: the backend may be
/// well again, and says so.
fn credible(live: &Live, now: Instant, claimed: Option<Duration>) -> Option<Duration> {
    let measured = live.latency.at(now);
    match claimed {
        Some(claimed) if live.latency.age(now) < AGE_MAX => {
            Some(measured.map_or(claimed, |measured| claimed.max(measured)))
        }
        Some(claimed) => Some(claimed),
        None => measured,
    }
}

impl Seen {
    /// Of two cold ones: clearly quicker, or else with less in flight.
    fn is_better_than(&self, other: &Self) -> bool {
        if self.latency * ALIKE < other.latency {
            return true;
        }
        let is_slower = other.latency * ALIKE < self.latency;
        !is_slower && self.in_flight < other.in_flight
    }
}

impl Policy for Prequal {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        self.probes.shard(view.pick.worker).count_pick();
        let first = self.two_choices.draw(view)?;
        let told = &view.backend(first).live().told;
        let speaks = told.since(view.pick.now, SILENT).is_some();
        let chosen = if speaks {
            self.choose(view, first)
        } else {
            None
        };
        chosen.or_else(|| self.two_choices.pick(view))
    }

    fn probes(&self) -> Option<&Arc<Probes>> {
        Some(&self.probes)
    }

    fn hear(
        &self,
        now: Instant,
        (membership, index): (&Membership, usize),
        report: LoadReport,
        source: LoadSource,
    ) {
        let live = membership.backends[index].live();
        let weight = f64::from(live.weight()).max(1.0) * self.unit;
        let own = match source {
            LoadSource::Answer(_) => live.in_flight().saturating_sub(1),
            LoadSource::Probe(_) => live.in_flight(),
        };
        let workers = match source {
            LoadSource::Answer(worker) => Probes::bit(worker),
            LoadSource::Probe(workers) => workers,
        };
        let in_flight = (report.in_flight / weight) as f32;
        for shard in self.probes.shards_of(workers) {
            shard.hear(index as u32, in_flight);
        }
        // One of unknown latency is left to two choices until it is known.
        if let Some(latency) = credible(live, now, report.latency) {
            let load = Load {
                others: (report.in_flight - f64::from(own)).max(0.0) as f32,
                latency: latency.as_secs_f32(),
            };
            live.told
                .note(now, load, (report.in_flight, report.latency));
        }
    }
}
