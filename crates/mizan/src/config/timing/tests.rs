//! Each relation holds for the numbers below, and fails for every mutation of one of them that breaks
//! its model. The models are written out here once more, apart from the code.

use super::*;
use crate::config::{Source, read};

/// The numbers of a configuration, in milliseconds or as they are.
#[derive(Clone, Debug)]
struct Numbers {
    interval: u64,
    timeout: u64,
    fall: u64,
    rise: u64,
    window: u64,
    deadline: u64,
    grace: u64,
    outer_interval: u64,
    outer_timeout: u64,
    outer_fall: u64,
    outer_idle: u64,
    outer_wait: u64,
    listener_idle: u64,
    upstream_idle: u64,
    backend_keepalive: u64,
    connect: u64,
    tries: u64,
    request: u64,
    per_try: u64,
    budget_percent: u64,
    backends: u64,
    capacity: u64,
    load: u64,
}

/// All relations hold.
const SOUND: Numbers = Numbers {
    interval: 2_000,
    timeout: 1_000,
    fall: 3,
    rise: 2,
    window: 20_000,
    deadline: 30_000,
    grace: 60_000,
    outer_interval: 5_000,
    outer_timeout: 2_000,
    outer_fall: 3,
    outer_idle: 60_000,
    outer_wait: 30_000,
    listener_idle: 75_000,
    upstream_idle: 4_000,
    backend_keepalive: 6_000,
    connect: 1_000,
    tries: 3,
    request: 25_000,
    per_try: 8_000,
    budget_percent: 20,
    backends: 4,
    capacity: 100,
    load: 250,
};

/// A number of [`Numbers`], to be changed.
type Field = fn(&mut Numbers) -> &mut u64;

const FIELDS: [(&str, Field); 23] = [
    ("interval", |n| &mut n.interval),
    ("timeout", |n| &mut n.timeout),
    ("fall", |n| &mut n.fall),
    ("rise", |n| &mut n.rise),
    ("window", |n| &mut n.window),
    ("deadline", |n| &mut n.deadline),
    ("grace", |n| &mut n.grace),
    ("outer_interval", |n| &mut n.outer_interval),
    ("outer_timeout", |n| &mut n.outer_timeout),
    ("outer_fall", |n| &mut n.outer_fall),
    ("outer_idle", |n| &mut n.outer_idle),
    ("outer_wait", |n| &mut n.outer_wait),
    ("listener_idle", |n| &mut n.listener_idle),
    ("upstream_idle", |n| &mut n.upstream_idle),
    ("backend_keepalive", |n| &mut n.backend_keepalive),
    ("connect", |n| &mut n.connect),
    ("tries", |n| &mut n.tries),
    ("request", |n| &mut n.request),
    ("per_try", |n| &mut n.per_try),
    ("budget_percent", |n| &mut n.budget_percent),
    ("backends", |n| &mut n.backends),
    ("capacity", |n| &mut n.capacity),
    ("load", |n| &mut n.load),
];

impl Numbers {
    fn text(&self) -> String {
        let backends: Vec<String> = (0..self.backends)
            .map(|n| format!("\"10.0.0.{}:80\"", n + 1))
            .collect();
        let Self {
            interval,
            timeout,
            fall,
            rise,
            window,
            deadline,
            grace,
            ..
        } = self;
        let Self {
            outer_interval,
            outer_timeout,
            outer_fall,
            outer_idle,
            outer_wait,
            ..
        } = self;
        let Self {
            listener_idle,
            upstream_idle,
            backend_keepalive,
            connect,
            tries,
            request,
            per_try,
            ..
        } = self;
        let (capacity, load, budget) =
            (self.capacity, self.load, self.budget_percent as f64 / 100.0);
        format!(
            r#"
drain = {{ window = "{window}ms", deadline = "{deadline}ms" }}
[expect]
stop_grace = "{grace}ms"
outer_probe = {{ interval = "{outer_interval}ms", timeout = "{outer_timeout}ms", fall = {outer_fall} }}
outer_idle = "{outer_idle}ms"
outer_timeout = "{outer_wait}ms"
backend_keepalive = "{backend_keepalive}ms"
capacity = {capacity}
load = {load}
[[listener]]
bind = "0.0.0.0:8000"
timeouts = {{ idle = "{listener_idle}ms" }}
[[route]]
pool = "api"
[pool.api]
health = {{ path = "/", interval = "{interval}ms", timeout = "{timeout}ms", fall = {fall}, rise = {rise} }}
timeouts = {{ connect = "{connect}ms", request = "{request}ms", per_try = "{per_try}ms" }}
retry = {{ tries_max = {tries}, budget = {budget} }}
keepalive = {{ idle_timeout = "{upstream_idle}ms" }}
backends = [{}]
"#,
            backends.join(", ")
        )
    }

