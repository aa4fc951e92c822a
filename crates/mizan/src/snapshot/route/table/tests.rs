use super::super::{Action, HeaderEdits, PathMatch, RouteTimeouts, ValueMatch};
use super::*;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use regex::bytes::Regex;
use std::borrow::Cow;
use std::net::IpAddr;

mod near_misses;

/// A request as routes see it.
#[derive(Clone, Debug)]
struct Request {
    method: String,
    host: String,
    path: String,
    query: Option<String>,
    headers: Vec<(String, String)>,
    client: Option<IpAddr>,
}

impl RequestView for Request {
    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }
    fn host(&self) -> &str {
        &self.host
    }
    fn path(&self) -> &str {
        &self.path
    }
    fn query(&self) -> Option<&[u8]> {
        self.query.as_deref().map(str::as_bytes)
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| Cow::Borrowed(value.as_bytes()))
    }
    fn client(&self) -> Option<IpAddr> {
        self.client
    }
}

fn get(host: &str, path: &str) -> Request {
    let (host, path) = (host.to_owned(), path.to_owned());
    Request {
        method: "GET".into(),
        host,
        path,
        query: None,
        headers: Vec::new(),
        client: None,
    }
}

fn route(index: usize, path: PathMatch) -> Route {
    Route {
        varying: None,
        name: format!("route[{index}]").into(),
        index,
        listeners: Vec::new(),
        hosts: Vec::new(),
        path,
        methods: Vec::new(),
        headers: Vec::new(),
        query: Vec::new(),
        client: Vec::new(),
        networks: Default::default(),
        allow_odd_path: false,
        grpc_web: false,
        action: Action::Respond {
            status: 200,
            content_type: String::new(),
            body: Arc::new([]),
        },
        request_headers: HeaderEdits::default(),
        response_headers: HeaderEdits::default(),
        rewrite: None,
        timeouts: RouteTimeouts::default(),
        body_bytes_max: None,
        error_pages: Vec::new(),
    }
}

fn exact(path: &str) -> PathMatch {
    PathMatch::Exact(path.into())
}

fn prefix(path: &str) -> PathMatch {
    PathMatch::Prefix(path.into())
}

fn regex(pattern: &str) -> PathMatch {
    PathMatch::Regex(anchored(pattern))
}

fn anchored(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).unwrap()
}

fn host(text: &str) -> HostMatch {
    match text.strip_prefix("*.") {
        Some(name) => HostMatch::Wildcard(name.into()),
        None => HostMatch::Exact(text.into()),
    }
}

/// A table of routes given as (hosts, path), and a way to ask it for an index.
fn table(routes: Vec<(&[&str], PathMatch)>) -> RouteTable {
    let build = |(index, (hosts, path)): (usize, (&[&str], PathMatch))| {
        Arc::new(Route {
            hosts: hosts.iter().map(|text| host(text)).collect(),
            ..route(index, path)
        })
    };
    RouteTable::build(routes.into_iter().enumerate().map(build).collect())
}

fn found(table: &RouteTable, request: &Request) -> Option<usize> {
    table.find("web", request).map(|route| route.index)
}

fn order(table: &RouteTable) -> Vec<usize> {
    table.in_order().iter().map(|route| route.index).collect()
}

#[test]
fn an_exact_host_goes_before_wildcards_and_a_longer_wildcard_before_a_shorter() {
    let table = table(vec![
        (&[], prefix("/")),
        (&["*.example.org"], prefix("/")),
        (&["*.eu.example.org"], prefix("/")),
        (&["a.eu.example.org"], prefix("/")),
    ]);
    for (host, expected) in [
        ("a.eu.example.org", 3),
        ("a.eu.example.org.", 3),
        ("b.eu.example.org", 2),
        ("x.a.eu.example.org", 2),
        ("eu.example.org", 1),
        ("example.org", 0),
        (".example.org", 0),
        ("badexample.org", 0),
        ("", 0),
    ] {
        assert_eq!(found(&table, &get(host, "/")), Some(expected), "{host}");
    }
    assert_eq!(order(&table), [3, 2, 1, 0]);
}

