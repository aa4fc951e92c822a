//! Healthy or degraded: what share of its nominal weight a backend gets, by how it serves.
//!
//! ```text
//!              a bound crossed for 2 s                     failures, see `ejection`
//!   Healthy ──────────────────────────▶ Degraded ──────────────────────▶ Unhealthy
//!      ▲      30 s without crossing one,   ▲                                 │
//!      └──────── 10 answers or more ───────┴──── back from ejection ─────────┘
//! ```
//!
//! The bounds are relative. A latency is compared with the median of the siblings, so that a
//! slowdown of all degrades nobody, and with the backend's own slow history, so that a machine that
//! was always slower than its siblings is not degraded for it. A share of failures is compared with
//! the siblings', so that a client's bad requests harm nobody. And all are compared as proportions,
//! with the confidence that the number of requests gives: ten requests prove little.
//!
//! While it is degraded a backend's weight follows a score, an average over some five seconds of how
//! far it is off. It falls fast and rises slowly, and never below a floor, so that its recovery can
//! be seen; who gets no request within three seconds is sent one all the same.

use std::fmt;
use std::time::Duration;

use crate::measure::least_share;
use crate::measure::window::{SLICES, Window};
use crate::time::Instant;

pub(crate) mod group;
pub(crate) mod ramp;

use group::{Baseline, Group};
use ramp::Ramp;

/// When a backend is degraded, and how it comes back.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveConfig {
    /// Whether weights adapt at all. Default: yes.
    pub enabled: bool,
    /// Degraded above this many times the baseline of p95. At least 1, default 2.
    pub latency_factor: f64,
    /// Degraded above this share of failed requests, if siblings fail less. `0.0..=1.0`, default 0.1.
    pub failed_share: f64,
    /// Degraded above this saturation, if siblings have less. `0.0..=1.0`, default 0.8.
    pub saturation: f64,
    /// No share of the nominal weight is lower. `0.0..=1.0`, default 0.1.
    pub weight_min: f64,
    /// This long without crossing a bound makes it healthy again. Default 30 s.
    pub recover_after: Duration,
    /// A backend that comes new, or back, reaches its full weight in this time at the earliest; zero:
    /// at once. Default 10 s.
    pub slow_start: Duration,
    /// It also has to serve this many requests first, for twice that time at most. Default 50.
    pub slow_start_requests: u32,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            latency_factor: 2.0,
            failed_share: 0.1,
            saturation: 0.8,
            weight_min: 0.1,
            recover_after: Duration::from_secs(30),
            slow_start: Duration::from_secs(10),
            slow_start_requests: 50,
        }
    }
}

/// What traffic says of a backend, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdaptiveState {
    /// As good as its siblings.
    Healthy,
    /// Worse: it gets less than its share.
    Degraded,
    /// So bad that it gets nothing: ejected.
    Unhealthy,
}

impl fmt::Display for AdaptiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        })
    }
}

/// Seconds that a bound must stay crossed before it counts.
const PERSISTENCE: u32 = 2;
/// Seconds back that a degraded backend is judged by; a healthy one by the whole window.
const RECENT: usize = 5;
/// Answers that a window must hold to say anything of latency.
pub(crate) const ANSWERS_MIN: u32 = 5;
/// Answers without crossing a bound that make a degraded backend healthy.
const ANSWERS_TO_RECOVER: u32 = 10;
/// Standard deviations of certainty.
pub(crate) const CERTAINTY: f64 = 3.0;
/// Seconds with slow answers that it takes: a pause is over before anybody could react to it. Where
/// there are many, fewer seconds tell as much.
const SLOW_SECONDS_MIN: u32 = 3;
const SLOW_SECONDS_OF_MANY: u32 = 2;
const MANY: u32 = 50;
/// A twentieth of all requests may be slower than a p95.
const BEYOND_P95: f64 = 0.05;
/// Below this a difference of latency is not worth a reaction.
const LATENCY_SLACK: Duration = Duration::from_millis(1);
/// The score forgets with this time constant, seconds.
const SCORE_TAU: f64 = 5.0;
/// The backend's own baseline does with this one.
const HISTORY_TAU: f64 = 600.0;
/// What of its nominal weight a backend loses within a second at most, and wins.
const FALL_PER_SECOND: f64 = 0.5;
const RISE_PER_SECOND: f64 = 0.05;
/// Steps that a weight is changed in: of twenty.
pub(crate) const LEVELS: u32 = 20;
/// One that is degraded again this soon after it had recovered has to be well for longer, up to so many
/// times longer.
const RELAPSE: Duration = Duration::from_secs(60);
const RELAPSES_MAX: u32 = 3;
/// Seconds without a request after which one is sent.
const SILENCE_MAX: u32 = 3;

