//! How mistakes are told, beyond the golden files in `tests/refused`.

use super::*;

fn told(sources: &[Source]) -> Vec<String> {
    match compile(sources, None, &no_names, Instant::default(), 1) {
        Ok((_, found)) | Err(found) => lines(&found),
    }
}

#[test]
fn an_unknown_key_names_the_one_that_was_meant() {
    let text = format!("{MINIMAL}health = {{ path = \"/\", intervall = \"2s\" }}\n");
    let Err(found) = compile_text(&text) else {
        panic!("it is refused")
    };
    assert_eq!(
        lines(&found),
        ["lb.toml:10:24: error: unknown key `intervall`; did you mean `interval`?"]
    );
    assert_eq!(
        (found[0].path.as_str(), found[0].code),
        ("pool.api.health.intervall", "unknown_key")
    );
    assert_eq!(&text[found[0].span.clone()], "intervall");
}

#[test]
fn a_path_counts_elements_as_the_file_does_even_behind_a_refused_one() {
    let text = MINIMAL.replace(
        "\"10.0.0.1:8080\",",
        "\"nonsense\", { address = \"10.0.0.2:8080\", weight = 0 },",
    );
    let Err(found) = compile_text(&text) else {
        panic!("it is refused")
    };
    let paths: Vec<&str> = found.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["pool.api.backends[0]", "pool.api.backends[2]"]);
    assert_eq!(found[1].code, "duplicate");
}

#[test]
fn errors_of_shape_and_of_meaning_are_told_together() {
    let text = MINIMAL.replace(
        "pool = \"api\"",
        "pool = \"apis\"\nbody_max = 5\ncolour = 1",
    );
    let codes: Vec<&str> = compile_text(&text)
        .expect_err("it is refused")
        .iter()
        .map(|one| one.code)
        .collect();
    assert_eq!(codes, ["unknown_name", "wrong_type", "unknown_key"]);
}

#[test]
fn an_included_file_is_told_by_its_own_name_and_line() {
    let main = Source::new("lb.toml", MINIMAL);
    let included = Source::new(
        "conf.d/a.toml",
        "workers = 2\n\n[[route]]\npath = \"/a\"\npool = \"apj\"\n\n[pool.api]\nbackends = []\n",
    );
    assert_eq!(
        told(&[main, included]),
        [
            "conf.d/a.toml:1:1: error: an included file may hold `listener`, `route`, `pool` and `chain` only; `workers` belongs in the main file",
            "conf.d/a.toml:5:8: error: there is no pool `apj`; did you mean `api`?",
            "conf.d/a.toml:7:7: error: pool `api` is there already, in lb.toml:8",
        ]
    );
}

#[test]
fn a_slip_in_an_included_file_is_no_key_of_the_main_file() {
    let main = Source::new("lb.toml", MINIMAL);
    let included = Source::new(
        "conf.d/a.toml",
        "[[rout]]\npath = \"/a\"\npool = \"late\"\n\n[pools.late]\nbackends = []\n",
    );
    assert_eq!(
        told(&[main, included]),
        [
            "conf.d/a.toml:1:3: error: unknown key `rout`; did you mean `route`?",
            "conf.d/a.toml:5:2: error: unknown key `pools`; did you mean `pool`?",
        ]
    );
}

#[test]
fn routes_of_included_files_follow_those_of_the_main_file() {
    let main = Source::new("lb.toml", MINIMAL);
    let included = Source::new("a.toml", "[[route]]\npath = \"/a\"\npool = \"api\"\n");
    let (snapshot, _) =
        compile(&[main, included], None, &no_names, Instant::default(), 1).expect("it compiles");
    let names: Vec<&str> = snapshot
        .routes
        .routes()
        .iter()
        .map(|route| &*route.name)
        .collect();
    assert_eq!(names, ["route[0]", "route[1]"]);
}

