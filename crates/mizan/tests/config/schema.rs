//! The committed JSON Schema.

use super::{assert_committed, root};
use mizan::config;
use serde_json::Value;

#[test]
fn the_committed_schema_is_the_one_that_is_checked_against() {
    let text = serde_json::to_string_pretty(&config::json_schema()).expect("a schema is JSON");
    assert_committed(&root().join("schema/mizan.schema.json"), &(text + "\n"));
}

#[test]
fn every_key_says_what_it_is() {
    let schema = config::json_schema();
    let tables = schema["$defs"]
        .as_object()
        .expect("definitions")
        .values()
        .chain([&schema]);
    for table in tables {
        assert!(table["description"].is_string(), "{table}");
        for (key, property) in table["properties"].as_object().into_iter().flatten() {
            assert!(
                property["description"].is_string(),
                "`{key}` has no doc comment: {property}"
            );
        }
    }
}

#[test]
fn every_table_refuses_unknown_keys() {
    let schema = config::json_schema();
    let tables = schema["$defs"]
        .as_object()
        .expect("definitions")
        .values()
        .chain([&schema]);
    for table in tables.filter(|table| table["type"] == "object") {
        assert_eq!(table["additionalProperties"], Value::Bool(false), "{table}");
    }
}

#[test]
fn every_number_has_a_range() {
    fn visit(schema: &Value, path: &str) {
        if matches!(schema["type"].as_str(), Some("integer" | "number")) {
            let bounded = schema["minimum"].is_number() && schema["maximum"].is_number();
            assert!(
                bounded || schema["enum"].is_array(),
                "{path} has no range: {schema}"
            );
        }
        let nested = schema.as_object().into_iter().flatten().chain([]);
        for (key, value) in nested {
            match value {
                Value::Object(_) => visit(value, &format!("{path}/{key}")),
                Value::Array(items) => items
                    .iter()
                    .for_each(|item| visit(item, &format!("{path}/{key}"))),
                _ => {}
            }
        }
    }
    visit(&config::json_schema(), "");
}
