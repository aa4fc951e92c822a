//! The slow half of one backend: what its marks lead to.

use std::sync::Arc;
use std::time::Duration;

use crate::adaptive::{Adaptive, AdaptiveConfig};
use crate::availability::{Admin, Gate};
use crate::backend::Backend;
use crate::ejection::refusal::Refusal;
use crate::ejection::{Ejection, EjectionCause, EjectionConfig, Ejector};
use crate::health::{Health, HealthCheck, ProbeResult, Thresholds};
use crate::spread::Place;
use crate::time::Instant;

use super::PoolConfig;
use super::event::{EjectionEnd, Event};
use super::outcome::refuse;
use super::shared::{Shared, work};

/// A return this soon after another is flapping; two this close are one.
const FLAPPING: Duration = Duration::from_secs(60);
const SAME_RETURN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) backend: Arc<Backend>,
    pub(crate) place: Place,
    pub(crate) admin: Admin,
    pub(crate) admin_since: Instant,
    pub(crate) health: HealthCheck,
    pub(crate) ejector: Ejector,
    pub(crate) refusal: Refusal,
    pub(crate) adaptive: Adaptive,
    /// When it last came back from where it had gone, by probes or by connections.
    returned: Option<Instant>,
    /// What a look at traffic found against it last.
    pub(crate) found: String,
    /// When the last ejection began or ended.
    pub(crate) ejection_since: Instant,
}

/// What an entry's transitions need beside it.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) shared: &'a Shared,
    pub(crate) ejection: &'a EjectionConfig,
    pub(crate) adaptive: &'a AdaptiveConfig,
    pub(crate) thresholds: Thresholds,
    pub(crate) events: &'a mut Vec<Event>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        now: Instant,
        shared: &'a Shared,
        config: &'a PoolConfig,
        events: &'a mut Vec<Event>,
    ) -> Self {
        Self {
            now,
            shared,
            ejection: &config.ejection,
            adaptive: &config.adaptive,
            thresholds: Thresholds {
                rise: config.rise,
                fall: config.fall,
            },
            events,
        }
    }
}

impl Entry {
    pub(crate) fn new(now: Instant, backend: Arc<Backend>, admin: Admin, place: &Place) -> Self {
        backend
            .live()
            .gate
            .put(Gate::WITHDRAWN, admin != Admin::Ready);
        Self {
            backend,
            place: place.clone(),
            admin,
            admin_since: now,
            health: HealthCheck::new(now),
            ejector: Ejector::new(now),
            refusal: Refusal::In,
            adaptive: Adaptive::new(now),
            ejection_since: now,
            returned: None,
            found: String::new(),
        }
    }

    /// When something is due without an event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match (self.ejector.until(), self.refusal.next()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes note of the marks that requests left in the gate.
    pub(crate) fn reconcile(&mut self, context: &mut Context<'_>) {
        self.reconcile_ejection(context);
        self.reconcile_refusal(context);
        if self.refusal.is_refused() {
            self.ejector.refused();
            if !context.shared.is_probed() && self.ejector.end_if_gone(context.now) {
                self.end_ejection(context, EjectionEnd::Gone);
            }
        }
    }

    fn reconcile_ejection(&mut self, context: &mut Context<'_>) {
        let live = self.backend.live();
        let gate = live.gate.load();
        if gate.has(Gate::EJECTED) && !self.ejector.is_ejected() {
            let (at, cause) = live.marked();
            let (until, count) = self.ejector.eject(at, cause, context.ejection);
            self.ejection_since = at;
            context.events.push(Event::Ejected {
                backend: Arc::clone(self.backend.key()),
                cause,
                until,
                seconds: (until - at).as_secs(),
                count,
                reason: self.ejection_reason(cause),
            });
        } else if matches!(self.ejector.state(), Ejection::Probation { .. })
            && !gate.has(Gate::PROBATION)
        {
            self.ejector.reinstate();
            let backend = Arc::clone(self.backend.key());
            context.events.push(Event::ProbationPassed { backend });
        }
    }

    /// Why it was ejected, with the figures if a look at traffic found it out.
    pub(crate) fn ejection_reason(&self, cause: EjectionCause) -> String {
        if cause.is_of_a_window() && !self.found.is_empty() {
            self.found.clone()
        } else {
            cause.to_string()
        }
    }

