//! From what somebody writes to a request's head.

use crate::snapshot::Asked;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The body of `POST /v1/explain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// `http://host/path?query`, `https://…`, or a path alone, for which a `Host` must be among the headers.
    pub url: String,
    /// Default: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Header fields, each `Name: value`.
    #[serde(default)]
    pub headers: Vec<String>,
    /// The client's address: the peer, or whom a PROXY header names. Default: 127.0.0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The listener that it comes to. Default: one on the URL's port, else the first that speaks its scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// A pool to ask in place of the one that the route gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Stands for all that is left to chance, `0` to `4294967295`. Default: drawn anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// The region that it is of. Default: what the request, its client's address and the balancer say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The language that it is in, for settings: a tag, or a list as `Accept-Language` has it. Default: what the request says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}

/// What is wrong with a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Malformed {
    /// The field that it is about.
    pub field: &'static str,
    /// What is wrong, and what to write.
    pub message: String,
}

impl ExplainRequest {
    /// The request in question. `random` stands for chance where no seed is given.
    ///
    /// # Errors
    /// What no client could send, or nobody could mean. What a client could send and Mizan would refuse is none: that
    /// is explained.
    pub fn asked(&self, random: u64) -> Result<Asked, Malformed> {
        let url = Url::parse(&self.url)?;
        let method = self.method.as_deref().unwrap_or("GET");
        if method.is_empty() || !method.bytes().all(is_token_byte) {
            return Err(wrong(
                "method",
                format!("`{method}` is no method: one word such as GET, HEAD or POST"),
            ));
        }
        let mut head = format!("{method} {} HTTP/1.1\r\n", url.target);
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|line| field(line))
            .collect::<Result<_, _>>()?;
        let has_host = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"));
        match (&url.authority, has_host) {
            (Some(authority), false) => head += &format!("Host: {authority}\r\n"),
            (None, false) => {
                let message = match url.target.starts_with('/') {
                    true => format!(
                        "`{}` names no host, and no header does: write http://HOST{}, or add the header `Host: HOST`",
                        self.url, url.target
                    ),
                    false => format!("`{}` names no host: add the header `Host: HOST`", self.url),
                };
                return Err(wrong("url", message));
            }
            (_, true) => {}
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        Ok(Asked {
            head: head.into_bytes(),
            client: self.client.as_deref().map(client).transpose()?,
            secure: url.secure,
            port: url.port,
            listener: self.listener.clone(),
            pool: self.pool.clone(),
            seed: self.seed.map_or(random >> 32, u64::from),
            region: self.region.clone(),
            language: self.language.clone(),
        })
    }
}

/// The parts of a URL that a request is made from.
struct Url<'u> {
    secure: Option<bool>,
    authority: Option<&'u str>,
    port: Option<u16>,
    target: String,
}

