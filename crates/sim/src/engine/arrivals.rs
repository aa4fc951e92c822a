//! When requests arrive, and what each brings: open-loop, whatever becomes of those before.

use crate::law::Law;
use crate::random::{Random, scramble};
use crate::scenario::{Rate, Scenario};

use super::request::Arrival;

/// A Poisson process whose rate changes in steps.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// From when on (nanoseconds), and requests a nanosecond.
    rates: Vec<(u64, f64)>,
    /// Index of the rate in force.
    rate: usize,
    at: u64,
    end: u64,
    balancers: u64,
    keys: u64,
    law: Law,
    times: Random,
    /// Beside the times, so that a scenario with another rate still has the same requests.
    requests: Random,
}

impl Arrivals {
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Self {
        let rate = |rate: &Rate| (rate.from.as_nanos() as u64, rate.per_second * 1e-9);
        Self {
            rates: scenario.arrivals.iter().map(rate).collect(),
            rate: 0,
            at: 0,
            end: scenario.time.as_nanos() as u64,
            balancers: scenario.balancers as u64,
            keys: scenario.keys,
            law: scenario.service,
            times: Random::new(seed, 1),
            requests: Random::new(seed, 2),
        }
    }

    /// The next arrival; `None` when the simulated time is over.
    pub(crate) fn next(&mut self) -> Option<Arrival> {
        let at = self.next_time()?;
        let balancer = self.requests.below(self.balancers) as u32;
        let key = self.requests.below(self.keys);
        Some(Arrival {
            at,
            balancer,
            hash: scramble(key.wrapping_add(0x5EED)),
            work: self.law.draw(&mut self.requests),
        })
    }

    /// The process has no memory: where the rate changes, it is drawn anew from there.
    fn next_time(&mut self) -> Option<u64> {
        loop {
            let &(_, rate) = self.rates.get(self.rate)?;
            let until = self
                .rates
                .get(self.rate + 1)
                .map_or(self.end, |next| next.0);
            let gap = self.times.exponential() / rate;
            if rate > 0.0 && (self.at as f64 + gap) < until.min(self.end) as f64 {
                self.at += gap as u64;
                return Some(self.at);
            }
            if until >= self.end {
                return None;
            }
            self.at = until;
            self.rate += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scenario::shipped;

    #[test]
    fn arrivals_come_at_the_rate_of_each_step() {
        let mut scenario = shipped()[0].scenario();
        scenario.time = Duration::from_secs(30);
        let step = |from, per_second| Rate {
            from: Duration::from_secs(from),
            per_second,
        };
        scenario.arrivals = vec![step(0, 1_000.0), step(10, 0.0), step(20, 5_000.0)];
        let mut arrivals = Arrivals::new(&scenario, 1);
        let mut counts = [0u32; 3];
        let mut last = 0;
        while let Some(arrival) = arrivals.next() {
            assert!(arrival.at >= last);
            last = arrival.at;
            counts[(arrival.at / 10_000_000_000) as usize] += 1;
        }
        // Three deviations of a Poisson count.
        assert!((9_700..10_300).contains(&counts[0]), "{counts:?}");
        assert_eq!(counts[1], 0);
        assert!((49_300..50_700).contains(&counts[2]), "{counts:?}");
    }
}
