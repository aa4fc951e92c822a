//! The store's table in the API: read, edited, its history, boosts, and what changes as it does.
//!
//! The command line speaks with these very paths whether an instance answers them or, with `--store`, its own process does.

mod events;
#[cfg(test)]
mod tests;

use super::view::{ApiError, RejectedView};
use crate::control::editor::{
    BoostView, EditFailed, EditView, Edited, Editor, ObjectView, TableView, Wanted,
};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Json, Router};
use mizan_routing::edit::{Change, EditError};
use mizan_store::{Denial, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

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

/// Who edits the table, if there is one, and places for those who follow it.
#[derive(Clone)]
struct Table {
    editor: Option<Arc<Editor>>,
    held_back: HeldBack,
    watches: Arc<Semaphore>,
}

/// Says why the store's table is not in force here; empty: it is.
pub type HeldBack = Arc<dyn Fn() -> String + Send + Sync>;

type Shared = State<Table>;

/// The paths; `editor` is `None` where there is no store. `held_back` is asked before each edit.
pub fn routes<S: Clone + Send + Sync + 'static>(
    editor: Option<Arc<Editor>>,
    held_back: HeldBack,
) -> Router<S> {
    let watches = Arc::new(Semaphore::new(events::WATCHES_MAX));
    Router::new()
        .route("/v1/objects", get(objects))
        .route("/v1/objects/{*key}", get(object).put(put).delete(remove))
        .route("/v1/edits", get(history).post(edit))
        .route("/v1/edits/{edit}/rollback", post(rollback))
        .route("/v1/boosts", get(boosts).post(boost))
        .route("/v1/boosts/{id}", delete(end_boost))
        .route("/v1/events", get(events::events))
        .layer(DefaultBodyLimit::max(EDIT_BYTES_MAX))
        .with_state(Table {
            editor,
            held_back,
            watches,
        })
}

fn editor(table: &Table) -> Result<&Editor, ApiError> {
    table.editor.as_deref().ok_or_else(|| {
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

/// What a query asks for, by its names; nothing but `known` ones.
fn query<'u, const N: usize>(
    uri: &'u Uri,
    known: [&str; N],
) -> Result<[Option<&'u str>; N], ApiError> {
    let mut found = [None; N];
    let parts = uri.query().into_iter().flat_map(|query| query.split('&'));
    for part in parts.filter(|part| !part.is_empty()) {
        let place = part.split_once('=').and_then(|(name, value)| {
            let at = known.iter().position(|known| *known == name)?;
            Some((at, value))
        });
        let Some((at, value)) = place else {
            let message = format!("only {} can be asked for here", known.join(", "));
            return Err(bad("bad_query", message, uri.path()));
        };
        found[at] = Some(value);
    }
    Ok(found)
}

/// A number that a query asks for.
fn number<T: std::str::FromStr>(value: Option<&str>, name: &str) -> Result<Option<T>, ApiError> {
    let wrong = |text: &str| bad("bad_query", format!("`{name}={text}` is no number"), name);
    value
        .map(|text| text.parse().map_err(|_| wrong(text)))
        .transpose()
}

/// The revision that `?at=` names.
fn at(uri: &Uri) -> Result<Option<u64>, ApiError> {
    let [at] = query(uri, ["at"])?;
    number(at, "at")
}

fn tag(revision: u64) -> [(header::HeaderName, HeaderValue); 1] {
    let tag = HeaderValue::from_str(&format!("\"{revision}\""));
    [(
        header::ETAG,
        tag.unwrap_or_else(|_| HeaderValue::from_static("\"0\"")),
    )]
}

async fn objects(State(table): Shared, uri: Uri) -> Result<Response, ApiError> {
    let editor = editor(&table)?;
    let view = editor.table(at(&uri)?).await.map_err(failed)?;
    Ok((tag(view.revision), Json::<TableView>(view)).into_response())
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
    Ok((tag(found.revision), Json::<ObjectView>(found)).into_response())
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
    editor(&table)?;
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
    editor(&table)?;
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
    editor(&table)?;
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
    let held_back = (table.held_back)();
    let edited = editor.edit(&wanted).await.map_err(failed)?;
    let edited = told(edited, held_back);
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

/// With why what it was made to is not in force here, if it is not.
fn told(edited: Edited, held_back: String) -> Edited {
    if !held_back.is_empty() {
        tracing::warn!(
            edit = edited.edit,
            "an edit was made to a table that is not in force here: {held_back}"
        );
    }
    Edited {
        held_back,
        ..edited
    }
}

async fn history(State(table): Shared, uri: Uri) -> Result<Json<Vec<EditView>>, ApiError> {
    let editor = editor(&table)?;
    let [count, key] = query(&uri, ["count", "key"])?;
    let count = number(count, "count")?.unwrap_or(usize::MAX);
    // A key has no other letter that would have to be encoded.
    let key = key.map(|key| key.replace("%2F", "/").replace("%2f", "/"));
    let edits = editor.history(key.as_deref(), count).await;
    Ok(Json(edits.map_err(failed)?))
}

async fn rollback(
    State(table): Shared,
    Extension(author): Extension<Author>,
    Path(edit): Path<String>,
    reason: Result<Json<Reason>, JsonRejection>,
) -> Result<Json<Edited>, ApiError> {
    let editor = editor(&table)?;
    let Reason { why, force } = body(reason)?;
    let by = (author.0.clone(), why);
    let held_back = (table.held_back)();
    let edited = editor.rollback(&edit, by, force).await.map_err(failed)?;
    let edited = told(edited, held_back);
    tracing::info!(
        author = author.0,
        edit = edited.edit,
        revision = edited.revision,
        "edit {edit} was taken back"
    );
    Ok(Json(edited))
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
    let editor = editor(&table)?;
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
    let held_back = (table.held_back)();
    let (edit, boost) = editor
        .boost((&region, &pool), wanted, by)
        .await
        .map_err(failed)?;
    let edit = told(edit, held_back);
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
    let held_back = (table.held_back)();
    let edited = editor(&table)?.end_boost(&id, by).await;
    Ok(Json(told(edited.map_err(failed)?, held_back)))
}