#[test]
fn limits_hold_where_they_are_loaded() {
    let backends: Vec<String> = (0..10_001)
        .map(|n| format!("\"10.{}.{}.{}:80\"", n >> 16, (n >> 8) & 255, n & 255))
        .collect();
    let text = MINIMAL.replace("\"10.0.0.1:8080\", \"10.0.0.2:8080\"", &backends.join(","));
    let found = lines(&compile_text(&text).expect_err("it is refused"));
    assert_eq!(
        found,
        ["lb.toml:9:1: error: 10001 backends are more than the 10000 that a pool may have"]
    );

    let routes: String = (0..20_000)
        .map(|n| format!("[[route]]\npath = \"/{n}\"\npool = \"api\"\n"))
        .collect();
    let found = lines(&compile_text(&format!("{MINIMAL}{routes}")).expect_err("it is refused"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with("20002 routes and pools are more than the 20000 that are supported"),
        "{found:?}"
    );
}

#[test]
fn very_many_mistakes_are_counted_not_all_shown() {
    let routes: String = (0..2_000)
        .map(|n| format!("[[route]]\npath = \"/{n}\"\npool = \"nowhere\"\n"))
        .collect();
    let found = lines(&compile_text(&format!("{MINIMAL}{routes}")).expect_err("it is refused"));
    assert_eq!(found.len(), 501);
    assert!(
        found[500].contains("1500 more errors are not shown"),
        "{}",
        found[500]
    );
}

#[test]
fn a_diagnostic_is_json_with_stable_names() {
    let found = compile_text("").expect_err("it is refused");
    let json = serde_json::to_value(&found[0]).expect("it is JSON");
    let keys: Vec<&String> = json.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        [
            "code", "column", "file", "help", "line", "message", "path", "severity", "span"
        ]
    );
    assert_eq!(json["severity"], "error");
}

#[test]
fn a_column_counts_characters_not_bytes() {
    let found = compile_text(&format!(
        "{MINIMAL}health = {{ body = \"é\", tpc = true }}\n"
    ))
    .expect_err("it is refused");
    assert_eq!(
        lines(&found)[0],
        "lb.toml:10:24: error: unknown key `tpc`; did you mean `tcp`?"
    );
}

/// What is said of `MINIMAL` with `from` replaced by `to`: messages, and helps.
fn told_of(from: &str, to: &str) -> Vec<(String, String)> {
    let text = MINIMAL.replace(from, to);
    let (Ok((_, found)) | Err(found)) = compile_text(&text);
    let of = |one: Diagnostic| (one.to_string(), one.help.unwrap_or_default());
    found.into_iter().map(of).collect()
}

#[test]
fn a_rewrite_to_a_group_that_the_pattern_lacks_is_refused_instead_of_losing_text() {
    let rewrite = |regex: &str, to: &str| {
        let rewrite = format!("pool = \"api\"\nrewrite = {{ regex = '{regex}', to = '{to}' }}");
        told_of("pool = \"api\"", &rewrite)
    };
    let lacks = |column: usize, shown: &str, name: &str, meant: &str| {
        format!(
            "lb.toml:7:{column}: error: `{shown}` stands for the group `{name}`, which `regex` does not have{meant}"
        )
    };
    assert_eq!(
        rewrite("^/a/(.*)", "/b/$1x"),
        [(
            lacks(38, "$1x", "1x", "; did you mean `${1}x`?"),
            "its only group is `$1`; `$$` stands for `$`".to_owned()
        )]
    );
    assert_eq!(
        rewrite("^/a/(.*)/(.*)", "/$3"),
        [(
            lacks(43, "$3", "3", ""),
            "its groups are `$1` to `$2`; `$$` stands for `$`".to_owned()
        )]
    );
    assert_eq!(
        rewrite("^/a/(?<rest>.*)", "/b/$rest_x")[0].0,
        lacks(45, "$rest_x", "rest_x", "; did you mean `$${rest}_x`?")
    );
    assert_eq!(rewrite("^/a", "/${b}")[0].0, lacks(33, "${b}", "b", ""));
    for to in [
        "/b/$1",
        "/b/${1}x",
        "/b/$rest",
        "/b/${rest}x",
        "/$$2",
        "/$",
        "/$-",
        "/$0",
    ] {
        assert_eq!(rewrite("^/a/(?<rest>.*)", to), [], "{to}");
    }
}

#[test]
fn a_dollar_in_a_location_names_what_is_put_in() {
    let redirect = |location: &str| {
        let redirect = format!("redirect = {{ location = \"{location}\" }}");
        told_of(
            "pool = \"api\"\n\n",
            &format!("{redirect}\n[[route]]\npath = \"/a\"\npool = \"api\"\n\n"),
        )
    };
    assert_eq!(
        redirect("/$uri"),
        [(
            "lb.toml:6:25: warning: `$uri` stands for nothing: the client is sent it as it is"
                .to_owned(),
            "`{scheme}`, `{host}`, `{port}`, `{path}` and `{query}` stand for the request's"
                .to_owned()
        )]
    );
    assert_eq!(redirect("https://{host}/a$/{path}"), []);
}

