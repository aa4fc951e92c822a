//! What a decision looks at: who sends a request, and what routes and keys see of it.

use crate::h1::field;
use crate::h1::line::Line;
use crate::h1::request::RequestHead;
use crate::proxy::connection::Downstream;
use crate::proxy::headers::{self, Forwarding};
use crate::proxy::trust::Shown;
use crate::snapshot::route::RequestView;
use crate::snapshot::{HashKey, Listener};
use mizan_core::policy::stable_hash;
use std::borrow::Cow;
use std::net::IpAddr;

/// Who sends a head, and where to.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) struct Sender<'d> {
    pub(in crate::proxy) listener: &'d Listener,
    /// The peer, or whom its PROXY header names; `None` on a Unix socket.
    pub(in crate::proxy) peer: Option<IpAddr>,
    /// The same as text.
    pub(in crate::proxy) peer_text: &'d [u8],
    /// The peer's forwarding fields are believed.
    pub(in crate::proxy) trusted: bool,
    pub(in crate::proxy) secure: bool,
    pub(in crate::proxy) http2: bool,
    /// The certificate of the client, if there is one.
    pub(in crate::proxy) shown: Option<&'d Shown>,
    /// Stands for chance where a split goes by none of the request's keys; `None`: a new random number.
    pub(in crate::proxy) chance: Option<u64>,
    /// The place of the requests' region, whatever they say of it; `None`: as they say.
    pub(in crate::proxy) region: Option<u16>,
}

impl<'d> Sender<'d> {
    pub(in crate::proxy) fn of(down: &'d Downstream) -> Self {
        let peer = down.peer_address();
        Self {
            listener: &down.listener,
            peer,
            peer_text: down.peer_text(),
            trusted: down.listener.believes(peer),
            secure: down.secure,
            http2: down.http2,
            shown: down.shown.as_deref(),
            chance: None,
            region: None,
        }
    }

    /// The client's address under the trust rule.
    pub(in crate::proxy) fn client(&self, lines: &[Line<'_>]) -> Option<IpAddr> {
        let peer = self.peer?;
        Some(if self.listener.trusted_depth > 0 {
            headers::client_at(lines, self.listener.trusted_depth, peer)
        } else if self.trusted {
            headers::client_behind(lines, &self.listener.trusted, peer)
        } else {
            peer
        })
    }

    /// What the backend is told of the client, and routes see of it.
    pub(in crate::proxy) fn forwarding(&self) -> Forwarding<'d> {
        let tls = self.listener.tls.as_ref();
        let identity = self.shown.map(|shown| &shown.identity);
        Forwarding {
            peer: self.peer_text,
            trusted: self.trusted,
            secure: self.secure,
            http2: self.http2,
            reserved: &self.listener.reserved_headers,
            identity: tls
                .and_then(|tls| tls.client_auth.as_ref())
                .map(|auth| (&auth.headers, identity)),
            upgrade: None,
            random: (0, 0),
        }
    }
}

/// What routes and keys see of a request.
pub(in crate::proxy) struct View<'a, 'h, 'b> {
    pub(in crate::proxy) head: &'a RequestHead<'h, 'b>,
    pub(in crate::proxy) forwarding: &'a Forwarding<'a>,
    pub(in crate::proxy) host: &'a str,
    pub(in crate::proxy) path: &'a str,
    pub(in crate::proxy) query: Option<&'a [u8]>,
    pub(in crate::proxy) client: Option<IpAddr>,
}

impl RequestView for View<'_, '_, '_> {
    fn method(&self) -> &[u8] {
        self.head.method
    }

    fn host(&self) -> &str {
        self.host
    }

    fn path(&self) -> &str {
        self.path
    }

    fn query(&self) -> Option<&[u8]> {
        self.query
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        headers::seen(self.head, name, self.forwarding)
    }

    fn client(&self) -> Option<IpAddr> {
        self.client
    }
}

/// Path and query of a target.
pub(in crate::proxy) fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// The host that a request is for, without its port, in lower case and in `room`; a longer one than any name can be
/// matches nothing.
pub(in crate::proxy) fn lower_host<'r>(
    head: &RequestHead<'_, '_>,
    room: &'r mut [u8; 256],
) -> &'r str {
    let host = field::split_port(head.authority).0;
    let length = host.len().min(room.len());
    room[..length].copy_from_slice(&host[..length]);
    room[..length].make_ascii_lowercase();
    std::str::from_utf8(&room[..length]).unwrap_or("")
}

/// The hash of a request's key: the same in every instance and version. `None` if the request has no such key.
pub(in crate::proxy) fn hash_of(key: &HashKey, view: &View<'_, '_, '_>) -> Option<u64> {
    with_key(key, view, stable_hash)
}

/// What `look` makes of the value of a request's key, if the request has one; of an address its octets.
pub(in crate::proxy) fn with_key<T>(
    key: &HashKey,
    view: &View<'_, '_, '_>,
    look: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    match key {
        HashKey::ClientAddress => view.client.map(|client| with_octets(client, look)),
        HashKey::Header(name) => view.header(name).map(|value| look(&value)),
        HashKey::Path => Some(look(view.path.as_bytes())),
        HashKey::Query(name) => parameter(view.query?, b'&', name.as_bytes()).map(look),
        HashKey::Cookie(name) => {
            parameter(&view.header("cookie")?, b';', name.as_bytes()).map(look)
        }
    }
}

/// The hash of a client by its address.
pub(in crate::proxy) fn hash_of_address(address: IpAddr) -> u64 {
    with_octets(address, stable_hash)
}

fn with_octets<T>(address: IpAddr, look: impl FnOnce(&[u8]) -> T) -> T {
    match address {
        IpAddr::V4(address) => look(&address.octets()),
        IpAddr::V6(address) => look(&address.octets()),
    }
}

/// The value of the first `name=value` in `text`, parts parted by `separator`.
fn parameter<'t>(text: &'t [u8], separator: u8, name: &[u8]) -> Option<&'t [u8]> {
    text.split(|byte| *byte == separator)
        .map(field::trim)
        .find_map(|part| {
            part.strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(b"="))
        })
}
