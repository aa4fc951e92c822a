//! Virtual time only: a world that runs each started probe for a time it draws, and checks every start.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECOND: Duration = Duration::from_secs(1);
const PLAN: Plan = Plan {
    interval: Duration::from_secs(2),
    jitter: 0.1,
};

fn at(time: Duration) -> Instant {
    Instant::from_nanos(time.as_nanos() as u64)
}

struct World {
    schedule: Schedule,
    now: Instant,
    /// End of each running probe.
    running: BTreeMap<TargetId, Instant>,
    starts: BTreeMap<TargetId, Vec<Instant>>,
    most_at_once: usize,
}

impl World {
    fn new(running_max: usize, seed: u64) -> Self {
        Self {
            schedule: Schedule::new(running_max, seed),
            now: at(Duration::ZERO),
            running: BTreeMap::new(),
            starts: BTreeMap::new(),
            most_at_once: 0,
        }
    }

    fn add(&mut self, targets: std::ops::Range<TargetId>, plan: Plan) {
        let spread = first_spread(targets.clone().count(), plan.interval);
        for target in targets {
            self.schedule.observe(
                self.now,
                Event::Added {
                    target,
                    plan,
                    spread,
                },
            );
        }
    }

    /// Runs until `end`; a probe of target `id` takes `lasts(id)`.
    fn run(&mut self, end: Instant, lasts: impl Fn(TargetId) -> Duration) {
        loop {
            let ended = self.running.values().min().copied();
            let Some(next) = [ended, self.schedule.deadline()]
                .into_iter()
                .flatten()
                .min()
            else {
                break;
            };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            let done: Vec<_> = self
                .running
                .iter()
                .filter(|(_, end)| **end <= self.now)
                .map(|(id, _)| *id)
                .collect();
            for target in done {
                self.running.remove(&target);
                self.schedule.observe(self.now, Event::Finished { target });
            }
            for target in self.schedule.tick(self.now) {
                let overlap = self.running.insert(target, self.now + lasts(target));
                assert_eq!(overlap, None, "two probes of {target} at once");
                self.starts.entry(target).or_default().push(self.now);
            }
            self.most_at_once = self.most_at_once.max(self.running.len());
            assert_eq!(self.schedule.running, self.running.len());
        }
        self.now = end;
    }

    fn gaps(&self, target: TargetId) -> Vec<Duration> {
        self.starts[&target]
            .windows(2)
            .map(|pair| pair[1].saturating_since(pair[0]))
            .collect()
    }
}

#[test]
fn a_new_backend_is_probed_at_once() {
    let mut world = World::new(256, 1);
    world.add(0..3, PLAN);
    world.run(at(100 * SECOND), |_| Duration::from_millis(1));
    world.add(3..4, PLAN);
    world.run(at(101 * SECOND), |_| Duration::from_millis(1));
    for target in 0..3 {
        assert!(world.starts[&target][0] <= at(Duration::from_millis(50)));
    }
    let first = world.starts[&3][0].saturating_since(at(100 * SECOND));
    assert!(first <= Duration::from_millis(50), "{first:?}");
}

#[test]
fn first_probes_of_a_big_pool_are_spread() {
    let mut world = World::new(256, 2);
    let plan = Plan {
        interval: 10 * SECOND,
        jitter: 0.1,
    };
    world.add(0..10_000, plan);
    world.run(at(10 * SECOND), |_| Duration::from_millis(1));
    let mut seconds = [0_usize; 11];
    for starts in world.starts.values() {
        seconds[(starts[0].as_nanos() / 1_000_000_000) as usize] += 1;
    }
    assert_eq!(world.starts.len(), 10_000);
    assert!(
        seconds[..10]
            .iter()
            .all(|count| (800..1_200).contains(count)),
        "{seconds:?}"
    );
}

#[test]
fn the_spread_never_exceeds_the_interval() {
    assert_eq!(first_spread(1, 2 * SECOND), Duration::from_millis(50));
    assert_eq!(first_spread(1_000, 2 * SECOND), SECOND);
    assert_eq!(first_spread(10_000, 2 * SECOND), 2 * SECOND);
    assert_eq!(
        first_spread(1, Duration::from_millis(10)),
        Duration::from_millis(50)
    );
}

