use super::*;
use crate::admin::view::{LoadView, Phase, PoolSummary, ReloadReport};

fn status() -> StatusView {
    StatusView {
        mizan: "0.1.0".into(),
        phase: Phase::Serving,
        generation: 3,
        digest: "00000000000000ff".into(),
        config: "/etc/mizan/mizan.toml".into(),
        started_at: "2026-01-01T00:00:00.000Z".into(),
        workers: 2,
        connections: 1,
        listeners: vec![ListenerView {
            name: "web".into(),
            bind: "0.0.0.0:8000".into(),
            connections: 1,
            connections_accepted: 9,
            requests: 70,
            requests_in_flight: 1,
        }],
        pools: Vec::new(),
        store: None,
        last_reload: ReloadReport {
            result: ReloadResult::Refused,
            generation: 3,
            at: "2026-01-02T00:00:00.000Z".into(),
            problems: Vec::new(),
            text: "error[unknown_key]: unknown key `polcy`".into(),
        },
    }
}

fn backend(key: &str, state: &str, reason: &str) -> BackendView {
    BackendView {
        key: key.into(),
        address: key.into(),
        version: "v1".into(),
        weight: 1,
        weight_share: 1.0,
        priority: 0,
        zone: String::new(),
        traffic: "healthy".into(),
        score: 1.0,
        usable: state == "usable",
        state: state.into(),
        reason: reason.into(),
        since_seconds: 130,
        admin: "ready".into(),
        health: "up".into(),
        in_flight: 2,
        requests: 100,
        failures: 1,
        latency_ms: Some(1.25),
        told: None,
    }
}

fn pool(backends: Vec<BackendView>) -> PoolView {
    PoolView {
        summary: PoolSummary {
            name: "api".into(),
            policy: "power_of_two".into(),
            panic: false,
            usable: backends.iter().filter(|backend| backend.usable).count(),
            total: backends.len(),
            belief: String::new(),
            spread: String::new(),
            in_flight: 4,
        },
        probed: true,
        discovery: Vec::new(),
        versions: vec![VersionView {
            version: "v1".into(),
            responses: 99,
            latency_p50_ms: Some(1.0),
            latency_p99_ms: Some(8.0),
            retries: 2,
            unreached: 0,
            rescued: 2,
        }],
        backends,
    }
}

#[test]
fn people_see_state_and_why() {
    let backends = vec![
        backend("10.0.0.1:80", "usable", ""),
        backend("10.0.0.2:80", "down", "probes fail: refused"),
    ];
    insta::assert_snapshot!(describe(&status(), &[pool(backends)]));
}

#[test]
fn of_a_large_pool_what_is_wrong_is_shown_first() {
    let mut backends: Vec<_> = (0..9999)
        .map(|at| backend(&format!("b{at}"), "usable", ""))
        .collect();
    backends.push(backend("bad", "ejected", "ejected: 5 failures in a row"));
    let text = describe(&status(), &[pool(backends)]);
    assert!(text.contains("\n  bad  "), "{text}");
    assert!(text.ends_with("and 9950 more; --json shows all"), "{text}");
}

#[test]
fn where_traffic_goes_is_said_once_and_what_lies_outside_comes_last() {
    let placed = |key: &str, state: &str, priority: u32| BackendView {
        priority,
        zone: "a".into(),
        ..backend(key, state, "")
    };
    let mut backends: Vec<_> = (0..60)
        .map(|at| placed(&format!("o{at}"), "outside", 0))
        .collect();
    backends.push(placed("own", "usable", 0));
    backends.push(placed("spare", "standby", 1));
    let mut pool = pool(backends);
    pool.summary.spread = "tier 0 gets 100 % of the requests".into();
    let text = describe(&status(), &[pool]);
    assert!(
        text.contains("\n  tier 0 gets 100 % of the requests\n"),
        "{text}"
    );
    let at = |key: &str| text.find(&format!("\n  {key} ")).expect("it is shown");
    assert!(at("own") < at("o0") && at("spare") < at("o0"), "{text}");
    let header = text.lines().find(|line| line.starts_with("  BACKEND"));
    assert!(header.is_some_and(|line| line.contains("TIER") && line.contains("ZONE")));
    let spare = text.lines().find(|line| line.starts_with("  spare"));
    let cells: Vec<&str> = spare.expect("it is shown").split_whitespace().collect();
    assert_eq!(cells[..5], ["spare", "v1", "1", "a", "standby"]);
}

#[test]
fn what_a_backend_says_of_its_load_is_shown_with_its_age() {
    let silent = backend("mute", "usable", "");
    let mut says = backend("says", "usable", "");
    says.told = Some(LoadView {
        rif: 3.0,
        latency_ms: Some(12.54),
        age_seconds: 0.25,
    });
    let text = describe(&status(), &[pool(vec![silent.clone(), says])]);
    assert!(text.contains("SAYS"), "{text}");
    assert!(text.contains("3 in flight, 12.5 ms, 0.2 s ago"), "{text}");
    let text = describe(&status(), &[pool(vec![silent])]);
    assert!(!text.contains("SAYS"), "nobody does: {text}");
}

#[test]
fn one_response_is_not_called_responses() {
    let mut one = pool(Vec::new());
    one.versions[0].responses = 1;
    one.versions[0].retries = 1;
    let text = describe(&status(), &[one]);
    assert!(
        text.contains("version v1: 1 response, p50 1 ms, p99 8 ms, 1 retry, 2 rescued"),
        "{text}"
    );
}
