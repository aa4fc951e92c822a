//! Once a second: what traffic says of each backend, and what that leads to.

use std::cell::Cell;
use std::time::Duration;

use crate::adaptive::LEVELS;
use crate::adaptive::group::Group;
use crate::availability::Gate;
use crate::ejection::outlier::{self, Rates};
use crate::measure::window::SLICES;
use crate::time::Instant;

use super::control::Control;
use super::entry::Entry;
use super::event::Event;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// All fail if more than half of the backends answer more than a tenth of so many requests with a
/// failure, within so many seconds.
const ALL_FAIL_SECONDS: usize = 2;
const ALL_FAIL_REQUESTS: u32 = 10;

/// In panic, one that was good this much later than another is preferred to it.
const RECENTLY: Duration = Duration::from_secs(10);

/// When traffic is looked at: not at all while there is none.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// The last look, while they go on.
    last: Option<Instant>,
}

impl Looks {
    /// There is traffic.
    pub(super) fn begin(&mut self, now: Instant) {
        self.last.get_or_insert(now);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.last.map(|last| last + INTERVAL)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next().is_some_and(|next| next <= now)
    }

    /// Whole seconds since the last look, which is over: as many as a window holds at most.
    fn advance(&mut self, now: Instant) -> usize {
        let Some(last) = &mut self.last else {
            return 0;
        };
        let passed = (now - *last).as_secs().max(1);
        *last = if passed > SLICES as u64 {
            now
        } else {
            *last + INTERVAL * passed as u32
        };
        passed.min(SLICES as u64) as usize
    }
}

