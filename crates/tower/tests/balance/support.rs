//! Backends that do as they are told, in virtual time, and traffic to them.

use mizan_tower::core::{Address, Event, Instant, Member, PoolConfig};
use mizan_tower::{
    Backends, Balance, BoxError, Classify, Clock, Error, Table, TokioClock, Verdict,
};
use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::timeout;
use tower::{Service, ServiceExt};

/// What a backend does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Does {
    /// A status after a time.
    Answers(u16, Duration),
    /// Resets the connection at once.
    Resets,
    /// Nothing listens.
    Refuses,
    /// Never answers.
    Hangs,
    /// Breaks the rules of the language.
    Panics,
}

/// How ready its service is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Readiness {
    Ready,
    Pending,
    Broken,
}

/// The far side of a service.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) does: Mutex<Does>,
    readiness: Mutex<(Readiness, Vec<Waker>)>,
    calls: AtomicU64,
}

/// A backend's service.
#[derive(Clone, Debug)]
pub(crate) struct Scripted(pub(crate) Arc<Script>);

impl Scripted {
    pub(crate) fn new(does: Does) -> Self {
        Self(Arc::new(Script {
            does: Mutex::new(does),
            readiness: Mutex::new((Readiness::Ready, Vec::new())),
            calls: AtomicU64::new(0),
        }))
    }

    pub(crate) fn answers(millis: u64) -> Self {
        Self::new(Does::Answers(200, Duration::from_millis(millis)))
    }

    pub(crate) fn change(&self, does: Does) {
        *self.0.does.lock().expect("not poisoned") = does;
    }

    pub(crate) fn set_readiness(&self, readiness: Readiness) {
        let mut held = self.0.readiness.lock().expect("not poisoned");
        held.0 = readiness;
        held.1.drain(..).for_each(Waker::wake);
    }

    /// Calls since the last question.
    pub(crate) fn take_calls(&self) -> u64 {
        self.0.calls.swap(0, Ordering::Relaxed)
    }
}

impl Service<u64> for Scripted {
    type Response = u16;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<u16, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let mut held = self.0.readiness.lock().expect("not poisoned");
        match held.0 {
            Readiness::Ready => Poll::Ready(Ok(())),
            Readiness::Broken => Poll::Ready(Err("the service is broken".into())),
            Readiness::Pending => {
                held.1.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn call(&mut self, _request: u64) -> Self::Future {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let does = *self.0.does.lock().expect("not poisoned");
        Box::pin(async move {
            match does {
                Does::Answers(status, Duration::ZERO) => Ok(status),
                Does::Answers(status, time) => {
                    pass(time).await;
                    Ok(status)
                }
                Does::Resets => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                Does::Refuses => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
                Does::Hangs => pending().await,
                Does::Panics => panic!("scripted"),
            }
        })
    }
}

/// Virtual time goes on.
pub(crate) async fn pass(time: Duration) {
    let _ = timeout(time, pending::<()>()).await;
}

/// 500 and above is the backend's own error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status;

impl Classify<u16> for Status {
    fn classify(&self, result: Result<&u16, &(dyn std::error::Error + 'static)>) -> Verdict {
        match result {
            Ok(&status @ 500..) => Verdict::ServerError(status),
            Ok(_) => Verdict::Success,
            Err(error) => Verdict::Failure(mizan_tower::failure(error)),
        }
    }
}

/// Tokio's time, which the tests pause, and random numbers that are the same in each run (Weyl's sequence, mixed by
/// a multiplication: SplitMix64's first half).
#[derive(Debug)]
pub(crate) struct Seeded {
    clock: TokioClock,
    state: AtomicU64,
}

impl Clock for Seeded {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn random(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let state = self.state.fetch_add(step, Ordering::Relaxed);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    }
}

pub(crate) type Client = Balance<Table<Scripted>, Status>;

/// A pool with what it said.
pub(crate) struct Pool {
    pub(crate) backends: Backends<Scripted>,
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
}

impl Pool {
    pub(crate) fn new(config: PoolConfig, services: &[&Scripted]) -> Self {
        let clock = Seeded {
            clock: TokioClock::new(),
            state: AtomicU64::new(7),
        };
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let log = Arc::clone(&events);
        let listener = move |event: &Event| log.lock().expect("not poisoned").push(event.clone());
        let backends = Backends::with(config, clock, listener);
        let members = services.iter().enumerate();
        backends.set(members.map(|(number, &service)| (member(number), service.clone())));
        Self { backends, events }
    }

    pub(crate) fn client(&self) -> Client {
        self.backends.balance().classify(Status)
    }

    pub(crate) fn in_flight(&self) -> Vec<u32> {
        let status = self.backends.status();
        status.backends.iter().map(|one| one.in_flight).collect()
    }

    /// The reason of one backend's state.
    pub(crate) fn reason(&self, number: usize) -> String {
        self.backends.status().backends[number].reason.clone()
    }

    /// Requests at an even pace, each in a task of its own; gives how many ended how: a status, or 0.
    pub(crate) async fn traffic(&self, per_second: u32, time: Duration) -> BTreeMap<u16, u64> {
        let mut requests = tokio::task::JoinSet::new();
        let mut pace = tokio::time::interval(Duration::from_secs(1) / per_second);
        for number in 0..(per_second * time.as_secs() as u32) {
            pace.tick().await;
            let client = self.client();
            requests.spawn(async move { client.oneshot(u64::from(number)).await });
        }
        let mut ends = BTreeMap::new();
        for end in requests.join_all().await {
            *ends.entry(end.unwrap_or(0)).or_default() += 1;
        }
        ends
    }
}

pub(crate) fn key(number: usize) -> String {
    format!("b{number}")
}

pub(crate) fn member(number: usize) -> Member {
    Member {
        key: key(number).into(),
        address: Address::Ip(([127, 0, 0, 1], 9000 + number as u16).into()),
        weight: 1,
        version: "".into(),
        in_flight_max: None,
        place: Default::default(),
    }
}

/// A member with room for so many requests.
pub(crate) fn bounded(number: usize, in_flight_max: u32) -> Member {
    Member {
        in_flight_max: Some(in_flight_max),
        ..member(number)
    }
}

/// Whether a result is the error of nobody picked.
pub(crate) fn is_no_backend<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::NoBackend(_)))
}
