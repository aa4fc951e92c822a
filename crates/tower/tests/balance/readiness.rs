//! Back-pressure, wake-ups, and places that never leak.

use crate::support::{Does, Pool, Readiness, Scripted, bounded, member, pass};
use mizan_tower::Error;
use mizan_tower::core::{PolicyKind, PoolConfig};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;
use tower::{Service, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

fn policy(policy: PolicyKind) -> PoolConfig {
    PoolConfig {
        policy,
        ..PoolConfig::default()
    }
}

/// A task that counts its wakes.
#[derive(Default)]
struct Counted(AtomicU32);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn full_backends_make_callers_wait_and_a_place_wakes_one() {
    let service = Scripted::answers(100);
    let pool = Pool::new(PoolConfig::default(), &[]);
    pool.backends.insert(bounded(0, 1), service);
    let start = Instant::now();
    let mut requests = JoinSet::new();
    for number in 0..5 {
        requests.spawn(pool.client().oneshot(number));
    }
    while let Some(end) = requests.join_next().await {
        end.unwrap().unwrap();
    }
    assert_eq!(
        start.elapsed(),
        Duration::from_millis(500),
        "one after the other"
    );
    assert_eq!(pool.in_flight(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_place_wakes_as_many_as_can_have_it() {
    let pool = Pool::new(PoolConfig::default(), &[]);
    pool.backends.insert(bounded(0, 1), Scripted::answers(100));
    let mut holder = pool.client();
    holder.ready().await.unwrap();
    let tasks = [(); 3].map(|()| Arc::<Counted>::default());
    let mut clients = [(); 3].map(|()| pool.client());
    for (task, client) in tasks.iter().zip(&mut clients) {
        let waker = Waker::from(Arc::clone(task));
        let ready = client.poll_ready(&mut Context::from_waker(&waker));
        assert!(ready.is_pending());
    }
    drop(holder);
    let wakes = || -> u32 { tasks.iter().map(|task| task.0.load(Ordering::SeqCst)).sum() };
    assert_eq!(wakes(), 1);
    // Whoever was woken goes away without looking: the next is woken in its place.
    let woken = tasks
        .iter()
        .position(|task| task.0.load(Ordering::SeqCst) == 1);
    clients[woken.unwrap()] = pool.client();
    assert_eq!(wakes(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_went_to_somebody_who_does_not_look_is_made_up_for() {
    let pool = Pool::new(PoolConfig::default(), &[]);
    pool.backends.insert(bounded(0, 1), Scripted::answers(100));
    let mut holder = pool.client();
    holder.ready().await.unwrap();
    let mut abandoned = pool.client();
    let ready = abandoned.poll_ready(&mut Context::from_waker(Waker::noop()));
    assert!(ready.is_pending());
    let request = tokio::spawn(pool.client().oneshot(0));
    yield_now().await;
    drop(holder);
    let start = Instant::now();
    request.await.unwrap().unwrap();
    assert!(start.elapsed() <= SECOND + Duration::from_millis(101));
    drop(abandoned);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_is_lost_between_threads() {
    let pool = Pool::new(PoolConfig::default(), &[]);
    let service = Scripted::answers(0);
    pool.backends
        .set((0..2).map(|number| (bounded(number, 1), service.clone())));
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let mut client = pool.client();
        tasks.spawn(async move {
            let mut late = 0;
            for number in 0..500 {
                let start = Instant::now();
                client.ready().await.unwrap();
                late += u32::from(start.elapsed() >= SECOND);
                yield_now().await;
                client.call(number).await.unwrap();
            }
            late
        });
    }
    // Who was not woken looks again after a second. Two waits as long are a busy machine's.
    let late: u32 = tasks.join_all().await.iter().sum();
    assert!(late <= 2, "{late} waits had no wake");
    assert_eq!(service.take_calls(), 8000);
    assert_eq!(pool.in_flight(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_backend_whose_service_is_not_ready_is_passed_over() {
    let (busy, free) = (Scripted::answers(10), Scripted::answers(10));
    busy.set_readiness(Readiness::Pending);
    let pool = Pool::new(PoolConfig::default(), &[&busy, &free]);
    for number in 0..20 {
        pool.client().oneshot(number).await.unwrap();
    }
    assert_eq!((busy.take_calls(), free.take_calls()), (0, 20));
    assert_eq!(pool.in_flight(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn when_no_service_is_ready_the_first_to_get_ready_is_called() {
    let services = [(); 3].map(|()| Scripted::answers(10));
    for service in &services {
        service.set_readiness(Readiness::Pending);
    }
    let pool = Pool::new(PoolConfig::default(), &services.each_ref());
    let request = tokio::spawn(pool.client().oneshot(0));
    pass(Duration::from_millis(1500)).await;
    assert!(!request.is_finished());
    let start = Instant::now();
    services[1].set_readiness(Readiness::Ready);
    request.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(10), "woken at once");
    assert_eq!(services[1].take_calls(), 1);
    assert_eq!(pool.in_flight(), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_service_is_passed_over_and_counts_as_a_failure() {
    let (broken, well) = (Scripted::answers(10), Scripted::answers(10));
    broken.set_readiness(Readiness::Broken);
    let pool = Pool::new(policy(PolicyKind::RoundRobin), &[&broken, &well]);
    pool.traffic(100, SECOND).await;
    assert_eq!((broken.take_calls(), well.take_calls()), (0, 100));
    assert!(pool.reason(0).starts_with("ejected"), "{}", pool.reason(0));
}

#[tokio::test(start_paused = true)]
async fn where_all_services_are_broken_the_call_says_how() {
    let broken = Scripted::answers(10);
    broken.set_readiness(Readiness::Broken);
    let pool = Pool::new(PoolConfig::default(), &[&broken]);
    let mut client = pool.client();
    client.ready().await.expect("the balancer itself goes on");
    match client.call(0).await {
        Err(Error::Service(error)) => assert_eq!(error.to_string(), "the service is broken"),
        other => panic!("{other:?}"),
    }
    broken.set_readiness(Readiness::Ready);
    client
        .ready()
        .await
        .unwrap()
        .call(1)
        .await
        .expect("well again");
}

#[tokio::test(start_paused = true)]
async fn a_keyed_request_waits_for_its_own_backend_to_be_ready() {
    let services = [(); 2].map(|()| Scripted::answers(10));
    let pool = Pool::new(policy(PolicyKind::Maglev), &services.each_ref());
    let client = pool.client().key(|_: &u64| Some(1));
    client.clone().oneshot(0).await.unwrap();
    let owner = services
        .iter()
        .position(|service| service.take_calls() == 1);
    let owner = &services[owner.unwrap()];
    owner.set_readiness(Readiness::Pending);
    let request = tokio::spawn(client.oneshot(1));
    yield_now().await;
    assert_eq!(pool.in_flight().iter().sum::<u32>(), 1, "it has its place");
    owner.set_readiness(Readiness::Ready);
    request.await.unwrap().unwrap();
    assert_eq!(owner.take_calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_place_leaks_wherever_a_caller_goes_away() {
    let hung = Scripted::new(Does::Hangs);
    let pool = Pool::new(PoolConfig::default(), &[&hung]);
    let cx = &mut Context::from_waker(Waker::noop());
    let mut client = pool.client();

    client.ready().await.unwrap();
    assert_eq!(pool.in_flight(), [1], "ready");
    drop(client.clone());
    assert_eq!(pool.in_flight(), [1], "a clone has no place");
    let unpolled = client.call(0);
    assert_eq!(pool.in_flight(), [1], "called");
    drop(unpolled);
    assert_eq!(pool.in_flight(), [0], "dropped before it was polled");

    client.ready().await.unwrap();
    {
        let mut polled = pin!(client.call(0));
        assert!(polled.as_mut().poll(cx).is_pending());
        assert_eq!(pool.in_flight(), [1]);
    }
    assert_eq!(pool.in_flight(), [0], "dropped while it was on its way");

    client.ready().await.unwrap();
    drop(client);
    assert_eq!(pool.in_flight(), [0], "a ready handle dropped");

    hung.set_readiness(Readiness::Pending);
    let mut waiting = pool.client();
    assert!(matches!(waiting.poll_ready(cx), Poll::Pending));
    assert_eq!(pool.in_flight(), [1], "it waits there");
    drop(waiting);
    assert_eq!(pool.in_flight(), [0], "a waiting handle dropped");

    hung.set_readiness(Readiness::Ready);
    hung.change(Does::Panics);
    let panicked = tokio::spawn(pool.client().oneshot(0)).await;
    assert!(panicked.is_err());
    assert_eq!(pool.in_flight(), [0], "a call that panicked");
}

#[tokio::test(start_paused = true)]
async fn callers_who_go_away_say_nothing_bad_of_a_backend_and_never_that_it_is_fast() {
    let service = Scripted::answers(200);
    let pool = Pool::new(PoolConfig::default(), &[&service]);
    pool.client().oneshot(0).await.unwrap();
    service.change(Does::Hangs);
    for number in 0..120 {
        let call = pool.client().oneshot(number);
        let _ = tokio::time::timeout(SECOND / 2, call).await;
    }
    assert_eq!(pool.reason(0), "", "not ejected");
    assert_eq!(pool.in_flight(), [0]);
    // What nobody speaks of fades to a thousandth within this minute.
    let latency = pool.backends.status().backends[0].latency.unwrap();
    assert!(latency >= Duration::from_millis(150), "{latency:?}");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_member_does_not_reach_a_caller_who_is_served_by_another() {
    let (full, free) = (Scripted::new(Does::Hangs), Scripted::answers(10));
    let pool = Pool::new(PoolConfig::default(), &[]);
    pool.backends
        .set([(bounded(0, 1), full), (member(1), free.clone())]);
    let holders: Vec<_> = (0..20)
        .map(|n| tokio::spawn(pool.client().oneshot(n)))
        .collect();
    pass(SECOND).await;
    assert_eq!(pool.in_flight().iter().sum::<u32>(), 1, "only one hangs");
    assert_eq!(free.take_calls(), 19);
    holders.iter().for_each(|holder| holder.abort());
}
