use super::*;

/// Documents under their keys, all put at `revision`.
fn build(revision: u64, documents: &[(&str, &str)], previous: Option<&Table>) -> Table {
    let stored = documents.iter().map(|(key, value)| Stored {
        key: key.as_bytes(),
        value: value.as_bytes(),
        modified: revision,
    });
    Table::build(revision, stored, previous).expect("it passes no limit")
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn held<'t>(table: &'t Table, key: &str) -> Option<&'t Held> {
    table.held(&key.parse().expect("a key"))
}

const POOL: &str = r#"{"schema": 1}"#;
const CHAIN: &str = r#"{"schema": 1, "pools": ["kpop"]}"#;

#[test]
fn one_bad_object_takes_nothing_else_with_it() {
    let first = build(3, &[("chains/kr/t", CHAIN), ("pools/kr/kpop", POOL)], None);
    assert_eq!(first.rejected(), []);
    let documents = [
        ("chains/kr/t", "{"),
        ("pools/kr/kpop", POOL),
        ("pools/kr/pop", "[]"),
        ("what/is/this", POOL),
    ];
    let second = build(4, &documents, Some(&first));
    let kept = held(&second, "chains/kr/t").expect("the last good one is kept");
    assert!(kept.is_pinned && &*kept.json == CHAIN.as_bytes());
    assert_eq!(held(&second, "pools/kr/pop"), None);
    let said: Vec<_> = second.rejected().iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(
        said[0].starts_with("chains/kr/t: it is no JSON") && said[0].contains("stays in force")
    );
    assert!(said[1].starts_with("pools/kr/pop: it is an array") && !said[1].contains("stays"));
    assert!(said[2].contains("what/is/this") && said[2].contains("no object of a routing table"));
    let third = build(
        5,
        &[("chains/kr/t", CHAIN), ("pools/kr/kpop", POOL)],
        Some(&second),
    );
    assert!(
        !held(&third, "chains/kr/t").expect("it is there").is_pinned,
        "it was mended"
    );
}

#[test]
fn what_names_nothing_is_told_with_what_was_meant() {
    let documents = [
        (
            "backends/kr/kpap/a",
            r#"{"schema": 1, "address": "10.0.0.1:80"}"#,
        ),
        (
            "boosts/kr/jpop/b",
            r#"{"schema": 1, "factor": 2, "expires_at_ms": 1}"#,
        ),
        ("chains/kr/t", r#"{"schema": 1, "pools": ["kpop", "rock"]}"#),
        ("pools/jp/jpop", POOL),
        ("pools/kr/kpop", POOL),
    ];
    let table = build(3, &documents, None);
    let said: Vec<_> = table.rejected().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "backends/kr/kpap/a: `pools/kr/kpap` is not there; there is `pools/kr/kpop`",
            "boosts/kr/jpop/b: `pools/kr/jpop` is not there; there is `pools/jp/jpop`",
            "chains/kr/t: `pools/kr/rock` is not there",
        ]
    );
}

#[test]
fn a_table_over_a_limit_is_refused_whole() {
    let keys: Vec<String> = (0..=BACKENDS_MAX)
        .map(|id| format!("backends/kr/kpop/b{id}"))
        .collect();
    let value = br#"{"schema": 1, "address": "10.0.0.1:80"}"#;
    let stored = |count: usize| {
        keys.iter().take(count).map(|key| Stored {
            key: key.as_bytes(),
            value,
            modified: 1,
        })
    };
    assert!(Table::build(1, stored(BACKENDS_MAX), None).is_ok());
    let refused = Table::build(1, stored(BACKENDS_MAX + 1), None).expect_err("it is over");
    assert!(refused.to_string().contains("10001 backends"), "{refused}");
    let big = vec![b' '; BYTES_MAX];
    let stored = [Stored {
        key: b"meta",
        value: &big,
        modified: 1,
    }];
    assert_eq!(
        Table::build(1, stored, None).err(),
        Some(Limit::Bytes(BYTES_MAX + 4))
    );
}

