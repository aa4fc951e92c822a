//! Weights by rules of others, set from outside as by a program beside the balancer: what is left when the decision is
//! a formula on averages. For comparison only; the rules are [`WeightRule`]'s.

use std::time::Duration;

use mizan_core::Outcome;

use crate::contender::WeightRule;

use super::Engine;
use super::events::Event;

/// Weights are multiplied by this first, so that a share of one can be said.
const SCALE: f64 = 100.0;

/// What was seen of a backend since the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    latency_sum: Duration,
    answers: u32,
    failed: u32,
}

impl Seen {
    /// Mean, seconds.
    fn latency(&self) -> Option<f64> {
        (self.answers > 0).then(|| self.latency_sum.as_secs_f64() / f64::from(self.answers))
    }

    fn failed_share(&self) -> f64 {
        f64::from(self.failed) / f64::from((self.answers + self.failed).max(1))
    }
}

/// A rule with what it has seen.
#[derive(Debug)]
pub(super) struct Weigher {
    rule: WeightRule,
    seen: Vec<Seen>,
    /// Share of its weight that each backend gets.
    scores: Vec<f64>,
}

impl Weigher {
    pub(super) fn new(rule: WeightRule, backends: usize) -> Self {
        Self {
            rule,
            seen: vec![Seen::default(); backends],
            scores: vec![1.0; backends],
        }
    }

    pub(super) fn note(&mut self, backend: u32, outcome: Outcome) {
        let seen = &mut self.seen[backend as usize];
        match outcome {
            Outcome::Success { latency } => {
                seen.answers += 1;
                seen.latency_sum += latency;
            }
            _ => seen.failed += 1,
        }
    }

    /// Looks at what was seen since the last time.
    fn look(&mut self) {
        let latencies: Vec<f64> = self.seen.iter().filter_map(Seen::latency).collect();
        let mean = latencies.iter().sum::<f64>() / latencies.len().max(1) as f64;
        for (seen, score) in self.seen.iter_mut().zip(&mut self.scores) {
            if seen.answers + seen.failed > 0 {
                *score = scored(self.rule, *score, seen, mean);
            }
            *seen = Seen::default();
        }
    }

    /// What `weight` becomes.
    pub(super) fn weight(&self, backend: u32, weight: u32) -> u32 {
        let scaled = f64::from(weight) * SCALE * self.scores[backend as usize];
        (scaled.round() as u32).clamp(1, u32::from(u16::MAX))
    }

    /// Nanoseconds between two looks.
    fn period(&self) -> u64 {
        match self.rule {
            WeightRule::FixedBaseline => 1_000_000_000,
            WeightRule::Relative => 5_000_000_000,
        }
    }
}

/// The next score of a backend, when the mean latency of all is `mean` seconds.
fn scored(rule: WeightRule, score: f64, seen: &Seen, mean: f64) -> f64 {
    let (latency, failed) = (seen.latency(), seen.failed_share());
    match rule {
        WeightRule::FixedBaseline => {
            let slower = latency.map_or(0.0, |latency| (latency - 0.1) / 0.1);
            (1.0 - slower.max(0.0) - 10.0 * failed).max(0.1)
        }
        WeightRule::Relative => {
            let times = latency.map_or(1.0, |latency| latency / mean);
            let step = if times >= 1.3 || failed >= 0.1 {
                -0.2
            } else if times <= 1.2 {
                0.05
            } else {
                0.0
            };
            (score + step).clamp(0.01, 1.0)
        }
    }
}

impl Engine<'_> {
    pub(super) fn begin_weighing(&mut self, balancer: u32) {
        if let Some(weigher) = &self.balancers[balancer as usize].weigher {
            let at = self.chance.below(weigher.period());
            self.events.push(at, Event::Weigh { balancer });
        }
    }

    pub(super) fn weigh(&mut self, number: u32) {
        let balancer = &mut self.balancers[number as usize];
        let Some(weigher) = &mut balancer.weigher else {
            return;
        };
        weigher.look();
        let next = self.now + weigher.period();
        let members = balancer.members.clone();
        let news = balancer.update(self.now, &self.scenario.backends, members);
        self.hear(number, &news);
        self.events.push(next, Event::Weigh { balancer: number });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(millis: u64, answers: u32, failed: u32) -> Seen {
        Seen {
            latency_sum: Duration::from_millis(millis) * answers,
            answers,
            failed,
        }
    }

    #[test]
    fn the_fixed_baseline_takes_latency_beyond_100_ms_and_failures_tenfold() {
        let score = |seen| scored(WeightRule::FixedBaseline, 1.0, &seen, 0.0);
        assert_eq!(score(seen(50, 10, 0)), 1.0);
        assert!((score(seen(150, 10, 0)) - 0.5).abs() < 1e-9);
        assert!((score(seen(50, 98, 2)) - 0.8).abs() < 1e-9);
        assert_eq!(score(seen(900, 10, 0)), 0.1);
    }

    #[test]
    fn the_relative_rule_falls_fast_and_rises_slowly() {
        let score = |before, millis| scored(WeightRule::Relative, before, &seen(millis, 9, 0), 0.1);
        assert!((score(1.0, 131) - 0.8).abs() < 1e-9);
        assert!((score(0.5, 125) - 0.5).abs() < 1e-9);
        assert!((score(0.5, 119) - 0.55).abs() < 1e-9);
        assert_eq!(score(0.1, 131), 0.01);
        let failing = scored(WeightRule::Relative, 1.0, &seen(50, 9, 1), 0.1);
        assert!((failing - 0.8).abs() < 1e-9);
    }
}
