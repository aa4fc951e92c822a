//! A caller of the admin API, over a Unix socket or TCP.

use super::output::Exit;
use crate::admin::view::ApiError;
use crate::config::default_admin_socket;
use crate::control::OpenError;
use axum::Router;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

/// An answer takes this long at most; a reload may resolve names.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Largest answer: 10,000 backends take about 4 MiB.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Why a command got no answer, or not the one it wanted.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// Nobody answers.
    #[error("no instance answers on {instance}{hint}")]
    Unreachable {
        /// Where it was looked for.
        instance: String,
        /// Where else to look; else empty.
        hint: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// An instance may answer, but not to this user.
    #[error("{instance} is another user's: run this as the instance's user, or with sudo")]
    Forbidden {
        /// The socket.
        instance: String,
        /// Why not.
        source: io::Error,
    },
    /// An instance answers to who shows its token.
    #[error("the instance on {instance} {}", token_wanted(*.shown))]
    Token {
        /// Where.
        instance: String,
        /// Whether a token was shown.
        shown: bool,
    },
    /// What answers is no Mizan, or not of this version.
    #[error("what answers on {instance} is not understood: {what}")]
    NotUnderstood {
        /// Where.
        instance: String,
        /// What is odd.
        what: String,
    },
    /// The instance refused.
    #[error("{}", .error.message)]
    Refused {
        /// Its status.
        status: StatusCode,
        /// What it said.
        error: ApiError,
    },
    /// A value on the command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// This process could not get what it needs.
    #[error("cannot start the client")]
    Start(#[source] io::Error),
}

impl ClientError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Unreachable { .. }
            | Self::Forbidden { .. }
            | Self::NotUnderstood { .. }
            | Self::Store(_)
            | Self::Start(_) => Exit::Unreachable,
            Self::Refused { status, error } => match (*status, &*error.code) {
                (StatusCode::PRECONDITION_FAILED, _) => Exit::Changed,
                (_, "store_unreachable" | "store_denies" | "store_failed" | "store_full") => {
                    Exit::Unreachable
                }
                (_, "outcome_unknown") => Exit::Inconclusive,
                _ => Exit::Usage,
            },
            Self::Token { .. } | Self::Usage(_) => Exit::Usage,
        }
    }
}

/// The variable and the key, since no option takes a secret.
fn token_wanted(shown: bool) -> &'static str {
    if shown {
        "has another token than MIZAN_TOKEN; it is `[admin] token` of its configuration"
    } else {
        "wants its token in MIZAN_TOKEN; it is `[admin] token` of its configuration"
    }
}

/// A caller of one instance.
#[derive(Debug)]
pub(super) struct Client {
    instance: Address,
    /// Nobody said where it is.
    is_default: bool,
    token: Option<String>,
    runtime: Runtime,
    /// What answers if this process does.
    router: Option<Router>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Unix(String),
    Tcp(String),
    /// This process itself, with the store of that address.
    Local(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Unix(text) | Self::Tcp(text) | Self::Local(text)) = self;
        f.write_str(text)
    }
}

