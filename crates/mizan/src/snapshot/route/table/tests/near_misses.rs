//! What is told of routes that are nearly taken.

use super::*;

/// What is nearly taken, as `route: what wanted, saw`.
fn near(table: &RouteTable, request: &Request) -> Vec<String> {
    let (near, _) = table.near("web", request);
    let told = |near: &Near<'_>| {
        let failed: Vec<_> = near
            .failed
            .iter()
            .map(|failed| {
                let saw = failed.saw.as_deref().unwrap_or("nothing");
                format!("{} {}, saw {saw}", failed.what, failed.wanted)
            })
            .collect();
        format!("{}: {}", near.entry.route.index, failed.join("; "))
    };
    near.iter().map(told).collect()
}

#[test]
fn a_near_miss_tells_which_condition_failed_and_what_it_saw() {
    let mut request = get("example.org", "/a");
    request.headers = vec![("x-canary".to_owned(), "0".to_owned())];
    request.client = Some(IpAddr::from([192, 0, 2, 1]));
    request.query = Some("debug=off".into());
    assert_eq!(found(&conditional(), &request), Some(3));
    let near = near(&conditional(), &request);
    let expected = [
        "2: method POST, saw GET",
        "5: listener admin, saw web",
        "6: query debug ~ ^(?:1|on)$, saw off",
        "7: client 10.0.0.0/8, saw 192.0.2.1",
        "4: method POST, saw GET; header x-canary 1, saw 0",
        "0: ",
        "1: ",
    ];
    assert_eq!(near, expected);
}

#[test]
fn a_host_and_a_path_that_are_much_like_the_request_s_are_near() {
    let table = table(vec![
        (&["example.org"], prefix("/api")),
        (&["api.example.org"], prefix("/")),
        (&["other.net"], prefix("/")),
        (&["example.org"], exact("/healthz")),
    ]);
    let above = "1: host api.example.org, saw example.org";
    assert_eq!(
        near(&table, &get("example.org", "/apix")),
        ["0: path /api/*, saw /apix", above]
    );
    assert_eq!(
        near(&table, &get("example.org", "/health")),
        ["3: path = /healthz, saw /health", above]
    );
    assert_eq!(
        near(&table, &get("exmaple.org", "/api/v1")),
        ["0: host example.org, saw exmaple.org"]
    );
    assert_eq!(
        near(&table, &get("www.api.example.org", "/")),
        ["1: host api.example.org, saw www.api.example.org"]
    );
    assert_eq!(near(&table, &get("nowhere.test", "/")), [""; 0]);
}

#[test]
fn what_holds_but_stands_behind_is_near_and_many_are_counted() {
    let plain = table(vec![(&[], prefix("/a")), (&[], prefix("/"))]);
    assert_eq!(near(&plain, &get("x.test", "/a")), ["1: "]);
    let many: Vec<(&[&str], PathMatch)> = (0..20).map(|_| (&[] as &[&str], prefix("/"))).collect();
    let (near, more) = {
        let table = table(many);
        let (near, more) = table.near("web", &get("x.test", "/"));
        (near.len(), more)
    };
    assert_eq!((near, more), (near::NEAR_MAX, 19 - near::NEAR_MAX));
}

#[test]
fn a_path_in_another_case_is_near_however_short_it_is() {
    let table = table(vec![(&[], prefix("/api")), (&[], exact("/Ü/Login"))]);
    assert_eq!(
        near(&table, &get("x.test", "/API/v1")),
        ["0: path /api/*, saw /API/v1"]
    );
    assert_eq!(
        near(&table, &get("x.test", "/ü/login")),
        ["1: path = /Ü/Login, saw /ü/login"]
    );
    assert_eq!(near(&table, &get("x.test", "/web")), [""; 0]);
}

#[test]
fn a_regular_expression_is_near_but_for_case_a_slash_or_what_follows_its_beginning() {
    let table = table(vec![
        (&[], regex("/users/[0-9]+")),
        (&[], regex("/(a|b)/x")),
    ]);
    let first = |path: &str| near(&table, &get("x.test", path));
    for path in [
        "/Users/12",
        "/users/12/",
        "/users/abc",
        "/user/12",
        "/users",
    ] {
        assert_eq!(
            first(path),
            [format!("0: path ~ ^(?:/users/[0-9]+)$, saw {path}")]
        );
    }
    assert_eq!(first("/A/X"), ["1: path ~ ^(?:/(a|b)/x)$, saw /A/X"]);
    assert_eq!(first("/other"), [""; 0]);
}
