//! The store's table in the API: read, edited, its history, boosts, and what changes as it does.
//!
//! The command line speaks with these very paths whether an instance answers them or, with `--store`, its own process does.

use super::view::{ApiError, RejectedView};
use crate::control::editor::{
    BoostView, EditFailed, EditView, Edited, Editor, ObjectView, TableView, Wanted,
};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Json, Router};
use futures_util::stream::{self, Stream};
use mizan_routing::edit::{Change, EditError};
use mizan_store::{Denial, Error, Range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Largest body of an edit: as much as one transaction takes.
const EDIT_BYTES_MAX: usize = 2 << 20;

/// As whom a caller is known.
#[derive(Clone, Debug)]
pub struct Author(pub String);

/// An edit as its author wants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditRequest {
    /// What, by the keys; each once.
    pub changes: Vec<ChangeRequest>,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// That most of the table goes is meant.
    #[serde(default)]
    pub force: bool,
}

/// One key of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// Whose.
    pub key: String,
    /// What it is to say; null or absent: it goes.
    #[serde(default)]
    pub document: Option<Value>,
    /// The revision that its author saw it at, 0 if it was not there: the edit is refused if it has another. Absent: whatever
    /// it is.
    #[serde(default)]
    pub seen: Option<u64>,
}

/// A boost as its author wants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoostRequest {
    /// Where the pool is.
    pub region: String,
    /// What is boosted.
    pub pool: String,
    /// What its weight is multiplied by, 0.1 to 10.
    pub factor: f64,
    /// For how long, in seconds.
    pub seconds: u64,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// A boost that was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoostSet {
    /// The edit that set it.
    #[serde(flatten)]
    pub edit: Edited,
    /// It.
    pub boost: BoostView,
}

/// Why something is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Reason {
    /// Why.
    pub why: String,
    /// What was changed since is overwritten.
    pub force: bool,
}

type Table = Option<Arc<Editor>>;
type Shared = State<Table>;

/// The paths; `editor` is `None` where there is no store.
pub fn routes<S: Clone + Send + Sync + 'static>(editor: Table) -> Router<S> {
    Router::new()
        .route("/v1/objects", get(objects))
        .route("/v1/objects/{*key}", get(object).put(put).delete(remove))
        .route("/v1/edits", get(history).post(edit))
        .route("/v1/edits/{edit}/rollback", post(rollback))
        .route("/v1/boosts", get(boosts).post(boost))
        .route("/v1/boosts/{id}", delete(end_boost))
        .route("/v1/events", get(events))
        .layer(DefaultBodyLimit::max(EDIT_BYTES_MAX))
        .with_state(editor)
}

fn editor(table: &Table) -> Result<&Editor, ApiError> {
    table.as_deref().ok_or_else(|| {
        let message = "this instance has no store: `[store] address = \"embedded:/var/lib/mizan/store\"` in its configuration, or `--store`, gives it one";
        ApiError::new(StatusCode::CONFLICT, "no_store", message, "store")
    })
}

fn failed(error: EditFailed) -> ApiError {
    let (status, code) = match &error {
        EditFailed::Refused(_) | EditFailed::Many(_) | EditFailed::Invalid(_) => {
            (StatusCode::UNPROCESSABLE_ENTITY, "rejected")
        }
        EditFailed::Conflict(_) => (StatusCode::PRECONDITION_FAILED, "changed"),
        EditFailed::Nothing(_) => (StatusCode::NOT_FOUND, "not_found"),
        EditFailed::Store(error) => match error {
            Error::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unreachable"),
            Error::Denied(Denial::Permission(_)) => (StatusCode::FORBIDDEN, "store_denies"),
            Error::Denied(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_denies"),
            Error::Unknown(_) => (StatusCode::GATEWAY_TIMEOUT, "outcome_unknown"),
            Error::TooLarge { .. } | Error::Invalid(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "too_large")
            }
            Error::Compacted { .. } | Error::Future { .. } => {
                (StatusCode::NOT_FOUND, "revision_not_held")
            }
            Error::Full(_) => (StatusCode::INSUFFICIENT_STORAGE, "store_full"),
            Error::Damaged(_) | Error::Conflict(_) | Error::NoLease(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "store_failed")
            }
        },
    };
    let mut told = ApiError::new(status, code, error.to_string(), "");
    match error {
        EditFailed::Conflict(conflicts) => told.edit.conflicts = conflicts,
        EditFailed::Refused(EditError::Rejected(rejected)) => {
            told.edit.rejected = rejected.into_iter().map(RejectedView::from).collect();
        }
        _ => {}
    }
    told
}

