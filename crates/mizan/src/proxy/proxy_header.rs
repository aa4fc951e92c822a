//! PROXY headers: the client's address from a balancer in front, and towards backends.
//!
//! A header is looked at in the socket's queue and only then taken out of it, to the byte: what follows, TLS or HTTP,
//! finds the connection as if there had been none.

use super::connection::Downstream;
use super::worker::Worker;
use crate::proxy_protocol::{HEADER_BYTES_MAX, HeaderError, Peers, parse, write_v1, write_v2};
use crate::snapshot::ProxyVersion;
use crate::telemetry::cause::ConnectionRefusal;
use crate::telemetry::logging::OncePerSecond;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Why a connection that must begin with a header is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// It breaks a rule.
    Header(HeaderError),
    /// It did not come in time.
    TimedOut,
    /// The peer ended before it was whole. A connection without a byte is somebody's probe.
    Ended { is_begun: bool },
    /// The address in it may not connect.
    Network,
}

/// Reads the header that this connection must begin with; the client's address is the one in it from then on. `false`:
/// the connection is refused, and counted so.
pub(super) async fn read(down: &mut Downstream, worker: &Rc<Worker>) -> bool {
    let timeout = match &down.listener.proxy_header {
        Some(header) => header.timeout,
        None => Duration::ZERO,
    };
    down.timer.set(timeout);
    let refused = match take(down).await {
        Ok(peers) => {
            down.speaks_for(peers);
            let named = matches!(peers, Peers::Known { .. });
            if !named || down.listener.networks.permits(down.peer_address()) {
                return true;
            }
            Refused::Network
        }
        Err(refused) => refused,
    };
    refuse(down, worker, refused);
    false
}

/// Takes the header off the socket.
async fn take(down: &mut Downstream) -> Result<Peers, Refused> {
    let mut bytes = vec![0; HEADER_BYTES_MAX];
    let mut taken = 0;
    loop {
        let seen = see(down, &mut bytes[taken..]).await?;
        if seen == 0 {
            let is_begun = taken > 0;
            return Err(Refused::Ended { is_begun });
        }
        let found = parse(&bytes[..taken + seen]).map_err(Refused::Header)?;
        // While a header is not whole, all that has come belongs to it.
        let upto = found.map_or(taken + seen, |header| header.length);
        discard(down, upto - taken)?;
        match found {
            Some(header) => return Ok(header.peers),
            None => taken = upto,
        }
    }
}

/// Copies what lies in the socket's queue into `room`, and leaves it there.
async fn see(down: &mut Downstream, room: &mut [u8]) -> Result<usize, Refused> {
    std::future::poll_fn(|cx| {
        let Some(socket) = down.transport.tcp_below() else {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        };
        match socket.poll_peek(cx, room) {
            Poll::Pending if down.timer.poll_expired(cx) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            other => other,
        }
    })
    .await
    .map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => Refused::TimedOut,
        _ => Refused::Ended { is_begun: true },
    })
}

/// Takes `count` bytes, which were seen, out of the queue.
fn discard(down: &mut Downstream, count: usize) -> Result<(), Refused> {
    let socket = down.transport.tcp_below();
    match socket.map(|socket| socket.discard(count)) {
        Some(Ok(())) => Ok(()),
        _ => Err(Refused::Ended { is_begun: true }),
    }
}

fn refuse(down: &mut Downstream, worker: &Rc<Worker>, refused: Refused) {
    static SAID: OncePerSecond = OncePerSecond::new();
    let cause = match refused {
        Refused::Network => ConnectionRefusal::Network,
        Refused::Ended { is_begun: false } => return,
        _ => ConnectionRefusal::ProxyProtocol,
    };
    down.transport.reset_on_close();
    let in_force = worker.in_force();
    let index = in_force.series.listener_index(&down.listener.name);
    in_force.series.listener(index).refused(cause);
    let why = match refused {
        Refused::Header(error) => error.to_string(),
        Refused::TimedOut => "it did not come in time".to_owned(),
        Refused::Ended { .. } => "the connection ended within it".to_owned(),
        Refused::Network => return,
    };
    if let Some(silent) = SAID.allow(crate::clock::now()) {
        let peer = down.peer().map(tracing::field::display);
        tracing::warn!(
            listener = &*down.listener.name,
            peer,
            why,
            silent,
            "no PROXY header"
        );
    }
}

/// The header that begins a connection to a backend in the name of a client; empty without one.
pub(super) fn written(version: Option<ProxyVersion>, down: &Downstream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let peers = || match (down.peer(), down.destination()) {
        (Some(source), Some(destination)) => Peers::Known {
            source,
            destination,
        },
        _ => Peers::Unknown,
    };
    match version {
        None => {}
        Some(ProxyVersion::V1) => write_v1(&mut bytes, &peers()),
        Some(ProxyVersion::V2) => write_v2(&mut bytes, &peers()),
    }
    bytes
}
