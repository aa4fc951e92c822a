//! Paths and what they do.
//!
//! A read shows the snapshot in force and has its generation as `ETag`; a write may ask for that very
//! generation with `If-Match`. Errors are `{code, message, path}`.

use super::AdminState;
use super::bounded::Scraper;
use super::explain::{self, ExplainRequest, ExplainView};
use super::guard::{Caller, Guard, guard};
use super::meant::{list, meant};
use super::openapi;
use super::store;
use super::table;
use super::view::{
    ApiError, BackendView, ConfigView, Phase, PoolView, ReloadReport, RouteView, SourceView,
    StatusView,
};
use crate::clock;
use crate::snapshot::{AskError, Asked, Pool, Snapshot};
use crate::telemetry::exposition;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use mizan_core::availability::Admin;
use serde::Serialize;
use std::sync::Arc;

/// Largest body of a write; none needs one today.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Largest question of what would become of a request: a head of 1 MiB, the most that `head_max` may be, in JSON.
const QUESTION_BYTES_MAX: usize = 8 << 20;

/// Says of a reload that what seems doubtful of the store's table is meant.
pub const ACCEPT_TABLE: &str = "accept_table=true";

/// Connections that read metrics, at once on one socket; the other places are for probes and operators.
pub(super) const SCRAPERS_MAX: usize = 32;

pub(super) fn routes(guarded: Guard, state: &AdminState) -> Router<AdminState> {
    let rule = (guarded, Arc::clone(&state.current));
    let control = Arc::clone(&state.control);
    let held_back = Arc::new(move || {
        let store = control.store();
        store.map_or_else(String::new, |store| store.node.held_back)
    });
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/pools", get(pools))
        .route("/v1/pools/{pool}", get(pool))
        .route(
            "/v1/pools/{pool}/backends/{backend}/{want}",
            post(set_admin),
        )
        .route(
            "/v1/explain",
            post(explain_request).layer(DefaultBodyLimit::max(QUESTION_BYTES_MAX)),
        )
        .route("/v1/reload", post(reload))
        .route("/v1/config", get(config_in_force))
        .route("/v1/routes", get(routes_in_order))
        .route("/v1/openapi.json", get(async || Json(openapi::document())))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .merge(table::routes(state.editor.clone(), held_back))
        .merge(store::routes(guarded, state.store.clone()))
        .route_layer(axum::middleware::from_fn_with_state(rule, guard))
}

pub(super) fn health_routes() -> Router<AdminState> {
    Router::new()
        .route("/livez", get(async || "live\n"))
        .route("/readyz", get(ready))
}

pub(super) fn metrics_routes() -> Router<AdminState> {
    Router::new().route("/metrics", get(metrics))
}

/// `paths` says what there is on this socket.
pub(super) fn with_fallbacks(
    router: Router<AdminState>,
    paths: &'static str,
) -> Router<AdminState> {
    router
        .fallback(async move |uri: Uri| {
            ApiError::new(
                StatusCode::NOT_FOUND,
                "not_found",
                format!("nothing is here; {paths}"),
                uri.path(),
            )
        })
        .method_not_allowed_fallback(async |uri: Uri| {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this path takes another method",
                uri.path(),
            )
        })
}

/// Touches nothing that can flap: only whether this process takes new requests.
async fn ready(State(state): State<AdminState>) -> (StatusCode, String) {
    let phase = state.control.phase();
    let code = if phase == Phase::Serving {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, format!("{phase}\n"))
}

async fn metrics(
    State(state): State<AdminState>,
    Extension(scraper): Extension<Scraper>,
) -> Response {
    if !scraper.enter() {
        let refused = ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_scrapers",
            format!("{SCRAPERS_MAX} connections read metrics already"),
            "/metrics",
        );
        return ([(header::CONNECTION, "close")], refused).into_response();
    }
    let text = exposition::render(&state.metrics, &state.current.load(), clock::now());
    ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], text).into_response()
}

async fn status(State(state): State<AdminState>) -> Response {
    let snapshot = state.current.load();
    let mut view = StatusView::new(&state, &snapshot, clock::now());
    if let Some(store) = &mut view.store {
        match state.control.nodes().await {
            Ok(nodes) => store.nodes = nodes,
            Err(why) => store.nodes_unknown = why,
        }
    }
    tagged(&snapshot, view)
}

async fn pools(State(state): State<AdminState>) -> Response {
    let snapshot = state.current.load();
    let now = clock::now();
    let totals = state.metrics.totals();
    let views: Vec<PoolView> = snapshot
        .pools
        .values()
        .map(|pool| PoolView::new(pool, &totals, now))
        .collect();
    tagged(&snapshot, views)
}

async fn pool(
    State(state): State<AdminState>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let snapshot = state.current.load();
    let view = PoolView::new(
        find(&snapshot, &name)?,
        &state.metrics.totals(),
        clock::now(),
    );
    Ok(tagged(&snapshot, view))
}

