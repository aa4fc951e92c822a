//! The slow half of a pool, behind its mutex.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::availability::{Admin, Gate, Panic};
use crate::backend::{Backend, Member, next_id};
use crate::health::ProbeResult;
use crate::policy::{Blueprint, Membership, Picker, PolicyKind, build, level_of_mean};
use crate::spread::Spread;
use crate::time::Instant;

use super::adapt::Looks;
use super::entry::{Context, Entry};
use super::event::Event;
use super::shared::{Shared, work};
use super::status::{BackendStatus, PoolStatus};
use super::{PoolConfig, UnknownBackend};

/// How often the leaves of penalised backends are refreshed, where the policy keeps leaves.
const FADE_INTERVAL: Duration = Duration::from_millis(100);

mod copy;

pub(crate) struct Control {
    pub(super) shared: Arc<Shared>,
    pub(super) config: PoolConfig,
    pub(super) entries: Vec<Entry>,
    by_key: BTreeMap<Arc<str>, usize>,
    membership: Arc<Membership>,
    /// Deadlines of entries, by backend id. Entries may have changed their mind since: one that
    /// comes early does nothing.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    pub(super) panic: Panic,
    /// How traffic is spread over tiers, zones and a subset, where there are any.
    pub(super) spread: Option<Spread>,
    pub(super) events: Vec<Event>,
    departed: BTreeMap<Arc<str>, Departed>,
    penalised: Vec<u64>,
    next_fade: Option<Instant>,
    pub(super) looks: Looks,
    /// What the policy in force was built for.
    pub(super) built: Option<PolicyKind>,
    seed: u64,
}

