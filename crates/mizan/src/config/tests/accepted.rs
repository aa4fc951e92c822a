//! What a file comes out as.

use super::*;
use crate::snapshot::route::{Action, HostMatch, PathMatch, Rewrite, ValueMatch};
use crate::snapshot::{AdminBind, Bind, Configured, HashKey, LogTarget, ProbeKind};
use std::time::Duration;

#[test]
fn the_smallest_file_has_the_documented_defaults() {
    let snapshot = clean(MINIMAL);
    let settings = &snapshot.settings;
    assert_eq!(
        settings.admin,
        [AdminBind::Unix("/run/mizan/admin.sock".into())]
    );
    assert_eq!(
        settings.health_bind,
        Some(SocketAddr::from(([127, 0, 0, 1], 9901)))
    );
    assert_eq!(settings.metrics_bind, settings.health_bind);
    assert_eq!(settings.access_log, None);
    assert_eq!(
        (settings.drain.window, settings.drain.deadline),
        (Duration::from_secs(15), Duration::from_secs(30))
    );
    assert!(settings.reload_watch && settings.workers >= 1);
    assert_eq!(settings.upstream_idle_max, 10_000);

    let listener = &snapshot.listeners[0];
    assert_eq!(
        (&*listener.name, listener.backlog, listener.connections_max),
        ("0.0.0.0:8000", 4096, 100_000)
    );
    assert_eq!(
        (
            listener.limits.head_bytes_max,
            listener.limits.headers_max,
            listener.limits.target_bytes_max
        ),
        (32 << 10, 100, 8 << 10)
    );
    assert_eq!(
        (
            listener.body_bytes_max,
            listener.requests_per_connection_max,
            listener.upstream_header
        ),
        (None, None, false)
    );
    let timeouts = [
        listener.timeouts.header,
        listener.timeouts.body,
        listener.timeouts.send,
        listener.timeouts.idle,
        listener.timeouts.half_close,
    ];
    assert_eq!(
        timeouts.map(|timeout| timeout.as_secs()),
        [10, 30, 30, 75, 1]
    );
    assert_eq!(
        (
            listener.min_rate.upload_bytes_per_second,
            listener.min_rate.download_bytes_per_second
        ),
        (256, 256)
    );
}

#[test]
fn the_smallest_pool_and_route_have_the_documented_defaults() {
    let snapshot = clean(MINIMAL);
    let pool = &snapshot.pools["api"];
    assert_eq!(
        pool.members
            .iter()
            .map(|member| &*member.key)
            .collect::<Vec<_>>(),
        ["10.0.0.1:8080", "10.0.0.2:8080"]
    );
    let expected = mizan_core::pool::PoolConfig {
        probed: false,
        ..Default::default()
    };
    assert_eq!(pool.config, expected, "the core's defaults are the file's");
    assert_eq!(
        (pool.timeouts.connect, pool.timeouts.request),
        (Duration::from_secs(1), Duration::ZERO)
    );
    assert_eq!(
        (
            pool.retry.tries_max,
            pool.retry.on.reset,
            pool.retry.buffer_bytes_max
        ),
        (3, true, 0)
    );
    assert_eq!(
        pool.versions
            .iter()
            .map(|version| &**version)
            .collect::<Vec<_>>(),
        [""]
    );

    let route = &snapshot.routes.routes()[0];
    assert_eq!(&*route.name, "route[0]");
    assert!(matches!(&route.path, PathMatch::Prefix(prefix) if prefix == "/"));
    assert!(matches!(&route.action, Action::Forward(split) if &*split.choose(7).name == "api"));
}

/// A route with one of everything.
const RICH: &str = r#"
[[listener]]
name = "edge"
bind = "unix:/run/lb.sock"
[[route]]
name = "r"
listener = "edge"
host = ["A.example", "*.B.example"]
prefix = "/api/"
method = "GET"
header = { X-A = "1", x-b = true, x-c = { regex = "a+" } }
client = "10.0.0.0/8"
split = [{ pool = "a", weight = 3 }, { pool = "b", weight = 1 }]
split_key = "cookie:Session"
rewrite = { prefix = "/v2/" }
body_max = "unlimited"
request_headers = { remove = ["X-Gone"], set = { X-Set = "1" } }
error_pages = { 503 = "later" }
timeouts = { per_try = "0s" }
[pool.a]
backends = ["10.0.0.1:1"]
[pool.b]
backends = ["10.0.0.1:2"]
"#;

#[test]
fn a_route_keeps_what_it_says() {
    let snapshot = clean(RICH);
    assert_eq!(
        snapshot.listeners[0].bind,
        Bind::Unix("/run/lb.sock".into())
    );
    let route = &snapshot.routes.routes()[0];
    assert_eq!(
        route.hosts,
        [
            HostMatch::Exact("a.example".into()),
            HostMatch::Wildcard("b.example".into())
        ]
    );
    assert!(
        matches!(&route.path, PathMatch::Prefix(prefix) if prefix == "/api"),
        "{:?}",
        route.path
    );
    assert!(matches!(&route.rewrite, Some(Rewrite::Prefix(prefix)) if prefix == "/v2"));
    let names: Vec<&str> = route.headers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["x-a", "x-b", "x-c"]);
    assert!(
        matches!(&route.headers[2].1, ValueMatch::Regex(regex) if regex.is_match(b"aa") && !regex.is_match(b"ab"))
    );
}

