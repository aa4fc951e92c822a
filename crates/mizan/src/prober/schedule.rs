//! When each backend is probed: a machine without I/O, clock or entropy of its own.
//!
//! ```text
//!            tick: due, and one of `running_max` slots is free
//!  waiting ────────────────────────────────────────────────────▶ running
//!     ▲                                                             │
//!     └──────────────────────── Finished ───────────────────────────┘
//! ```
//!
//! - Two probes of one backend never overlap: a running target is in no queue. One that outlasts its interval
//!   is followed as soon as it ends.
//! - A new target's first probe comes at once, within a [`first_spread`]; its second falls anywhere in the
//!   interval after it. So members that appear together drift apart at once instead of firing together for ever.
//! - Later gaps are `interval × (1 ± jitter)` from start to start. They count from the start that really
//!   happened, so a prober that was late does not catch up in a burst.
//! - When all slots are taken, due targets wait in the order of their due times.

use mizan_core::time::Instant;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

/// First probes of a handful of new backends start within this.
const FIRST_SPREAD_MIN: Duration = Duration::from_millis(50);
/// What each further new backend of a pool adds to the spread of the first probes.
const FIRST_SPREAD_EACH: Duration = Duration::from_millis(1);

/// One backend of one pool. Ids are never used again.
pub(super) type TargetId = u64;

/// How often a target is probed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    /// Between the starts of two probes.
    pub(super) interval: Duration,
    /// Share of the interval by which a start varies, 0.0–0.5.
    pub(super) jitter: f64,
}

/// What the machine is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A target appeared; its first probe is to start within `spread`.
    Added {
        target: TargetId,
        plan: Plan,
        spread: Duration,
    },
    /// Its plan changed.
    Replanned { target: TargetId, plan: Plan },
    /// It is gone. If a probe of it runs, its slot is taken until `Finished`.
    Removed { target: TargetId },
    /// A probe that `tick` started has ended, in whatever way.
    Finished { target: TargetId },
}

/// How long the first probes of `new` members that appeared together in one pool are spread over.
pub(super) fn first_spread(new: usize, interval: Duration) -> Duration {
    let wanted = FIRST_SPREAD_EACH.saturating_mul(u32::try_from(new).unwrap_or(u32::MAX));
    wanted
        .max(FIRST_SPREAD_MIN)
        .min(interval.max(FIRST_SPREAD_MIN))
}

/// The machine.
#[derive(Debug)]
pub(super) struct Schedule {
    targets: HashMap<TargetId, Target>,
    /// May hold entries that no longer count: one counts if its target waits for exactly that time.
    queue: BinaryHeap<Reverse<(Instant, TargetId)>>,
    running: usize,
    running_max: usize,
    random: u64,
}

#[derive(Debug)]
struct Target {
    plan: Plan,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Never probed yet.
    New {
        due: Instant,
    },
    Waiting {
        due: Instant,
        last: Instant,
    },
    Running {
        started: Instant,
        next: Instant,
    },
    /// Removed while a probe of it runs.
    Leaving,
}

impl Schedule {
    /// At most `running_max` probes at once; `random` seeds spread and jitter.
    pub(super) fn new(running_max: usize, random: u64) -> Self {
        Self {
            targets: HashMap::new(),
            queue: BinaryHeap::new(),
            running: 0,
            running_max: running_max.max(1),
            random,
        }
    }

    /// Takes in what happened.
    pub(super) fn observe(&mut self, now: Instant, event: Event) {
        match event {
            Event::Added {
                target,
                plan,
                spread,
            } => self.added(now, target, plan, spread),
            Event::Replanned { target, plan } => self.replanned(now, target, plan),
            Event::Removed { target } => self.removed(target),
            Event::Finished { target } => self.finished(now, target),
        }
    }