impl Client {
    /// A caller of the instance on `admin`: a path (`unix:` may stand before it), or `host:port` (with or
    /// without `http://`); `None` is the default socket.
    pub(super) fn new(admin: Option<&str>, token: Option<String>) -> Result<Self, ClientError> {
        let is_default = admin.is_none();
        let default = || default_admin_socket().display().to_string();
        let admin = admin.map_or_else(default, str::to_owned);
        let instance = parse(&admin).ok_or_else(|| {
            ClientError::Usage(format!(
                "`{admin}` is neither a socket's path nor host:port"
            ))
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ClientError::Start)?;
        Ok(Self {
            instance,
            is_default,
            token,
            runtime,
            router: None,
        })
    }

    /// A caller of this very process: `make` gives what answers in place of an instance, for the store of `address`.
    pub(super) fn local(
        address: &str,
        make: impl FnOnce() -> Result<Router, OpenError>,
    ) -> Result<Self, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ClientError::Start)?;
        let router = {
            let _in_runtime = runtime.enter();
            make()?
        };
        Ok(Self {
            instance: Address::Local(address.to_owned()),
            is_default: false,
            token: None,
            runtime,
            router: Some(router),
        })
    }

    /// Reads `path`.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, Bytes::new())
    }

    /// Does what `path` stands for.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::POST, path, Bytes::new())
    }

    /// Takes away what `path` stands for.
    pub(super) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::DELETE, path, Bytes::new())
    }

    /// The same with something to say.
    pub(super) fn post_json<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body =
            serde_json::to_vec(body).map_err(|error| ClientError::Usage(error.to_string()))?;
        self.ask(Method::POST, path, body.into())
    }

    /// Server-sent events of `path`, each with its kind and its data, until one of `each` is false or nothing more comes.
    pub(super) fn events(
        &self,
        path: &str,
        mut each: impl FnMut(&str, &str) -> bool,
    ) -> Result<(), ClientError> {
        let asked = async {
            match &self.instance {
                Address::Unix(socket) => {
                    let stream = UnixStream::connect(socket)
                        .await
                        .map_err(|error| self.unreachable(error))?;
                    self.follow(stream, "localhost", path, &mut each).await
                }
                Address::Tcp(address) => {
                    let stream = TcpStream::connect(address)
                        .await
                        .map_err(|error| self.unreachable(error))?;
                    self.follow(stream, address, path, &mut each).await
                }
                Address::Local(_) => {
                    let router = self.router.clone().unwrap_or_default();
                    let request = self.request("localhost", Method::GET, path, Bytes::new())?;
                    let response = TowerToHyperService::new(router).call(request).await;
                    let response = response.unwrap_or_else(|never| match never {});
                    self.each_event(response, &mut each).await
                }
            }
        };
        self.runtime.block_on(asked)
    }

    async fn follow<S>(
        &self,
        stream: S,
        host: &str,
        path: &str,
        each: &mut dyn FnMut(&str, &str) -> bool,
    ) -> Result<(), ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broken = |error: hyper::Error| self.unreachable(io::Error::other(error));
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(broken)?;
        let request = self.request(host, Method::GET, path, Bytes::new())?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            self.each_event(response, each).await
        };
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            answer = answer.as_mut() => answer,
            _ = connection => answer.await,
        }
    }

    async fn each_event<B>(
        &self,
        response: Response<B>,
        each: &mut dyn FnMut(&str, &str) -> bool,
    ) -> Result<(), ClientError>
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !response.status().is_success() {
            let (status, body) = self.read(response).await?;
            return Err(match serde_json::from_slice(&body) {
                Ok(error) => ClientError::Refused { status, error },
                Err(_) => self.not_understood(&status),
            });
        }
        let mut body = std::pin::pin!(response.into_body());
        let mut text = String::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.unreachable(io::Error::other(error)))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            text += &String::from_utf8_lossy(&data);
            while let Some(at) = text.find("\n\n") {
                let event: String = text.drain(..at + 2).collect();
                let field = |name: &str| {
                    let mut lines = event.lines();
                    lines
                        .find_map(|line| line.strip_prefix(name))
                        .map(str::trim_start)
                };
                if let Some(data) = field("data:")
                    && !each(field("event:").unwrap_or("message"), data)
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Waits.
    pub(super) fn pause(&self, duration: Duration) {
        // A sleep is tied to the runtime that it is made in, hence the block.
        self.runtime
            .block_on(async { tokio::time::sleep(duration).await });
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let asked =
            async { tokio::time::timeout(TIMEOUT, self.exchange(method, path, body)).await };
        let (status, body) = self.runtime.block_on(asked).unwrap_or_else(|_| {
            Err(self.unreachable(io::Error::new(
                io::ErrorKind::TimedOut,
                "no answer within a minute",
            )))
        })?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| self.not_understood(&error));
        }
        if status == StatusCode::UNAUTHORIZED {
            return Err(ClientError::Token {
                instance: self.instance.to_string(),
                shown: self.token.is_some(),
            });
        }
        match serde_json::from_slice(&body) {
            Ok(error) => Err(ClientError::Refused { status, error }),
            Err(_) => Err(self.not_understood(&status)),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let request = |host: &str| self.request(host, method, path, body);
        match &self.instance {
            Address::Unix(socket) => {
                let stream = UnixStream::connect(socket)
                    .await
                    .map_err(|error| self.unreachable(error))?;
                self.converse(stream, request("localhost")?).await
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)
                    .await
                    .map_err(|error| self.unreachable(error))?;
                self.converse(stream, request(address)?).await
            }
            Address::Local(_) => {
                let router = self.router.clone().unwrap_or_default();
                let service = TowerToHyperService::new(router);
                let response = service.call(request("localhost")?).await;
                let response = response.unwrap_or_else(|never| match never {});
                self.read(response).await
            }
        }
    }

    async fn read<B>(&self, response: Response<B>) -> Result<(StatusCode, Bytes), ClientError>
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(|error| self.unreachable(io::Error::other(error)))?;
        Ok((status, body.to_bytes()))
    }

    async fn converse<S>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broken = |error: hyper::Error| self.unreachable(io::Error::other(error));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            self.read(response).await
        };
        // The connection does the answer's I/O; it may end first, and then the answer is there.
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            answer = answer.as_mut() => answer,
            _ = connection => answer.await,
        }
    }

    fn request(
        &self,
        host: &str,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request
            .body(Full::new(body))
            .map_err(|error| ClientError::Usage(error.to_string()))
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        let instance = self.instance.to_string();
        let is_unix = matches!(self.instance, Address::Unix(_));
        if is_unix && source.kind() == io::ErrorKind::PermissionDenied {
            return ClientError::Forbidden { instance, source };
        }
        let hint = if self.is_default {
            " (the default; --admin takes what `[admin] socket` of its configuration says)"
        } else {
            ""
        };
        ClientError::Unreachable {
            instance,
            hint,
            source,
        }
    }

    fn not_understood(&self, what: &dyn std::fmt::Display) -> ClientError {
        ClientError::NotUnderstood {
            instance: self.instance.to_string(),
            what: what.to_string(),
        }
    }
}