    /// The relations that these numbers break, by the models of the notes.
    fn broken(&self) -> Vec<&'static str> {
        let models = [
            (
                "T1",
                self.window > self.outer_interval * self.outer_fall + self.outer_timeout + 1_000,
            ),
            ("T2", self.interval * self.fall + self.timeout <= 12_000),
            ("T3", self.timeout < self.interval),
            ("T4", self.interval * self.rise + self.timeout <= 15_000),
            ("T5", self.window + self.deadline + 5_000 <= self.grace),
            ("T6", self.request <= self.deadline),
            ("T7", self.upstream_idle + 1_000 < self.backend_keepalive),
            ("T8", self.listener_idle > self.outer_idle),
            (
                "T15",
                self.connect * self.tries + self.request <= self.outer_wait,
            ),
            (
                "T16",
                self.per_try < self.request && self.budget_percent <= 20,
            ),
            (
                "T30",
                10 * (self.backends - 1) * self.capacity >= 11 * self.load,
            ),
        ];
        models
            .into_iter()
            .filter(|(_, holds)| !holds)
            .map(|(id, _)| id)
            .collect()
    }
}

fn checked(text: &str) -> Vec<Relation> {
    super::super::relations(&[Source::new("lb.toml", text)])
}

fn failed(text: &str) -> Vec<&'static str> {
    let mut failed: Vec<_> = checked(text)
        .into_iter()
        .filter(|relation| relation.verdict == Verdict::Fail)
        .map(|relation| relation.id)
        .collect();
    failed.dedup();
    failed
}

/// Whether the file itself takes these numbers: a zero is "off" or out of range in many places.
fn is_accepted(numbers: &Numbers) -> bool {
    let text = numbers.text();
    let sources = [Source::new("lb.toml", text)];
    !read(&sources).report.has_errors()
}

#[test]
fn sound_numbers_pass_every_relation() {
    let relations = checked(&SOUND.text());
    let mut ids: Vec<_> = relations.iter().map(|relation| relation.id).collect();
    ids.dedup();
    assert_eq!(
        ids,
        [
            "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T15", "T16", "T30"
        ]
    );
    for relation in relations {
        assert_eq!(relation.verdict, Verdict::Pass, "{relation:?}");
    }
}

#[test]
fn every_mutation_that_breaks_a_model_fails_exactly_its_relations() {
    let mut killed: Vec<&str> = Vec::new();
    let mut tried = 0;
    for (name, field) in FIELDS {
        for value in mutations(field) {
            let mut numbers = SOUND;
            *field(&mut numbers) = value;
            if numbers.backends == 0
                || !is_accepted(&numbers)
                || numbers.request == 0
                || numbers.per_try == 0
                || numbers.connect == 0
                || numbers.listener_idle == 0
            {
                continue;
            }
            tried += 1;
            assert_eq!(
                failed(&numbers.text()),
                numbers.broken(),
                "{name} = {value}"
            );
            killed.extend(numbers.broken());
        }
    }
    assert!(tried > 100, "{tried}");
    killed.sort_unstable();
    killed.dedup();
    assert_eq!(
        killed,
        [
            "T1", "T15", "T16", "T2", "T3", "T30", "T4", "T5", "T6", "T7", "T8"
        ],
        "each relation is broken by some mutation"
    );
}

