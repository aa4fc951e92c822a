//! Why a request did not get a backend's answer: one table from reason to status, code and text.

use crate::client_hello::HelloError;
use crate::h1::HeadError;
use crate::h1::chunked::ChunkError;
use crate::telemetry::cause::{Cause, RetryCause};
use mizan_core::pool::{Failure, NoPick};

/// Why Mizan answers by itself, or cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    // The client's side.
    /// The head breaks a rule.
    Head(HeadError),
    /// The chunked body breaks a rule.
    Chunk(ChunkError),
    /// An encoded slash, a backslash or a NUL in the path, or a bad percent-encoding.
    Path,
    /// The head did not come in time.
    HeaderTimeout,
    /// The body stalled.
    BodyTimeout,
    /// The body came slower than the minimum rate.
    BodyRate,
    /// Larger than `body_bytes_max`.
    BodyTooLarge,
    /// The client took its answer slower than the minimum rate, or not at all.
    SendTimeout,
    /// The client went away.
    ClientGone,
    /// No readable first message of a TLS client, where its name decides.
    ClientHello(HelloError),
    /// The handshake was made under other rules of client authentication than those in force, and falls short of them.
    ClientAuth,
    /// Not an allowed network.
    Forbidden,
    /// No route matches.
    NoRoute,
    // Answers that a route or a listener asked for.
    Redirect,
    RedirectToHttps,
    Respond,
    /// OPTIONS that no further proxy may see (`Max-Forwards: 0`).
    Options,
    /// TRACE of the same kind: Mizan mirrors nothing.
    Trace,
    // The backend's side.
    /// No backend is usable.
    NoBackend,
    /// All are full and the queue too.
    QueueFull,
    /// All were full for the queue's time-out.
    QueueTimeout,
    ConnectRefused,
    ConnectTimeout,
    ConnectError,
    /// No agreement on TLS with the backend: its certificate is not to be trusted, say.
    TlsFailed,
    /// The backend speaks HTTP/2 and takes no such upgrade.
    UpgradeUnsupported,
    /// Mizan itself lacks descriptors, memory or ports for another connection.
    NoResources,
    /// Closed or reset before a response.
    Reset,
    /// Closed or reset on a connection that had been idle.
    PoolReuse,
    /// A response head that is malformed or ambiguous.
    BadResponse(HeadError),
    /// HTTP/1.1 from a backend that was spoken to in HTTP/2, or the other way round.
    WrongProtocol,
    /// A malformed chunked response body.
    BadResponseChunk(ChunkError),
    /// 101 without an upgrade, or interim responses without end.
    BadInterim,
    /// No response head in time.
    ResponseTimeout,
    /// The backend took no more of the request for too long.
    UploadTimeout,
    /// The response body stalled.
    ResponseIdle,
    /// Cut in mid-body by the backend.
    ResponseCut,
    /// The whole-request time-out.
    RequestTimeout,
    /// The same while the client was the slow side, or before a backend was reached.
    ClientTimeout,
    /// A tunnel in which nothing moved.
    TunnelIdle,
    /// A tunnel that lasted too long.
    TunnelTimeout,
    /// Not done by the deadline of Mizan's own drain.
    DrainCut,
    /// Mizan was stopped at once.
    Shutdown,
    /// A fault of Mizan's own: what served it has unwound.
    Internal,
    /// A status that the pool's retry rule names; never shown to a client.
    RetryStatus(u16),
}

impl Reason {
    /// Why a request that ended so has reached nothing; `None`: it has.
    pub(super) fn unreached(self) -> Option<Cause> {
        match self {
            Self::NoBackend => Some(Cause::NoBackend),
            Self::QueueFull | Self::QueueTimeout => Some(Cause::QueueFull),
            Self::ConnectRefused | Self::ConnectError | Self::NoResources => {
                Some(Cause::ConnectRefused)
            }
            Self::ConnectTimeout => Some(Cause::ConnectTimeout),
            Self::TlsFailed => Some(Cause::TlsFailed),
            Self::Reset => Some(Cause::ResetBeforeResponse),
            Self::PoolReuse => Some(Cause::PoolReuse),
            Self::DrainCut => Some(Cause::DrainCut),
            Self::Shutdown => Some(Cause::Shutdown),
            _ => None,
        }
    }

    /// Why a request is tried again after it.
    pub(super) fn retry_cause(self) -> RetryCause {
        match self {
            Self::ConnectRefused | Self::ConnectError | Self::NoResources => {
                RetryCause::ConnectRefused
            }
            Self::ConnectTimeout => RetryCause::ConnectTimeout,
            Self::TlsFailed => RetryCause::TlsFailed,
            Self::PoolReuse => RetryCause::PoolReuse,
            Self::ResponseTimeout => RetryCause::Timeout,
            Self::RetryStatus(_) => RetryCause::Status,
            Self::BadResponse(_)
            | Self::WrongProtocol
            | Self::BadResponseChunk(_)
            | Self::BadInterim => RetryCause::BadResponse,
            _ => RetryCause::ResetBeforeResponse,
        }
    }

