use super::*;
use crate::snapshot::route::Action;
use crate::telemetry::exposition::render;
use crate::telemetry::fixture::snapshot;
use crate::telemetry::{Cause, ConnectionRefusal};
use mizan_core::time::Instant;

const VERSIONS: &[&str] = &["v1", "v2"];

fn metrics() -> Arc<Metrics> {
    Metrics::new(2, Duration::from_secs(1))
}

fn finished(place: Place, status: u16) -> Finished {
    Finished {
        listener: 0,
        place,
        status,
        reason: None,
        duration: Duration::from_millis(2),
        bytes_in: 100,
        bytes_out: 1000,
    }
}

/// Samples of `text` whose line starts with `start`.
fn lines<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    text.lines()
        .filter(|line| line.starts_with(start))
        .collect()
}

#[test]
fn every_place_has_the_labels_it_was_asked_for() {
    let snapshot = snapshot(
        &["web"],
        &[("a", VERSIONS), ("b", &[""])],
        &[("one", &["a"]), ("two", &[]), ("both", &["b", "a"])],
    );
    let metrics = metrics();
    let series = metrics.register(&snapshot);
    let worker = series.worker(0);
    for route in snapshot.routes.routes() {
        let mut places = vec![(worker.place(Some(route.index), None, ""), "", "")];
        if let Action::Forward(split) = &route.action {
            for (pool, _) in &split.pools {
                places.push((
                    worker.place(Some(route.index), Some(pool), ""),
                    &*pool.name,
                    "",
                ));
                for version in pool.versions.iter().filter(|version| !version.is_empty()) {
                    places.push((
                        worker.place(Some(route.index), Some(pool), version),
                        &*pool.name,
                        &**version,
                    ));
                }
            }
        }
        for (place, pool, version) in places {
            let (named_route, named_pool, named_version) = series.labels(place.in_row as usize);
            assert_eq!(
                (&*named_route, &*named_pool, &*named_version),
                (&*route.name, pool, version)
            );
        }
    }
    assert_eq!(&*series.labels(Place::NOWHERE.in_row as usize).0, "");
}