/// With a port it is an address, else a path: a host alone is none.
fn parse(admin: &str) -> Option<Address> {
    if let Some(path) = admin.strip_prefix("unix:") {
        return Some(Address::Unix(path.into()));
    }
    let stripped = admin
        .strip_prefix("http://")
        .map(|rest| rest.trim_end_matches('/'));
    let has_port = |(host, port): (&str, &str)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
    };
    let address = stripped.unwrap_or(admin);
    if address.rsplit_once(':').is_some_and(has_port) {
        return Some(Address::Tcp(address.into()));
    }
    let is_path = stripped.is_none() && (admin.contains('/') || !admin.contains(':'));
    (is_path && !admin.is_empty()).then(|| Address::Unix(admin.into()))
}

/// One segment of a path, percent-encoded where it has to be (RFC 3986 §3.3).
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_a_path_or_host_and_port() {
        let unix = |path: &str| Some(Address::Unix(path.into()));
        let tcp = |address: &str| Some(Address::Tcp(address.into()));
        assert_eq!(
            parse("/run/mizan/admin.sock"),
            unix("/run/mizan/admin.sock")
        );
        assert_eq!(parse("unix:admin.sock"), unix("admin.sock"));
        assert_eq!(parse("./a:b/admin.sock"), unix("./a:b/admin.sock"));
        assert_eq!(parse("/a:80"), unix("/a:80"));
        assert_eq!(parse("127.0.0.1:9902"), tcp("127.0.0.1:9902"));
        assert_eq!(parse("http://[::1]:9902/"), tcp("[::1]:9902"));
        assert_eq!(parse("admin.sock"), unix("admin.sock"));
        for wrong in [
            "",
            "localhost:",
            ":80",
            "localhost:99999",
            "http://localhost",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_socket_of_another_user_is_not_called_an_absent_instance() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let asked = |admin: &str| {
            let client = Client::new(Some(admin), None).expect("a client");
            client.unreachable(denied())
        };
        let error = asked("/run/mizan/admin.sock");
        assert_eq!(error.exit(), Exit::Unreachable);
        let text = error.to_string();
        assert!(
            text.starts_with("/run/mizan/admin.sock is another user's") && text.contains("sudo"),
            "{text}"
        );
        let text = asked("127.0.0.1:9902").to_string();
        assert_eq!(text, "no instance answers on 127.0.0.1:9902");
    }

    #[test]
    fn only_a_default_that_nobody_answers_on_says_how_to_name_another() {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let text = |admin: Option<&str>| {
            let client = Client::new(admin, None).expect("a client");
            client.unreachable(gone()).to_string()
        };
        assert!(text(None).contains("--admin"), "{}", text(None));
        assert_eq!(text(Some("x.sock")), "no instance answers on x.sock");
    }

    #[test]
    fn a_segment_cannot_become_two() {
        assert_eq!(segment("10.0.0.1:80"), "10.0.0.1:80");
        assert_eq!(
            segment("unix:/run/a b.sock?#%"),
            "unix:%2Frun%2Fa%20b.sock%3F%23%25"
        );
        assert_eq!(segment("[::1]:80"), "%5B::1%5D:80");
    }
}
