//! What a call costs besides what the backend's service costs: readiness, pick, call, response, observation; beside tower's
//! own balancer (power of two choices over peak EWMA).
//!
//! `cargo bench -p mizan-tower`. The services answer at once, so what is measured is the balancers alone.

#![allow(missing_docs, reason = "criterion's macro makes a public function")]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mizan_tower::core::{Address, Member, PolicyKind, PoolConfig};
use mizan_tower::{Backends, BoxError};
use std::future::{Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::Instant;
use tower::balance::p2c;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PeakEwma};
use tower::{Service, ServiceExt};

const SIZES: [u16; 2] = [10, 1_000];

/// A service that answers at once.
#[derive(Clone)]
struct AtOnce;

impl Service<u64> for AtOnce {
    type Response = u64;
    type Error = BoxError;
    type Future = Ready<Result<u64, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(Ok(request))
    }
}

/// The time of so many calls, one after the other through one handle.
fn calls<S: Service<u64>>(service: &mut S, count: u64) -> Duration
where
    S::Error: std::fmt::Debug,
{
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let start = Instant::now();
        for number in 0..count {
            let ready = service.ready().await.expect("never broken");
            let _ = black_box(ready.call(number).await);
        }
        start.elapsed()
    })
}

fn call(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("call");
    for size in SIZES {
        for policy in [PolicyKind::PowerOfTwo, PolicyKind::PeakEwma] {
            let config = PoolConfig {
                policy,
                ..PoolConfig::default()
            };
            let backends = Backends::new(config);
            backends.set((0..size).map(|number| (member(number), AtOnce)));
            let mut balance = backends.balance();
            let id = BenchmarkId::new(format!("mizan {policy}"), size);
            group.bench_function(id, |b| b.iter_custom(|count| calls(&mut balance, count)));
        }
        let services = (0..size).map(|_| {
            let (rtt, decay) = (Duration::from_millis(10), Duration::from_secs(10));
            PeakEwma::new(
                AtOnce,
                rtt,
                decay.as_nanos() as f64,
                CompleteOnResponse::default(),
            )
        });
        let list = ServiceList::new::<u64>(services.collect::<Vec<_>>());
        let mut balance = p2c::Balance::new(list);
        let id = BenchmarkId::new("tower p2c peak_ewma", size);
        group.bench_function(id, |b| b.iter_custom(|count| calls(&mut balance, count)));
    }
    group.finish();
}

fn member(number: u16) -> Member {
    Member {
        key: format!("b{number}").into(),
        address: Address::Ip(([127, 0, 0, 1], number).into()),
        weight: 1,
        version: "".into(),
        in_flight_max: None,
        place: Default::default(),
    }
}

criterion_group!(benches, call);
criterion_main!(benches);