    fn reconcile_refusal(&mut self, context: &mut Context<'_>) {
        let gate = self.backend.live().gate.load();
        let key = Arc::clone(self.backend.key());
        let out = gate.has(Gate::REFUSED.or(Gate::TRIAL));
        if out && !self.refusal.is_refused() {
            self.refusal.refuse(context.now, context.shared.is_probed());
            context.events.push(Event::Refused { backend: key });
        } else if !out && self.refusal.is_refused() {
            self.refusal.clear();
            self.backend.live().penalty.forget();
            self.forget_failures();
            self.come_back(context);
            context.events.push(Event::Answering { backend: key });
        } else if self.refusal.is_on_trial() && !gate.has(Gate::TRIAL.or(Gate::TRYING)) {
            self.refusal.fail(context.now);
        }
    }

    /// Does what is due.
    pub(crate) fn run_timers(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        if self.ejector.until().is_some_and(|until| until <= now) {
            self.ejector.release(now);
            self.end_ejection(context, EjectionEnd::Elapsed);
        }
        if self.refusal.next().is_some_and(|next| next <= now) {
            self.refusal.offer(now);
            let offered = |gate: Gate| {
                let taken = Gate::REFUSED.or(Gate::TRYING);
                // Answered meanwhile: nothing to offer.
                gate.has(taken)
                    .then_some(gate.without(taken).or(Gate::TRIAL))
            };
            // An `Err` is a trial that nobody has taken yet, or one that was answered just now.
            let _ = self.backend.live().gate.update(offered);
        }
    }

    pub(crate) fn observe_probe(&mut self, context: &mut Context<'_>, result: ProbeResult) {
        self.reconcile(context);
        let (passed, elsewhere) = (
            result == ProbeResult::Passed,
            result == ProbeResult::PassedElsewhere,
        );
        let refused = matches!(result, ProbeResult::Failed { refused: true, .. });
        let live = self.backend.live();
        live.gate.put(Gate::PROBE_REFUSED, refused);
        if let Some(change) = self.health.observe(context.now, result, context.thresholds) {
            live.gate.put(Gate::DOWN, change.to == Health::Down);
            let is_back = change.from == Health::Down;
            context.events.push(Event::HealthChanged {
                backend: Arc::clone(self.backend.key()),
                from: change.from,
                to: change.to,
                reason: change.reason,
            });
            if is_back {
                self.come_back(context);
            }
        }
        let live = self.backend.live();
        if passed {
            self.probe_passed(context);
        } else if elsewhere {
            // It lives, but whether its own port takes connections again only a request can show.
            if self.health.health() == Health::Up {
                self.refusal.set_probed(context.now, false);
            }
        } else {
            self.ejector.probe_failed();
            if refused {
                self.ejector.refused();
            }
            if refused && live.runs().refused > 0 {
                refuse(context.shared, &self.backend);
                self.reconcile_refusal(context);
            }
        }
    }

    /// A passed probe proves that connections are accepted, and nothing else that traffic said.
    fn probe_passed(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        if self.ejector.probe_passed(now, context.thresholds.rise) {
            self.end_ejection(context, EjectionEnd::Proved);
        }
        let live = self.backend.live();
        let refusing = Gate::REFUSED.or(Gate::TRIAL).or(Gate::TRYING);
        if self.health.health() == Health::Up && self.refusal.is_refused() {
            let runs = live.runs();
            if runs.refused >= runs.errors && !self.ejector.is_ejected() {
                live.clear_runs();
            }
            live.gate.clear(refusing);
            self.reconcile_refusal(context);
        }
    }

    /// Ends an ejection for a run of answers, as if it had not been; true if there was one.
    pub(crate) fn pardon(&mut self, context: &mut Context<'_>) -> bool {
        let is_pardoned = self.ejector.pardon(context.now);
        if is_pardoned {
            self.end_ejection(context, EjectionEnd::LikeOthers);
        }
        is_pardoned
    }