#[test]
fn other_words_and_shapes_name_what_was_meant() {
    let backends = "backends = [\"10.0.0.1:8080\", \"10.0.0.2:8080\"]";
    for (text, said) in [
        (
            "backends = [{ addr = \"10.0.0.1:8080\" }]",
            "lb.toml:9:15: error: unknown key `addr`; did you mean `address`?",
        ),
        (
            "health = \"/healthz\"\nbackends = [\"10.0.0.1:80\"]",
            "lb.toml:9:10: error: expected a table, found a string; did you mean `{ path = \"/healthz\" }`?",
        ),
        (
            "health = \"tcp\"\nbackends = [\"10.0.0.1:80\"]",
            "lb.toml:9:10: error: expected a table, found a string; did you mean `{ tcp = true }`?",
        ),
        (
            "policy = \"ip_hash\"\nbackends = [\"10.0.0.1:80\"]",
            "lb.toml:9:10: error: `ip_hash` is no policy; did you mean `consistent_hash`?",
        ),
        (
            "retry = { tries_max = 1.5 }\nbackends = [\"10.0.0.1:80\"]",
            "lb.toml:9:23: error: expected a whole number, found 1.5",
        ),
        (
            "timeouts = { connect = \"5 parsecs\" }\nbackends = [\"10.0.0.1:80\"]",
            "lb.toml:9:24: error: `parsecs` is no unit (units are us, ms, s, m, h, d)",
        ),
        (
            "backends = [{ address = \"10.0.0.1:80\", maxconn = 5 }]",
            "lb.toml:9:40: error: unknown key `maxconn`; did you mean `in_flight_max`?",
        ),
    ] {
        let found = told_of(backends, text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, said);
    }
}

#[test]
fn a_limit_on_a_pools_connections_names_the_two_limits_that_there_are() {
    for key in ["connections_max", "max_connections", "maxconn"] {
        let found = told_of("[pool.api]", &format!("[pool.api]\n{key} = 5"));
        assert_eq!(
            found,
            [(
                format!("lb.toml:9:1: error: unknown key `{key}`"),
                "`in_flight_max` of a backend bounds its connections in use, `keepalive.idle_max` those that idle".to_owned()
            )]
        );
    }
}

#[test]
fn a_pool_without_a_name_is_told_to_have_one() {
    assert_eq!(
        told_of("[pool.api]", "[pool]")[1],
        (
            "lb.toml:9:12: error: expected a table, found a list".to_owned(),
            "pools are tables by name: `backends` stands in `[pool.NAME]`".to_owned()
        )
    );
}

#[test]
fn the_mode_of_a_socket_is_octal_and_nothing_on_tcp() {
    let mode = |bind: &str, mode: &str| {
        told_of(
            "\"0.0.0.0:8000\"",
            &format!("\"{bind}\"\nmode = \"{mode}\""),
        )
    };
    assert_eq!(mode("unix:/run/http.sock", "0660"), []);
    assert_eq!(mode("unix:/run/http.sock", "660"), []);
    for bad in ["0668", "0o660", "1777", "66", "rw-rw----"] {
        assert_eq!(
            mode("unix:/run/http.sock", bad)[0].0,
            format!(
                "lb.toml:4:8: error: `{bad}` is no file mode such as `0660`: three octal digits, for owner, group and others"
            )
        );
    }
    assert_eq!(
        mode("0.0.0.0:8000", "0660")[0].0,
        "lb.toml:4:8: warning: `mode` has an effect on a Unix socket only"
    );
}

#[test]
fn keys_beside_a_switch_that_is_off_are_told() {
    let with = |more: &str| {
        let text = format!("{MINIMAL}{more}\n");
        let warned = told(&[Source::new("lb.toml", text)]);
        let places = warned.iter().filter_map(|it| it.split(": ").nth(2));
        places.map(str::to_owned).collect::<Vec<_>>()
    };
    let off = |key: &str| format!("`{key}` has no effect while `enabled` is false");
    assert_eq!(
        with("ejection = { enabled = false, failures = 3, time = \"5s\" }"),
        [off("failures"), off("time")]
    );
    assert_eq!(
        with("adaptive = { enabled = false, failed_share = 0.5 }"),
        [off("failed_share")]
    );
    assert_eq!(with("adaptive = { failed_share = 0.5 }"), [""; 0]);
    assert_eq!(
        with("policy = \"prequal\"\nprequal = { probes_per_second_max = 5 }"),
        ["`probes_per_second_max` has no effect"]
    );
}
