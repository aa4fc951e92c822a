//! `discover` in `[pool.NAME]`.

use crate::config::text::{ServiceName, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A place that backends are learned from while Mizan runs. One of `srv`, `file` and `instances` says which.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Discover {
    /// A service in DNS: its SRV records are the backends, with port, weight and priority, and are asked for again when their
    /// TTL ends.
    pub(in super::super) srv: Option<Text<ServiceName>>,
    /// A file with a list of backends, as `backends` has them: TOML if its name ends so, else JSON. Relative to this file. It is
    /// read again when it changes; what is wrong with it is told, and what it said last stays.
    #[schemars(length(min = 1))]
    pub(in super::super) file: Option<String>,
    /// Instances that say of themselves in the store, under this name, where they are. One whose lease has ended stays as long as
    /// its probe passes; see docs/discovery.md.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) instances: Option<String>,
    /// The version of those that say none.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) version: Option<String>,
    /// The zone of those that say none.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) zone: Option<String>,
    /// Requests in flight at once at each of those that say nothing of it; unset: unlimited.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in super::super) in_flight_max: Option<u32>,
}
