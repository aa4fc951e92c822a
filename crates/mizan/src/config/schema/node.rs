//! `[node]`, `[dns]`.

use crate::config::text::Text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Where this balancer stands among others. The same on all of them but for `name`, `zone` and `index`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Node {
    /// What this balancer is called among others that share a store. Unset: its machine's name. Read at start only.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) name: Option<String>,
    /// The zone that this balancer is in; backends of the same `zone` are preferred. Unset: zones do not count.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) zone: Option<String>,
    /// Which of the balancers in front of the same backends this is, from 0; for pools with `subset_size`.
    #[schemars(range(min = 0, max = 9_999))]
    pub(in super::super) index: Option<u32>,
    /// How many such balancers there are.
    #[schemars(range(min = 1, max = 10_000))]
    pub(in super::super) of: Option<u32>,
}

/// Who is asked what host names of backends stand for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Dns {
    /// Addresses of DNS servers, asked in place of those of `/etc/resolv.conf`; its search list and `/etc/hosts` count all the
    /// same. Empty: the system's.
    #[schemars(length(max = 8))]
    pub(in super::super) servers: Vec<Text<SocketAddr>>,
}
