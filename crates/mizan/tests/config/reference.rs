//! The reference by key in `docs/configuration.md` is made from the schema.

use super::{assert_committed, root};
use mizan::config;
use serde_json::Value;

const BEGIN: &str = "<!-- From here on made from the schema: UPDATE_SCHEMA=1 cargo test -p mizan --test config -->\n";

/// Tables in the order in which a reader meets them; the rest follows by name.
const ORDER: [&str; 3] = ["listener", "route", "pool"];

#[test]
fn the_reference_has_every_key_with_its_range_and_default() {
    let path = root().join("docs/configuration.md");
    let page = std::fs::read_to_string(&path).expect("docs/configuration.md is there");
    let (by_hand, _) = page.split_once(BEGIN).expect("the mark is there");
    let schema = config::json_schema();
    let mut reference = Reference {
        schema: &schema,
        text: String::new(),
    };
    reference.table("Top of the file", "", &schema, 2);
    assert_committed(&path, &format!("{by_hand}{BEGIN}{}", reference.text));
}

struct Reference<'s> {
    schema: &'s Value,
    text: String,
}

impl<'s> Reference<'s> {
    /// A heading, a row for each key, then the tables inside.
    fn table(&mut self, title: &str, path: &str, table: &'s Value, depth: usize) {
        let table = self.resolved(table);
        let description = table["description"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', " ");
        let heading = if path.is_empty() {
            title.to_owned()
        } else {
            format!("`{title}`")
        };
        self.text += &format!(
            "\n{} {heading}\n\n{description}\n\n| key | value | default |\n| --- | --- | --- |\n",
            "#".repeat(depth)
        );
        let properties = table["properties"].as_object().expect("a table has keys");
        let required: Vec<&str> = table["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut inner = Vec::new();
        for (key, property) in properties {
            if let Some(found) = self.inner_table(path, key, property) {
                inner.push((key, found));
            }
            let default = match &property["default"] {
                _ if required.contains(&key.as_str()) => "**required**".to_owned(),
                Value::Null => "–".to_owned(),
                default => format!("`{default}`"),
            };
            let meaning = property["description"]
                .as_str()
                .unwrap_or_default()
                .replace('\n', " ");
            let row = format!(
                "| `{key}` | {} {} | {default} |\n",
                capitalised(&self.value(property)),
                meaning.replace('|', "\\|")
            );
            self.text += &row;
        }
        inner.sort_by_key(|(key, _)| {
            (
                path.is_empty(),
                ORDER
                    .iter()
                    .position(|first| first == key)
                    .unwrap_or(ORDER.len()),
            )
        });
        for (key, (title, table)) in inner {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            self.table(
                &title,
                &path,
                table,
                (depth + usize::from(depth < 3)).min(3),
            );
        }
    }

    /// The table that a key holds, alone, in a list or by name, with its title.
    fn inner_table(
        &self,
        path: &str,
        key: &str,
        property: &'s Value,
    ) -> Option<(String, &'s Value)> {
        let full = if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}").replace("pool.", "pool.NAME.")
        };
        let full = full.replace("NAME.NAME", "NAME");
        let property = self.resolved(property);
        let candidates = [property]
            .into_iter()
            .chain(property["anyOf"].as_array().into_iter().flatten());
        for candidate in candidates {
            let candidate = self.resolved(candidate);
            if candidate["properties"].is_object() {
                return Some((format!("[{full}]"), candidate));
            }
            let by_name = self.resolved(&candidate["additionalProperties"]);
            if by_name["properties"].is_object() {
                return Some((format!("[{full}.NAME]"), by_name));
            }
            let item = self.resolved(&candidate["items"]);
            let items = [item]
                .into_iter()
                .chain(item["anyOf"].as_array().into_iter().flatten());
            if let Some(item) = items
                .map(|item| self.resolved(item))
                .find(|item| item["properties"].is_object())
            {
                return Some((format!("[[{full}]]"), item));
            }
        }
        None
    }

    /// What a value may be, in words.
    fn value(&self, schema: &'s Value) -> String {
        let resolved = self.resolved(schema);
        let get = |key: &str| {
            if schema[key].is_null() {
                &resolved[key]
            } else {
                &schema[key]
            }
        };
        if let Some(choices) = get("anyOf").as_array() {
            let all: Vec<String> = choices
                .iter()
                .map(|choice| self.value(choice).trim_end_matches('.').to_owned())
                .collect();
            return all.join(", or ") + ".";
        }
        if let Some(choices) = get("oneOf").as_array() {
            let words = choices.iter().map(|choice| {
                format!(
                    "`{}` ({})",
                    choice["const"].as_str().unwrap_or_default(),
                    choice["description"]
                        .as_str()
                        .unwrap_or_default()
                        .trim_end_matches('.')
                )
            });
            return words.collect::<Vec<_>>().join("; ") + ".";
        }
        if let Some(what) = get("format").as_str().and_then(config::format_meaning) {
            return format!(
                "{what}{}.",
                range(get("x-minimum"), get("x-maximum"), get("x-zero"))
            );
        }
        match get("type").as_str().unwrap_or_default() {
            "integer" if get("enum").is_array() => "a whole number.".to_owned(),
            kind @ ("integer" | "number") => {
                let whole = if kind == "integer" { "whole " } else { "" };
                format!(
                    "a {whole}number{}.",
                    range(get("minimum"), get("maximum"), &Value::Null)
                )
            }
            "boolean" => "`true` or `false`.".to_owned(),
            "string" => "a string.".to_owned(),
            "array" => {
                let item = self.value(get("items"));
                format!("a list of {}.", plural(item.trim_end_matches('.')))
            }
            _ if get("additionalProperties").is_object() => "a table by name.".to_owned(),
            _ => "a table.".to_owned(),
        }
    }

    fn resolved(&self, schema: &'s Value) -> &'s Value {
        let name = schema["$ref"]
            .as_str()
            .and_then(|name| name.strip_prefix("#/$defs/"));
        name.map_or(schema, |name| &self.schema["$defs"][name])
    }
}

fn range(low: &Value, high: &Value, zero: &Value) -> String {
    let show = |bound: &Value| {
        bound
            .as_str()
            .map_or_else(|| bound.to_string(), str::to_owned)
    };
    let range = match (low, high) {
        (Value::Null, Value::Null) => return String::new(),
        (Value::Null, high) => format!(", up to {}", show(high)),
        (low, high) => format!(", {} to {}", show(low), show(high)),
    };
    if zero.is_null() {
        range
    } else {
        format!("{range}, or 0 for off")
    }
}

fn plural(item: &str) -> String {
    match item {
        "a string" => "strings".to_owned(),
        "a table" => "tables".to_owned(),
        other => format!("these: {other}"),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}
