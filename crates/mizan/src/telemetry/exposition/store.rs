//! Metrics of the store's table. Without a store there are none.

use super::{Family, Kind, Scrape};
use crate::telemetry::metrics::StoreFigures;

const CODE: &[&str] = &["code"];

pub(super) const CLOCK_AHEAD: Family = Family {
    name: "mizan_store_clock_ahead_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "How far another node's clock is ahead of this one's; 0 while none is by over half a second.",
    write: |scrape, samples| {
        each(scrape, |store| {
            let ahead = store.clock_ahead.unwrap_or_default();
            samples.sample(&[], ahead.as_secs_f64());
        });
    },
};

pub(super) const EVENTS: Family = Family {
    name: "mizan_store_events_total",
    kind: Kind::Counter,
    labels: CODE,
    help: "What has happened between Mizan and the store of the routing table.",
    write: |scrape, samples| {
        each(scrape, |store| {
            for (event, count) in &store.events {
                samples.sample(&[event], *count);
            }
        });
    },
};

pub(super) const HELD_BACK: Family = Family {
    name: "mizan_store_held_back",
    kind: Kind::Gauge,
    labels: &[],
    help: "1 while the table as the store has it is not in force, because it looks like a loss.",
    write: |scrape, samples| {
        each(scrape, |store| {
            samples.sample(&[], u64::from(store.is_held_back));
        });
    },
};

pub(super) const OBJECTS: Family = Family {
    name: "mizan_store_objects",
    kind: Kind::Gauge,
    labels: CODE,
    help: "Objects of the table: in force; rejected, or waiting for a new pool, by the reasons in `mizan status`.",
    write: |scrape, samples| {
        each(scrape, |store| {
            samples.sample(&["in_force"], store.objects);
            samples.sample(&["rejected"], store.rejected);
            samples.sample(&["waiting"], store.waiting);
        });
    },
};

pub(super) const REVISION: Family = Family {
    name: "mizan_store_revision",
    kind: Kind::Gauge,
    labels: CODE,
    help: "Revision of the table: that is known, and that is in force.",
    write: |scrape, samples| {
        each(scrape, |store| {
            samples.sample(&["in_force"], store.revision_in_force);
            samples.sample(&["known"], store.revision);
        });
    },
};

pub(super) const STANDING: Family = Family {
    name: "mizan_store_standing",
    kind: Kind::Gauge,
    labels: CODE,
    help: "1 for how well the table is known: live, stale (the store is away), restored (not heard since the start), unknown.",
    write: |scrape, samples| {
        each(scrape, |store| {
            for standing in StoreFigures::STANDINGS {
                samples.sample(&[standing], u64::from(standing == store.standing));
            }
        });
    },
};

pub(super) const STANDING_SINCE: Family = Family {
    name: "mizan_store_standing_since_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "Since when the table is known as it is, since the Unix epoch; of a restored one, when it was written.",
    write: |scrape, samples| {
        each(scrape, |store| {
            samples.sample(&[], store.since.as_secs_f64())
        });
    },
};

/// The store's figures, if there is a store.
fn each(scrape: &Scrape<'_>, write: impl FnOnce(&StoreFigures)) {
    if let Some(store) = scrape.metrics.store() {
        write(&store);
    }
}
