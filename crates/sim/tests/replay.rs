//! Access logs, played again. `UPDATE_REPLAY=1` writes the expected tables anew.

use std::path::PathBuf;

use mizan_core::PolicyKind;
use mizan_sim::{Changes, LogFormat, LogReader, ReplayReport, replay};

fn read(text: &str, format: Option<LogFormat>) -> LogReader {
    let mut log = LogReader::new(format);
    for line in text.lines() {
        log.line(line.as_bytes());
    }
    log
}

fn played(text: &str, changes: &Changes) -> ReplayReport {
    replay(read(text, None), changes).unwrap_or_else(|error| panic!("{error}"))
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/replay")
        .join(name)
}

fn file(name: &str) -> String {
    std::fs::read_to_string(path(name)).expect("a file of this crate")
}

#[track_caller]
fn golden(name: &str, changes: &Changes) {
    let text = played(&file(&format!("{name}.log")), changes).to_text() + "\n";
    let expected = path(&format!("{name}.txt"));
    if std::env::var_os("UPDATE_REPLAY").is_some() {
        std::fs::write(&expected, &text).expect("written");
    }
    let expected = std::fs::read_to_string(&expected).expect("UPDATE_REPLAY=1 writes it");
    assert_eq!(text, expected, "{name}");
}

#[test]
fn a_log_of_mizan_is_played() {
    golden("mizan", &Changes::default());
}

#[test]
fn a_log_of_nginx_is_played_with_one_backend_slower() {
    let slow = vec![("10.1.0.2:80".to_owned(), 3.0)];
    golden(
        "nginx",
        &Changes {
            slow,
            ..Changes::default()
        },
    );
}

#[test]
fn a_log_of_apache_is_played_on_as_many_backends_as_are_said() {
    let (backends, slots) = (Some(3), Some(2));
    golden(
        "apache",
        &Changes {
            backends,
            slots,
            ..Changes::default()
        },
    );
}

/// A backend of `slots`, which serves in order and is busy: what a log of Mizan says of it.
fn one_backend(slots: usize, count: u64) -> String {
    let mut free = vec![0u64; slots];
    let mut lines = String::new();
    for number in 0..count {
        // Microseconds, in whole milliseconds, as the log's ends are.
        let at = number * 10_000;
        let work = 4_000 + (number * 7_919 % 29) * 1_000;
        free.sort_unstable();
        let end = at.max(free[0]) + work;
        free[0] = end;
        let ms = (end - at) as f64 / 1e3;
        let (minute, second, millis) =
            (end / 60_000_000, end / 1_000_000 % 60, end / 1_000 % 1_000);
        lines += &format!(
            "{{\"time\":\"2026-01-01T00:{minute:02}:{second:02}.{millis:03}Z\",\"client\":\"10.0.0.{}:1\",\"status\":200,\
             \"pool\":\"api\",\"backend\":\"b\",\"tries\":1,\"duration_ms\":{ms},\"upstream_ms\":{ms}}}\n",
            number % 9
        );
    }
    lines
}

#[test]
fn the_same_backend_played_again_takes_as_long_as_it_did() {
    let text = one_backend(2, 2_000);
    for slots in [Some(2), None] {
        let report = played(
            &text,
            &Changes {
                slots,
                ..Changes::default()
            },
        );
        assert_eq!(report.too_early, 0);
        let of = |figures: &mizan_sim::Figures| {
            (
                figures.requests,
                figures.p50_ms,
                figures.p99_ms,
                figures.max_ms,
            )
        };
        for figures in &report.played {
            assert_eq!(
                of(figures),
                of(&report.recorded),
                "{} with {slots:?}",
                figures.name
            );
            assert!((figures.mean_ms - report.recorded.mean_ms).abs() < 1e-3);
        }
    }
}

