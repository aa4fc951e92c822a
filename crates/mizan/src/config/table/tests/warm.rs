//! New pools: what names them waits.

use super::*;
use mizan_core::pool::ProbeResult;

const GREEN: (&str, &str) = (
    "pools/kr/green",
    r#"{"schema": 1, "health": {"path": "/healthz"}}"#,
);
const OF_GREEN: (&str, &str) = (
    "backends/kr/green/a",
    r#"{"schema": 1, "address": "10.0.0.9:80"}"#,
);
const TO_KPOP: (&str, &str) = (
    "routes/shop",
    r#"{"schema": 1, "prefix": "/shop", "pool": "kpop"}"#,
);
const TO_GREEN: (&str, &str) = (
    "routes/shop",
    r#"{"schema": 1, "prefix": "/shop", "pool": "green"}"#,
);
const BEFORE: [(&str, &str); 5] = [KPOP, ONE, JPOP, CHAIN, TO_KPOP];

fn then(objects: &[(&str, &str)], last: &Merged) -> Merged {
    let before = table(1, &BEFORE, None);
    let now = table(2, objects, Some(&before));
    merged(FILE, &now, Some(last), 0).expect("it is good")
}

fn waiting(merged: &Merged) -> Vec<String> {
    merged.waiting.iter().map(ToString::to_string).collect()
}

/// Whom the route named `shop` asks first, if it is there.
fn shop(merged: &Merged) -> Option<String> {
    let routes = merged.snapshot.routes.routes();
    let shop = routes.iter().find(|route| &*route.name == "shop")?;
    match &shop.action {
        Action::Forward(split) => Some(split.pools[0].0.name.to_string()),
        other => panic!("{other:?}"),
    }
}

/// What the prober tells the only backend of `green`.
fn probed(merged: &Merged, result: ProbeResult) {
    let core = &merged.snapshot.pools["green"].core;
    core.probed(crate::clock::now(), "10.0.0.9:80", result);
}

fn failed() -> ProbeResult {
    ProbeResult::Failed {
        refused: true,
        reason: "connect refused".to_owned(),
    }
}

#[test]
fn a_route_goes_to_a_new_pool_when_a_backend_of_that_has_passed_a_probe() {
    let first = good(FILE, &BEFORE);
    let objects = [KPOP, ONE, JPOP, CHAIN, GREEN, OF_GREEN, TO_GREEN];
    let second = then(&objects, &first);
    assert_eq!(
        waiting(&second),
        [
            "routes/shop: its pool `green` is new, and no backend of it has passed a probe yet (what was there before stays in force)"
        ]
    );
    assert_eq!(rejected(&second), [""; 0]);
    assert_eq!(shop(&second).as_deref(), Some("kpop"));
    let now = crate::clock::now();
    assert_eq!(
        backends(&second, "green"),
        ["10.0.0.9:80"],
        "it is there to be probed"
    );
    assert!(!second.in_force.has_warmed(&second.snapshot, now));
    probed(&second, failed());
    let third = then(&objects, &second);
    assert_eq!(
        shop(&third).as_deref(),
        Some("kpop"),
        "a probe that failed is none that passed"
    );
    // After a failure it takes `rise` of them.
    probed(&third, ProbeResult::Passed);
    probed(&third, ProbeResult::Passed);
    assert!(third.in_force.has_warmed(&third.snapshot, now));
    let fourth = then(&objects, &third);
    assert_eq!(
        (waiting(&fourth), shop(&fourth).as_deref()),
        (Vec::new(), Some("green"))
    );
    // From then on it is a pool like any other.
    probed(&fourth, failed());
    let fifth = then(&objects, &fourth);
    assert_eq!(
        (waiting(&fifth), shop(&fifth).as_deref()),
        (Vec::new(), Some("green"))
    );
}