#[test]
fn a_route_keeps_what_it_does() {
    let snapshot = clean(RICH);
    let route = &snapshot.routes.routes()[0];
    let Action::Forward(split) = &route.action else {
        panic!("{:?}", route.action)
    };
    assert_eq!(
        split
            .pools
            .iter()
            .map(|(pool, sum)| (&*pool.name, *sum))
            .collect::<Vec<_>>(),
        [("a", 3), ("b", 4)]
    );
    assert_eq!(split.key, Some(HashKey::Cookie("Session".into())));
    assert_eq!(route.body_bytes_max, Some(u64::MAX));
    assert_eq!(
        (
            route.request_headers.remove.as_slice(),
            route.request_headers.set.as_slice()
        ),
        (
            &["x-gone".to_owned()][..],
            &[("x-set".to_owned(), "1".to_owned())][..]
        )
    );
    assert_eq!(
        (
            route.error_pages[0].0,
            route.error_pages[0].1.body.as_slice()
        ),
        (503, &b"later"[..])
    );
    assert_eq!(
        (route.timeouts.per_try, route.timeouts.request),
        (Some(Duration::ZERO), None)
    );
}

#[test]
fn a_health_check_takes_a_status_a_range_or_a_list() {
    for (expect, passes, fails) in [
        ("200", 200, 201),
        ("\"200-299\"", 250, 300),
        ("[200, \"301-302\"]", 302, 303),
    ] {
        let text = format!("{MINIMAL}health = {{ path = \"/h?x=1\", expect = {expect} }}\n");
        let snapshot = clean(&text);
        let health = snapshot.pools["api"]
            .health
            .as_ref()
            .expect("it has checks");
        let ProbeKind::Http { expect, path, .. } = &health.kind else {
            panic!("{:?}", health.kind)
        };
        assert!(
            expect.contains(passes) && !expect.contains(fails),
            "{expect:?}"
        );
        assert_eq!(path, "/h?x=1");
    }
}

#[test]
fn settings_are_switched_off_and_moved() {
    let text = format!(
        "workers = 3\nhealth = {{ bind = \"off\" }}\nmetrics = {{ bind = \"[::1]:9000\" }}\nlog = {{ access = \"/var/log/a\", query = true }}\nadmin = {{ socket = \"off\" }}\nreload = {{ watch = false }}\n{MINIMAL}"
    );
    let settings = clean(&text).settings;
    assert_eq!(
        (settings.workers, settings.health_bind, settings.admin.len()),
        (3, None, 0)
    );
    assert_eq!(
        settings.metrics_bind,
        Some("[::1]:9000".parse().expect("an address"))
    );
    assert_eq!(
        settings.access_log.map(|log| (log.target, log.query)),
        Some((LogTarget::File("/var/log/a".into()), true))
    );
    assert!(!settings.reload_watch);
}

#[test]
fn names_become_all_of_their_addresses() {
    let text = MINIMAL.replace(
        "\"10.0.0.2:8080\"",
        "{ address = \"App.local:80\", weight = 3, version = \"v2\" }",
    );
    let resolve = |name: &str| {
        assert_eq!(name, "app.local:80");
        Ok(vec![
            "10.1.0.2:80".parse().expect("an address"),
            "10.1.0.1:80".parse().expect("an address"),
            "10.1.0.2:80".parse().expect("an address"),
        ])
    };
    let (snapshot, warnings) = compile(
        &[Source::new("lb.toml", text)],
        None,
        &resolve,
        Instant::default(),
        1,
    )
    .expect("it compiles");
    assert_eq!(lines(&warnings), Vec::<String>::new());
    let pool = &snapshot.pools["api"];
    let keys: Vec<(&str, u32)> = pool
        .members
        .iter()
        .map(|member| (&*member.key, member.weight))
        .collect();
    assert_eq!(
        keys,
        [
            ("10.0.0.1:8080", 1),
            ("app.local:80/10.1.0.1", 3),
            ("app.local:80/10.1.0.2", 3)
        ]
    );
    assert!(
        matches!(&pool.configured[1], Configured::Named { name, template, .. } if name == "app.local:80" && template.weight == 3),
        "{:?}",
        pool.configured
    );
    assert_eq!(
        pool.versions
            .iter()
            .map(|version| &**version)
            .collect::<Vec<_>>(),
        ["", "v2"]
    );
}

#[test]
fn tiers_zones_and_a_subset_reach_the_pool() {
    let text = MINIMAL.replace(
        "backends = [\"10.0.0.1:8080\", \"10.0.0.2:8080\"]",
        "overprovisioning = 2.5
backends = [
  { address = \"10.0.0.1:8080\", zone = \"a\" },
  { address = \"10.0.0.2:8080\", zone = \"b\", backup = true },
  { address = \"10.0.0.3:8080\", zone = \"b\", priority = 7 },
]
[pool.large]
subset_size = 2
backends = [\"10.0.1.1:8080\", \"10.0.1.2:8080\", \"10.0.1.3:8080\"]
[[route]]
prefix = \"/large\"
pool = \"large\"
[node]
zone = \"a\"
index = 1
of = 3",
    );
    let snapshot = clean(&text);
    let pool = &snapshot.pools["api"];
    let places: Vec<(u32, &str)> = pool
        .members
        .iter()
        .map(|member| (member.place.tier, &*member.place.zone))
        .collect();
    assert_eq!(places, [(0, "a"), (1, "b"), (7, "b")]);
    let spread = &pool.config.spread;
    assert_eq!(
        (
            spread.overprovisioning,
            spread.zone.as_deref(),
            spread.subset
        ),
        (2.5, Some("a"), None)
    );
    let subset = snapshot.pools["large"].config.spread.subset;
    let wanted = mizan_core::Subset {
        size: 2,
        index: 1,
        of: 3,
    };
    assert_eq!(subset, Some(wanted));
    let plain = clean(MINIMAL);
    assert_eq!(
        plain.pools["api"].config.spread,
        mizan_core::SpreadConfig::default()
    );
}
