//! What comes to a pool: relations about requests say nothing where none is read.

use crate::config::rules;
use crate::config::schema::{File, ListenerKind, Pool, Protocol};
use std::collections::BTreeSet;

/// What comes to a pool; the first that fits. One that nothing names yet is taken for one of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    Requests,
    Connections,
    Datagrams,
}

/// Who names the pools of a file.
pub(super) struct Traffics<'f> {
    by_routes: BTreeSet<&'f str>,
    by_tcp: BTreeSet<&'f str>,
    by_udp: BTreeSet<&'f str>,
}

impl<'f> Traffics<'f> {
    pub(super) fn of(file: &'f File) -> Self {
        Self {
            by_routes: rules::pools_of_routes(file),
            by_tcp: rules::pools(file, &[ListenerKind::Tcp]),
            by_udp: rules::pools(file, &[ListenerKind::Udp]),
        }
    }

    pub(super) fn to(&self, pool: &str) -> Traffic {
        match () {
            () if self.by_routes.contains(pool) => Traffic::Requests,
            () if self.by_tcp.contains(pool) => Traffic::Connections,
            () if self.by_udp.contains(pool) => Traffic::Datagrams,
            () => Traffic::Requests,
        }
    }
}

/// Whether a pool that gets requests keeps its connections for further ones.
pub(super) fn keeps_connections(pool: &Pool) -> bool {
    let keepalive = &pool.keepalive;
    let has_room = keepalive.idle_max > 0 || pool.protocol == Protocol::Http2;
    has_room && pool.proxy_protocol.is_none() && !keepalive.idle_timeout.value.0.is_zero()
}
