//! Which of the usable backends a request gets.
//!
//! A [`PolicyKind`] names a policy; its table is built off the hot path and swapped in whole, as part
//! of a *picker*. A table is built over the *candidates* (members that may be picked), but it never
//! trusts that list: each pick tests the backend's gate, so that a mark takes effect before the next
//! build. A policy that finds nothing within a few tries leaves the rest to one scan, so that no
//! request fails while one backend could serve it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::availability::Gate;
use crate::backend::Backend;
use crate::pool::{Claim, NoPick, Pick};
use crate::time::Instant;

mod alias;
mod bound;
mod build;
mod chance;
mod groups;
mod hashing;
mod least;
mod maglev;
mod peak_ewma;
mod power_of_two;
pub(crate) mod prequal;
mod random;
mod ring;
mod round_robin;
mod split;
mod tree;
mod weighted;

pub(crate) use build::{Blueprint, build};
pub(crate) use chance::{below, mix};
pub(crate) use groups::Groups;
use hashing::Places;
pub use hashing::stable_hash;
use prequal::Probes;
pub use prequal::{LoadProbe, LoadReport, LoadSource, PrequalConfig};

/// How a pool balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum PolicyKind {
    /// At random, by weight.
    Random,
    /// In turn, whatever the weights.
    RoundRobin,
    /// In turn, each as often as its weight, spread evenly.
    WeightedRoundRobin,
    /// Fewest requests in flight for the weight.
    LeastConnections,
    /// Least (in flight + 1) × latency for the weight.
    LeastResponseTime,
    /// The better of two drawn at random.
    #[default]
    PowerOfTwo,
    /// The better of two drawn at random, by (in flight + 1) × the peak of latency.
    PeakEwma,
    /// The quickest of those that say that they have little to do.
    Prequal,
    /// By the request's hash, on a ring.
    ConsistentHash,
    /// By the request's hash, in a table.
    Maglev,
}

impl PolicyKind {
    /// Each of them.
    pub const ALL: [Self; 10] = [
        Self::Random,
        Self::RoundRobin,
        Self::WeightedRoundRobin,
        Self::LeastConnections,
        Self::LeastResponseTime,
        Self::PowerOfTwo,
        Self::PeakEwma,
        Self::Prequal,
        Self::ConsistentHash,
        Self::Maglev,
    ];

    /// Its name in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round_robin",
            Self::WeightedRoundRobin => "weighted_round_robin",
            Self::LeastConnections => "least_connections",
            Self::LeastResponseTime => "least_response_time",
            Self::PowerOfTwo => "power_of_two",
            Self::PeakEwma => "peak_ewma",
            Self::Prequal => "prequal",
            Self::ConsistentHash => "consistent_hash",
            Self::Maglev => "maglev",
        }
    }
}

impl PolicyKind {
    /// Whether weights that adapt change whom it picks. One that goes by a hash leaves keys where they
    /// are, and `round_robin` gives everybody a turn.
    pub fn follows_weight(self) -> bool {
        !matches!(self, Self::RoundRobin | Self::ConsistentHash | Self::Maglev)
    }

