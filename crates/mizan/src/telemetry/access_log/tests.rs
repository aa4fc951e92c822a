use super::*;
use crate::snapshot::LogTarget;
use crate::telemetry::access_log::writer::Stream;
use serde_json::Value;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

const LONG: Duration = Duration::from_secs(10);

fn settings(query: bool) -> snapshot::AccessLog {
    snapshot::AccessLog {
        target: LogTarget::Stdout,
        query,
    }
}

fn record<'a>() -> AccessRecord<'a> {
    AccessRecord {
        wall: Duration::from_millis(1_767_225_600_123),
        listener: "web",
        client: Some("10.0.0.7:40000".parse().expect("an address")),
        method: b"GET",
        host: b"example.org",
        target: b"/a?token=secret",
        protocol: "HTTP/1.1",
        status: 503,
        reason: Some("no_backend"),
        route: "all",
        pool: "api",
        tries: 2,
        bytes_in: 78,
        bytes_out: 5,
        duration: Duration::from_micros(1500),
        ..AccessRecord::default()
    }
}

fn line(record: &AccessRecord<'_>, query: bool) -> String {
    let mut out = Vec::new();
    record.format(&mut out, &mut TimeText::default(), &settings(query));
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn a_line_holds_what_is_known_and_no_query() {
    let expected = concat!(
        r#"{"time":"2026-01-01T00:00:00.123Z","listener":"web","client":"10.0.0.7:40000","method":"GET","#,
        r#""host":"example.org","target":"/a?-","protocol":"HTTP/1.1","status":503,"reason":"no_backend","#,
        r#""route":"all","pool":"api","tries":2,"bytes_in":78,"bytes_out":5,"duration_ms":1.500}"#,
        "\n"
    );
    assert_eq!(line(&record(), false), expected);
}

#[test]
fn the_page_on_the_access_log_has_every_field_with_its_type() {
    let full = AccessRecord {
        grpc_status: Some(14),
        detail: Some("status"),
        backend: "10.0.0.1:80",
        version: "v2",
        upstream: Some(Duration::from_millis(2)),
        request_id: b"1",
        traceparent: b"00-1",
        ..record()
    };
    let read: Value = serde_json::from_str(&line(&full, false)).expect("JSON");
    let fields = read.as_object().expect("an object").iter();
    let mut in_code: Vec<(&str, &str)> = fields
        .map(|(name, value)| {
            (
                &**name,
                if value.is_string() {
                    "string"
                } else {
                    "number"
                },
            )
        })
        .collect();
    let page = include_str!("../../../../../docs/access-log.md");
    let (_, page) = page.split_once("\n## Fields\n").expect("the heading");
    let (page, _) = page.split_once("\n## ").expect("the next heading");
    let row = |line: &'static str| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((name, rest.split_once(" | ")?.0))
    };
    let mut on_page: Vec<(&str, &str)> = page.lines().filter_map(row).collect();
    in_code.sort_unstable();
    on_page.sort_unstable();
    assert_eq!(in_code, on_page);
}

#[test]
fn the_query_is_logged_when_asked_for() {
    assert!(line(&record(), true).contains(r#""target":"/a?token=secret""#));
}

#[test]
fn a_user_in_an_absolute_target_is_not_logged() {
    for (target, shown) in [
        (
            "http://me:pass@example.org/a@b?c",
            "http://example.org/a@b?-",
        ),
        ("http://example.org/a@b", "http://example.org/a@b"),
        ("me@example.org:443", "example.org:443"),
        ("*", "*"),
    ] {
        let read: Value = serde_json::from_str(&line(
            &AccessRecord {
                target: target.as_bytes(),
                ..record()
            },
            false,
        ))
        .expect("JSON");
        assert_eq!(read["target"], shown);
    }
}

#[test]
fn a_connection_that_was_handed_through_has_no_target() {
    let record = AccessRecord {
        protocol: "tcp",
        ..AccessRecord::default()
    };
    let read: Value = serde_json::from_str(&line(&record, false)).expect("JSON");
    assert_eq!(
        (&read["protocol"], read.get("target")),
        (&"tcp".into(), None)
    );
}

#[test]
fn what_clients_send_cannot_break_a_line() {
    let record = AccessRecord {
        method: b"GET\"}\n{\"",
        host: b"\xff\\",
        target: b"/\"\r\n\x00\x1b[2J",
        request_id: "ü\u{2028}".as_bytes(),
        client: Some("[2001:db8::1]:9".parse().expect("an address")),
        ..record()
    };
    let line = line(&record, false);
    assert_eq!(line.matches('\n').count(), 1);
    let read: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(read["method"], "GET\"}\n{\"");
    assert_eq!(read["host"], "\u{fffd}\\");
    assert_eq!(read["target"], "/\"\r\n\0\u{1b}[2J");
    assert_eq!(read["request_id"], "ü\u{2028}");
    assert_eq!(read["client"], "[2001:db8::1]:9");
}

fn lines_of(path: &Path) -> usize {
    std::fs::read_to_string(path)
        .expect("a log file")
        .lines()
        .count()
}

#[test]
fn closing_writes_all_that_was_handed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let dropped = Arc::new(AtomicU64::new(0));
    let log =
        AccessLog::start(Some(&LogTarget::File(path.clone())), dropped.clone()).expect("a log");
    let mut logger = log.logger();
    for _ in 0..1000 {
        logger.write(&record(), &settings(false));
    }
    drop(logger);
    assert!(log.close(LONG));
    assert_eq!(lines_of(&path), 1000);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
}

#[test]
fn a_moved_file_is_left_at_reopen_and_a_reload_turns_to_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let [first, moved, second] = ["a.log", "a.log.1", "b.log"].map(|name| folder.path().join(name));
    let log =
        AccessLog::start(Some(&LogTarget::File(first.clone())), Arc::default()).expect("a log");
    let mut logger = log.logger();
    std::fs::rename(&first, &moved).expect("rotate");
    log.reopen().expect("reopened");
    logger.write(&record(), &settings(false));
    logger.flush();
    // A line that is in the new file shows that the thread has taken the turn.
    wait_until(|| lines_of(&first) == 1);
    log.configure(Some(&LogTarget::File(second.clone())))
        .expect("turned");
    logger.write(&record(), &settings(false));
    drop(logger);
    assert!(log.close(LONG));
    assert_eq!(
        [lines_of(&moved), lines_of(&first), lines_of(&second)],
        [0, 1, 1]
    );
}

