//! Certificates, keys, roots and tickets: checked, told about, and made into what a handshake needs.
//!
//! The files were read with the configuration; here nothing is read. A certificate that has expired is a warning as long
//! as another one holds: it must not take what is well down with it.

mod client;
mod files;
mod server;
mod tickets;
mod verifier;

pub use tickets::TicketKeys;

use super::report::Cx;
use super::schema::{File, Listener, ListenerKind};
use super::tree::At;
use crate::certificate::Digest;
use crate::snapshot::{Bind, ClientTls, ServerTls, Snapshot};
use aws_lc_rs::digest::{Context, SHA256};
use rustls::crypto::{CryptoProvider, aws_lc_rs as crypto};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All TLS of a configuration. Where something is wrong with it, it is missing, and the report has an error.
pub(super) struct Tls {
    /// One for each listener, in the order of the file; `None`: plain.
    pub(super) listeners: Vec<Option<Arc<ServerTls>>>,
    /// By the name of the pool; plain ones are not there.
    pub(super) pools: BTreeMap<String, Arc<ClientTls>>,
    /// Headers that no client may set, on any listener.
    pub(super) reserved_headers: Arc<[Box<str>]>,
}

/// Tells everything that is wrong with certificates and keys, and makes what is right ready.
pub(super) fn compile(cx: &mut Cx<'_>, file: &File, previous: Option<&Snapshot>) -> Tls {
    let mut pools = BTreeMap::new();
    let list = At::ROOT.key("pool");
    for (name, pool) in &file.pool {
        let Some(from) = &pool.tls else { continue };
        let made = client::compile(cx, pool, from, &list.key(name).key("tls"));
        let before = previous.and_then(|previous| previous.pools.get(name.as_str())?.tls.as_ref());
        if let Some(made) = made {
            pools.insert(name.clone(), kept(made, before, |tls| tls.made_of));
        }
    }
    let listeners = listeners(cx, file, previous);
    Tls {
        reserved_headers: reserved_headers(&listeners),
        listeners,
        pools,
    }
}

fn listeners(
    cx: &mut Cx<'_>,
    file: &File,
    previous: Option<&Snapshot>,
) -> Vec<Option<Arc<ServerTls>>> {
    let list = At::ROOT.key("listener");
    let mut listeners = Vec::new();
    let (mut usable, mut first_expired) = (0, None);
    for (index, listener) in file.listener.iter().enumerate() {
        let Some(from) = &listener.tls else {
            listeners.push(None);
            continue;
        };
        let bind = listener.bind.as_ref().map(|bind| &bind.value);
        let before = bind.and_then(|bind| before(previous?, bind));
        let entry_at = list.index(index);
        let at = entry_at.key("tls");
        let alpn = alpn(listener);
        let made = server::compile(cx, from, alpn, &at, before.map(|tls| &**tls));
        if let Some(made) = &made {
            usable += made.usable;
            if made.usable == 0 {
                first_expired.get_or_insert(index);
            }
        }
        listeners.push(made.map(|made| kept(made.tls, before, |tls| tls.made_of)));
    }
    if let (0, Some(index)) = (usable, first_expired) {
        cx.error_with(
            &list.index(index).key("tls").key("certificates"),
            "expired",
            "no certificate of this configuration holds today: no client would accept one",
            "renew them, or set this machine's clock",
        );
    }
    listeners
}

/// What a listener offers its clients. Where TCP is handed through that is nothing: the backends may speak anything.
fn alpn(listener: &Listener) -> &'static [&'static str] {
    match (listener.kind, listener.http2) {
        (ListenerKind::Tcp | ListenerKind::Udp, _) => &[],
        (ListenerKind::Http, true) => &["h2", "http/1.1"],
        (ListenerKind::Http, false) => &["http/1.1"],
    }
}

/// The TLS of the listener that has that address now.
fn before<'s>(previous: &'s Snapshot, bind: &Bind) -> Option<&'s Arc<ServerTls>> {
    let listener = previous
        .listeners
        .iter()
        .find(|listener| listener.bind == *bind)?;
    listener.tls.as_ref()
}

/// What is in force, if `made` is the same: so sessions of clients, and with backends, outlive a reload.
fn kept<T>(made: T, before: Option<&Arc<T>>, made_of: fn(&T) -> Digest) -> Arc<T> {
    match before {
        Some(before) if made_of(before) == made_of(&made) => Arc::clone(before),
        _ => Arc::new(made),
    }
}

fn reserved_headers(listeners: &[Option<Arc<ServerTls>>]) -> Arc<[Box<str>]> {
    let auths = listeners
        .iter()
        .flatten()
        .filter_map(|tls| tls.client_auth.as_ref());
    let mut names: Vec<Box<str>> = auths
        .flat_map(|auth| auth.headers.names())
        .map(Box::from)
        .collect();
    names.sort();
    names.dedup();
    Arc::from(names)
}

/// The cryptography of aws-lc.
fn provider() -> CryptoProvider {
    crypto::default_provider()
}

/// Adds up what something is made of.
struct Made(Context);

impl Made {
    /// Of these settings.
    fn of(settings: &impl serde::Serialize) -> Self {
        let mut made = Self(Context::new(&SHA256));
        // Settings come from a file of strings and numbers: they can be written as such again.
        made.and(&serde_json::to_vec(settings).unwrap_or_default());
        made
    }

    /// And of this.
    fn and(&mut self, bytes: &[u8]) {
        self.0.update(&bytes.len().to_le_bytes());
        self.0.update(bytes);
    }

    fn digest(self) -> Digest {
        let mut out = Digest::default();
        out.copy_from_slice(self.0.finish().as_ref());
        out
    }
}

#[cfg(test)]
mod tests;