impl<'u> Url<'u> {
    fn parse(text: &'u str) -> Result<Self, Malformed> {
        check_bytes(text)?;
        let (secure, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            // A query may hold a URL.
            _ if text.starts_with('/') || text == "*" => (None, text),
            Some((scheme, _)) => {
                let message =
                    format!("`{scheme}://` is no scheme of a request: http:// or https://");
                return Err(wrong("url", message));
            }
            None => {
                let message = format!(
                    "`{text}` begins with neither a scheme nor a slash: write http://{text}, or /{text} and a `Host`"
                );
                return Err(wrong("url", message));
            }
        };
        if secure.is_none() {
            let target = text.to_owned();
            return Ok(Self {
                secure,
                authority: None,
                port: None,
                target,
            });
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.is_empty() {
            return Err(wrong("url", format!("`{text}` names no host behind ://")));
        }
        if authority.contains('@') {
            let message = "a user in a URL is not sent: use the header `Authorization`";
            return Err(wrong("url", message.into()));
        }
        let port = port(authority)?;
        let target = match target.starts_with('/') {
            true => target.to_owned(),
            false => format!("/{target}"),
        };
        Ok(Self {
            secure,
            authority: Some(authority),
            port,
            target,
        })
    }
}

/// What is never part of a target on its way.
fn check_bytes(text: &str) -> Result<(), Malformed> {
    let odd = text
        .char_indices()
        .find(|(_, c)| !c.is_ascii_graphic() || matches!(c, '#' | '<' | '>' | '`'));
    let Some((at, c)) = odd else {
        return match text.is_empty() {
            true => Err(wrong(
                "url",
                "the URL is empty: write http://HOST/PATH".into(),
            )),
            false => Ok(()),
        };
    };
    let column = text[..at].chars().count() + 1;
    let is_in_host = text[..at]
        .split_once("://")
        .is_some_and(|(_, before)| !before.contains('/'));
    let message = match c {
        c if is_in_host && c.is_alphanumeric() => format!(
            "{c:?} (column {column}) cannot stand in a host: write the name as DNS has it, with xn-- before each such part"
        ),
        '#' => format!(
            "what follows # (column {column}) stays in the browser and is never sent: leave it out"
        ),
        c => {
            let mut bytes = [0; 4];
            let encoded: String = c
                .encode_utf8(&mut bytes)
                .bytes()
                .map(|byte| format!("%{byte:02X}"))
                .collect();
            format!("{c:?} (column {column}) cannot stand in a URL: write {encoded}")
        }
    };
    Err(wrong("url", message))
}

/// The port of an authority, if it says one.
fn port(authority: &str) -> Result<Option<u16>, Malformed> {
    let brackets = authority.starts_with('[') as usize + authority.contains(']') as usize;
    if brackets == 1 {
        let bare = authority.trim_matches(['[', ']']);
        let message = match bare.parse::<std::net::Ipv6Addr>() {
            Ok(_) => format!("`{authority}` has one bracket of two: write [{bare}]"),
            Err(_) => format!(
                "`{authority}` has one bracket of two: write an IPv6 address as in [2001:db8::7] or [2001:db8::7]:8080"
            ),
        };
        return Err(wrong("url", message));
    }
    let after_host = match authority.rfind(']') {
        Some(at) => match &authority[at + 1..] {
            rest if rest.is_empty() || rest.starts_with(':') => rest,
            rest => {
                let message = format!(
                    "behind ] stands a port or nothing, not `{rest}`: write {}",
                    &authority[..=at]
                );
                return Err(wrong("url", message));
            }
        },
        None => match authority.matches(':').count() {
            0 | 1 => authority.find(':').map_or("", |at| &authority[at..]),
            _ => {
                let message = format!("an IPv6 address stands in brackets: write [{authority}]");
                return Err(wrong("url", message));
            }
        },
    };
    match after_host.strip_prefix(':') {
        None | Some("") => Ok(None),
        Some(port) => match port.parse() {
            Ok(port) => Ok(Some(port)),
            Err(_) => Err(wrong(
                "url",
                format!("`{port}` is no port: a number up to 65535"),
            )),
        },
    }
}

fn client(text: &str) -> Result<IpAddr, Malformed> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    bare.parse().map_err(|_| {
        let hint = match text.parse::<std::net::SocketAddr>() {
            Ok(address) => format!("without its port: {}", address.ip()),
            Err(_) => "an IPv4 or IPv6 address such as 10.0.0.7 or 2001:db8::7".into(),
        };
        wrong(
            "client",
            format!("`{text}` is no address of a client: write {hint}"),
        )
    })
}

/// Name and value of a field.
fn field(line: &str) -> Result<(&str, &str), Malformed> {
    let Some((name, value)) = line.split_once(':') else {
        let message = format!("`{line}` is no header: write `Name: value`");
        return Err(wrong("headers", message));
    };
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        let odd = name
            .chars()
            .find(|c| !c.is_ascii() || !is_token_byte(*c as u8));
        let what = odd.map_or("the name is empty".into(), |c| {
            format!("{c:?} cannot stand in a name")
        });
        return Err(wrong(
            "headers",
            format!("`{line}`: {what}; write `Name: value`"),
        ));
    }
    if let Some(c) = value.chars().find(|c| matches!(c, '\r' | '\n' | '\0')) {
        let message =
            format!("header `{name}`: {c:?} cannot stand in a value; give each field by itself");
        return Err(wrong("headers", message));
    }
    Ok((name, value.trim()))
}

