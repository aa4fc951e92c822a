//! The better of two drawn at random, by load × latency as it was at its worst.
//!
//! Finagle's and linkerd's policy of that name: two distinct candidates are drawn by weight, as for
//! [`power_of_two`](super::power_of_two), and compared by (requests in flight + 1) × latency, which is
//! a Peak-EWMA (see `backend::peak`). What is done otherwise here, and why:
//!
//! - *Failures*: a failed request is charged a second at least, and counts as requests in flight for a
//!   while (see `backend::load`); else what fails fast would look like the best choice.
//! - *Weight*: requests in flight are divided by weight ÷ mean weight, and the request to be placed is
//!   not; so idle backends differ by latency alone, and the draw gives each its weight's share.
//! - *The slower is not starved* (linkerd2 #5017: of two backends the slower got 0.1 requests a second, the
//!   other 489.7). Where the first drawn loses on latency alone, r times the other's, it is taken all the
//!   same with probability 2 ÷ (1 + r²): of two idle backends one three times slower gets a tenth, one ten
//!   times slower a hundredth, and differences that are none decide nothing. The estimate of one that
//!   idles fades. And one that has not been picked for three seconds wins the next comparison in which it
//!   is drawn (go-kratos' rule), if the other was picked much more lately: where traffic is thin nobody is
//!   picked often, and that is no reason to prefer the slow. Neither chance nor turn is for one with
//!   failures of late, nor a turn for one whose last has not been answered.
//! - *The unknown is neither flooded nor starved*: against one without samples load alone decides.

use std::time::Duration;

use crate::availability::Gate;
use crate::pool::Claim;

use super::alias::Alias;
use super::{Policy, View, below, mix};

/// A backend that was not picked for so long has its turn.
const TURN: Duration = Duration::from_secs(3);

/// Makes another random number of a pick's.
const STAYS: u64 = 0x57A7;

/// The other was picked so many times as lately.
const LATELY: u32 = 8;

/// See the module.
pub(crate) struct PeakEwma {
    candidates: Alias,
    /// 1 ÷ the candidates' mean weight.
    unit: f64,
}

/// What is compared.
struct Figures {
    /// Requests in flight and failure penalty, for the weight.
    load: f64,
    /// Seconds.
    latency: Option<f64>,
    is_penalised: bool,
}

impl PeakEwma {
    /// Over `candidates` as (index, weight above 0).
    pub(crate) fn new(candidates: &[(u32, u32)]) -> Self {
        let total: u64 = candidates
            .iter()
            .map(|&(_, weight)| u64::from(weight))
            .sum();
        Self {
            candidates: Alias::new(candidates),
            unit: candidates.len() as f64 / total.max(1) as f64,
        }
    }

    fn figures(&self, view: &View<'_>, index: usize) -> Figures {
        let (live, now) = (view.backend(index).live(), view.pick.now);
        if live.gate.load().has(Gate::TRIAL) {
            // Whoever may be tried again is, by the next request.
            return Figures {
                load: 0.0,
                latency: None,
                is_penalised: false,
            };
        }
        let in_flight = live.in_flight();
        let penalty = live.penalty.at(now);
        let weight = f64::from(live.weight()) * self.unit;
        Figures {
            load: (f64::from(in_flight) + f64::from(penalty)) / weight,
            latency: live.peak.at(now, in_flight == 0),
            is_penalised: penalty > 0.0,
        }
    }

    /// Of two that were drawn, the one to take and the other.
    fn rank(&self, view: &View<'_>, first: usize, second: usize) -> (usize, usize) {
        let (a, b) = (self.figures(view, first), self.figures(view, second));
        let takes_first = if b.is_better_than(&a) {
            let stays = || b.leaves_to(&a, view.pick.random) || has_turn(view, first, second);
            !a.is_penalised && stays()
        } else {
            b.is_penalised || !has_turn(view, second, first)
        };
        if takes_first {
            (first, second)
        } else {
            (second, first)
        }
    }
}

impl Figures {
    fn is_better_than(&self, other: &Self) -> bool {
        match (self.latency, other.latency) {
            (Some(own), Some(others)) => (self.load + 1.0) * own < (other.load + 1.0) * others,
            _ => self.load < other.load,
        }
    }

    /// Whether this, which is better, leaves the request to one that was drawn before it.
    fn leaves_to(&self, first: &Self, random: u64) -> bool {
        let (Some(own), Some(others)) = (self.latency, first.latency) else {
            return false;
        };
        if first.load > self.load {
            return false;
        }
        let ratio = others / own;
        let chance = 2.0 / (1.0 + ratio * ratio);
        let drawn = below(mix(random ^ STAYS), 1 << 32);
        (drawn as f64) < chance * 4_294_967_296.0
    }
}

/// Whether `loser` is picked all the same, because it has not been for long.
fn has_turn(view: &View<'_>, loser: usize, winner: usize) -> bool {
    let now = view.pick.now;
    let peak = &view.backend(loser).live().peak;
    let unpicked = peak.unpicked(now);
    unpicked > TURN
        && view.backend(winner).live().peak.unpicked(now) < unpicked / LATELY
        && peak.take_turn(now, TURN)
}

impl Policy for PeakEwma {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let (first, second) = self.candidates.draw_two(view)?;
        let (better, other) = match second {
            Some(second) => self.rank(view, first, second),
            None => (first, first),
        };
        let claim = view.claim_at(better).or_else(|| view.claim_at(other))?;
        claim.backend().live().peak.picked(view.pick.now);
        Some(claim)
    }

    fn drawn(&self, view: &View<'_>) -> Option<(usize, Option<usize>)> {
        self.candidates.draw_two(view)
    }
}
