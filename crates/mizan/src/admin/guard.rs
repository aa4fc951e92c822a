//! Who may call the API, and how a write must look.
//!
//! On a Unix socket the file's mode decides. On TCP a token must be shown, on loopback too: any page in
//! a browser can reach loopback. For the same reason the `Host` must be a name of this machine (or a page
//! could rebind its own name to it), and a write must be `application/json`, which a form cannot send.

use super::table::Author;
use super::view::ApiError;
use crate::control::author;
use crate::snapshot::{AdminBind, Current, Settings};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Who called, for the log: what the transport proved, never what the caller said.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// A process of this user, on the Unix socket.
    User(u32),
    /// A holder of the token, from this address.
    Token(SocketAddr),
}

impl Caller {
    /// As whom it is known in the history of the table.
    pub(super) fn author(&self) -> Author {
        Author(match self {
            Self::User(id) => author::user(*id),
            Self::Token(_) => "token".to_owned(),
        })
    }
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User(user) => write!(f, "user {user}"),
            Self::Token(peer) => write!(f, "token from {peer}"),
        }
    }
}

/// The rule of one socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guard {
    /// A Unix socket: whoever may open it.
    Unix,
    /// TCP on this address: whoever shows the token.
    Tcp(SocketAddr),
}

impl Guard {
    fn check(
        self,
        current: &Current,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<(), ApiError> {
        if let Self::Tcp(bound) = self {
            check_host(bound, headers)?;
            check_token(&current.load().settings, headers)?;
        }
        if *method != Method::GET && *method != Method::HEAD && !is_json(headers) {
            let message = "a write must have `Content-Type: application/json`";
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not_json",
                message,
                "",
            ));
        }
        Ok(())
    }
}

fn check_host(bound: SocketAddr, headers: &HeaderMap) -> Result<(), ApiError> {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    if names_us(host, bound.ip()) {
        return Ok(());
    }
    let message = format!("`Host: {host}` is no name of this machine");
    Err(ApiError::new(
        StatusCode::MISDIRECTED_REQUEST,
        "wrong_host",
        message,
        "",
    ))
}

/// The token is the one in force, so that a reload replaces it: the old one must not go on. A configuration that has
/// none lets nobody in, even while the socket of the start is still open.
fn check_token(settings: &Settings, headers: &HeaderMap) -> Result<(), ApiError> {
    let token = settings.admin.iter().find_map(|bind| match bind {
        AdminBind::Tcp { token, .. } => Some(token.as_bytes()),
        AdminBind::Unix(_) => None,
    });
    let shown = headers
        .get(header::AUTHORIZATION)
        .map_or(&b""[..], |value| value.as_bytes());
    let shown = shown.strip_prefix(b"Bearer ").unwrap_or_default();
    if token.is_some_and(|token| !token.is_empty() && same(shown, token)) {
        return Ok(());
    }
    let message = "`Authorization: Bearer <token>` is missing or wrong";
    Err(ApiError::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        message,
        "",
    ))
}

pub(super) async fn guard(
    State((guard, current)): State<(Guard, Arc<Current>)>,
    request: Request,
    next: Next,
) -> Response {
    match guard.check(&current, request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Whether two secrets are equal, in a time that depends on the shown one's length only.
fn same(shown: &[u8], secret: &[u8]) -> bool {
    let mut difference = u8::from(shown.len() != secret.len());
    for (at, byte) in shown.iter().enumerate() {
        difference |= byte ^ secret[at % secret.len()];
    }
    std::hint::black_box(difference) == 0
}

/// Whether a `Host` value is loopback or the bound address; the port is not looked at.
fn names_us(host: &str, bound: IpAddr) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let loopback_or_bound = |ip: IpAddr| ip.is_loopback() || ip == bound;
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(loopback_or_bound)
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_pass() {
        let bound = "192.0.2.7".parse().expect("an address");
        for host in [
            "localhost",
            "LOCALHOST:9902",
            "127.0.0.1:9902",
            "127.9.9.9",
            "[::1]:9902",
            "192.0.2.7:1",
        ] {
            assert!(names_us(host, bound), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "192.0.2.8",
            "127.0.0.1.evil.example",
            "[::2]",
        ] {
            assert!(!names_us(host, bound), "{host}");
        }
    }

    #[test]
    fn secrets_are_equal_only_as_a_whole() {
        assert!(same(b"secret", b"secret"));
        for shown in [
            &b""[..],
            b"s",
            b"secre",
            b"secret2",
            b"secretsecret",
            b"Secret",
        ] {
            assert!(!same(shown, b"secret"));
        }
    }
}