/// RFC 9110 §5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn wrong(field: &'static str, message: String) -> Malformed {
    Malformed { field, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(url: &str, headers: &[&str]) -> Result<String, String> {
        let request = ExplainRequest {
            url: url.into(),
            headers: headers.iter().map(ToString::to_string).collect(),
            ..ExplainRequest::default()
        };
        let asked = request.asked(0).map_err(|wrong| wrong.message)?;
        Ok(String::from_utf8(asked.head).expect("it was text"))
    }

    #[test]
    fn a_url_becomes_the_head_that_a_client_would_send() {
        let head = |url| ask(url, &[]).expect("sound");
        assert_eq!(
            head("http://a.test/b?c=d"),
            "GET /b?c=d HTTP/1.1\r\nHost: a.test\r\n\r\n"
        );
        assert_eq!(
            head("https://a.test:8443"),
            "GET / HTTP/1.1\r\nHost: a.test:8443\r\n\r\n"
        );
        assert_eq!(
            head("http://[::1]:80?x"),
            "GET /?x HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"
        );
        assert_eq!(
            ask("/go?to=http://b.test/", &["host: a.test", "X-A:  1 "]).expect("sound"),
            "GET /go?to=http://b.test/ HTTP/1.1\r\nhost: a.test\r\nX-A: 1\r\n\r\n"
        );
    }

    #[test]
    fn what_nobody_could_send_is_refused_with_what_to_write() {
        for (url, headers, taught) in [
            ("", &[][..], "write http://HOST/PATH"),
            ("a.test/b", &[], "write http://a.test/b"),
            (
                "/b",
                &[],
                "write http://HOST/b, or add the header `Host: HOST`",
            ),
            ("ftp://a.test/", &[], "http:// or https://"),
            ("http:///b", &[], "names no host"),
            ("http://u:p@a.test/", &[], "the header `Authorization`"),
            (
                "http://a.test/b c",
                &[],
                "' ' (column 16) cannot stand in a URL: write %20",
            ),
            ("http://a.test/é", &[], "write %C3%A9"),
            ("http://a.test/#b", &[], "leave it out"),
            ("http://a.test:99999/", &[], "a number up to 65535"),
            ("http://::1/", &[], "write [::1]"),
            (
                "http://[::1",
                &[],
                "`[::1` has one bracket of two: write [::1]",
            ),
            (
                "http://::1]/a",
                &[],
                "`::1]` has one bracket of two: write [::1]",
            ),
            (
                "http://[::1:80x/",
                &[],
                "write an IPv6 address as in [2001:db8::7]",
            ),
            ("http://[::1]8080/", &[], "not `8080`: write [::1]"),
            ("http://a.test/", &["X-A"], "write `Name: value`"),
            ("http://a.test/", &["X A: 1"], "' ' cannot stand in a name"),
            (
                "http://a.test/",
                &["X-A: 1\r\nX-B: 2"],
                "give each field by itself",
            ),
        ] {
            let message = ask(url, headers).expect_err(url);
            assert!(message.contains(taught), "{url} {headers:?}: {message}");
        }
        let host = ask("http://ex\u{e4}mple.org/", &[]).expect_err("no host");
        assert!(host.contains("with xn-- before"), "{host}");
        let star = ask("*", &[]).expect_err("no host");
        assert_eq!(star, "`*` names no host: add the header `Host: HOST`");
        let of = |client: &str, method: &str| {
            let request = ExplainRequest {
                url: "http://a.test/".into(),
                client: Some(client.into()),
                method: Some(method.into()),
                ..ExplainRequest::default()
            };
            request.asked(0).expect_err("wrong").message
        };
        assert!(of("10.0.0.7:80", "GET").contains("without its port: 10.0.0.7"));
        assert!(of("10.0.0", "GET").contains("such as 10.0.0.7"));
        assert!(of("10.0.0.7", "G T").contains("one word such as GET"));
    }
}
