//! The retry budget: retries are a share of the requests, plus a small floor.
//!
//! Why a share and not a count for each request: when a whole pool fails, "three tries each" triples
//! the load on what is already broken. A share keeps the sum of all retries below
//! `ratio × requests + min_per_second`, whatever fails.
//!
//! Deposits are the hot path (one for each request, on a padded counter of the worker's own);
//! withdrawals are rare and take a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::padded::Padded;
use crate::time::Instant;

/// Counters that deposits are spread over. Workers beyond this many share one, which is slower but
/// still right.
const SHARDS: usize = 32;

/// Parts that the window is divided into.
const SLICES: u32 = 10;

/// How many retries are allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudgetConfig {
    /// Retries for each request of the last `window`, `0.0..`. Default 0.2.
    pub ratio: f64,
    /// Retries for each second that are allowed on top, so that a pool with little traffic can retry
    /// at all. Default 10.
    pub min_per_second: u32,
    /// How far back requests count. Default 10 s.
    pub window: Duration,
}

impl Default for RetryBudgetConfig {
    fn default() -> Self {
        Self {
            ratio: 0.2,
            min_per_second: 10,
            window: Duration::from_secs(10),
        }
    }
}

/// A budget shared by all workers of one pool.
#[derive(Debug)]
pub struct RetryBudget {
    deposits: [Padded<AtomicU64>; SHARDS],
    ledger: Mutex<Ledger>,
}

/// What withdrawals need. They are the only times at which the deposits are summed, so the ledger
/// knows the total at those times, and takes it to have grown evenly between them.
#[derive(Debug)]
struct Ledger {
    config: RetryBudgetConfig,
    /// Oldest first; never empty.
    marks: Vec<Mark>,
    /// Start of the second that `floor_used` counts in.
    second: Instant,
    floor_used: u32,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    /// Deposits until then.
    total: u64,
    /// Withdrawals since the mark before.
    withdrawn: u64,
}

impl RetryBudget {
    /// An empty budget: only the floor is there until requests were deposited.
    pub fn new(now: Instant, config: RetryBudgetConfig) -> Self {
        Self {
            deposits: Default::default(),
            ledger: Mutex::new(Ledger {
                config,
                marks: vec![Mark {
                    at: now,
                    total: 0,
                    withdrawn: 0,
                }],
                second: now,
                floor_used: 0,
            }),
        }
    }

    /// Counts one request (not a retry). `worker` is any number that is stable for the calling
    /// thread; equal numbers only share a cache line.
    pub fn deposit(&self, worker: usize) {
        self.deposits[worker % SHARDS].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes one retry, if there is one.
    pub fn withdraw(&self, now: Instant) -> bool {
        let total = self.deposited();
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.withdraw(now, total)
    }

    /// Changes the numbers; what was deposited and withdrawn still counts.
    pub fn configure(&self, config: RetryBudgetConfig) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.config = config;
    }

    fn deposited(&self) -> u64 {
        self.deposits
            .iter()
            .map(|cell| cell.load(Ordering::Relaxed))
            .sum()
    }
}

impl Ledger {
    fn withdraw(&mut self, now: Instant, total: u64) -> bool {
        // Another worker may have read clock and counters later than this one, and been here first.
        let (now, total) = match self.marks.last() {
            Some(last) => (now.max(last.at), total.max(last.total)),
            None => (now, total),
        };
        self.mark(now, total);
        let start = self.window_start(now);
        let deposited = total as f64 - self.total_at(start);
        // The small number keeps 0.2 × 10 from being 1.9999….
        let allowed = deposited * self.config.ratio + 1e-6;
        let of_window = self.marks.iter().filter(|mark| mark.at > start);
        let taken: u64 = of_window.map(|mark| mark.withdrawn).sum();
        if ((taken + 1) as f64) <= allowed
            && let Some(last) = self.marks.last_mut()
        {
            last.withdrawn += 1;
            return true;
        }
        if now - self.second >= Duration::from_secs(1) {
            self.second = now;
            self.floor_used = 0;
        }
        if self.floor_used < self.config.min_per_second {
            self.floor_used += 1;
            return true;
        }
        false
    }