async fn set_admin(
    State(state): State<AdminState>,
    Extension(caller): Extension<Caller>,
    Path((pool, backend, want)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Result<Json<BackendView>, ApiError> {
    let snapshot = state.current.load();
    if_match(&snapshot, &headers)?;
    let admin = match want.as_str() {
        "drain" => Admin::Drain,
        "undrain" => Admin::Ready,
        "maintenance" => Admin::Maintenance,
        _ => {
            let message = format!("`{want}` is none of drain, undrain and maintenance");
            return Err(ApiError::new(
                StatusCode::NOT_FOUND,
                "not_found",
                message,
                "",
            ));
        }
    };
    let found = find(&snapshot, &pool)?;
    let path = format!("pool.{pool}.backends.{backend}");
    let unknown = || {
        let message = format!("pool `{pool}` has no backend `{backend}`");
        let meant = meant_backend(found, &backend);
        ApiError::new(
            StatusCode::NOT_FOUND,
            "unknown_backend",
            message + &meant,
            &path,
        )
    };
    found
        .core
        .set_admin(clock::now(), &backend, admin)
        .map_err(|_| unknown())?;
    tracing::info!(%caller, pool, backend, want, "an operator's will");
    let view = PoolView::new(found, &state.metrics.totals(), clock::now());
    view.backends
        .into_iter()
        .find(|view| view.key == backend)
        .map(Json)
        .ok_or_else(unknown)
}

async fn reload(
    State(state): State<AdminState>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<ReloadReport>, ApiError> {
    if_match(&state.current.load(), &headers)?;
    let accept_table = match uri.query() {
        None => false,
        Some(ACCEPT_TABLE) => true,
        Some(_) => {
            return Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "bad_query",
                format!("only `?{ACCEPT_TABLE}` can be asked for here"),
                uri.path(),
            ));
        }
    };
    tracing::info!(%caller, accept_table, "reload asked for");
    Ok(Json(state.control.reload(accept_table).await))
}

async fn config_in_force(State(state): State<AdminState>) -> Response {
    let snapshot = state.current.load();
    let sources = state
        .control
        .config_text()
        .iter()
        .map(SourceView::new)
        .collect();
    tagged(&snapshot, ConfigView::new(&snapshot, sources))
}

async fn routes_in_order(State(state): State<AdminState>) -> Response {
    let snapshot = state.current.load();
    tagged(&snapshot, RouteView::in_order(&snapshot))
}

async fn explain_request(
    State(state): State<AdminState>,
    body: Result<Json<ExplainRequest>, JsonRejection>,
) -> Result<Response, ApiError> {
    let refused =
        |code, message, path: &str| ApiError::new(StatusCode::BAD_REQUEST, code, message, path);
    let Json(request) = body.map_err(|error| refused("bad_request", error.body_text(), ""))?;
    let asked = request
        .asked(clock::random())
        .map_err(|wrong| refused("bad_request", wrong.message, wrong.field))?;
    // A pool of thousands is copied, and its table built anew: that is not for a thread that other answers wait for.
    let told = tokio::task::spawn_blocking(move || explained(&state, &asked));
    told.await.unwrap_or_else(|error| {
        let code = StatusCode::INTERNAL_SERVER_ERROR;
        Err(ApiError::new(code, "internal", error.to_string(), ""))
    })
}

fn explained(state: &AdminState, asked: &Asked) -> Result<Response, ApiError> {
    let snapshot = state.current.load();
    let explained = state.control.explain(&snapshot, asked).map_err(|error| {
        let message = format!("{error}{}", explain::meant(&snapshot, &error));
        let (code, path) = match &error {
            AskError::UnknownRegion(name) => ("unknown_region", format!("region.{name}")),
            AskError::UnknownPool(name) => ("unknown_pool", format!("pool.{name}")),
            AskError::UnknownListener(name) => ("unknown_listener", format!("listener.{name}")),
            _ => ("bad_request", "listener".to_owned()),
        };
        ApiError::new(StatusCode::BAD_REQUEST, code, message, &path)
    })?;
    Ok(tagged(&snapshot, ExplainView::new(&snapshot, &explained)))
}

fn find<'a>(snapshot: &'a Snapshot, name: &str) -> Result<&'a Arc<Pool>, ApiError> {
    snapshot.pools.get(name).ok_or_else(|| {
        let pools: Vec<&str> = snapshot.pools.keys().map(|name| &**name).collect();
        ApiError::new(
            StatusCode::NOT_FOUND,
            "unknown_pool",
            format!("there is no pool `{name}`{}", meant(name, &pools)),
            &format!("pool.{name}"),
        )
    })
}

/// Which backend is meant by a name that is none. A host name of the file stands for a backend for each of
/// its addresses.
fn meant_backend(pool: &Pool, backend: &str) -> String {
    let backends = pool.core.backends();
    let keys: Vec<&str> = backends.iter().map(|backend| &**backend.key()).collect();
    let is_address = |key: &&str| {
        key.strip_prefix(backend)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let addresses: Vec<&str> = keys.iter().copied().filter(is_address).collect();
    if addresses.is_empty() {
        meant(backend, &keys)
    } else {
        format!("; this name stands for {}", list(&addresses))
    }
}

fn tagged(snapshot: &Snapshot, body: impl Serialize) -> Response {
    let mut response = Json(body).into_response();
    if let Ok(tag) = HeaderValue::from_str(&tag(snapshot)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn tag(snapshot: &Snapshot) -> String {
    format!("\"{}\"", snapshot.generation)
}

/// RFC 9110 §13.1.1.
fn if_match(snapshot: &Snapshot, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(wanted) = headers.get(header::IF_MATCH) else {
        return Ok(());
    };
    let wanted = wanted.to_str().unwrap_or_default();
    let tag = tag(snapshot);
    if wanted
        .split(',')
        .any(|one| one.trim() == "*" || one.trim() == tag)
    {
        return Ok(());
    }
    let message = format!(
        "generation {} is in force, not {wanted}",
        snapshot.generation
    );
    Err(ApiError::new(
        StatusCode::PRECONDITION_FAILED,
        "changed",
        message,
        "",
    ))
}
