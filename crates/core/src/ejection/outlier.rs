//! What a look at the last seconds finds: backends that fail far more than their siblings, or all the
//! time, though never often enough in a row.

use crate::measure::window::Window;

use super::{EjectionCause, EjectionConfig};

/// A success rate that is this much below the mean is worth a reaction, however alike the others are.
const DIFFERENCE_MIN: f64 = 0.05;
/// Seconds without a success that eject, and the failures that it takes.
const STEADY_SECONDS: usize = 5;
const STEADY_FAILURES: u32 = 3;

/// Success rates of a pool: of those backends that had enough requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    count: u32,
    mean: f64,
    deviation: f64,
}

impl Rates {
    /// Of the windows of backends in service.
    pub(crate) fn new<'a>(
        windows: impl Iterator<Item = &'a Window>,
        config: &EjectionConfig,
    ) -> Self {
        let (mut count, mut sum, mut squares) = (0u32, 0.0, 0.0);
        for window in windows.filter(|window| window.total() >= config.requests_min.max(1)) {
            let rate = 1.0 - window.failed_share();
            count += 1;
            sum += rate;
            squares += rate * rate;
        }
        let mean = sum / f64::from(count.max(1));
        let variance = squares / f64::from(count.max(1)) - mean * mean;
        Self {
            count,
            mean,
            deviation: variance.max(0.0).sqrt(),
        }
    }
}

/// Why the backend with this window is to be ejected, with the figures; `None` if it is not.
pub(crate) fn find(
    window: &Window,
    rates: &Rates,
    config: &EjectionConfig,
) -> Option<(EjectionCause, String)> {
    if let (0, failed) = window.last(STEADY_SECONDS)
        && failed >= STEADY_FAILURES
        && window.is_full_for(STEADY_SECONDS)
    {
        let text = format!("{failed} requests failed within {STEADY_SECONDS} s and none succeeded");
        return Some((EjectionCause::Steady, text));
    }
    let total = window.total();
    if total < config.requests_min.max(1) {
        return None;
    }
    let failed = window.failed_share();
    if failed >= config.failed_share {
        let text = format!(
            "{:.0} % of {total} requests failed within 10 s",
            failed * 100.0
        );
        return Some((EjectionCause::FailedShare, text));
    }
    let bound = rates.mean - config.success_rate_deviations * rates.deviation;
    let is_far = 1.0 - failed < bound.min(rates.mean - DIFFERENCE_MIN);
    let is_judged = config.success_rate_deviations > 0.0
        && rates.count >= config.success_rate_backends_min.max(2);
    (is_judged && is_far).then(|| {
        let text = format!(
            "{:.1} % of its requests succeed, where {:.1} % do at the pool's {} backends (bound {:.1} %), {total} requests within 10 s",
            (1.0 - failed) * 100.0,
            rates.mean * 100.0,
            rates.count,
            bound * 100.0
        );
        (EjectionCause::SuccessRate, text)
    })
}
