//! The machine that joins the rest: members, health, ejection, panic and policy of one pool.
//!
//! `pick` and `observe` are the hot path: atomics and one load of the picker in force. What they
//! find out takes effect at once through a backend's gate; the slow half (how long an ejection
//! lasts, panic, the next picker) follows with the next [`Pool::tick`]. Control (`update`, `probed`,
//! `set_admin`, `tick`) takes a mutex that the hot path takes only when it finds no backend although
//! something has just changed.
//!
//! A driver calls `tick` when [`Pool::deadline`] has come or [`Pool::is_dirty`] says so.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ejection::EjectionConfig;
use crate::policy::Picker;
use crate::time::Instant;

mod adapt;
mod claim;
mod control;
mod entry;
mod event;
mod explain;
mod outcome;
pub(crate) mod shared;
mod spread;
mod status;

use control::Control;
use shared::{Shared, work};

pub use crate::adaptive::{AdaptiveConfig, AdaptiveState};
pub use crate::availability::Admin;
pub use crate::backend::told::LoadSaid;
pub use crate::backend::{Address, Backend, Member};
pub use crate::health::{Health, ProbeResult};
pub use crate::policy::{LoadProbe, LoadReport, LoadSource, PolicyKind, PrequalConfig};
pub use crate::retry::{RetryBudget, RetryBudgetConfig};
pub use crate::spread::{Place, SpreadConfig, Subset};
pub use claim::Claim;
pub use event::{EjectionEnd, Event};
pub use explain::{Explained, PassedOver, Why};
pub use outcome::{Failure, Outcome, RETRY_AFTER_MAX};
pub use status::{BackendStatus, PoolStatus};

/// How a pool decides.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// Who gets a request.
    pub policy: PolicyKind,
    /// For policies that go by a hash: no backend gets a request while it has more in flight than this
    /// times the mean of those that may be picked, by weight; the request goes on along its hash's own
    /// order. 1.0 or more, 1.25 is usual: the nearer to 1, the longer the way. Default none.
    pub hash_load_bound: Option<f64>,
    /// Share of healthy backends below which health is ignored, `0.0..=1.0`; 0 for never. Default 0.5.
    pub panic_threshold: f64,
    /// Passed probes in a row that bring a backend up. Default 2.
    pub rise: u32,
    /// Failed probes in a row that take it down. Default 3.
    pub fall: u32,
    /// Whether the pool has active checks at all. Without, refused backends are tried by traffic.
    pub probed: bool,
    /// Passive checks.
    pub ejection: EjectionConfig,
    /// How weights follow what traffic says.
    pub adaptive: AdaptiveConfig,
    /// How traffic is spread over tiers and zones, and over which part of the pool.
    pub spread: SpreadConfig,
    /// How many retries are allowed.
    pub retry_budget: RetryBudgetConfig,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            policy: PolicyKind::default(),
            hash_load_bound: None,
            panic_threshold: 0.5,
            rise: 2,
            fall: 3,
            probed: false,
            ejection: EjectionConfig::default(),
            adaptive: AdaptiveConfig::default(),
            spread: SpreadConfig::default(),
            retry_budget: RetryBudgetConfig::default(),
        }
    }
}

/// What a pick depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pick<'a> {
    /// The time.
    pub now: Instant,
    /// Any random number, a new one for each pick.
    pub random: u64,
    /// The request's hash, for policies that go by it.
    pub hash: Option<u64>,
    /// [`Backend::id`] of those that this request already tried. They are avoided while another
    /// usable backend remains, and used again when none does.
    pub tried: &'a [u64],
    /// Any number that is stable for the calling thread, as for [`Pool::observe`]; equal numbers only share cache
    /// lines, and what backends said.
    pub worker: usize,
}

/// Why nobody was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoPick {
    /// No members, or the operator left none in.
    Empty,
    /// All are down, ejected or refusing, and there is no panic that would ignore that.
    NoneUsable,
    /// All that are usable have as many requests in flight as they may.
    Saturated,
}

impl fmt::Display for NoPick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the pool has no backend that may get traffic",
            Self::NoneUsable => "no backend of the pool is usable",
            Self::Saturated => "all usable backends have as many requests in flight as they may",
        })
    }
}

impl std::error::Error for NoPick {}

/// The pool has no member of this key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBackend {
    /// The key that was asked for.
    pub key: Arc<str>,
}

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool has no backend {}", self.key)
    }
}

impl std::error::Error for UnknownBackend {}

/// A pool of backends. See the module.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    control: Mutex<Control>,
    retry_budget: RetryBudget,
}

impl Pool {
    /// A pool whose members nothing is known of yet. `random` decides where a policy that goes in
    /// turn begins, so that many balancers do not begin at the same backend; 0 begins at the first.
    pub fn new(now: Instant, config: PoolConfig, members: Vec<Member>, random: u64) -> Self {
        let retry_budget = RetryBudget::new(now, config.retry_budget);
        let shared = Arc::new(Shared::new(Picker::empty()));
        let mut control = Control::new(Arc::clone(&shared), config.clone(), random);
        control.update(now, config, members);
        // That all members joined is no news.
        control.take_events();
        Self {
            shared,
            control: Mutex::new(control),
            retry_budget,
        }
    }

    /// Takes over new configuration and membership. Live state is carried by key; a backend whose
    /// address changed is a new one. Gives all transitions since the last call that gave some.
    pub fn update(&self, now: Instant, config: PoolConfig, members: Vec<Member>) -> Vec<Event> {
        self.retry_budget.configure(config.retry_budget);
        let mut control = self.control();
        control.update(now, config, members);
        control.take_events()
    }

