//! Request heads.

use super::field::{self, Field};
use super::{Framing, HeadError, Version};
use httparse::Header;
use std::mem::MaybeUninit;

/// Most names that a `Connection` header may list.
const OPTIONS_MAX: usize = 16;

/// Limits on a request head.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Fields.
    pub headers_max: usize,
    /// Bytes of the target.
    pub target_bytes_max: usize,
}

/// A parsed and checked request head, borrowed from the bytes it was read from.
#[derive(Debug)]
pub struct RequestHead<'h, 'b> {
    /// Method, a token; case matters.
    pub method: &'b str,
    /// Target in origin form, or `*`.
    pub target: &'b str,
    /// Host and port: from the target if that was in absolute form, else from `Host`; empty with HTTP/1.0 and none.
    pub authority: &'b [u8],
    /// Version.
    pub version: Version,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the client wants the connection kept.
    pub keep_alive: bool,
    /// `Expect: 100-continue` is there.
    pub expect_continue: bool,
    /// All fields, in order.
    pub headers: &'h [Header<'b>],
    /// What each of `headers` means.
    pub options: ConnectionOptions<'b>,
}

/// Names listed by `Connection`: fields to take away.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionOptions<'b> {
    names: [&'b [u8]; OPTIONS_MAX],
    count: usize,
    close: bool,
    keep_alive: bool,
}

impl<'b> ConnectionOptions<'b> {
    /// None yet.
    pub fn new() -> Self {
        Self {
            names: [b""; OPTIONS_MAX],
            count: 0,
            close: false,
            keep_alive: false,
        }
    }

    /// Adds those of one `Connection` field.
    ///
    /// # Errors
    /// [`HeadError::ConnectionOptions`] beyond 16.
    pub fn add(&mut self, value: &'b [u8]) -> Result<(), HeadError> {
        for option in field::list(value) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if self.count == OPTIONS_MAX {
                return Err(HeadError::ConnectionOptions);
            } else {
                self.names[self.count] = option;
                self.count += 1;
            }
        }
        Ok(())
    }

    /// Whether the sender keeps the connection (RFC 9112 §9.3).
    pub fn keeps(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    /// Whether the field `name` is listed.
    pub fn lists(&self, name: &str) -> bool {
        self.names[..self.count]
            .iter()
            .any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }
}

impl Default for ConnectionOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Parses a whole head: `bytes` ends with its empty line, as [`super::scan`] found it.
///
/// # Errors
/// The first rule that the head breaks.
pub fn parse<'h, 'b>(
    bytes: &'b [u8],
    storage: &'h mut [MaybeUninit<Header<'b>>],
    limits: Limits,
) -> Result<RequestHead<'h, 'b>, HeadError> {
    let line_end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    if line_end > limits.target_bytes_max + 32 {
        return Err(HeadError::TargetTooLong);
    }
    let mut request = httparse::Request::new(&mut []);
    let room = storage.len().min(limits.headers_max);
    let status = httparse::ParserConfig::default()
        .parse_request_with_uninit_headers(&mut request, bytes, &mut storage[..room])
        .map_err(|error| match error {
            httparse::Error::TooManyHeaders => HeadError::TooManyFields,
            httparse::Error::Version => version_error(&bytes[..line_end]),
            httparse::Error::Token | httparse::Error::NewLine => HeadError::StartLine,
            _ => HeadError::Field,
        })?;
    if status.is_partial() {
        return Err(HeadError::StartLine);
    }
    let (Some(method), Some(raw_target), Some(minor)) =
        (request.method, request.path, request.version)
    else {
        return Err(HeadError::StartLine);
    };
    let version = if minor == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
    if raw_target.len() > limits.target_bytes_max {
        return Err(HeadError::TargetTooLong);
    }
    if method == "CONNECT" {
        return Err(HeadError::Connect);
    }
    let (target, absolute) = split_target(method, raw_target)?;
    let headers: &'h [Header<'b>] = request.headers;
    let fields = Fields::read(headers, version)?;
    let authority = match (absolute, fields.host) {
        (Some(authority), _) => authority,
        (None, Some(host)) => host,
        (None, None) => b"",
    };
    Ok(RequestHead {
        method,
        target,
        authority,
        version,
        framing: fields.framing,
        keep_alive: fields.options.keeps(version),
        expect_continue: fields.expect_continue && version == Version::Http11,
        headers,
        options: fields.options,
    })
}

/// `HTTP/2.0` is a version that we do not speak; `http/1.1` is no version at all, and neither is what stands
/// in a line of more than three words.
fn version_error(line: &[u8]) -> HeadError {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|byte| *byte == b' ');
    match (words.nth(2), words.next()) {
        (Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), None)
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            HeadError::Version
        }
        _ => HeadError::StartLine,
    }
}

