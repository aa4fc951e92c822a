use proptest::prelude::*;

use super::*;

fn any_admin() -> impl Strategy<Value = Admin> {
    prop_oneof![
        Just(Admin::Ready),
        Just(Admin::Drain),
        Just(Admin::Maintenance)
    ]
}

fn any_health() -> impl Strategy<Value = Health> {
    prop_oneof![Just(Health::Unknown), Just(Health::Up), Just(Health::Down)]
}

fn is_used(availability: Availability) -> bool {
    matches!(
        availability,
        Availability::Usable | Availability::UsedInPanic
    )
}

proptest! {
    #[test]
    fn no_mode_revives_what_an_operator_withdrew(health in any_health(), ejected: bool, refused: bool) {
        for admin in [Admin::Drain, Admin::Maintenance] {
            for mode in [Mode::Normal, Mode::Panic, Mode::LastResort] {
                prop_assert_eq!(
                    availability(admin, health, ejected, refused, mode),
                    Availability::Withdrawn(admin)
                );
            }
        }
    }

    #[test]
    fn each_mode_uses_all_that_the_stricter_one_uses(admin in any_admin(), health in any_health(), ejected: bool, refused: bool) {
        let used = |mode| is_used(availability(admin, health, ejected, refused, mode));
        prop_assert!(!used(Mode::Normal) || used(Mode::Panic));
        prop_assert!(!used(Mode::Panic) || used(Mode::LastResort));
    }

    #[test]
    fn panic_is_left_only_above_where_it_is_entered(ready in 1usize..200, threshold in 0.01f64..=1.0) {
        for usable in 0..=ready {
            let mut panic = Panic::default();
            panic.observe(usable, ready, threshold);
            let entered = panic.is_on();
            // What has just been entered or left is not left or entered by the same numbers.
            panic.observe(usable, ready, threshold);
            prop_assert_eq!(panic.is_on(), entered);
            // And one backend more does not undo it, unless that makes all of them.
            if entered && usable + 1 < ready {
                panic.observe(usable + 1, ready, threshold);
                prop_assert!(panic.is_on(), "left at {} of {ready}", usable + 1);
            }
            panic.observe(ready, ready, threshold);
            prop_assert!(!panic.is_on(), "all are healthy");
        }
    }
}

#[test]
fn unknown_health_counts_as_usable() {
    assert_eq!(
        availability(Admin::Ready, Health::Unknown, false, false, Mode::Normal),
        Availability::Usable
    );
}

#[test]
fn panic_uses_what_looks_unhealthy_but_not_what_refuses() {
    assert_eq!(
        availability(Admin::Ready, Health::Down, true, false, Mode::Panic),
        Availability::UsedInPanic
    );
    assert_eq!(
        availability(Admin::Ready, Health::Down, true, true, Mode::Panic),
        Availability::Refused
    );
    assert_eq!(
        availability(Admin::Ready, Health::Down, true, true, Mode::LastResort),
        Availability::UsedInPanic
    );
}

#[test]
fn panic_is_entered_below_the_threshold_and_left_ten_points_above() {
    let mut panic = Panic::default();
    assert!(
        !panic.observe(5, 10, 0.5),
        "exactly the threshold is no panic"
    );
    assert!(panic.observe(4, 10, 0.5) && panic.is_on());
    assert!(!panic.observe(5, 10, 0.5) && panic.is_on());
    assert!(panic.observe(6, 10, 0.5) && !panic.is_on());
}

#[test]
fn a_small_pool_needs_one_backend_more_to_leave() {
    let mut panic = Panic::default();
    assert!(panic.observe(1, 4, 0.5));
    assert!(!panic.observe(2, 4, 0.5), "half is where it was entered");
    assert!(panic.observe(3, 4, 0.5));
    // Two backends: one left is no panic; none is, and then both must be back.
    assert!(!panic.observe(1, 2, 0.5));
    assert!(panic.observe(0, 2, 0.5));
    assert!(!panic.observe(1, 2, 0.5));
    assert!(panic.observe(2, 2, 0.5));
}

#[test]
fn a_threshold_of_zero_never_panics() {
    let mut panic = Panic::default();
    assert!(!panic.observe(0, 10, 0.0));
    assert!(!panic.is_on());
    assert!(panic.observe(0, 10, 0.5));
    assert!(
        panic.observe(0, 10, 0.0),
        "and ends one when it is configured"
    );
}

#[test]
fn a_pool_that_was_drained_whole_does_not_panic() {
    let mut panic = Panic::default();
    assert!(!panic.observe(0, 0, 0.5));
    assert!(!panic.is_on());
}
