//! What a client sees of its backends, in virtual time: shares, failures and the way back, members that come and go.

use crate::support::{Does, Pool, Scripted, is_no_backend, key, member, pass};
use futures_util::{StreamExt, stream};
use mizan_tower::Change;
use mizan_tower::core::{EjectionConfig, Event, PolicyKind, PoolConfig, ProbeResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;
use tower::ServiceExt;

const SECOND: Duration = Duration::from_secs(1);

fn policy(policy: PolicyKind) -> PoolConfig {
    PoolConfig {
        policy,
        ..PoolConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn equal_backends_get_equal_shares_under_every_policy() {
    for kind in PolicyKind::ALL {
        let services: Vec<Scripted> = (0..4).map(|_| Scripted::answers(10)).collect();
        let pool = Pool::new(policy(kind), &services.iter().collect::<Vec<_>>());
        let ends = pool.traffic(200, 20 * SECOND).await;
        assert_eq!(ends[&200], 4000, "{kind}");
        for service in &services {
            let calls = service.take_calls();
            // A random share of 4000 strays by 27 calls (one standard deviation).
            assert!((850..=1150).contains(&calls), "{kind}: {calls} of 4000");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_backend_loses_traffic() {
    for kind in [PolicyKind::PowerOfTwo, PolicyKind::PeakEwma] {
        let (slow, others) = (
            Scripted::answers(200),
            [(); 3].map(|()| Scripted::answers(10)),
        );
        let pool = Pool::new(policy(kind), &[&slow, &others[0], &others[1], &others[2]]);
        pool.traffic(200, 5 * SECOND).await;
        slow.take_calls();
        pool.traffic(200, 10 * SECOND).await;
        let calls = slow.take_calls();
        assert!((1..200).contains(&calls), "{kind}: {calls} of 2000");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_fast_loses_its_traffic_within_a_second() {
    for does in [Does::Resets, Does::Answers(500, Duration::ZERO)] {
        let (hole, others) = (Scripted::new(does), [(); 3].map(|()| Scripted::answers(20)));
        let pool = Pool::new(
            PoolConfig::default(),
            &[&hole, &others[0], &others[1], &others[2]],
        );
        pool.traffic(200, SECOND).await;
        let first = hole.take_calls();
        assert!(first <= 10, "{first} of 200 in the first second");
        pool.traffic(200, 5 * SECOND).await;
        let then = hole.take_calls();
        assert!(then <= 10, "{then} of 1000 in the next five");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ejected_backend_says_why_and_comes_back() {
    let (ill, well) = (Scripted::new(Does::Resets), Scripted::answers(10));
    let pool = Pool::new(policy(PolicyKind::RoundRobin), &[&ill, &well]);
    pool.traffic(100, 3 * SECOND).await;
    let reason = pool.reason(0);
    assert!(
        reason.starts_with("ejected (number 1 in a row)"),
        "{reason}"
    );
    ill.change(Does::Answers(200, Duration::from_millis(10)));
    ill.take_calls();
    pool.traffic(100, 20 * SECOND).await;
    assert_eq!(ill.take_calls(), 0, "it stays out for 30 s");
    pool.traffic(100, 120 * SECOND).await;
    ill.take_calls();
    pool.traffic(100, 10 * SECOND).await;
    let calls = ill.take_calls();
    assert!((400..600).contains(&calls), "{calls} of 1000");
    assert_eq!(pool.reason(0), "");
    let events = pool.events.lock().unwrap();
    let is_told = |of: fn(&Event) -> bool| events.iter().any(of);
    assert!(is_told(|event| matches!(event, Event::Ejected { .. })));
    assert!(is_told(|event| matches!(
        event,
        Event::EjectionEnded { .. }
    )));
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_refuses_gets_one_request_at_a_time_until_it_is_back() {
    let (gone, well) = (Scripted::new(Does::Refuses), Scripted::answers(10));
    let pool = Pool::new(policy(PolicyKind::RoundRobin), &[&gone, &well]);
    pool.traffic(100, 10 * SECOND).await;
    assert_eq!(pool.reason(0), "refuses connections");
    let calls = gone.take_calls();
    assert!((3..=8).contains(&calls), "{calls} of 1000: trials alone");
    gone.change(Does::Answers(200, Duration::from_millis(10)));
    pool.traffic(100, 60 * SECOND).await;
    gone.take_calls();
    pool.traffic(100, 10 * SECOND).await;
    let calls = gone.take_calls();
    assert!((400..600).contains(&calls), "{calls} of 1000");
}

#[tokio::test(start_paused = true)]
async fn what_came_due_while_nobody_called_is_done_before_anything_is_decided() {
    let (ill, well) = (Scripted::new(Does::Resets), Scripted::answers(10));
    let pool = Pool::new(policy(PolicyKind::RoundRobin), &[&ill, &well]);
    pool.traffic(100, SECOND).await;
    assert!(!pool.backends.status().backends[0].usable);
    ill.change(Does::Answers(200, Duration::from_millis(10)));
    ill.take_calls();
    pass(60 * SECOND).await;
    pool.client().oneshot(0).await.unwrap();
    pool.client().oneshot(1).await.unwrap();
    assert_eq!(
        ill.take_calls(),
        1,
        "in turn again with the first two calls"
    );
    pass(60 * SECOND).await;
    assert!(pool.backends.status().backends[0].usable);
}

#[tokio::test(start_paused = true)]
async fn a_status_looked_at_in_an_idle_pool_is_of_now() {
    let (ill, well) = (Scripted::new(Does::Resets), Scripted::answers(10));
    let pool = Pool::new(policy(PolicyKind::RoundRobin), &[&ill, &well]);
    pool.traffic(100, SECOND).await;
    pass(60 * SECOND).await;
    assert_eq!(pool.reason(0), "on probation after an ejection");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_removed_answers_what_it_has_and_gets_no_more() {
    let (leaving, staying) = (Scripted::answers(500), Scripted::answers(10));
    let pool = Pool::new(PoolConfig::default(), &[&leaving]);
    let request = tokio::spawn(pool.client().oneshot(0));
    yield_now().await;
    assert_eq!(pool.in_flight(), [1]);
    pool.backends.apply([
        Change::Remove(key(0).into()),
        Change::Insert(member(1), staying),
    ]);
    for number in 0..100 {
        pool.client().oneshot(number).await.unwrap();
    }
    assert_eq!(leaving.take_calls(), 1, "only what it had before");
    // It comes back while it has its request still: that one counts.
    let hung = pool.client();
    leaving.change(Does::Hangs);
    pool.backends.insert(member(0), leaving);
    drop(hung);
    assert_eq!(request.await.unwrap().unwrap(), 200);
    assert_eq!(pool.in_flight(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_ready_handle_whose_backend_is_removed_calls_another() {
    let (leaving, staying) = (Scripted::answers(10), Scripted::answers(10));
    let pool = Pool::new(PoolConfig::default(), &[&leaving]);
    let mut client = pool.client();
    client.ready().await.unwrap();
    pool.backends.set([(member(1), staying.clone())]);
    tower::Service::call(&mut client, 0).await.unwrap();
    assert_eq!((leaving.take_calls(), staying.take_calls()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn when_all_are_removed_calls_wait_for_the_next_member() {
    let service = Scripted::answers(10);
    let pool = Pool::new(PoolConfig::default(), &[&service]);
    let mut ready = pool.client();
    ready.ready().await.unwrap();
    pool.backends.set([]);
    let late = tower::Service::call(&mut ready, 0).await;
    assert!(is_no_backend(&late), "it had its place before they went");
    let request = tokio::spawn(pool.client().oneshot(0));
    // Between two of the looks that a waiter takes by itself.
    pass(Duration::from_millis(10_500)).await;
    assert!(!request.is_finished());
    let start = tokio::time::Instant::now();
    pool.backends.insert(member(0), service);
    assert_eq!(request.await.unwrap().unwrap(), 200);
    assert_eq!(start.elapsed(), Duration::from_millis(10), "woken at once");
}

#[tokio::test(start_paused = true)]
async fn when_members_are_there_and_none_is_usable_the_call_fails_at_once() {
    let config = PoolConfig {
        probed: true,
        panic_threshold: 0.0,
        ..PoolConfig::default()
    };
    let pool = Pool::new(config, &[&Scripted::answers(10)]);
    for _ in 0..3 {
        let reason = "no good answer".to_owned();
        let refused = false;
        pool.backends
            .probed(&key(0), ProbeResult::Failed { refused, reason });
    }
    assert_eq!(pool.reason(0), "probes fail: no good answer");
    let start = tokio::time::Instant::now();
    assert!(is_no_backend(&pool.client().oneshot(0).await));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_hash_finds_its_backend_again() {
    for kind in [PolicyKind::ConsistentHash, PolicyKind::Maglev] {
        let services: Vec<Scripted> = (0..4).map(|_| Scripted::answers(10)).collect();
        let pool = Pool::new(policy(kind), &services.iter().collect::<Vec<_>>());
        let spread = |request: &u64| Some(request.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let client = pool.client().key(spread);
        let mut used = 0;
        for request in 0..40 {
            for _ in 0..5 {
                client.clone().oneshot(request).await.unwrap();
            }
            let calls: Vec<u64> = services.iter().map(Scripted::take_calls).collect();
            let owner = calls.iter().position(|&calls| calls == 5);
            used |= 1 << owner.unwrap_or_else(|| panic!("{kind} {request}: {calls:?}"));
        }
        assert_eq!(used, 0b1111, "{kind}: every backend has keys");
    }
}

#[tokio::test(start_paused = true)]
async fn a_discovery_is_followed_to_its_end() {
    let pool = Pool::new(PoolConfig::default(), &[]);
    let service = Scripted::answers(10);
    let inserts = (0..3).map(|number| Change::Insert(member(number), service.clone()));
    let changes = inserts.chain([Change::Remove(key(1).into())]);
    pool.backends.follow(stream::iter(changes)).await;
    let status = pool.backends.status();
    let keys: Vec<_> = status.backends.iter().map(|one| &*one.key).collect();
    assert_eq!(keys, ["b0", "b2"], "they stay when the discovery has ended");
}

#[tokio::test(start_paused = true)]
async fn what_a_discovery_has_said_is_in_force_while_it_says_no_more() {
    let pool = Pool::new(PoolConfig::default(), &[]);
    let insert = stream::iter([Change::Insert(member(0), Scripted::answers(10))]);
    let changes = insert.chain(stream::pending());
    let call = pool.client().oneshot(0);
    tokio::select! {
        () = pool.backends.follow(changes) => panic!("it goes on"),
        end = tokio::time::timeout(SECOND, call) => assert_eq!(end.unwrap().unwrap(), 200),
    }
}

#[tokio::test(start_paused = true)]
async fn another_configuration_keeps_what_is_known() {
    let (ill, well) = (Scripted::new(Does::Resets), Scripted::answers(10));
    let pool = Pool::new(policy(PolicyKind::RoundRobin), &[&ill, &well]);
    pool.traffic(100, SECOND).await;
    pool.backends.configure(policy(PolicyKind::Maglev));
    let status = pool.backends.status();
    assert_eq!(status.policy, PolicyKind::Maglev);
    assert!(!status.backends[0].usable, "still ejected");
    let ejection = EjectionConfig {
        enabled: false,
        ..EjectionConfig::default()
    };
    pool.backends.configure(PoolConfig {
        ejection,
        ..PoolConfig::default()
    });
    assert!(pool.backends.status().backends[0].usable);
}

#[tokio::test(start_paused = true)]
async fn clones_count_together() {
    let services = [(); 2].map(|()| Scripted::new(Does::Hangs));
    let config = policy(PolicyKind::LeastConnections);
    let pool = Pool::new(config, &[&services[0], &services[1]]);
    let client = Arc::new(pool.client());
    let mut held = Vec::new();
    for number in 0..10 {
        held.push(tokio::spawn((*client).clone().oneshot(number)));
        yield_now().await;
    }
    assert_eq!(pool.in_flight(), [5, 5]);
    held.iter().for_each(|request| request.abort());
}
