//! The better of two drawn at random (Mitzenmacher 2001, "The power of two choices in randomized load
//! balancing").
//!
//! Of two *distinct* candidates, drawn in proportion to weight, the one with less load for its
//! weight. Drawing by weight as well as comparing by weight keeps the shares right when all are
//! idle, where the comparison ties and the first drawn stays. Because each balancer draws by itself,
//! many that see the same state do not herd.

use std::cmp::Ordering;
use std::time::Duration;

use crate::availability::Gate;
use crate::pool::Claim;

use super::alias::Alias;
use super::{Policy, View};

/// See the module.
pub(crate) struct PowerOfTwo {
    candidates: Alias,
}

impl PowerOfTwo {
    /// Over `candidates` as (index, weight above 0).
    pub(crate) fn new(candidates: &[(u32, u32)]) -> Self {
        Self {
            candidates: Alias::new(candidates),
        }
    }
}

impl PowerOfTwo {
    /// The first of the two that a pick would draw.
    pub(crate) fn draw(&self, view: &View<'_>) -> Option<usize> {
        let mut random = view.pick.random;
        self.candidates.draw_eligible(view, &mut random, None)
    }
}

impl Policy for PowerOfTwo {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let (first, second) = self.candidates.draw_two(view)?;
        let Some(second) = second else {
            return view.claim_at(first);
        };
        let (better, other) = match compare(view, second, first) {
            Ordering::Less => (second, first),
            Ordering::Equal | Ordering::Greater => (first, second),
        };
        view.claim_at(better).or_else(|| view.claim_at(other))
    }

    fn drawn(&self, view: &View<'_>) -> Option<(usize, Option<usize>)> {
        self.candidates.draw_two(view)
    }
}

/// Latencies within a factor of 1.75 of each other are the same, as an average over few requests is no
/// surer. Clearly below 2: machines that are twice as fast as others are common, and would be now
/// within, now beyond. As a logarithm.
const ALIKE_LN: f64 = 0.559_615_787_935_422_7;
/// What is known of the slower one is not older than this: it may be well again, which only a request
/// can show.
const KNOWN_FOR: Duration = Duration::from_secs(3);
/// A slower backend costs no more than this many times as much: what it has in flight goes on counting.
const SLOWER_MAX: f64 = 8.0;

/// Compares load for weight: (in flight + failure penalty) ÷ weight, multiplied out. One that may be
/// tried again counts as idle. Of two whose latencies clearly differ the slower one costs as much more,
/// with the request counted that is to come: idle, they would tie, and at half load most pairs are idle.
fn compare(view: &View<'_>, a: usize, b: usize) -> Ordering {
    let level = |index: usize| view.backend(index).live().latency.level();
    // Levels are logarithms that fade alike, so that their difference is the ratio's.
    let ratio = match (level(a), level(b)) {
        (Some(a), Some(b)) => a - b,
        _ => 0.0,
    };
    if ratio.abs() > ALIKE_LN
        && let Some(order) = compare_unlike(view, (a, b), ratio)
    {
        return order;
    }
    let cost = |index: usize| {
        let live = view.backend(index).live();
        let load = if live.gate.load().has(Gate::TRIAL) {
            0.0
        } else {
            f64::from(live.in_flight()) + f64::from(live.penalty.at(view.pick.now))
        };
        (load, f64::from(live.weight()))
    };
    let ((load_a, weight_a), (load_b, weight_b)) = (cost(a), cost(b));
    (load_a * weight_b).total_cmp(&(load_b * weight_a))
}

/// The same of two whose latencies differ: `ratio` is the logarithm of a's to b's. `None` if that is too
/// long ago.
#[cold]
fn compare_unlike(view: &View<'_>, (a, b): (usize, usize), ratio: f64) -> Option<Ordering> {
    let slower = if ratio > 0.0 { a } else { b };
    let live = view.backend(slower).live();
    if live.in_flight() == 0 && live.latency.age(view.pick.now) > KNOWN_FOR {
        return None;
    }
    let cost = |index: usize, factor: f64| {
        let live = view.backend(index).live();
        let load = if live.gate.load().has(Gate::TRIAL) {
            0.0
        } else {
            f64::from(live.in_flight()) + f64::from(live.penalty.at(view.pick.now)) + 1.0
        };
        load * factor / f64::from(live.weight())
    };
    let factor = ratio.exp().clamp(1.0 / SLOWER_MAX, SLOWER_MAX);
    Some(cost(a, factor).total_cmp(&cost(b, 1.0)))
}