    /// Whether failures count as requests in flight, and need not count as latency.
    pub(crate) fn counts_failures_as_load(self) -> bool {
        matches!(self, Self::PowerOfTwo | Self::Prequal)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A request that failed at this many goes to one that is kept back, if there is any: a tier or a zone dies
/// as a whole, and tries are few.
const TRIED_ENOUGH: usize = 2;

/// A policy's table.
pub(crate) trait Policy: Send + Sync {
    /// Claims a backend. `None` if a bounded number of tries found none that may be picked.
    fn pick(&self, view: &View<'_>) -> Option<Claim>;

    /// Whether it keeps figures of load, and so has to hear of changes.
    fn keeps_load(&self) -> bool {
        false
    }

    /// The load or the gate of the backend at `index` changed.
    fn refresh(&self, _membership: &Membership, _index: usize) {}

    /// Who was served last, for policies that go in turn: an index into the membership, and how far
    /// through its cycle the table is, `0.0..1.0`.
    fn progress(&self) -> Option<Progress> {
        None
    }

    /// Where hashes go, for policies that go by them.
    fn places(&self) -> Option<&Arc<Places>> {
        None
    }

    /// Whom a pick would compare, for policies that draw two: indices into the membership.
    fn drawn(&self, _view: &View<'_>) -> Option<(usize, Option<usize>)> {
        None
    }

    /// How many requests in flight the backend at `index` may have at present by a bound of the policy's.
    fn limit(&self, _index: usize) -> Option<u32> {
        None
    }

    /// What backends said of their load, for policies that go by it.
    fn probes(&self) -> Option<&Arc<Probes>> {
        None
    }

    /// The backend at an index into the membership says how much it has to do.
    fn hear(
        &self,
        _now: Instant,
        (_membership, _index): (&Membership, usize),
        _report: LoadReport,
        _source: LoadSource,
    ) {
    }

    /// Where figures of load do not agree with the backends.
    #[cfg(test)]
    fn fault(&self, _membership: &Membership) -> Option<(usize, usize)> {
        None
    }

    /// When the table has to be built anew, although nothing changed.
    fn expires(&self) -> Option<Instant> {
        None
    }
}

/// Where a policy that goes in turn stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Progress {
    pub(crate) last: u32,
    pub(crate) phase: f64,
}

/// The members of a pool, in configured order. Shared by the pickers of one configuration.
pub(crate) struct Membership {
    pub(crate) backends: Vec<Arc<Backend>>,
    /// Ids with their index, by id.
    ids: Vec<(u64, u32)>,
    /// Latency level (see `backend::load`) that a backend without samples is taken to have.
    default_latency: AtomicU64,
}

impl Membership {
    pub(crate) fn new(backends: Vec<Arc<Backend>>) -> Self {
        let mut ids: Vec<(u64, u32)> = backends
            .iter()
            .zip(0..)
            .map(|(backend, index)| (backend.id(), index))
            .collect();
        ids.sort_unstable();
        Self {
            backends,
            ids,
            default_latency: AtomicU64::new(0f64.to_bits()),
        }
    }

    pub(crate) fn index_of_id(&self, id: u64) -> Option<usize> {
        let at = self.ids.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(self.ids[at].1 as usize)
    }

    /// Whether the same backends stand in the same places.
    fn is_of_same(&self, other: &Self) -> bool {
        self.ids == other.ids
    }

    fn index_of(&self, backend: &Backend) -> Option<usize> {
        let hint = backend.live().slot.load(Ordering::Relaxed) as usize;
        match self.backends.get(hint) {
            Some(there) if std::ptr::eq(&raw const **there, backend) => Some(hint),
            _ => self.index_of_id(backend.id()),
        }
    }

    pub(crate) fn default_latency(&self) -> f64 {
        f64::from_bits(self.default_latency.load(Ordering::SeqCst))
    }

    pub(crate) fn set_default_latency(&self, level: f64) {
        self.default_latency
            .store(level.to_bits(), Ordering::SeqCst);
    }
}

/// The table in force, with all that a pick needs beside it.
pub(crate) struct Picker {
    pub(crate) membership: Arc<Membership>,
    /// Members that may be picked, as indices in ascending order.
    pub(crate) candidates: Vec<u32>,
    /// Members that are asked where no candidate is left for a request: by group, in order.
    pub(crate) reserve: Vec<Vec<u32>>,
    /// Whether the policy is one for each of several groups.
    pub(crate) is_split: bool,
    /// Whether there are members that are not asked although nothing speaks against them.
    pub(crate) keeps_back: bool,
    pub(crate) policy: Arc<dyn Policy>,
    /// `policy.keeps_load()`, without the call.
    keeps_load: bool,
    pub(crate) generation: u64,
    /// Whether people left any member in.
    pub(crate) any_ready: bool,
}

impl Picker {
    pub(crate) fn new(
        membership: Arc<Membership>,
        candidates: Vec<u32>,
        policy: Arc<dyn Policy>,
    ) -> Self {
        Self {
            keeps_load: policy.keeps_load(),
            membership,
            candidates,
            reserve: Vec::new(),
            is_split: false,
            keeps_back: false,
            policy,
            generation: 0,
            any_ready: false,
        }
    }

    /// A picker that never picks.
    pub(crate) fn empty() -> Self {
        let membership = Arc::new(Membership::new(Vec::new()));
        Self::new(membership, Vec::new(), Arc::new(Nobody))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn keeps_load(&self) -> bool {
        self.keeps_load
    }

    #[inline]
    pub(crate) fn pick(&self, mask: Gate, pick: &Pick<'_>) -> Result<Claim, NoPick> {
        if self.candidates.is_empty() {
            return Err(self.nobody());
        }
        let view = View {
            membership: &self.membership,
            candidates: &self.candidates,
            mask,
            pick,
        };
        if pick.tried.len() >= TRIED_ENOUGH
            && let Some(claim) = self.fall_back(&view)
        {
            return Ok(claim);
        }
        match self.policy.pick(&view) {
            Some(claim) => Ok(claim),
            None => self.pick_anybody(&view),
        }
    }

    /// What is left where the policy found nobody. Apart from [`pick`](Self::pick), which is the shorter for it.
    #[cold]
    fn pick_anybody(&self, view: &View<'_>) -> Result<Claim, NoPick> {
        self.scan(view).ok_or_else(|| self.why(view))
    }

    /// Who is drawn for `pick`: see [`Policy::drawn`].
    pub(crate) fn drawn(&self, mask: Gate, pick: &Pick<'_>) -> Option<(usize, Option<usize>)> {
        if self.candidates.is_empty() {
            return None;
        }
        self.policy.drawn(&View {
            membership: &self.membership,
            candidates: &self.candidates,
            mask,
            pick,
        })
    }

    /// Claims a backend that is due a request, if this request may get it.
    pub(crate) fn claim_due(&self, id: u64, mask: Gate, pick: &Pick<'_>) -> Option<Claim> {
        let index = self.membership.index_of_id(id)?;
        let view = View {
            membership: &self.membership,
            candidates: &self.candidates,
            mask,
            pick,
        };
        let claim = view.claim(index);
        self.policy.refresh(&self.membership, index);
        claim
    }

    pub(crate) fn refresh(&self, backend: &Backend) {
        if let Some(index) = self.membership.index_of(backend) {
            self.policy.refresh(&self.membership, index);
        }
    }

    pub(crate) fn refresh_all(&self) {
        for index in 0..self.membership.backends.len() {
            self.policy.refresh(&self.membership, index);
        }
    }

    /// A backend says how much it has to do.
    pub(crate) fn hear(
        &self,
        now: Instant,
        backend: &Backend,
        report: LoadReport,
        source: LoadSource,
    ) {
        // Only a policy that goes by it has to find the place.
        if self.policy.probes().is_some()
            && let Some(index) = self.membership.index_of(backend)
        {
            self.policy
                .hear(now, (&self.membership, index), report, source);
        }
    }

    /// Whom to ask how much they have to do.
    pub(crate) fn load_probes(
        &self,
        now: Instant,
        random: u64,
        config: PrequalConfig,
    ) -> Vec<LoadProbe> {
        let Some(probes) = self.policy.probes().filter(|_| !self.candidates.is_empty()) else {
            return Vec::new();
        };
        let due = probes.due(now, random, (config, &self.candidates));
        due.into_iter()
            .map(|(index, workers)| LoadProbe {
                backend: Arc::clone(&self.membership.backends[index as usize]),
                workers,
            })
            .collect()
    }

    /// What is usual at backends of this pool: the mean of a few, chosen by `random`.
    pub(crate) fn usual(&self, now: Instant, random: u64) -> Usual {
        const SAMPLES: usize = 8;
        let backends = &self.membership.backends;
        // Who is not asked has no load, which says nothing of what is usual.
        let asked = Some(&self.candidates).filter(|asked| self.keeps_back && !asked.is_empty());
        let members = asked.map_or(backends.len(), Vec::len);
        let start = below(random, members);
        let count = SAMPLES.min(members);
        let (mut load, mut latency, mut known) = (0.0, 0.0, 0.0f64);
        for at in (0..members).cycle().skip(start).take(count) {
            let backend = &backends[asked.map_or(at, |asked| asked[at] as usize)];
            load += f64::from(backend.in_flight());
            if let Some(estimate) = backend.latency(now) {
                latency += estimate.as_secs_f64();
                known += 1.0;
            }
        }
        Usual {
            load: load / count.max(1) as f64,
            latency: Duration::from_secs_f64(latency / known.max(1.0)),
        }
    }

    /// The last resort: any candidate that may be picked, from a random start; then one that is kept back;
    /// those already tried only if there is no other.
    fn scan(&self, view: &View<'_>) -> Option<Claim> {
        let untried = self
            .scan_where(view, |index| !view.is_tried(index))
            .or_else(|| self.fall_back(view));
        if untried.is_some() || view.pick.tried.is_empty() {
            return untried;
        }
        self.scan_where(view, |index| view.is_tried(index))
    }

    fn fall_back(&self, view: &View<'_>) -> Option<Claim> {
        self.reserve.iter().find_map(|group| {
            let view = View {
                candidates: group,
                mask: view.mask.without(Gate::STANDBY),
                ..*view
            };
            self.scan_where(&view, |index| !view.is_tried(index))
        })
    }

    fn scan_where(&self, view: &View<'_>, wanted: impl Fn(usize) -> bool) -> Option<Claim> {
        let start = below(mix(view.pick.random ^ 0x5CA4), view.candidates.len());
        let (before, from) = view.candidates.split_at(start);
        from.iter()
            .chain(before)
            .map(|&index| index as usize)
            .filter(|&index| wanted(index) && view.is_open(index))
            .find_map(|index| {
                let claim = view.claim_at(index)?;
                if self.keeps_load {
                    self.policy.refresh(&self.membership, index);
                }
                Some(claim)
            })
    }

    fn why(&self, view: &View<'_>) -> NoPick {
        let any_open = self.candidates.iter().any(|&index| {
            let gate = self.membership.backends[index as usize].live().gate.load();
            !gate.has(view.mask)
        });
        if any_open {
            NoPick::Saturated
        } else {
            self.nobody()
        }
    }

    fn nobody(&self) -> NoPick {
        if self.any_ready {
            NoPick::NoneUsable
        } else {
            NoPick::Empty
        }
    }
}

/// Load and latency of backends of a pool, about. Latency is zero if none is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual {
    pub(crate) load: f64,
    pub(crate) latency: Duration,
}

/// What a policy sees of one pick.
pub(crate) struct View<'a> {
    pub(crate) membership: &'a Membership,
    pub(crate) candidates: &'a [u32],
    pub(crate) mask: Gate,
    pub(crate) pick: &'a Pick<'a>,
}

impl View<'_> {
    #[inline]
    pub(crate) fn backend(&self, index: usize) -> &Arc<Backend> {
        &self.membership.backends[index]
    }

