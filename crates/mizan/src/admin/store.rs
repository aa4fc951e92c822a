//! The store itself, for other processes of the machine: `mizan_store::remote` is the other half.
//!
//! An embedded store belongs to the instance that has opened it; here others use it with the same meaning. It is the raw
//! store, not the table in it: nobody looks at what is written, and no author is kept. So it is there on the Unix socket
//! alone, for who could read the store's files as well.
//!
//! A watch takes the next change from the store when its reader has taken the last. The store keeps nothing for it, so a
//! slow one holds up nobody, and costs one change at most; when it is so far behind that the store has forgotten what it
//! needs, the store says so and the watch ends. One that reads nothing is cut off after 30 s, as all answers of the admin
//! API are.

use super::bounded::{Place, WatchPlace};
use super::guard::Guard;
use super::listen::stopped;
use super::view::ApiError;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use axum::{Extension, Router};
use futures_util::stream::{self, Stream};
use hyper::body::Bytes;
use mizan_store::remote::wire::{self, Wire};
use mizan_store::{Error, Message, Query, Store, Transaction, Watch};
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// Watches at once on one socket; the next is refused.
pub(super) const WATCHES_MAX: usize = 1_024;

/// A question must be here within this time from its head on.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Says that the process ends its admin side.
#[derive(Clone, Debug)]
pub(super) struct Stopping(pub(super) watch::Receiver<bool>);

type Held = Option<Arc<dyn Store>>;

/// The paths; `store` is `None` where there is none.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(rule: Guard, store: Held) -> Router<S> {
    if let Guard::Tcp(_) = rule {
        return Router::new().route("/v1/store/{*question}", any(only_on_the_socket));
    }
    Router::new()
        .route(wire::IDENTITY, post(identity))
        .route(wire::LIST, post(list))
        .route(wire::COMMIT, post(commit))
        .route(wire::GRANT, post(grant))
        .route(wire::KEEP_ALIVE, post(keep_alive))
        .route(wire::REVOKE, post(revoke))
        .route(wire::LEASE, post(lease))
        .route(wire::COMPACT, post(compact))
        .route(wire::WATCH, post(follow))
        .with_state(store)
}

/// No answer: the API's reason, or the store's.
enum Refused {
    Here(ApiError),
    Store(Error),
}

impl Refused {
    fn here(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self::Here(ApiError::new(status, code, message, ""))
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let error = match self {
            Self::Here(error) => return error.into_response(),
            Self::Store(error) => error,
        };
        let status = match &error {
            Error::Conflict(_) => StatusCode::PRECONDITION_FAILED,
            Error::Compacted { .. } => StatusCode::GONE,
            Error::Future { .. } | Error::NoLease(_) => StatusCode::NOT_FOUND,
            Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Error::Unknown(_) => StatusCode::GATEWAY_TIMEOUT,
            Error::Denied(_) => StatusCode::FORBIDDEN,
            Error::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Error::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            Error::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Error::Damaged(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, json(wire::write(&wire::Refusal::from(error)))).into_response()
    }
}

/// A question that is here whole, and understood.
struct Asked<T>(T);

impl<T, S> FromRequest<S> for Asked<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let body = to_bytes(request.into_body(), wire::QUESTION_BYTES_MAX);
        let Ok(body) = tokio::time::timeout(QUESTION_TIMEOUT, body).await else {
            let message = format!("the question is not here whole after {QUESTION_TIMEOUT:?}");
            return Err(Refused::here(
                StatusCode::REQUEST_TIMEOUT,
                "too_slow",
                message,
            ));
        };
        let body = body.map_err(|error| {
            let most = wire::QUESTION_BYTES_MAX;
            let message =
                format!("the question was not read: {error}; it has {most} bytes at most");
            Refused::here(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
        })?;
        wire::read(&body)
            .map(Self)
            .map_err(|why| Refused::here(StatusCode::BAD_REQUEST, "bad_body", why))
    }
}

fn json(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

fn held(store: &Held) -> Result<&dyn Store, Refused> {
    store.as_deref().ok_or_else(|| {
        let message = "this instance has no store: `[store] address = \"embedded:/var/lib/mizan/store\"` in its configuration, or `--store`, gives it one";
        Refused::Here(ApiError::new(
            StatusCode::CONFLICT,
            "no_store",
            message,
            "store",
        ))
    })
}

async fn only_on_the_socket(uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::FORBIDDEN,
        "only_on_unix_socket",
        "the store itself is used through the Unix socket of this machine's instance; from elsewhere, its table is at `/v1/objects`",
        uri.path(),
    )
}

