//! What a pool's threads know of backends that answered: who did last, and what is hot by what they said. No locks.
//!
//! What a backend said stands with the backend. Here stand the last answers of each thread that picks (threads beyond
//! [`SHARDS`] share): whoever answered of late is asked about first, and of how much they said the threshold is made.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::policy::{below, mix};
use crate::time::Instant;

use super::{HOT_QUANTILE, PrequalConfig};

/// Threads with answers of their own.
const SHARDS: usize = 8;
/// The last answers of which a pick draws, the paper's *m*.
const LATEST: usize = 16;
/// Answers that say what is hot.
const RECENT: usize = 64;
/// The quantile is reckoned anew after so many answers.
const RECKON: u32 = 8;
/// Whatever the quantile: with more than so many times the median, and one, a backend is hot. Those that have as much
/// more to do because they are larger are not; those that claim what nobody else comes near are, though they be many.
const OUTLYING: f32 = 8.0;
/// Seconds for which probes that were not made may be made up for.
const BURST: f64 = 0.1;

/// One thread's answers.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard {
    /// Above this many requests in flight an answer is hot (`f32`).
    hot: AtomicU32,
    /// Answers heard.
    heard: AtomicU32,
    /// Picks since probes were asked for.
    unasked: AtomicU32,
    /// What was told last: the backend's index, and its requests in flight for its weight (`f32`).
    recent: [AtomicU64; RECENT],
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            hot: AtomicU32::new(f32::INFINITY.to_bits()),
            heard: AtomicU32::new(0),
            unasked: AtomicU32::new(0),
            recent: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Shard {
    fn copy(&self) -> Self {
        let copy = |figure: &AtomicU32| AtomicU32::new(figure.load(Ordering::SeqCst));
        let told = |place: usize| AtomicU64::new(self.recent[place].load(Ordering::SeqCst));
        Self {
            hot: copy(&self.hot),
            heard: copy(&self.heard),
            unasked: copy(&self.unasked),
            recent: std::array::from_fn(told),
        }
    }

    pub(super) fn count_pick(&self) {
        self.unasked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn hot(&self) -> f32 {
        f32::from_bits(self.hot.load(Ordering::Relaxed))
    }

    /// The index of one of those that answered last; `None` if nobody has.
    pub(super) fn latest(&self, random: u64) -> Option<u32> {
        let heard = self.heard.load(Ordering::Relaxed);
        let known = (heard as usize).min(LATEST);
        if known == 0 {
            return None;
        }
        let place = (heard as usize - 1 - below(random, known)) % RECENT;
        Some((self.recent[place].load(Ordering::Relaxed) >> 32) as u32)
    }

    /// The backend at `index` has `in_flight` requests for its weight.
    pub(super) fn hear(&self, index: u32, in_flight: f32) {
        let number = self.heard.load(Ordering::Relaxed);
        let told = u64::from(index) << 32 | u64::from(in_flight.to_bits());
        self.recent[number as usize % RECENT].store(told, Ordering::Relaxed);
        // Behind what it counts. Threads that share may lose an answer by it, and nothing else.
        let next = number.checked_add(1).unwrap_or(RECENT as u32);
        self.heard.store(next, Ordering::Relaxed);
        if number < RECKON || number.is_multiple_of(RECKON) {
            self.reckon_hot((number as usize + 1).min(RECENT));
        }
    }

    fn reckon_hot(&self, count: usize) {
        let mut told = [(0, 0.0); RECENT];
        for (told, kept) in told.iter_mut().zip(&self.recent) {
            let kept = kept.load(Ordering::Relaxed);
            *told = ((kept >> 32) as u32, f32::from_bits(kept as u32));
        }
        let hot = hot_above(&mut told[..count]);
        self.hot.store(hot.to_bits(), Ordering::Relaxed);
    }
}

/// Above how many requests in flight one is hot, where backends told this: (index, requests in flight). In any order;
/// not empty.
///
/// In a small pool one backend's own words are so many of all that the quantile would be among them, and it would never
/// be hot. So the busiest of such does not count.
fn hot_above(told: &mut [(u32, f32)]) -> f32 {
    told.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let beyond = (1.0 - HOT_QUANTILE) * told.len() as f64;
    let mean = |own: &[(u32, f32)]| own.iter().map(|told| told.1).sum::<f32>() / own.len() as f32;
    let of_each = told.chunk_by(|a, b| a.0 == b.0);
    let decides = of_each.filter(|own| own.len() as f64 > beyond);
    let busiest = decides.max_by(|a, b| mean(a).total_cmp(&mean(b)));
    let left_out = busiest.filter(|own| own.len() < told.len());
    let left_out = left_out.map(|own| own[0].0);
    let mut counted = [0.0; RECENT];
    let mut count = 0;
    for &(_, in_flight) in told.iter().filter(|told| Some(told.0) != left_out) {
        counted[count] = in_flight;
        count += 1;
    }
    let counted = &mut counted[..count];
    counted.sort_unstable_by(f32::total_cmp);
    let at = |quantile: f64| counted[((count - 1) as f64 * quantile).ceil() as usize];
    at(HOT_QUANTILE).min(OUTLYING * (at(0.5) + 1.0))
}

/// The answers of all threads, and how many probes may be made.
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

    /// Reports in turn, one of each backend, as often as `rounds`.
    fn told(loads: &[f32], rounds: usize) -> Vec<(u32, f32)> {
        let one = || (0..).zip(loads.iter().copied());
        (0..rounds).flat_map(|_| one()).collect()
    }

    #[test]
    fn a_backend_s_own_words_never_make_it_cold_in_whatever_small_a_pool() {
        for honest in 1..20 {
            for claimed in [30.0, 1e6] {
                let mut loads = vec![3.0; honest];
                loads.push(claimed);
                let hot = hot_above(&mut told(&loads, 64 / loads.len()));
                assert!((3.0..30.0).contains(&hot), "{honest} and {claimed}: {hot}");
            }
        }
    }

    #[test]
    fn some_that_claim_what_nobody_comes_near_are_hot_though_they_be_many() {
        let hot = hot_above(&mut told(&[2.0, 3.0, 1e6, 2.0, 1e6, 4.0], 10));
        assert!((4.0..100.0).contains(&hot), "{hot}");
    }

    #[test]
    fn larger_ones_that_have_more_to_do_are_not_hot_for_it() {
        let hot = hot_above(&mut told(&[1.0, 1.0, 2.0, 4.0, 4.0, 1.0, 1.0, 2.0], 8));
        assert!(hot >= 4.0, "{hot}");
    }

    #[test]
    fn of_the_last_sixteen_answers_each_is_drawn() {
        let shard = Shard::default();
        assert_eq!(shard.latest(0), None);
        for index in 0..40 {
            shard.hear(index, 1.0);
        }
        let drawn = (0..1_000).filter_map(|n| shard.latest(mix(n)));
        let drawn: std::collections::BTreeSet<u32> = drawn.collect();
        assert_eq!(drawn, (24..40).collect());
    }
}