#[test]
fn the_order_is_exact_then_longer_prefixes_then_regexes_then_the_catch_all() {
    let table = table(vec![
        (&[], regex("/api/.*")),
        (&[], regex("/[a-z]+")),
        (&[], prefix("/api")),
        (&[], prefix("/api/v1/")),
        (&[], exact("/api/v1")),
        (&[], prefix("/")),
    ]);
    for (path, expected) in [
        ("/api/v1", 4),
        ("/api/v1/", 3),
        ("/api/v1/x/y", 3),
        ("/api/v10", 2),
        ("/api", 2),
        ("/apix", 1),
        ("/", 5),
        ("/9", 5),
        ("*", 5),
    ] {
        assert_eq!(found(&table, &get("h", path)), Some(expected), "{path}");
    }
    assert_eq!(order(&table), [4, 3, 2, 0, 1, 5]);
}

#[test]
fn a_prefix_matches_whole_segments_only() {
    let table = table(vec![
        (&[], prefix("/a/b")),
        (&[], prefix("//x")),
        (&[], exact("/e")),
    ]);
    for (path, expected) in [
        ("/a/b", Some(0)),
        ("/a/b/", Some(0)),
        ("/a/b//c", Some(0)),
        ("//x", Some(1)),
        ("//x/y", Some(1)),
        ("/e", Some(2)),
        ("/a/bc", None),
        ("/a", None),
        ("/x", None),
        ("/e/", None),
        ("/A/b", None),
        ("*", None),
    ] {
        assert_eq!(found(&table, &get("h", path)), expected, "{path}");
    }
}

/// Routes of one path that differ by their conditions.
fn conditional() -> RouteTable {
    let header = |name: &str, value| vec![(name.to_owned(), value)];
    let canary = ValueMatch::Exact("1".into());
    let routes = vec![
        route(0, prefix("/")),
        route(1, prefix("/")),
        Route {
            methods: vec!["POST".into()],
            ..route(2, prefix("/"))
        },
        Route {
            headers: header("x-canary", ValueMatch::Present),
            ..route(3, prefix("/"))
        },
        Route {
            methods: vec!["POST".into()],
            headers: header("x-canary", canary),
            ..route(4, prefix("/"))
        },
        Route {
            listeners: vec!["admin".into()],
            ..route(5, prefix("/"))
        },
        Route {
            query: header("debug", ValueMatch::Regex(anchored("1|on"))),
            ..route(6, prefix("/"))
        },
        Route {
            client: vec!["10.0.0.0/8".parse().unwrap()],
            ..route(7, prefix("/"))
        },
    ];
    RouteTable::build(routes.into_iter().map(Arc::new).collect())
}

#[test]
fn more_conditions_go_first_and_then_the_order_of_the_file() {
    let table = conditional();
    let plain = get("h", "/x");
    let canary = |method: &str, value: &str| Request {
        method: method.into(),
        headers: vec![("x-canary".to_owned(), value.to_owned())],
        ..plain.clone()
    };
    let post = Request {
        method: "POST".into(),
        ..plain.clone()
    };
    assert_eq!(found(&table, &plain), Some(0));
    assert_eq!(found(&table, &post), Some(2));
    assert_eq!(found(&table, &canary("POST", "1")), Some(4));
    assert_eq!(found(&table, &canary("POST", "0")), Some(2));
    assert_eq!(found(&table, &canary("GET", "0")), Some(3));
    let admin = table.find("admin", &plain).map(|route| route.index);
    assert_eq!(admin, Some(5));
    assert_eq!(order(&table), [4, 2, 3, 5, 6, 7, 0, 1]);
}

#[test]
fn a_query_condition_looks_at_the_first_parameter_of_that_very_name() {
    let table = conditional();
    for (text, expected) in [
        ("a=b&debug=on", 6),
        ("debug=off&debug=on", 0),
        ("debug", 0),
        ("debugger=1", 0),
        ("", 0),
    ] {
        let request = Request {
            query: Some(text.into()),
            ..get("h", "/x")
        };
        assert_eq!(found(&table, &request), Some(expected), "{text}");
    }
}

#[test]
fn a_client_condition_knows_an_ipv4_address_in_ipv6_form() {
    let table = conditional();
    for (text, expected) in [
        ("10.1.2.3", 7),
        ("::ffff:10.1.2.3", 7),
        ("11.0.0.1", 0),
        ("::1", 0),
    ] {
        let request = Request {
            client: Some(text.parse().unwrap()),
            ..get("h", "/x")
        };
        assert_eq!(found(&table, &request), Some(expected), "{text}");
    }
}

