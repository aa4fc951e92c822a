//! Strings of the file that mean something: durations, sizes, addresses, networks, paths.
//!
//! Each is a [`Meaning`]: one reader, used by the check against the schema (which has the place to
//! mark) and by deserialisation alike, so that the two cannot disagree.

mod address;
mod http;
mod quantity;
mod tls;

pub(super) use address::{
    AbsolutePath, BackendAddress, BindOrOff, FileMode, ServiceName, SocketOrOff,
};
pub(super) use http::{
    ContentType, ErrorStatus, HeaderName, HeaderValue, Location, Method, PathText, Pattern,
    StatusRange,
};
pub(super) use quantity::{Bytes, BytesOrUnlimited, Time, show_time};
pub(super) use tls::{HeaderOrOff, Pin, TlsName};

pub(super) use crate::snapshot::StoreAddress;
use crate::snapshot::{Bind, HashKey, LogTarget};
use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A type that is written as a string.
pub(super) trait Meaning: Sized {
    /// Its name in the schema's `format`.
    const FORMAT: &'static str;
    /// What messages and the reference call it, with an example.
    const WHAT: &'static str;

    /// Reads it, or says what is wrong and what was meant.
    fn read(text: &str) -> Result<Self, String>;
}

/// A string with its meaning.
#[derive(Clone, Debug)]
pub(super) struct Text<T> {
    /// As written.
    pub(super) text: String,
    /// What it means.
    pub(super) value: T,
}

impl<T: Meaning> Text<T> {
    /// Reads `text`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        T::read(text).map(|value| Self {
            text: text.to_owned(),
            value,
        })
    }

    /// A default that stands in this crate's own code.
    pub(super) fn preset(text: &'static str) -> Self {
        Self::read(text).expect("defaults are read by a test")
    }
}

impl<T> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, T: Meaning> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).map_err(serde::de::Error::custom)
    }
}

impl<T: Meaning> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed(T::FORMAT)
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": T::FORMAT })
    }
}

/// One row of [`FORMATS`].
pub(super) struct Format {
    /// Its name in the schema's `format`.
    pub(super) name: &'static str,
    /// What messages and the reference call it.
    pub(super) what: &'static str,
    /// Reads it and throws the value away.
    pub(super) check: fn(&str) -> Result<(), String>,
}

const fn format<T: Meaning>() -> Format {
    Format {
        name: T::FORMAT,
        what: T::WHAT,
        check: |text| T::read(text).map(drop),
    }
}

/// All meanings, by the name of their format.
pub(super) static FORMATS: [Format; 28] = [
    format::<Time>(),
    format::<Bytes>(),
    format::<BytesOrUnlimited>(),
    format::<Bind>(),
    format::<BindOrOff>(),
    format::<SocketAddr>(),
    format::<SocketOrOff>(),
    format::<FileMode>(),
    format::<AbsolutePath>(),
    format::<StoreAddress>(),
    format::<BackendAddress>(),
    format::<ServiceName>(),
    format::<IpNet>(),
    format::<HashKey>(),
    format::<crate::snapshot::route::HostMatch>(),
    format::<PathText>(),
    format::<Pattern>(),
    format::<HeaderName>(),
    format::<HeaderValue>(),
    format::<ContentType>(),
    format::<Method>(),
    format::<StatusRange>(),
    format::<ErrorStatus>(),
    format::<Location>(),
    format::<LogChoice>(),
    format::<HeaderOrOff>(),
    format::<Pin>(),
    format::<TlsName>(),
];

/// Formats that are no types of their own.
pub(super) static PLAIN_FORMATS: [Format; 3] = [
    Format {
        name: "probe_path",
        what: "a path such as \"/healthz\"",
        check: http::check_probe_path,
    },
    Format {
        name: "name",
        what: "a name such as \"api\"",
        check: check_name,
    },
    Format {
        name: "token",
        what: "a token of 16 to 512 characters",
        check: check_token,
    },
];