async fn identity(
    State(store): State<Held>,
    Asked(wire::Nothing {}): Asked<wire::Nothing>,
) -> Result<Response, Refused> {
    let identity = held(&store)?.identity().await?;
    Ok(json(wire::write(&Wire(identity))))
}

async fn list(
    State(store): State<Held>,
    Asked(Wire(query)): Asked<Wire<Query>>,
) -> Result<Response, Refused> {
    let listing = held(&store)?.list(query).await?;
    let pieces = wire::pieces(listing).map(Ok::<_, Infallible>);
    Ok(json(Body::from_stream(stream::iter(pieces))))
}

async fn commit(
    State(store): State<Held>,
    Asked(Wire(transaction)): Asked<Wire<Transaction>>,
) -> Result<Response, Refused> {
    let committed = held(&store)?.commit(transaction).await?;
    Ok(json(wire::write(&Wire(committed))))
}

async fn grant(
    State(store): State<Held>,
    Asked(wire::Grant { life }): Asked<wire::Grant>,
) -> Result<Response, Refused> {
    let lease = held(&store)?.grant(life).await?;
    Ok(json(wire::write(&Wire(lease))))
}

async fn keep_alive(
    State(store): State<Held>,
    Asked(wire::OfLease { id }): Asked<wire::OfLease>,
) -> Result<Response, Refused> {
    let lease = held(&store)?.keep_alive(id).await?;
    Ok(json(wire::write(&Wire(lease))))
}

async fn revoke(
    State(store): State<Held>,
    Asked(wire::OfLease { id }): Asked<wire::OfLease>,
) -> Result<Response, Refused> {
    held(&store)?.revoke(id).await?;
    Ok(json(wire::write(&wire::Nothing {})))
}

async fn lease(
    State(store): State<Held>,
    Asked(wire::OfLease { id }): Asked<wire::OfLease>,
) -> Result<Response, Refused> {
    let lease = held(&store)?.lease(id).await?;
    Ok(json(wire::write(&Wire(lease))))
}

async fn compact(
    State(store): State<Held>,
    Asked(wire::Compact { revision }): Asked<wire::Compact>,
) -> Result<Response, Refused> {
    held(&store)?.compact(revision).await?;
    Ok(json(wire::write(&wire::Nothing {})))
}

async fn follow(
    State(store): State<Held>,
    Extension(place): Extension<Place>,
    Extension(Stopping(stop)): Extension<Stopping>,
    Asked(wire::Follow { range, from }): Asked<wire::Follow>,
) -> Result<Response, Refused> {
    let store = held(&store)?;
    let Some(place) = place.to_watch() else {
        let message = format!("{WATCHES_MAX} watches run already on this socket");
        return Err(Refused::here(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_watches",
            message,
        ));
    };
    let watch = store.watch(range, from).await?;
    place.settle();
    let following = Following { watch, stop, place };
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONNECTION, "close"),
    ];
    Ok((head, Body::from_stream(events(following))).into_response())
}

/// A watch that somebody reads.
struct Following {
    watch: Box<dyn Watch>,
    stop: watch::Receiver<bool>,
    #[expect(dead_code, reason = "is given back with the watch")]
    place: WatchPlace,
}

impl Following {
    async fn next(&mut self) -> Option<Result<Message, Error>> {
        tokio::select! {
            // What has happened is said before the end.
            biased;
            said = self.watch.next() => Some(said),
            () = stopped(self.stop.clone()) => {
                Some(Err(Error::Unavailable("the instance has ended".to_owned())))
            }
            () = tokio::time::sleep(wire::SILENCE) => None,
        }
    }
}

/// What it says, until it ends; a comment where it says nothing.
fn events(following: Following) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some(following), |following| async move {
        let mut following = following?;
        let (event, next) = match following.next().await {
            None => (wire::silence(), Some(following)),
            Some(said) => (wire::event(&said), said.is_ok().then_some(following)),
        };
        Some((Ok(event), next))
    })
}