/// 0, half, double, and around every value at which some model changes its mind.
fn mutations(field: Field) -> Vec<u64> {
    let mut numbers = SOUND;
    let sound = *field(&mut numbers);
    let mut values = vec![0, sound / 2, sound * 2, sound + 1, sound.saturating_sub(1)];
    let broken_at = |value: u64| {
        let mut numbers = SOUND;
        *field(&mut numbers) = value;
        if numbers.backends == 0 {
            Vec::new()
        } else {
            numbers.broken()
        }
    };
    // Bisection towards the boundary on either side.
    for far in [1, sound * 4] {
        let (mut good, mut bad) = (sound, far);
        if broken_at(bad).is_empty() {
            continue;
        }
        while good.abs_diff(bad) > 1 {
            let middle = u64::midpoint(good, bad);
            if broken_at(middle).is_empty() {
                good = middle
            } else {
                bad = middle
            }
        }
        values.extend([good, bad]);
    }
    values.retain(|value| *value != sound);
    values
}

#[test]
fn each_relation_alone_catches_some_mutation() {
    // If a relation were deleted, this mutation would survive.
    let only: [(&str, Field, u64); 11] = [
        ("T1", |n| &mut n.window, 18_000),
        ("T2", |n| &mut n.fall, 6),
        ("T3", |n| &mut n.timeout, 2_000),
        ("T4", |n| &mut n.rise, 8),
        ("T5", |n| &mut n.grace, 54_999),
        ("T6", |n| &mut n.deadline, 24_999),
        ("T7", |n| &mut n.upstream_idle, 5_000),
        ("T8", |n| &mut n.listener_idle, 60_000),
        ("T15", |n| &mut n.connect, 1_667),
        ("T16", |n| &mut n.per_try, 25_000),
        ("T30", |n| &mut n.backends, 3),
    ];
    for (id, field, value) in only {
        let mut numbers = SOUND;
        *field(&mut numbers) = value;
        assert_eq!(failed(&numbers.text()), [id]);
    }
}

#[test]
fn an_unset_number_is_not_checked_and_never_passed() {
    let text = "[[listener]]\nbind = \"0.0.0.0:8000\"\n[[route]]\npool = \"api\"\n[pool.api]\nbackends = [\"10.0.0.1:80\"]\n";
    for relation in checked(text) {
        let is_known = relation.id == "T16" && relation.path.ends_with("budget");
        let wanted = if is_known {
            Verdict::Pass
        } else {
            Verdict::NotChecked
        };
        assert_eq!(relation.verdict, wanted, "{relation:?}");
        assert_eq!(relation.reason.is_empty(), is_known, "{relation:?}");
    }
}

#[test]
fn a_time_out_that_is_off_is_not_checked() {
    for (line, id) in [
        ("request = \"25000ms\"", "T6"),
        ("request = \"25000ms\"", "T15"),
        ("per_try = \"8000ms\"", "T16"),
        ("idle = \"75000ms\"", "T8"),
    ] {
        let key = line.split(' ').next().expect("a key");
        let text = SOUND.text().replace(line, &format!("{key} = \"0s\""));
        let found = checked(&text)
            .into_iter()
            .find(|relation| relation.id == id)
            .expect("it is there");
        assert_eq!(found.verdict, Verdict::NotChecked, "{found:?}");
        assert!(found.reason.contains("is off"), "{found:?}");
    }
}

