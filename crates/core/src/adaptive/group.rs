//! What is usual in a pool, as far as one of its backends is compared with it.

use std::fmt;
use std::time::Duration;

use super::{ANSWERS_MIN, Adaptive, Milliseconds};

/// How far a backend's own history may excuse it: the siblings' latency this many times.
const EXCUSE_MAX: f64 = 4.0;
/// Below this many times the siblings' latency a backend is no other sort of machine.
const DIFFERENT: f64 = 1.25;

/// The backends of a pool that are in service, as they were within the window.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// p95 of those that have enough answers, seconds, ascending.
    latencies: Vec<f64>,
    /// Shares of failed requests, ascending.
    failed: Vec<f64>,
    /// Saturations, ascending.
    saturations: Vec<f64>,
}

/// What a latency is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Baseline {
    /// The median of its siblings' p95.
    Siblings(Duration),
    /// Its own in the long run.
    History(Duration),
}

impl Baseline {
    pub(crate) fn latency(self) -> Duration {
        match self {
            Self::Siblings(latency) | Self::History(latency) => latency,
        }
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Siblings(latency) => write!(f, "its siblings' {}", Milliseconds(*latency)),
            Self::History(latency) => write!(f, "its own usual {}", Milliseconds(*latency)),
        }
    }
}

impl Group {
    /// Of `members`, those in service.
    pub(crate) fn new<'a>(members: impl Iterator<Item = &'a Adaptive>) -> Self {
        let mut group = Self::default();
        for member in members {
            group.latencies.extend(latency(member));
            group.failed.extend(failed(member));
            group.saturations.push(member.saturation());
        }
        for figures in [
            &mut group.latencies,
            &mut group.failed,
            &mut group.saturations,
        ] {
            figures.sort_unstable_by(f64::total_cmp);
        }
        group
    }

    /// What `member`'s latency is compared with: its siblings', or its own history where that is
    /// higher, within reason, or where there are no siblings.
    pub(crate) fn baseline_of(&self, member: &Adaptive) -> Option<Baseline> {
        let siblings = median_without(&self.latencies, latency(member));
        let seconds = |seconds: f64| Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
        match (siblings, member.history()) {
            (Some(siblings), Some(history)) if history > DIFFERENT * siblings => Some(
                Baseline::History(seconds(history.min(EXCUSE_MAX * siblings))),
            ),
            (Some(siblings), _) => Some(Baseline::Siblings(seconds(siblings))),
            (None, history) => history.map(|history| Baseline::History(seconds(history))),
        }
    }

    /// Share of failed requests that is usual among `member`'s siblings.
    pub(crate) fn failed_without(&self, member: &Adaptive) -> f64 {
        median_without(&self.failed, failed(member)).unwrap_or(0.0)
    }

    /// Their saturation.
    pub(crate) fn saturation_without(&self, member: &Adaptive) -> f64 {
        median_without(&self.saturations, Some(member.saturation())).unwrap_or(0.0)
    }
}

fn latency(member: &Adaptive) -> Option<f64> {
    let is_known = member.window.answered() >= ANSWERS_MIN;
    let p95 = member.window.quantile(0.95).filter(|_| is_known);
    p95.map(|p95| p95.as_secs_f64())
}

fn failed(member: &Adaptive) -> Option<f64> {
    (member.window.total() >= ANSWERS_MIN).then(|| member.window.failed_share())
}

/// The median of `sorted` without one figure that may be among them.
pub(super) fn median_without(sorted: &[f64], one: Option<f64>) -> Option<f64> {
    let at = one.and_then(|one| sorted.binary_search_by(|other| other.total_cmp(&one)).ok());
    let count = sorted.len() - usize::from(at.is_some());
    let nth = |n: usize| match at {
        Some(at) if n >= at => sorted[n + 1],
        _ => sorted[n],
    };
    match count {
        0 => None,
        odd if odd % 2 == 1 => Some(nth(count / 2)),
        _ => Some((nth(count / 2 - 1) + nth(count / 2)) / 2.0),
    }
}
