//! Routes that are sent to new pools.

use super::*;

const PROBED: &str =
    r#"{"schema": 1, "health": {"path": "/", "interval": "200ms", "timeout": "150ms"}}"#;

#[test]
fn a_route_turns_to_a_new_pool_when_that_is_warm_and_no_request_fails() {
    let blue = Backend::healthy("blue");
    let mizan = embedded();
    add_pool(&mizan, "blue", blue.address());
    let route =
        |pool: &str| format!("{{\"schema\": 1, \"prefix\": \"/shop\", \"pool\": \"{pool}\"}}");
    done(put(&mizan, "routes/shop", &route("blue"), &[]));
    let shop = || mizan.get("/shop").text();
    eventually(SOON, "blue serves", || shop().starts_with("blue"));

    // Nobody listens there yet.
    let green = free_address();
    done(put(&mizan, "pools/kr/green", PROBED, &[]));
    done(put(&mizan, "backends/kr/green/a", &backend(green), &[]));
    done(put(&mizan, "routes/shop", &route("green"), &[]));
    eventually(SOON, "the route waits", || {
        status(&mizan).1["waiting"][0]["key"] == "routes/shop"
    });
    let (exit, store) = status(&mizan);
    assert_eq!(exit, 5, "not all is in force: {store}");
    let said = ask(&mizan, &["status"]).out;
    assert!(
        said.contains("WAITS routes/shop: its pool `green` is new"),
        "{said}"
    );
    for _ in 0..20 {
        assert!(shop().starts_with("blue"));
    }
    let _green =
        Backend::start_at(&green.to_string(), "green", Exchange::serve).expect("it is free");
    let mut others = Vec::new();
    eventually(SOON, "green serves", || {
        let text = shop();
        let is_green = text.starts_with("green");
        if !is_green && !text.starts_with("blue") {
            others.push(text);
        }
        is_green
    });
    assert!(others.is_empty(), "{others:?}");
    let (exit, store) = status(&mizan);
    assert_eq!((exit, &store["waiting"]), (0, &serde_json::json!([])));
}

#[test]
fn what_waits_comes_into_force_when_it_is_said_that_it_is_meant() {
    let blue = Backend::healthy("blue");
    let mizan = embedded();
    add_pool(&mizan, "blue", blue.address());
    done(put(
        &mizan,
        "chains/kr/trending",
        r#"{"schema": 1, "pools": ["blue"]}"#,
        &[],
    ));
    eventually(SOON, "blue serves", || serves(&mizan, "blue"));
    done(put(&mizan, "pools/kr/green", PROBED, &[]));
    done(put(
        &mizan,
        "chains/kr/trending",
        r#"{"schema": 1, "pools": ["green"]}"#,
        &[],
    ));
    eventually(SOON, "the chain waits", || {
        status(&mizan).1["waiting"][0]["key"] == "chains/kr/trending"
    });
    assert!(serves(&mizan, "blue"));
    done(ask(&mizan, &["reload", "--accept-table"]));
    eventually(SOON, "the chain is as it was meant", || {
        mizan.get("/").status == 503
    });
    assert_eq!(status(&mizan).0, 0);
}
