//! `[[route]]`.

use super::{NetworkList, OneOrMany};
use crate::config::text::{
    BytesOrUnlimited, ContentType, HeaderName, HeaderValue, Location, Method, PathText, Pattern,
    Text, Time,
};
use crate::snapshot::HashKey;
use crate::snapshot::route::HostMatch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a request must look like (all that is given must hold), and what is done with it: one of
/// `pool`, `chain`, `split`, `redirect` and `respond`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Route {
    /// Its name in logs and metrics; unset: `route[N]`.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) name: Option<String>,
    /// Listeners it holds on; unset: all.
    pub(in super::super) listener: OneOrMany<String>,
    /// Hosts, exact or `*.example.org` (any name below it), without port; unset: all. The host decides before
    /// the path: routes without it are asked last.
    pub(in super::super) host: OneOrMany<Text<HostMatch>>,
    /// The whole path.
    pub(in super::super) path: Option<Text<PathText>>,
    /// Whole segments at the path's front: `/api` matches `/api` and `/api/x`, not `/apix`; a slash at its end makes no difference.
    pub(in super::super) prefix: Option<Text<PathText>>,
    /// A regular expression for the whole path; looked at after all paths and prefixes of the same host but `/`.
    pub(in super::super) regex: Option<Text<Pattern>>,
    /// Methods; unset: all.
    pub(in super::super) method: OneOrMany<Text<Method>>,
    /// Request headers by name: their value, `{ regex = "…" }` for the whole value, or `true` for "is there". They are
    /// seen as a backend gets them, before this route's edits: no claim of a client's that would not reach one.
    #[schemars(extend("propertyNames" = { "format": "header_name" }))]
    pub(in super::super) header: BTreeMap<String, ValueMatch>,
    /// Query parameters by name, as they are sent (not decoded): value, `{ regex = "…" }`, or `true`.
    pub(in super::super) query: BTreeMap<String, ValueMatch>,
    /// Networks of the client; unset: all.
    pub(in super::super) client: OneOrMany<Text<ipnet::IpNet>>,
    /// Networks that may use the route; others get 403. Empty: all.
    pub(in super::super) allow: NetworkList,
    /// Networks that may not: 403; looked at before `allow`.
    pub(in super::super) deny: NetworkList,
    /// Whether a path with an encoded slash, a backslash or a NUL is let through instead of answered 400.
    pub(in super::super) allow_odd_path: bool,
    /// Whether calls of gRPC-Web, as browsers make them, reach the backend as gRPC. For pools that speak HTTP/2.
    pub(in super::super) grpc_web: bool,
    /// The pool that gets the request.
    pub(in super::super) pool: Option<String>,
    /// The chain of pools that gets it, or the pool of that name where there is no such chain.
    pub(in super::super) chain: Option<String>,
    /// Several pools with weights.
    pub(in super::super) split: Option<Vec<SplitPart>>,
    /// Pools that stand in for it, or for a split's, in this order: the next one where those before have no backend that
    /// can be used, or none that a connection could be had to.
    pub(in super::super) fallback: Vec<String>,
    /// What makes a split stable: the same key goes to the same pool. Unset: at random.
    pub(in super::super) split_key: Option<Text<HashKey>>,
    /// Sends the client elsewhere.
    pub(in super::super) redirect: Option<Redirect>,
    /// Answers by itself.
    pub(in super::super) respond: Option<Respond>,
    /// Settings of the store that backends are offered, as headers: a header's name (one of `headers` in `[store]`) with a
    /// setting's, such as `{ x-tokenizer = "tokenizer" }`. What a client claims by such a header reaches no backend.
    #[schemars(extend("propertyNames" = { "format": "header_name" }))]
    pub(in super::super) settings: BTreeMap<String, String>,
    /// What says the language of a request, for `settings`: a tag, or a list as `Accept-Language` has it. Default:
    /// `header:accept-language`.
    pub(in super::super) language: Option<Text<HashKey>>,
    /// Edits of the request's headers on its way to the backend.
    pub(in super::super) request_headers: HeaderEdits,
    /// Edits of the answer's headers on its way to the client.
    pub(in super::super) response_headers: HeaderEdits,
    /// Rewrites the path on its way to the backend.
    pub(in super::super) rewrite: Option<Rewrite>,
    /// Overrides the pool's time-outs.
    pub(in super::super) timeouts: RouteTimeouts,
    /// Overrides the listener's largest request body; `unlimited` lifts it.
    pub(in super::super) body_max: Option<Text<BytesOrUnlimited>>,
    /// Bodies for answers that Mizan makes itself, by status: the body (HTML) or a table.
    #[schemars(extend("propertyNames" = { "format": "error_status" }))]
    pub(in super::super) error_pages: BTreeMap<String, ErrorPage>,
}

