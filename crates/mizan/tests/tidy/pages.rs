//! Pages that repeat what the code says, held against it.

use std::collections::{BTreeMap, BTreeSet};

/// Every (code, status) that a request can end with, out of the sources of `proxy/error.rs` and `h1.rs`.
pub(crate) fn reasons(error: &str, h1: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for source in [error, h1] {
        let codes = arms(source, "fn code(self)");
        let statuses = arms(source, "fn status(self)");
        for (variant, code) in codes.iter().filter(|(_, code)| code.starts_with('"')) {
            let status = statuses.get(variant).or(statuses.get("_"));
            let status = match variant.as_str() {
                // What stands in the code is a stand-in: the route has its own.
                "Redirect" | "Respond" => "the route's",
                _ => status.unwrap_or_else(|| panic!("{variant} has no status")),
            };
            found.insert((code.trim_matches('"').to_owned(), status.to_owned()));
        }
    }
    found
}

/// What each variant becomes in the `match` of the function that begins with `signature`.
fn arms(source: &str, signature: &str) -> BTreeMap<String, String> {
    let body = source
        .split_once(signature)
        .and_then(|(_, rest)| rest.split_once("match self {"))
        .and_then(|(_, rest)| rest.split_once("\n        }"))
        .unwrap_or_else(|| panic!("no `match self` in `{signature}`"))
        .0;
    let mut found = BTreeMap::new();
    for (pattern, value) in body.split(",\n").filter_map(|arm| arm.split_once("=>")) {
        let value = value.trim().trim_end_matches(',').to_owned();
        for name in pattern.split('|') {
            let name = name.trim().trim_start_matches("Self::");
            let name = name.split('(').next().unwrap_or(name);
            found.insert(name.to_owned(), value.clone());
        }
    }
    found
}

/// First and second cell of each table row that begins with a word in backquotes, below the heading `heading`.
pub(crate) fn rows(page: &str, heading: &str) -> BTreeSet<(String, String)> {
    let (_, below) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no heading `{heading}`"));
    let below = below.split("\n## ").next().unwrap_or(below);
    below
        .lines()
        .filter_map(|line| {
            let (word, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            let (second, _) = rest.split_once(" | ")?;
            Some((word.to_owned(), second.to_owned()))
        })
        .collect()
}
