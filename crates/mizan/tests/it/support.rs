//! What the tests are written with.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`mizan`] | a running `mizan serve`: its ports, its log, signals to it, its end |
//! | [`backend`] | a scripted HTTP/1.1 backend in this process |
//! | [`process`] | a backend in a process of its own, to be killed or stopped for real |
//! | [`fault_proxy`] | a TCP relay that cuts, stalls, resets, delays, drips or goes half-open on command |
//! | [`raw`] | a backend of bytes, whatever they mean |
//! | [`dns`] | a DNS server whose answers change |
//! | [`datagrams`] | a backend and a client of UDP |
//! | [`client`] | one client connection: bytes out, one parsed response in |
//! | [`load`] | many clients for a while, and the fate of each request |
//! | [`wire`] | reading HTTP/1.1 from a socket, for both sides |
//! | [`h2_client`] | a client of HTTP/2, and where all of HTTP/2 runs |
//! | [`h2_backend`] | a scripted backend of HTTP/2 |
//! | [`frames`] | HTTP/2 frame by frame, for clients that misbehave |
//! | [`pairs`] | four ways to ask and four kinds of backends at once |
//! | [`websocket`] | WebSockets by hand: frames, a client, backends that echo |
//! | [`tls`] | certificates, and relays that put TLS around either side |

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod datagrams;
pub(crate) mod dns;
pub(crate) mod etcd;
pub(crate) mod fault_proxy;
pub(crate) mod frames;
pub(crate) mod h2_backend;
pub(crate) mod h2_client;
pub(crate) mod load;
pub(crate) mod mizan;
pub(crate) mod pairs;
pub(crate) mod pki;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod tls;
pub(crate) mod websocket;
pub(crate) mod wire;

pub(crate) use backend::{Backend, Exchange, Next};
pub(crate) use client::Client;
pub(crate) use datagrams::{LONGEST, UdpBackend, UdpClient, named};
pub(crate) use dns::{DnsServer, Outage, Service};
pub(crate) use fault_proxy::{Fault, FaultProxy};
pub(crate) use h2_backend::{Call, H2Backend};
pub(crate) use h2_client::{Ask, H2Client, run};
pub(crate) use load::{Fate, Load, Plan};
pub(crate) use mizan::{Mizan, config, full_pipe, pass, pool_of};
pub(crate) use pairs::{KINDS, Pairs};
pub(crate) use pki::{Pki, ask_secured};
pub(crate) use process::ProcessBackend;
pub(crate) use raw::RawBackend;
pub(crate) use tls::{Authority, Relay};
pub(crate) use websocket::{Frame, WebSocket};
pub(crate) use wire::How;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long anything may take that takes no time unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Time since the first call in this process.
pub(crate) fn now() -> Duration {
    ::mizan::clock::now().saturating_since(mizan_core::time::Instant::default())
}

/// Waits until `condition` holds; panics with `what` if it does not within `deadline`.
#[track_caller]
pub(crate) fn eventually(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = now() + deadline;
    while !condition() {
        assert!(now() < end, "not within {deadline:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A flag that ends waits: whatever is paced waits on it, so that nothing outlives its test.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Ends all waits, now and later.
    pub(crate) fn stop(&self) {
        *locked(&self.stopped) = true;
        self.changed.notify_all();
    }

    /// Whether [`Stop::stop`] was called.
    pub(crate) fn is_stopped(&self) -> bool {
        *locked(&self.stopped)
    }

    /// Lets `pause` pass, or less if stopped; says whether to go on.
    pub(crate) fn pace(&self, pause: Duration) -> bool {
        let stopped = locked(&self.stopped);
        let waited = self
            .changed
            .wait_timeout_while(stopped, pause, |stopped| !*stopped);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Held by tests that load the machine or measure time, so that they do not disturb each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    locked(&ALONE)
}

/// A test that failed has poisoned its locks; the others need not fail with it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