#[test]
fn a_request_falls_through_to_the_next_less_specific_path_and_host() {
    let post = vec!["POST".to_owned()];
    let routes = vec![
        Route {
            hosts: vec![host("a.example")],
            methods: post.clone(),
            ..route(0, exact("/x/y"))
        },
        Route {
            hosts: vec![host("a.example")],
            methods: post.clone(),
            ..route(1, prefix("/x/y"))
        },
        Route {
            hosts: vec![host("*.example")],
            methods: post.clone(),
            ..route(2, prefix("/x"))
        },
        Route {
            methods: post,
            ..route(3, exact("/x/y"))
        },
        route(4, prefix("/x")),
    ];
    let table = RouteTable::build(routes.into_iter().map(Arc::new).collect());
    assert_eq!(found(&table, &get("a.example", "/x/y")), Some(4));
    assert_eq!(found(&table, &get("a.example", "/z")), None);
}

#[test]
fn a_route_with_several_hosts_stands_in_the_order_once_for_each() {
    let table = table(vec![
        (&["*.org"], prefix("/")),
        (&["a.org", "*.net", "a.org"], prefix("/")),
        (&["*.b.net"], prefix("/")),
    ]);
    let entries = table.entries();
    let entries: Vec<_> = entries
        .iter()
        .map(|entry| (entry.host.cloned().unwrap(), entry.route.index))
        .collect();
    assert_eq!(
        entries,
        [
            (host("a.org"), 1),
            (host("*.b.net"), 2),
            (host("*.org"), 0),
            (host("*.net"), 1)
        ]
    );
    assert_eq!(order(&table), [1, 2, 0]);
    assert_eq!(
        table
            .routes()
            .iter()
            .map(|route| route.index)
            .collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

#[test]
fn a_name_or_path_of_nothing_but_separators_is_answered() {
    let table = table(vec![
        (&["*.example.org", "a.b"], prefix("/a")),
        (&[], exact("/")),
    ]);
    let (dots, slashes) = (".".repeat(8_192), "/".repeat(8_192));
    assert_eq!(found(&table, &get(&dots, &slashes)), None);
    assert_eq!(
        found(&table, &get(&format!("{dots}example.org"), "/a")),
        Some(0)
    );
}

/// Host and path by the letter of the documentation, for the reference.
fn host_matches(host: Option<&HostMatch>, name: &str) -> bool {
    match host {
        None => true,
        Some(HostMatch::Exact(exact)) => exact == name,
        Some(HostMatch::Wildcard(below)) => name
            .strip_suffix(below)
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
    }
}

fn path_matches(pattern: &PathMatch, path: &str) -> bool {
    match pattern {
        PathMatch::Exact(exact) => exact == path,
        PathMatch::Prefix(prefix) => format!("{path}/").starts_with(&format!("{}/", base(prefix))),
        PathMatch::Regex(regex) => regex.is_match(path.as_bytes()),
    }
}

/// A prefix without the slash that says nothing.
fn base(prefix: &str) -> &str {
    prefix.strip_suffix('/').unwrap_or(prefix)
}

/// All (host, route) pairs in the documented order, made by nothing but sorting.
fn sorted_entries(routes: &[Arc<Route>]) -> Vec<(Option<HostMatch>, Arc<Route>)> {
    let mut entries = Vec::new();
    for route in routes {
        let hosts: Vec<_> = if route.hosts.is_empty() {
            vec![None]
        } else {
            route.hosts.iter().cloned().map(Some).collect()
        };
        entries.extend(hosts.into_iter().map(|host| (host, Arc::clone(route))));
    }
    // Regexes of one host stand where each first stands among that host's routes.
    let first_with = |pattern: &str, host: &Option<HostMatch>| {
        let same = |route: &Arc<Route>| {
            let of_host = match host {
                Some(host) => route.hosts.contains(host),
                None => route.hosts.is_empty(),
            };
            of_host && matches!(&route.path, PathMatch::Regex(regex) if regex.as_str() == pattern)
        };
        routes.iter().position(same).unwrap()
    };
    entries.sort_by_key(|(named, route)| {
        let host = match named {
            Some(HostMatch::Exact(_)) => (0, 0),
            Some(HostMatch::Wildcard(name)) => (1, usize::MAX - name.len()),
            None => (2, 0),
        };
        let path = match &route.path {
            PathMatch::Exact(_) => (0, 0),
            PathMatch::Prefix(prefix) if base(prefix).is_empty() => (3, 0),
            PathMatch::Prefix(prefix) => (1, usize::MAX - base(prefix).len()),
            PathMatch::Regex(regex) => (2, first_with(regex.as_str(), named)),
        };
        (
            host,
            path,
            usize::MAX - conditions::count(route),
            route.index,
        )
    });
    entries
}

fn any_path() -> impl Strategy<Value = PathMatch> {
    let segments = proptest::collection::vec(select(vec!["a", "b", "ab", ""]), 0..4);
    let text = segments.prop_map(|segments| format!("/{}", segments.join("/")));
    prop_oneof![
        3 => text.clone().prop_map(PathMatch::Exact),
        5 => text.prop_map(PathMatch::Prefix),
        1 => select(vec![".*", "/a.*", "/[ab]/.*", "/a/b"]).prop_map(regex),
    ]
}

fn any_value() -> impl Strategy<Value = ValueMatch> {
    prop_oneof![
        Just(ValueMatch::Present),
        Just(ValueMatch::Exact("1".into())),
        Just(ValueMatch::Regex(anchored("[12]"))),
    ]
}

fn any_route() -> impl Strategy<Value = Route> {
    let hosts = subsequence(
        vec!["a.x.org", "x.org", "*.org", "*.x.org", "*.a.x.org"],
        0..3,
    );
    let conditions = (
        subsequence(vec!["web", "other"], 0..2),
        subsequence(vec!["GET", "POST"], 0..2),
        proptest::collection::vec(any_value(), 0..2),
        proptest::collection::vec(any_value(), 0..2),
        subsequence(vec!["10.0.0.0/8", "::1/128"], 0..2),
    );
    (hosts, any_path(), conditions).prop_map(
        |(hosts, path, (listeners, methods, headers, query, client))| Route {
            hosts: hosts.into_iter().map(host).collect(),
            listeners: listeners.into_iter().map(Arc::from).collect(),
            methods: methods.into_iter().map(str::to_owned).collect(),
            headers: headers
                .into_iter()
                .map(|value| ("h".to_owned(), value))
                .collect(),
            query: query
                .into_iter()
                .map(|value| ("q".to_owned(), value))
                .collect(),
            client: client
                .into_iter()
                .map(|network| network.parse().unwrap())
                .collect(),
            ..route(0, path)
        },
    )
}

fn any_request() -> impl Strategy<Value = Request> {
    let host = select(vec![
        "a.x.org",
        "x.org",
        "b.a.x.org",
        "b.org",
        "org",
        "",
        "c.net",
    ]);
    let path = proptest::collection::vec(select(vec!["a", "b", "ab", ""]), 0..5);
    let path = path.prop_map(|segments| format!("/{}", segments.join("/")));
    let value = || proptest::option::of(select(vec!["1", "2", "3"]));
    let client = select(vec![None, Some("10.1.1.1"), Some("::1"), Some("192.0.2.1")]);
    (
        host,
        path,
        select(vec!["GET", "POST"]),
        value(),
        value(),
        client,
    )
        .prop_map(|(host, path, method, header, query, client)| Request {
            method: method.to_owned(),
            host: host.to_owned(),
            path,
            query: query.map(|value| format!("p=9&q={value}&q=0")),
            headers: header
                .map(|value| ("h".to_owned(), value.to_owned()))
                .into_iter()
                .collect(),
            client: client.map(|address| address.parse().unwrap()),
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]
    #[test]
    fn a_look_up_finds_what_a_scan_of_all_routes_in_order_finds(
        routes in proptest::collection::vec(any_route(), 0..24),
        requests in proptest::collection::vec(any_request(), 1..12),
    ) {
        let routes: Vec<_> = routes.into_iter().enumerate().map(|(index, route)| Arc::new(Route { index, ..route })).collect();
        let sorted = sorted_entries(&routes);
        let table = RouteTable::build(routes);
        let entries = table.entries();
        prop_assert_eq!(entries.len(), sorted.len());
        for request in requests {
            let takes = |host: Option<&HostMatch>, route: &Route| {
                host_matches(host, &request.host) && path_matches(&route.path, &request.path) && conditions::hold(route, "web", &request)
            };
            let expected = sorted.iter().find(|(host, route)| takes(host.as_ref(), route)).map(|(_, route)| route.index);
            let by_entries = entries.iter().find(|entry| takes(entry.host, entry.route)).map(|entry| entry.route.index);
            prop_assert_eq!(found(&table, &request), expected);
            prop_assert_eq!(by_entries, expected);
            // What explains a look-up comes to the same, by another way.
            let explained = entries.iter().find(|entry| {
                near::is_host(entry.host, &request.host)
                    && near::is_path(&entry.route.path, &request.path)
                    && conditions::failed(entry.route, "web", &request).is_empty()
            });
            prop_assert_eq!(explained.map(|entry| entry.route.index), expected);
        }
    }
}