/// A member that left, for as long as it still has requests in flight or an operator's word on it.
struct Departed {
    admin: Admin,
    backend: Weak<Backend>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>, config: PoolConfig, seed: u64) -> Self {
        Self {
            shared,
            config,
            entries: Vec::new(),
            by_key: BTreeMap::new(),
            membership: Arc::new(Membership::new(Vec::new())),
            timers: BinaryHeap::new(),
            panic: Panic::default(),
            spread: None,
            events: Vec::new(),
            departed: BTreeMap::new(),
            penalised: Vec::new(),
            next_fade: None,
            looks: Looks::default(),
            built: None,
            seed,
        }
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        self.announce();
        let events = std::mem::take(&mut self.events);
        self.shared.dismiss(work::EVENTS);
        events
    }

    /// Does what the marks of requests and the clock ask for.
    pub(crate) fn advance(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let _change = shared.begin_change();
        let asked = self.shared.take_work();
        let mut stale = asked & work::STALE != 0;
        if stale {
            self.each_entry(now, Entry::reconcile);
        }
        stale |= self.run_timers(now);
        if asked & work::TRAFFIC != 0 {
            self.looks.begin(now);
        }
        if self.looks.is_due(now) {
            stale |= self.look(now);
        }
        if asked & work::FADING != 0 || self.next_fade.is_some_and(|next| next <= now) {
            self.fade(now);
        }
        let expired = self.shared.picker.load().policy.expires();
        if expired.is_some_and(|at| at <= now) {
            self.built = None;
            stale = true;
        }
        if stale {
            self.settle(now);
        }
        self.announce();
    }

    pub(crate) fn probed(&mut self, now: Instant, key: &str, result: ProbeResult) {
        if self.config.probed {
            self.one_entry(now, key, |entry, context| {
                entry.observe_probe(context, result)
            });
        }
    }

    pub(crate) fn set_admin(
        &mut self,
        now: Instant,
        key: &str,
        admin: Admin,
    ) -> Result<(), UnknownBackend> {
        self.one_entry(now, key, |entry, context| entry.set_admin(context, admin))
            .ok_or_else(|| UnknownBackend { key: key.into() })
    }

    pub(crate) fn update(&mut self, now: Instant, config: PoolConfig, members: Vec<Member>) {
        let shared = Arc::clone(&self.shared);
        let _change = shared.begin_change();
        let asked = self.shared.take_work();
        self.each_entry(now, Entry::reconcile);
        let weights = self.weights();
        let before = Arc::clone(&self.membership);
        let changed_kind = self.config.policy != config.policy
            || self.config.hash_load_bound != config.hash_load_bound;
        self.config = config;
        self.replace_members(now, members);
        self.configure_shared();
        self.each_entry(now, Entry::reconfigure);

        let unchanged = before.backends.len() == self.entries.len()
            && self
                .entries
                .iter()
                .zip(&before.backends)
                .all(|(entry, old)| Arc::ptr_eq(&entry.backend, old));
        if !unchanged {
            let backends = self
                .entries
                .iter()
                .map(|entry| Arc::clone(&entry.backend))
                .collect();
            self.membership = Arc::new(Membership::new(backends));
        }
        if !unchanged || changed_kind || weights != self.weights() {
            self.built = None;
        }
        self.settle(now);
        if asked & work::FADING != 0 {
            self.fade(now);
        }
        if asked & work::TRAFFIC != 0 {
            self.looks.begin(now);
        }
        self.announce();
    }

    pub(crate) fn status(&self, now: Instant) -> PoolStatus {
        let census = self.census();
        let mode = self.mode(census);
        let backends: Vec<BackendStatus> = self
            .entries
            .iter()
            .enumerate()
            .map(|(index, entry)| BackendStatus::of(entry, now, mode, self.standing_reason(index)))
            .collect();
        PoolStatus {
            policy: self.config.policy,
            panic: self.panic.is_on(),
            belief: self.belief_in_panic(),
            spread: self.spread_described(),
            mode,
            usable: backends.iter().filter(|backend| backend.usable).count(),
            healthy: census.usable,
            ready: census.ready,
            total: backends.len(),
            backends,
        }
    }

    fn weights(&self) -> Vec<u32> {
        self.entries
            .iter()
            .map(|entry| entry.backend.weight())
            .collect()
    }

    fn configure_shared(&mut self) {
        let ejection = &self.config.ejection;
        let limits = (
            ejection.consecutive_failures.max(1),
            ejection.consecutive_errors.max(1),
        );
        self.shared.set_limits(ejection.enabled.then_some(limits));
        self.shared
            .set_ejected_max(ejection.ejected_max(self.entries.len()));
        self.shared.set_probed(self.config.probed);
        self.shared
            .set_keeps_peaks(self.config.policy == PolicyKind::PeakEwma);
        self.shared
            .set_charges_latency(!self.config.policy.counts_failures_as_load());
        let is_watched = self.config.ejection.enabled || self.config.adaptive.enabled;
        if !is_watched {
            self.looks = Looks::default();
        }
        // Who looks anyway, or never, need not be told of traffic.
        self.shared.set_watched(!is_watched);
    }

    fn replace_members(&mut self, now: Instant, members: Vec<Member>) {
        let same_keys = members.len() == self.entries.len()
            && members
                .iter()
                .zip(&self.entries)
                .all(|(member, entry)| member.key == *entry.backend.key());
        if same_keys {
            let entries = std::mem::take(&mut self.entries).into_iter();
            self.entries = entries
                .zip(&members)
                .map(|(entry, member)| self.keep(now, entry, member))
                .collect();
            return;
        }
        let mut old: BTreeMap<Arc<str>, Entry> = self
            .entries
            .drain(..)
            .map(|entry| (Arc::clone(entry.backend.key()), entry))
            .collect();
        self.by_key.clear();
        // Where all are new nobody has to be spared.
        let is_new = old.is_empty();
        for member in members {
            if self.by_key.contains_key(&member.key) {
                continue;
            }
            let entry = match old.remove(&member.key) {
                Some(entry) => self.keep(now, entry, &member),
                None => self.join(now, &member, is_new),
            };
            self.by_key.insert(member.key, self.entries.len());
            self.entries.push(entry);
        }
        for (key, entry) in old {
            entry.retire(&self.shared);
            let in_flight = entry.backend.in_flight();
            self.events.push(Event::Left {
                backend: Arc::clone(&key),
                in_flight,
            });
            let backend = Arc::downgrade(&entry.backend);
            self.departed.insert(
                key,
                Departed {
                    admin: entry.admin,
                    backend,
                },
            );
        }
        self.departed
            .retain(|_, gone| gone.admin != Admin::Ready || gone.backend.strong_count() > 0);
    }

    /// A member that was there already.
    fn keep(&self, now: Instant, mut entry: Entry, member: &Member) -> Entry {
        if entry.backend.address() != &member.address {
            entry.retire(&self.shared);
            let entry = Entry::new(now, self.new_backend(member), entry.admin, &member.place);
            return self.started_slowly(now, entry);
        }
        entry
            .backend
            .live()
            .configure(member.weight, member.in_flight_max);
        entry.place.clone_from(&member.place);
        if entry.backend.version() != &member.version {
            entry.backend = Arc::new(Backend::relabelled(&entry.backend, &member.version));
        }
        entry
    }

    /// A member that was not, or not any more: if requests to it are still in flight they count on.
    fn join(&mut self, now: Instant, member: &Member, is_new: bool) -> Entry {
        let entry = self.joined(now, member);
        if is_new {
            entry
        } else {
            self.started_slowly(now, entry)
        }
    }

    fn started_slowly(&self, now: Instant, mut entry: Entry) -> Entry {
        if entry.adaptive.start_slowly(now, &self.config.adaptive) {
            self.shared.demand(work::TRAFFIC);
        }
        entry
    }

    fn joined(&mut self, now: Instant, member: &Member) -> Entry {
        self.events.push(Event::Joined {
            backend: Arc::clone(&member.key),
        });
        let Some(gone) = self.departed.remove(&member.key) else {
            return Entry::new(now, self.new_backend(member), Admin::Ready, &member.place);
        };
        let revived = gone
            .backend
            .upgrade()
            .filter(|backend| backend.address() == &member.address);
        let Some(backend) = revived else {
            return Entry::new(now, self.new_backend(member), gone.admin, &member.place);
        };
        backend.live().gate.clear(Gate::REMOVED.or(Gate::PENALISED));
        backend.live().clear_runs();
        self.shared.note_penalty(&backend);
        self.keep(
            now,
            Entry::new(now, backend, gone.admin, &member.place),
            member,
        )
    }

    fn new_backend(&self, member: &Member) -> Arc<Backend> {
        Arc::new(Backend::new(next_id(), member, Arc::clone(&self.shared)))
    }

    /// Changes one entry, if there is one of that key.
    fn one_entry(
        &mut self,
        now: Instant,
        key: &str,
        change: impl FnOnce(&mut Entry, &mut Context<'_>),
    ) -> Option<()> {
        let index = *self.by_key.get(key)?;
        let entry = &mut self.entries[index];
        let (before, due) = (entry.backend.live().gate.load(), entry.deadline());
        let mut context = Context::new(now, &self.shared, &self.config, &mut self.events);
        change(entry, &mut context);
        let after = entry.backend.live().gate.load();
        let reasons = Gate::NEVER.or(Gate::UNHEALTHY);
        if before.and(reasons) != after.and(reasons) {
            self.shared.demand(work::STALE);
            self.shared.refresh(&entry.backend);
        }
        if let Some(deadline) = entry.deadline().filter(|_| entry.deadline() != due) {
            self.timers.push(Reverse((deadline, entry.backend.id())));
        }
        self.announce();
        Some(())
    }

    pub(super) fn each_entry(
        &mut self,
        now: Instant,
        change: impl Fn(&mut Entry, &mut Context<'_>),
    ) {
        let mut context = Context::new(now, &self.shared, &self.config, &mut self.events);
        for entry in &mut self.entries {
            let before = entry.deadline();
            change(entry, &mut context);
            if let Some(deadline) = entry.deadline().filter(|_| entry.deadline() != before) {
                self.timers.push(Reverse((deadline, entry.backend.id())));
            }
        }
    }

    /// Runs the timers that are due; true if there were any.
    fn run_timers(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            let Some(index) = self.membership.index_of_id(id) else {
                continue;
            };
            let entry = &mut self.entries[index];
            if entry.deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            let mut context = Context::new(now, &self.shared, &self.config, &mut self.events);
            entry.run_timers(&mut context);
            self.shared.refresh(&entry.backend);
            if let Some(deadline) = entry.deadline() {
                self.timers.push(Reverse((deadline, id)));
            }
            any = true;
        }
        any
    }

    /// Refreshes the leaves of penalised backends: a penalty fades without any event.
    fn fade(&mut self, now: Instant) {
        self.penalised.extend(self.shared.take_penalised());
        let (shared, membership) = (&self.shared, &self.membership);
        self.penalised.retain(|&id| {
            let Some(index) = membership.index_of_id(id) else {
                return false;
            };
            let backend = &membership.backends[index];
            let live = backend.live();
            // Cleared first: a failure that comes now puts it on the list again.
            live.gate.clear(Gate::PENALISED);
            let faded = live.penalty.project(now) == 0.0;
            if !faded {
                live.gate.set(Gate::PENALISED);
            }
            shared.refresh(backend);
            !faded
        });
        self.next_fade = (!self.penalised.is_empty()).then(|| now + FADE_INTERVAL);
    }

    pub(super) fn is_panic(&self) -> bool {
        self.panic.is_on()
    }

    /// Decides about panic, and puts the picker in force that follows from all gates.
    fn settle(&mut self, now: Instant) {
        let census = self.census();
        let members = self.members();
        self.decide_panic(census, members.as_deref());
        let mode = self.mode(census);
        self.shared.set_mode(mode);
        self.set_levels();
        let groups = self.spread_out(mode, members);
        let candidates: Vec<u32> = self
            .entries
            .iter()
            .zip(0..)
            .filter(|(entry, _)| !entry.backend.live().gate.load().has(mode.mask()))
            .map(|(_, index)| index)
            .collect();
        if self.config.policy == PolicyKind::LeastResponseTime {
            let level = level_of_mean(&self.membership, now);
            self.membership.set_default_latency(level);
        }
        let previous = self.shared.picker.load_full();
        let is_split = groups.is_some();
        let policy = build(Blueprint {
            kind: self.config.policy,
            hash_load_bound: self.config.hash_load_bound,
            membership: &self.membership,
            candidates: &candidates,
            previous: &previous,
            groups,
            is_part: false,
            same: self.built == Some(self.config.policy),
            seed: self.seed,
            now,
            probes: None,
        });
        if policy.keeps_load() && !previous.keeps_load() {
            self.note_all_penalties(now);
        }
        self.built = Some(self.config.policy);
        if !Arc::ptr_eq(&previous.membership, &self.membership) {
            for (backend, index) in self.membership.backends.iter().zip(0..) {
                backend.live().slot.store(index, Ordering::Relaxed);
            }
        }
        let mut picker = Picker::new(Arc::clone(&self.membership), candidates, policy);
        picker.generation = previous.generation() + 1;
        picker.any_ready = census.ready > 0;
        picker.reserve = self.reserve(mode);
        picker.is_split = is_split;
        picker.keeps_back = self.spread.is_some();
        self.shared.publish(picker);
    }

    /// The policy begins to keep leaves: those with a penalty have to be refreshed from here on.
    fn note_all_penalties(&mut self, now: Instant) {
        for backend in &self.membership.backends {
            let live = backend.live();
            if live.penalty.project(now) > 0.0
                && !live.gate.set(Gate::PENALISED).has(Gate::PENALISED)
            {
                self.penalised.push(backend.id());
            }
        }
        if !self.penalised.is_empty() {
            self.next_fade = Some(now + FADE_INTERVAL);
        }
    }

    /// Tells the hot path and the driver what there is to do, and when.
    fn announce(&self) {
        if !self.events.is_empty() {
            self.shared.demand(work::EVENTS);
        }
        let timer = self.timers.peek().map(|&Reverse((at, _))| at);
        let expires = self.shared.picker.load().policy.expires();
        let looks = self.looks.next();
        let next = [timer, self.next_fade, expires, looks];
        let next = next.into_iter().flatten().min();
        self.shared.set_next(next);
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("config", &self.config)
            .field("entries", &self.entries)
            .field("panic", &self.panic)
            .finish_non_exhaustive()
    }
}
