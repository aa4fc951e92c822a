use super::*;
use crate::telemetry::{Cause, Finished, ReloadResult, RetryCause, StoreFigures, fixture};
use std::time::Duration;

#[test]
fn the_text_is_the_committed_one() {
    let snapshot = fixture::snapshot(&["web"], &[("api", &["v1", "v2"])], &[("all", &["api"])]);
    let metrics = Metrics::new(2, Duration::from_millis(1_767_225_600_500));
    metrics.loaded(1, Duration::from_secs(1_767_225_601));
    metrics.reloaded(ReloadResult::Refused);
    let worker = metrics.register(&snapshot).worker(1);
    let place = worker.place(Some(0), Some(&snapshot.pools["api"]), "v2");
    worker.listener(0).connections_accepted.add(2);
    worker.listener(0).started();
    worker.listener(0).started();
    let pool = worker.pool(place);
    pool.latency.record(Duration::from_micros(900));
    pool.retried(RetryCause::ConnectRefused);
    pool.rescued(Cause::ConnectRefused);
    let _open = worker.connection_opened(place);
    metrics.backend(1, "api", "10.0.0.1:8001").requests.add(1);
    worker.finished(&Finished {
        listener: 0,
        place,
        status: 200,
        reason: None,
        duration: Duration::from_millis(1),
        bytes_in: 80,
        bytes_out: 1200,
    });
    insta::assert_snapshot!(render(&metrics, &snapshot, Instant::default()));
}

#[test]
fn a_store_has_its_figures_and_without_one_there_are_none() {
    let snapshot = fixture::snapshot(&["web"], &[("api", &["v1"])], &[("all", &["api"])]);
    let metrics = Metrics::new(1, Duration::ZERO);
    let of_store = || {
        let text = render(&metrics, &snapshot, Instant::default());
        let lines = text.lines().filter(|line| line.starts_with("mizan_store_"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of_store(), [""; 0]);
    metrics.set_store(StoreFigures {
        standing: "stale",
        since: Duration::from_millis(1_767_225_600_500),
        revision: 12,
        revision_in_force: 11,
        objects: 40,
        rejected: 2,
        waiting: 1,
        is_held_back: true,
        events: vec![("connected", 3), ("lost", 4)],
        clock_ahead: Some(Duration::from_millis(1_500)),
    });
    assert_eq!(
        of_store(),
        [
            "mizan_store_clock_ahead_seconds 1.5",
            "mizan_store_events_total{code=\"connected\"} 3",
            "mizan_store_events_total{code=\"lost\"} 4",
            "mizan_store_held_back 1",
            "mizan_store_objects{code=\"in_force\"} 40",
            "mizan_store_objects{code=\"rejected\"} 2",
            "mizan_store_objects{code=\"waiting\"} 1",
            "mizan_store_revision{code=\"in_force\"} 11",
            "mizan_store_revision{code=\"known\"} 12",
            "mizan_store_standing{code=\"unknown\"} 0",
            "mizan_store_standing{code=\"restored\"} 0",
            "mizan_store_standing{code=\"live\"} 0",
            "mizan_store_standing{code=\"stale\"} 1",
            "mizan_store_standing_since_timestamp_seconds 1767225600.5",
        ]
    );
}

#[test]
fn metrics_are_sorted_and_named_by_the_rules() {
    assert!(FAMILIES.is_sorted_by(|one, two| one.name < two.name));
    const LABELS: [&str; 7] = [
        "listener", "route", "pool", "backend", "version", "cause", "code",
    ];
    for family in FAMILIES {
        assert!(family.name.starts_with("mizan_"), "{}", family.name);
        assert_eq!(
            family.name.ends_with("_total"),
            family.kind == Kind::Counter,
            "{}",
            family.name
        );
        assert!(
            family.labels.iter().all(|label| LABELS.contains(label)),
            "{}",
            family.name
        );
        let histogram = family.kind == Kind::Histogram;
        assert!(
            !(histogram && family.labels.contains(&"backend")),
            "no histogram for each backend"
        );
    }
}

#[test]
fn label_values_are_escaped() {
    let mut samples = Samples {
        out: String::new(),
        name: "x",
        labels: &["pool"],
    };
    samples.sample(&["a\"b\\c\nd"], 1);
    assert_eq!(samples.out, "x{pool=\"a\\\"b\\\\c\\nd\"} 1\n");
}

#[test]
fn the_end_of_the_first_certificate_that_ends_is_told() {
    let mut snapshot = fixture::snapshot(&["web", "tls"], &[], &[]);
    let mut listener = (*snapshot.listeners[1]).clone();
    let mut tls = fixture::server_tls(&["a.example", "b.example"], 1_900_000_000);
    let sooner = fixture::server_tls(&["c.example"], 1_800_000_000);
    tls.certificates.extend(sooner.certificates);
    listener.tls = Some(Arc::new(tls));
    snapshot.listeners[1] = Arc::new(listener);
    let metrics = Metrics::new(1, Duration::ZERO);
    let text = render(&metrics, &snapshot, Instant::default());
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("mizan_certificate"))
        .collect();
    assert_eq!(
        lines,
        ["mizan_certificate_expiry_timestamp_seconds{listener=\"tls\"} 1800000000"]
    );
}
