//! What people and programs read.

use super::*;

fn report() -> Report {
    let mut scenario = light("s04", 200.0);
    scenario.about = "a <b> & \"c\"".to_owned();
    run(
        &scenario,
        &options(1, 30, &[PolicyKind::RoundRobin, PolicyKind::PowerOfTwo]),
    )
}

#[test]
fn the_text_has_a_row_for_each_policy_under_one_heading() {
    let text = report().to_text();
    let lines: Vec<&str> = text.lines().collect();
    let heading = lines
        .iter()
        .position(|line| line.starts_with("policy"))
        .expect("a heading");
    assert!(lines[heading + 1].starts_with("round_robin "), "{text}");
    assert!(lines[heading + 2].starts_with("power_of_two "), "{text}");
    let widths: Vec<usize> = lines[heading..].iter().map(|line| line.len()).collect();
    assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    assert!(text.contains("seed 1"), "{text}");
}

#[test]
fn the_json_has_every_figure_and_can_be_read() {
    let report = report();
    let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(json["scenario"], "s04-black-hole");
    assert_eq!(json["policies"][1]["policy"], "power_of_two");
    assert_eq!(json["policies"][1]["recovery"], serde_json::Value::Null);
    assert_eq!(json["faults"][0]["from_seconds"], 20.0);
    let series = &json["policies"][0]["series"];
    let points = series["p99_ms"].as_array().expect("a series").len();
    assert_eq!(points, 60, "half a second each");
    let first = series["shares"]["backends"][0][1]
        .as_array()
        .expect("shares");
    assert_eq!(first.len(), points);
    assert!(json["policies"][0].get("cost").is_none());
}

#[test]
fn the_page_stands_by_itself_and_its_tags_are_closed() {
    let page = report().to_html();
    for foreign in ["<script", "http://", "https://", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    for tag in ["svg", "table", "tr", "td", "div", "text", "title", "p"] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert_eq!(page.matches("<svg").count(), 6, "three charts a policy");
    assert!(page.contains("a &lt;b&gt; &amp; &quot;c&quot;"));
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(!page.contains("NaN") && !page.contains("inf\""));
}
