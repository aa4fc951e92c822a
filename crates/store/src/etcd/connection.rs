//! One connection to one member: TCP, TLS where it is wanted, HTTP/2.
//!
//! It is ours rather than a channel of tonic's, because three things have to be known that such a channel hides: whether a
//! request had left when its connection failed, whether it was TLS that failed, and that there is no connecting again
//! behind our back.

use super::options::split;
use super::tls;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response, Uri};

/// Between two pings of a connection; etcd refuses more than one in 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Longest that a ping's answer may take.
const PING_TIME_MAX: Duration = Duration::from_secs(3);

/// An open connection; its clones are the same one. It is closed when the last of them is dropped.
#[derive(Clone)]
pub(super) struct Link {
    /// Which member it goes to.
    pub(super) member: usize,
    pub(super) origin: Uri,
    sender: SendRequest<Body>,
    end: Arc<OnceLock<Failure>>,
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Nobody answers, or not as one should.
    Unreachable(String),
    /// The two sides do not agree on TLS or on certificates.
    Tls(String),
}

/// A request that got no answer because its connection ended.
#[derive(Debug)]
pub(super) struct Lost {
    /// Whether it may have reached the member.
    pub(super) is_sent: bool,
    reason: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for Lost {}

#[cfg(test)]
impl Lost {
    pub(super) fn of_test(is_sent: bool) -> Self {
        Self {
            is_sent,
            reason: "cut".to_owned(),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal<'a> {
    pub(super) member: usize,
    pub(super) address: &'a str,
    pub(super) server_name: Option<&'a str>,
}

impl Link {
    /// Connects. What takes too long is for the caller to end.
    pub(super) async fn open(goal: Goal<'_>, tls: Option<&TlsConnector>) -> Result<Self, Failure> {
        let stream = TcpStream::connect(goal.address)
            .await
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|error| Failure::Unreachable(error.to_string()))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let origin = format!("{scheme}://{}", goal.address)
            .parse()
            .map_err(|error| Failure::Unreachable(format!("no host of a URL: {error}")))?;
        let Some(tls) = tls else {
            return Self::speak(stream, goal.member, origin).await;
        };
        let host = split(goal.address).0;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let name = goal.server_name.unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Failure::Tls(format!("`{name}` is no name that a certificate is for")))?;
        let stream = tls.connect(name, stream).await.map_err(|error| {
            match (error.kind(), failure(&error)) {
                (io::ErrorKind::UnexpectedEof, Failure::Unreachable(why)) => Failure::Unreachable(
                    format!("{why}: if it speaks no TLS, its address begins with `etcd://`"),
                ),
                (_, failure) => failure,
            }
        })?;
        Self::speak(stream, goal.member, origin).await
    }

    async fn speak<S>(stream: S, member: usize, origin: Uri) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let end = Arc::new(OnceLock::new());
        // Who has come through TLS has said something.
        let is_silent = origin.scheme_str() == Some("http");
        let stream = Heard {
            stream,
            end: Arc::clone(&end),
            is_silent,
        };
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIME_MAX)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Failure::Unreachable(chain(&error)))?;
        // It ends with the connection; how that came, `Heard` has noted.
        tokio::spawn(connection);
        Ok(Self {
            member,
            origin,
            sender,
            end,
        })
    }

    /// Whether nothing can be sent on it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed() || self.end.get().is_some()
    }

    /// Whether both are the same connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.end, &other.end)
    }

    /// What ended it, if something was heard.
    pub(super) fn end(&self) -> Option<&Failure> {
        self.end.get()
    }
}

impl Service<Request<Body>> for Link {
    type Response = Response<Incoming>;
    type Error = Lost;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Lost>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        self.sender.poll_ready(context).map_err(|error| Lost {
            is_sent: false,
            reason: chain(&error),
        })
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.sender.try_send_request(request);
        Box::pin(async move {
            answer.await.map_err(|error| Lost {
                is_sent: error.message().is_none(),
                reason: chain(error.error()),
            })
        })
    }
}

/// What an error of reading means.
fn failure(error: &io::Error) -> Failure {
    match tls::explain(error) {
        Some(text) => Failure::Tls(text),
        None => Failure::Unreachable(error.to_string()),
    }
}

/// An error with all that it comes from, since hyper's first line says little.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// A stream that notes how it ends. HTTP/2 keeps that to itself, but a refused client certificate of TLS 1.3 shows only
/// here: it comes after the handshake.
struct Heard<S> {
    stream: S,
    end: Arc<OnceLock<Failure>>,
    /// Whether nothing was heard yet, not in a handshake of TLS either.
    is_silent: bool,
}

impl<S> Heard<S> {
    /// Notes an end; the first one counts.
    fn note(&self, failure: Failure) {
        let failure = match failure {
            Failure::Unreachable(why) if self.is_silent => Failure::Unreachable(format!(
                "{why} before it said a word; if it speaks TLS, its address begins with `etcds://`"
            )),
            failure => failure,
        };
        let _ = self.end.set(failure);
    }
}

impl<S: AsyncRead + Unpin> Heard<S> {
    /// Where writing has failed, nobody will read any more: what the other side said before it closed, as why it refuses
    /// our certificate, is heard here or never, so the error waits for it. What else is heard is of no use to anyone.
    fn after_the_end<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if !matches!(outcome, Poll::Ready(Err(_))) {
            return outcome;
        }
        let mut bytes = [0; 1 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut *self).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return outcome;
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        match &outcome {
            Err(error) => self.note(failure(error)),
            Ok(()) if buffer.filled().len() > before => self.is_silent = false,
            Ok(()) if buffer.remaining() > 0 => {
                self.note(Failure::Unreachable("it closed the connection".to_owned()));
            }
            Ok(()) => {}
        }
        Poll::Ready(outcome)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.after_the_end(context, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.after_the_end(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.after_the_end(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
