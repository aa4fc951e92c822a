//! What a backend said last of its own load: atomics that picks read, without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::Instant;

/// Written load first and time last, and read the other way round: so a load is never older than its time.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Nanoseconds; 0 for never.
    at: AtomicU64,
    /// What is gone by: requests in flight of others, and seconds of latency, both `f32`.
    load: AtomicU64,
    /// What was said: requests in flight, and seconds of latency, not a number if that was not said; both `f32`.
    said: AtomicU64,
}

/// What picks go by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Requests in flight there that this process did not send.
    pub(crate) others: f32,
    /// Seconds.
    pub(crate) latency: f32,
}

/// What a backend said of its load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSaid {
    /// Requests in flight.
    pub in_flight: f64,
    /// How long a request takes; `None`: it did not say.
    pub latency: Option<Duration>,
    /// How long ago it said so.
    pub age: Duration,
}

impl Told {
    pub(crate) fn copy(&self) -> Self {
        let copy = |figure: &AtomicU64| AtomicU64::new(figure.load(Ordering::SeqCst));
        Self {
            at: copy(&self.at),
            load: copy(&self.load),
            said: copy(&self.said),
        }
    }

    pub(crate) fn note(&self, now: Instant, load: Load, said: (f64, Option<Duration>)) {
        let latency = said.1.map_or(f32::NAN, |latency| latency.as_secs_f32());
        self.said
            .store(pack(said.0 as f32, latency), Ordering::SeqCst);
        self.load
            .store(pack(load.others, load.latency), Ordering::SeqCst);
        self.at.store(now.as_nanos().max(1), Ordering::SeqCst);
    }

    /// What it said less than `within` ago.
    pub(crate) fn since(&self, now: Instant, within: Duration) -> Option<Load> {
        let at = self.at.load(Ordering::SeqCst);
        if at == 0 || now - Instant::from_nanos(at) >= within {
            return None;
        }
        let (others, latency) = unpack(self.load.load(Ordering::SeqCst));
        Some(Load { others, latency })
    }

    pub(crate) fn said(&self, now: Instant) -> Option<LoadSaid> {
        let at = self.at.load(Ordering::SeqCst);
        let (in_flight, latency) = unpack(self.said.load(Ordering::SeqCst));
        (at != 0).then(|| LoadSaid {
            in_flight: f64::from(in_flight),
            latency: (!latency.is_nan()).then(|| Duration::from_secs_f32(latency)),
            age: now.saturating_since(Instant::from_nanos(at)),
        })
    }
}

fn pack(a: f32, b: f32) -> u64 {
    u64::from(a.to_bits()) << 32 | u64::from(b.to_bits())
}

fn unpack(both: u64) -> (f32, f32) {
    let part = |bits: u64| f32::from_bits(bits as u32);
    (part(both >> 32), part(both))
}
