//! The probe pools of a pool's threads: what backends answered last, without locks.
//!
//! Each thread that picks has a pool of its own (threads beyond [`SHARDS`] share), because answers are used up. An
//! answer is three words. The first is when it came, and stands for the whole: whoever writes puts [`WRITTEN`]
//! there first, and whoever reads looks at it before and after. A report that meets another writer is dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::policy::{below, mix};
use crate::time::Instant;

use super::{AGE_MAX, HOT_QUANTILE, PrequalConfig};

/// Threads with a pool of their own.
const SHARDS: usize = 8;
/// Answers in a pool, the paper's *m*.
pub(super) const MOST: usize = 16;
/// Answers that say what is hot.
const RECENT: usize = 64;
/// The quantile is reckoned anew after so many answers.
const RECKON: u32 = 8;
/// How often an answer is used is reckoned anew after so many.
const RATE: u32 = 32;
/// One answer in so many pushes another out, where not all backends have a place.
const REMOVE: u32 = 3;
/// How often an answer is used until the rates are known, and at most.
const USES_FIRST: f32 = 8.0;
const USES_MAX: f32 = 1_000.0;
/// Seconds for which probes that were not made may be made up for.
const BURST: f64 = 0.1;

/// No answer.
const EMPTY: u64 = 0;
/// One is being written.
const WRITTEN: u64 = u64::MAX;

/// A backend's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answer {
    /// Of the backend in the membership.
    pub(super) index: u32,
    /// Requests in flight there that this process did not send.
    pub(super) others: f32,
    /// Seconds.
    pub(super) latency: f32,
    /// When it came.
    pub(super) at: Instant,
}

#[derive(Debug, Default)]
struct Slot {
    /// Nanoseconds, [`EMPTY`] or [`WRITTEN`].
    at: AtomicU64,
    /// `others` and `latency`, as bits.
    load: AtomicU64,
    /// The index, and how often the answer may still be used.
    index: AtomicU32,
    uses: AtomicU32,
}