#[test]
fn a_target_that_cannot_be_opened_leaves_the_log_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let log =
        AccessLog::start(Some(&LogTarget::File(path.clone())), Arc::default()).expect("a log");
    log.configure(Some(&LogTarget::File(folder.path().into())))
        .expect_err("a folder is no file");
    let mut logger = log.logger();
    logger.write(&record(), &settings(false));
    drop(logger);
    assert!(log.close(LONG));
    assert_eq!(lines_of(&path), 1);
}

/// A disk that takes nothing until it is told to.
struct Stuck {
    started: Sender<()>,
    go_on: Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.started.send(());
        let _ = self.go_on.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stuck_disk_costs_lines_and_never_a_wait() {
    let (started, is_started) = channel();
    let (go, go_on) = channel();
    let dropped = Arc::new(AtomicU64::new(0));
    let stuck = Box::new(Stream(Stuck { started, go_on }));
    let log = AccessLog::start_with(Some(stuck), None, dropped.clone()).expect("a log");
    let mut logger = log.logger();
    logger.write(&record(), &settings(false));
    logger.flush();
    is_started.recv_timeout(LONG).expect("the thread writes");
    for _ in 0..BUFFERS_MAX + 3 {
        logger.write(&record(), &settings(false));
        logger.flush();
    }
    assert_eq!(
        dropped.load(Ordering::Relaxed),
        3,
        "one is being written, {BUFFERS_MAX} wait"
    );
    assert!(!log.close(Duration::ZERO), "the thread is still stuck");
    drop(go);
    assert!(log.close(LONG));
}

fn wait_until(condition: impl Fn() -> bool) {
    let start = crate::clock::now();
    while !condition() {
        assert!(
            crate::clock::now() - start < LONG,
            "the condition did not come true"
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_fifo_that_nobody_reads_is_refused_at_once_and_one_that_is_read_gets_the_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a FIFO");
    let target = LogTarget::File(path.clone());
    let error = AccessLog::start(Some(&target), Arc::default()).expect_err("nobody reads it");
    let text = error.to_string();
    assert!(
        text.contains(&path.display().to_string()) && text.contains("nobody reads this FIFO"),
        "{text}"
    );
    let log = AccessLog::start(None, Arc::default()).expect("a log");
    assert!(log.configure(Some(&target)).is_err(), "at a reload, too");
    let mut reader = std::fs::OpenOptions::new();
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut reader = (reader.read(true).custom_flags(flags).open(&path)).expect("a reader");
    log.configure(Some(&target)).expect("it is read");
    let mut logger = log.logger();
    logger.write(&record(), &settings(false));
    drop(logger);
    assert!(log.close(LONG));
    drop(log);
    assert_eq!(
        io::read_to_string(&mut reader)
            .expect("UTF-8")
            .lines()
            .count(),
        1
    );
}

#[test]
fn a_reader_of_the_fifo_that_stops_makes_the_thread_wait_and_loses_no_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a FIFO");
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut reader = std::fs::OpenOptions::new();
    let reader = (reader.read(true).custom_flags(flags).open(&path)).expect("a reader");
    let dropped = Arc::new(AtomicU64::new(0));
    let log = AccessLog::start(Some(&LogTarget::File(path)), dropped.clone()).expect("a log");
    let mut logger = log.logger();
    for _ in 0..1000 {
        logger.write(&record(), &settings(false)); // twice and more what a pipe takes
    }
    drop(logger);
    assert!(!log.close(Duration::from_millis(10)), "it waits");
    let flags = rustix::fs::fcntl_getfl(&reader).expect("it is open");
    rustix::fs::fcntl_setfl(&reader, flags - rustix::fs::OFlags::NONBLOCK).expect("it is open");
    assert_eq!(
        io::read_to_string(reader).expect("UTF-8").lines().count(),
        1000
    );
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
}
