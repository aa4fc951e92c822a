//! What is told of a store: its metrics, and nodes whose clocks differ.

use super::*;
use ::mizan::clock;
use mizan_store::remote::Remote;
use mizan_store::{Operation, Store, Transaction};

/// Each of two clocks is right for its own node: the one that is behind says it.
#[test]
fn a_node_whose_clock_is_ahead_is_told() {
    let mizan = embedded();
    assert_eq!(mizan.metric("mizan_store_standing", "live"), 1.0);
    let store = Remote::new(mizan.admin_socket());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let told = clock::wall() + Duration::from_secs(30);
    let account = serde_json::json!({
        "node": "ahead", "region": "kr", "revision": 1, "digest": "", "rejected": 0, "held_back": "",
        "version": "0", "applied_ms": 0, "told_ms": told.as_millis() as u64,
    });
    let put = Operation::put("/mizan/default/v1/nodes/ahead", account.to_string());
    let transaction = Transaction {
        compares: Vec::new(),
        operations: vec![put],
    };
    runtime
        .block_on(store.commit(transaction))
        .expect("it is written");
    let warning = || status(&mizan).1["warnings"].to_string();
    eventually(SOON, "it is warned of", || {
        warning().contains("the clock of node `ahead` is")
    });
    let ahead = || mizan.metric("mizan_store_clock_ahead_seconds", "");
    assert!(ahead() > 20.0, "{}", ahead());
}

#[test]
fn a_store_that_is_lost_is_counted() {
    let mut etcd = Etcd::start();
    let mizan = Mizan::start(&config("one", &etcd.address()));
    eventually(SOON, "it is live", || {
        mizan.metric("mizan_store_standing", "live") == 1.0
    });
    assert_eq!(mizan.metric("mizan_store_events_total", "connected"), 1.0);
    etcd.kill();
    eventually(SOON, "the loss is seen", || {
        mizan.metric("mizan_store_standing", "stale") == 1.0
    });
    assert!(mizan.metric("mizan_store_events_total", "lost") >= 1.0);
    etcd.start_again();
    eventually(SOON, "it is reached again", || {
        mizan.metric("mizan_store_events_total", "connected") == 2.0
    });
}

/// Of a balancer of region kr that serves jp and sg as well, and offers the tokenizer of a request's language.
pub(super) fn what_is_explained_of_regions_and_languages(mizan: &Mizan) {
    let explained = |arguments: &[&str]| {
        let said = ask(mizan, &[&["explain", "--json"], arguments].concat());
        let told: Value = serde_json::from_str(&said.out).expect("it is JSON");
        let (pool, offered) = (&told["pool"]["name"], &told["offered"]["headers"]);
        let offered = offered["x-tokenizer"].as_str().unwrap_or("none").to_owned();
        (
            said.exit,
            pool.as_str().unwrap_or("none").to_owned(),
            offered,
        )
    };
    let expected =
        |exit: i32, pool: &str, offered: &str| (exit, pool.to_owned(), offered.to_owned());
    assert_eq!(
        explained(&["--region", "jp", "--language", "ja"]),
        expected(0, "jp/trending", "sudachi")
    );
    let said = [
        "http://a/",
        "-H",
        "X-Region: jp",
        "-H",
        "Accept-Language: ko-KR",
    ];
    assert_eq!(explained(&said), expected(0, "jp/trending", "mecab"));
    // What is asked about goes before what the request says.
    let other = [&said[..], &["--region", "kr", "--language", "fr"]].concat();
    assert_eq!(explained(&other), expected(0, "trending", "none"));
    assert_eq!(explained(&["--region", "sg"]), expected(1, "none", "none"));
    let text = done(ask(
        mizan,
        &["explain", "--region", "jp", "--language", "ja"],
    ));
    assert!(text.contains("REGION    jp\n"), "{text}");
    assert!(
        text.contains("OFFERED   x-tokenizer: sudachi (language ja)"),
        "{text}"
    );
    let unknown = ask(mizan, &["explain", "--region", "jpn"]);
    assert_eq!(unknown.exit, 2);
    assert!(
        unknown
            .err
            .contains("no request here is of region `jpn`; did you mean `jp`?"),
        "{}",
        unknown.err
    );
}