#[test]
fn a_mend_mends() {
    let mends: [(Field, u64, &str, &str, &str); 5] = [
        (
            |n| &mut n.window,
            10_000,
            "window = \"10000ms\"",
            "window = ",
            "T1",
        ),
        (
            |n| &mut n.timeout,
            2_500,
            "timeout = \"2500ms\", fall = 3, rise",
            "timeout = ",
            "T3",
        ),
        (
            |n| &mut n.upstream_idle,
            9_000,
            "idle_timeout = \"9000ms\"",
            "idle_timeout = ",
            "T7",
        ),
        (
            |n| &mut n.listener_idle,
            10_000,
            "idle = \"10000ms\"",
            "idle = ",
            "T8",
        ),
        (
            |n| &mut n.per_try,
            30_000,
            "per_try = \"30000ms\"",
            "per_try = ",
            "T16",
        ),
    ];
    for (field, value, old, key, id) in mends {
        let mut numbers = SOUND;
        *field(&mut numbers) = value;
        let text = numbers.text();
        let relation = checked(&text)
            .into_iter()
            .find(|relation| relation.id == id && relation.verdict == Verdict::Fail)
            .expect("it fails");
        let mend = relation.mend.expect("a failed relation has a mend");
        let new = mend.split('"').nth(1).expect("a value in quotes");
        let (_, rest) = old.split_once("ms\"").expect("milliseconds");
        let mended = text.replace(old, &format!("{key}\"{new}\"{rest}"));
        assert_ne!(mended, text, "{old}");
        assert!(!failed(&mended).contains(&id), "{id}: {mend}");
    }
}

#[test]
fn the_load_of_several_pools_is_said_in_each() {
    let text = SOUND.text()
        + "[pool.other]\nbackends = [\"10.0.1.1:80\"]\nexpect = { capacity = 10, load = 5 }\n";
    let found: Vec<_> = checked(&text)
        .into_iter()
        .filter(|relation| relation.id == "T30")
        .collect();
    assert_eq!(
        (found[0].subject.as_str(), found[0].verdict),
        ("pool api", Verdict::NotChecked)
    );
    assert_eq!(found[0].reason, "`pool.api.expect.load` is not set");
    assert_eq!(
        (found[1].subject.as_str(), found[1].verdict),
        ("pool other", Verdict::Fail)
    );
}

#[test]
fn backups_carry_nothing_until_they_are_asked() {
    let headroom = |backends: &str| {
        let text = SOUND.text()
            + &format!(
                "[pool.other]\nbackends = [{backends}]\nexpect = {{ capacity = 10, load = 9 }}\n"
            );
        let found = checked(&text).into_iter();
        let mut of_other = found.filter(|one| one.id == "T30" && one.subject == "pool other");
        of_other.next().expect("it is checked").verdict
    };
    let first = "\"10.0.1.1:80\", ";
    assert_eq!(headroom(&format!("{first}\"10.0.1.2:80\"")), Verdict::Pass);
    assert_eq!(
        headroom(&format!(
            "{first}{{ address = \"10.0.1.2:80\", backup = true }}"
        )),
        Verdict::Fail
    );
}

#[test]
fn a_route_that_overrides_a_time_out_is_checked_with_its_pools_other_one() {
    let text = SOUND.text().replace(
        "pool = \"api\"",
        "pool = \"api\"\ntimeouts = { request = \"8s\" }",
    );
    let found = checked(&text)
        .into_iter()
        .find(|relation| relation.subject == "route[0]")
        .expect("it is there");
    assert_eq!(
        (found.id, found.verdict, found.path.as_str()),
        ("T16", Verdict::Fail, "route[0].timeouts.request")
    );
    assert_eq!(found.left, "per_try 8s");
}

#[test]
fn overlapping_probes_are_refused_and_the_rest_is_warned_about() {
    let mut numbers = SOUND;
    numbers.timeout = 2_000;
    numbers.grace = 10_000;
    let sources = [Source::new("lb.toml", numbers.text())];
    let none = |_: &str| Ok(Vec::new());
    let found = crate::config::compile(
        &sources,
        None,
        &none,
        mizan_core::time::Instant::default(),
        1,
    )
    .expect_err("it is refused");
    let told: Vec<_> = found
        .iter()
        .map(|one| (one.severity, one.path.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (Severity::Warning, "expect.stop_grace"),
            (Severity::Error, "pool.api.health.timeout")
        ]
    );
}