#[test]
fn more_backends_and_slower_ones_change_what_they_should() {
    let text = one_backend(2, 2_000);
    let policies = vec![PolicyKind::RoundRobin, PolicyKind::PowerOfTwo];
    let changes = Changes {
        policies,
        slots: Some(2),
        ..Changes::default()
    };
    let mean = |report: &ReplayReport, at: usize| report.played[at].mean_ms;
    let one = played(&text, &changes);
    let three = played(
        &text,
        &Changes {
            backends: Some(3),
            ..changes.clone()
        },
    );
    assert!(
        mean(&three, 0) < one.recorded.mean_ms * 0.95,
        "{} ms",
        mean(&three, 0)
    );
    let slow = vec![("3".to_owned(), 8.0)];
    let slow = played(
        &text,
        &Changes {
            backends: Some(3),
            slow,
            ..changes
        },
    );
    assert!(
        mean(&slow, 0) > mean(&three, 0) * 2.0,
        "turns go on to a slow one"
    );
    assert!(mean(&slow, 1) < mean(&slow, 0) / 2.0, "two choices do not");
}

#[test]
fn lines_in_any_order_are_the_same_log() {
    let text = file("mizan.log");
    let mut lines: Vec<&str> = text.lines().collect();
    let in_order = played(&text, &Changes::default());
    lines.reverse();
    let reversed = played(&lines.join("\n"), &Changes::default());
    assert_eq!(reversed.played, in_order.played);
    assert_eq!(reversed.recorded, in_order.recorded);
}

#[test]
fn a_log_without_a_usable_line_says_what_is_wrong_with_the_first_three() {
    let lines =
        "\nno log\n{\"time\":1}\n10.0.0.1 - - [x] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\" 0.1\nmore\n";
    let error = replay(read(lines, None), &Changes::default()).expect_err("nothing");
    let text = error.to_string();
    for told in [
        "none of 4 lines is a request that a backend answered",
        "4 do not parse",
        "line 2: neither JSON nor a line that ends in the time",
        "line 3: no line of Mizan's log: invalid type",
        "line 4: [x] is no time such as [10/Oct/2000:13:55:36 -0700]",
    ] {
        assert!(text.contains(told), "no {told:?} in {text}");
    }
    assert!(!text.contains("line 5"), "{text}");
    let empty = replay(read("", None), &Changes::default()).expect_err("nothing");
    assert_eq!(empty.to_string(), "the log is empty");
}

#[test]
fn what_is_not_in_the_log_is_answered_with_what_is() {
    let error = |text: &str, changes: Changes| {
        let error = replay(read(text, None), &changes).expect_err("refused");
        error.to_string()
    };
    let mizan = file("mizan.log");
    let pool = Some("apj".to_owned());
    assert!(
        error(
            &mizan,
            Changes {
                pool,
                ..Changes::default()
            }
        )
        .contains("it has api, web")
    );
    let slow = vec![("b".to_owned(), 2.0)];
    assert!(
        error(
            &mizan,
            Changes {
                slow,
                ..Changes::default()
            }
        )
        .contains("there are 10.1.0.1:80, 10.1.0.2:80")
    );
    assert!(error(&file("apache.log"), Changes::default()).contains("give --backends N"));
    let backends = Some(0);
    assert!(
        error(
            &mizan,
            Changes {
                backends,
                ..Changes::default()
            }
        )
        .contains("from 1 to 10000")
    );
    let year = mizan.replacen("2026-01-01", "2025-01-01", 1);
    assert_eq!(
        error(&year, Changes::default()).split(':').next(),
        Some("the log spans 365.0 days, of 7 that can be played")
    );
}

#[test]
fn a_format_that_is_said_is_not_guessed() {
    let report = replay(
        read(&file("apache.log"), Some(LogFormat::Nginx)),
        &Changes::default(),
    );
    let error = report.expect_err("microseconds are no seconds").to_string();
    assert!(
        error.contains("is no $request_time in seconds: it is of another format"),
        "{error}"
    );
}

/// A line of nginx's log: a request that ended so many seconds after midnight.
fn of_nginx(end: u64, took: f64, backend: &str) -> String {
    let (hour, minute, second) = (end / 3_600, end / 60 % 60, end % 60);
    format!(
        "10.0.0.1 - - [01/Jan/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\" \
         {backend} {took:.3}\n"
    )
}

