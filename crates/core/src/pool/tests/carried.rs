//! What outlives a reload, and what must hold whatever happens in between.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;

use super::support::*;
use crate::pool::*;

#[test]
fn a_backend_is_the_same_while_key_and_address_stay() {
    let mut world = World::new(config(PolicyKind::PowerOfTwo), members(3));
    let before = world.backend("b");
    let claim = world.pick().unwrap();
    let mut changed = members(3);
    changed[1].weight = 9;
    changed[1].in_flight_max = Some(4);
    world
        .pool
        .update(world.now, config(PolicyKind::LeastConnections), changed);
    let after = world.backend("b");
    assert!(Arc::ptr_eq(&before, &after));
    assert_eq!(after.weight(), 9);
    assert_eq!(world.backend(claim.backend().key()).in_flight(), 1);
}

#[test]
fn a_new_version_label_keeps_id_and_counts_and_old_claims_keep_theirs() {
    let mut world = World::new(config(PolicyKind::LeastConnections), members(1));
    let old = world.pick().unwrap();
    let labelled = |version: &str| {
        vec![Member {
            version: version.into(),
            ..member("a")
        }]
    };
    world.pool.update(
        world.now,
        config(PolicyKind::LeastConnections),
        labelled("v2"),
    );
    let new = world.pick().unwrap();
    world.pool.update(
        world.now,
        config(PolicyKind::LeastConnections),
        labelled("v3"),
    );
    let newest = world.pick().unwrap();
    assert_eq!(
        [&old, &new, &newest].map(|claim| claim.backend().version().to_string()),
        ["", "v2", "v3"]
    );
    assert_eq!(
        [&old, &new, &newest].map(|claim| claim.backend().id()),
        [old.backend().id(); 3]
    );
    assert_eq!(newest.backend().in_flight(), 3);
    drop((old, new, newest));
    assert_eq!(world.backend("a").in_flight(), 0);
}

#[test]
fn another_address_is_another_backend_but_the_operators_word_stays() {
    let world = World::new(config(PolicyKind::PowerOfTwo), members(2));
    world.pool.set_admin(world.now, "a", Admin::Drain).unwrap();
    let before = world.backend("a");
    let mut moved = members(2);
    moved[0].address = Address::Ip(SocketAddr::from(([127, 0, 0, 9], 80)));
    world
        .pool
        .update(world.now, config(PolicyKind::PowerOfTwo), moved);
    assert_ne!(world.backend("a").id(), before.id());
    assert!(!before.is_usable() && !world.backend("a").is_usable());
}

#[test]
fn one_that_leaves_and_comes_back_is_still_drained_and_still_counts_what_is_in_flight() {
    let mut world = World::new(config(PolicyKind::RoundRobin), members(2));
    let claim = world.pick().unwrap();
    assert_eq!(&**claim.backend().key(), "a");
    world
        .pool
        .set_admin(world.now, "b", Admin::Maintenance)
        .unwrap();
    let only_c = vec![member("c")];
    let events = world
        .pool
        .update(world.now, config(PolicyKind::RoundRobin), only_c);
    assert!(
        events.contains(&Event::Left {
            backend: "a".into(),
            in_flight: 1
        }),
        "{events:?}"
    );
    assert!(!claim.backend().is_usable());
    world
        .pool
        .update(world.now, config(PolicyKind::RoundRobin), members(2));
    assert_eq!(world.backend("a").in_flight(), 1);
    assert_eq!(world.status_of("b").admin, Admin::Maintenance);
    assert_eq!(world.served(3).concat(), "aaa");
}

#[test]
fn health_and_ejection_outlive_a_reload() {
    let mut world = World::new(probed(PolicyKind::PowerOfTwo), members(5));
    world.probe("a", false);
    for _ in 0..5 {
        world.observe("b", RESET);
    }
    for _ in 0..2 {
        world.observe("c", REFUSED);
    }
    let mut grown = members(6);
    grown.rotate_left(2);
    world.pool.update(
        world.now,
        PoolConfig {
            panic_threshold: 0.1,
            ..probed(PolicyKind::RoundRobin)
        },
        grown,
    );
    for key in ["a", "b", "c"] {
        assert!(!world.backend(key).is_usable(), "{key}");
    }
    assert!(
        world
            .served(10)
            .concat()
            .chars()
            .all(|key| "def".contains(key))
    );
}

#[test]
fn of_two_members_with_one_key_the_first_is_taken() {
    let pool = vec![weighted("a", 3), weighted("a", 5), member("b")];
    let world = World::new(config(PolicyKind::PowerOfTwo), pool);
    assert_eq!(world.pool.backends().len(), 2);
    assert_eq!(world.backend("a").weight(), 3);
}

#[test]
fn a_claim_may_outlive_its_pool() {
    for policy in POLICIES {
        let mut world = World::new(config(policy), members(30));
        let claim = world.pick().unwrap();
        let backend = Arc::clone(claim.backend());
        drop(world);
        assert_eq!(backend.in_flight(), 1);
        drop(claim);
        assert_eq!(backend.in_flight(), 0);
        assert_eq!(
            Arc::strong_count(&backend),
            1,
            "{policy}: the pool's own hold is gone"
        );
    }
}

#[test]
fn a_penalty_goes_on_fading_over_a_reload() {
    let policy = without_ejection(PolicyKind::LeastConnections);
    let mut world = World::new(policy.clone(), members(30));
    let failed = name(3, 30);
    world.observe(&failed, RESET);
    // The tree was told to refresh that leaf as the penalty fades; a reload comes before the tick.
    world.pool.update(world.now, policy, members(30));
    world.pass(seconds(20.0));
    let held: Vec<Claim> = (0..30).map(|_| world.pick().unwrap()).collect();
    assert_eq!(
        world.backend(&failed).in_flight(),
        1,
        "an even share of {}",
        held.len()
    );
}