/// What a value must be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in super::super) enum ValueMatch {
    Present(bool),
    Exact(String),
    Regex(RegexMatch),
}

/// A regular expression for a whole value.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["regex"]))]
pub(in super::super) struct RegexMatch {
    /// The regular expression.
    pub(in super::super) regex: Option<Text<Pattern>>,
}

/// One pool of a split.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["pool", "weight"]))]
pub(in super::super) struct SplitPart {
    /// The pool.
    pub(in super::super) pool: Option<String>,
    /// Its share relative to the others'.
    #[schemars(range(min = 0, max = 65_535))]
    pub(in super::super) weight: Option<u32>,
}

/// Sends the client elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["location"]))]
pub(in super::super) struct Redirect {
    /// 301, 302, 303, 307 or 308.
    #[schemars(extend("enum" = [301, 302, 303, 307, 308]), range(min = 301, max = 308))]
    pub(in super::super) status: u16,
    /// Where to: `{scheme}`, `{host}` (without its port), `{port}` (with its `:`, or nothing), `{path}` and `{query}`
    /// (with its `?`, or nothing) stand for the request's.
    pub(in super::super) location: Option<Text<Location>>,
}

impl Default for Redirect {
    fn default() -> Self {
        Self {
            status: 308,
            location: None,
        }
    }
}

/// A fixed answer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Respond {
    /// Status.
    #[schemars(range(min = 200, max = 599))]
    pub(in super::super) status: u16,
    /// The body; `file:/path` reads it from a file.
    #[schemars(extend("x-file" = true))]
    pub(in super::super) body: String,
    /// Its media type.
    pub(in super::super) content_type: Text<ContentType>,
}

impl Default for Respond {
    fn default() -> Self {
        Self {
            status: 200,
            body: String::new(),
            content_type: Text::preset("text/plain; charset=utf-8"),
        }
    }
}

/// Edits of header fields, in this order. Fields that frame a message or belong to one connection
/// (`content-length`, `transfer-encoding`, `connection`, `te`, `trailer`, `upgrade`, `keep-alive`), and
/// `host`, cannot be edited.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct HeaderEdits {
    /// Taken away.
    pub(in super::super) remove: Vec<Text<HeaderName>>,
    /// Replaced, or added if missing.
    #[schemars(extend("propertyNames" = { "format": "header_name" }))]
    pub(in super::super) set: BTreeMap<String, Text<HeaderValue>>,
    /// Added beside what is there.
    #[schemars(extend("propertyNames" = { "format": "header_name" }))]
    pub(in super::super) add: BTreeMap<String, Text<HeaderValue>>,
}

/// Rewrites the path: either `prefix`, or `regex` and `to`. The query stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Rewrite {
    /// Replaces the route's `prefix`.
    pub(in super::super) prefix: Option<Text<PathText>>,
    /// Looked for in the path.
    pub(in super::super) regex: Option<Text<Pattern>>,
    /// What the first match becomes; `$1` or `${name}` stand for its groups (`$${name}` in this file), `${1}` for one with a letter or
    /// digit behind it. `$$` is a `$`.
    pub(in super::super) to: Option<String>,
}

/// Overrides of the pool's time-outs; what is unset stays the pool's.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct RouteTimeouts {
    /// The whole request.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) request: Option<Text<Time>>,
    /// From the request's last byte to the end of the response head.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) response_header: Option<Text<Time>>,
    /// Silence of the backend within a response body.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) response_idle: Option<Text<Time>>,
    /// One try, from its first byte sent to the end of the response head.
    #[schemars(extend("x-minimum" = "1ms", "x-maximum" = "24h", "x-zero" = "off"))]
    pub(in super::super) per_try: Option<Text<Time>>,
}

/// A page: its body alone, or a table.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(in super::super) enum ErrorPage {
    Body(#[schemars(extend("x-file" = true))] String),
    Full(ErrorPageTable),
}

/// A page with its media type.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["body"]))]
pub(in super::super) struct ErrorPageTable {
    /// The body; `file:/path` reads it from a file.
    #[schemars(extend("x-file" = true))]
    pub(in super::super) body: String,
    /// Its media type.
    pub(in super::super) content_type: Text<ContentType>,
}

impl Default for ErrorPageTable {
    fn default() -> Self {
        Self {
            body: String::new(),
            content_type: Text::preset("text/html; charset=utf-8"),
        }
    }
}
