//! Checks the tree against the JSON Schema: unknown and missing keys, types, words, ranges, formats.
//!
//! What is wrong is reported and left out; the rest becomes plain JSON that deserialises. So one pass
//! finds every mistake, and later passes look at what is right.

use super::diagnostic::Severity;
use super::report::Report;
use super::suggest;
use super::text::{Bytes, Format, Meaning, Time, did_you_mean, format_named};
use super::tree::{At, Entry, Node, Step, Value};
use serde_json::{Map, Value as Json};

/// Checks `root`, and gives the part of it that is right.
pub(super) fn check(root: &mut Node, schema: &Json, report: &mut Report<'_>) -> Json {
    let mut checker = Checker {
        root: schema,
        report,
    };
    checker
        .value(root, schema, &At::ROOT)
        .unwrap_or(Json::Object(Map::new()))
}

struct Checker<'s, 'r, 'a> {
    root: &'s Json,
    report: &'r mut Report<'a>,
}

impl<'s> Checker<'s, '_, '_> {
    fn value(&mut self, node: &mut Node, schema: &'s Json, at: &At<'_>) -> Option<Json> {
        let out = match self.choice(schema, node) {
            _ if matches!(node.value, Value::Unreadable) => None,
            Some(schema) => self.accepted(node, schema, at),
            None => {
                let message = self.wrong_type(node, schema);
                self.error(node, at, "wrong_type", message, None);
                None
            }
        };
        node.refused = match (&out, &node.value) {
            (Some(Json::String(meant)), Value::String(text)) => meant != text,
            (out, _) => out.is_none(),
        };
        out
    }

    /// A value of a type that `schema` accepts.
    fn accepted(&mut self, node: &mut Node, schema: &'s Json, at: &At<'_>) -> Option<Json> {
        match &mut node.value {
            Value::Table(_) => Some(self.table(node, schema, at)),
            Value::Array(list) => {
                let item_schema = self.get(schema, "items")?;
                let items = list.items.iter_mut().enumerate();
                let kept: Vec<Json> = items
                    .filter_map(|(index, item)| self.value(item, item_schema, &at.index(index)))
                    .collect();
                list.has_refused = kept.len() < list.items.len();
                Some(Json::Array(kept))
            }
            Value::String(text) => {
                let text = text.clone();
                self.string(node, &text, schema, at).map(Json::String)
            }
            Value::Integer(number) => {
                let number = *number;
                self.number(node, number as f64, schema, at)
                    .then(|| Json::from(number))
            }
            Value::Float(number) => {
                let number = *number;
                self.number(node, number, schema, at)
                    .then(|| Json::from(number))
            }
            Value::Boolean(value) => Some(Json::Bool(*value)),
            Value::Datetime | Value::Unreadable => None,
        }
    }

    fn table(&mut self, node: &mut Node, schema: &'s Json, at: &At<'_>) -> Json {
        let mut out = Map::new();
        let mut missing = self.missing(node, schema);
        let Value::Table(table) = &mut node.value else {
            return Json::Object(out);
        };
        let properties = self.get(schema, "properties").and_then(Json::as_object);
        let others = self
            .get(schema, "additionalProperties")
            .filter(|others| others.is_object());
        let name_format = self
            .get(schema, "propertyNames")
            .and_then(|names| names["format"].as_str())
            .and_then(format_named);
        let is_known = |key: &String| {
            others.is_some() || properties.is_some_and(|properties| properties.contains_key(key))
        };
        // Asked for only where a key is unknown.
        let present: Vec<String> = match table.keys().all(is_known) {
            true => Vec::new(),
            false => table.keys().cloned().collect(),
        };
        for (key, entry) in table.iter_mut() {
            let here = at.key(key);
            let Some(schema) = properties
                .and_then(|properties| properties.get(key))
                .or(others)
            else {
                entry.node.refused = true;
                let meant = self.unknown_key(key, entry, schema, &present, &here);
                missing.retain(|(name, _)| Some(*name) != meant);
                continue;
            };
            // What the store's keys name is read as they are; a pool of another region has two names.
            let is_named = others.is_some() && !self.report.is_stored(&entry.key_place);
            if let (Some(format), true) = (name_format, is_named)
                && let Err(message) = (format.check)(key)
            {
                self.report.push(
                    &entry.key_place,
                    here.to_string(),
                    Severity::Error,
                    "bad_value",
                    message,
                    None,
                );
                entry.node.refused = true;
                continue;
            }
            if let Some(value) = self.value(&mut entry.node, schema, &here) {
                out.insert(key.clone(), value);
            }
        }
        for (key, what) in missing {
            self.error(
                node,
                at,
                "missing_key",
                format!("`{key}` is missing"),
                Some(format!("it is {what}")),
            );
        }
        Json::Object(out)
    }