/// Blue goes and green comes in one edit.
#[test]
fn what_a_waiting_route_still_needs_stays_with_it() {
    let chain = ("chains/kr/trending", r#"{"schema": 1, "pools": ["green"]}"#);
    let first = good(FILE, &BEFORE);
    for objects in [
        &[JPOP, chain, GREEN, OF_GREEN, TO_GREEN][..],
        // Its backends alone are gone.
        &[KPOP, JPOP, chain, GREEN, OF_GREEN, TO_GREEN][..],
    ] {
        let second = then(objects, &first);
        assert_eq!(second.waiting.len(), 2, "{:?}", second.waiting);
        assert_eq!(rejected(&second), [""; 0]);
        assert_eq!(shop(&second).as_deref(), Some("kpop"));
        assert_eq!(
            asked(&second),
            ["kpop", "jp/jpop"],
            "the chain is as it was"
        );
        assert_eq!(backends(&second, "kpop"), ["10.0.0.1:80"]);
        probed(&second, ProbeResult::Passed);
        let third = then(objects, &second);
        assert_eq!(shop(&third).as_deref(), Some("green"));
        assert_eq!(asked(&third), ["green"]);
        let kept = third
            .snapshot
            .pools
            .get("kpop")
            .map(|pool| pool.members.len());
        assert_eq!(kept.unwrap_or(0), 0, "and what it needed goes");
    }
}

/// One pool that never comes up must not hold up everybody's edits.
#[test]
fn the_rest_of_a_table_does_not_wait() {
    let first = good(FILE, &BEFORE);
    let heavier = (
        ONE.0,
        r#"{"schema": 1, "address": "10.0.0.1:80", "weight": 9}"#,
    );
    let new = (
        "routes/new",
        r#"{"schema": 1, "prefix": "/new", "pool": "green"}"#,
    );
    let split = (
        "routes/shop",
        r#"{"schema": 1, "prefix": "/shop", "split": [{"pool": "kpop", "weight": 9}, {"pool": "green", "weight": 1}]}"#,
    );
    let second = then(
        &[KPOP, heavier, JPOP, CHAIN, GREEN, OF_GREEN, split, new],
        &first,
    );
    assert_eq!(second.snapshot.pools["kpop"].members[0].weight, 9);
    let keys: Vec<_> = second
        .waiting
        .iter()
        .map(|it| (&*it.key, it.is_kept))
        .collect();
    assert_eq!(keys, [("routes/new", false), ("routes/shop", true)]);
    assert_eq!(
        second.snapshot.routes.routes().len(),
        2,
        "a new route is not there yet"
    );
}

#[test]
fn a_pool_without_probes_or_in_the_first_table_is_waited_for_by_nobody() {
    let bare = (GREEN.0, r#"{"schema": 1}"#);
    let first = good(FILE, &BEFORE);
    let second = then(&[KPOP, ONE, JPOP, CHAIN, bare, OF_GREEN, TO_GREEN], &first);
    assert_eq!(
        (waiting(&second), shop(&second).as_deref()),
        (Vec::new(), Some("green"))
    );
    let all = [KPOP, ONE, JPOP, CHAIN, GREEN, OF_GREEN, TO_GREEN];
    assert_eq!(shop(&good(FILE, &all)).as_deref(), Some("green"));
}

/// A pool that stands in where others fail is better asked cold than not at all.
#[test]
fn a_cold_pool_may_stand_in() {
    let first = good(FILE, &BEFORE);
    let route = (
        "routes/shop",
        r#"{"schema": 1, "prefix": "/shop", "pool": "kpop", "fallback": ["green"]}"#,
    );
    let second = then(&[KPOP, ONE, JPOP, CHAIN, GREEN, OF_GREEN, route], &first);
    assert_eq!(waiting(&second), [""; 0]);
}

#[test]
fn a_route_waits_for_a_new_chain_of_a_new_pool() {
    let first = good(FILE, &BEFORE);
    let chain = ("chains/kr/sale", r#"{"schema": 1, "pools": ["green"]}"#);
    let route = (
        "routes/shop",
        r#"{"schema": 1, "prefix": "/shop", "chain": "sale"}"#,
    );
    let second = then(
        &[KPOP, ONE, JPOP, CHAIN, GREEN, OF_GREEN, chain, route],
        &first,
    );
    assert_eq!(shop(&second).as_deref(), Some("kpop"));
    assert_eq!(second.waiting.len(), 2, "{:?}", second.waiting);
    assert!(second.waiting[1].reason.contains("its chain `sale` is new"));
}