/// Consul Template rendered empty files while its store elected a leader.
#[test]
fn a_table_that_has_lost_most_of_what_it_had_has_shrunk() {
    let full: Vec<(String, &str)> = (0..10)
        .map(|at| (format!("pools/kr/p{at}"), POOL))
        .collect();
    let full: Vec<(&str, &str)> = full
        .iter()
        .map(|(key, value)| (key.as_str(), *value))
        .collect();
    let before = build(5, &full, None);
    assert!(build(6, &[], Some(&before)).has_shrunk_from(&before));
    assert!(build(6, &full[..4], Some(&before)).has_shrunk_from(&before));
    assert!(!build(6, &full[..5], Some(&before)).has_shrunk_from(&before));
    let said = ("meta", r#"{"schema": 1, "allow_shrink": true}"#);
    let meant = build(6, &[said], Some(&before));
    assert!(!meant.has_shrunk_from(&before));
    // What was said once does not hold for the next time.
    let mut all = full.clone();
    all.insert(0, said);
    let before = build(6, &all, None);
    let stored = [Stored {
        key: b"meta",
        value: said.1.as_bytes(),
        modified: 6,
    }];
    let after = Table::build(7, stored, Some(&before)).expect("it passes no limit");
    assert!(after.has_shrunk_from(&before));
    // Nor does one that is broken now.
    assert!(build(7, &[("meta", "{")], Some(&before)).has_shrunk_from(&before));
}

#[test]
fn boosts_multiply_within_bounds_and_end_by_the_clock() {
    let boost = |factor: f64, end: u64| {
        format!(r#"{{"schema": 1, "factor": {factor}, "expires_at_ms": {end}}}"#)
    };
    let (a, b, c) = (boost(3.0, 100), boost(2.0, 200), boost(9.0, 150));
    let documents = [
        ("boosts/kr/kpop/a", a.as_str()),
        ("boosts/kr/kpop/b", b.as_str()),
        ("boosts/kr/rock/c", c.as_str()),
        ("pools/kr/kpop", POOL),
        ("pools/kr/rock", POOL),
    ];
    let table = build(1, &documents, None);
    let (kr, kpop) = (name("kr"), name("kpop"));
    let factor = |now| table.factor(&kr, &kpop, now);
    assert_eq!(
        [factor(0), factor(99), factor(100), factor(200)],
        [6.0, 6.0, 2.0, 1.0]
    );
    let ends: Vec<_> = [0, 100, 150, 200].map(|now| table.next_end(now)).to_vec();
    assert_eq!(ends, [Some(100), Some(150), Some(200), None]);
    // Those of a pool whose name begins with this one's, and is sorted before it, are others.
    let documents = [
        ("boosts/kr/kpop-hits/z", a.as_str()),
        ("boosts/kr/kpop/a", b.as_str()),
        ("boosts/kr/kpop2/a", a.as_str()),
    ];
    assert_eq!(build(1, &documents, None).factor(&kr, &kpop, 0), 2.0);
    let (most, more) = (boost(10.0, 100), boost(5.0, 100));
    let table = build(
        1,
        &[
            ("boosts/kr/kpop/a", most.as_str()),
            ("boosts/kr/kpop/b", more.as_str()),
        ],
        None,
    );
    assert_eq!(table.factor(&kr, &kpop, 0), 10.0);
}

#[test]
fn a_digest_is_of_what_is_in_force_and_nothing_else() {
    let one = build(3, &[("pools/kr/kpop", POOL)], None);
    let same = build(9, &[("pools/kr/kpop", POOL)], None);
    assert_eq!(one.digest(), same.digest());
    let other = build(
        3,
        &[("pools/kr/kpop", r#"{"schema": 1, "policy": "random"}"#)],
        None,
    );
    let moved = build(3, &[("pools/kr/kpo", POOL)], None);
    assert_ne!(one.digest(), other.digest());
    assert_ne!(one.digest(), moved.digest());
    let pinned = build(4, &[("pools/kr/kpop", "{")], Some(&one));
    assert_eq!(
        pinned.digest(),
        one.digest(),
        "what is in force is the same"
    );
}

/// An edit of one object reads that one, wherever it stands among the others.
#[test]
fn what_stands_as_it_did_is_not_read_again() {
    let keys: Vec<String> = (0..9).map(|at| format!("routes/r{at}")).collect();
    let put = |changed: &[(usize, u64)], gone: &[usize], previous: Option<&Table>, known: bool| {
        let stored = keys.iter().enumerate().filter_map(|(at, key)| {
            let modified = changed.iter().find(|(it, _)| *it == at);
            (!gone.contains(&at)).then(|| Stored {
                key: key.as_bytes(),
                value: POOL.as_bytes(),
                modified: modified.map_or(1, |(_, revision)| *revision),
            })
        });
        let built = match (previous, known) {
            (Some(known), true) => Table::build_knowing(5, stored, known),
            (previous, _) => Table::build(5, stored, previous),
        };
        built.expect("it passes no limit")
    };
    let first = put(&[], &[0, 5], None, false);
    for known in [false, true] {
        let second = put(&[(3, 2), (8, 2)], &[1, 2], Some(&first), known);
        let fresh: Vec<String> = second
            .shared()
            .filter(|(object, held)| {
                let before = first.shared().find(|(it, _)| it == object);
                before.is_none_or(|(_, before)| !Arc::ptr_eq(before, held))
            })
            .map(|(object, _)| object.to_string())
            .collect();
        assert_eq!(fresh, ["routes/r0", "routes/r3", "routes/r5", "routes/r8"]);
    }
}

#[test]
fn of_a_table_that_is_only_known_nothing_stays() {
    let first = build(3, &[("routes/a", POOL)], None);
    let stored = Stored {
        key: b"routes/a",
        value: b"{",
        modified: 4,
    };
    let second = Table::build_knowing(4, [stored], &first).expect("it passes no limit");
    assert_eq!(held(&second, "routes/a"), None);
    assert!(!second.rejected()[0].is_kept);
}
