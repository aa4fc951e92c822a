//! Numbers of pools.

use super::sum;
use crate::snapshot::{Pool, ReportCounts};
use crate::telemetry::cause::{Cause, RetryCause};
use crate::telemetry::exposition::{Samples, Scrape};
use crate::telemetry::metrics::{Counter, PoolCells};
use mizan_core::pool::PoolStatus;

/// What pools count themselves; `None`: it is no such pool.
pub(super) fn each_pool(
    scrape: &Scrape<'_>,
    samples: &mut Samples,
    value: fn(&Pool) -> Option<u64>,
) {
    for pool in scrape.snapshot.pools.values() {
        if let Some(value) = value(pool) {
            samples.sample(&[&pool.name], value);
        }
    }
}

/// Gauges and counters of (pool, version) that some worker has used.
pub(super) fn pool(scrape: &Scrape<'_>, samples: &mut Samples, value: fn(&PoolCells) -> u64) {
    for ((pool, version), slots) in &scrape.totals.pools {
        if slots.made().next().is_some() {
            samples.sample(&[pool, version], sum(slots.made().map(value)));
        }
    }
}

/// Of answers to requests and of answers to probes.
pub(super) fn load_reports(
    scrape: &Scrape<'_>,
    samples: &mut Samples,
    of_probes: fn(ReportCounts) -> u64,
    of_answers: fn(&PoolCells) -> u64,
) {
    for ((pool, version), slots) in &scrape.totals.pools {
        let probes = scrape.snapshot.pools.get(pool);
        let probes = probes.and_then(|pool| pool.load_probes.as_ref());
        let from_probes = probes.map_or(0, |probes| of_probes(probes.reports.of(version)));
        if from_probes > 0 || slots.made().next().is_some() {
            let of_answers = sum(slots.made().map(of_answers));
            samples.sample(&[pool, version], of_answers + from_probes);
        }
    }
}

pub(super) fn pool_causes(
    scrape: &Scrape<'_>,
    mut sample: impl FnMut(&[&str], u64),
    counter: fn(&PoolCells, usize) -> &Counter,
) {
    for ((pool, version), slots) in &scrape.totals.pools {
        for cause in Cause::ALL {
            let count = sum(slots
                .made()
                .map(|cells| counter(cells, *cause as usize).get()));
            sample(&[pool, version, cause.as_str()], count);
        }
    }
}

pub(super) fn retries(scrape: &Scrape<'_>, samples: &mut Samples) {
    for ((pool, version), slots) in &scrape.totals.pools {
        for cause in RetryCause::ALL {
            let count = sum(slots
                .made()
                .map(|cells| cells.retries[*cause as usize].get()));
            samples.counted(&[pool, version, cause.as_str()], count);
        }
    }
}

pub(super) fn pool_gauge(
    scrape: &Scrape<'_>,
    samples: &mut Samples,
    value: fn(&PoolStatus) -> usize,
) {
    for (name, pool) in &scrape.pools {
        samples.sample(&[name], value(pool));
    }
}
