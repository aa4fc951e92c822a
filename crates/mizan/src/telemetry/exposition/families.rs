//! Every metric: its name, what it says, and where its numbers come from.

mod pools;

use super::backend::{backend_counter, backend_gauge, weight_percent};
use super::{Family, Kind, Samples, Scrape, store};
use crate::telemetry::cause::{ConnectionRefusal, DatagramDrop, Handshake, ReloadResult};
use crate::telemetry::histogram::Merged;
use crate::telemetry::logging::dropped_lines;
use crate::telemetry::metrics::{GRPC_CODES, ListenerCells};
use pools::{each_pool, load_reports, pool, pool_causes, pool_gauge, retries};
use std::sync::atomic::Ordering;

const LISTENER: &[&str] = &["listener"];
const POOL: &[&str] = &["pool"];
const POOL_VERSION: &[&str] = &["pool", "version"];
const POOL_VERSION_CAUSE: &[&str] = &["pool", "version", "cause"];
const BACKEND: &[&str] = &["pool", "backend", "version"];

/// Every metric, sorted by name.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "mizan_access_log_dropped_lines_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Access log lines lost because the writer was behind or could not write.",
        write: |scrape, samples| {
            samples.sample(
                &[],
                scrape.metrics.access_log_dropped.load(Ordering::Relaxed),
            )
        },
    },
    Family {
        name: "mizan_backend_failures_total",
        kind: Kind::Counter,
        labels: BACKEND,
        help: "Tries that failed at the backend, and its answers with a status of 500 or more.",
        write: |scrape, samples| backend_counter(scrape, samples, |totals| totals.failures),
    },
    Family {
        name: "mizan_backend_in_flight",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Requests that the backend holds now.",
        write: |scrape, samples| {
            backend_gauge(scrape, samples, |backend| u64::from(backend.in_flight))
        },
    },
    Family {
        name: "mizan_backend_requests_total",
        kind: Kind::Counter,
        labels: BACKEND,
        help: "Tries at the backend.",
        write: |scrape, samples| backend_counter(scrape, samples, |totals| totals.requests),
    },
    Family {
        name: "mizan_backend_usable",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "1 while the backend may get new requests; why not is in `mizan status`.",
        write: |scrape, samples| {
            backend_gauge(scrape, samples, |backend| u64::from(backend.usable))
        },
    },
    Family {
        name: "mizan_backend_weight_percent",
        kind: Kind::Gauge,
        labels: BACKEND,
        help: "Share of its configured weight that the backend gets; not there while it gets all of it.",
        write: weight_percent,
    },
    Family {
        name: "mizan_build_info",
        kind: Kind::Gauge,
        labels: &["version"],
        help: "1, with the version of Mizan.",
        write: |_, samples| samples.sample(&[env!("CARGO_PKG_VERSION")], 1),
    },
    Family {
        name: "mizan_certificate_expiry_timestamp_seconds",
        kind: Kind::Gauge,
        labels: &["listener"],
        help: "Until when all certificates of the listener hold, since the Unix epoch; `mizan check` names each.",
        write: certificates,
    },
    Family {
        name: "mizan_config_generation",
        kind: Kind::Gauge,
        labels: &[],
        help: "Number of the configuration in force.",
        write: |scrape, samples| {
            samples.sample(&[], scrape.metrics.generation.load(Ordering::Relaxed))
        },
    },
    Family {
        name: "mizan_config_loaded_timestamp_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "When the configuration came into force, since the Unix epoch.",
        write: |scrape, samples| {
            let ms = scrape.metrics.loaded_at_ms.load(Ordering::Relaxed);
            samples.sample(&[], ms as f64 / 1e3);
        },
    },
    Family {
        name: "mizan_connections",
        kind: Kind::Gauge,
        labels: LISTENER,
        help: "Client connections that are open.",
        write: |scrape, samples| {
            listener(scrape, samples, |cells| {
                cells
                    .connections_accepted
                    .get()
                    .wrapping_sub(cells.connections_closed.get())
            });
        },
    },
    Family {
        name: "mizan_connections_accepted_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Client connections accepted and served.",
        write: |scrape, samples| {
            listener(scrape, samples, |cells| cells.connections_accepted.get())
        },
    },
    Family {
        name: "mizan_connections_closed_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Client connections that have ended.",
        write: |scrape, samples| listener(scrape, samples, |cells| cells.connections_closed.get()),
    },
    Family {
        name: "mizan_connections_refused_total",
        kind: Kind::Counter,
        labels: &["listener", "cause"],
        help: "Client connections that were not served.",
        write: connections_refused,
    },
    Family {
        name: "mizan_datagrams_dropped_total",
        kind: Kind::Counter,
        labels: &["listener", "cause"],
        help: "Datagrams of clients and backends that were dropped.",
        write: datagrams_dropped,
    },
    Family {
        name: "mizan_datagrams_received_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Datagrams that came from clients.",
        write: |scrape, samples| datagrams(scrape, samples, |cells| cells.datagrams_in.get()),
    },
    Family {
        name: "mizan_datagrams_sent_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Datagrams that were sent to clients.",
        write: |scrape, samples| datagrams(scrape, samples, |cells| cells.datagrams_out.get()),
    },
    Family {
        name: "mizan_grpc_calls_total",
        kind: Kind::Counter,
        labels: &["pool", "version", "code"],
        help: "Calls of gRPC that have ended, by status code.",
        write: grpc_calls,
    },
    Family {
        name: "mizan_load_reports_malformed_total",
        kind: Kind::Counter,
        labels: POOL_VERSION,
        help: "Load reports (ORCA) of backends that could not be read or cannot be true, and were ignored.",
        write: |scrape, samples| {
            load_reports(
                scrape,
                samples,
                |reports| reports.malformed,
                |cells| cells.bad_load_reports.get(),
            );
        },
    },
    Family {
        name: "mizan_load_reports_total",
        kind: Kind::Counter,
        labels: POOL_VERSION,
        help: "Load reports (ORCA) of backends that were read, in answers to requests and to probes.",
        write: |scrape, samples| {
            load_reports(
                scrape,
                samples,
                |reports| reports.good,
                |cells| cells.load_reports.get(),
            );
        },
    },
    Family {
        name: "mizan_log_dropped_lines_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Lines of Mizan's own log lost because standard error was not read or could not be written.",
        write: |_, samples| samples.sample(&[], dropped_lines()),
    },
    Family {
        name: "mizan_own_answers_total",
        kind: Kind::Counter,
        labels: &["cause", "code"],
        help: "Answers that Mizan made itself, by reason code and status.",
        write: own_answers,
    },
    Family {
        name: "mizan_pool_backends",
        kind: Kind::Gauge,
        labels: POOL,
        help: "Backends of the pool.",
        write: |scrape, samples| pool_gauge(scrape, samples, |pool| pool.total),
    },
    Family {
        name: "mizan_pool_backends_usable",
        kind: Kind::Gauge,
        labels: POOL,
        help: "Backends of the pool that may get new requests.",
        write: |scrape, samples| {
            pool_gauge(scrape, samples, |pool| {
                pool.backends
                    .iter()
                    .filter(|backend| backend.usable)
                    .count()
            })
        },
    },
    Family {
        name: "mizan_pool_discovery_failures_total",
        kind: Kind::Counter,
        labels: POOL,
        help: "Times that a place which backends are learned from could not be heard, or not whole; `mizan status` says why.",
        write: |scrape, samples| {
            each_pool(scrape, samples, |pool| {
                pool.is_discovered().then(|| pool.discovery.failures())
            })
        },
    },
    Family {
        name: "mizan_pool_panic",
        kind: Kind::Gauge,
        labels: POOL,
        help: "1 while so few backends look healthy that health is ignored.",
        write: |scrape, samples| pool_gauge(scrape, samples, |pool| usize::from(pool.panic)),
    },
    Family {
        name: "mizan_pool_queued",
        kind: Kind::Gauge,
        labels: POOL,
        help: "Requests that wait because every usable backend of the pool is full.",
        write: |scrape, samples| {
            each_pool(scrape, samples, |pool| Some(pool.waiters.count() as u64))
        },
    },
    Family {
        name: "mizan_received_bytes_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Bytes of requests read from clients.",
        write: |scrape, samples| listener(scrape, samples, |cells| cells.bytes_in.get()),
    },
    Family {
        name: "mizan_reloads_total",
        kind: Kind::Counter,
        labels: &["code"],
        help: "Reloads by result.",
        write: |scrape, samples| {
            for result in ReloadResult::ALL {
                let count = scrape.metrics.reloads[*result as usize].load(Ordering::Relaxed);
                samples.sample(&[result.as_str()], count);
            }
        },
    },
    Family {
        name: "mizan_request_duration_seconds",
        kind: Kind::Histogram,
        labels: LISTENER,
        help: "From a request's first byte to its answer's last.",
        write: |scrape, samples| {
            for (name, slots) in scrape.listeners() {
                samples.histogram(&[name], &merged(slots.made().map(|cells| &cells.duration)));
            }
        },
    },
    Family {
        name: "mizan_requests_in_flight",
        kind: Kind::Gauge,
        labels: LISTENER,
        help: "Requests that have begun and not ended.",
        write: |scrape, samples| {
            listener(scrape, samples, |cells| {
                cells
                    .requests_started
                    .get()
                    .wrapping_sub(cells.requests_finished.get())
            });
        },
    },
    Family {
        name: "mizan_requests_total",
        kind: Kind::Counter,
        labels: &["listener", "route", "pool", "version", "code"],
        help: "Requests that have ended, by class of status; `none`: the client was sent nothing.",
        write: requests,
    },
    Family {
        name: "mizan_rescued_total",
        kind: Kind::Counter,
        labels: POOL_VERSION_CAUSE,
        help: "Requests that would have reached nothing, saved by a retry.",
        write: |scrape, samples| {
            pool_causes(
                scrape,
                |labels, cells| samples.counted(labels, cells),
                |cells, cause| &cells.rescued[cause],
            );
        },
    },
    Family {
        name: "mizan_retries_total",
        kind: Kind::Counter,
        labels: POOL_VERSION_CAUSE,
        help: "Tries beyond a request's first, by what failed before.",
        write: retries,
    },
    Family {
        name: "mizan_sent_bytes_total",
        kind: Kind::Counter,
        labels: LISTENER,
        help: "Bytes of answers written to clients.",
        write: |scrape, samples| listener(scrape, samples, |cells| cells.bytes_out.get()),
    },
    Family {
        name: "mizan_start_time_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "When the process started, since the Unix epoch.",
        write: |scrape, samples| {
            samples.sample(&[], scrape.metrics.started_at.as_millis() as f64 / 1e3)
        },
    },
    store::CLOCK_AHEAD,
    store::EVENTS,
    store::HELD_BACK,
    store::OBJECTS,
    store::REVISION,
    store::STANDING,
    store::STANDING_SINCE,
    Family {
        name: "mizan_tls_handshakes_total",
        kind: Kind::Counter,
        labels: &["listener", "code"],
        help: "TLS handshakes of clients, by result.",
        write: handshakes,
    },
    Family {
        name: "mizan_unreached_total",
        kind: Kind::Counter,
        labels: POOL_VERSION_CAUSE,
        help: "Requests that reached nothing, or were cut where they stood when Mizan ended.",
        write: |scrape, samples| {
            pool_causes(
                scrape,
                |labels, count| samples.sample(labels, count),
                |cells, cause| &cells.unreached[cause],
            );
        },
    },
    Family {
        name: "mizan_upstream_connections",
        kind: Kind::Gauge,
        labels: POOL_VERSION,
        help: "Connections to backends that are open.",
        write: |scrape, samples| {
            pool(scrape, samples, |cells| {
                cells
                    .connections_opened
                    .get()
                    .wrapping_sub(cells.connections_closed.get())
            });
        },
    },
    Family {
        name: "mizan_upstream_connections_idle",
        kind: Kind::Gauge,
        labels: POOL_VERSION,
        help: "Connections to backends that wait for a request.",
        write: |scrape, samples| pool(scrape, samples, |cells| cells.connections_idle.get()),
    },
    Family {
        name: "mizan_upstream_connections_opened_total",
        kind: Kind::Counter,
        labels: POOL_VERSION,
        help: "Connections to backends opened.",
        write: |scrape, samples| pool(scrape, samples, |cells| cells.connections_opened.get()),
    },
    Family {
        name: "mizan_upstream_connections_reused_total",
        kind: Kind::Counter,
        labels: POOL_VERSION,
        help: "Requests sent on a connection to a backend that was used before.",
        write: |scrape, samples| pool(scrape, samples, |cells| cells.connections_reused.get()),
    },
    Family {
        name: "mizan_upstream_latency_seconds",
        kind: Kind::Histogram,
        labels: POOL_VERSION,
        help: "From the pick of a backend to the end of its response head, for each try that got one.",
        write: |scrape, samples| {
            for ((pool, version), slots) in &scrape.totals.pools {
                let histogram = merged(slots.made().map(|cells| &cells.latency));
                if histogram.count() > 0 {
                    samples.histogram(&[pool, version], &histogram);
                }
            }
        },
    },
];

