//! A backend: its station, and what is wrong with it at present.

use crate::scenario::{BackendPlan, Cold, Failing, Warm};

use super::faults::Effect;
use super::load::Served;
use super::station::Station;

/// An ejection this long after a fault's end still goes by what the fault did.
const EXCUSED_AFTER: u64 = 1_000_000_000;

/// One backend.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) station: Station,
    /// When its next end of service is due; `u64::MAX` for none.
    pub(crate) scheduled: u64,
    /// Whether a look at its drifting speed is due.
    pub(crate) is_drifting: bool,
    /// What it served of late.
    pub(crate) recent: Served,
    /// Whether it is in the pool.
    pub(crate) is_member: bool,
    base: f64,
    /// By the fault that each belongs to.
    effects: Vec<(u32, Effect)>,
    cold: Option<Warming>,
    /// Effects that account for an ejection, and when the last of them ended.
    excuses: u32,
    excused_until: u64,
}

#[derive(Clone, Copy, Debug)]
struct Warming {
    cold: Cold,
    since: u64,
    served: u64,
}

impl Backend {
    pub(crate) fn new(plan: &BackendPlan) -> Self {
        Self {
            station: Station::new(plan.slots, plan.queue_max, plan.speed),
            scheduled: u64::MAX,
            is_drifting: false,
            recent: Served::default(),
            is_member: true,
            base: plan.speed,
            effects: Vec::new(),
            cold: None,
            excuses: 0,
            excused_until: 0,
        }
    }

    /// A fault begins. `excuses` says whether it accounts for an ejection.
    pub(crate) fn begin(&mut self, fault: u32, effect: Effect, excuses: bool) {
        self.effects.push((fault, effect));
        self.excuses += u32::from(excuses);
    }

    pub(crate) fn end(&mut self, now: u64, fault: u32, excuses: bool) {
        let before = self.effects.len();
        self.effects.retain(|&(of, _)| of != fault);
        if excuses && self.effects.len() < before {
            self.excuses -= 1;
            self.excused_until = now + EXCUSED_AFTER;
        }
    }

    pub(crate) fn go_cold(&mut self, now: u64, cold: Cold) {
        self.cold = Some(Warming {
            cold,
            since: now,
            served: 0,
        });
    }

    /// Counts a request that it served; true if that changes its speed.
    pub(crate) fn note_served(&mut self) -> bool {
        match &mut self.cold {
            Some(warming) if matches!(warming.cold.warm, Warm::Requests(_)) => {
                warming.served += 1;
                true
            }
            _ => false,
        }
    }

    /// Looks at what is wrong, and lets it work at the speed that follows.
    pub(crate) fn adjust(&mut self, now: u64) {
        let speed = self.speed(now);
        self.station.set_speed(now, speed);
    }

    /// Whether its speed changes with time, so that it has to be adjusted again.
    pub(crate) fn drifts(&self) -> bool {
        let ramps = |&(_, effect): &(u32, Effect)| matches!(effect, Effect::Ramp { .. });
        let warms =
            matches!(self.cold, Some(warming) if matches!(warming.cold.warm, Warm::Time(_)));
        warms || self.effects.iter().any(ramps)
    }

    pub(crate) fn is_refusing(&self) -> bool {
        self.effects
            .iter()
            .any(|&(_, effect)| effect == Effect::Refuse)
    }

    pub(crate) fn failing(&self) -> Option<Failing> {
        self.effects.iter().find_map(|&(_, effect)| match effect {
            Effect::Failing(failing) => Some(failing),
            _ => None,
        })
    }

    /// Until when it stands still in a way that its health check suffers from.
    pub(crate) fn stands_until(&self) -> Option<u64> {
        let stands = self.effects.iter().filter_map(|&(_, effect)| match effect {
            Effect::Stand {
                until,
                probes_pass: false,
            } => Some(until),
            _ => None,
        });
        stands.max()
    }

    /// Whether something is wrong that accounts for an ejection now.
    pub(crate) fn is_excused(&self, now: u64) -> bool {
        self.excuses > 0 || now < self.excused_until
    }

    fn speed(&mut self, now: u64) -> f64 {
        let mut speed = self.base;
        for &(_, effect) in &self.effects {
            speed *= match effect {
                Effect::Speed(factor) => factor,
                Effect::Ramp { floor, from, to } => {
                    let part = share(now - from, to - from);
                    1.0 - (1.0 - floor) * part
                }
                Effect::Stand { .. } => 0.0,
                Effect::Failing(_) | Effect::Refuse => 1.0,
            };
        }
        speed * self.warmth(now)
    }

    /// The part of its speed that a cold process has; forgets the cold once it is over.
    fn warmth(&mut self, now: u64) -> f64 {
        let Some(Warming {
            cold,
            since,
            served,
        }) = self.cold
        else {
            return 1.0;
        };
        let part = match cold.warm {
            Warm::Requests(requests) => share(served, requests),
            Warm::Time(time) => share(now - since, time.as_nanos() as u64),
        };
        if part >= 1.0 {
            self.cold = None;
            return 1.0;
        }
        cold.speed + (1.0 - cold.speed) * part
    }
}

fn share(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PLAN: BackendPlan = BackendPlan {
        priority: 0,
        zone: 0,
        slots: 1,
        queue_max: 10,
        speed: 2.0,
        weight: 1,
    };

    #[test]
    fn effects_multiply_and_each_ends_by_itself() {
        let mut backend = Backend::new(&PLAN);
        backend.begin(0, Effect::Speed(0.5), true);
        backend.begin(1, Effect::Speed(0.1), false);
        assert!((backend.speed(0) - 0.1).abs() < 1e-12);
        backend.end(5, 0, true);
        assert!((backend.speed(5) - 0.2).abs() < 1e-12);
        assert!(backend.is_excused(5 + EXCUSED_AFTER - 1));
        assert!(!backend.is_excused(5 + EXCUSED_AFTER));
    }

    #[test]
    fn a_cold_process_gets_warm_with_requests_or_with_time() {
        let mut backend = Backend::new(&PLAN);
        let cold = |warm| Cold { speed: 0.5, warm };
        backend.go_cold(0, cold(Warm::Requests(2)));
        assert_eq!(backend.speed(0), 1.0);
        assert!(backend.note_served());
        assert_eq!(backend.speed(0), 1.5);
        assert!(backend.note_served());
        assert_eq!(backend.speed(0), 2.0);
        assert!(!backend.note_served(), "it is warm");
        backend.go_cold(100, cold(Warm::Time(Duration::from_nanos(100))));
        assert!(backend.drifts());
        assert_eq!(backend.speed(150), 1.5);
        assert_eq!(backend.speed(200), 2.0);
        assert!(!backend.drifts());
    }
}
