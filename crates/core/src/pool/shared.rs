//! What picks, outcomes and control share: a few words that are read always and written seldom.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::availability::{Gate, Mode};
use crate::backend::Backend;
use crate::backend::live::Live;
use crate::ejection::{EjectionCause, Limits};
use crate::policy::Picker;
use crate::time::Instant;

/// Work for the next `tick`, as bits.
pub(crate) mod work {
    /// Gates changed: entries and picker no longer agree with them.
    pub(crate) const STALE: u32 = 1;
    /// Events wait to be fetched.
    pub(crate) const EVENTS: u32 = 1 << 1;
    /// Backends were penalised, so that their leaves have to be refreshed as that fades.
    pub(crate) const FADING: u32 = 1 << 2;
    /// There is traffic to look at, once a second from now on.
    pub(crate) const TRAFFIC: u32 = 1 << 3;
}

pub(crate) struct Shared {
    /// The table in force.
    pub(crate) picker: ArcSwap<Picker>,
    /// Which reasons to stay out count: `Mode::mask`.
    mask: AtomicU32,
    /// A backend that is due a request, by id; 0 for none.
    due: AtomicU64,
    /// Whether control looks at traffic each second.
    watched: AtomicBool,
    /// Whether so many requests fail at all backends that an answer of failure says nothing of one.
    all_fail: AtomicBool,
    /// Number of the picker in force, times two; odd if it keeps figures of its own that changes of
    /// load must refresh.
    in_force: AtomicU64,
    work: AtomicU32,
    /// Odd while gates and picker are being changed together, and another number afterwards.
    epoch: AtomicU64,
    /// When `tick` has work without an event, in nanoseconds; `u64::MAX` for never.
    next: AtomicU64,
    /// Whether the pool has probes.
    probed: AtomicBool,
    /// Whether the policy goes by [`Peak`](crate::backend::peak::Peak).
    keeps_peaks: AtomicBool,
    /// Whether failures are charged as latency. Where a policy has the failure penalty count besides, one
    /// failure would keep a backend out for as long as a latency takes to be forgotten.
    charges_latency: AtomicBool,
    limit_failures: AtomicU32,
    limit_errors: AtomicU32,
    ejected: AtomicU32,
    ejected_max: AtomicU32,
    /// Ids of the backends that `FADING` speaks of.
    penalised: Mutex<Vec<u64>>,
}

