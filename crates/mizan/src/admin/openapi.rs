//! The API's description (OpenAPI 3.1), made from the types of [`super::view`].
//!
//! `mizan generate openapi` prints it; `docs/openapi.json` is compared with it by a test.

mod table;

use super::explain::{ExplainRequest, ExplainView};
use super::view::{
    ApiError, BackendView, ConfigView, PoolView, ReloadReport, RouteView, StatusView,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// One operation.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// What it is sent.
    body: Option<fn(&mut SchemaGenerator) -> Value>,
    answer: Answer,
    /// Statuses beside 200 that it has of its own.
    errors: &'static [(&'static str, &'static str)],
}

/// What an operation answers with.
enum Answer {
    Json(fn(&mut SchemaGenerator) -> Value),
    Text(&'static str),
    Any,
}

const UNKNOWN_POOL: (&str, &str) = ("404", "There is no such pool.");
const CHANGED: (&str, &str) = (
    "412",
    "`If-Match` names another generation than the one in force.",
);

const OPERATIONS: &[Operation] = &[
    Operation {
        method: "get",
        path: "/v1/status",
        id: "status",
        summary: "What runs: phase, generation, listeners, pools in brief, the last reload.",
        body: None,
        answer: Answer::Json(schema::<StatusView>),
        errors: &[],
    },
    Operation {
        method: "get",
        path: "/v1/pools",
        id: "pools",
        summary: "All pools with their backends: state and why.",
        body: None,
        answer: Answer::Json(schema::<Vec<PoolView>>),
        errors: &[],
    },
    Operation {
        method: "get",
        path: "/v1/pools/{pool}",
        id: "pool",
        summary: "One pool with its backends.",
        body: None,
        answer: Answer::Json(schema::<PoolView>),
        errors: &[UNKNOWN_POOL],
    },
    Operation {
        method: "post",
        path: "/v1/pools/{pool}/backends/{backend}/{want}",
        id: "set_admin",
        summary: "Drains a backend (no new requests), puts it in maintenance, or takes that back. \
                  Holds until it is taken back or Mizan restarts. Drained is `in_flight` 0.",
        body: None,
        answer: Answer::Json(schema::<BackendView>),
        errors: &[("404", "There is no such pool or backend."), CHANGED],
    },
    Operation {
        method: "post",
        path: "/v1/explain",
        id: "explain",
        summary: "What would become of a request: route, near misses, pool, whom it picks and why. \
                  Nothing is sent, counted or changed.",
        body: Some(schema::<ExplainRequest>),
        answer: Answer::Json(schema::<ExplainView>),
        errors: &[(
            "400",
            "No client could send such a request, or there is no such listener or pool.",
        )],
    },
    Operation {
        method: "post",
        path: "/v1/reload",
        id: "reload",
        summary: "Reads the configuration again. A refused one changes nothing, and the answer says why.",
        body: None,
        answer: Answer::Json(schema::<ReloadReport>),
        errors: &[CHANGED],
    },
    Operation {
        method: "get",
        path: "/v1/config",
        id: "config",
        summary: "The text of the configuration in force.",
        body: None,
        answer: Answer::Json(schema::<ConfigView>),
        errors: &[],
    },
    Operation {
        method: "get",
        path: "/v1/routes",
        id: "routes",
        summary: "Routes in matching order; one with several hosts is there once for each.",
        body: None,
        answer: Answer::Json(schema::<Vec<RouteView>>),
        errors: &[],
    },
    Operation {
        method: "get",
        path: "/v1/openapi.json",
        id: "openapi",
        summary: "This description.",
        body: None,
        answer: Answer::Any,
        errors: &[],
    },
    Operation {
        method: "get",
        path: "/livez",
        id: "livez",
        summary: "Whether the process runs. On the health address.",
        body: None,
        answer: Answer::Text("text/plain"),
        errors: &[],
    },
    Operation {
        method: "get",
        path: "/readyz",
        id: "readyz",
        summary: "Whether this process takes new requests. Looks at nothing else. On the health address.",
        body: None,
        answer: Answer::Text("text/plain"),
        errors: &[("503", "It is starting, draining or stopping.")],
    },
    Operation {
        method: "get",
        path: "/metrics",
        id: "metrics",
        summary: "Metrics in Prometheus' text format; see docs/metrics.md. On the metrics address.",
        body: None,
        answer: Answer::Text("text/plain"),
        errors: &[("503", "Too many connections read metrics already.")],
    },
];

/// The description.
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let error = schema::<ApiError>(&mut generator);
    let mut paths = Map::new();
    for operation in all() {
        let described = operation.describe(&error, &mut generator);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Mizan admin API",
            "version": "1",
            "description": "On a Unix socket (mode 0600), or on TCP with a bearer token and a `Host` of this machine. \
                            A read's `ETag` is the generation of the configuration in force; \
                            of the store's table, a revision. The store itself, at `/v1/store` on the Unix socket \
                            alone, is not described here: it is between processes of one machine and may change \
                            with the version (docs/store-socket.md).",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }, {}],
    })
}

/// Method and path of each operation.
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str)> {
    all().map(|operation| (operation.method, operation.path))
}

fn all() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().chain(table::OPERATIONS)
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().into()
}

impl Operation {
    fn describe(&self, error: &Value, generator: &mut SchemaGenerator) -> Value {
        let content = match &self.answer {
            Answer::Json(schema) => json!({ "application/json": { "schema": schema(generator) } }),
            Answer::Text(kind) => json!({ *kind: { "schema": { "type": "string" } } }),
            Answer::Any => json!({ "application/json": {} }),
        };
        let mut responses = json!({ "200": { "description": "Done.", "content": content } });
        for (status, description) in self.errors {
            responses[*status] = json!({ "description": description });
        }
        if self.path.starts_with("/v1/") {
            responses["default"] = json!({
                "description": "An error.",
                "content": { "application/json": { "schema": error } },
            });
        }
        let mut described =
            json!({ "operationId": self.id, "summary": self.summary, "responses": responses });
        if let Some(schema) = self.body {
            described["requestBody"] = json!({
                "required": true,
                "content": { "application/json": { "schema": schema(generator) } },
            });
        }
        let parameters: Vec<Value> = self.parameters();
        if !parameters.is_empty() {
            described["parameters"] = parameters.into();
        }
        described
    }

    fn parameters(&self) -> Vec<Value> {
        let names = self
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let mut parameters: Vec<Value> = names
            .map(|name| {
                let schema = match name {
                    "want" => {
                        json!({ "type": "string", "enum": ["drain", "undrain", "maintenance"] })
                    }
                    _ => json!({ "type": "string" }),
                };
                json!({ "name": name, "in": "path", "required": true, "schema": schema })
            })
            .collect();
        parameters.extend(table::parameters(self.method, self.path));
        // What is sent a question changes nothing.
        if self.method == "post" && self.body.is_none() {
            parameters.push(json!({
                "name": "If-Match",
                "in": "header",
                "description": "The generation that must be in force, as its `ETag`.",
                "schema": { "type": "string" },
            }));
        }
        parameters
    }
}
