//! Metrics that each backend has.

use super::{Samples, Scrape};
use crate::telemetry::metrics::BackendTotals;
use mizan_core::pool::BackendStatus;

pub(super) fn backend_counter(
    scrape: &Scrape<'_>,
    samples: &mut Samples,
    count: fn(&BackendTotals) -> u64,
) {
    for (name, pool) in &scrape.pools {
        for backend in &pool.backends {
            let totals = scrape.totals.backend(name, &backend.key);
            samples.sample(&[name, &backend.key, &backend.version], count(&totals));
        }
    }
}

pub(super) fn backend_gauge(
    scrape: &Scrape<'_>,
    samples: &mut Samples,
    value: fn(&BackendStatus) -> u64,
) {
    for (name, pool) in &scrape.pools {
        for backend in &pool.backends {
            samples.sample(&[name, &backend.key, &backend.version], value(backend));
        }
    }
}

pub(super) fn weight_percent(scrape: &Scrape<'_>, samples: &mut Samples) {
    for (name, pool) in &scrape.pools {
        // Of 10,000 backends nearly all get all of it: a series each would say nothing.
        let reduced = pool
            .backends
            .iter()
            .filter(|backend| backend.weight_share < 1.0);
        for backend in reduced {
            let percent = (backend.weight_share * 100.0).round() as u64;
            samples.sample(&[name, &backend.key, &backend.version], percent);
        }
    }
}