    /// Whether the backend at `index` may be picked by anybody.
    #[inline]
    pub(crate) fn is_open(&self, index: usize) -> bool {
        let live = self.backend(index).live();
        !live.gate.load().has(self.mask) && !live.is_saturated()
    }

    /// Whether this request tried it already.
    #[inline]
    pub(crate) fn is_tried(&self, index: usize) -> bool {
        let tried = self.pick.tried;
        !tried.is_empty() && tried.contains(&self.backend(index).id())
    }

    /// Whether this request may get it.
    #[inline]
    pub(crate) fn is_eligible(&self, index: usize) -> bool {
        self.is_open(index) && !self.is_tried(index)
    }

    /// Claims it, tried or not.
    #[inline]
    pub(crate) fn claim_at(&self, index: usize) -> Option<Claim> {
        self.claim_of(self.backend(index))
    }

    /// Claims that backend, tried or not.
    #[inline]
    pub(crate) fn claim_of(&self, backend: &Arc<Backend>) -> Option<Claim> {
        Claim::take(backend, self.mask, u32::MAX)
    }

    /// Claims it if this request may get it and it has fewer than `limit` in flight.
    pub(crate) fn claim_below(&self, index: usize, limit: u32) -> Option<Claim> {
        // Looked at first: most that are full are found so, without a write.
        if self.backend(index).in_flight() >= limit || !self.is_eligible(index) {
            return None;
        }
        Claim::take(self.backend(index), self.mask, limit)
    }

