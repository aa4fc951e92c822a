//! Counters, and the sets of them that go with one set of label values.

use crate::telemetry::cause::{Cause, ConnectionRefusal, DatagramDrop, Handshake, RetryCause};
use crate::telemetry::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A counter with one writer, so that counting needs no locked instruction. A second thread that
/// writes would lose counts. Any thread may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
    }

    /// Takes `count` away: for gauges. One worker's part may pass below zero, the sum does not.
    #[inline]
    pub fn sub(&self, count: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_sub(count),
            Ordering::Relaxed,
        );
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A cell for each worker, made when it first counts; on lines of its own, so that workers share none.
#[derive(Debug)]
pub(crate) struct Slots<T>(Box<[OnceLock<Box<Padded<T>>>]>);

#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

impl<T: Default> Slots<T> {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| OnceLock::new()).collect())
    }

    #[inline]
    pub(super) fn of(&self, worker: usize) -> &T {
        &self.0[worker].get_or_init(Box::default).0
    }

    /// The cells of the workers that have counted.
    pub(crate) fn made(&self) -> impl Iterator<Item = &T> {
        self.0
            .iter()
            .filter_map(|slot| slot.get().map(|cell| &cell.0))
    }
}

/// What is counted for a listener.
#[derive(Debug, Default)]
pub struct ListenerCells {
    /// Connections accepted and served.
    pub connections_accepted: Counter,
    /// Connections of those that have ended. The difference is what is open.
    pub connections_closed: Counter,
    pub(crate) refused: [Counter; ConnectionRefusal::COUNT],
    pub(crate) handshakes: [Counter; Handshake::COUNT],
    pub(crate) requests_started: Counter,
    pub(crate) requests_finished: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) duration: Histogram,
    pub(crate) datagrams_in: Counter,
    pub(crate) datagrams_out: Counter,
    pub(crate) datagrams_dropped: [Counter; DatagramDrop::COUNT],
}

impl ListenerCells {
    /// A request's head has been read.
    #[inline]
    pub fn started(&self) {
        self.requests_started.add(1);
    }

    /// A TLS handshake has ended.
    pub fn handshake(&self, how: Handshake) {
        self.handshakes[how as usize].add(1);
    }

    /// A datagram of this many bytes came from a client.
    #[inline]
    pub fn datagram_in(&self, bytes: usize) {
        self.datagrams_in.add(1);
        self.bytes_in.add(bytes as u64);
    }

    /// A datagram of this many bytes was sent to a client.
    #[inline]
    pub fn datagram_out(&self, bytes: usize) {
        self.datagrams_out.add(1);
        self.bytes_out.add(bytes as u64);
    }

    /// A datagram was dropped, whoever sent it.
    pub fn datagram_dropped(&self, why: DatagramDrop) {
        self.datagrams_dropped[why as usize].add(1);
    }

    /// A connection was not served.
    pub fn refused(&self, why: ConnectionRefusal) {
        self.refused[why as usize].add(1);
    }
}

/// What is counted for a (listener, route, pool, version): requests by class of status.
#[derive(Debug, Default)]
pub struct RequestCells {
    pub(crate) classes: [Counter; 6],
}

/// What is counted for a (pool, version).
#[derive(Debug, Default)]
pub struct PoolCells {
    /// From a backend's pick to the end of its response head, of each try that got one.
    pub latency: Histogram,
    /// Connections to backends opened.
    pub(crate) connections_opened: Counter,
    /// Requests sent on a connection that was used before.
    pub(crate) connections_reused: Counter,
    /// Connections to backends closed.
    pub(crate) connections_closed: Counter,
    /// Connections that wait for a request.
    pub(crate) connections_idle: Counter,
    pub(crate) retries: [Counter; RetryCause::COUNT],
    pub(crate) unreached: [Counter; Cause::COUNT],
    pub(crate) rescued: [Counter; Cause::COUNT],
    pub(crate) load_reports: Counter,
    pub(crate) bad_load_reports: Counter,
    /// By status code; the last is for codes that are none.
    pub(crate) grpc: [Counter; GRPC_CODES.len()],
}

/// The names of gRPC's status codes, in their order.
pub(crate) const GRPC_CODES: [&str; 18] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
    "OTHER",
];

impl PoolCells {
    /// A call of gRPC has ended with this status code.
    pub fn grpc_ended(&self, code: u32) {
        let at = usize::try_from(code).unwrap_or(usize::MAX);
        self.grpc[at.min(GRPC_CODES.len() - 1)].add(1);
    }
}

impl PoolCells {
    /// A backend gave an account of its load.
    pub fn load_report(&self) {
        self.load_reports.add(1);
    }

    /// A backend's account of its load could not be read.
    pub fn bad_load_report(&self) {
        self.bad_load_reports.add(1);
    }
}

impl PoolCells {
    /// A request is tried again.
    #[inline]
    pub fn retried(&self, cause: RetryCause) {
        self.retries[cause as usize].add(1);
    }

    /// A request reached nothing: once for each request, when it is given up.
    #[inline]
    pub fn unreached(&self, cause: Cause) {
        self.unreached[cause as usize].add(1);
    }

    /// A request that would have been unreached was saved by a retry.
    #[inline]
    pub fn rescued(&self, cause: Cause) {
        self.rescued[cause as usize].add(1);
    }
}

/// What is counted for a backend: counters only, since there may be 10,000.
#[derive(Debug, Default)]
pub struct BackendCells {
    /// Tries sent to it, or that failed on the way to it.
    pub requests: Counter,
    /// Tries that failed, and answers with a status of 500 or more.
    pub failures: Counter,
}

/// One worker's hold on a backend's counters.
#[derive(Debug)]
pub struct BackendCounter {
    pub(super) slots: Arc<Slots<BackendCells>>,
    pub(super) worker: usize,
}

impl std::ops::Deref for BackendCounter {
    type Target = BackendCells;

    #[inline]
    fn deref(&self) -> &BackendCells {
        self.slots.of(self.worker)
    }
}

/// A connection to a backend, counted as open while it lives and as idle while it rests. It stays with
/// the worker that opened it.
#[derive(Debug)]
pub struct OpenConnection {
    slots: Arc<Slots<PoolCells>>,
    /// Short, for an open WebSocket holds one of these.
    worker: u32,
    is_idle: bool,
}

impl OpenConnection {
    pub(super) fn new(slots: Arc<Slots<PoolCells>>, worker: usize) -> Self {
        slots.of(worker).connections_opened.add(1);
        Self {
            slots,
            worker: worker as u32,
            is_idle: false,
        }
    }
}

impl OpenConnection {
    fn cells(&self) -> &PoolCells {
        self.slots.of(self.worker as usize)
    }

    /// It waits for a request.
    pub fn rest(&mut self) {
        if !std::mem::replace(&mut self.is_idle, true) {
            self.cells().connections_idle.add(1);
        }
    }

    /// It is used for a request again.
    pub fn reuse(&mut self) {
        if std::mem::replace(&mut self.is_idle, false) {
            let cells = self.cells();
            cells.connections_idle.sub(1);
            cells.connections_reused.add(1);
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let cells = self.cells();
        cells.connections_closed.add(1);
        cells.connections_idle.sub(u64::from(self.is_idle));
    }
}
