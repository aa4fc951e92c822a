//! What the API does with the store's table.

use super::{Answer, Operation, schema};
use crate::admin::table::{BoostRequest, BoostSet, EditRequest, Reason};
use crate::control::editor::{BoostView, EditView, Edited, ObjectView, TableView};
use serde_json::{Value, json};

const NO_STORE: (&str, &str) = ("409", "This instance has no store.");
const CHANGED: (&str, &str) = (
    "412",
    "It has changed since you looked: `conflicts` has both versions, where they differ, and who changed it.",
);
const REJECTED: (&str, &str) = (
    "422",
    "What it would leave could not come into force: `rejected` says why.",
);
const AWAY: (&str, &str) = ("503", "The store cannot be reached: nothing was done.");
const UNKNOWN: (&str, &str) = (
    "504",
    "The store did not say whether it was done, and it was looked for in vain.",
);
const NOT_THERE: (&str, &str) = ("404", "There is no such thing, or no longer.");

const OF_A_READ: &[(&str, &str)] = &[NOT_THERE, NO_STORE, AWAY];
const OF_AN_EDIT: &[(&str, &str)] = &[NOT_THERE, NO_STORE, CHANGED, REJECTED, AWAY, UNKNOWN];

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: "get",
        path: "/v1/objects",
        id: "objects",
        summary: "The store's table, at one revision: the `ETag`.",
        body: None,
        answer: Answer::Json(schema::<TableView>),
        errors: OF_A_READ,
    },
    Operation {
        method: "get",
        path: "/v1/objects/{key}",
        id: "object",
        summary: "One object by its key, whose slashes stand as they are. The `ETag` is its revision.",
        body: None,
        answer: Answer::Json(schema::<ObjectView>),
        errors: OF_A_READ,
    },
    Operation {
        method: "put",
        path: "/v1/objects/{key}",
        id: "put_object",
        summary: "Puts an object: an edit of one key. The body is its document.",
        body: Some(document),
        answer: Answer::Json(schema::<Edited>),
        errors: OF_AN_EDIT,
    },
    Operation {
        method: "delete",
        path: "/v1/objects/{key}",
        id: "delete_object",
        summary: "Takes an object away: an edit of one key.",
        body: None,
        answer: Answer::Json(schema::<Edited>),
        errors: OF_AN_EDIT,
    },
    Operation {
        method: "get",
        path: "/v1/edits",
        id: "edits",
        summary: "The edits that are written down, newest first.",
        body: None,
        answer: Answer::Json(schema::<Vec<EditView>>),
        errors: OF_A_READ,
    },
    Operation {
        method: "post",
        path: "/v1/edits",
        id: "edit",
        summary: "Edits the table, whole or not at all. Its author is the caller as they are known.",
        body: Some(schema::<EditRequest>),
        answer: Answer::Json(schema::<Edited>),
        errors: OF_AN_EDIT,
    },
    Operation {
        method: "post",
        path: "/v1/edits/{edit}/rollback",
        id: "rollback",
        summary: "Takes an edit back, by its name or its revision: a new edit.",
        body: Some(schema::<Reason>),
        answer: Answer::Json(schema::<Edited>),
        errors: OF_AN_EDIT,
    },
    Operation {
        method: "get",
        path: "/v1/boosts",
        id: "boosts",
        summary: "All boosts that stand in the store, those that have ended too.",
        body: None,
        answer: Answer::Json(schema::<Vec<BoostView>>),
        errors: OF_A_READ,
    },
    Operation {
        method: "post",
        path: "/v1/boosts",
        id: "boost",
        summary: "Boosts a pool for a while, and says what shares that changes.",
        body: Some(schema::<BoostRequest>),
        answer: Answer::Json(schema::<BoostSet>),
        errors: OF_AN_EDIT,
    },
    Operation {
        method: "delete",
        path: "/v1/boosts/{id}",
        id: "end_boost",
        summary: "Ends a boost now.",
        body: None,
        answer: Answer::Json(schema::<Edited>),
        errors: OF_AN_EDIT,
    },
    Operation {
        method: "get",
        path: "/v1/events",
        id: "events",
        summary: "Changes of the table as server-sent events, from the next one on: `{key, revision, document}`, a null \
                  document where the object is gone. The event `lost` ends them: ask again, from the last `id`.",
        body: None,
        answer: Answer::Text("text/event-stream"),
        errors: &[
            NOT_THERE,
            NO_STORE,
            (
                "503",
                "The store cannot be reached, or too many follow it here.",
            ),
        ],
    },
];

fn document(_: &mut schemars::SchemaGenerator) -> Value {
    json!({ "type": "object" })
}

/// What an operation takes beside its path and its body.
pub(super) fn parameters(method: &str, path: &str) -> Vec<Value> {
    let given = |place: &str, name: &str, kind: &str, description: &str| json!({ "name": name, "in": place, "description": description, "schema": { "type": kind } });
    match (method, path) {
        ("get", "/v1/objects" | "/v1/objects/{key}") => {
            vec![given(
                "query",
                "at",
                "integer",
                "As it stood at this revision.",
            )]
        }
        ("put" | "delete", "/v1/objects/{key}") => vec![
            given(
                "header",
                "If-Match",
                "string",
                "The revision that it must stand at, as its `ETag`.",
            ),
            given(
                "header",
                "If-None-Match",
                "string",
                "`*`: it must not be there yet.",
            ),
        ],
        ("get", "/v1/edits") => vec![
            given("query", "count", "integer", "No more than so many."),
            given(
                "query",
                "key",
                "string",
                "Of this object, or what stands below this part of a key.",
            ),
        ],
        ("get", "/v1/events") => vec![given(
            "header",
            "Last-Event-ID",
            "integer",
            "From the revision behind this one on.",
        )],
        _ => Vec::new(),
    }
}
