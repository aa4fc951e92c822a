//! Words of HTTP: hosts, paths, header fields, methods, statuses.

use super::{Meaning, did_you_mean};
use crate::snapshot::route::{HostMatch, NormalPath};
use regex::bytes::{Regex, RegexBuilder};

/// A path in normal form, without query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct PathText(pub(in super::super) String);

/// A regular expression, anchored at both ends.
#[derive(Clone, Debug)]
pub(in super::super) struct Pattern {
    /// Matches the whole text.
    pub(in super::super) whole: Regex,
    /// As written: matches anywhere.
    pub(in super::super) anywhere: Regex,
}

/// A header field's name, lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct HeaderName(pub(in super::super) String);

/// A header field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct HeaderValue(pub(in super::super) String);

/// A media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct ContentType(pub(in super::super) String);

/// A method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Method(pub(in super::super) String);

/// A status or a range of them, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct StatusRange(pub(in super::super) u16, pub(in super::super) u16);

/// A status that stands for a failure, 400–599.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct ErrorStatus(pub(in super::super) u16);

/// A redirect's target with its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Location(pub(in super::super) String);

/// Memory that a compiled regular expression may take.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// What stands for a part of the request in a redirect's location.
const PLACEHOLDERS: [&str; 5] = ["scheme", "host", "port", "path", "query"];

impl Meaning for PathText {
    const FORMAT: &'static str = "path";
    const WHAT: &'static str = "a path such as \"/api\"";

    fn read(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err(did_you_mean(
                "a path begins with `/`".to_owned(),
                Some(format!("/{text}")),
            ));
        }
        if let Some(at) = text.find(['?', '#']) {
            let message = format!("a path is matched without its `{}` part", &text[at..=at]);
            return Err(did_you_mean(message, Some(&text[..at])));
        }
        if let Some(bad) = text.chars().find(|c| c.is_ascii_control() || *c == ' ') {
            return Err(format!("`{}` cannot stand in a path", bad.escape_debug()));
        }
        let (normal, _) = NormalPath::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        if normal.as_str() != text {
            let message = "paths are matched in their normal form, which this is not".to_owned();
            return Err(did_you_mean(message, Some(normal.as_str())));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A probe's target: origin form, a path with an optional query.
pub(super) fn check_probe_path(text: &str) -> Result<(), String> {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    PathText::read(path)?;
    match query.chars().find(|c| !c.is_ascii_graphic() || *c == '#') {
        Some(bad) => Err(format!("`{}` cannot stand in a query", bad.escape_debug())),
        None => Ok(()),
    }
}

impl Meaning for Pattern {
    const FORMAT: &'static str = "regex";
    const WHAT: &'static str = "a regular expression such as \"/item/[0-9]+\"";

    fn read(text: &str) -> Result<Self, String> {
        let build = |pattern: &str| {
            RegexBuilder::new(pattern)
                .size_limit(REGEX_BYTES_MAX)
                .build()
        };
        let anywhere = build(text).map_err(|error| regex_message(&error))?;
        let whole = build(&format!(r"\A(?:{text})\z")).map_err(|error| regex_message(&error))?;
        Ok(Self { whole, anywhere })
    }
}

/// The last line of the regex crate's drawing; the text itself is marked by our own.
fn regex_message(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("this regular expression needs more than {limit} bytes of memory")
        }
        other => {
            let text = other.to_string();
            let reason = text
                .lines()
                .last()
                .unwrap_or_default()
                .trim()
                .trim_start_matches("error: ");
            format!("not a regular expression: {reason}")
        }
    }
}

impl Meaning for HeaderName {
    const FORMAT: &'static str = "header_name";
    const WHAT: &'static str = "a header's name such as \"x-request-id\"";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a header's name must not be empty".to_owned());
        }
        if let Some(name) = text.strip_suffix(':') {
            return Err(did_you_mean(
                "a header's name is written without its colon".to_owned(),
                Some(name),
            ));
        }
        match text.chars().find(|c| !is_token_char(*c)) {
            Some(bad) => Err(format!(
                "`{}` cannot stand in a header's name",
                bad.escape_debug()
            )),
            None => Ok(Self(text.to_ascii_lowercase())),
        }
    }
}

/// RFC 9110 §5.6.2.
fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

impl Meaning for HeaderValue {
    const FORMAT: &'static str = "header_value";
    const WHAT: &'static str = "a header's value";