    /// Notes the total at `now`: in a mark of its own, or in the last one while that is younger than
    /// a slice of the window. Forgets marks but the last one before the window.
    fn mark(&mut self, now: Instant, total: u64) {
        let slice = self.config.window / SLICES;
        let young = match self.marks[..] {
            [.., before, _] => now - before.at < slice,
            _ => false,
        };
        match self.marks.last_mut() {
            Some(last) if young => {
                last.at = now;
                last.total = total;
            }
            _ => self.marks.push(Mark {
                at: now,
                total,
                withdrawn: 0,
            }),
        }
        let start = self.window_start(now);
        let gone = self
            .marks
            .iter()
            .skip(1)
            .take_while(|next| next.at <= start);
        let gone = gone.count();
        self.marks.drain(..gone);
    }

    fn window_start(&self, now: Instant) -> Instant {
        let window = Instant::from_nanos(0) + self.config.window;
        Instant::from_nanos(now.as_nanos().saturating_sub(window.as_nanos()))
    }

    /// Deposits until `at`, which lies before the last mark.
    fn total_at(&self, at: Instant) -> f64 {
        let after = self.marks.partition_point(|mark| mark.at <= at);
        let (Some(left), Some(right)) = (self.marks[..after].last(), self.marks.get(after)) else {
            // Before the first mark nothing was deposited; after the last, nothing is known to be.
            let nearest = self.marks[..after].last().or(self.marks.first());
            return nearest.map_or(0.0, |mark| mark.total as f64);
        };
        let part = (at - left.at).as_secs_f64() / (right.at - left.at).as_secs_f64();
        part.mul_add((right.total - left.total) as f64, left.total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn budget(ratio: f64, min_per_second: u32) -> RetryBudget {
        RetryBudget::new(
            at_ms(0),
            RetryBudgetConfig {
                ratio,
                min_per_second,
                window: Duration::from_secs(10),
            },
        )
    }

    fn drain(budget: &RetryBudget, now: Instant) -> usize {
        (0..100_000).take_while(|_| budget.withdraw(now)).count()
    }

    #[test]
    fn an_idle_pool_has_only_the_floor_of_each_second() {
        let budget = budget(0.2, 10);
        assert_eq!(drain(&budget, at_ms(0)), 10);
        assert_eq!(drain(&budget, at_ms(999)), 0);
        assert_eq!(drain(&budget, at_ms(1_000)), 10);
    }

    #[test]
    fn retries_are_the_ratio_of_requests_however_many_workers_counted_them() {
        let budget = budget(0.2, 0);
        for worker in 0..1_000 {
            budget.deposit(worker);
        }
        assert_eq!(drain(&budget, at_ms(100)), 200);
        assert_eq!(
            drain(&budget, at_ms(5_000)),
            0,
            "what was taken stays taken"
        );
    }

    #[test]
    fn requests_beyond_the_window_no_longer_count() {
        let budget = budget(0.5, 0);
        for _ in 0..100 {
            budget.deposit(0);
        }
        assert!(budget.withdraw(at_ms(10)), "opens the books");
        assert_eq!(drain(&budget, at_ms(30_000)), 0);
        // Withdrawals leave the window as well: new requests are worth their whole ratio.
        for _ in 0..100 {
            budget.deposit(0);
        }
        assert_eq!(drain(&budget, at_ms(30_001)), 50);
    }

    #[test]
    fn requests_of_an_unwatched_hour_count_by_the_part_within_the_window() {
        let budget = budget(0.2, 0);
        for _ in 0..3_600 {
            budget.deposit(3);
        }
        // Ten of 3,600 seconds: ten requests, two retries.
        assert_eq!(drain(&budget, at_ms(3_600_000)), 2);
    }

    #[test]
    fn a_pool_that_only_fails_is_not_multiplied() {
        // 100 requests a second for 60 s, each of which asks for retries as long as it gets one.
        let budget = budget(0.2, 10);
        let mut retries = 0;
        for ms in (0..60_000).step_by(10) {
            budget.deposit(ms as usize);
            while budget.withdraw(at_ms(ms)) {
                retries += 1;
            }
        }
        let most = 6_000 / 5 + 61 * 10;
        assert!(retries <= most, "{retries} retries, at most {most} allowed");
        assert!(
            retries >= most * 9 / 10,
            "{retries} retries: the budget is also there to be used"
        );
    }
}