    /// Whether its failures of late count for more than what it has in flight.
    pub(crate) fn is_failing(&self, index: usize) -> bool {
        let live = self.backend(index).live();
        let penalty = live.penalty.at(self.pick.now);
        penalty > 0.0 && f64::from(penalty) > f64::from(live.in_flight())
    }

    /// Claims it if this request may get it.
    pub(crate) fn claim(&self, index: usize) -> Option<Claim> {
        if self.is_eligible(index) {
            self.claim_at(index)
        } else {
            None
        }
    }
}

/// The policy of a pool without members.
struct Nobody;

impl Policy for Nobody {
    fn pick(&self, _view: &View<'_>) -> Option<Claim> {
        None
    }
}

/// The mean latency level of those that have one: what a backend without samples is taken to have,
/// so that a new one is neither flooded nor starved.
pub(crate) fn level_of_mean(membership: &Membership, now: Instant) -> f64 {
    use crate::backend::load::LATENCY_TAU;
    /// Taken where nothing is known at all, seconds: any value would do.
    const GUESS: f64 = 0.01;
    let shift = now.as_secs_f64() / LATENCY_TAU;
    let (mut sum, mut count) = (0.0, 0u32);
    for backend in &membership.backends {
        if let Some(level) = backend.live().latency.level() {
            sum += (level - shift).exp();
            count += 1;
        }
    }
    let mean = if count == 0 {
        GUESS
    } else {
        sum / f64::from(count)
    };
    mean.ln() + shift
}