fn bad(code: &str, message: impl Into<String>, path: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, code, message, path)
}

/// A body that is understood.
fn body<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, ApiError> {
    match body {
        Ok(Json(body)) => Ok(body),
        Err(rejection) => Err(ApiError::new(
            rejection.status(),
            "bad_body",
            rejection.body_text(),
            "",
        )),
    }
}

fn change(request: ChangeRequest) -> Result<Change, ApiError> {
    let object = request
        .key
        .parse()
        .map_err(|error: mizan_routing::key::KeyError| {
            bad("bad_key", error.to_string(), &request.key)
        })?;
    Ok(Change {
        object,
        document: request.document.map(|json| json.to_string().into_bytes()),
        seen: request.seen,
    })
}

/// The revision that `?at=` names.
fn at(uri: &Uri) -> Result<Option<u64>, ApiError> {
    match uri
        .query()
        .map(|query| query.strip_prefix("at=").map(str::parse))
    {
        None => Ok(None),
        Some(Some(Ok(revision))) => Ok(Some(revision)),
        Some(_) => Err(bad(
            "bad_query",
            "only `?at=REVISION` can be asked for here",
            uri.path(),
        )),
    }
}

async fn objects(State(table): Shared, uri: Uri) -> Result<Json<TableView>, ApiError> {
    let at = at(&uri)?;
    let view = editor(&table)?.table(at).await.map_err(failed)?;
    Ok(Json(view))
}

async fn object(
    State(table): Shared,
    Path(key): Path<String>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let view = editor(&table)?.table(at(&uri)?).await.map_err(failed)?;
    let found = view.objects.into_iter().find(|it| it.key == key);
    let found = found.ok_or_else(|| {
        let message = format!("there is no object `{key}` at revision {}", view.revision);
        ApiError::new(StatusCode::NOT_FOUND, "not_found", message, &key)
    })?;
    let tag = format!("\"{}\"", found.revision);
    let tag = HeaderValue::from_str(&tag).unwrap_or_else(|_| HeaderValue::from_static("\"0\""));
    Ok(([(header::ETAG, tag)], Json::<ObjectView>(found)).into_response())
}

/// What `If-Match` or `If-None-Match: *` says that the caller saw.
fn seen(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    if let Some(value) = headers.get(header::IF_NONE_MATCH) {
        return match value.as_bytes() {
            b"*" => Ok(Some(0)),
            _ => Err(bad(
                "bad_condition",
                "`If-None-Match` takes `*` here: it must not be there yet",
                "",
            )),
        };
    }
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let revision = value.to_str().ok().map(|it| it.trim_matches('"').parse());
    match revision {
        Some(Ok(revision)) => Ok(Some(revision)),
        _ => Err(bad(
            "bad_condition",
            "`If-Match` takes the `ETag` of the object, its revision",
            "",
        )),
    }
}

async fn put(
    State(table): Shared,
    Extension(author): Extension<Author>,
    Path(key): Path<String>,
    headers: HeaderMap,
    document: Result<Json<Value>, JsonRejection>,
) -> Result<Json<Edited>, ApiError> {
    let change = ChangeRequest {
        key,
        document: Some(body(document)?),
        seen: seen(&headers)?,
    };
    one(&table, author, change).await
}

