//! What an object says.
//!
//! Each document is a JSON object with `"schema": 1`. What it holds beyond what is known here is kept and passed on: a later
//! version's field is not lost by an earlier one's edit.

use crate::key::{Name, NameError, Object};
use crate::{SCHEMA, key};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Least and most that a boost may multiply by; several on one pool multiply, up to the most.
pub const FACTOR: std::ops::RangeInclusive<f64> = 0.1..=10.0;
/// Longest value of a setting, in bytes: it may become a header's.
pub const SETTING_BYTES_MAX: usize = 1 << 10;
/// Most pools of a chain.
pub const LINKS_MAX: usize = 32;

/// What an object says.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// Settings of a pool, as `[pool.X]` has them but for its backends.
    Pool(Map<String, Value>),
    /// A backend, as a pool's `backends` have it.
    Backend(Map<String, Value>),
    /// Pools that stand in for each other.
    Chain(Chain),
    /// Free-form settings.
    Settings(Settings),
    /// A route, as `[[route]]` has it.
    Route(Map<String, Value>),
    /// A boost.
    Boost(Boost),
    /// What the table says of itself.
    Meta(Meta),
}

/// Pools in the order in which they are asked: the next one where those before have no usable backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// At least one.
    pub links: Vec<Link>,
}

/// One pool of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Which.
    pub pool: Name,
    /// Where, if not in the chain's own region.
    pub region: Option<Name>,
}

/// Free-form settings: names with texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// By name.
    pub values: std::collections::BTreeMap<String, String>,
}

/// More or less traffic for a pool, for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boost {
    /// What the pool's weight is multiplied by: 0.1 to 10.
    pub factor: f64,
    /// When it ends, in ms since 1970: everywhere, whatever the store does.
    pub expires_at_ms: u64,
    /// Who set it.
    #[serde(default)]
    pub created_by: String,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// What the table says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The table's writer meant it to lose most of its objects at the revision that this was put at.
    #[serde(default)]
    pub allow_shrink: bool,
}

/// Why a document says nothing that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is no JSON.
    #[error("it is no JSON: {0}")]
    Json(String),
    /// It is JSON but no object.
    #[error("it is {0}, and should be an object: {{\"schema\": 1, …}}")]
    NoObject(&'static str),
    /// Its schema is not given.
    #[error("`schema` is missing: write \"schema\": {SCHEMA}")]
    NoSchema,
    /// Its schema is another one.
    #[error("its schema is {0}, and this reads schema {SCHEMA}: it was written by a later version")]
    Schema(String),
    /// A field is not what it should be.
    #[error("`{field}`: {what}")]
    Field {
        /// Which.
        field: String,
        /// What is wrong, and what was meant.
        what: String,
    },
}

fn wrong(field: impl Into<String>, what: impl Into<String>) -> DocumentError {
    DocumentError::Field {
        field: field.into(),
        what: what.into(),
    }
}

impl Document {
    /// What `json` says of `object`.
    ///
    /// # Errors
    /// Why it says nothing that can be used; the first reason.
    pub fn parse(object: &Object, json: &[u8]) -> Result<Self, DocumentError> {
        let value: Value =
            serde_json::from_slice(json).map_err(|error| DocumentError::Json(error.to_string()))?;
        let mut fields = match value {
            Value::Object(fields) => fields,
            other => return Err(DocumentError::NoObject(kind(&other))),
        };
        match fields.remove("schema") {
            None => return Err(DocumentError::NoSchema),
            Some(schema) if schema.as_u64() == Some(SCHEMA) => {}
            Some(other) => return Err(DocumentError::Schema(other.to_string())),
        }
        Ok(match object {
            Object::Pool { .. } => {
                if fields.contains_key("backends") {
                    let what = "backends have keys of their own: backends/REGION/POOL/ID";
                    return Err(wrong("backends", what));
                }
                Self::Pool(fields)
            }
            Object::Backend { .. } => {
                if !matches!(fields.get("address"), Some(Value::String(_))) {
                    return Err(wrong(
                        "address",
                        "a backend needs one, as in \"10.0.0.1:8080\"",
                    ));
                }
                Self::Backend(fields)
            }
            Object::Chain { region, .. } => Self::Chain(chain(region, &fields)?),
            Object::Settings { .. } => Self::Settings(settings(&fields)?),
            Object::Route { .. } => Self::Route(fields),
            Object::Boost { .. } => Self::Boost(boost(fields)?),
            Object::Meta => Self::Meta(read(fields)?),
        })
    }
}

