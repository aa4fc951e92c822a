//! Files that are read, and files that are refused.

use std::time::Duration;

use super::*;

const GOOD: &str = r#"about = "x"
time = "60s"
service = { law = "exponential", mean = "10ms" }

[[backends]]
count = 4
slots = 2

[arrivals]
load = 0.5

[[faults]]
kind = "slow"
backends = [0]
from = "20s"
to = "40s"
"#;

/// What is said of `GOOD` with `from` replaced by `to`, without the file's name.
fn refused(from: &str, to: &str) -> Vec<String> {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let found = Scenario::parse("x.toml", &text).expect_err(to);
    let lines = found.iter().map(ToString::to_string);
    lines
        .map(|line| {
            line.strip_prefix("x.toml:")
                .expect("the file's name")
                .to_owned()
        })
        .collect()
}

#[test]
fn a_file_becomes_a_scenario_with_the_products_defaults() {
    let scenario = Scenario::parse("x", GOOD).unwrap();
    assert_eq!(scenario.name, "x");
    assert_eq!(scenario.time, Duration::from_secs(60));
    assert_eq!(scenario.warmup, Duration::from_secs(6));
    assert_eq!(scenario.backends.len(), 4);
    assert!((scenario.capacity() - 800.0).abs() < 1e-9);
    assert!((scenario.arrivals[0].per_second - 400.0).abs() < 1e-9);
    assert_eq!(scenario.pool, PoolPlan::default());
    assert_eq!(scenario.faults[0].kind, FaultKind::Slow { factor: 10.0 });
}

#[test]
fn steps_raise_the_rate_and_give_it_back() {
    let text = GOOD.replace(
        "load = 0.5",
        "rate = 100\nsteps = [{ at = \"10s\", for = \"5s\", factor = 3 }, { at = \"20s\", load = 1.0 }]",
    );
    let scenario = Scenario::parse("x", &text).unwrap();
    let rates: Vec<(u64, f64)> = scenario
        .arrivals
        .iter()
        .map(|rate| (rate.from.as_secs(), rate.per_second))
        .collect();
    assert_eq!(rates, [(0, 100.0), (10, 300.0), (15, 100.0), (20, 800.0)]);
}

#[test]
fn what_is_unknown_is_refused_with_its_place_and_what_was_meant() {
    for (from, to, expected) in [
        (
            "slots = 2",
            "slotz = 2",
            "7:1: unknown key `slotz`: did you mean `slots`?",
        ),
        (
            "\"slow\"",
            "\"black_whole\"",
            "13:8: unknown value `black_whole`: did you mean `black_hole`?",
        ),
        ("time = \"60s\"\n", "", "1:1: missing key `time`"),
        (
            "law = \"exponential\"",
            "law = \"expo\"",
            "3:19: unknown value `expo`: there are fixed, exponential, lognormal, bimodal",
        ),
        (
            "\"60s\"",
            "\"60 sec\"",
            "2:8: `60 sec` is no duration: a number and one of us, ms, s, m, h, as in \"1.5s\"",
        ),
        (
            "\"60s\"",
            "60",
            "2:8: invalid type: integer `60`, expected a duration such as \"2s\"",
        ),
        (
            "[0]",
            "\"every\"",
            "14:12: `every` names no backends: \"all\", a count or a list of numbers does",
        ),
    ] {
        assert_eq!(refused(from, to), [expected], "{to}");
    }
}

/// `GOOD` with each change is refused, with a line that begins like this.
fn all_refused(changes: &[(&str, &str, &str)]) {
    for (from, to, expected) in changes {
        let found = refused(from, to);
        assert!(
            found.iter().any(|line| line.starts_with(expected)),
            "{to}: {found:#?}"
        );
    }
}

#[test]
fn what_cannot_be_is_refused_where_it_stands() {
    all_refused(&[
        ("count = 4", "count = 0", "6:9: `count` is 1 to 10000"),
        (
            "slots = 2",
            "slots = 0",
            "7:9: `slots` is 1 to 100000, not 0",
        ),
        (
            "slots = 2",
            "speed = -1",
            "7:9: `speed` is 0.001 to 1000, not -1",
        ),
        ("\"60s\"", "\"0s\"", "2:8: `time` is above zero"),
        (
            "about",
            "warmup = \"60s\"\nabout",
            "1:10: `warmup` is part of `time`",
        ),
        (
            "load = 0.5",
            "load = 0.5\nrate = 3",
            "9:1: arrivals have either",
        ),
        ("load = 0.5", "load = -0.5", "9:1: arrivals come to -400.0"),
        (
            "mean = \"10ms\"",
            "mean = \"10ms\", sigma = 1",
            "3:57: this law has no `sigma`",
        ),
        (
            "mean = \"10ms\"",
            "slow = \"1ms\"",
            "3:11: this law needs `mean`",
        ),
        (
            "load = 0.5",
            "load = 0.5\nsteps = [{ at = \"9s\" }]",
            "11:10: a step has one of",
        ),
        (
            "load = 0.5",
            "load = 0.5\nsteps = [{ at = \"9s\", for = \"2s\", load = 1 }, { at = \"10s\", load = 1 }]",
            "11:54: steps come in order",
        ),
        (
            "[[faults]]",
            "[probes]\ninterval = \"1s\"\ntimeout = \"1s\"\n[[faults]]",
            "12:1: a probe's `timeout`",
        ),
    ]);
}

