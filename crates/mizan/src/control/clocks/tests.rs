use super::*;
use mizan_store::embedded::Embedded;
use mizan_store::{Operation, Transaction};

fn account(node: &str, told: Duration) -> Vec<u8> {
    let account = Account {
        node: node.to_owned(),
        region: "kr".to_owned(),
        revision: 1,
        digest: String::new(),
        rejected: 0,
        waiting: 0,
        held_back: String::new(),
        version: String::new(),
        applied_ms: 0,
        told_ms: told.as_millis() as u64,
    };
    serde_json::to_vec(&account).expect("it is JSON")
}

fn entries(accounts: &[(&str, u64, Duration)]) -> Entries {
    let entry = |&(node, modified, told): &(&str, u64, Duration)| {
        let entry = Entry {
            key: bytes::Bytes::copy_from_slice(node.as_bytes()),
            value: account(node, told).into(),
            created: 1,
            modified,
            version: 1,
            lease: None,
        };
        (entry.key.clone(), entry)
    };
    Arc::new(accounts.iter().map(entry).collect())
}

const NOW: Duration = Duration::from_secs(1_800_000_000);

#[test]
fn a_clock_is_ahead_by_more_than_half_a_second_or_not_at_all() {
    let ms = Duration::from_millis;
    let mut heard = Heard::default();
    heard.hear(
        &entries(&[
            ("own", 1, NOW + ms(9_000)),
            ("a", 1, NOW + ms(500)),
            ("b", 1, NOW - ms(9_000)),
        ]),
        "own",
        NOW,
    );
    assert_eq!(heard.furthest(), None);
    heard.hear(
        &entries(&[("a", 2, NOW + ms(501)), ("b", 3, NOW + ms(700))]),
        "own",
        NOW,
    );
    let ahead = heard.furthest().expect("b is");
    assert_eq!((&*ahead.node, ahead.by), ("b", ms(700)));
    assert!(ahead.to_string().contains("`b` is 0.7 s ahead"), "{ahead}");
    // The same word heard again, later, says nothing else.
    heard.hear(
        &entries(&[("a", 2, NOW + ms(501)), ("b", 3, NOW + ms(700))]),
        "own",
        NOW + ms(5_000),
    );
    assert_eq!(heard.furthest().map(|it| it.by), Some(ms(700)));
    heard.hear(&entries(&[("a", 2, NOW + ms(501))]), "own", NOW);
    assert_eq!(
        heard.furthest().map(|it| it.node),
        Some("a".to_owned()),
        "who is gone is not ahead"
    );
    heard.hear(&entries(&[("a", 9, NOW)]), "own", NOW);
    assert_eq!(heard.furthest(), None, "it was set right");
}

#[test]
fn an_account_of_before_clocks_were_told_is_of_no_use() {
    let json = br#"{"node":"old","region":"kr","revision":1,"digest":"","rejected":0,"held_back":"","version":"0","applied_ms":1}"#;
    let account: Account = serde_json::from_slice(json).expect("it is read");
    assert_eq!((account.told_ms, account.waiting), (0, 0));
}

#[tokio::test]
async fn a_node_that_is_ahead_is_heard_of_through_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let store =
        Embedded::open(folder.path(), mizan_store::embedded::Options::default()).expect("it opens");
    let store: Arc<dyn Store> = Arc::new(store);
    let layout = Layout::new("default");
    let mut clocks = Clocks::start(Arc::clone(&store), &layout, "own".to_owned());
    let say = async |told| {
        let put = Operation::Put {
            key: layout.node("b"),
            value: account("b", told).into(),
            lease: None,
        };
        let transaction = Transaction {
            compares: Vec::new(),
            operations: vec![put],
        };
        store.commit(transaction).await.expect("it is written");
    };
    say(clock::wall() + Duration::from_secs(60)).await;
    clocks.changed().await;
    let ahead = clocks.furthest().expect("b is ahead");
    assert!(
        ahead.node == "b" && ahead.by > Duration::from_secs(50),
        "{ahead}"
    );
    say(clock::wall()).await;
    clocks.changed().await;
    assert_eq!(clocks.furthest(), None);
}