/// Which bound is crossed, and by how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Crossed {
    Slow { p95: Duration, baseline: Baseline },
    Failing { share: f64, siblings: f64 },
    Saturated { share: f64 },
    Silent { failed: u32 },
}

/// A change of state, with the reason for people.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StateChange {
    pub(crate) from: AdaptiveState,
    pub(crate) to: AdaptiveState,
    pub(crate) reason: String,
}

/// The machine of one backend.
#[derive(Clone, Debug)]
pub(crate) struct Adaptive {
    pub(crate) window: Window,
    is_degraded: bool,
    since: Instant,
    reason: String,
    /// p95 in the long run while it was healthy, seconds.
    history: Option<f64>,
    /// How well it serves, `0.0..=1.0`.
    score: f64,
    /// Share of the nominal weight, `weight_min..=1.0`.
    weight: f64,
    /// Seconds in a row in which a bound was crossed.
    against: u32,
    /// Since when none is, and the answers since.
    good_since: Instant,
    good_answers: u32,
    /// How often in a row it was degraded again soon after it had recovered.
    relapses: u32,
    has_recovered: bool,
    ramp: Option<Ramp>,
    /// Whether that is its first: it had answered nothing before.
    is_new: bool,
    /// Seconds in a row without a request.
    silence: u32,
    last_good: Option<Instant>,
    saturation: f64,
}