impl Shared {
    pub(crate) fn new(picker: Picker) -> Self {
        Self {
            picker: ArcSwap::from_pointee(picker),
            mask: AtomicU32::new(Mode::Normal.mask().0),
            due: AtomicU64::new(0),
            watched: AtomicBool::new(false),
            all_fail: AtomicBool::new(false),
            in_force: AtomicU64::new(0),
            work: AtomicU32::new(0),
            epoch: AtomicU64::new(0),
            next: AtomicU64::new(u64::MAX),
            probed: AtomicBool::new(false),
            keeps_peaks: AtomicBool::new(false),
            charges_latency: AtomicBool::new(true),
            limit_failures: AtomicU32::new(u32::MAX),
            limit_errors: AtomicU32::new(u32::MAX),
            ejected: AtomicU32::new(0),
            ejected_max: AtomicU32::new(1),
            penalised: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn mask(&self) -> Gate {
        Gate(self.mask.load(Ordering::SeqCst))
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.set_mask(mode.mask());
    }

    pub(crate) fn set_mask(&self, mask: Gate) {
        self.mask.store(mask.0, Ordering::SeqCst);
    }

    pub(crate) fn is_last_resort(&self) -> bool {
        self.mask() == Mode::LastResort.mask()
    }

    pub(crate) fn is_probed(&self) -> bool {
        self.probed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_probed(&self, probed: bool) {
        self.probed.store(probed, Ordering::SeqCst);
    }

    pub(crate) fn keeps_peaks(&self) -> bool {
        self.keeps_peaks.load(Ordering::Relaxed)
    }

    pub(crate) fn charges_latency(&self) -> bool {
        self.charges_latency.load(Ordering::Relaxed)
    }

    pub(crate) fn set_charges_latency(&self, charges: bool) {
        self.charges_latency.store(charges, Ordering::SeqCst);
    }

    pub(crate) fn set_keeps_peaks(&self, keeps: bool) {
        self.keeps_peaks.store(keeps, Ordering::SeqCst);
    }

    /// Limits of the failure runs; `None` if ejection is off.
    pub(crate) fn limits(&self) -> Option<Limits> {
        let failures = self.limit_failures.load(Ordering::Relaxed);
        (failures != u32::MAX).then(|| Limits {
            failures,
            errors: self.limit_errors.load(Ordering::Relaxed),
            refused_ejects: self.is_probed(),
        })
    }

    pub(crate) fn set_limits(&self, limits: Option<(u32, u32)>) {
        let (failures, errors) = limits.unwrap_or((u32::MAX, u32::MAX));
        self.limit_errors.store(errors, Ordering::SeqCst);
        self.limit_failures.store(failures, Ordering::SeqCst);
    }

    pub(crate) fn set_ejected_max(&self, max: u32) {
        self.ejected_max.store(max, Ordering::SeqCst);
    }

    /// A request has ended: control is to look, if it does not already.
    pub(crate) fn note_traffic(&self) {
        if !self.watched.load(Ordering::Relaxed) && !self.watched.swap(true, Ordering::SeqCst) {
            self.demand(work::TRAFFIC);
        }
    }

    pub(crate) fn all_fail(&self) -> bool {
        self.all_fail.load(Ordering::Relaxed)
    }

    pub(crate) fn set_all_fail(&self, all_fail: bool) {
        self.all_fail.store(all_fail, Ordering::SeqCst);
    }

    pub(crate) fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::SeqCst);
    }

    /// The next request is to go to this backend; `None`: to whom the policy likes.
    pub(crate) fn set_due(&self, id: Option<u64>) {
        self.due.store(id.unwrap_or(0), Ordering::SeqCst);
    }

    /// The backend that is due a request; it stays so.
    pub(crate) fn due(&self) -> Option<u64> {
        let id = self.due.load(Ordering::SeqCst);
        (id != 0).then_some(id)
    }

    /// The backend that is due a request: for the one caller that gets it.
    pub(crate) fn take_due(&self) -> Option<u64> {
        let id = self.due.load(Ordering::Relaxed);
        let is_taken = id != 0
            && self
                .due
                .compare_exchange(id, 0, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok();
        is_taken.then_some(id)
    }

    /// One backend fewer is ejected.
    pub(crate) fn count_return(&self) {
        self.ejected.fetch_sub(1, Ordering::SeqCst);
    }

    /// Marks a backend ejected, if the pool can spare one more; the next `tick` does the rest.
    pub(crate) fn eject(&self, now: Instant, live: &Live, cause: EjectionCause) {
        let max = self.ejected_max.load(Ordering::SeqCst);
        let place = self
            .ejected
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| {
                (n < max).then_some(n + 1)
            });
        if place.is_err() {
            return;
        }
        live.mark(now, cause);
        let marked = live.gate.update(|gate| {
            let gone = gate.has(Gate::EJECTED.or(Gate::REMOVED));
            (!gone).then_some(gate.or(Gate::EJECTED).without(Gate::PROBATION))
        });
        match marked {
            Ok(_) => self.demand(work::STALE),
            Err(_) => self.count_return(),
        }
    }

    /// Work was done.
    pub(crate) fn dismiss(&self, bits: u32) {
        self.work.fetch_and(!bits, Ordering::SeqCst);
    }

    /// Asks for a `tick`.
    pub(crate) fn demand(&self, bits: u32) {
        // The read keeps the line shared when the work was asked for already.
        if self.work.load(Ordering::SeqCst) & bits != bits {
            self.work.fetch_or(bits, Ordering::SeqCst);
        }
    }

    pub(crate) fn work(&self) -> u32 {
        self.work.load(Ordering::SeqCst)
    }

    pub(crate) fn take_work(&self) -> u32 {
        self.work.swap(0, Ordering::SeqCst)
    }

    /// Begins a change after which gates and picker agree again; control holds its lock meanwhile.
    pub(crate) fn begin_change(&self) -> Change<'_> {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        Change(self)
    }

    /// Equal and even before and after a pick: nothing was being changed meanwhile.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        let next = self.next.load(Ordering::SeqCst);
        (next != u64::MAX).then(|| Instant::from_nanos(next))
    }

    pub(crate) fn set_next(&self, next: Option<Instant>) {
        let nanos = next.map_or(u64::MAX, Instant::as_nanos);
        self.next.store(nanos, Ordering::SeqCst);
    }

    pub(crate) fn keeps_load(&self) -> bool {
        self.in_force.load(Ordering::SeqCst) & 1 == 1
    }

    pub(crate) fn generation(&self) -> u64 {
        self.in_force.load(Ordering::SeqCst) >> 1
    }

    /// Puts a picker in force. Afterwards its figures are refreshed once more as a whole, because
    /// changes of load went on meanwhile. Whoever made one reads `in_force` after it, in the one
    /// order that all sequentially consistent operations have: either that reads the new number, and
    /// so finds the new picker, or it came before the store below, and the refresh sees the change.
    pub(crate) fn publish(&self, picker: Picker) {
        let keeps_load = picker.keeps_load();
        let number = picker.generation() << 1 | u64::from(keeps_load);
        self.picker.store(Arc::new(picker));
        self.in_force.store(number, Ordering::SeqCst);
        if keeps_load {
            self.picker.load().refresh_all();
        }
    }

    /// The load or the gate of `backend` changed.
    #[inline]
    pub(crate) fn refresh(&self, backend: &Backend) {
        if self.keeps_load() {
            self.picker.load().refresh(backend);
        }
    }

    /// Puts a backend on the list of those whose penalty fades.
    pub(crate) fn note_penalty(&self, backend: &Backend) {
        if self.keeps_load()
            && !backend
                .live()
                .gate
                .set(Gate::PENALISED)
                .has(Gate::PENALISED)
        {
            self.lock_penalised().push(backend.id());
            self.demand(work::FADING);
        }
    }

    pub(crate) fn take_penalised(&self) -> Vec<u64> {
        std::mem::take(&mut self.lock_penalised())
    }

    fn lock_penalised(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.penalised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change that is going on until this is dropped.
pub(crate) struct Change<'s>(&'s Shared);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("mask", &self.mask())
            .field("generation", &self.generation())
            .field("work", &self.work())
            .finish_non_exhaustive()
    }
}