/// Origin form of the target, and the authority of an absolute form (RFC 9112 §3.2).
fn split_target<'b>(
    method: &str,
    target: &'b str,
) -> Result<(&'b str, Option<&'b [u8]>), HeadError> {
    if target
        .bytes()
        .any(|byte| !(0x21..=0x7e).contains(&byte) || byte == b'#')
    {
        return Err(HeadError::Target);
    }
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Ok((target, None));
    }
    let scheme = target.find("://").ok_or(HeadError::Target)?;
    if !target[..scheme].eq_ignore_ascii_case("http")
        && !target[..scheme].eq_ignore_ascii_case("https")
    {
        return Err(HeadError::Target);
    }
    let rest = &target[scheme + 3..];
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if !field::is_authority(authority.as_bytes()) {
        return Err(HeadError::Target);
    }
    match path {
        "" if method == "OPTIONS" => Ok(("*", Some(authority.as_bytes()))),
        "" => Ok(("/", Some(authority.as_bytes()))),
        path if path.starts_with('/') => Ok((path, Some(authority.as_bytes()))),
        _ => Err(HeadError::Target),
    }
}

/// What one pass over the fields finds.
struct Fields<'b> {
    host: Option<&'b [u8]>,
    framing: Framing,
    expect_continue: bool,
    options: ConnectionOptions<'b>,
}

impl<'b> Fields<'b> {
    fn read(headers: &[Header<'b>], version: Version) -> Result<Self, HeadError> {
        let mut host = None;
        let mut expect_continue = false;
        let mut options = ConnectionOptions::new();
        let mut body = BodyFields::default();
        for header in headers {
            match field::classify(header.name.as_bytes()) {
                Field::Host if host.is_some() => return Err(HeadError::HostRepeated),
                Field::Host if !field::is_authority(header.value) => {
                    return Err(HeadError::HostMalformed);
                }
                Field::Host => host = Some(header.value),
                Field::Connection => options.add(header.value)?,
                Field::Expect
                    if !header.value.eq_ignore_ascii_case(b"100-continue") || expect_continue =>
                {
                    return Err(HeadError::Expectation);
                }
                Field::Expect => expect_continue = true,
                field => body.note(field, header.value)?,
            }
        }
        if host.is_none() && version == Version::Http11 {
            return Err(HeadError::HostMissing);
        }
        let framing = body.framing(version)?.unwrap_or(Framing::None);
        Ok(Self {
            host,
            framing,
            expect_continue,
            options,
        })
    }
}

/// `Content-Length` and `Transfer-Encoding` of one message.
#[derive(Default)]
pub(super) struct BodyFields {
    length: Option<u64>,
    chunked: bool,
}

impl BodyFields {
    /// Takes in one field; others than the two are passed over.
    pub(super) fn note(&mut self, field: Field, value: &[u8]) -> Result<(), HeadError> {
        match field {
            Field::ContentLength if self.length.is_some() => Err(HeadError::LengthRepeated),
            Field::ContentLength => {
                self.length = Some(field::content_length(value).ok_or(HeadError::LengthMalformed)?);
                Ok(())
            }
            Field::TransferEncoding if self.chunked => Err(HeadError::Encoding),
            Field::TransferEncoding if value.eq_ignore_ascii_case(b"chunked") => {
                self.chunked = true;
                Ok(())
            }
            Field::TransferEncoding => Err(coding_error(value)),
            Field::FramingLookalike => Err(HeadError::FramingLookalike),
            _ => Ok(()),
        }
    }

    /// How the body is delimited; `None` if neither field is there.
    pub(super) fn framing(&self, version: Version) -> Result<Option<Framing>, HeadError> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err(HeadError::LengthAndEncoding),
            (None, true) if version == Version::Http10 => Err(HeadError::Encoding),
            (None, true) => Ok(Some(Framing::Chunked)),
            (Some(length), false) => Ok(Some(Framing::Length(length))),
            (None, false) => Ok(None),
        }
    }
}

/// 501 for codings that exist and end in `chunked`; 400 for all else.
fn coding_error(value: &[u8]) -> HeadError {
    let known = |coding: &[u8]| {
        [
            &b"gzip"[..],
            b"x-gzip",
            b"deflate",
            b"compress",
            b"x-compress",
        ]
        .iter()
        .any(|name| coding.eq_ignore_ascii_case(name))
    };
    let mut codings: Vec<&[u8]> = field::list(value).collect();
    let last_is_chunked = codings
        .pop()
        .is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
    if last_is_chunked && !codings.is_empty() && codings.iter().all(|coding| known(coding)) {
        HeadError::EncodingUnsupported
    } else {
        HeadError::Encoding
    }
}