/// Anything that can happen to a pool.
#[derive(Clone, Debug)]
enum Step {
    Pick {
        hash: u64,
        retry: bool,
    },
    Release(prop::sample::Index, Ending),
    Probe(usize, bool),
    Admin(usize, Admin),
    Update {
        policy: usize,
        keep: u32,
        weights: u32,
    },
    Tick,
    Pass(u32),
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Ok,
    Error,
    Reset,
    Refused,
    Aborted,
    Unsaid,
}

fn any_step() -> impl Strategy<Value = Step> {
    let ending = prop_oneof![
        3 => Just(Ending::Ok),
        1 => Just(Ending::Error),
        1 => Just(Ending::Reset),
        1 => Just(Ending::Refused),
        1 => Just(Ending::Aborted),
        1 => Just(Ending::Unsaid),
    ];
    let admin = prop_oneof![
        Just(Admin::Ready),
        Just(Admin::Drain),
        Just(Admin::Maintenance)
    ];
    prop_oneof![
        8 => (any::<u64>(), any::<bool>()).prop_map(|(hash, retry)| Step::Pick { hash, retry }),
        6 => (any::<prop::sample::Index>(), ending).prop_map(|(which, ending)| Step::Release(which, ending)),
        3 => (0usize..20, any::<bool>()).prop_map(|(which, passed)| Step::Probe(which, passed)),
        1 => (0usize..20, admin).prop_map(|(which, admin)| Step::Admin(which, admin)),
        1 => (0usize..6, any::<u32>(), any::<u32>()).prop_map(|(policy, keep, weights)| Step::Update { policy, keep, weights }),
        2 => Just(Step::Tick),
        1 => (0u32..40_000).prop_map(Step::Pass),
    ]
}

/// Claims that are held, and what must hold after each step.
struct Machine {
    world: World,
    held: Vec<Claim>,
}

impl Machine {
    fn take(&mut self, step: Step) {
        match step {
            Step::Pick { hash, retry } => self.pick(hash, retry),
            Step::Release(which, ending) => self.release(which, ending),
            Step::Probe(which, passed) => self.world.probe(&name(which, 20), passed),
            Step::Admin(which, admin) => {
                let _ = self
                    .world
                    .pool
                    .set_admin(self.world.now, &name(which, 20), admin);
            }
            Step::Update {
                policy,
                keep,
                weights,
            } => {
                let kept = (0..20usize)
                    .filter(|n| keep >> n & 1 == 1)
                    .map(|n| weighted(&name(n, 20), (weights >> n) & 3))
                    .collect();
                let settings = PoolConfig {
                    probed: keep & 1 == 0,
                    ..config(POLICIES[policy])
                };
                self.world.pool.update(self.world.now, settings, kept);
            }
            Step::Tick => {
                self.world.tick();
            }
            Step::Pass(ms) => {
                self.world.pass(Duration::from_millis(u64::from(ms)));
            }
        }
    }

    fn pick(&mut self, hash: u64, retry: bool) {
        let tried: Vec<u64> = self
            .held
            .iter()
            .rev()
            .take(usize::from(retry))
            .map(|claim| claim.backend().id())
            .collect();
        if let Ok(claim) = self.world.pick_with(Some(hash), &tried) {
            let key = claim.backend().key();
            let status = self.world.status_of(key);
            assert_eq!(status.admin, Admin::Ready, "{key} was withdrawn");
            assert_ne!(status.weight, 0, "{key} has weight 0");
            self.held.push(claim);
        } else {
            let usable = self
                .world
                .pool
                .backends()
                .iter()
                .filter(|backend| backend.is_usable())
                .count();
            assert_eq!(usable, 0, "nobody was picked although somebody is usable");
        }
    }

    fn release(&mut self, which: prop::sample::Index, ending: Ending) {
        if self.held.is_empty() {
            return;
        }
        let claim = self.held.swap_remove(which.index(self.held.len()));
        let outcome = match ending {
            Ending::Ok => OK,
            Ending::Error => status(500),
            Ending::Reset => RESET,
            Ending::Refused => REFUSED,
            Ending::Aborted => ABORTED,
            Ending::Unsaid => return,
        };
        self.world
            .pool
            .observe(self.world.now, 0, claim.backend(), outcome);
    }

    /// Each backend's count is the number of claims on it.
    fn check(&self) {
        for backend in self.world.pool.backends() {
            let claims = self
                .held
                .iter()
                .filter(|claim| claim.backend().id() == backend.id())
                .count();
            assert_eq!(backend.in_flight() as usize, claims, "{}", backend.key());
        }
        let picker = self.world.pool.shared.picker.load();
        assert_eq!(picker.policy.fault(&picker.membership), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Conservation, the operator's will, and "no request fails while one backend is usable", over
    /// anything that can happen, for all policies and changes between them.
    #[test]
    fn counts_are_conserved_and_nobody_withdrawn_is_picked(
        policy in 0usize..6,
        steps in prop::collection::vec(any_step(), 1..150)
    ) {
        let world = World::new(probed(POLICIES[policy]), members(20));
        let mut machine = Machine { world, held: Vec::new() };
        for step in steps {
            machine.take(step);
            machine.check();
        }
        let backends: Vec<Arc<Backend>> = machine.held.iter().map(|claim| Arc::clone(claim.backend())).collect();
        machine.held.clear();
        machine.check();
        for backend in backends {
            prop_assert_eq!(backend.in_flight(), 0);
        }
    }
}
