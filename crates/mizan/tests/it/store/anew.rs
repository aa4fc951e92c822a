//! A store that was lost and set up anew.

use super::*;

/// The store is lost and set up anew while nobody runs: whoever starts then must not take nothing for the table, nor lose what
/// it had written down.
#[test]
fn a_start_beside_a_store_that_was_set_up_anew_keeps_the_last_good_table() {
    let one = Backend::healthy("one");
    let mut etcd = Etcd::start();
    let mut mizan = Mizan::start(&config("one", &etcd.address()));
    add_pool(&mizan, "trending", one.address());
    eventually(SOON, "it serves", || serves(&mizan, "one"));
    let export = mizan.directory().join("table.json").display().to_string();
    done(ask(&mizan, &["config", "export", &export]));
    etcd.kill();
    eventually(SOON, "the loss is seen", || {
        status(&mizan).1["standing"] == "stale"
    });
    etcd.start_anew();
    for _ in 0..2 {
        mizan.start_again();
        eventually(SOON, "it hears the store", || {
            status(&mizan).1["standing"] == "live"
        });
        assert!(serves(&mizan, "one"), "what was in force stays");
        let (exit, store) = status(&mizan);
        let held_back = store["node"]["held_back"].as_str().unwrap_or_default();
        assert!(
            exit == 5 && held_back.contains("what was in force stays"),
            "{exit} {store}"
        );
    }
    let imported = ask(&mizan, &["config", "import", &export]);
    assert!(
        imported.err.contains("this instance holds back")
            && imported.err.contains("`mizan reload --accept-table`"),
        "{}",
        imported.err
    );
    done(imported);
    eventually(SOON, "with its table again it is no longer doubted", || {
        status(&mizan).0 == 0
    });
    assert!(serves(&mizan, "one"));
}
