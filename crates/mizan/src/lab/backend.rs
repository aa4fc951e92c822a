//! The demonstration backend: a small HTTP/1.1 server that tells who it is and can be made slow or ill.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /healthz` | 200, or 503 after `{"healthy": false}` |
//! | `GET /slow?ms=300` | after that long |
//! | `GET /status/503` | with that status |
//! | `GET /control` | its state, and what it has seen ([`State`]) |
//! | `POST /control` `{"healthy": false, "delay_ms": 100}` | changes what is named; the delay is for traffic, not for probes |
//! | anything else | its name, the path, `X-Request-Id` and `X-Forwarded-For` |

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// Longest delay that it takes on.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// What `GET /control` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its name.
    pub name: String,
    /// What `/healthz` says.
    pub healthy: bool,
    /// Every answer but those of `/healthz` and `/control` is held back this long.
    pub delay_ms: u64,
    /// Requests other than to `/healthz` and `/control`.
    pub requests: u64,
    /// Requests to `/healthz`.
    pub probes: u64,
    /// Probes that came before its first other request; none before that came.
    pub probes_before_traffic: Option<u64>,
}

/// What `POST /control` takes; what is not named stays.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    healthy: Option<bool>,
    delay_ms: Option<u64>,
}

#[derive(Debug)]
struct Backend {
    address: SocketAddr,
    state: Mutex<State>,
}

type Handle = Arc<Backend>;

/// Serves on `listener` as `name` until `stop` is ready; then answers what it has begun, and returns.
///
/// # Errors
/// What the listener says about its own address.
pub async fn serve(
    name: String,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let state = State {
        name,
        healthy: true,
        ..State::default()
    };
    let backend = Arc::new(Backend {
        address: listener.local_addr()?,
        state: Mutex::new(state),
    });
    let app = Router::new()
        .route("/healthz", get(healthz))
        .route("/control", get(state_of).post(control))
        .route("/slow", any(slow))
        .route("/status/{status}", any(status))
        .fallback(any(hello))
        .with_state(backend);
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await
}

impl Backend {
    /// A poisoned lock is still good: each change is a plain store.
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a request that is traffic, and holds it back for as long as it was told.
    async fn traffic(&self) {
        let delay = self.with(|state| {
            state.requests += 1;
            state.probes_before_traffic.get_or_insert(state.probes);
            Duration::from_millis(state.delay_ms)
        });
        pause(delay).await;
    }

    fn name(&self) -> String {
        self.with(|state| state.name.clone())
    }
}

async fn pause(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay.min(DELAY_MAX)).await;
    }
}

async fn healthz(Shared(backend): Shared<Handle>) -> (StatusCode, &'static str) {
    let healthy = backend.with(|state| {
        state.probes += 1;
        state.healthy
    });
    if healthy {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "told to be ill\n")
    }
}

async fn state_of(Shared(backend): Shared<Handle>) -> Response {
    axum::Json(backend.with(|state| state.clone())).into_response()
}

async fn control(Shared(backend): Shared<Handle>, body: Bytes) -> Response {
    let change: Change = match serde_json::from_slice(&body) {
        Ok(change) => change,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let state = backend.with(|state| {
        state.healthy = change.healthy.unwrap_or(state.healthy);
        state.delay_ms = change.delay_ms.unwrap_or(state.delay_ms);
        state.clone()
    });
    axum::Json(state).into_response()
}

async fn slow(Shared(backend): Shared<Handle>, uri: Uri) -> Response {
    backend.traffic().await;
    let parameters = uri.query().unwrap_or_default().split('&');
    let Some(ms) = parameters
        .filter_map(|parameter| parameter.strip_prefix("ms="))
        .find_map(|ms| ms.parse().ok())
    else {
        return (StatusCode::BAD_REQUEST, "how long? /slow?ms=300\n").into_response();
    };
    pause(Duration::from_millis(ms)).await;
    format!("{} slept {ms} ms\n", backend.name()).into_response()
}

async fn status(Shared(backend): Shared<Handle>, Path(status): Path<u16>) -> Response {
    backend.traffic().await;
    match StatusCode::from_u16(status) {
        Ok(status) if status.as_u16() >= 200 => {
            (status, format!("{} says {status}\n", backend.name())).into_response()
        }
        _ => (StatusCode::BAD_REQUEST, "a status is 200 to 999\n").into_response(),
    }
}

async fn hello(Shared(backend): Shared<Handle>, uri: Uri, headers: HeaderMap) -> String {
    backend.traffic().await;
    let field = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("-")
            .to_owned()
    };
    format!(
        "{} at {}: {}\nrequest id: {}\nforwarded for: {}\n",
        backend.name(),
        backend.address,
        uri.path(),
        field("x-request-id"),
        field("x-forwarded-for"),
    )
}

#[cfg(test)]
mod tests;