/// What JSON calls it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn read<T: serde::de::DeserializeOwned>(fields: Map<String, Value>) -> Result<T, DocumentError> {
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| DocumentError::Json(error.to_string()))
}

fn boost(fields: Map<String, Value>) -> Result<Boost, DocumentError> {
    let boost: Boost = read(fields)?;
    if !FACTOR.contains(&boost.factor) {
        let (least, most) = FACTOR.into_inner();
        let what = format!("{} is not from {least} to {most}", boost.factor);
        return Err(wrong("factor", what));
    }
    Ok(boost)
}

fn settings(fields: &Map<String, Value>) -> Result<Settings, DocumentError> {
    let mut values = std::collections::BTreeMap::new();
    for (name, value) in fields {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            other => {
                let what = format!("it is {}, and should be a text", kind(other));
                return Err(wrong(name, what));
            }
        };
        if text.len() > SETTING_BYTES_MAX {
            let what = format!(
                "{} bytes are over the limit of {SETTING_BYTES_MAX}",
                text.len()
            );
            return Err(wrong(name, what));
        }
        if let Some(letter) = text.chars().find(|letter| letter.is_control()) {
            let what = format!("{letter:?} cannot stand in it: it may become a header's value");
            return Err(wrong(name, what));
        }
        values.insert(name.clone(), text);
    }
    Ok(Settings { values })
}

fn chain(own: &Name, fields: &Map<String, Value>) -> Result<Chain, DocumentError> {
    let Some(Value::Array(pools)) = fields.get("pools") else {
        let what = "a chain needs them in their order, as in [\"kpop\", \"pop\"]";
        return Err(wrong("pools", what));
    };
    if pools.is_empty() || pools.len() > LINKS_MAX {
        let what = format!("{} pools are not from 1 to {LINKS_MAX}", pools.len());
        return Err(wrong("pools", what));
    }
    let mut links = Vec::with_capacity(pools.len());
    for (at, pool) in pools.iter().enumerate() {
        let field = format!("pools[{at}]");
        let link = link(own, pool).map_err(|what| wrong(&field, what))?;
        if links.contains(&link) {
            // It would be asked again after it had nothing to give.
            let what = format!("`{}` stands in the chain already", link.pool);
            return Err(wrong(field, what));
        }
        links.push(link);
    }
    Ok(Chain { links })
}

/// `"kpop"`, or `{"pool": "jpop", "region": "jp", "allow_remote": true}`.
fn link(own: &Name, value: &Value) -> Result<Link, String> {
    let name = |text: &str| text.parse().map_err(|error: NameError| error.to_string());
    match value {
        Value::String(pool) => Ok(Link {
            pool: name(pool)?,
            region: None,
        }),
        Value::Object(fields) => {
            let Some(Value::String(pool)) = fields.get("pool") else {
                return Err("`pool` is missing, or no text".to_owned());
            };
            let region: Option<Name> = match fields.get("region") {
                None => None,
                Some(Value::String(region)) => Some(name(region)?),
                Some(other) => return Err(format!("`region` is {}", kind(other))),
            };
            let region = region.filter(|region| region != own);
            let is_allowed = fields.get("allow_remote") == Some(&Value::Bool(true));
            if let Some(region) = &region
                && !is_allowed
            {
                return Err(format!(
                    "`{pool}` is in region {region}, not in {own}: write \"allow_remote\": true if requests of {own} may go there"
                ));
            }
            Ok(Link {
                pool: name(pool)?,
                region,
            })
        }
        other => Err(format!(
            "it is {}, and should be a pool's name, or an object with `pool` and `region`",
            kind(other)
        )),
    }
}

