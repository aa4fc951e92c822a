//! Hot or cold by what backends say of their own load.
//!
//! Prequal (Wydrowski, Kleinberg, Rumble and Archer, "Load is not what you should balance: introducing Prequal",
//! NSDI 2024). Backends are asked ahead of requests how many they work on and how long one takes at that; the last
//! few answers are the *probe pool*. A request goes by the hot-cold rule: an answer is *hot* if it tells of more
//! requests in flight than [`HOT_QUANTILE`] of recent answers do. Of the cold ones the one of least latency is
//! taken, and if all are hot, the one with the fewest in flight. Answers are not used when they are a second old,
//! nor more often than the rate of answers asks for (see [`probes`](self)).
//!
//! What is done otherwise here, and why:
//!
//! - *What this process has sent itself is known to the request*, and is counted as it is now; only what others
//!   sent is as old as the answer. (The paper adds one for each own request and never takes it off.)
//! - *One answer a backend.* A newer one replaces it, so that few backends do not fill the pool many times over.
//! - *Removal goes by answers and not by requests*, one for three, so that a cap on probes cannot empty the pool;
//!   and only where there are more backends than places, as its purpose is that bad answers do not stay because
//!   good ones are used up.
//! - *Latencies within a factor of two are the same*, and fewer requests in flight decide; else the least of a few
//!   medians, which is chance, would draw all requests to one backend after the other. (The paper's pools are of
//!   hundreds, of which an answer pool shows a few at random.)
//! - *Weight* divides requests in flight and latency alike.
//! - *Failures* of late count as requests in flight and make an answer hot, whatever it says: who fails fast tells
//!   of little load.
//! - *Who says nothing is no worse for it*: a candidate is drawn by weight first. If that has not spoken for
//!   [`SILENT`], two choices decide as in [`power_of_two`](super::power_of_two), between it and another; if it has,
//!   the probe pool decides. So those that speak and those that do not get each their weight's share to decide
//!   about. Two choices decide, too, where the pool has fewer than two answers that can be used.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::live::Live;
use crate::pool::Claim;
use crate::time::Instant;

use super::power_of_two::PowerOfTwo;
use super::{Membership, Policy, View, mix};

mod probes;

pub(crate) use probes::Probes;
use probes::{Answer, MOST};

/// Answers are used for this long.
const AGE_MAX: Duration = Duration::from_secs(1);
/// One that has not spoken for so long does not speak: it may be asked by a request again.
const SILENT: Duration = Duration::from_secs(3);
/// An answer is hot that tells of more requests in flight than this part of recent answers: 2^-¼, the paper's.
const HOT_QUANTILE: f64 = 0.84;

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
    pub in_flight: f64,
    /// How long a request takes at that; `None`: what is known here is taken.
    pub latency: Option<Duration>,
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
    /// 1 ÷ the candidates' mean weight.
    unit: f64,
    candidates: usize,
}

/// A usable answer while it is compared.
#[derive(Clone, Copy)]
struct Seen {
    place: usize,
    answer: Answer,
    in_flight: f64,
    latency: f64,
}

impl Prequal {
    /// Over `candidates` as (index, weight above 0), with what is known of the same membership.
    pub(crate) fn new(candidates: &[(u32, u32)], probes: Arc<Probes>) -> Self {
        let weights = candidates.iter().map(|&(_, weight)| u64::from(weight));
        let total: u64 = weights.sum();
        Self {
            two_choices: PowerOfTwo::new(candidates),
            probes,
            unit: candidates.len() as f64 / total.max(1) as f64,
            candidates: candidates.len(),
        }
    }

    fn choose(&self, view: &View<'_>) -> Option<Claim> {
        let shard = self.probes.shard(view.pick.worker);
        let hot = f64::from(shard.hot());
        let (mut count, mut cold, mut least) = (0, None::<Seen>, None::<Seen>);
        // In a random order, so that of equals each is taken as often: a stride that is odd comes by all places.
        let random = mix(view.pick.random ^ ORDER) as usize;
        let (start, stride) = (random % MOST, (random / MOST) | 1);
        for step in 0..MOST {
            let place = start.wrapping_add(step.wrapping_mul(stride)) % MOST;
            let Some(answer) = shard.answer(place, view.pick.now) else {
                continue;
            };
            let index = answer.index as usize;
            // One that is no candidate any more may have answered a moment ago.
            let is_candidate = view.candidates.binary_search(&answer.index).is_ok();
            if !is_candidate || !view.is_eligible(index) {
                continue;
            }
            let live = view.backend(index).live();
            let (seen, is_penalised) = self.see(live, (place, answer), view.pick.now);
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
        let claim = view.claim_at(best.answer.index as usize)?;
        shard.used(best.place, best.answer);
        Some(claim)
    }

    /// What an answer means now, and whether the backend failed of late.
    fn see(&self, live: &Live, (place, answer): (usize, Answer), now: Instant) -> (Seen, bool) {
        let weight = f64::from(live.weight()) * self.unit;
        let penalty = f64::from(live.penalty.at(now));
        let in_flight = f64::from(answer.others) + f64::from(live.in_flight()) + penalty;
        let seen = Seen {
            place,
            answer,
            in_flight: in_flight / weight,
            latency: f64::from(answer.latency) / weight,
        };
        (seen, penalty > 0.0)
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
        let drawn = self.two_choices.draw(view)?;
        let told_at = view.backend(drawn).live().told_at();
        let speaks = told_at.is_some_and(|at| view.pick.now - at < SILENT);
        let chosen = if speaks { self.choose(view) } else { None };
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
        let latency = report.latency.or_else(|| live.latency.at(now));
        let answer = latency.map(|latency| Answer {
            index: index as u32,
            others: (report.in_flight - f64::from(own)).max(0.0) as f32,
            latency: latency.as_secs_f32(),
            at: now,
        });
        for shard in self.probes.shards_of(workers) {
            shard.hear((report.in_flight / weight) as f32, answer, self.candidates);
        }
        // One of unknown latency is left to two choices until it is known.
        if answer.is_some() {
            live.tell(now);
        }
    }
}
