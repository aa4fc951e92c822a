//! `[region]`, `[store]`, `[chain.NAME]`, `[settings.LANGUAGE]`.

use super::NetworkList;
use crate::config::text::{AbsolutePath, HeaderName, StoreAddress, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The region that this balancer serves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Region {
    /// Its name: pools, chains and boosts of the store are those of this region.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) name: String,
    /// The header of a request that names its region, where this balancer serves several. One that names none of the store's
    /// regions is as if it were not there.
    pub(in super::super) header: Option<Text<HeaderName>>,
    /// Networks of clients with the region of their requests, such as `"10.1.0.0/16" = "jp"`; the longest counts, and the
    /// header goes before it. Others are of this balancer's region.
    #[schemars(extend("propertyNames" = { "format": "network" }))]
    pub(in super::super) clients: BTreeMap<String, String>,
}

impl Default for Region {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            header: None,
            clients: BTreeMap::new(),
        }
    }
}

/// Where the routing table is that balancers share: pools, backends, chains, routes, settings and boosts beside those of
/// this file. Unset: there is only this file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Store {
    /// `embedded:/var/lib/mizan/store` for one on this machine, `etcd://a:2379,b:2379` for one that a fleet shares
    /// (`etcds://` with TLS), `instance:/run/other/admin.sock` for that of another instance of this machine; `--store` goes
    /// before it. Read at start only.
    pub(in super::super) address: Option<Text<StoreAddress>>,
    /// Which of the tables in it. Read at start only.
    #[schemars(extend("format" = "name"))]
    pub(in super::super) namespace: String,
    /// TLS towards etcd. Read at start only.
    pub(in super::super) tls: Option<StoreTls>,
    /// Who we are to etcd, unless the client certificate says so. Read at start only.
    pub(in super::super) user: Option<String>,
    /// The file whose first line is the password, read whenever etcd asks for it. Read at start only.
    pub(in super::super) password_file: Option<Text<AbsolutePath>>,
    /// The folder where the last good table is kept, to start with when the store is away. Read at start only.
    pub(in super::super) last_good: Option<Text<AbsolutePath>>,
    /// Headers that settings of the store may become, by routes of files and of the store. Empty: none.
    pub(in super::super) headers: Vec<Text<HeaderName>>,
    /// Networks that backends of the store may be in, and those that `discover` brings. Empty: all.
    pub(in super::super) backend_networks: NetworkList,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            address: None,
            namespace: "default".to_owned(),
            tls: None,
            user: None,
            password_file: None,
            last_good: None,
            headers: Vec::new(),
            backend_networks: Vec::new(),
        }
    }
}

/// TLS towards etcd.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct StoreTls {
    /// File of the authorities that are trusted (PEM). Unset: the system's.
    pub(in super::super) roots: Option<Text<AbsolutePath>>,
    /// File of our certificate, with those that lead to the authority (PEM).
    pub(in super::super) cert: Option<Text<AbsolutePath>>,
    /// File of its key (PEM).
    pub(in super::super) key: Option<Text<AbsolutePath>>,
    /// The name that the members' certificates are for. Unset: each member's host.
    pub(in super::super) server_name: Option<String>,
}

/// Pools in the order in which they are asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["pools"]))]
pub(in super::super) struct Chain {
    /// The next one where those before have no backend that can be used, or none that a connection could be had to.
    pub(in super::super) pools: Vec<String>,
}
