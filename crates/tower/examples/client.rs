//! A client over three HTTP servers of its own, one of them slow and one that fails: who got how much, and why.
//!
//! `cargo run -p mizan-tower --example client`

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mizan_tower::core::{Address, Member, PolicyKind, PoolConfig};
use mizan_tower::{Backends, BalanceLayer, BoxError, TokioClock};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt};

const REQUESTS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(5);

/// A server that answers `status` after `delay`; gives its address.
async fn serve(status: u16, delay: Duration) -> Result<SocketAddr, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = service_fn(move |_| async move {
                tokio::time::sleep(delay).await;
                let mut response = http::Response::new(Full::new(Bytes::from_static(b"hello\n")));
                *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
                Ok::<_, Infallible>(response)
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(connection);
        }
    });
    Ok(address)
}

fn member(name: &str, address: SocketAddr) -> Member {
    Member {
        key: name.into(),
        address: Address::Ip(address),
        weight: 1,
        version: "".into(),
        in_flight_max: None,
        place: Default::default(),
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example says what it saw")]
async fn main() -> Result<(), BoxError> {
    let config = PoolConfig {
        policy: PolicyKind::PowerOfTwo,
        ..PoolConfig::default()
    };
    let backends = Backends::with(config, TokioClock::new(), |event| println!("  {event}"));
    backends.set_members([
        member("fast", serve(200, Duration::from_millis(2)).await?),
        member("slow", serve(200, Duration::from_millis(80)).await?),
        member("failing", serve(500, Duration::ZERO).await?),
    ]);
    let http = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let client = BalanceLayer::new(&backends).layer(http);

    let mut requests = JoinSet::new();
    let mut pace = tokio::time::interval(PAUSE);
    for _ in 0..REQUESTS {
        pace.tick().await;
        let client = client.clone();
        requests.spawn(async move {
            let request = http::Request::get("http://shop.example/").body(Empty::new())?;
            let response = client.oneshot(request).await?;
            let peer = response
                .extensions()
                .get::<hyper_util::client::legacy::connect::HttpInfo>();
            let peer = peer.map(|info| info.remote_addr());
            response.into_body().collect().await?;
            Ok::<_, BoxError>(peer)
        });
    }
    let mut peers = Vec::new();
    while let Some(end) = requests.join_next().await {
        peers.extend(end??);
    }

    println!("backend   share   state      reason");
    for one in backends.status().backends {
        let of_it = peers
            .iter()
            .filter(|peer| Address::Ip(**peer) == one.address);
        let share = of_it.count() as f64 * 100.0 / f64::from(REQUESTS);
        let state = one.state.to_string();
        println!("{:<9} {share:>4.1} %  {state:<9}  {}", one.key, one.reason);
    }
    Ok(())
}
