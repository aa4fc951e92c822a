//! What traffic says of a backend, counted exactly: latencies in buckets, failures, by the second.
//!
//! Requests count into *cells*, of which each thread has its own (no cache line is shared); once a
//! second control takes what they hold as a [`Slice`] and moves a [`window::Window`] on by it.
//! Counts, not decayed rates: a burst that is a tenth of a window is a tenth of it, and cannot hide
//! behind what came before or fade before somebody looks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

pub(crate) mod window;

/// Threads that count apart; more of them share.
const SHARDS: usize = 8;

/// Buckets of latency: eight to an octave from 16 µs to 134 s, one below and one above. A quantile is
/// off by 6 % at most.
pub(crate) const BUCKETS: usize = 2 + (OCTAVE_MAX - OCTAVE_MIN + 1) * PER_OCTAVE;
const PER_OCTAVE: usize = 1 << PER_OCTAVE_BITS;
const PER_OCTAVE_BITS: u32 = 3;
/// 16 µs, as a power of two.
const OCTAVE_MIN: usize = 4;
/// The octave that ends at 134 s.
const OCTAVE_MAX: usize = 26;

/// The bucket that `latency` falls into.
pub(crate) fn bucket_of(latency: Duration) -> usize {
    let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    let octave = micros.checked_ilog2().unwrap_or(0);
    match octave as usize {
        octave if octave < OCTAVE_MIN => 0,
        octave if octave > OCTAVE_MAX => BUCKETS - 1,
        index => {
            let part = (micros >> (octave - PER_OCTAVE_BITS)) as usize % PER_OCTAVE;
            1 + (index - OCTAVE_MIN) * PER_OCTAVE + part
        }
    }
}

/// Where `bucket` begins; that of `BUCKETS` is where the last one does.
pub(crate) fn start_of(bucket: usize) -> Duration {
    let Some(index) = bucket.checked_sub(1) else {
        return Duration::ZERO;
    };
    let (octave, part) = (OCTAVE_MIN + index / PER_OCTAVE, index % PER_OCTAVE);
    let octave = octave.min(OCTAVE_MAX + 1);
    Duration::from_micros(((PER_OCTAVE + part) as u64) << (octave - PER_OCTAVE_BITS as usize))
}

/// What happened to a backend within a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Answered requests by bucket of latency; buckets in ascending order, none of them empty.
    pub(crate) latencies: Vec<(u8, u32)>,
    /// Answered requests.
    pub(crate) answered: u32,
    /// Failed ones: no answer, or a 5xx.
    pub(crate) failed: u32,
}

const _: () = assert!(BUCKETS <= u8::MAX as usize + 1, "a bucket fits a byte");

/// Where the requests of one backend are counted. Takes memory for a thread when that counts first.
#[derive(Debug, Default)]
pub(crate) struct Cells([OnceLock<Box<Shard>>; SHARDS]);

#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    /// Something was counted since the last look.
    touched: AtomicBool,
    failed: AtomicU32,
    latencies: [AtomicU32; BUCKETS],
}

impl Shard {
    fn new() -> Box<Self> {
        Box::new(Self {
            touched: AtomicBool::new(false),
            failed: AtomicU32::new(0),
            latencies: std::array::from_fn(|_| AtomicU32::new(0)),
        })
    }

    fn touch(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Release);
        }
    }
}

impl Cells {
    /// A request was answered after `latency`. `worker` is any number that is stable for the calling
    /// thread.
    pub(crate) fn answered(&self, worker: usize, latency: Duration) {
        let shard = self.shard(worker);
        shard.latencies[bucket_of(latency)].fetch_add(1, Ordering::Relaxed);
        shard.touch();
    }

    /// A request failed.
    pub(crate) fn failed(&self, worker: usize) {
        let shard = self.shard(worker);
        shard.failed.fetch_add(1, Ordering::Relaxed);
        shard.touch();
    }

    fn shard(&self, worker: usize) -> &Shard {
        self.0[worker % SHARDS].get_or_init(Shard::new)
    }

    /// What was counted since the last call; `None` if nothing was. What is being counted meanwhile
    /// is in this slice or in the next.
    pub(crate) fn take(&self) -> Option<Slice> {
        let shards = self.0.iter().filter_map(OnceLock::get);
        let mut shards = shards.filter(|shard| shard.touched.swap(false, Ordering::Acquire));
        let first = shards.next()?;
        let mut counts = [0u32; BUCKETS];
        let mut slice = Slice::default();
        for shard in std::iter::once(first).chain(shards) {
            slice.failed = slice
                .failed
                .saturating_add(shard.failed.swap(0, Ordering::Relaxed));
            for (sum, count) in counts.iter_mut().zip(&shard.latencies) {
                // A look first: most are zero, and stay unwritten.
                if count.load(Ordering::Relaxed) != 0 {
                    *sum = sum.saturating_add(count.swap(0, Ordering::Relaxed));
                }
            }
        }
        for (bucket, &count) in (0..).zip(&counts) {
            if count != 0 {
                slice.latencies.push((bucket, count));
                slice.answered = slice.answered.saturating_add(count);
            }
        }
        Some(slice)
    }
}

/// The least share that `hits` of `total` speak for, `deviations` standard deviations from what was
/// seen (Wilson 1927): few requests prove little.
pub(crate) fn least_share(hits: u32, total: u32, deviations: f64) -> f64 {
    if total == 0 {
        return 0.0;
    }
    let (n, square) = (f64::from(total), deviations * deviations);
    let share = f64::from(hits) / n;
    let middle = share + square / (2.0 * n);
    let spread = deviations * (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
    ((middle - spread) / (1.0 + square / n)).max(0.0)
}

#[cfg(test)]
mod tests;