#[test]
fn members_that_appear_together_do_not_fire_together() {
    let mut world = World::new(256, 3);
    world.add(
        0..200,
        Plan {
            interval: 10 * SECOND,
            jitter: 0.0,
        },
    );
    world.run(at(120 * SECOND), |_| Duration::ZERO);
    let mut tenths = [0_usize; 10];
    for starts in world.starts.values() {
        let last = starts[starts.len() - 1].as_nanos() / 1_000_000_000;
        tenths[(last % 10) as usize] += 1;
    }
    assert!(
        tenths.iter().all(|count| (5..45).contains(count)),
        "{tenths:?}"
    );
}

#[test]
fn starts_keep_the_interval_within_the_jitter() {
    let mut world = World::new(256, 4);
    world.add(0..20, PLAN);
    world.run(at(400 * SECOND), |_| Duration::from_millis(300));
    for target in 0..20 {
        let gaps = world.gaps(target);
        assert!(
            gaps[0] <= PLAN.interval,
            "the second probe comes within one interval"
        );
        let (low, high) = (PLAN.interval.mul_f64(0.9), PLAN.interval.mul_f64(1.1));
        assert!(
            gaps[1..].iter().all(|gap| (low..=high).contains(gap)),
            "{gaps:?}"
        );
        assert!(
            gaps[1..].iter().any(|gap| *gap < PLAN.interval)
                && gaps[1..].iter().any(|gap| *gap > PLAN.interval)
        );
        assert!(
            (190..=212).contains(&gaps.len()),
            "{} probes in 400 s at 2 s",
            gaps.len()
        );
    }
}

#[test]
fn a_probe_longer_than_its_interval_is_followed_when_it_ends() {
    let mut world = World::new(256, 5);
    world.add(0..1, PLAN);
    world.run(at(60 * SECOND), |_| 5 * SECOND);
    assert!(
        world.gaps(0).iter().all(|gap| *gap == 5 * SECOND),
        "{:?}",
        world.gaps(0)
    );
}

#[test]
fn slots_bound_the_probes_at_once_and_nobody_starves() {
    let mut world = World::new(4, 6);
    world.add(0..40, PLAN);
    world.run(at(200 * SECOND), |_| SECOND);
    assert_eq!(world.most_at_once, 4);
    let counts: Vec<_> = (0..40).map(|target| world.starts[&target].len()).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(
        *least >= 18 && most - least <= 2,
        "4 slots × 200 s over 40 targets: {counts:?}"
    );
}

#[test]
fn a_late_prober_does_not_catch_up_in_a_burst() {
    let mut world = World::new(256, 7);
    world.add(0..1, PLAN);
    world.run(at(20 * SECOND), |_| Duration::ZERO);
    world.now = at(200 * SECOND);
    let before = world.starts[&0].len();
    world.run(at(203 * SECOND), |_| Duration::ZERO);
    assert!(world.starts[&0].len() - before <= 2);
}

#[test]
fn a_removed_target_is_not_probed_again() {
    let mut world = World::new(256, 8);
    world.add(0..2, PLAN);
    world.run(at(10 * SECOND), |_| Duration::from_millis(1));
    let before = world.starts[&0].len();
    world
        .schedule
        .observe(world.now, Event::Removed { target: 0 });
    world.run(at(30 * SECOND), |_| Duration::from_millis(1));
    assert_eq!(world.starts[&0].len(), before);
    assert!(world.starts[&1].len() > before + 5);
}

#[test]
fn a_target_removed_in_mid_probe_holds_its_slot_until_the_probe_ends() {
    let mut schedule = Schedule::new(1, 9);
    let (start, later) = (at(SECOND), at(2 * SECOND));
    for target in 0..2 {
        schedule.observe(
            at(Duration::ZERO),
            Event::Added {
                target,
                plan: PLAN,
                spread: Duration::ZERO,
            },
        );
    }
    assert_eq!(schedule.tick(start), [0]);
    schedule.observe(start, Event::Removed { target: 0 });
    assert_eq!((schedule.tick(later), schedule.deadline()), (vec![], None));
    schedule.observe(later, Event::Finished { target: 0 });
    assert_eq!(schedule.tick(later), [1]);
    schedule.observe(later, Event::Finished { target: 1 });
    schedule.observe(later, Event::Removed { target: 1 });
    assert!(schedule.tick(at(100 * SECOND)).is_empty());
    assert_eq!(schedule.running, 0);
}