    /// Required keys that are not there, with what they are.
    fn missing(&self, node: &Node, schema: &'s Json) -> Vec<(&'s str, String)> {
        let (Value::Table(table), Some(required)) = (
            &node.value,
            self.get(schema, "required").and_then(Json::as_array),
        ) else {
            return Vec::new();
        };
        let names = required
            .iter()
            .filter_map(Json::as_str)
            .filter(|name| !table.contains_key(*name));
        let properties = self.get(schema, "properties");
        names
            .map(|name| {
                (
                    name,
                    properties.map_or(String::new(), |properties| self.expected(&properties[name])),
                )
            })
            .collect()
    }

    /// Tells an unknown key; gives the key that was likely meant.
    fn unknown_key(
        &mut self,
        key: &str,
        entry: &Entry,
        schema: &'s Json,
        present: &[String],
        at: &At<'_>,
    ) -> Option<&'s str> {
        let properties = self.get(schema, "properties").and_then(Json::as_object)?;
        // A key that is there already is not what was meant, unless it may stand again.
        let known: Vec<&'s str> = properties
            .iter()
            .filter(|(name, schema)| !present.contains(name) || self.may_repeat(schema))
            .map(|(name, _)| name.as_str())
            .collect();
        let holds_it = |schema: &'s Json| {
            self.get(schema, "properties")
                .is_some_and(|inner| inner.get(key).is_some())
        };
        let inner = properties
            .iter()
            .find(|(_, schema)| holds_it(schema))
            .map(|(outer, _)| format!("{outer}.{key}"));
        let meant = suggest::meant_key(key, &known);
        let all: Vec<&str> = properties.keys().map(String::as_str).collect();
        let elsewhere = suggest::elsewhere(key, &all).filter(|_| meant.is_none());
        let shown = meant
            .map(str::to_owned)
            .or(inner.filter(|_| elsewhere.is_none()));
        let help = shown.is_none().then(|| {
            elsewhere.map_or_else(
                || format!("known keys here: {}", listed(&all)),
                str::to_owned,
            )
        });
        let message = did_you_mean(format!("unknown key `{}`", key.escape_debug()), shown);
        // A later version's field in the store is no reason to refuse what is known.
        let severity = match self.report.is_stored(&entry.key_place) {
            true => Severity::Warning,
            false => Severity::Error,
        };
        let path = at.to_string();
        self.report.push(
            &entry.key_place,
            path,
            severity,
            "unknown_key",
            message,
            help,
        );
        meant
    }

    /// Whether a key may head several tables: `[[route]]`, `[pool.NAME]`.
    fn may_repeat(&self, schema: &'s Json) -> bool {
        let of_tables = |items| self.kind(items) == "object";
        let is_named = |others: &Json| others.is_object();
        self.get(schema, "items").is_some_and(of_tables)
            || self
                .get(schema, "additionalProperties")
                .is_some_and(is_named)
    }

    /// The text as later passes get it. In place of a word that is wrong they get the one that is meant: what
    /// contradicts another word than that was not said.
    fn string(&mut self, node: &Node, text: &str, schema: &'s Json, at: &At<'_>) -> Option<String> {
        let words = self.words(schema);
        if !words.is_empty() {
            if words.contains(&text) {
                return Some(text.to_owned());
            }
            let key = at.to_string();
            let key = key.rsplit('.').next().unwrap_or_default();
            let message = format!("`{}` is no {key}", text.escape_debug());
            let meant = suggest::meant_value(text, &words);
            let message = did_you_mean(message, meant);
            self.error(
                node,
                at,
                "bad_value",
                message,
                Some(format!("one of {}", listed(&words))),
            );
            return meant.map(str::to_owned);
        }
        let Some(format) = self
            .get(schema, "format")
            .and_then(Json::as_str)
            .and_then(format_named)
        else {
            return Some(text.to_owned());
        };
        let problem = (format.check)(text)
            .err()
            .map(|message| ("bad_value", message));
        let problem = problem.or_else(|| {
            self.out_of_bounds(text, format, schema)
                .map(|message| ("out_of_range", message))
        });
        if let Some((code, message)) = problem {
            self.error(node, at, code, message, None);
            return None;
        }
        Some(text.to_owned())
    }

    /// Bounds of durations and sizes.
    fn out_of_bounds(&self, text: &str, format: &Format, schema: &'s Json) -> Option<String> {
        let measure = |text: &str| match format.name {
            "duration" => Time::read(text)
                .ok()
                .map(|time| u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX)),
            "size" => Bytes::read(text).ok().map(|bytes| bytes.0),
            _ => None,
        };
        let value = measure(text)?;
        if value == 0 && self.get(schema, "x-zero").is_some() {
            return None;
        }
        let bound = |key| self.get(schema, key).and_then(Json::as_str);
        let (low, high) = (bound("x-minimum"), bound("x-maximum"));
        let is_low = low.and_then(measure).is_some_and(|low| value < low);
        let is_high = high.and_then(measure).is_some_and(|high| value > high);
        let range = match (low, high) {
            (Some(low), Some(high)) => format!("from {low} to {high}"),
            (Some(low), None) => format!("from {low} up"),
            (None, high) => format!("up to {}", high.unwrap_or("any size")),
        };
        let off = self.get(schema, "x-zero").map_or("", |_| ", or 0 for off");
        (is_low || is_high).then(|| {
            format!(
                "`{text}` is too {}: the range is {range}{off}",
                if is_low { "small" } else { "large" }
            )
        })
    }

    fn number(&mut self, node: &Node, number: f64, schema: &'s Json, at: &At<'_>) -> bool {
        if let Some(allowed) = self.get(schema, "enum").and_then(Json::as_array) {
            if allowed.iter().any(|value| value.as_f64() == Some(number)) {
                return true;
            }
            let words: Vec<String> = allowed.iter().map(Json::to_string).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.error(
                node,
                at,
                "bad_value",
                format!("{number} is not allowed here"),
                Some(format!("one of {}", listed(&words))),
            );
            return false;
        }
        let bound = |key| self.get(schema, key).and_then(Json::as_f64);
        let (low, high) = (bound("minimum"), bound("maximum"));
        let is_low = low.is_some_and(|low| number < low);
        let is_high = high.is_some_and(|high| number > high);
        if !is_low && !is_high {
            return true;
        }
        let range = match (low, high) {
            (Some(low), Some(high)) => format!("from {low} to {high}"),
            (Some(low), None) => format!("from {low} up"),
            (None, high) => format!("up to {}", high.unwrap_or(f64::MAX)),
        };
        let message = format!(
            "{number} is too {}: the range is {range}",
            if is_low { "small" } else { "large" }
        );
        let help = self.get(schema, "x-help").and_then(Json::as_str);
        self.error(node, at, "out_of_range", message, help.map(str::to_owned));
        false
    }

    /// The branch of a union that has the node's type; `None` if none has.
    fn choice(&self, schema: &'s Json, node: &Node) -> Option<&'s Json> {
        if let Some(choices) = self.get(schema, "anyOf").and_then(Json::as_array) {
            return choices.iter().find_map(|choice| self.choice(choice, node));
        }
        let accepts = match (self.kind(schema), &node.value) {
            ("object", Value::Table(_))
            | ("array", Value::Array(_))
            | ("string", Value::String(_))
            | ("integer", Value::Integer(_))
            | ("number", Value::Integer(_) | Value::Float(_))
            | ("boolean", Value::Boolean(_)) => true,
            (_, _) => false,
        };
        accepts.then_some(schema)
    }

    fn kind(&self, schema: &'s Json) -> &'s str {
        self.get(schema, "type").and_then(Json::as_str).unwrap_or(
            if self.words(schema).is_empty() {
                ""
            } else {
                "string"
            },
        )
    }

    /// The words of an enumeration.
    fn words(&self, schema: &'s Json) -> Vec<&'s str> {
        let choices = self
            .get(schema, "oneOf")
            .and_then(Json::as_array)
            .into_iter()
            .flatten();
        choices
            .filter_map(|choice| choice["const"].as_str())
            .collect()
    }

    /// What a schema wants, in words.
    fn expected(&self, schema: &'s Json) -> String {
        if let Some(choices) = self.get(schema, "anyOf").and_then(Json::as_array) {
            let words = |choice: &'s Json| match self.get(choice, "items") {
                // A list of what stands before it.
                Some(items) if self.expected(items) == self.expected(&choices[0]) => {
                    "a list of them".to_owned()
                }
                _ => self.expected(choice),
            };
            let all: Vec<String> = choices.iter().map(words).collect();
            return all.join(", or ");
        }
        let words = self.words(schema);
        if !words.is_empty() {
            return format!("one of {}", listed(&words));
        }
        if let Some(format) = self
            .get(schema, "format")
            .and_then(Json::as_str)
            .and_then(format_named)
        {
            return format.what.to_owned();
        }
        match self.kind(schema) {
            "object" => "a table".to_owned(),
            "array" => match self.get(schema, "items") {
                Some(items) if self.kind(items) == "object" => "a list of tables".to_owned(),
                Some(items) => format!("a list of these: {}", self.expected(items)),
                None => "a list".to_owned(),
            },
            "string" => "a string".to_owned(),
            "integer" => "a whole number".to_owned(),
            "number" => "a number".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            other => other.to_owned(),
        }
    }

    fn wrong_type(&self, node: &Node, schema: &'s Json) -> String {
        let found = match node.value {
            // "Found a number" would not say what is wrong with it.
            Value::Float(number) => number.to_string(),
            _ => node.kind().to_owned(),
        };
        let meant = self.meant(node, schema);
        let of_tables = self
            .get(schema, "items")
            .is_some_and(|items| self.kind(items) == "object");
        let is_list =
            self.kind(schema) == "array" && !of_tables && !matches!(node.value, Value::Array(_));
        let message = match &meant {
            // What stands in the list is right: only the brackets are missing.
            Some(_) if is_list => format!("expected a list, found {found} without brackets"),
            _ => format!("expected {}, found {found}", self.expected(schema)),
        };
        did_you_mean(message, meant)
    }

    /// A value of the wrong type, as it is meant.
    fn meant(&self, node: &Node, schema: &'s Json) -> Option<String> {
        if let Some(choices) = self.get(schema, "anyOf").and_then(Json::as_array) {
            return choices.iter().find_map(|choice| self.meant(node, choice));
        }
        let format = self.get(schema, "format").and_then(Json::as_str);
        let has_word = |word| self.words(schema).contains(&word);
        match (&node.value, self.kind(schema)) {
            // `proxy_protocol = 2`
            (Value::Boolean(true) | Value::Integer(2), "string") if has_word("v2") => {
                Some("\"v2\"".to_owned())
            }
            (Value::Integer(1), "string") if has_word("v1") => Some("\"v1\"".to_owned()),
            (Value::Boolean(true), "object") => self.as_required(schema),
            // `respond = 204`
            (Value::Integer(number), "object") => {
                let properties = self.get(schema, "properties")?;
                let has_status = properties.get("status").is_some();
                has_status.then(|| format!("{{ status = {number} }}"))
            }
            (Value::Integer(number), "string") => match format {
                Some("duration") => Some(format!("\"{number}s\"")),
                Some("size" | "size_or_unlimited") => Some(format!("\"{number}B\"")),
                _ => None,
            },
            (Value::String(text), "integer" | "number") if text.trim().parse::<f64>().is_ok() => {
                Some(text.trim().to_owned())
            }
            (Value::String(text), "boolean") => match text.as_str() {
                "true" | "yes" | "on" => Some("true".to_owned()),
                "false" | "no" | "off" => Some("false".to_owned()),
                _ => None,
            },
            (Value::String(text), "array") => Some(self.as_list(text, schema)),
            (Value::String(text), "object") => self.as_table(text, schema),
            _ => None,
        }
    }

    /// `proxy_protocol = true`: a table with what it needs.
    fn as_required(&self, schema: &'s Json) -> Option<String> {
        let required = self.get(schema, "required").and_then(Json::as_array)?;
        let names = required.iter().filter_map(Json::as_str);
        let pairs: Vec<String> = names.map(|name| format!("{name} = …")).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }

    /// `health = "/healthz"` and `health = "tcp"`: the table that is meant by its most telling value.
    fn as_table(&self, text: &str, schema: &'s Json) -> Option<String> {
        let properties = self.get(schema, "properties")?;
        let takes_path = properties["path"]["format"] == "probe_path" && text.starts_with('/');
        let takes_word = properties[text]["type"] == "boolean";
        match (takes_path, takes_word) {
            (true, _) => Some(format!("{{ path = {text:?} }}")),
            (_, true) => Some(format!("{{ {text} = true }}")),
            (false, false) => None,
        }
    }

    /// `sni = "www.example.org"`: a list of what it wants, with the text in the first place.
    fn as_list(&self, text: &str, schema: &'s Json) -> String {
        let items = self.get(schema, "items");
        let required = items.and_then(|items| self.get(items, "required"));
        let Some(required) = required.and_then(Json::as_array) else {
            return format!("[{text:?}]");
        };
        let values = std::iter::once(format!("{text:?}")).chain(std::iter::repeat("…".to_owned()));
        let pairs = required.iter().filter_map(Json::as_str).zip(values);
        let pairs: Vec<String> = pairs
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        format!("[{{ {} }}]", pairs.join(", "))
    }

    /// Whether a pool has a key of that name.
    fn is_pool_key(&self, name: &str) -> bool {
        self.root
            .pointer(&format!("/$defs/Pool/properties/{name}"))
            .is_some()
    }

    fn error(
        &mut self,
        node: &Node,
        at: &At<'_>,
        code: &'static str,
        message: String,
        help: Option<String>,
    ) {
        let steps = at.steps();
        let unnamed = match steps.as_slice() {
            [Step::Key("pool"), Step::Key(key)]
                if code == "wrong_type" && self.is_pool_key(key) =>
            {
                Some(format!(
                    "pools are tables by name: `{key}` stands in `[pool.NAME]`"
                ))
            }
            _ => None,
        };
        let help = help.or(unnamed).or_else(|| header_help(node, at, code));
        self.report.push(
            &node.place,
            at.to_string(),
            Severity::Error,
            code,
            message,
            help,
        );
    }

    /// A keyword of `schema`, or of what it refers to.
    fn get(&self, schema: &'s Json, key: &str) -> Option<&'s Json> {
        let mut schema = schema;
        loop {
            if let Some(found) = schema.get(key) {
                return Some(found);
            }
            let name = schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
            schema = self.root.get("$defs")?.get(name)?;
        }
    }
}

/// `[listener]` and `[[pool]]` are the two slips with brackets.
fn header_help(node: &Node, at: &At<'_>, code: &str) -> Option<String> {
    let at = at.to_string();
    match (code, at.as_str(), &node.value) {
        ("wrong_type", "listener" | "route", Value::Table(_)) => Some(format!(
            "write `[[{at}]]`, with two brackets: there may be several"
        )),
        ("wrong_type", pool, Value::Array(_))
            if pool.starts_with("pool.") && pool.matches('.').count() == 1 =>
        {
            Some(format!(
                "write `[{pool}]`, with one bracket: a name stands once"
            ))
        }
        ("wrong_type", grpc, Value::Boolean(true)) if grpc.ends_with(".health.grpc") => {
            Some("`grpc = \"\"` asks for the server as a whole, a name for one service".to_owned())
        }
        ("wrong_type", "pool", Value::Array(_)) => {
            Some("write `[pool.NAME]`: pools are tables by name".to_owned())
        }
        _ => None,
    }
}

fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}