fn merged<'a>(histograms: impl Iterator<Item = &'a crate::telemetry::Histogram>) -> Merged {
    let mut merged = Merged::default();
    histograms.for_each(|histogram| merged.add(histogram));
    merged
}

/// Adds up workers. One worker's part of a gauge may be below zero; a sum that is so for the moment
/// between two workers' counts is zero.
fn sum(values: impl Iterator<Item = u64>) -> u64 {
    let sum = values.fold(0, u64::wrapping_add);
    if i64::try_from(sum).is_ok() { sum } else { 0 }
}

fn listener(scrape: &Scrape<'_>, samples: &mut Samples, value: fn(&ListenerCells) -> u64) {
    for (name, slots) in scrape.listeners() {
        samples.sample(&[name], sum(slots.made().map(value)));
    }
}

fn certificates(scrape: &Scrape<'_>, samples: &mut Samples) {
    for listener in &scrape.snapshot.listeners {
        let shown = listener.tls.iter().flat_map(|tls| &tls.certificates);
        if let Some(first) = shown.map(|certificate| certificate.not_after).min() {
            samples.sample(&[&listener.name], first);
        }
    }
}

fn connections_refused(scrape: &Scrape<'_>, samples: &mut Samples) {
    for (name, slots) in scrape.listeners() {
        for cause in ConnectionRefusal::ALL {
            let count = sum(slots
                .made()
                .map(|cells| cells.refused[*cause as usize].get()));
            samples.sample(&[name, cause.as_str()], count);
        }
    }
}