#[test]
fn no_request_is_given_up_however_long_it_waits() {
    // One after the other, a minute each, all at the same time: the last one waits for far more than four times
    // the longest, and the quantiles are far beyond a quarter of an hour.
    let text: String = (0..60)
        .map(|at| of_nginx(100 + at / 30, 60.0, "upstream=10.0.0.1:80"))
        .collect();
    let changes = Changes {
        slots: Some(1),
        ..Changes::default()
    };
    let report = played(&text, &changes);
    for figures in &report.played {
        assert_eq!(
            (figures.requests, figures.failed_share),
            (60, 0.0),
            "{}",
            figures.name
        );
        let (p50, max) = (figures.p50_ms, figures.max_ms);
        assert!(
            (max - 3_600_000.0).abs() < 3_000.0,
            "{}: {max} ms",
            figures.name
        );
        assert!(
            (p50 - 1_800_000.0).abs() < 40_000.0,
            "{}: {p50} ms",
            figures.name
        );
    }
}

#[test]
fn what_would_take_for_ever_is_refused() {
    let text: String = (0..60)
        .map(|at| of_nginx(100 + at, 60.0, "upstream=10.0.0.1:80"))
        .collect();
    let slow = vec![("1".to_owned(), 1e9)];
    let error = replay(
        read(&text, None),
        &Changes {
            slow,
            ..Changes::default()
        },
    )
    .expect_err("ages");
    let told = error.to_string();
    assert!(
        told.starts_with("the slowest backend would work on its share for "),
        "{told}"
    );
    assert!(told.contains("of 30 that can be played"), "{told}");
}

#[test]
fn what_no_backend_was_asked_for_is_counted_and_not_played() {
    let text = of_nginx(1, 0.5, "upstream=10.0.0.1:80, 10.0.0.2:80")
        + &of_nginx(1, 0.5, "upstream=-")
        + &of_nginx(2, 0.5, "upstream=10.0.0.3:80");
    let report = played(&text, &Changes::default());
    assert_eq!(report.counts.requests, 2);
    assert_eq!(report.backends, ["10.0.0.2:80", "10.0.0.3:80"]);
    assert!(
        report
            .to_text()
            .contains("1 not played: answered without a backend")
    );
}

#[test]
fn nothing_that_a_log_has_reaches_the_terminal_as_a_command() {
    let line = |pool: &str, backend: &str| {
        format!(
            "{{\"time\":\"2026-01-01T00:00:00Z\",\"status\":200,\"pool\":\"{pool}\",\"backend\":\"{backend}\",\
             \"tries\":1,\"duration_ms\":1}}\n"
        )
    };
    let text = line("a\\u001b[2Jx", "b\\u001b]0;owned\\u0007")
        + &line("o\\nther", "b")
        + "10.0.0.1 - - [\u{1b}[31m\u{9b}] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\" 0.1\n"
        + "{\"time\":\"\u{1b}[2J\"}\n";
    let plain = |text: &str| {
        let odd = text.chars().find(|char| char.is_control() && *char != '\n');
        assert_eq!(odd, None, "{text:?}");
    };
    let slow = |name: &str| Changes {
        slow: vec![(name.to_owned(), 2.0)],
        ..Changes::default()
    };
    let report = played(&text, &slow("1"));
    plain(&report.to_text());
    plain(&report.to_html());
    assert!(
        report.to_text().contains(r"o\nther (1)"),
        "{}",
        report.to_text()
    );
    let error = replay(read(&text, None), &slow("c"))
        .expect_err("no such one")
        .to_string();
    assert!(error.contains(r"b\u{1b}]0;owned"), "{error}");
    plain(&error);
    let nothing = text
        .replace("\"status\":200", "\"status\":1")
        .replace("\"time\":\"2", "\"time\":\"x");
    plain(
        &replay(read(&nothing, None), &Changes::default())
            .expect_err("nothing")
            .to_string(),
    );
}

#[test]
fn a_log_that_names_nobody_is_not_said_to_name_somebody() {
    let text = of_nginx(1, 0.5, "-") + &of_nginx(1, 0.5, "-");
    let backends = Some(2);
    let told = played(
        &text,
        &Changes {
            backends,
            ..Changes::default()
        },
    )
    .to_text();
    assert!(
        told.contains("played on 2 backends (the log names none) that work on 1 request at once (the most that the log shows, shared evenly;"),
        "{told}"
    );
    let pool = Some("api".to_owned());
    let error = replay(
        read(&text, None),
        &Changes {
            pool,
            ..Changes::default()
        },
    )
    .expect_err("no pools");
    assert!(
        error.to_string().starts_with(
            "the log names no pools, so that there is no pool `api`: leave --pool out"
        )
    );
}