    fn read(text: &str) -> Result<Self, String> {
        if let Some(bad) = text.chars().find(|c| c.is_control() && *c != '\t') {
            let bad = bad.escape_debug();
            return Err(format!(
                "`{bad}` cannot stand in a header's value: it would end the field or the message"
            ));
        }
        if text.trim_matches([' ', '\t']) != text {
            return Err("a header's value has no space at its ends: readers strip it".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl Meaning for ContentType {
    const FORMAT: &'static str = "content_type";
    const WHAT: &'static str = "a media type such as \"text/plain; charset=utf-8\"";

    fn read(text: &str) -> Result<Self, String> {
        HeaderValue::read(text)?;
        let essence = text.split(';').next().unwrap_or(text).trim_end();
        let is_type = essence.split_once('/').is_some_and(|(kind, subtype)| {
            [kind, subtype]
                .iter()
                .all(|part| !part.is_empty() && part.chars().all(is_token_char))
        });
        if !is_type {
            return Err(format!("`{text}` is no media type such as `text/plain`"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl Meaning for HostMatch {
    const FORMAT: &'static str = "host";
    const WHAT: &'static str = "a host such as \"example.org\" or \"*.example.org\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Err(
                "`*` alone is not needed: a route without `host` holds for every host".to_owned(),
            );
        }
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split(['/', ':']).next().unwrap_or(rest);
            return Err(did_you_mean("a host has no scheme".to_owned(), Some(host)));
        }
        let (wildcard, name) = text
            .strip_prefix("*.")
            .map_or((false, text), |name| (true, name));
        if name.contains('*') {
            return Err(format!(
                "`{text}`: the `*` stands for whole labels at the front, as in `*.example.org`"
            ));
        }
        let bracketed = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bracketed {
            let address = address
                .parse::<std::net::Ipv6Addr>()
                .map_err(|_| format!("`{text}` is no IPv6 address"))?;
            return Ok(Self::Exact(format!("[{address}]")));
        }
        if let Some((host, port)) = name.rsplit_once(':')
            && port.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(did_you_mean(
                "a host is matched without its port".to_owned(),
                Some(host),
            ));
        }
        if !name.is_ascii() {
            return Err(format!(
                "`{text}` is not ASCII: write the name as it is sent (its `xn--` form)"
            ));
        }
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if name.len() > 253 || !name.split('.').all(is_label) {
            return Err(format!("`{}` is no host name", text.escape_debug()));
        }
        Ok(if wildcard {
            Self::Wildcard(name)
        } else {
            Self::Exact(name)
        })
    }
}

impl Meaning for Method {
    const FORMAT: &'static str = "method";
    const WHAT: &'static str = "a method such as \"GET\"";

    fn read(text: &str) -> Result<Self, String> {
        const KNOWN: [&str; 8] = [
            "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
        ];
        if text.is_empty() || !text.chars().all(is_token_char) {
            return Err(format!(
                "`{}` is no method such as `GET`",
                text.escape_debug()
            ));
        }
        let upper = text.to_ascii_uppercase();
        if upper != text && KNOWN.contains(&upper.as_str()) {
            return Err(did_you_mean(
                format!("methods are case-sensitive; no client sends `{text}`"),
                Some(upper),
            ));
        }
        if upper == "CONNECT" {
            return Err("CONNECT is never routed: Mizan is no forward proxy".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl Meaning for StatusRange {
    const FORMAT: &'static str = "status_range";
    const WHAT: &'static str = "a status or a range such as \"200-399\"";

    fn read(text: &str) -> Result<Self, String> {
        let status = |text: &str| match text.trim().parse::<u16>() {
            Ok(status @ 100..=599) => Ok(status),
            _ => Err(format!(
                "`{}` is no status; they go from 100 to 599, ranges are written `200-399`",
                text.escape_debug()
            )),
        };
        if let Some(class) = text
            .strip_suffix("xx")
            .filter(|class| matches!(*class, "1" | "2" | "3" | "4" | "5"))
        {
            return Err(did_you_mean(
                format!("`{text}` is no range"),
                Some(format!("{class}00-{class}99")),
            ));
        }
        let (low, high) = text.split_once(['-', '–']).unwrap_or((text, text));
        let (low, high) = (status(low)?, status(high)?);
        if low > high {
            return Err(did_you_mean(
                format!("`{text}` runs backwards"),
                Some(format!("{high}-{low}")),
            ));
        }
        Ok(Self(low, high))
    }
}

impl Meaning for ErrorStatus {
    const FORMAT: &'static str = "error_status";
    const WHAT: &'static str = "a status from 400 to 599";

    fn read(text: &str) -> Result<Self, String> {
        match text.parse::<u16>() {
            Ok(status @ 400..=599) => Ok(Self(status)),
            _ => Err(format!(
                "`{}` is not the status of an error (400 to 599)",
                text.escape_debug()
            )),
        }
    }
}

impl Meaning for Location {
    const FORMAT: &'static str = "location";
    const WHAT: &'static str = "a location such as \"https://{host}{path}{query}\"";

    fn read(text: &str) -> Result<Self, String> {
        HeaderValue::read(text)?;
        if let Some(bad) = text.chars().find(|c| *c == ' ' || !c.is_ascii()) {
            return Err(format!("`{bad}` must be percent-encoded in a location"));
        }
        if !(text.starts_with('/') || text.starts_with('{') || text.contains("://")) {
            return Err("a location is a whole URL (`https://…`) or begins with `/`".to_owned());
        }
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let Some((name, tail)) = rest[at..]
                .strip_prefix('{')
                .and_then(|open| open.split_once('}'))
            else {
                return Err(
                    "a brace without its partner; write `%7B` or `%7D` for one that is meant"
                        .to_owned(),
                );
            };
            if !PLACEHOLDERS.contains(&name) {
                let near = super::super::suggest::nearest(name, PLACEHOLDERS)
                    .map(|near| format!("{{{near}}}"));
                return Err(did_you_mean(
                    format!("`{{{name}}}` stands for nothing"),
                    near,
                ));
            }
            rest = tail;
        }
        Ok(Self(text.to_owned()))
    }
}
