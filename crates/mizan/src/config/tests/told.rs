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
            "conf.d/a.toml:1:1: error: an included file may hold `listener`, `route` and `pool` only; `workers` belongs in the main file",
            "conf.d/a.toml:5:8: error: there is no pool `apj`; did you mean `api`?",
            "conf.d/a.toml:7:7: error: pool `api` is there already, in lb.toml:8",
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
        found[500].contains("1500 more errors and warnings are not shown"),
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