/// The format of that name.
pub(super) fn format_named(name: &str) -> Option<&'static Format> {
    FORMATS
        .iter()
        .chain(&PLAIN_FORMATS)
        .find(|format| format.name == name)
}

/// Where the access log goes; `None` is off.
pub(super) type LogChoice = Option<LogTarget>;

impl Meaning for LogChoice {
    const FORMAT: &'static str = "log_target";
    const WHAT: &'static str =
        "\"off\", \"stdout\", \"syslog\" or a file such as \"/var/log/mizan/access.log\"";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(None),
            "stdout" => Ok(Some(LogTarget::Stdout)),
            "syslog" => Ok(Some(LogTarget::Syslog(PathBuf::from("/dev/log")))),
            _ if text.starts_with('/') => Ok(Some(LogTarget::File(PathBuf::from(text)))),
            _ => match text.strip_prefix("syslog:") {
                Some(path) if path.starts_with('/') => {
                    Ok(Some(LogTarget::Syslog(PathBuf::from(path))))
                }
                _ => Err(did_you_mean(
                    format!(
                        "`{text}` is neither `off`, `stdout`, `syslog`, `syslog:/path` nor an absolute path"
                    ),
                    super::suggest::nearest(text, ["off", "stdout", "syslog"]),
                )),
            },
        }
    }
}

impl Meaning for HashKey {
    const FORMAT: &'static str = "hash_key";
    const WHAT: &'static str =
        "\"client_address\", \"path\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"";

    fn read(text: &str) -> Result<Self, String> {
        let (kind, name) = text
            .split_once(':')
            .map_or((text, None), |(kind, name)| (kind, Some(name.trim())));
        match (kind, name) {
            ("client_address", None) => Ok(Self::ClientAddress),
            ("path", None) => Ok(Self::Path),
            ("header", Some(name)) => HeaderName::read(name).map(|name| Self::Header(name.0)),
            ("cookie", Some(name)) => HeaderName::read(name).map(|_| Self::Cookie(name.to_owned())),
            ("query", Some(name)) if !name.is_empty() => Ok(Self::Query(name.to_owned())),
            ("query", Some(_)) => Err("`query:` lacks the parameter's name".to_owned()),
            ("header" | "cookie" | "query", None) => Err(format!(
                "`{text}` lacks the name of the {kind}; write `{kind}:NAME`"
            )),
            _ => {
                let known = ["client_address", "path", "header", "cookie", "query"];
                let near = super::suggest::nearest(kind, known).map(|near| match name {
                    Some(name) => format!("{near}:{name}"),
                    None => near.to_owned(),
                });
                Err(did_you_mean(format!("`{text}` is no hash key"), near))
            }
        }
    }
}

/// `message; did you mean ...?`
pub(super) fn did_you_mean(message: String, meant: Option<impl std::fmt::Display>) -> String {
    match meant {
        Some(meant) => format!("{message}; did you mean `{meant}`?"),
        None => message,
    }
}

/// Names of listeners, routes, pools and versions.
pub(super) fn check_name(text: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() {
        return Err("a name must not be empty".to_owned());
    }
    if text.len() > 64 {
        return Err(format!(
            "a name has at most 64 characters; this one has {}",
            text.len()
        ));
    }
    match text.chars().find(|c| !is_plain(*c)) {
        Some(bad) => Err(format!(
            "a name is made of letters, digits, `-`, `_` and `.`; `{}` is not allowed",
            bad.escape_debug()
        )),
        None => Ok(()),
    }
}

/// The admin token. Its text is never part of a message.
fn check_token(text: &str) -> Result<(), String> {
    if !(16..=512).contains(&text.len()) {
        return Err(format!(
            "a token has 16 to 512 characters; this one has {}",
            text.len()
        ));
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("a token is made of visible ASCII characters, without spaces".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
