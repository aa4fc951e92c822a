//! The better of two drawn at random (Mitzenmacher 2001, "The power of two choices in randomized load
//! balancing").
//!
//! Of two *distinct* candidates, drawn in proportion to weight, the one with less load for its
//! weight. Drawing by weight as well as comparing by weight keeps the shares right when all are
//! idle, where the comparison ties and the first drawn stays. Because each balancer draws by itself,
//! many that see the same state do not herd.

use std::time::Duration;

use crate::availability::Gate;
use crate::backend::live::Live;
use crate::pool::Claim;
use crate::time::Instant;

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
        let (first, second) = (view.backend(first), view.backend(second));
        let (better, other) = if costs_less(second.live(), first.live(), view.pick.now) {
            (second, first)
        } else {
            (first, second)
        };
        view.claim_of(better).or_else(|| view.claim_of(other))
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
#[inline]
fn costs_less(a: &Live, b: &Live, now: Instant) -> bool {
    let ratio = a.latency.ratio_ln(&b.latency);
    if ratio.abs() > ALIKE_LN
        && ratio.is_finite()
        && let Some(is_less) = costs_less_unlike((a, b), ratio, now)
    {
        return is_less;
    }
    if is_plain(a) && is_plain(b) {
        // The rule, and quicker in whole numbers.
        let product =
            |live: &Live, other: &Live| u64::from(live.in_flight()) * u64::from(other.weight());
        return product(a, b) < product(b, a);
    }
    let (weight_a, weight_b) = (f64::from(a.weight()), f64::from(b.weight()));
    load(a, now) * weight_b < load(b, now) * weight_a
}

/// Whether its load is what it has in flight, and nothing else.
#[inline]
fn is_plain(live: &Live) -> bool {
    !live.gate.load().has(Gate::TRIAL) && live.penalty.is_none()
}

/// Requests in flight and failure penalty.
#[inline]
fn load(live: &Live, now: Instant) -> f64 {
    if live.gate.load().has(Gate::TRIAL) {
        return 0.0;
    }
    f64::from(live.in_flight()) + f64::from(live.penalty.at(now))
}

/// The same of two whose latencies differ: `ratio` is the logarithm of a's to b's. `None` if that is too
/// long ago.
#[cold]
fn costs_less_unlike((a, b): (&Live, &Live), ratio: f64, now: Instant) -> Option<bool> {
    let slower = if ratio > 0.0 { a } else { b };
    if slower.in_flight() == 0 && slower.latency.age(now) > KNOWN_FOR {
        return None;
    }
    let cost = |live: &Live, factor: f64| {
        let load = if live.gate.load().has(Gate::TRIAL) {
            0.0
        } else {
            f64::from(live.in_flight()) + f64::from(live.penalty.at(now)) + 1.0
        };
        load * factor / f64::from(live.weight())
    };
    let factor = ratio.exp().clamp(1.0 / SLOWER_MAX, SLOWER_MAX);
    Some(cost(a, factor) < cost(b, 1.0))
}