#[test]
fn a_shorter_interval_holds_soon_and_without_a_burst() {
    let mut world = World::new(1_000, 10);
    world.add(
        0..500,
        Plan {
            interval: 60 * SECOND,
            jitter: 0.1,
        },
    );
    world.run(at(300 * SECOND), |_| Duration::ZERO);
    for target in 0..500 {
        world
            .schedule
            .observe(world.now, Event::Replanned { target, plan: PLAN });
    }
    world.starts.clear();
    let change = world.now;
    world.run(change + 4 * SECOND, |_| Duration::ZERO);
    let first: Vec<_> = world
        .starts
        .values()
        .map(|starts| starts[0].saturating_since(change))
        .collect();
    assert_eq!(first.len(), 500);
    assert!(
        first
            .iter()
            .all(|first| *first <= PLAN.interval.mul_f64(1.1))
    );
    let at_once = first
        .iter()
        .filter(|first| **first < Duration::from_millis(100))
        .count();
    assert!(at_once < 60, "{at_once} of 500 in the first 100 ms");
}

#[test]
fn a_longer_interval_holds_at_once() {
    let mut world = World::new(256, 11);
    world.add(0..1, PLAN);
    world.run(at(20 * SECOND), |_| Duration::ZERO);
    world.schedule.observe(
        world.now,
        Event::Replanned {
            target: 0,
            plan: Plan {
                interval: 60 * SECOND,
                jitter: 0.0,
            },
        },
    );
    let before = world.starts[&0].len();
    world.run(at(75 * SECOND), |_| Duration::ZERO);
    assert_eq!(world.starts[&0].len(), before);
    world.run(at(81 * SECOND), |_| Duration::ZERO);
    assert_eq!(world.starts[&0].len(), before + 1);
}

#[test]
fn replanning_for_ever_does_not_grow_the_queue() {
    let mut world = World::new(256, 12);
    world.add(0..10, PLAN);
    world.run(at(10 * SECOND), |_| Duration::ZERO);
    for round in 0..10_000_u64 {
        let plan = Plan {
            interval: Duration::from_secs(60 + round % 7),
            jitter: 0.1,
        };
        world.schedule.observe(
            world.now,
            Event::Replanned {
                target: round % 10,
                plan,
            },
        );
    }
    assert!(
        world.schedule.queue.len() <= 100,
        "{}",
        world.schedule.queue.len()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes and goes, however long probes last: never two of one target (checked in `run`), never
    /// more than the slots, and a target that stays is never forgotten.
    #[test]
    fn comings_and_goings_never_overlap_nor_starve(
        seed: u64,
        slots in 1_usize..8,
        steps in prop::collection::vec((0_u8..4, 0_u64..12, 1_u64..3_000), 1..80),
    ) {
        let mut world = World::new(slots, seed);
        world.add(100..101, PLAN);
        let mut present: BTreeMap<u64, TargetId> = BTreeMap::new();
        let mut next_id = 0;
        for (kind, member, millis) in steps {
            match (kind, present.get(&member).copied()) {
                (0 | 3, None) => {
                    world.add(next_id..next_id + 1, PLAN);
                    present.insert(member, next_id);
                    next_id += 1;
                }
                (1, Some(target)) => {
                    world.schedule.observe(world.now, Event::Removed { target });
                    present.remove(&member);
                }
                (2, Some(target)) => {
                    let plan = Plan { interval: Duration::from_millis(millis), jitter: 0.5 };
                    world.schedule.observe(world.now, Event::Replanned { target, plan });
                }
                _ => {}
            }
            world.run(world.now + Duration::from_millis(millis), |id| Duration::from_millis(id * 37 % 900));
            prop_assert!(world.most_at_once <= slots);
        }
        let before = world.starts.get(&100).map_or(0, Vec::len);
        world.run(world.now + 60 * SECOND, |_| Duration::from_millis(1));
        prop_assert!(world.starts[&100].len() >= before + 20);
    }
}
