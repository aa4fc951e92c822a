//! How much of a table is looked at for an edit, and that what is not looked at would have said nothing.

use super::*;
use std::cell::RefCell;

const POOLS: usize = 8;
const BACKENDS: usize = 6;

thread_local! {
    /// How many objects each judgement was asked about.
    static ASKED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn counted(table: &Table, region: &str) -> Vec<Rejected> {
    ASKED.with_borrow_mut(|asked| asked.push(table.len()));
    config::judge(table, region)
}

fn asked() -> Vec<usize> {
    ASKED.with_borrow_mut(std::mem::take)
}

fn address(pool: usize, backend: usize) -> Value {
    json!({"schema": 1, "address": format!("10.0.{pool}.{}:80", backend + 1)})
}

fn route(pool: &str) -> Value {
    json!({"schema": 1, "prefix": format!("/{pool}/"), "pool": pool})
}

/// Pools `p0` …, with their backends, a route each, and a chain.
fn all() -> Vec<Change> {
    let mut all = Vec::new();
    for at in 0..POOLS {
        all.push(put(&format!("pools/kr/p{at}"), pool()));
        all.push(put(&format!("routes/p{at}"), route(&format!("p{at}"))));
        all.extend((0..BACKENDS).map(|backend| {
            put(
                &format!("backends/kr/p{at}/b{backend}"),
                address(at, backend),
            )
        }));
    }
    let chain = json!({"schema": 1, "pools": ["p0", "p1"]});
    all.push(put("chains/kr/c", chain));
    all
}

#[tokio::test]
async fn an_edit_is_judged_by_what_it_touches() {
    let mut place = Place::new();
    place.editor.judge = counted;
    place.edit(all()).await.expect("it is good");
    asked();
    let cases = [
        // Its pool and that one's backends.
        (put("backends/kr/p3/b0", address(99, 0)), 1 + BACKENDS),
        (gone("backends/kr/p3/b1"), BACKENDS),
        (put("pools/kr/p9", pool()), 2 * POOLS + 1 + 1),
        // All routes and chains, and what they name, without backends.
        (put("routes/new", route("p1")), 2 * POOLS + 1 + 1 + 1),
    ];
    for (change, objects) in cases {
        let what = change.object.clone();
        place.edit(vec![change]).await.expect("it is good");
        assert_eq!(asked(), [objects], "{what}");
    }
    let setting = vec![put("settings/ko", settings("mecab"))];
    place.edit(setting).await.expect("it is good");
    assert_eq!(asked(), [0; 0], "no rule of the configuration is about it");
}

/// A thousand edits of one table read a thousand documents, not a thousand tables.
#[tokio::test]
async fn an_edit_reads_what_has_changed_since_the_last() {
    let place = Place::new();
    place.edit(all()).await.expect("it is good");
    let before = place.editor.routing().await.expect("a table");
    let change = put("backends/kr/p3/b0", address(99, 0));
    place.edit(vec![change]).await.expect("it is good");
    let after = place.editor.routing().await.expect("a table");
    let held = before.shared().zip(after.shared());
    let read: Vec<String> = held
        .filter(|((_, before), (_, after))| !Arc::ptr_eq(before, after))
        .map(|(_, (object, _))| object.to_string())
        .collect();
    assert_eq!(read, ["backends/kr/p3/b0"]);
}

/// Whatever is wrong with what an edit touches is found without the rest.
#[test]
fn what_is_not_looked_at_would_have_said_nothing() {
    let good = all();
    let documents = |changes: &[Change]| -> BTreeMap<String, Vec<u8>> {
        let put = changes.iter().filter_map(|change| {
            let document = change.document.clone()?;
            Some((change.object.to_string(), document))
        });
        put.collect()
    };
    let json = |mut fields: Value| {
        fields["schema"] = 1.into();
        fields
    };
    let edits = [
        put("backends/kr/p1/b9", address(1, 0)),
        put("backends/kr/p1/b9", address(2, 0)),
        put("backends/kr/p1/b9", json(json!({"address": "10.0.0.1"}))),
        put(
            "backends/kr/p1/b9",
            json(json!({"address": "10.0.1.99:80", "backup": true, "priority": 2})),
        ),
        put("pools/kr/p1", json(json!({"policy": "round_robins"}))),
        put("pools/kr/p1", json(json!({"subset_size": 3}))),
        put("pools/kr/p1", json(json!({"hash_load_bound": 1.5}))),
        put(
            "pools/kr/p1",
            json(json!({"health": {"path": "/", "interval": "1s", "timeout": "2s"}})),
        ),
        put(
            "pools/kr/p1",
            json(json!({"protocol": "http1", "health": {"grpc": ""}})),
        ),
        put("routes/p1", json(json!({"pool": "p1", "chain": "c"}))),
        put(
            "routes/p2",
            json(json!({"prefix": "/x", "pool": "nowhere"})),
        ),
        put("routes/x", json(json!({"name": "p1", "pool": "p1"}))),
        put("chains/kr/c", json(json!({"pools": ["p0", "nowhere"]}))),
    ];
    let mut wrong = 0;
    for edit in edits {
        let mut documents = documents(&good);
        documents.extend(
            edit.document
                .clone()
                .map(|it| (edit.object.to_string(), it)),
        );
        let stored = documents.iter().map(|(key, value)| Stored {
            key: key.as_bytes(),
            value,
            modified: 1,
        });
        let after = Table::build(1, stored, None).expect("it passes no limit");
        let rules = Table::part(&after, |_| true);
        let whole = config::judge(&rules, "kr");
        wrong += usize::from(!whole.is_empty());
        let concerned = concerned(&after, std::slice::from_ref(&edit));
        assert_eq!(config::judge(&concerned, "kr"), whole, "{}", edit.object);
    }
    assert!(wrong >= 9, "only {wrong} of the edits are wrong at all");
}
