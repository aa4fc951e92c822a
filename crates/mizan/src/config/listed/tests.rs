use super::*;

fn told(path: &str, text: &str) -> Vec<String> {
    match listed(&Source::new(path, text)) {
        Ok(found) => panic!("it is taken: {found:?}"),
        Err(found) => found.iter().map(ToString::to_string).collect(),
    }
}

fn keys(path: &str, text: &str) -> Vec<(String, u32, u32)> {
    let found = listed(&Source::new(path, text)).expect("it is right");
    let show = |backend: &Configured| {
        let member = backend.template();
        (member.key.to_string(), member.weight, member.place.tier)
    };
    found.iter().map(show).collect()
}

#[test]
fn json_and_toml_say_the_same() {
    let want = vec![
        ("10.0.0.1:80".to_owned(), 1, 0),
        ("app.local:80".to_owned(), 3, 1),
    ];
    let entries = r#"["10.0.0.1:80",
        {"address": "app.local:80", "weight": 3, "backup": true, "zone": null}]"#;
    assert_eq!(keys("a.json", entries), want);
    let object = format!("{{ \"backends\" : {entries} }}");
    assert_eq!(keys("a", &object), want);
    let toml =
        "backends = [\"10.0.0.1:80\", { address = \"app.local:80\", weight = 3, backup = true }]";
    assert_eq!(keys("a.toml", toml), want);
    assert_eq!(keys("a.json", " [ ] "), []);
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_column() {
    assert_eq!(
        told(
            "a.json",
            "[\"10.0.0.1:80\",\n  {\"address\": \"10.0.0.2:80\", \"wieght\": 2}]"
        ),
        ["a.json:2:30: error: unknown key `wieght`; did you mean `weight`?"]
    );
    assert_eq!(
        told("a.json", "[\"10.0.0.1:80\",\n \"10.0.0.1\"]"),
        ["a.json:2:2: error: `10.0.0.1` lacks its port; did you mean `10.0.0.1:80`?"]
    );
    let cut = told("a.json", "[\"10.0.0.1:80\",\n \"10.0.0.2:8").remove(0);
    assert!(cut.starts_with("a.json:2:1"), "{cut}");
    assert!(
        cut.ends_with("this is no JSON: EOF while parsing a string"),
        "{cut}"
    );
    assert_eq!(
        told(
            "a.json",
            "[{\"address\": \"10.0.0.1:80\", \"weight\": 1, \"weight\": 2}]"
        ),
        ["a.json:1:42: error: `weight` stands twice"]
    );
    assert_eq!(
        told("a.json", "{\"backend\": []}"),
        [
            "a.json:1:1: error: `backends` is missing: it is the list of them",
            "a.json:1:2: error: unknown key `backend`: there is a list `backends`, and nothing else"
        ]
    );
    assert_eq!(
        told("a.json", "7"),
        ["a.json:1:1: error: a list of backends is meant, and this is an integer"]
    );
    assert_eq!(
        told("a.json", "[\"10.0.0.1:80\",\n \"10.0.0.1:80\"]"),
        ["a.json:2:2: error: backend `10.0.0.1:80` is there already, at a.json:1"]
    );
    assert_eq!(
        told("a.toml", "backends = [\n  \"10.0.0.1\",\n]"),
        ["a.toml:2:3: error: `10.0.0.1` lacks its port; did you mean `10.0.0.1:80`?"]
    );
}

#[test]
fn an_instance_says_what_a_backend_has_and_perhaps_more() {
    let said =
        r#"{"address": "10.0.0.1:80", "weight": 2, "version": "v2", "zone": "a", "pid": 17}"#;
    let found = instance("api/one", said.as_bytes()).expect("it is right");
    let member = found.template();
    assert_eq!(
        (
            &*member.key,
            member.weight,
            &*member.version,
            &*member.place.zone
        ),
        ("10.0.0.1:80", 2, "v2", "a")
    );
    let wrong = |json: &str| instance("api/one", json.as_bytes()).expect_err("it is wrong");
    assert_eq!(wrong("{\"weight\": 2}"), "api/one: `address` is missing");
    assert!(wrong("[]").starts_with("api/one: this is no JSON object"));
    assert!(wrong("{\"address\": 7}").starts_with("api/one: "));
}