impl Link {
    /// The pool's key, for a chain of region `own`.
    pub fn object(&self, own: &Name) -> key::Object {
        key::Object::Pool {
            region: self.region.as_ref().unwrap_or(own).clone(),
            pool: self.pool.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(key: &str, json: &str) -> Result<Document, DocumentError> {
        let object = key.parse().expect("the key is sound");
        Document::parse(&object, json.as_bytes())
    }

    fn refused(key: &str, json: &str) -> String {
        parse(key, json).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_document_says_what_it_is() {
        let chain = parse(
            "chains/kr/trending",
            r#"{"schema": 1, "pools": ["kpop", {"pool": "jpop", "region": "jp", "allow_remote": true}]}"#,
        );
        let Ok(Document::Chain(chain)) = chain else {
            panic!("{chain:?}");
        };
        let keys: Vec<_> = chain
            .links
            .iter()
            .map(|link| link.object(&"kr".parse().expect("a name")).to_string())
            .collect();
        assert_eq!(keys, ["pools/kr/kpop", "pools/jp/jpop"]);
        let settings = parse(
            "settings/ko",
            r#"{"schema": 1, "tokenizer": "mecab", "beam": 4}"#,
        );
        let Ok(Document::Settings(settings)) = settings else {
            panic!("{settings:?}");
        };
        assert_eq!(settings.values["tokenizer"], "mecab");
        assert_eq!(settings.values["beam"], "4");
    }

    #[test]
    fn what_no_document_is_is_told_apart() {
        assert!(refused("meta", "{").contains("no JSON"));
        assert!(refused("meta", "[1]").contains("an array, and should be an object"));
        assert!(refused("meta", "{}").contains("`schema` is missing"));
        assert!(refused("meta", r#"{"schema": 2}"#).contains("written by a later version"));
    }

    /// Requests of Seoul went to Tokyo because a chain named a pool that only Tokyo had.
    #[test]
    fn a_chain_leaves_its_region_only_where_it_says_so() {
        let json = r#"{"schema": 1, "pools": [{"pool": "jpop", "region": "jp"}]}"#;
        assert!(refused("chains/kr/trending", json).contains("write \"allow_remote\": true"));
        let own = r#"{"schema": 1, "pools": [{"pool": "kpop", "region": "kr"}]}"#;
        assert!(parse("chains/kr/trending", own).is_ok());
    }

    #[test]
    fn a_chain_that_comes_back_to_a_pool_is_refused() {
        let json = r#"{"schema": 1, "pools": ["kpop", "pop", {"pool": "kpop", "region": "kr"}]}"#;
        let said = refused("chains/kr/trending", json);
        assert!(
            said.contains("pools[2]") && said.contains("already"),
            "{said}"
        );
        assert!(refused("chains/kr/trending", r#"{"schema": 1, "pools": []}"#).contains("0 pools"));
    }

    #[test]
    fn a_boost_has_bounds() {
        let boost =
            |factor: &str| format!(r#"{{"schema": 1, "factor": {factor}, "expires_at_ms": 5}}"#);
        assert!(parse("boosts/kr/kpop/a", &boost("10")).is_ok());
        for factor in ["0", "-1", "0.09", "10.1", "1e300"] {
            let said = refused("boosts/kr/kpop/a", &boost(factor));
            assert!(said.contains("from 0.1 to 10"), "{factor}: {said}");
        }
        assert!(
            refused("boosts/kr/kpop/a", r#"{"schema": 1, "factor": 2}"#).contains("expires_at_ms")
        );
    }

    #[test]
    fn a_setting_cannot_smuggle_a_line() {
        let json = r#"{"schema": 1, "tokenizer": "a\r\nX: y"}"#;
        assert!(refused("settings/ko", json).contains("'\\r' cannot stand in it"));
        assert!(refused("settings/ko", r#"{"schema": 1, "a": ["b"]}"#).contains("an array"));
    }

    #[test]
    fn backends_do_not_stand_in_their_pool() {
        let json = r#"{"schema": 1, "backends": []}"#;
        assert!(refused("pools/kr/kpop", json).contains("backends/REGION/POOL/ID"));
        assert!(refused("backends/kr/kpop/a", r#"{"schema": 1}"#).contains("`address`"));
    }
}
