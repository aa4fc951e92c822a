use super::*;
use bytes::Bytes;
use mizan_store::{Entry, LeaseId};

const PREFIX: &str = "/mizan/default/v1/instances/";

fn entries(said: &[(&str, &str)]) -> Entries {
    let entry = |(key, value): &(&str, &str)| {
        let key = Bytes::from(format!("{PREFIX}{key}"));
        let entry = Entry {
            key: key.clone(),
            value: Bytes::copy_from_slice(value.as_bytes()),
            created: 1,
            modified: 1,
            version: 1,
            lease: Some(LeaseId(7)),
        };
        (key, entry)
    };
    Arc::new(said.iter().map(entry).collect())
}

fn at(seconds: u64) -> Instant {
    Instant::default() + Duration::from_secs(seconds)
}

const SILENT: Option<Judged> = Some(Judged::Unprobed { refuses: false });

/// Addresses of the pool `api`, those whose lease has ended with a `*`.
fn there(roster: &Roster) -> Vec<String> {
    let listed = roster.listed("api");
    let show = |backend: &Configured| {
        let key = &backend.template().key;
        let is_kept = listed.kept.iter().any(|it| **it == **key);
        format!("{key}{}", if is_kept { "*" } else { "" })
    };
    listed.backends.iter().map(show).collect()
}

const ONE: (&str, &str) = ("api/one", r#"{"address": "10.0.0.1:80", "weight": 2}"#);
const TWO: (&str, &str) = ("api/two", r#"{"address": "10.0.0.2:80"}"#);

fn both() -> Roster {
    let mut roster = Roster::default();
    roster.observe(at(0), &entries(&[ONE, TWO]), PREFIX.len());
    assert_eq!(there(&roster), ["10.0.0.1:80", "10.0.0.2:80"]);
    roster
}

#[test]
fn a_lost_lease_alone_takes_nobody_away_and_a_failed_probe_does() {
    let mut roster = both();
    roster.observe(at(1), &entries(&[ONE]), PREFIX.len());
    assert_eq!(there(&roster), ["10.0.0.1:80", "10.0.0.2:80*"]);
    let hours = at(9_999);
    assert!(!roster.settle(hours, "api", |_| Some(Judged::Passes)));
    assert_eq!(there(&roster), ["10.0.0.1:80", "10.0.0.2:80*"]);
    assert!(roster.settle(hours, "api", |_| Some(Judged::Fails)));
    assert_eq!(
        there(&roster),
        ["10.0.0.1:80"],
        "one whose lease lives stays"
    );
}

#[test]
fn a_loss_of_all_is_many_losses() {
    let mut roster = both();
    roster.observe(at(1), &entries(&[]), PREFIX.len());
    assert_eq!(there(&roster), ["10.0.0.1:80*", "10.0.0.2:80*"]);
    let judge = |key: &str| match key {
        "10.0.0.1:80" => Some(Judged::Fails),
        _ => Some(Judged::Passes),
    };
    assert!(roster.settle(at(2), "api", judge));
    assert_eq!(there(&roster), ["10.0.0.2:80*"]);
    roster.observe(at(3), &entries(&[ONE, TWO]), PREFIX.len());
    assert_eq!(there(&roster), ["10.0.0.1:80", "10.0.0.2:80"]);
    assert_eq!(roster.unsettled().count(), 0);
}

#[test]
fn without_probes_one_stays_a_minute_or_until_it_refuses() {
    let mut roster = both();
    roster.observe(at(1), &entries(&[]), PREFIX.len());
    assert!(!roster.settle(at(60), "api", |_| SILENT));
    let refuses = |key: &str| {
        let refuses = key == "10.0.0.1:80";
        Some(Judged::Unprobed { refuses })
    };
    assert!(roster.settle(at(60), "api", refuses));
    assert_eq!(there(&roster), ["10.0.0.2:80*"]);
    assert!(roster.settle(at(61), "api", |_| SILENT));
    assert_eq!(there(&roster), Vec::<String>::new());
}

#[test]
fn who_says_that_it_is_elsewhere_is_another_member() {
    let mut roster = both();
    let moved = ("api/one", r#"{"address": "10.0.0.9:80"}"#);
    roster.observe(at(1), &entries(&[moved, TWO]), PREFIX.len());
    assert_eq!(there(&roster), ["10.0.0.2:80", "10.0.0.9:80"]);
    // By another name at the same address it is the same.
    let renamed = ("api/other", TWO.1);
    roster.observe(at(2), &entries(&[moved, renamed]), PREFIX.len());
    assert_eq!(there(&roster), ["10.0.0.2:80", "10.0.0.9:80"]);
}

#[test]
fn what_cannot_be_read_stays_as_it_was_and_is_told() {
    let mut roster = both();
    let broken = ("api/one", "{\"address\": 7}");
    let named = ("api/three", r#"{"address": "app.local:80"}"#);
    let nobody = ("nobody", "{}");
    roster.observe(at(1), &entries(&[broken, TWO, named, nobody]), PREFIX.len());
    assert_eq!(there(&roster), ["10.0.0.1:80", "10.0.0.2:80"]);
    let problem = roster.listed("api").problem;
    assert!(problem.contains("api/one: "), "{problem}");
    assert!(
        problem.contains("api/three: an instance gives its own IP"),
        "{problem}"
    );
    roster.observe(at(2), &entries(&[TWO]), PREFIX.len());
    assert_eq!(there(&roster), ["10.0.0.1:80*", "10.0.0.2:80"]);
    assert_eq!(roster.listed("api").problem, "");
}

#[test]
fn pools_do_not_meet() {
    let mut roster = both();
    let other = ("web/one", r#"{"address": "10.0.1.1:80"}"#);
    roster.observe(at(1), &entries(&[ONE, TWO, other]), PREFIX.len());
    assert_eq!(there(&roster), ["10.0.0.1:80", "10.0.0.2:80"]);
    assert_eq!(roster.listed("web").backends.len(), 1);
    assert_eq!(roster.listed("none").backends.len(), 0);
}