    fn end_ejection(&mut self, context: &mut Context<'_>, end: EjectionEnd) {
        self.forget_failures();
        let live = self.backend.live();
        live.clear_runs();
        let on_probation = end == EjectionEnd::Elapsed;
        let returned = live.gate.update(|gate| {
            let back = gate.without(Gate::EJECTED);
            gate.has(Gate::EJECTED)
                .then_some(back.with(Gate::PROBATION, on_probation))
        });
        if returned.is_ok() {
            context.shared.count_return();
        }
        if context.adaptive.enabled && end != EjectionEnd::LikeOthers {
            self.adaptive.come_back(context.now, context.adaptive);
            self.backend.live().set_level(self.adaptive.level());
            context.shared.demand(work::TRAFFIC);
        }
        self.ejection_since = context.now;
        context.events.push(Event::EjectionEnded {
            backend: Arc::clone(self.backend.key()),
            end,
        });
    }

    /// What failed before it came back says nothing of it now. In a panic requests go on to those that are out, and the
    /// failures of all of them at once would hold out those that are back first.
    fn forget_failures(&mut self) {
        // What ended since the last look is of before, too.
        let _ = self.backend.live().cells.take();
        self.adaptive.window.forget_failures();
    }

    /// It is back. For the second time within a minute: it is held out for as long as an ejection lasts,
    /// because whoever goes and comes takes requests along each time.
    fn come_back(&mut self, context: &mut Context<'_>) {
        self.start_slowly(context);
        let before = self.returned.replace(context.now);
        // What it did while it was held out does not count.
        let since = before.map(|before| context.now - before.max(self.ejection_since));
        // Connections and probes tell of one return at about the same time.
        let is_flapping = since.is_some_and(|since| (SAME_RETURN..FLAPPING).contains(&since));
        if is_flapping && context.ejection.enabled {
            let cause = EjectionCause::Flapping;
            context
                .shared
                .eject(context.now, self.backend.live(), cause);
            self.reconcile_ejection(context);
        }
    }

    /// It comes new, or back from where nothing is known of it.
    pub(crate) fn start_slowly(&mut self, context: &Context<'_>) {
        if self.adaptive.start_slowly(context.now, context.adaptive) {
            self.backend.live().set_level(self.adaptive.level());
            context.shared.demand(work::TRAFFIC);
        }
    }

    pub(crate) fn set_admin(&mut self, context: &mut Context<'_>, admin: Admin) {
        if self.admin == admin {
            return;
        }
        let from = std::mem::replace(&mut self.admin, admin);
        self.admin_since = context.now;
        self.backend
            .live()
            .gate
            .put(Gate::WITHDRAWN, admin != Admin::Ready);
        context.events.push(Event::AdminChanged {
            backend: Arc::clone(self.backend.key()),
            from,
            to: admin,
        });
    }

    /// The pool's configuration changed.
    pub(crate) fn reconfigure(&mut self, context: &mut Context<'_>) {
        self.reconcile(context);
        let probed = context.shared.is_probed();
        if !probed {
            self.backend
                .live()
                .gate
                .clear(Gate::DOWN.or(Gate::PROBE_REFUSED));
            if let Some(change) = self.health.forget(context.now) {
                context.events.push(Event::HealthChanged {
                    backend: Arc::clone(self.backend.key()),
                    from: change.from,
                    to: change.to,
                    reason: change.reason,
                });
            }
        }
        self.refusal.set_probed(context.now, probed);
        if !context.adaptive.enabled {
            self.adaptive.forget(context.now);
            self.backend.live().set_level(self.adaptive.level());
            self.backend.live().cap(None);
        }
        if !context.ejection.enabled {
            if self.ejector.is_ejected() {
                self.end_ejection(context, EjectionEnd::SwitchedOff);
            }
            self.backend.live().gate.clear(Gate::PROBATION);
            self.ejector.forget(context.now);
        }
    }

    /// The backend is no longer a member. What is in flight ends by itself.
    pub(crate) fn retire(&self, shared: &Shared) {
        let live = self.backend.live();
        let retired =
            |gate: Gate| Some(Gate::REMOVED.with(Gate::PENALISED, gate.has(Gate::PENALISED)));
        if let Ok(before) = live.gate.update(retired)
            && before.has(Gate::EJECTED)
        {
            shared.count_return();
        }
    }
}
