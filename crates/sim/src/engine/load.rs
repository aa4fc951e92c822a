//! Backends are asked how much they have to do, for the policy that goes by it.
//!
//! As the product's prober does: each balancer asks whom its pool names, every [`ASK`]; a backend tells how many
//! requests it has and how long those took that it lately served at about as many. An answer takes no slot.

use mizan_core::LoadReport;
use std::time::Duration;

use super::Engine;
use super::events::Event;

/// Between two looks at whom to ask. As the product's.
const ASK: u64 = 10_000_000;
/// An answer that takes longer is none. As the product's.
const TIMEOUT: u64 = 250_000_000;
/// Requests that a backend remembers.
const REMEMBERED: usize = 32;

/// What a backend says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    in_flight: u32,
    /// Nanoseconds.
    latency: Option<u64>,
}

/// Served requests of late: how many were there when each came, and its time in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    ring: [(u32, u64); REMEMBERED],
    count: usize,
}

impl Default for Served {
    fn default() -> Self {
        Self {
            ring: [(0, 0); REMEMBERED],
            count: 0,
        }
    }
}

impl Served {
    pub(crate) fn note(&mut self, found: u32, latency: u64) {
        self.ring[self.count % REMEMBERED] = (found, latency);
        self.count += 1;
    }

    /// The median of those that found about `in_flight` others; of those that found the nearest number to it, if
    /// none did.
    fn at(&self, in_flight: u32) -> Option<u64> {
        let known = &self.ring[..self.count.min(REMEMBERED)];
        let distance = |&(found, _): &(u32, u64)| found.abs_diff(in_flight);
        let nearest = known.iter().map(distance).min()?;
        let near = nearest.max(in_flight / 5);
        let mut times = [0; REMEMBERED];
        let mut count = 0;
        for one in known.iter().filter(|one| distance(one) <= near) {
            times[count] = one.1;
            count += 1;
        }
        times[..count].sort_unstable();
        Some(times[count / 2])
    }
}

impl Engine<'_> {
    pub(super) fn begin_asking(&mut self) {
        for balancer in 0..self.balancers.len() as u32 {
            let at = self.chance.below(ASK);
            self.events.push(at, Event::Ask { balancer });
        }
    }

    pub(super) fn ask(&mut self, balancer: u32) {
        let random = self.chance.next();
        let asked = self.balancers[balancer as usize].load_probes(self.now, random);
        for (backend, workers) in asked {
            let asked = Event::Asked {
                balancer,
                backend,
                workers,
            };
            self.events.push(self.now + self.network, asked);
        }
        self.events.push(self.now + ASK, Event::Ask { balancer });
    }

    /// The question reaches a backend. One that stands still answers when it goes on.
    pub(super) fn asked(&mut self, balancer: u32, number: u32, workers: u8) {
        let backend = &self.backends[number as usize];
        let answers_at = backend.stands_until().unwrap_or(self.now);
        if backend.is_refusing() || answers_at > self.now + TIMEOUT {
            return;
        }
        let in_flight = backend.station.in_flight() as u32;
        let load = Load {
            in_flight,
            latency: backend.recent.at(in_flight),
        };
        let told = Event::Told {
            balancer,
            backend: number,
            workers,
            load,
        };
        self.events.push(answers_at + self.network, told);
    }
}

impl Load {
    pub(crate) fn report(self) -> LoadReport {
        LoadReport {
            in_flight: f64::from(self.in_flight),
            latency: self.latency.map(Duration::from_nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_tells_how_long_requests_take_at_what_it_has_now() {
        let mut served = Served::default();
        assert_eq!(served.at(3), None);
        for (found, latency) in [(1, 10), (1, 12), (1, 11), (10, 100), (11, 120), (12, 110)] {
            served.note(found, latency);
        }
        assert_eq!(served.at(1), Some(11));
        assert_eq!(served.at(10), Some(110), "10, 11 and 12 are about 10");
        assert_eq!(
            served.at(1_000),
            Some(110),
            "none is near, 12 is the nearest"
        );
        for _ in 0..REMEMBERED {
            served.note(1, 5);
        }
        assert_eq!(served.at(10), Some(5), "what is long ago is forgotten");
    }
}