/// One thread's pool.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard {
    slots: [Slot; MOST],
    /// Above this many requests in flight an answer is hot (`f32`).
    hot: AtomicU32,
    /// How often an answer is used (`f32`).
    uses: AtomicU32,
    /// Answers heard.
    heard: AtomicU32,
    /// Picks since `uses` was reckoned, and since probes were asked for.
    picks: AtomicU32,
    unasked: AtomicU32,
    recent: [AtomicU32; RECENT],
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            slots: Default::default(),
            hot: AtomicU32::new(f32::INFINITY.to_bits()),
            uses: AtomicU32::new(USES_FIRST.to_bits()),
            heard: AtomicU32::new(0),
            picks: AtomicU32::new(0),
            unasked: AtomicU32::new(0),
            recent: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl Shard {
    fn copy(&self) -> Self {
        let copy = |figure: &AtomicU32| AtomicU32::new(figure.load(Ordering::SeqCst));
        Self {
            slots: std::array::from_fn(|place| self.slots[place].copy()),
            hot: copy(&self.hot),
            uses: copy(&self.uses),
            heard: copy(&self.heard),
            picks: copy(&self.picks),
            unasked: copy(&self.unasked),
            recent: std::array::from_fn(|place| copy(&self.recent[place])),
        }
    }

    pub(super) fn count_pick(&self) {
        self.picks.fetch_add(1, Ordering::Relaxed);
        self.unasked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn hot(&self) -> f32 {
        f32::from_bits(self.hot.load(Ordering::Relaxed))
    }

    /// The answer at `place`, if there is one and it is fresh.
    pub(super) fn answer(&self, place: usize, now: Instant) -> Option<Answer> {
        let slot = &self.slots[place];
        let at = slot.at.load(Ordering::SeqCst);
        if at == EMPTY || at == WRITTEN || now - Instant::from_nanos(at) >= AGE_MAX {
            return None;
        }
        let load = slot.load.load(Ordering::SeqCst);
        let index = slot.index.load(Ordering::SeqCst);
        let is_whole = slot.at.load(Ordering::SeqCst) == at;
        is_whole.then(|| Answer {
            index,
            others: f32::from_bits((load >> 32) as u32),
            latency: f32::from_bits(load as u32),
            at: Instant::from_nanos(at),
        })
    }

    /// The answer at `place` was gone by, which counts; after the last time it is gone.
    pub(super) fn used(&self, place: usize, answer: Answer) {
        let (slot, at) = (&self.slots[place], answer.at.as_nanos());
        if slot.at.load(Ordering::SeqCst) == at && slot.uses.fetch_sub(1, Ordering::SeqCst) <= 1 {
            slot.clear(at);
        }
    }

    /// A backend has `in_flight` requests for its weight; `answer` is what is to be gone by, if anything.
    pub(super) fn hear(&self, in_flight: f32, answer: Option<Answer>, candidates: usize) {
        let number = self.heard.fetch_add(1, Ordering::Relaxed);
        self.recent[number as usize % RECENT].store(in_flight.to_bits(), Ordering::Relaxed);
        if number < RECKON || number.is_multiple_of(RECKON) {
            self.reckon_hot((number as usize + 1).min(RECENT));
        }
        if number.is_multiple_of(RATE) && number > 0 {
            self.reckon_uses(candidates);
        }
        let Some(answer) = answer else {
            return;
        };
        if candidates > MOST && number.is_multiple_of(REMOVE) {
            self.remove_one(number, answer.at);
        }
        self.put(answer, u64::from(number));
    }

    fn reckon_hot(&self, count: usize) {
        let mut recent = [0.0f32; RECENT];
        for (figure, kept) in recent.iter_mut().zip(&self.recent) {
            *figure = f32::from_bits(kept.load(Ordering::Relaxed));
        }
        let recent = &mut recent[..count];
        recent.sort_unstable_by(f32::total_cmp);
        let hot = recent[((count - 1) as f64 * HOT_QUANTILE) as usize];
        self.hot.store(hot.to_bits(), Ordering::Relaxed);
    }

    /// (1 + δ) ÷ ((1 − m ÷ n) × answers − removals), both for each pick, with δ = 1 and a removal for three answers:
    /// as many uses as picks need, and as many again. Where the pool has room for (nearly) all, what the divisor
    /// comes to is no measure, and a third of the answers is taken to be of use.
    fn reckon_uses(&self, candidates: usize) {
        let picks = self.picks.swap(0, Ordering::Relaxed).max(1);
        let answers = f64::from(RATE) / f64::from(picks);
        let fresh = 1.0 - MOST as f64 / candidates.max(MOST) as f64;
        let useful = (fresh - 1.0 / f64::from(REMOVE)).max(1.0 / 3.0);
        let uses = (2.0 / (answers * useful)).clamp(1.0, f64::from(USES_MAX));
        self.uses.store((uses as f32).to_bits(), Ordering::Relaxed);
    }

    /// The oldest goes, or the worst, by turns.
    fn remove_one(&self, number: u32, now: Instant) {
        let answers = (0..MOST).filter_map(|place| Some((place, self.answer(place, now)?)));
        let gone = if (number / REMOVE).is_multiple_of(2) {
            answers.min_by_key(|(_, answer)| answer.at)
        } else {
            let hot = self.hot();
            // The hot one with the most in flight, or else the slowest.
            let badness = |answer: &Answer| (answer.others.max(hot), answer.latency);
            answers.max_by(|(_, a), (_, b)| {
                let ((a, slow_a), (b, slow_b)) = (badness(a), badness(b));
                a.total_cmp(&b).then(slow_a.total_cmp(&slow_b))
            })
        };
        if let Some((place, answer)) = gone {
            self.slots[place].clear(answer.at.as_nanos());
        }
    }

    /// In place of the same backend's, or in a free place, or in the oldest's.
    fn put(&self, answer: Answer, random: u64) {
        let whole = f32::from_bits(self.uses.load(Ordering::Relaxed));
        // Rounded at random, so that the mean is right.
        let part = below(mix(random ^ answer.at.as_nanos()), 1 << 16) as f32 / 65_536.0;
        let uses = (whole + part) as u32;
        let own = self
            .slots
            .iter()
            .find(|slot| slot.at.load(Ordering::SeqCst) != EMPTY && slot.is_of(answer.index));
        let slot = own.or_else(|| {
            let by_age = |slot: &&Slot| slot.at.load(Ordering::SeqCst);
            self.slots.iter().min_by_key(by_age)
        });
        let Some(slot) = slot else {
            return;
        };
        let before = slot.at.load(Ordering::SeqCst);
        let is_mine = before != WRITTEN
            && slot
                .at
                .compare_exchange(before, WRITTEN, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if !is_mine {
            return;
        }
        let load = u64::from(answer.others.to_bits()) << 32 | u64::from(answer.latency.to_bits());
        slot.load.store(load, Ordering::SeqCst);
        slot.index.store(answer.index, Ordering::SeqCst);
        slot.uses.store(uses.max(1), Ordering::SeqCst);
        let at = answer.at.as_nanos().clamp(EMPTY + 1, WRITTEN - 1);
        slot.at.store(at, Ordering::SeqCst);
    }
}

impl Slot {
    /// Empty if it is being written.
    fn copy(&self) -> Self {
        let at = self.at.load(Ordering::SeqCst);
        let (load, index) = (
            self.load.load(Ordering::SeqCst),
            self.index.load(Ordering::SeqCst),
        );
        let uses = self.uses.load(Ordering::SeqCst);
        let is_whole = at != WRITTEN && self.at.load(Ordering::SeqCst) == at;
        Self {
            at: AtomicU64::new(if is_whole { at } else { EMPTY }),
            load: AtomicU64::new(load),
            index: AtomicU32::new(index),
            uses: AtomicU32::new(uses),
        }
    }

    fn is_of(&self, index: u32) -> bool {
        self.index.load(Ordering::SeqCst) == index
    }

    /// Takes out the answer that came at `at`, if it is still there.
    fn clear(&self, at: u64) {
        // An `Err` is a newer answer.
        let _ = self
            .at
            .compare_exchange(at, EMPTY, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// The probe pools of all threads, and how many probes may be made.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    shards: [Shard; SHARDS],
    allowance: Mutex<Allowance>,
}

#[derive(Debug, Default)]
struct Allowance {
    since: Option<Instant>,
    probes: f64,
}

impl Probes {
    /// One of its own with the same answers, for picks that nobody shall notice.
    pub(crate) fn copy(&self) -> Self {
        Self {
            shards: std::array::from_fn(|number| self.shards[number].copy()),
            allowance: Mutex::default(),
        }
    }

    pub(super) fn shard(&self, worker: usize) -> &Shard {
        &self.shards[worker % SHARDS]
    }

    pub(super) fn bit(worker: usize) -> u8 {
        1 << (worker % SHARDS)
    }

    pub(super) fn shards_of(&self, workers: u8) -> impl Iterator<Item = &Shard> {
        let shards = self.shards.iter().enumerate();
        shards
            .filter(move |&(number, _)| workers & Self::bit(number) != 0)
            .map(|(_, shard)| shard)
    }

    /// Whom of `candidates` to ask for the picks since the last call, and for which threads, as bits. Each is asked
    /// once at most.
    pub(crate) fn due(
        &self,
        now: Instant,
        random: u64,
        (config, candidates): (PrequalConfig, &[u32]),
    ) -> BTreeMap<u32, u8> {
        let mut allowance = self
            .allowance
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let rate = f64::from(config.probes_per_second_max);
        let since = allowance
            .since
            .replace(now)
            .map_or(BURST, |since| (now - since).as_secs_f64());
        let most = (rate * BURST).max(1.0);
        allowance.probes = (allowance.probes + rate * since).min(most);
        let mut due: BTreeMap<u32, u8> = BTreeMap::new();
        let mut random = random;
        for (number, shard) in self.shards.iter().enumerate() {
            let picks = shard.unasked.swap(0, Ordering::Relaxed);
            random = mix(random);
            // The fraction is rounded at random, so that a hundredth of a probe a request is one in a hundred.
            let part = below(random, 1 << 16) as f64 / 65_536.0;
            let wanted = (f64::from(picks) * config.probes_per_request + part) as usize;
            let askable = candidates.len().min(due.len() + allowance.probes as usize);
            for _ in 0..wanted.min(askable) {
                random = mix(random);
                let index = candidates[below(random, candidates.len())];
                if let Some(workers) = due.get_mut(&index) {
                    *workers |= Self::bit(number);
                } else if allowance.probes >= 1.0 {
                    allowance.probes -= 1.0;
                    due.insert(index, Self::bit(number));
                }
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    /// Answers of backends 0 and on, a millisecond apart; gives whose are left.
    fn left(latencies: &[f32], candidates: usize) -> Vec<u32> {
        let shard = Shard::default();
        for (n, &latency) in (0..).zip(latencies) {
            let answer = Answer {
                index: n,
                others: 1.0,
                latency,
                at: at(u64::from(n)),
            };
            shard.hear(1.0, Some(answer), candidates);
        }
        let answers = (0..MOST).filter_map(|place| shard.answer(place, at(100)));
        let mut left: Vec<u32> = answers.map(|answer| answer.index).collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn where_not_all_have_a_place_the_worst_and_the_oldest_go_by_turns() {
        let latencies = [0.1, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1];
        assert_eq!(left(&latencies[..3], 100), [0, 1, 2]);
        assert_eq!(left(&latencies[..4], 100), [0, 2, 3], "the worst");
        assert_eq!(left(&latencies, 100), [2, 3, 4, 5, 6], "the oldest");
        assert_eq!(left(&latencies, MOST), [0, 1, 2, 3, 4, 5, 6]);
        let full = left(&[0.1; 40], MOST + 1);
        assert!(full.len() <= MOST && full.contains(&39), "{full:?}");
    }

    #[test]
    fn an_answer_that_is_being_written_is_not_read() {
        let shard = Shard::default();
        let answer = Answer {
            index: 7,
            others: 1.0,
            latency: 0.1,
            at: at(0),
        };
        shard.put(answer, 0);
        let place = (0..MOST).find(|&place| shard.answer(place, at(0)).is_some());
        let place = place.expect("it is there");
        assert_eq!(shard.answer(place, at(0)), Some(answer));
        shard.slots[place].at.store(WRITTEN, Ordering::SeqCst);
        assert_eq!(shard.answer(place, at(0)), None);
        shard.put(
            Answer {
                latency: 0.2,
                ..answer
            },
            0,
        );
        let others = (0..MOST).filter(|&place| shard.answer(place, at(0)).is_some());
        assert_eq!(others.count(), 0, "whoever meets a writer gives way");
    }
}