/// `lb.toml` with a listener that hands TCP through to the pool `raw`, one of datagrams, and nothing else.
fn handed_through(listener: &str, pool: &str) -> String {
    format!(
        "drain = {{ deadline = \"30s\" }}\n[expect]\nouter_timeout = \"10s\"\nbackend_keepalive = \"2s\"\n\
         [[listener]]\nname = \"raw\"\nbind = \"0.0.0.0:8000\"\nkind = \"tcp\"\npool = \"raw\"\n{listener}\n\
         [[listener]]\nbind = \"0.0.0.0:8000\"\nkind = \"udp\"\npool = \"dns\"\n\
         [pool.raw]\nbackends = [\"10.0.0.1:80\"]\n{pool}\n[pool.dns]\nbackends = [\"10.0.0.2:53\"]\n"
    )
}

/// Those about requests, connections and datagrams.
fn of_traffic(text: &str) -> Vec<(&'static str, String, Verdict)> {
    let about = ["T6", "T7", "T15", "T16"];
    checked(text)
        .into_iter()
        .filter(|relation| about.contains(&relation.id))
        .map(|relation| (relation.id, relation.subject, relation.verdict))
        .collect()
}

#[test]
fn where_no_request_is_read_only_what_is_about_connections_is_checked() {
    let found = of_traffic(&handed_through("", ""));
    let expected = [
        ("T6", "listener raw".to_owned(), Verdict::NotChecked),
        ("T15", "pool raw".to_owned(), Verdict::Pass),
    ];
    assert_eq!(found, expected);
    // A route makes it one of requests as well.
    let shared = handed_through("", "")
        + "[[listener]]\nbind = \"0.0.0.0:8001\"\n[[route]]\npool = \"raw\"\n";
    let ids: Vec<_> = of_traffic(&shared).into_iter().map(|one| one.0).collect();
    assert_eq!(ids, ["T6", "T6", "T7", "T15", "T16", "T16"]);
}

#[test]
fn a_tunnel_that_may_outlast_the_drain_is_told() {
    for (tunnel, verdict) in [("30s", Verdict::Pass), ("31s", Verdict::Fail)] {
        let text = handed_through(&format!("timeouts = {{ tunnel = \"{tunnel}\" }}"), "");
        let found = checked(&text).into_iter().find(|one| one.id == "T6");
        let found = found.expect("it is there");
        assert_eq!((found.verdict, &*found.path), (verdict, "drain.deadline"));
        let mend = (verdict == Verdict::Fail).then(|| "set `drain.deadline = \"31s\"`".to_owned());
        assert_eq!(found.mend, mend);
    }
}

#[test]
fn a_handshake_with_a_backend_is_part_of_each_try() {
    let tls = "[pool.raw.tls]\nverify = false\nhandshake_timeout = \"3s\"";
    let found = checked(&handed_through("", tls));
    let found = found.into_iter().find(|one| one.id == "T15");
    let found = found.expect("it is there");
    assert_eq!(found.verdict, Verdict::Fail);
    assert_eq!(
        found.left,
        "(connect 1s + handshake 3s) × tries_max 3 = 12s"
    );
    let text = SOUND.text() + "[pool.api.tls]\nverify = false\nhandshake_timeout = \"1s\"\n";
    assert_eq!(failed(&text), ["T15"], "3 s more are too much");
}

#[test]
fn of_connections_that_are_never_kept_no_idle_time_is_checked() {
    for (key, value) in [
        ("keepalive", "{ idle_max = 0 }"),
        ("keepalive", "{ idle_timeout = \"0s\" }"),
        ("proxy_protocol", "\"v2\""),
    ] {
        let mut numbers = SOUND;
        numbers.backend_keepalive = 500;
        let text = numbers.text();
        let text = match key {
            "keepalive" => text.replace("{ idle_timeout = \"4000ms\" }", value),
            _ => format!("{text}{key} = {value}\n"),
        };
        assert_eq!(failed(&text), [""; 0], "{key} = {value}");
    }
}
