//! The layer over HTTP, and the example as a user would run it.

use http::{Request, Response, StatusCode};
use mizan_tower::core::{Address, Failure, Member, PolicyKind, PoolConfig};
use mizan_tower::{Backends, BalanceLayer, BoxError, Classify, Error, HttpStatus, Verdict};
use std::future::ready;
use std::io;
use std::process::Command;
use tower::retry::{Policy, RetryLayer};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

fn member(key: &str, address: Address) -> Member {
    Member {
        key: key.into(),
        address,
        weight: 1,
        version: "".into(),
        in_flight_max: None,
        place: Default::default(),
    }
}

/// What a backend of this address is asked: the URI and the host.
async fn asked(address: Address, uri: &str, host: Option<&str>) -> (String, Option<String>) {
    let backends = Backends::new(PoolConfig::default());
    backends.set_members([member("one", address)]);
    let echo = service_fn(|request: Request<()>| {
        let host = request.headers().get("host");
        let host = host.map(|host| host.to_str().expect("text").to_owned());
        ready(Ok::<_, BoxError>(Response::new((
            request.uri().to_string(),
            host,
        ))))
    });
    let mut request = Request::get(uri);
    if let Some(host) = host {
        request = request.header("host", host);
    }
    let client = BalanceLayer::new(&backends).layer(echo);
    client
        .oneshot(request.body(()).expect("a request"))
        .await
        .expect("an answer")
        .into_body()
}

#[tokio::test]
async fn a_request_goes_to_the_backends_address_and_names_the_host_it_named() {
    let backend = || Address::Ip("127.0.0.1:9000".parse().unwrap());
    let said = |uri: &str, host: Option<&str>| (uri.to_owned(), host.map(str::to_owned));
    assert_eq!(
        asked(backend(), "/a?b=c", None).await,
        said("http://127.0.0.1:9000/a?b=c", None)
    );
    assert_eq!(
        asked(backend(), "https://user:word@shop.example:8443/a", None).await,
        said("https://127.0.0.1:9000/a", Some("shop.example:8443"))
    );
    assert_eq!(
        asked(backend(), "http://shop.example", Some("other")).await,
        said("http://127.0.0.1:9000/", Some("other"))
    );
    let v6 = Address::Ip("[::1]:9000".parse().unwrap());
    assert_eq!(asked(v6, "/", None).await, said("http://[::1]:9000/", None));
    let unix = Address::Unix("/run/one".into());
    assert_eq!(
        asked(unix, "/a", None).await,
        said("/a", None),
        "left as it is"
    );
}

#[test]
fn statuses_from_500_are_the_backends_own_errors() {
    let of = |status: u16| {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        HttpStatus.classify(Ok(&response))
    };
    assert_eq!(of(200), Verdict::Success);
    assert_eq!(of(404), Verdict::Success);
    assert_eq!(of(499), Verdict::Success);
    assert_eq!(of(500), Verdict::ServerError(500));
    assert_eq!(of(503), Verdict::ServerError(503));
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    let verdict = Classify::<Response<()>>::classify(&HttpStatus, Err(&refused));
    assert_eq!(verdict, Verdict::Failure(Failure::ConnectRefused));
}

/// Retries errors, within the pool's budget.
#[derive(Clone)]
struct Again(Backends);

impl<R> Policy<Request<()>, R, Error> for Again {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<()>,
        result: &mut Result<R, Error>,
    ) -> Option<Self::Future> {
        let is_failed = matches!(result, Err(Error::Service(_)));
        (is_failed && self.0.withdraw_retry()).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<()>) -> Option<Request<()>> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn a_retry_around_the_balancer_reaches_another_backend_within_the_pools_budget() {
    let backends = Backends::new(PoolConfig {
        policy: PolicyKind::RoundRobin,
        ..PoolConfig::default()
    });
    let address = |port| Address::Ip(([127, 0, 0, 1], port).into());
    backends.set_members([
        member("resets", address(9001)),
        member("serves", address(9002)),
    ]);
    let inner = service_fn(|request: Request<()>| {
        let resets = request.uri().port_u16() == Some(9001);
        ready(match resets {
            true => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            false => Ok(Response::new(())),
        })
    });
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(Again(backends.clone())))
        .layer(BalanceLayer::new(&backends))
        .service(inner);
    for _ in 0..8 {
        client.clone().oneshot(Request::new(())).await.unwrap();
    }
    // The floor of the budget is ten a second; four went, or five.
    let left = (0..20).take_while(|_| backends.withdraw_retry()).count();
    assert!((5..=6).contains(&left), "{left} left");
}

#[test]
fn the_example_runs_and_says_who_is_slow_and_who_fails() {
    let cargo = Command::new(env!("CARGO"))
        .args([
            "run",
            "--quiet",
            "--locked",
            "-p",
            "mizan-tower",
            "--example",
            "client",
        ])
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&cargo.stdout);
    assert!(
        cargo.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&cargo.stderr)
    );
    let row = |name: &str| -> Vec<String> {
        let line = said.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name}: {said}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    let share = |name: &str| row(name)[1].parse::<f64>().expect("a share");
    assert!(share("fast") > 60.0, "{said}");
    assert!(share("slow") < 30.0 && share("failing") < 10.0, "{said}");
    assert!((share("fast") + share("slow") + share("failing") - 100.0).abs() < 0.3);
    assert!(row("failing").len() > 4, "it has a reason: {said}");
}
