//! All that is known of a pool, for people and metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::adaptive::{AdaptiveState, LEVELS};
use crate::availability::{Admin, Availability, Gate, Mode, availability};
use crate::backend::Address;
use crate::backend::told::LoadSaid;
use crate::ejection::Ejection;
use crate::health::Health;
use crate::policy::PolicyKind;
use crate::spread::Place;
use crate::time::Instant;

use super::entry::Entry;

/// A pool at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolStatus {
    /// Who gets a request.
    pub policy: PolicyKind,
    /// Whether health is ignored.
    pub panic: bool,
    /// What is likelier at fault in a panic, as a plain sentence; empty without one.
    pub belief: String,
    /// Which tiers and zones get how much, as a plain sentence; empty where there are not several.
    pub spread: String,
    /// What exactly is ignored.
    pub mode: Mode,
    /// Backends that may be picked: those of `backends` that are [`usable`](BackendStatus::usable). In a panic these
    /// are more than look healthy.
    pub usable: usize,
    /// Backends that look healthy, of those that people left in.
    pub healthy: usize,
    /// Backends that people left in.
    pub ready: usize,
    /// All members.
    pub total: usize,
    /// Each member, in configured order.
    pub backends: Vec<BackendStatus>,
}

/// One backend at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendStatus {
    /// Identity in the pool.
    pub key: Arc<str>,
    /// Unique in the process.
    pub id: u64,
    /// Where it listens.
    pub address: Address,
    /// What runs there; empty if not said.
    pub version: Arc<str>,
    /// Its tier and its zone.
    pub place: Place,
    /// Its share of traffic as configured.
    pub weight: u32,
    /// What traffic says of it.
    pub state: AdaptiveState,
    /// How well it serves, `0.0..=1.0`.
    pub score: f64,
    /// The share of its weight that it gets, `0.0..=1.0`.
    pub weight_share: f64,
    /// What the operator wants.
    pub admin: Admin,
    /// What probes say.
    pub health: Health,
    /// What traffic says.
    pub ejection: Ejection,
    /// Whether it refuses connections.
    pub refused: bool,
    /// Whether nothing speaks against picking it, limits of requests in flight apart. Others may be asked
    /// before it.
    pub usable: bool,
    /// What all that comes to.
    pub availability: Availability,
    /// Requests in flight.
    pub in_flight: u32,
    /// Latency as the policies see it.
    pub latency: Option<Duration>,
    /// What it said last of its own load, where the policy goes by that.
    pub told: Option<LoadSaid>,
    /// Failures of late, in virtual requests in flight.
    pub penalty: f32,
    /// Why it is as it is, as a plain sentence; empty if there is nothing to say.
    pub reason: String,
    /// Since when it is.
    pub since: Instant,
}

impl BackendStatus {
    /// `standing` is what its place among the others leads to, as a sentence.
    pub(crate) fn of(entry: &Entry, now: Instant, mode: Mode, standing: String) -> Self {
        let backend = &entry.backend;
        let live = backend.live();
        let refused = entry.refusal.is_refused();
        let joined = availability(
            entry.admin,
            entry.health.health(),
            entry.ejector.is_ejected(),
            refused,
            mode,
        );
        let joined = with_standing(joined, live.gate.load());
        let (reason, since) = explain(entry, now, joined);
        let reason = if reason.is_empty() { standing } else { reason };
        Self {
            key: Arc::clone(backend.key()),
            id: backend.id(),
            address: backend.address().clone(),
            version: Arc::clone(backend.version()),
            place: entry.place.clone(),
            weight: backend.weight(),
            state: match entry.ejector.is_ejected() {
                true => AdaptiveState::Unhealthy,
                false => entry.adaptive.state(),
            },
            score: entry.adaptive.score(),
            weight_share: f64::from(live.level()) / f64::from(LEVELS),
            admin: entry.admin,
            health: entry.health.health(),
            ejection: entry.ejector.state(),
            refused,
            usable: backend.is_usable(),
            availability: joined,
            in_flight: backend.in_flight(),
            latency: backend.latency(now),
            told: live.told.said(now),
            penalty: live.penalty.at(now),
            reason,
            since,
        }
    }
}

/// Of one that nothing speaks against, whether it is asked.
fn with_standing(joined: Availability, gate: Gate) -> Availability {
    match joined {
        Availability::Usable if gate.has(Gate::OUTSIDE) => Availability::Outside,
        Availability::Usable if gate.has(Gate::STANDBY) => Availability::Standby,
        other => other,
    }
}

/// The first reason that holds, and since when.
fn explain(entry: &Entry, now: Instant, joined: Availability) -> (String, Instant) {
    let panic = if joined == Availability::UsedInPanic {
        " (used in panic)"
    } else {
        ""
    };
    if entry.admin != Admin::Ready {
        return (
            format!("set to {} by the operator", entry.admin),
            entry.admin_since,
        );
    }
    if entry.backend.weight() == 0 {
        return ("weight 0".to_owned(), entry.admin_since);
    }
    if let Some(since) = entry.refusal.since() {
        return (format!("refuses connections{panic}"), since);
    }
    match entry.ejector.state() {
        Ejection::Ejected {
            until,
            count,
            cause,
        } => {
            let left = (until - now).as_secs();
            let text = format!(
                "ejected (number {count} in a row) for {left} s more: {}{panic}",
                entry.ejection_reason(cause)
            );
            return (text, entry.ejection_since);
        }
        Ejection::Probation { .. } => {
            return (
                "on probation after an ejection".to_owned(),
                entry.ejection_since,
            );
        }
        Ejection::None => {}
    }
    let share = entry.adaptive.weight() * 100.0;
    let since = entry.health.since();
    match entry.health.health() {
        Health::Down => (
            format!("probes fail: {}{panic}", entry.health.reason()),
            since,
        ),
        Health::Unknown | Health::Up => match entry.adaptive.reason() {
            ("", _) if entry.adaptive.is_ramping() => {
                let text = format!("starting slowly: {share:.0} % of its weight");
                (text, since.max(entry.admin_since))
            }
            ("", _) => (String::new(), since.max(entry.admin_since)),
            (reason, since) => (
                format!("degraded, {share:.0} % of its weight: {reason}"),
                since,
            ),
        },
    }
}