    /// What becomes of a request for which nobody was picked; `None`: it waits in the pool's queue, if that has room.
    pub(super) fn of(no_pick: NoPick) -> Option<Self> {
        match no_pick {
            NoPick::Empty | NoPick::NoneUsable => Some(Self::NoBackend),
            NoPick::Saturated => None,
        }
    }

    /// The status of the answer, if one can still be given.
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Head(error) => error.status(),
            Self::Chunk(_) | Self::Path | Self::ClientHello(_) => 400,
            Self::HeaderTimeout | Self::BodyTimeout | Self::BodyRate => 408,
            Self::BodyTooLarge => 413,
            Self::ClientAuth => 421,
            Self::SendTimeout | Self::ClientGone => 499,
            Self::Forbidden => 403,
            Self::Internal => 500,
            Self::NoRoute => 404,
            Self::Redirect => 302,
            Self::RedirectToHttps => 308,
            Self::Respond | Self::Options => 200,
            Self::Trace => 405,
            Self::NoBackend
            | Self::QueueFull
            | Self::QueueTimeout
            | Self::NoResources
            | Self::DrainCut
            | Self::Shutdown => 503,
            Self::ConnectRefused
            | Self::ConnectError
            | Self::TlsFailed
            | Self::UpgradeUnsupported
            | Self::Reset
            | Self::PoolReuse
            | Self::BadResponse(_)
            | Self::WrongProtocol
            | Self::BadResponseChunk(_)
            | Self::BadInterim
            | Self::ResponseCut
            | Self::RetryStatus(_) => 502,
            Self::ConnectTimeout
            | Self::ResponseTimeout
            | Self::UploadTimeout
            | Self::ResponseIdle
            | Self::RequestTimeout
            | Self::ClientTimeout
            | Self::TunnelIdle
            | Self::TunnelTimeout => 504,
        }
    }

    /// Code for logs, metrics and the answer's body.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Head(error) => error.code(),
            Self::Chunk(_) => "bad_chunk",
            Self::Path => "bad_path",
            Self::HeaderTimeout => "header_timeout",
            Self::BodyTimeout => "body_timeout",
            Self::BodyRate => "body_rate",
            Self::BodyTooLarge => "body_too_large",
            Self::SendTimeout => "send_timeout",
            Self::ClientGone => "client_gone",
            Self::ClientHello(_) => "client_hello",
            Self::ClientAuth => "client_auth_changed",
            Self::Forbidden => "forbidden",
            Self::NoRoute => "no_route",
            Self::Redirect => "redirect",
            Self::RedirectToHttps => "redirect_to_https",
            Self::Respond => "respond",
            Self::Options => "options",
            Self::Trace => "trace",
            Self::NoBackend => "no_backend",
            Self::QueueFull => "queue_full",
            Self::QueueTimeout => "queue_timeout",
            Self::ConnectRefused => "connect_refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::ConnectError => "connect_error",
            Self::TlsFailed => "tls_failed",
            Self::UpgradeUnsupported => "upgrade_unsupported",
            Self::NoResources => "no_resources",
            Self::Reset => "reset_before_response",
            Self::PoolReuse => "pool_reuse",
            Self::BadResponse(_) => "bad_response",
            Self::WrongProtocol => "wrong_protocol",
            Self::BadResponseChunk(_) => "bad_response_chunk",
            Self::BadInterim => "bad_interim_response",
            Self::ResponseTimeout => "response_timeout",
            Self::UploadTimeout => "upload_timeout",
            Self::ResponseIdle => "response_idle",
            Self::ResponseCut => "response_cut",
            Self::RequestTimeout | Self::ClientTimeout => "request_timeout",
            Self::TunnelIdle => "tunnel_idle",
            Self::TunnelTimeout => "tunnel_timeout",
            Self::DrainCut => "drain_cut",
            Self::Shutdown => "shutdown",
            Self::Internal => "internal",
            Self::RetryStatus(_) => "retry_status",
        }
    }

    /// The broken rule behind a code that stands for many.
    pub(super) fn detail(self) -> Option<&'static str> {
        match self {
            Self::BadResponse(error) => Some(error.code()),
            Self::Chunk(error) | Self::BadResponseChunk(error) => Some(error.code()),
            Self::ClientHello(error) => Some(error.code()),
            _ => None,
        }
    }

    /// What core is told of the backend; `None` if it is not to blame.
    pub(super) fn failure(self) -> Option<Failure> {
        match self {
            Self::ConnectRefused => Some(Failure::ConnectRefused),
            Self::ConnectTimeout => Some(Failure::ConnectTimeout),
            Self::ConnectError | Self::TlsFailed => Some(Failure::ConnectError),
            Self::Reset | Self::ResponseCut => Some(Failure::Reset),
            Self::BadResponse(_)
            | Self::WrongProtocol
            | Self::BadResponseChunk(_)
            | Self::BadInterim => Some(Failure::BadResponse),
            Self::ResponseTimeout
            | Self::UploadTimeout
            | Self::ResponseIdle
            | Self::RequestTimeout => Some(Failure::Timeout),
            _ => None,
        }
    }
}

/// The standard phrase of a status that Mizan makes (RFC 9110 §15).
pub(super) fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        410 => "Gone",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
