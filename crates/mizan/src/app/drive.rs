//! The control loop: signals, file changes, reloads, the clocks of the pools, and the drain.

use super::control::ReloadRequest;
use super::reload::{Parts, Reloads, Retired, Wish};
use super::shared_table::SharedTable;
use crate::admin::{Control, Phase};
use crate::clock;
use crate::config;
use crate::proxy::cut::Cut;
use crate::snapshot::Snapshot;
use mizan_core::drain::{Drain, DrainConfig, DrainPhase};
use mizan_core::pool::Event;
use mizan_core::time::Instant;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Between two looks at what is due: pools, the drain.
const TICK: Duration = Duration::from_millis(20);
/// Between two looks at the files.
const LOOK: Duration = Duration::from_millis(100);
/// A change is read after this long without a further one.
const QUIET: Duration = Duration::from_millis(200);

/// The signals that steer the process.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
}

/// Runs until the drain is over; gives how many requests are cut, and why.
pub(super) async fn drive(
    parts: &mut Parts,
    mut signals: Signals,
    mut inbox: mpsc::Receiver<ReloadRequest>,
) -> (u64, Cut) {
    let settings = parts.current.load().settings.drain.clone();
    let mut drain = Drain::new(DrainConfig {
        window: settings.window,
        deadline: settings.deadline,
    });
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut files = Files::new(parts);
    let mut reloads = Reloads::default();
    let mut closed = false;
    let mut why = Cut::Deadline;
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => why = stop(parts, &mut drain),
            _ = signals.interrupt.recv() => why = stop(parts, &mut drain),
            _ = signals.hangup.recv() => reloads.ask(parts, Wish::FILES, None),
            _ = signals.user1.recv() => reopen(parts),
            Some(asked) = inbox.recv() => {
                let wish = Wish { accept_table: asked.accept_table, ..Wish::FILES };
                reloads.ask(parts, wish, Some(asked.done));
            }
            () = table_changed(&mut parts.shared) => table_has_changed(parts, &mut reloads),
            read = reloads.read() => reloads.finish(parts, read).await,
            _ = tick.tick() => {
                let now = clock::now();
                let in_force = parts.current.load();
                tick_pools(&in_force, now);
                let shared = parts.shared.as_ref();
                parts.discovered.tick(now, &in_force, &parts.discovery, shared);
                if files.changed(now, parts).await {
                    reloads.ask(parts, Wish::FILES, None);
                }
                let snapshot = parts.current.load();
                if let Some(shared) = &mut parts.shared {
                    shared.confirm();
                    if shared.is_due(&snapshot) {
                        reloads.ask(parts, Wish::TABLE, None);
                    }
                }
                reloads.give_up(now, parts).await;
                parts.retired.retain(Retired::is_needed);
            }
        }
        let waited_for = parts.fleet.shared.connections() as u64;
        match drain.tick(clock::now(), waited_for) {
            DrainPhase::Serving | DrainPhase::Window => {}
            DrainPhase::Closing if closed => {}
            DrainPhase::Closing => {
                closed = true;
                parts.control.set_phase(Phase::Stopping);
                parts.fleet.set_closing();
                parts.fleet.close(|_| false).await;
            }
            DrainPhase::Done { .. } => return (parts.fleet.shared.in_flight() as u64, why),
        }
    }
}

/// Waits until something else is known of the store's table; for ever without one.
async fn table_changed(shared: &mut Option<SharedTable>) {
    match shared {
        Some(shared) => shared.changed().await,
        None => std::future::pending().await,
    }
}

fn table_has_changed(parts: &mut Parts, reloads: &mut Reloads) {
    let Some(shared) = &mut parts.shared else {
        return;
    };
    parts.control.set_store(shared.told());
    if parts.control.phase() == Phase::Starting && shared.is_known() {
        parts.control.set_phase(Phase::Serving);
    }
    if shared.has_news() {
        reloads.ask(parts, Wish::TABLE, None);
    }
}

impl Signals {
    /// From here on a signal is a wish, no longer the process's end.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
        })
    }
}

/// The first signal begins the drain, the second ends it; gives why what is then in flight is cut.
fn stop(parts: &Parts, drain: &mut Drain) -> Cut {
    let settings = parts.current.load().settings.drain.clone();
    match parts.control.phase() {
        Phase::Starting | Phase::Serving => {
            *drain = Drain::new(DrainConfig {
                window: settings.window,
                deadline: settings.deadline,
            });
            drain.begin(clock::now());
            parts.control.set_phase(Phase::Draining);
            let seconds = |time: Duration| time.as_secs_f64();
            tracing::info!(
                window_seconds = seconds(settings.window),
                deadline_seconds = seconds(settings.deadline),
                "draining: a second signal ends at once"
            );
            Cut::Deadline
        }
        Phase::Draining | Phase::Stopping => {
            drain.begin_at_once(clock::now(), parts.fleet.shared.in_flight() as u64);
            Cut::Shutdown
        }
    }
}

fn reopen(parts: &Parts) {
    match parts.access_log.reopen() {
        Ok(()) => tracing::info!("logs reopened"),
        Err(error) => tracing::error!(%error, "the access log could not be reopened"),
    }
}

fn tick_pools(snapshot: &Snapshot, now: Instant) {
    for pool in snapshot.pools.values() {
        if pool.core.is_dirty() || pool.core.deadline().is_some_and(|deadline| deadline <= now) {
            log_events(&pool.name, pool.core.tick(now));
        }
    }
}

/// One line for each change of state: what degrades service is a warning, what mends it is not.
pub(super) fn log_events(pool: &str, events: Vec<Event>) {
    for event in events {
        if event.degrades_service() {
            tracing::warn!(pool, "{event}");
        } else {
            tracing::info!(pool, "{event}");
        }
    }
}

/// Watches the configuration's files. They are looked at on a thread that may block: a dead network file system
/// holds up nothing else.
struct Files {
    watch: Option<config::Watch>,
    looking: Option<JoinHandle<(config::Watch, bool)>>,
    looked: Instant,
    /// A change was seen, last at this time.
    pending: Option<Instant>,
}

impl Files {
    /// Looks for the first time, so that what changes from here on is seen; what changed since the configuration in
    /// force was read is seen by its text.
    fn new(parts: &Parts) -> Self {
        let main = parts.options.config.clone();
        let in_force = config::digest(&parts.files);
        Self {
            watch: None,
            looking: Some(tokio::task::spawn_blocking(move || {
                let watch = config::Watch::new(&main);
                let sources = config::load(&main);
                let has_changed = sources.is_ok_and(|now| config::digest(&now) != in_force);
                (watch, has_changed)
            })),
            looked: clock::now(),
            pending: None,
        }
    }

    /// Whether the files have changed and come to rest.
    async fn changed(&mut self, now: Instant, parts: &Parts) -> bool {
        if !parts.current.load().settings.reload_watch {
            return false;
        }
        if let Some(task) = self.looking.take_if(|task| task.is_finished()) {
            // Finished, so this does not wait.
            if let Ok((watch, has_changed)) = task.await {
                self.watch = Some(watch);
                if has_changed {
                    self.pending = Some(now);
                }
            }
        }
        if now.saturating_since(self.looked) >= LOOK
            && let Some(mut watch) = self.watch.take()
        {
            self.looked = now;
            self.looking = Some(tokio::task::spawn_blocking(move || {
                let has_changed = watch.changed();
                (watch, has_changed)
            }));
        }
        let rests = self
            .pending
            .is_some_and(|at| now.saturating_since(at) >= QUIET);
        if rests {
            self.pending = None;
        }
        rests
    }
}
