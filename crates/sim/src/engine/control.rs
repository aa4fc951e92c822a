//! What is no request: ticks, probes, membership, and the faults' time line.

use mizan_core::{AdaptiveState, Event as News};

use super::balancer::number_of_key;
use super::events::{Answer, Event, Verdict};
use super::faults::{Effect, Step};
use super::request::Cause;
use super::{Engine, TICK};

/// Between two looks at a speed that changes with time.
const DRIFT: u64 = 50_000_000;
/// First probes of new members are spread over this, and a millisecond more for each. As the product's.
const FIRST_SPREAD_MIN: u64 = 50_000_000;
const FIRST_SPREAD_EACH: u64 = 1_000_000;
/// Share of the interval by which a probe's start varies. The product's default.
const PROBE_JITTER: f64 = 0.1;

impl Engine<'_> {
    pub(super) fn tick(&mut self, balancer: u32) {
        let news = self.balancers[balancer as usize].tick(self.now);
        self.hear(balancer, &news);
        self.events.push(self.now + TICK, Event::Tick { balancer });
    }

    /// A balancer hears who is a member now.
    pub(super) fn hear_members(&mut self, number: u32) {
        let members: Vec<bool> = self.backends.iter().map(|one| one.is_member).collect();
        let balancer = &mut self.balancers[number as usize];
        let news = balancer.update(self.now, &self.scenario.backends, members);
        self.hear(number, &news);
        let balancer = &self.balancers[number as usize];
        let fresh: Vec<u32> = (0..self.backends.len() as u32)
            .filter(|&backend| {
                let at = backend as usize;
                balancer.members[at] && !balancer.probing[at]
            })
            .collect();
        for &backend in &fresh {
            self.begin_probing(number, backend, fresh.len());
        }
    }

    pub(super) fn begin_probing(&mut self, balancer: u32, backend: u32, fresh: usize) {
        let Some(plan) = self.scenario.pool.probes else {
            return;
        };
        let prober = &mut self.balancers[balancer as usize];
        if !prober.probes() {
            return;
        }
        prober.probing[backend as usize] = true;
        let interval = plan.interval.as_nanos() as u64;
        let spread = (FIRST_SPREAD_EACH * fresh as u64)
            .max(FIRST_SPREAD_MIN)
            .min(interval.max(FIRST_SPREAD_MIN));
        let at = self.now + self.chance.below(spread);
        let is_first = true;
        let probe = Event::Probe {
            balancer,
            backend,
            is_first,
        };
        self.events.push(at, probe);
    }

    pub(super) fn probe(&mut self, balancer: u32, backend: u32, is_first: bool) {
        let Some(plan) = self.scenario.pool.probes else {
            return;
        };
        let prober = &mut self.balancers[balancer as usize];
        if !prober.members[backend as usize] {
            prober.probing[backend as usize] = false;
            return;
        }
        let (at, verdict) = self.verdict(backend, plan.timeout.as_nanos() as u64);
        let probed = Event::Probed {
            balancer,
            backend,
            verdict,
        };
        self.events.push(at, probed);
        let interval = plan.interval.as_nanos() as f64;
        let gap = interval
            * if is_first {
                self.chance.unit()
            } else {
                1.0 + PROBE_JITTER * (2.0 * self.chance.unit() - 1.0)
            };
        let next = Event::Probe {
            balancer,
            backend,
            is_first: false,
        };
        self.events.push((self.now + gap as u64).max(at), next);
    }

    /// What a probe that starts now finds, and when. Probes take no slot.
    fn verdict(&self, backend: u32, timeout: u64) -> (u64, Verdict) {
        let backend = &self.backends[backend as usize];
        let soon = self.now + 2 * self.network;
        if backend.is_refusing() {
            return (soon, Verdict::Refused);
        }
        let (at, verdict) = match (backend.stands_until(), backend.failing()) {
            (Some(until), _) => (soon.max(until), Verdict::Passed),
            (None, Some(failing)) if !failing.probes_pass => {
                (soon + failing.after.as_nanos() as u64, Verdict::Failed)
            }
            _ => (soon, Verdict::Passed),
        };
        let latest = self.now + timeout;
        if at > latest {
            (latest, Verdict::Failed)
        } else {
            (at, verdict)
        }
    }

    /// The change of this number becomes an event, if there is one.
    pub(super) fn push_change(&mut self, number: usize) {
        if let Some(change) = self.time_line.get(number) {
            let event = Event::Fault {
                change: number as u32,
            };
            self.events.push(change.at, event);
        }
    }

    pub(super) fn change(&mut self, number: u32) {
        let change = self.time_line[number as usize];
        self.push_change(number as usize + 1);
        let excuses = self.excuses[change.fault as usize];
        let backend = &mut self.backends[change.backend as usize];
        match change.step {
            Step::Begin(effect) => {
                backend.begin(change.fault, effect, excuses);
                if effect == Effect::Refuse {
                    self.die(change.backend);
                }
            }
            Step::End => backend.end(self.now, change.fault, excuses),
            Step::GoCold(cold) => backend.go_cold(self.now, cold),
            Step::Leave | Step::Join => {
                backend.is_member = change.step == Step::Join;
                self.spread_news();
            }
        }
        self.adjust(change.backend);
    }

    /// Lets a backend work at the speed that follows from what is wrong with it.
    pub(super) fn adjust(&mut self, number: u32) {
        let backend = &mut self.backends[number as usize];
        backend.adjust(self.now);
        if backend.drifts() && !backend.is_drifting {
            backend.is_drifting = true;
            let event = Event::Drift { backend: number };
            self.events.push(self.now + DRIFT, event);
        }
        self.schedule(number);
    }

    /// The process is gone, and with it all that it worked on.
    fn die(&mut self, number: u32) {
        let at = self.now + self.network;
        for id in self.backends[number as usize].station.abandon() {
            if self.requests.waits(id) {
                let answer = Answer::Failed(Cause::Reset);
                self.events.push_answered(at, id, answer);
            }
        }
    }

    fn spread_news(&mut self) {
        let within = self.scenario.pool.propagation.as_nanos() as u64;
        for balancer in 0..self.balancers.len() as u32 {
            let at = self.now + self.chance.below(within.max(1));
            self.events.push(at, Event::Members { balancer });
        }
    }

    /// Counts what a pool says of itself.
    pub(super) fn hear(&mut self, balancer: u32, news: &[News]) {
        if news.is_empty() {
            return;
        }
        let changes = self.balancers[balancer as usize].changes(self.now);
        self.record.changed(self.now, changes);
        for event in news {
            match event {
                News::Ejected { backend, .. } => {
                    let ejected = number_of_key(backend).map(|at| &self.backends[at]);
                    let is_excused = ejected.is_some_and(|one| one.is_excused(self.now));
                    self.record.ejected(self.now, is_excused);
                }
                News::StateChanged {
                    to: AdaptiveState::Degraded,
                    ..
                } => self.record.degraded(self.now),
                _ => {}
            }
        }
    }
}