#[test]
fn a_fault_that_cannot_be_is_refused_where_it_stands() {
    all_refused(&[
        (
            "[0]",
            "[4]",
            "14:12: there is no backend 4: the 4 are numbered from 0",
        ),
        ("[0]", "9", "14:12: there is no backend 4"),
        ("[0]", "[1, 1]", "14:12: a backend is named twice"),
        ("[0]", "[]", "14:12: a fault needs at least one backend"),
        ("\"40s\"", "\"20s\"", "16:6: `to` comes after `from`"),
        (
            "to = \"40s\"",
            "share = 0.5",
            "16:9: this kind of fault has no `share`",
        ),
        (
            "\"slow\"",
            "\"flap\"",
            "12:1: this kind of fault needs `up`",
        ),
        ("\"slow\"", "\"cold_start\"", "12:1: a cold start needs"),
    ]);
}

#[test]
fn all_that_is_wrong_is_said_at_once_in_order() {
    let found = refused("slots = 2", "slots = 0\nweight = 0\nspeed = 0\n");
    let lines: Vec<&str> = found
        .iter()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(lines, ["7", "8", "9"]);
}

/// Events cost time and memory: whatever comes again and again is refused where it would come too often.
#[test]
fn what_would_never_end_is_refused_where_it_stands() {
    let fault = "kind = \"slow\"";
    all_refused(&[
        (
            fault,
            "kind = \"flap\"\nup = \"1us\"\ndown = \"1us\"",
            "14:6: `up` is 1ms or more",
        ),
        (
            fault,
            "kind = \"flap\"\nup = \"1s\"\ndown = \"1us\"",
            "15:8: `down` is 1ms or more",
        ),
        (
            fault,
            "kind = \"antagonist\"\non = \"1us\"\noff = \"1s\"",
            "14:6: `on` is 1ms or more",
        ),
        (
            fault,
            "kind = \"antagonist\"\non = \"1s\"\noff = \"1us\"",
            "15:7: `off` is 1ms or more",
        ),
        (
            fault,
            "kind = \"gc_pause\"\nperiod = \"2us\"\nlength = \"1us\"",
            "14:10: `period` is 1ms or more",
        ),
        (
            "[[faults]]",
            "[probes]\ninterval = \"2us\"\ntimeout = \"1us\"\n[[faults]]",
            "13:12: `interval` is 1ms or more",
        ),
    ]);
}

/// Each is long enough by itself, and there are too many of them.
#[test]
fn the_sum_of_all_turns_is_bounded() {
    let long = GOOD
        .replace("\"60s\"", "\"24h\"")
        .replace("to = \"40s\"\n", "");
    let told = |text: &str| -> Vec<String> {
        let found = Scenario::parse("x", text).err().unwrap_or_default();
        found.iter().map(ToString::to_string).collect()
    };
    let flap = long.replace("\"slow\"", "\"flap\"\nup = \"10ms\"\ndown = \"10ms\"");
    assert_eq!(
        told(&flap),
        [
            "x:12:1: with this fault backends change 8638000 times, of 1000000 that can be played: \
          give it a longer period, fewer backends or an earlier `to`"
        ]
    );
    let short = flap.replace("\"20s\"\n", "\"20s\"\nto = \"40m\"\n");
    assert_eq!(told(&short), [""; 0]);
    let probes = |interval: &str| {
        let probes = format!("[probes]\ninterval = \"{interval}\"\ntimeout = \"1ms\"\n[[faults]]");
        let text = long.replace("count = 4", "count = 40");
        told(&text.replace("[[faults]]", &probes))
    };
    assert_eq!(
        probes("2ms"),
        [
            "x:13:12: that makes 1728000000 probes, of 1000000000 that can be played: \
          make `interval` longer, or `time` shorter"
        ]
    );
    assert_eq!(probes("10ms"), [""; 0]);
    assert_eq!(
        told(&long.replace("load = 0.5", "rate = 1000000")),
        [
            "x:9:1: that makes 86400000000 requests, of 1000000000 that can be played: \
          lower the rate, or make `time` shorter"
        ]
    );
}

#[test]
fn a_status_that_no_pool_tries_again_is_refused() {
    for (statuses, expected) in [
        (
            "[0]",
            "13:13: a status that is tried again is 400 to 599, not 0",
        ),
        (
            "[503, 200]",
            "13:18: a status that is tried again is 400 to 599, not 200",
        ),
        (
            "[65535]",
            "13:13: a status that is tried again is 400 to 599, not 65535",
        ),
    ] {
        let retry = format!("[retry]\nstatuses = {statuses}\n[[faults]]");
        assert_eq!(refused("[[faults]]", &retry), [expected]);
    }
    let good = GOOD.replace(
        "[[faults]]",
        "[retry]\nstatuses = [400, 503, 599]\n[[faults]]",
    );
    let scenario = Scenario::parse("x", &good).expect("sound");
    assert_eq!(scenario.pool.retry.statuses, [400, 503, 599]);
}