    /// Claims a backend: its place is taken until the claim drops. No lock and no allocation, but
    /// for a pick that finds nobody while members or gates change: that one waits for the change, or
    /// does the work of a `tick` first (its events wait for the next).
    ///
    /// # Errors
    /// [`NoPick`] says why nobody was picked.
    pub fn pick(&self, pick: &Pick<'_>) -> Result<Claim, NoPick> {
        let epoch = self.shared.epoch();
        self.pick_once(pick)
            .or_else(|nobody| self.pick_settled(pick, epoch, nobody))
    }

    /// What became of a request that was claimed from here. `worker` is any number that is stable for
    /// the calling thread; equal numbers only share cache lines.
    pub fn observe(&self, now: Instant, worker: usize, backend: &Backend, outcome: Outcome) {
        outcome::observe(&self.shared, now, (worker, backend), outcome);
    }

    /// A backend says how much of what it can take is taken: 0 none, 1 all, more than that beyond. Anything
    /// that is no number or below 0 is ignored.
    pub fn report(&self, now: Instant, backend: &Backend, utilization: f64) {
        if utilization >= 0.0 {
            backend.live().report(now, utilization);
        }
    }

    /// A backend says how many requests it has in flight, and how long one takes at that. Heard by policies that go
    /// by it ([`PolicyKind::Prequal`]); ignored if it is no number, below 0 or above [`LoadReport::IN_FLIGHT_MAX`].
    pub fn note_load(
        &self,
        now: Instant,
        backend: &Backend,
        report: LoadReport,
        source: LoadSource,
    ) {
        if (0.0..=LoadReport::IN_FLIGHT_MAX).contains(&report.in_flight) {
            self.shared.picker.load().hear(now, backend, report, source);
        }
    }

    /// Whom to ask for their load now, if the policy goes by that: as many as the picks since the last call ask
    /// for, within `config`. `random` is any random number, a new one for each call.
    pub fn load_probes(&self, now: Instant, random: u64, config: PrequalConfig) -> Vec<LoadProbe> {
        self.shared.picker.load().load_probes(now, random, config)
    }

    /// What a probe found. Ignored if the pool has no probes, or no such member (any more).
    pub fn probed(&self, now: Instant, key: &str, result: ProbeResult) {
        self.control().probed(now, key, result);
    }

    /// What the operator wants of a backend. Takes effect with the next pick, and stays with the
    /// key: also while the backend is gone, and over a change of its address.
    ///
    /// # Errors
    /// [`UnknownBackend`] if there is no such member.
    pub fn set_admin(&self, now: Instant, key: &str, admin: Admin) -> Result<(), UnknownBackend> {
        self.control().set_admin(now, key, admin)
    }

    /// Does what is due: ends ejections, offers trials, decides about panic, builds the next picker.
    /// Gives all transitions since the last call that gave some. Cheap when there is nothing to do.
    pub fn tick(&self, now: Instant) -> Vec<Event> {
        if !self.is_dirty() && self.shared.next().is_none_or(|next| now < next) {
            return Vec::new();
        }
        let mut control = self.control();
        control.advance(now);
        control.take_events()
    }

    /// When `tick` has work even if nothing happens until then.
    pub fn deadline(&self) -> Option<Instant> {
        self.shared.next()
    }

    /// Whether `tick` has work now. One atomic load.
    pub fn is_dirty(&self) -> bool {
        self.shared.work() != 0
    }

    /// The members, in configured order.
    pub fn backends(&self) -> Vec<Arc<Backend>> {
        self.shared.picker.load().membership.backends.clone()
    }

    /// All that is known of the pool, for people and metrics. Takes note of fresh marks first, as a
    /// `tick` does; events wait for the next.
    pub fn status(&self, now: Instant) -> PoolStatus {
        let mut control = self.control();
        if self.shared.work() & work::STALE != 0 {
            control.advance(now);
        }
        control.status(now)
    }

    /// Whether the only backends that may be picked are those that refused their last connections, so that
    /// a request can show that one is back.
    pub fn is_last_resort(&self) -> bool {
        self.shared.is_last_resort()
    }

    /// The pool's retry budget.
    pub fn retry_budget(&self) -> &RetryBudget {
        &self.retry_budget
    }

    /// What is left of a pick that found `nobody`, where `epoch` is that of before.
    #[cold]
    fn pick_settled(
        &self,
        pick: &Pick<'_>,
        mut epoch: u64,
        mut nobody: NoPick,
    ) -> Result<Claim, NoPick> {
        loop {
            let is_stale = self.shared.work() & work::STALE != 0;
            if !is_stale && epoch.is_multiple_of(2) && epoch == self.shared.epoch() {
                return Err(nobody);
            }
            // Nobody, among members that were just being changed: the answer is what comes of the change.
            let mut control = self.control();
            if self.shared.work() & work::STALE != 0 {
                control.advance(pick.now);
            }
            drop(control);
            epoch = self.shared.epoch();
            match self.pick_once(pick) {
                Ok(claim) => return Ok(claim),
                Err(again) => nobody = again,
            }
        }
    }

    #[inline]
    fn pick_once(&self, pick: &Pick<'_>) -> Result<Claim, NoPick> {
        let picker = self.shared.picker.load();
        let mask = self.shared.mask();
        let due = self.shared.take_due();
        let claim = match due.and_then(|id| picker.claim_due(id, mask, pick)) {
            Some(claim) => claim,
            None => picker.pick(mask, pick)?,
        };
        if picker.keeps_load() && picker.generation() != self.shared.generation() {
            // The claim was counted in a table that is no longer in force.
            self.shared.refresh(claim.backend());
        }
        Ok(claim)
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Backends know the shared words, and the picker in there knows the backends.
        self.shared.publish(Picker::empty());
    }
}

#[cfg(test)]
mod tests;