async fn remove(
    State(table): Shared,
    Extension(author): Extension<Author>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Edited>, ApiError> {
    let change = ChangeRequest {
        key,
        document: None,
        seen: seen(&headers)?,
    };
    one(&table, author, change).await
}

async fn one(
    table: &Table,
    author: Author,
    change: ChangeRequest,
) -> Result<Json<Edited>, ApiError> {
    let request = EditRequest {
        changes: vec![change],
        why: String::new(),
        force: false,
    };
    make(table, author, request).await
}

async fn edit(
    State(table): Shared,
    Extension(author): Extension<Author>,
    request: Result<Json<EditRequest>, JsonRejection>,
) -> Result<Json<Edited>, ApiError> {
    make(&table, author, body(request)?).await
}

async fn make(
    table: &Table,
    author: Author,
    request: EditRequest,
) -> Result<Json<Edited>, ApiError> {
    let editor = editor(table)?;
    let changes: Result<Vec<Change>, ApiError> = request.changes.into_iter().map(change).collect();
    let wanted = Wanted {
        changes: changes?,
        author: author.0,
        why: request.why,
        force: request.force,
    };
    let edited = editor.edit(&wanted).await.map_err(failed)?;
    let keys: Vec<_> = wanted
        .changes
        .iter()
        .map(|it| it.object.to_string())
        .collect();
    tracing::info!(
        author = wanted.author,
        edit = edited.edit,
        revision = edited.revision,
        why = wanted.why,
        "the table was edited: {}",
        keys.join(", ")
    );
    Ok(Json(edited))
}

async fn history(State(table): Shared) -> Result<Json<Vec<EditView>>, ApiError> {
    let edits = editor(&table)?.history(None, usize::MAX).await;
    Ok(Json(edits.map_err(failed)?))
}

async fn rollback(
    State(table): Shared,
    Extension(author): Extension<Author>,
    Path(edit): Path<String>,
    reason: Result<Json<Reason>, JsonRejection>,
) -> Result<Json<Edited>, ApiError> {
    let Reason { why, force } = body(reason)?;
    tracing::info!(author = author.0, edit, "an edit is to be taken back");
    let edited = editor(&table)?
        .rollback(&edit, (author.0, why), force)
        .await;
    Ok(Json(edited.map_err(failed)?))
}

async fn boosts(State(table): Shared) -> Result<Json<Vec<BoostView>>, ApiError> {
    let boosts = editor(&table)?.boosts().await;
    Ok(Json(boosts.map_err(failed)?))
}

async fn boost(
    State(table): Shared,
    Extension(author): Extension<Author>,
    request: Result<Json<BoostRequest>, JsonRejection>,
) -> Result<Json<BoostSet>, ApiError> {
    let request = body(request)?;
    let name = |text: &str| {
        text.parse()
            .map_err(|error: mizan_routing::key::NameError| {
                bad("bad_name", error.to_string(), text)
            })
    };
    let (region, pool) = (name(&request.region)?, name(&request.pool)?);
    let wanted = (request.factor, Duration::from_secs(request.seconds));
    let by = (author.0, request.why);
    let editor = editor(&table)?;
    let (edit, boost) = editor
        .boost((&region, &pool), wanted, by)
        .await
        .map_err(failed)?;
    tracing::info!(
        author = boost.created_by,
        factor = boost.factor,
        seconds = boost.left_seconds,
        why = boost.why,
        "pool {pool} of region {region} is boosted"
    );
    Ok(Json(BoostSet { edit, boost }))
}

async fn end_boost(
    State(table): Shared,
    Extension(author): Extension<Author>,
    Path(id): Path<String>,
) -> Result<Json<Edited>, ApiError> {
    let by = (author.0, "ended".to_owned());
    let edited = editor(&table)?.end_boost(&id, by).await;
    Ok(Json(edited.map_err(failed)?))
}

/// Each change of the table as a server-sent event, from the next one on: `{key, revision, document}`, its `id` the revision.
/// The event `lost` ends it: the store was lost, and the caller asks again.
async fn events(
    State(table): Shared,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let editor = editor(&table)?;
    let view = editor.table(None).await.map_err(failed)?;
    let prefix = editor.layout().table();
    let length = prefix.len();
    let range = Range::Prefix(prefix);
    let watch = editor.store().watch(range, view.revision + 1).await;
    let watch = watch.map_err(|error| failed(error.into()))?;
    let begin = (Some(watch), std::collections::VecDeque::<Event>::new());
    let events = stream::unfold(begin, move |(watch, mut waiting)| async move {
        if let Some(event) = waiting.pop_front() {
            return Some((Ok(event), (watch, waiting)));
        }
        let mut watch = watch?;
        loop {
            match watch.next().await {
                Ok(mizan_store::Message::Batch(batch)) => {
                    let events = batch.events.iter();
                    waiting.extend(events.map(|it| told(it, batch.revision, length)));
                    if let Some(event) = waiting.pop_front() {
                        return Some((Ok(event), (Some(watch), waiting)));
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    let event = Event::default().event("lost").data(error.to_string());
                    return Some((Ok(event), (None, waiting)));
                }
            }
        }
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn told(event: &mizan_store::Event, revision: u64, prefix: usize) -> Event {
    let document = match event {
        mizan_store::Event::Put(entry) => serde_json::from_slice(&entry.value).ok(),
        mizan_store::Event::Delete(_) => None,
    };
    let key = event.key();
    let view = ObjectView {
        key: String::from_utf8_lossy(key.get(prefix..).unwrap_or_default()).into_owned(),
        revision,
        document: document.unwrap_or(Value::Null),
    };
    let data = serde_json::to_string(&view).unwrap_or_default();
    Event::default().id(revision.to_string()).data(data)
}