    /// The targets whose probe starts now, those that are due longest first. Each must be answered by `Finished`.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<TargetId> {
        let mut starts = Vec::new();
        while self.running < self.running_max {
            let Some(&Reverse((due, id))) = self.queue.peek() else {
                break;
            };
            if due > now {
                break;
            }
            self.queue.pop();
            let Some(target) = self.targets.get(&id) else {
                continue;
            };
            let gap = match target.state {
                State::New { due: wanted } if wanted == due => {
                    target.plan.interval.mul_f64(self.fraction())
                }
                State::Waiting { due: wanted, .. } if wanted == due => self.gap(target.plan),
                _ => continue,
            };
            self.set(
                id,
                State::Running {
                    started: now,
                    next: now + gap,
                },
            );
            self.running += 1;
            starts.push(id);
        }
        starts
    }

    /// When `tick` has work without another event; `None` while nothing waits or no slot is free.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.running >= self.running_max {
            return None;
        }
        self.queue.peek().map(|Reverse((due, _))| *due)
    }

    fn added(&mut self, now: Instant, target: TargetId, plan: Plan, spread: Duration) {
        let due = now + spread.mul_f64(self.fraction());
        self.targets.insert(
            target,
            Target {
                plan,
                state: State::New { due },
            },
        );
        self.queue.push(Reverse((due, target)));
    }

    fn replanned(&mut self, now: Instant, id: TargetId, plan: Plan) {
        let gap = self.gap(plan);
        let fraction = self.fraction();
        let Some(target) = self.targets.get_mut(&id) else {
            return;
        };
        target.plan = plan;
        match target.state {
            State::New { .. } | State::Leaving => {}
            State::Running { started, .. } => {
                target.state = State::Running {
                    started,
                    next: started + gap,
                }
            }
            State::Waiting { last, .. } => {
                let wanted = last + gap;
                // Much shorter than before: overdue all at once. They are spread, not fired together.
                let due = if wanted < now {
                    now + plan.interval.mul_f64(fraction)
                } else {
                    wanted
                };
                target.state = State::Waiting { due, last };
                self.queue.push(Reverse((due, id)));
                self.compact();
            }
        }
    }

    fn removed(&mut self, id: TargetId) {
        match self.targets.get_mut(&id) {
            Some(target) if matches!(target.state, State::Running { .. }) => {
                target.state = State::Leaving
            }
            Some(Target {
                state: State::Leaving,
                ..
            })
            | None => {}
            Some(_) => {
                self.targets.remove(&id);
                self.compact();
            }
        }
    }

    fn finished(&mut self, now: Instant, id: TargetId) {
        match self.targets.get(&id).map(|target| &target.state) {
            Some(&State::Running { started, next }) => {
                self.running -= 1;
                let due = next.max(now);
                self.set(id, State::Waiting { due, last: started });
                self.queue.push(Reverse((due, id)));
            }
            Some(State::Leaving) => {
                self.running -= 1;
                self.targets.remove(&id);
            }
            Some(State::New { .. } | State::Waiting { .. }) | None => {}
        }
    }

    fn set(&mut self, id: TargetId, state: State) {
        if let Some(target) = self.targets.get_mut(&id) {
            target.state = state;
        }
    }

    /// Drops entries that no longer count once they are the greater part.
    fn compact(&mut self) {
        if self.queue.len() > 2 * self.targets.len() + 64 {
            let targets = &self.targets;
            self.queue.retain(|Reverse((due, id))| {
                targets.get(id).is_some_and(|target| target.waits_for(*due))
            });
        }
    }

    /// From one start to the next.
    fn gap(&mut self, plan: Plan) -> Duration {
        let jitter = plan.jitter.clamp(0.0, 0.5);
        plan.interval
            .mul_f64(1.0 - jitter + 2.0 * jitter * self.fraction())
    }

    /// Uniform in 0.0..1.0, by splitmix64.
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Target {
    fn waits_for(&self, time: Instant) -> bool {
        match self.state {
            State::New { due } | State::Waiting { due, .. } => due == time,
            State::Running { .. } | State::Leaving => false,
        }
    }
}

#[cfg(test)]
mod tests;