#[test]
fn workers_add_up_and_a_reload_forgets_nothing() {
    let metrics = metrics();
    let before = snapshot(&["web"], &[("a", VERSIONS)], &[("one", &["a"])]);
    let after = snapshot(
        &["new", "web"],
        &[("0", &[""]), ("a", VERSIONS)],
        &[("zero", &["0"]), ("one", &["a"])],
    );
    for (generation, snapshot) in [before, after].iter().enumerate() {
        let series = metrics.register(snapshot);
        let route = snapshot
            .routes
            .routes()
            .iter()
            .find(|route| &*route.name == "one")
            .expect("the route");
        let listener = snapshot
            .listeners
            .iter()
            .find(|listener| &*listener.name == "web")
            .expect("the listener")
            .index;
        assert_eq!(listener, generation, "it moves");
        for worker in 0..2 {
            let worker = series.worker(worker);
            let place = worker.place(Some(route.index), Some(&snapshot.pools["a"]), "v2");
            worker.listener(listener).started();
            worker.pool(place).latency.record(Duration::from_millis(1));
            worker.finished(&Finished {
                listener,
                ..finished(place, 204)
            });
        }
    }
    let text = render(&metrics, &snapshot(&[], &[], &[]), Instant::default());
    assert_eq!(
        lines(&text, "mizan_requests_total"),
        [r#"mizan_requests_total{listener="web",route="one",pool="a",version="v2",code="2xx"} 4"#]
    );
    assert_eq!(
        lines(&text, "mizan_upstream_latency_seconds_count"),
        [r#"mizan_upstream_latency_seconds_count{pool="a",version="v2"} 4"#]
    );
    assert!(text.contains("mizan_sent_bytes_total{listener=\"web\"} 4000\n"));
}

#[test]
fn a_connection_counts_under_its_listener_whatever_reloads_do() {
    let metrics = metrics();
    let listeners: [&[&str]; 3] = [&["old", "web"], &["web"], &["new", "web"]];
    let workers = listeners.map(|names| metrics.register(&snapshot(names, &[], &[])).worker(0));
    for name in ["old", "web"] {
        for worker in &workers {
            let listener = worker.listener_index(name);
            worker.listener(listener).started();
            worker.finished(&Finished {
                listener,
                ..finished(Place::NOWHERE, 404)
            });
        }
    }
    let totals = metrics.totals();
    assert_eq!(
        ["old", "web", "new", ""].map(|name| totals.listener(name).requests),
        [3, 3, 0, 0]
    );
    let unknown = workers[0].listener_index("never");
    workers[0].listener(unknown).started();
    let text = render(&metrics, &snapshot(&[], &[], &[]), Instant::default());
    assert!(
        text.contains("mizan_requests_in_flight{listener=\"\"} 1\n"),
        "{text}"
    );
}

#[test]
fn a_gauge_may_be_raised_by_one_worker_and_lowered_by_another() {
    let metrics = metrics();
    let snapshot = snapshot(&["web"], &[("a", VERSIONS)], &[("one", &["a"])]);
    let series = metrics.register(&snapshot);
    let [one, two] = [0, 1].map(|worker| series.worker(worker));
    one.listener(0).connections_accepted.add(3);
    two.listener(0).connections_closed.add(2);
    let text = render(&metrics, &snapshot, Instant::default());
    assert!(
        !text.contains("listener=\"\""),
        "nothing was counted for it: {text}"
    );
    assert!(text.contains("mizan_connections{listener=\"web\"} 1\n"));
}

#[test]
fn a_connection_is_open_while_it_lives_and_idle_while_it_rests() {
    let metrics = metrics();
    let snapshot = snapshot(&["web"], &[("a", VERSIONS)], &[("one", &["a"])]);
    let worker = metrics.register(&snapshot).worker(0);
    let counted = |name: &str| {
        let text = render(&metrics, &snapshot, Instant::default());
        let start = format!("mizan_upstream_connections{name}{{pool=\"a\",version=\"v1\"}} ");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .expect("the series");
        line.parse::<u64>().expect("a number")
    };
    let all = || ["", "_idle", "_opened_total", "_reused_total"].map(counted);
    let place = worker.pool_place(&snapshot.pools["a"], "v1");
    let mut used = worker.connection_opened(place);
    let mut resting = worker.connection_opened(place);
    assert_eq!(all(), [2, 0, 2, 0]);
    used.reuse();
    used.rest();
    used.reuse();
    resting.rest();
    assert_eq!(all(), [2, 1, 2, 1], "reused is what has rested");
    drop(resting);
    assert_eq!(all(), [1, 0, 2, 1]);
    drop(used);
    assert_eq!(all(), [0, 0, 2, 1]);
}

#[test]
fn a_version_for_each_backend_does_not_make_a_histogram_for_each() {
    let versions: Vec<String> = (0..200).map(|version| format!("v{version:03}")).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    let snapshot = snapshot(&["web"], &[("a", &versions)], &[("one", &["a"])]);
    let metrics = metrics();
    let series = metrics.register(&snapshot);
    let worker = series.worker(1);
    for version in &versions {
        let place = worker.place(Some(0), Some(&snapshot.pools["a"]), version);
        worker.pool(place).latency.record(Duration::from_millis(1));
        worker.finished(&finished(place, 200));
    }
    let text = render(&metrics, &snapshot, Instant::default());
    assert_eq!(
        lines(&text, "mizan_upstream_latency_seconds_count").len(),
        VERSIONS_MAX + 1
    );
    assert!(text.contains("pool=\"a\",version=\"other\",code=\"2xx\"} 168\n"));
}

#[test]
fn ten_thousand_backends_stay_below_a_fifth_of_200_000_series_each_scrape() {
    let versions = vec![""; 10_000];
    let snapshot = snapshot(&["web"], &[("a", &versions)], &[("one", &["a"])]);
    let metrics = metrics();
    let series = metrics.register(&snapshot);
    for member in &snapshot.pools["a"].members {
        metrics.backend(0, "a", &member.key).requests.add(1);
    }
    series.worker(0).finished(&finished(Place::NOWHERE, 404));
    let text = render(&metrics, &snapshot, Instant::default());
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!((40_000..40_300).contains(&samples), "{samples}");
}

#[test]
fn a_backend_that_left_takes_its_series_with_it() {
    let metrics = metrics();
    let both = snapshot(&[], &[("a", VERSIONS)], &[]);
    metrics.backend(0, "a", "10.0.0.1:8001").failures.add(5);
    let one = snapshot(&[], &[("a", &["v1"])], &[]);
    assert!(
        render(&metrics, &both, Instant::default())
            .contains("backend=\"10.0.0.1:8001\",version=\"v2\"} 5\n")
    );
    assert!(!render(&metrics, &one, Instant::default()).contains("10.0.0.1:8001"));
    let back = render(&metrics, &both, Instant::default());
    assert!(back.contains(
        "mizan_backend_failures_total{pool=\"a\",backend=\"10.0.0.1:8001\",version=\"v2\"} 0\n"
    ));
}

#[test]
fn series_that_no_configuration_names_end_after_eight_reloads() {
    let metrics = metrics();
    let old = snapshot(&["web"], &[("old", &[""])], &[("one", &["old"])]);
    let series = metrics.register(&old);
    let worker = series.worker(0);
    worker.finished(&finished(
        worker.place(Some(0), Some(&old.pools["old"]), ""),
        200,
    ));
    let new = snapshot(&["web"], &[("new", &[""])], &[("one", &["new"])]);
    for reload in 1..=9 {
        metrics.register(&new);
        let text = render(&metrics, &new, Instant::default());
        assert_eq!(
            text.contains("pool=\"old\""),
            reload <= 8,
            "reload {reload}"
        );
    }
    // A request that outlives its configuration by that much is counted nowhere, and breaks nothing.
    worker.finished(&finished(
        worker.place(Some(0), Some(&old.pools["old"]), ""),
        200,
    ));
}

#[test]
fn a_request_of_no_route_and_an_own_answer_are_counted() {
    let metrics = metrics();
    let snapshot = snapshot(&["web"], &[], &[]);
    let worker = metrics.register(&snapshot).worker(0);
    worker.listener(0).refused(ConnectionRefusal::Limit);
    worker.pool(Place::NOWHERE).unreached(Cause::Shutdown);
    worker.finished(&Finished {
        reason: Some("no_route"),
        ..finished(Place::NOWHERE, 404)
    });
    worker.finished(&finished(worker.place(Some(7), None, ""), 0));
    let text = render(&metrics, &snapshot, Instant::default());
    for line in [
        "mizan_own_answers_total{cause=\"no_route\",code=\"404\"} 1\n",
        "mizan_requests_total{listener=\"web\",route=\"\",pool=\"\",version=\"\",code=\"none\"} 1\n",
        "mizan_requests_total{listener=\"web\",route=\"\",pool=\"\",version=\"\",code=\"4xx\"} 1\n",
        "mizan_unreached_total{pool=\"\",version=\"\",cause=\"shutdown\"} 1\n",
        "mizan_connections_refused_total{listener=\"web\",cause=\"limit\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