/// Left out where none came: most listeners get no datagrams.
fn datagrams(scrape: &Scrape<'_>, samples: &mut Samples, value: fn(&ListenerCells) -> u64) {
    for (name, slots) in scrape.listeners() {
        samples.counted(&[name], sum(slots.made().map(value)));
    }
}

fn datagrams_dropped(scrape: &Scrape<'_>, samples: &mut Samples) {
    for (name, slots) in scrape.listeners() {
        for cause in DatagramDrop::ALL {
            let count = sum(slots
                .made()
                .map(|cells| cells.datagrams_dropped[*cause as usize].get()));
            samples.counted(&[name, cause.as_str()], count);
        }
    }
}

fn grpc_calls(scrape: &Scrape<'_>, samples: &mut Samples) {
    for ((pool, version), slots) in &scrape.totals.pools {
        for (at, code) in GRPC_CODES.iter().enumerate() {
            let count = sum(slots.made().map(|cells| cells.grpc[at].get()));
            samples.counted(&[pool, version, code], count);
        }
    }
}

fn handshakes(scrape: &Scrape<'_>, samples: &mut Samples) {
    for (name, slots) in scrape.listeners() {
        for result in Handshake::ALL {
            let count = sum(slots
                .made()
                .map(|cells| cells.handshakes[*result as usize].get()));
            samples.counted(&[name, result.as_str()], count);
        }
    }
}

fn own_answers(scrape: &Scrape<'_>, samples: &mut Samples) {
    for ((reason, status), count) in scrape.metrics.answers() {
        samples.sample(&[reason, &status.to_string()], count);
    }
}

fn requests(scrape: &Scrape<'_>, samples: &mut Samples) {
    const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];
    for (key, slots) in &scrape.totals.requests {
        for (at, class) in CLASSES.iter().enumerate() {
            let count = sum(slots.made().map(|cells| cells.classes[at].get()));
            samples.counted(
                &[&key.listener, &key.route, &key.pool, &key.version, class],
                count,
            );
        }
    }
}