impl Control {
    /// Looks at what has ended since the last look; true if picks are to change.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        // First: what ends from here on asks for the next look.
        self.shared.set_watched(false);
        let seconds = self.looks.advance(now);
        let mut any = false;
        for entry in &mut self.entries {
            let slice = entry.backend.live().cells.take();
            any |= slice.is_some();
            if slice.is_some() || !entry.adaptive.window.is_empty() {
                entry.adaptive.window.push(slice.unwrap_or_default());
                (1..seconds).for_each(|_| entry.adaptive.window.push(Default::default()));
            }
        }
        let all_fail = self.see_whether_all_fail();
        let mut changed = all_fail && self.release_like_others(now);
        self.eject_outliers(now);
        changed |= self.step(now);
        self.choose_due(any);
        if !any && self.entries.iter().all(|entry| entry.adaptive.is_at_rest()) {
            self.looks = Looks::default();
        }
        changed
    }

    fn see_whether_all_fail(&self) -> bool {
        let in_service = self.entries.iter().filter(|entry| is_in_service(entry));
        let (mut judged, mut failing) = (0u32, 0u32);
        for entry in in_service {
            let (answered, failed) = entry.adaptive.window.last(ALL_FAIL_SECONDS);
            if answered + failed >= ALL_FAIL_REQUESTS {
                judged += 1;
                failing += u32::from(failed * 10 > answered + failed);
            }
        }
        // Of two backends one that fails is half of all.
        let all_fail = judged >= 3 && failing * 2 > judged;
        self.shared.set_all_fail(all_fail);
        all_fail
    }

    /// Lets those back that were ejected for a run of failures although they fail no more than the
    /// others: it was a run by chance. True if there are any.
    fn release_like_others(&mut self, now: Instant) -> bool {
        let in_service = self.entries.iter().filter(|entry| is_in_service(entry));
        let mut shares: Vec<f64> = in_service
            .map(|entry| entry.adaptive.window.failed_share())
            .collect();
        shares.sort_unstable_by(f64::total_cmp);
        let Some(usual) = shares.get(shares.len() / 2) else {
            return false;
        };
        let bound = 2.0 * usual;
        let any = Cell::new(false);
        self.each_entry(now, |entry, context| {
            if entry.adaptive.window.failed_share() <= bound && entry.pardon(context) {
                any.set(true);
            }
        });
        any.get()
    }

    fn eject_outliers(&mut self, now: Instant) {
        let config = &self.config.ejection;
        if !config.enabled {
            return;
        }
        let windows = self.entries.iter().filter(|entry| is_in_service(entry));
        let rates = Rates::new(windows.map(|entry| &entry.adaptive.window), config);
        for entry in &mut self.entries {
            if !is_in_service(entry) {
                continue;
            }
            if let Some((cause, text)) = outlier::find(&entry.adaptive.window, &rates, config) {
                entry.found = text;
                self.shared.eject(now, entry.backend.live(), cause);
            }
        }
    }

    /// Moves each machine on; true if a weight changed.
    fn step(&mut self, now: Instant) -> bool {
        let config = &self.config.adaptive;
        if !config.enabled {
            return false;
        }
        let in_service = self.entries.iter().filter(|entry| is_in_service(entry));
        let group = Group::new(in_service.map(|entry| &entry.adaptive));
        let load = usual_load(&self.entries);
        let mut changed = false;
        for entry in &mut self.entries {
            let live = entry.backend.live();
            if live.gate.load().has(Gate::EJECTED) {
                continue;
            }
            let change = entry
                .adaptive
                .step(now, &group, live.saturation(now), config);
            if let Some(change) = change {
                self.events.push(Event::StateChanged {
                    backend: entry.backend.key().clone(),
                    from: change.from,
                    to: change.to,
                    reason: change.reason,
                });
            }
            if entry.adaptive.is_ramping() || live.is_capped() {
                let progress = entry.adaptive.progress(now, config);
                live.cap(
                    load.filter(|_| progress < 1.0)
                        .map(|load| cap(load, progress)),
                );
            }
            changed |= live.level() != entry.adaptive.level();
        }
        changed
    }

    /// Gives each backend its level; in panic, those that were good lately go first.
    pub(super) fn set_levels(&mut self) {
        let is_panic = self.is_panic();
        let unhealthy = |entry: &Entry| entry.backend.live().gate.load().has(Gate::UNHEALTHY);
        let best = self.entries.iter().filter(|entry| unhealthy(entry));
        let best = best.filter_map(|entry| entry.adaptive.last_good()).max();
        let floor = (self.config.adaptive.weight_min * f64::from(LEVELS)).round() as u32;
        for entry in &self.entries {
            let level = entry.adaptive.level();
            let was_good = entry.adaptive.last_good();
            let is_stale = best.is_some_and(|best| was_good.is_none_or(|at| at + RECENTLY < best));
            let level = match is_panic && unhealthy(entry) && is_stale {
                true => floor.clamp(1, level),
                false => level,
            };
            entry.backend.live().set_level(level);
        }
        if usual_load(&self.entries).is_none() {
            // Nobody else is there to take what a slow start leaves.
            for entry in &self.entries {
                entry.backend.live().cap(None);
            }
        }
    }

    /// The backend that has waited longest for a request that shows how it is, if there are requests.
    fn choose_due(&self, any: bool) {
        let is_asked = |entry: &Entry| {
            let gate = entry.backend.live().gate.load();
            entry.backend.is_usable() && !gate.has(Gate::KEPT_BACK)
        };
        let is_due = |entry: &&Entry| entry.adaptive.is_starved() && is_asked(entry);
        let follows = any && self.config.policy.follows_weight();
        let starved = self.entries.iter().filter(is_due).filter(|_| follows);
        let due = starved.max_by_key(|entry| entry.adaptive.silence());
        self.shared.set_due(due.map(|entry| entry.backend.id()));
    }

    /// What is likelier at fault where few look healthy, from what probes and traffic say.
    pub(super) fn belief(&self) -> String {
        let ready = |entry: &&Entry| !entry.backend.live().gate.load().has(Gate::NEVER);
        let (mut down, mut ejected, mut refusing) = (0, 0, 0);
        let (mut failed, mut total) = (0u64, 0u64);
        for entry in self.entries.iter().filter(ready) {
            let gate = entry.backend.live().gate.load();
            down += usize::from(gate.has(Gate::DOWN));
            ejected += usize::from(gate.has(Gate::EJECTED));
            refusing += usize::from(gate.has(Gate::REFUSED.or(Gate::TRIAL)));
            failed += u64::from(entry.adaptive.window.failed());
            total += u64::from(entry.adaptive.window.total());
        }
        let ready = self.entries.iter().filter(ready).count();
        let share = failed as f64 * 100.0 / total.max(1) as f64;
        let by_traffic =
            |of: &str| format!("{ejected}{of} are ejected, {refusing} refuse connections");
        let seen = match self.config.probed {
            true => format!("{down} of {ready} fail their probes, {}", by_traffic("")),
            false => by_traffic(&format!(" of {ready}")),
        };
        // A request that is tried again counts at each backend that it was tried at.
        let traffic = match total {
            0 => "there is no traffic to compare with".to_owned(),
            1 => format!("of 1 try of a request within 10 s {failed} failed"),
            _ => format!("{share:.1} % of {total} tries of requests failed within 10 s"),
        };
        let guess = match (total, share) {
            _ if refusing * 2 > ready => "they are not running, or not reachable",
            (20.., ..=5.0) if down > ejected => "the probe is the likelier fault",
            (20.., 20.0..) => "the backends, or what all of them depend on, are the likelier fault",
            _ => "that is too little to say what is at fault",
        };
        format!("{seen}; {traffic}: {guess}")
    }

    /// The same while there is a panic; else nothing.
    pub(super) fn belief_in_panic(&self) -> String {
        if self.is_panic() {
            self.belief()
        } else {
            String::new()
        }
    }
}

/// Whether it gets traffic, and not only because of a panic.
fn is_in_service(entry: &Entry) -> bool {
    let gate = entry.backend.live().gate.load();
    !gate.has(Gate::NEVER.or(Gate::UNHEALTHY).or(Gate::KEPT_BACK))
}

/// Requests in flight at a backend in service that is not starting, on average; `None` if there is
/// no such.
fn usual_load(entries: &[Entry]) -> Option<f64> {
    let settled = |entry: &&Entry| is_in_service(entry) && !entry.adaptive.is_ramping();
    let (mut sum, mut count) = (0.0, 0u32);
    for entry in entries.iter().filter(settled) {
        sum += f64::from(entry.backend.in_flight());
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

/// Most requests in flight at a backend so far in its slow start, where others have `load`.
fn cap(load: f64, progress: f64) -> u32 {
    1 + (2.0 * load * progress).ceil() as u32
}