impl Adaptive {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            window: Window::default(),
            is_degraded: false,
            since: now,
            reason: String::new(),
            history: None,
            score: 1.0,
            weight: 1.0,
            against: 0,
            good_since: now,
            good_answers: 0,
            relapses: 0,
            has_recovered: false,
            ramp: None,
            is_new: false,
            silence: 0,
            last_good: None,
            saturation: 0.0,
        }
    }

    /// Healthy or degraded; whether it is ejected is another's to say.
    pub(crate) fn state(&self) -> AdaptiveState {
        if self.is_degraded {
            AdaptiveState::Degraded
        } else {
            AdaptiveState::Healthy
        }
    }

    /// Since when, and why; empty for a healthy one.
    pub(crate) fn reason(&self) -> (&str, Instant) {
        (&self.reason, self.since)
    }

    pub(crate) fn score(&self) -> f64 {
        self.score
    }

    /// Share of the nominal weight.
    pub(crate) fn weight(&self) -> f64 {
        self.weight
    }

    /// The same in steps: `1..=LEVELS`.
    pub(crate) fn level(&self) -> u32 {
        ((self.weight * f64::from(LEVELS)).round() as u32).clamp(1, LEVELS)
    }

    pub(crate) fn history(&self) -> Option<f64> {
        self.history
    }

    pub(crate) fn saturation(&self) -> f64 {
        self.saturation
    }

    pub(crate) fn is_ramping(&self) -> bool {
        self.ramp.is_some()
    }

    /// Whether it starts slowly and has never been counted on before.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new && self.is_ramping()
    }

    /// How far its slow start has come, `0.0..=1.0`.
    pub(crate) fn progress(&self, now: Instant, config: &AdaptiveConfig) -> f64 {
        let ramp = self.ramp.as_ref();
        ramp.map_or(1.0, |ramp| ramp.progress(now, config))
    }

    /// When it last answered well.
    pub(crate) fn last_good(&self) -> Option<Instant> {
        self.last_good
    }

    /// Whether nothing is going on that a further look could change.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.is_degraded && self.weight >= 1.0 && self.ramp.is_none() && self.window.is_empty()
    }

    /// Seconds in a row without a request.
    pub(crate) fn silence(&self) -> u32 {
        self.silence
    }

    /// Whether it is due a request that it would not get otherwise.
    pub(crate) fn is_starved(&self) -> bool {
        (self.is_degraded || self.ramp.is_some()) && self.silence >= SILENCE_MAX
    }

    /// It comes new, or back from where nothing is known of it: a slow start, if there is to be one.
    pub(crate) fn start_slowly(&mut self, now: Instant, config: &AdaptiveConfig) -> bool {
        let is_wanted = config.enabled && !config.slow_start.is_zero();
        if is_wanted {
            self.ramp = Some(Ramp::new(now));
            self.is_new = self.last_good.is_none();
            self.weight = config.weight_min;
        }
        is_wanted
    }

    /// It is back from an ejection: degraded, until it has shown that it serves.
    pub(crate) fn come_back(&mut self, now: Instant, config: &AdaptiveConfig) {
        self.degrade(now, "back from an ejection".to_owned());
        self.weight = config.weight_min;
        self.score = config.weight_min;
    }

    /// Weights no longer adapt.
    pub(crate) fn forget(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    fn degrade(&mut self, now: Instant, reason: String) {
        let is_relapse = !self.is_degraded && self.has_recovered && now - self.since < RELAPSE;
        self.relapses = match is_relapse {
            true => (self.relapses + 1).min(RELAPSES_MAX),
            false => 0,
        };
        self.is_degraded = true;
        self.since = now;
        self.reason = reason;
        self.good_since = now;
        self.good_answers = 0;
    }

    /// A second has passed, of which the window knows already. `saturation` is how much of what it
    /// can take is taken, `0.0..=1.0`.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        group: &Group,
        saturation: f64,
        config: &AdaptiveConfig,
    ) -> Option<StateChange> {
        self.saturation = saturation;
        let (answered, failed) = self.window.last(1);
        self.silence = if answered + failed == 0 {
            self.silence + 1
        } else {
            0
        };
        if answered > 0 && failed <= answered {
            self.last_good = Some(now);
        }
        let crossed = self.judge(group, config);
        self.learn(crossed.is_some());
        self.rate(group);
        let change = self.decide(now, crossed, answered, config);
        if let Some(ramp) = &mut self.ramp {
            ramp.served += answered;
        }
        self.weigh(now, config);
        change
    }

    /// Which bound is crossed, if one is.
    fn judge(&self, group: &Group, config: &AdaptiveConfig) -> Option<Crossed> {
        let seconds = if self.is_degraded { RECENT } else { SLICES };
        let (answered, failed) = self.window.last(seconds);
        if let (0, silent @ 2..) = self.window.last(PERSISTENCE as usize) {
            return Some(Crossed::Silent { failed: silent });
        }
        let siblings = group.failed_without(self);
        let bound = config.failed_share.max(2.0 * siblings);
        if least_share(failed, answered + failed, CERTAINTY) > bound {
            let share = f64::from(failed) / f64::from(answered + failed);
            return Some(Crossed::Failing { share, siblings });
        }
        // What is usual for it has to be known first: it may be a machine of another sort.
        let baseline = group.baseline_of(self).filter(|_| self.history.is_some());
        if let Some(baseline) = baseline {
            let base = baseline.latency();
            let bound = base
                .mul_f64(config.latency_factor.max(1.0))
                .max(base + LATENCY_SLACK);
            let slower = self.window.slower_within(bound, seconds);
            let share = least_share(slower.slow, slower.answered, CERTAINTY);
            let seconds = if slower.slow >= MANY {
                SLOW_SECONDS_OF_MANY
            } else {
                SLOW_SECONDS_MIN
            };
            if share > BEYOND_P95 && slower.seconds >= seconds {
                let p95 = self.window.quantile(0.95).unwrap_or_default();
                return Some(Crossed::Slow { p95, baseline });
            }
        }
        let share = self.saturation;
        let is_saturated =
            share > config.saturation && share > 1.25 * group.saturation_without(self);
        is_saturated.then_some(Crossed::Saturated { share })
    }

    /// Learns what is usual for it, from when it is well.
    fn learn(&mut self, is_crossed: bool) {
        if self.is_degraded || is_crossed || self.window.answered() < ANSWERS_MIN {
            return;
        }
        if self.history.is_none() && !self.window.is_full() {
            return;
        }
        if let Some(p95) = self.window.quantile(0.95) {
            let p95 = p95.as_secs_f64();
            let keep = (-1.0 / HISTORY_TAU).exp();
            let history = self.history.get_or_insert(p95);
            *history = *history * keep + p95 * (1.0 - keep);
        }
    }

    /// How well it serves now, averaged into the score. Without requests nothing is learnt.
    fn rate(&mut self, group: &Group) {
        let (answered, failed) = self.window.last(RECENT);
        if answered + failed == 0 {
            return;
        }
        let well = f64::from(answered) / f64::from(answered + failed);
        let quick = match (
            group.baseline_of(self),
            self.window.quantile_within(0.95, RECENT),
        ) {
            (Some(baseline), Some(p95)) => {
                let base = baseline.latency() + LATENCY_SLACK;
                (base.as_secs_f64() / p95.max(base).as_secs_f64()).min(1.0)
            }
            _ => 1.0,
        };
        let free = 1.0 - ((self.saturation - 0.8) / 0.2).clamp(0.0, 1.0) * 0.5;
        let keep = (-1.0 / SCORE_TAU).exp();
        self.score = self.score * keep + well * well * quick * free * (1.0 - keep);
    }

    fn decide(
        &mut self,
        now: Instant,
        crossed: Option<Crossed>,
        answered: u32,
        config: &AdaptiveConfig,
    ) -> Option<StateChange> {
        let Some(crossed) = crossed else {
            self.against = 0;
            self.good_answers = self.good_answers.saturating_add(answered);
            let is_long = now - self.good_since >= self.recover_after(config);
            if !self.is_degraded || !is_long || self.good_answers < ANSWERS_TO_RECOVER {
                return None;
            }
            self.is_degraded = false;
            self.has_recovered = true;
            self.since = now;
            self.reason.clear();
            let seconds = (now - self.good_since).as_secs();
            return Some(StateChange {
                from: AdaptiveState::Degraded,
                to: AdaptiveState::Healthy,
                reason: format!(
                    "within its bounds for {seconds} s, {} answers",
                    self.good_answers
                ),
            });
        };
        self.against += 1;
        self.good_since = now;
        self.good_answers = 0;
        let reason = self.words(crossed);
        if self.is_degraded {
            self.reason = reason;
            return None;
        }
        // Slowness was seen in several seconds already.
        let is_new = self.against < PERSISTENCE && !matches!(crossed, Crossed::Slow { .. });
        if is_new {
            return None;
        }
        self.degrade(now, reason.clone());
        Some(StateChange {
            from: AdaptiveState::Healthy,
            to: AdaptiveState::Degraded,
            reason,
        })
    }

    /// How long it has to be well: longer each time for one that is slow by turns.
    fn recover_after(&self, config: &AdaptiveConfig) -> Duration {
        config.recover_after * (1 + self.relapses)
    }

    /// Moves the weight towards where it should be.
    fn weigh(&mut self, now: Instant, config: &AdaptiveConfig) {
        let floor = config.weight_min.clamp(0.0, 1.0);
        let mut target = 1.0;
        if self.is_degraded {
            let good = (now - self.good_since).as_secs_f64();
            let steps = good / self.recover_after(config).as_secs_f64().max(1.0);
            target = self.score.min(floor + (1.0 - floor) * steps);
        }
        let stepped = if target < self.weight {
            target.max(self.weight - FALL_PER_SECOND)
        } else {
            target.min(self.weight + RISE_PER_SECOND)
        };
        self.weight = stepped.clamp(floor, 1.0);
        if let Some(ramp) = &self.ramp {
            let progress = ramp.progress(now, config);
            // A slow start rises by its own rule, but never above what the score allows.
            self.weight = (floor + (1.0 - floor) * progress).min(target.max(floor));
            if progress >= 1.0 {
                self.ramp = None;
            }
        }
    }

    fn words(&self, crossed: Crossed) -> String {
        let samples = self.window.total();
        match crossed {
            Crossed::Slow { p95, baseline } => {
                let times = p95.as_secs_f64() / baseline.latency().as_secs_f64().max(1e-6);
                format!(
                    "p95 {} is {times:.1} × {baseline} over {SLICES} s, {samples} requests",
                    Milliseconds(p95)
                )
            }
            Crossed::Failing { share, siblings } => format!(
                "{:.0} % of its requests fail (siblings: {:.1} %) over {SLICES} s, {samples} requests",
                share * 100.0,
                siblings * 100.0
            ),
            Crossed::Saturated { share } => {
                format!("{:.0} % of what it can take is taken", share * 100.0)
            }
            Crossed::Silent { failed } => {
                format!("{failed} requests failed within {PERSISTENCE} s and none was answered")
            }
        }
    }
}

/// A latency for people: `0.42 ms`, `158 ms`.
pub(crate) struct Milliseconds(pub(crate) Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0.as_secs_f64() * 1e3;
        let digits = if value < 1.0 {
            2
        } else {
            usize::from(value < 10.0)
        };
        write!(f, "{value:.digits$} ms")
    }
}
