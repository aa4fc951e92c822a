//! HTTP/1.1 codec without I/O: bytes in, heads and body pieces out (RFC 9112).
//!
//! Strict in: what two parsers could read differently is refused, never repaired (RFC 9112 §11.2).
//! A head is read in one pass over its bytes, into lines that borrow from them; what passes unchanged is later copied
//! from there in one piece.

pub mod chunked;
pub mod field;
pub mod line;
pub mod request;
pub mod response;
pub mod scan;

/// Protocol version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// How a body is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// `Content-Length` bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// All until the connection's end (responses only).
    UntilClose,
}

/// Why a head is refused. Each names one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// A line ends with LF alone (RFC 9112 §2.2).
    #[error("a line ends with LF without CR")]
    BareLf,
    /// Neither a request line nor a status line.
    #[error("malformed start line")]
    StartLine,
    /// A version that is not 1.0 or 1.1.
    #[error("unsupported HTTP version")]
    Version,
    /// A field line breaks the grammar: name, colon, control byte, folding.
    #[error("malformed header field")]
    Field,
    /// The target is in none of the four forms (RFC 9112 §3.2), or holds a forbidden byte.
    #[error("malformed request target")]
    Target,
    /// Longer than `target_bytes_max`.
    #[error("request target too long")]
    TargetTooLong,
    /// Longer than `head_bytes_max`.
    #[error("head too large")]
    TooLarge,
    /// More than `headers_max` fields.
    #[error("too many header fields")]
    TooManyFields,
    /// HTTP/1.1 without `Host` (RFC 9112 §3.2).
    #[error("no Host")]
    HostMissing,
    /// More than one `Host`.
    #[error("more than one Host")]
    HostRepeated,
    /// `Host` is not `uri-host[:port]`.
    #[error("malformed Host")]
    HostMalformed,
    /// `Content-Length` with `Transfer-Encoding` (RFC 9112 §6.1).
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndEncoding,
    /// More than one `Content-Length`.
    #[error("more than one Content-Length")]
    LengthRepeated,
    /// `Content-Length` is not a number of at most 19 digits.
    #[error("malformed Content-Length")]
    LengthMalformed,
    /// `Transfer-Encoding` does not end in `chunked`, repeats it, or comes with HTTP/1.0.
    #[error("faulty Transfer-Encoding")]
    Encoding,
    /// A transfer coding besides `chunked` (RFC 9112 §6.1: 501).
    #[error("unsupported transfer coding")]
    EncodingUnsupported,
    /// A name that some backends fold into `Content-Length` or `Transfer-Encoding` (`_` for `-`).
    #[error("a look-alike of a framing field")]
    FramingLookalike,
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    #[error("unknown expectation")]
    Expectation,
    /// `CONNECT` at a reverse proxy.
    #[error("CONNECT is not supported")]
    Connect,
    /// More connection options than anyone needs.
    #[error("too many Connection options")]
    ConnectionOptions,
    /// A status below 100 or above 599.
    #[error("status out of range")]
    Status,
}

impl HeadError {
    /// The status that a client gets for this fault in its request.
    pub fn status(self) -> u16 {
        match self {
            Self::TargetTooLong => 414,
            Self::TooLarge | Self::TooManyFields => 431,
            Self::Version => 505,
            Self::EncodingUnsupported | Self::Connect => 501,
            Self::Expectation => 417,
            _ => 400,
        }
    }

    /// Code for logs and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::BareLf => "bare_lf",
            Self::StartLine => "start_line",
            Self::Version => "version",
            Self::Field => "header_field",
            Self::Target => "target",
            Self::TargetTooLong => "target_too_long",
            Self::TooLarge => "head_too_large",
            Self::TooManyFields => "too_many_headers",
            Self::HostMissing => "host_missing",
            Self::HostRepeated => "host_repeated",
            Self::HostMalformed => "host_malformed",
            Self::LengthAndEncoding => "length_and_encoding",
            Self::LengthRepeated => "length_repeated",
            Self::LengthMalformed => "length_malformed",
            Self::Encoding => "transfer_encoding",
            Self::EncodingUnsupported => "transfer_coding_unsupported",
            Self::FramingLookalike => "framing_lookalike",
            Self::Expectation => "expectation",
            Self::Connect => "connect_unsupported",
            Self::ConnectionOptions => "connection_options",
            Self::Status => "status",
        }
    }
}

/// Most header fields that any limit may allow.
pub const FIELDS_MAX: usize = 256;

#[cfg(test)]
mod tests;
