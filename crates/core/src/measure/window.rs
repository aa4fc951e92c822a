//! The last ten seconds of a backend.

use std::collections::VecDeque;
use std::time::Duration;

use super::{BUCKETS, Slice, bucket_of, start_of};

/// Slices that a window holds, of a second each.
pub(crate) const SLICES: usize = 10;

/// Exact counts over the last [`SLICES`] slices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// The latest is the last.
    slices: VecDeque<Slice>,
    /// Their sum; no memory before the first request.
    sum: Option<Box<[u32; BUCKETS]>>,
    answered: u32,
    failed: u32,
}

impl Window {
    /// The next second held this.
    pub(crate) fn push(&mut self, slice: Slice) {
        if self.slices.len() == SLICES
            && let Some(gone) = self.slices.pop_front()
        {
            self.answered -= gone.answered;
            self.failed -= gone.failed;
            if let Some(sum) = &mut self.sum {
                for (bucket, count) in gone.latencies {
                    sum[usize::from(bucket)] -= count;
                }
            }
        }
        if !slice.latencies.is_empty() {
            let sum = self.sum.get_or_insert_with(|| Box::new([0; BUCKETS]));
            for &(bucket, count) in &slice.latencies {
                sum[usize::from(bucket)] += count;
            }
        }
        self.answered += slice.answered;
        self.failed += slice.failed;
        self.slices.push_back(slice);
    }

    /// Failures until now count no more.
    pub(crate) fn forget_failures(&mut self) {
        self.failed = 0;
        for slice in &mut self.slices {
            slice.failed = 0;
        }
    }

    /// Nothing happened while it was looked at.
    pub(crate) fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// Whether it reaches back all the way.
    pub(crate) fn is_full(&self) -> bool {
        self.slices.len() == SLICES
    }

    /// Requests that were answered.
    pub(crate) fn answered(&self) -> u32 {
        self.answered
    }

    /// Requests that failed.
    pub(crate) fn failed(&self) -> u32 {
        self.failed
    }

    /// All requests that ended.
    pub(crate) fn total(&self) -> u32 {
        self.answered + self.failed
    }

    /// The share that failed, `0.0..=1.0`; 0 of none.
    pub(crate) fn failed_share(&self) -> f64 {
        f64::from(self.failed) / f64::from(self.total().max(1))
    }

    /// What the last `seconds` slices held: answered, failed.
    pub(crate) fn last(&self, seconds: usize) -> (u32, u32) {
        let last = self.slices.iter().rev().take(seconds);
        last.fold((0, 0), |(answered, failed), slice| {
            (answered + slice.answered, failed + slice.failed)
        })
    }

    /// Whether it was looked at for so many seconds, and something ended in the first of them or since
    /// then without a gap of its own: a burst of failures within one second is no steady failure.
    pub(crate) fn is_full_for(&self, seconds: usize) -> bool {
        let last = self.slices.iter().rev().take(seconds);
        let ended = last.filter(|slice| slice.failed > 0).count();
        self.slices.len() >= seconds && ended >= 2
    }

    /// The latency that a share `quantile` of the answers did not exceed, within a bucket's width.
    /// `None` without answers.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<Duration> {
        let sum = self.sum.as_ref()?;
        quantile_of(&sum[..], self.answered, quantile)
    }

    /// The same over the last `seconds` slices.
    pub(crate) fn quantile_within(&self, quantile: f64, seconds: usize) -> Option<Duration> {
        let mut sum = [0u32; BUCKETS];
        let mut answered = 0;
        for slice in self.slices.iter().rev().take(seconds) {
            answered += slice.answered;
            for &(bucket, count) in &slice.latencies {
                sum[usize::from(bucket)] += count;
            }
        }
        quantile_of(&sum, answered, quantile)
    }

    /// What of the last `seconds` slices took longer than `bound`, answers within its own bucket left
    /// out.
    pub(crate) fn slower_within(&self, bound: Duration, seconds: usize) -> Slower {
        let last = bucket_of(bound);
        let mut slower = Slower::default();
        for slice in self.slices.iter().rev().take(seconds) {
            let beyond = slice.latencies.iter().rev();
            let beyond = beyond.take_while(|&&(bucket, _)| usize::from(bucket) > last);
            let count: u32 = beyond.map(|&(_, count)| count).sum();
            slower.slow += count;
            slower.answered += slice.answered;
            slower.seconds += u32::from(count > 0);
        }
        slower
    }
}

/// Slow answers of a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slower {
    /// How many there were.
    pub(crate) slow: u32,
    /// Of so many.
    pub(crate) answered: u32,
    /// In how many of the seconds.
    pub(crate) seconds: u32,
}

fn quantile_of(sum: &[u32], answered: u32, quantile: f64) -> Option<Duration> {
    let rank = (f64::from(answered) * quantile).ceil().max(1.0) as u64;
    let mut below = 0;
    for (bucket, &count) in sum.iter().enumerate() {
        if below + u64::from(count) >= rank {
            let inside = (rank - below) as f64 / f64::from(count);
            let (start, end) = (start_of(bucket), start_of(bucket + 1));
            return Some(start + end.saturating_sub(start).mul_f64(inside));
        }
        below += u64::from(count);
    }
    None
}
