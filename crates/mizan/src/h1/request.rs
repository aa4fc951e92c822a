//! Request heads.

use super::field::{self, Field};
use super::line::{self, Line, Lines, Options};
use super::{Framing, HeadError, Version};

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
    /// The head's bytes, start line and empty line included.
    pub bytes: &'b [u8],
    /// Method, a token; case matters.
    pub method: &'b [u8],
    /// Target in origin form, or `*`: visible ASCII without `#`, `<`, `>` and the backquote.
    pub target: &'b [u8],
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
    /// There is a `Host`.
    pub has_host: bool,
    /// All fields, in order.
    pub lines: &'h [Line<'b>],
    options: Options,
}

impl RequestHead<'_, '_> {
    /// Whether `Connection` lists the field `name`, which then is for this hop only.
    pub fn is_listed(&self, name: &[u8]) -> bool {
        self.options.lists(self.lines, name)
    }

    /// The one protocol that the client asks to change to (RFC 9110 §7.8); `None` if it asks for none, for several, or
    /// with a body.
    pub fn upgrade(&self) -> Option<&[u8]> {
        if self.version != Version::Http11
            || !matches!(self.framing, Framing::None | Framing::Length(0))
        {
            return None;
        }
        let mut lines = self
            .lines
            .iter()
            .filter(|line| line.field == Field::Upgrade);
        let line = lines.next()?;
        let is_one = lines.next().is_none()
            && line::token_length(line.value) > 0
            && !line.value.contains(&b',');
        (is_one && self.is_listed(b"upgrade")).then_some(line.value)
    }

    /// How many more proxies may pass this request on (RFC 9110 §7.6.2); `None`: as many as there are.
    pub fn max_forwards(&self) -> Option<u64> {
        if self.method != b"OPTIONS" && self.method != b"TRACE" {
            return None;
        }
        let mut lines = self.lines.iter();
        let line = lines.find(|line| line.field == Field::MaxForwards)?;
        field::content_length(line.value)
    }
}

/// Parses the head that `bytes` begin with; `None` while it is not whole.
///
/// # Errors
/// The first rule that the head breaks.
pub fn parse<'h, 'b>(
    bytes: &'b [u8],
    lines: &'h mut Lines<'b>,
    limits: Limits,
) -> Result<Option<RequestHead<'h, 'b>>, HeadError> {
    let Some(start) = StartLine::read(bytes, limits.target_bytes_max)? else {
        return Ok(None);
    };
    let Some(length) = line::read(bytes, start.length, lines, limits.headers_max)? else {
        return Ok(None);
    };
    if start.method == b"CONNECT" {
        return Err(HeadError::Connect);
    }
    let (target, absolute) = split_target(start.method, start.target)?;
    let fields = Fields::read(lines, start.version)?;
    Ok(Some(RequestHead {
        bytes: &bytes[..length],
        method: start.method,
        target,
        authority: absolute.or(fields.host).unwrap_or_default(),
        version: start.version,
        framing: fields.framing,
        keep_alive: fields.options.keeps(start.version),
        expect_continue: fields.expect_continue && start.version == Version::Http11,
        has_host: fields.host.is_some(),
        lines,
        options: fields.options,
    }))
}

/// What a head that is not whole or not sound says all the same: for a log, and for nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glimpse<'b> {
    /// Method; empty if the first line begins with none.
    pub method: &'b [u8],
    /// Target in origin form, as far as it was read, and as far as its limit goes.
    pub target: &'b [u8],
    /// Host and port, if it is clear which; else empty.
    pub authority: &'b [u8],
    /// Version 1.0 is asked for.
    pub is_old: bool,
}

/// Looks at the head that `bytes` begin with; `lines` gets its lines up to the first that breaks a rule.
pub fn glimpse<'b>(bytes: &'b [u8], lines: &mut Lines<'b>, limits: Limits) -> Glimpse<'b> {
    lines.clear();
    let end = memchr::memchr(b'\n', bytes).map(|at| at + 1);
    let first = &bytes[..end.unwrap_or(bytes.len())];
    let method = line::token_length(first);
    if method == 0 || first.get(method) != Some(&b' ') {
        return Glimpse::default();
    }
    let (method, rest) = (&first[..method], &first[method + 1..]);
    let length = rest.iter().position(|byte| !is_target_byte(*byte));
    let length = length.unwrap_or(rest.len()).min(limits.target_bytes_max);
    if let Some(end) = end {
        // What is wrong with them is known already.
        let _ = line::read(bytes, end, lines, limits.headers_max);
    }
    let mut hosts = lines.iter().filter(|line| line.field == Field::Host);
    let host = hosts.next().map(|line| line.value);
    let host = host.filter(|host| hosts.next().is_none() && field::is_authority(host));
    let (target, absolute) =
        split_target(method, &rest[..length]).unwrap_or((&rest[..length], None));
    Glimpse {
        method,
        target,
        authority: absolute.or(host).unwrap_or_default(),
        is_old: first.ends_with(b" HTTP/1.0\r\n"),
    }
}

/// `method SP request-target SP HTTP-version CRLF` (RFC 9112 §3).
struct StartLine<'b> {
    method: &'b [u8],
    target: &'b [u8],
    version: Version,
    length: usize,
}

impl<'b> StartLine<'b> {
    fn read(bytes: &'b [u8], target_bytes_max: usize) -> Result<Option<Self>, HeadError> {
        let method = line::token_length(bytes);
        match bytes.get(method) {
            None => return Ok(None),
            Some(b' ') if method > 0 => {}
            Some(_) => return Err(HeadError::StartLine),
        }
        let from = method + 1;
        let length = bytes[from..].iter().position(|byte| !is_target_byte(*byte));
        let length = length.unwrap_or(bytes.len() - from);
        if length > target_bytes_max {
            return Err(HeadError::TargetTooLong);
        }
        let to = from + length;
        match bytes.get(to) {
            None => return Ok(None),
            Some(b' ') if length > 0 => {}
            Some(b'#' | b'<' | b'>' | b'`' | 0x80..) => return Err(HeadError::Target),
            Some(_) => return Err(HeadError::StartLine),
        }
        let rest = &bytes[to..];
        let (version, length) = match rest.first_chunk::<11>() {
            Some(b" HTTP/1.1\r\n") => (Version::Http11, 11),
            Some(b" HTTP/1.0\r\n") => (Version::Http10, 11),
            _ => match memchr::memchr(b'\n', rest) {
                None => return Ok(None),
                Some(end) => return Err(version_error(&rest[1..end])),
            },
        };
        Ok(Some(Self {
            method: &bytes[..method],
            target: &bytes[from..to],
            version,
            length: to + length,
        }))
    }
}

/// Visible ASCII without `#`: a fragment is never sent (RFC 9112 §3.2). Nor are `<`, `>` and the backquote, which no URI
/// holds (RFC 3986): the library of HTTP/2 refuses them, and a target must not depend on the protocol that it comes by.
pub fn is_target_byte(byte: u8) -> bool {
    (0x21..=0x7e).contains(&byte) && !matches!(byte, b'#' | b'<' | b'>' | b'`')
}

/// What is wrong with the last word of a start line, given without its LF.
fn version_error(word: &[u8]) -> HeadError {
    match word {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, b'\r']
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            HeadError::Version
        }
        [.., b'\r'] => HeadError::StartLine,
        _ => HeadError::BareLf,
    }
}

/// The target in origin form, and the authority of an absolute one (RFC 9112 §3.2).
fn split_target<'b>(
    method: &[u8],
    target: &'b [u8],
) -> Result<(&'b [u8], Option<&'b [u8]>), HeadError> {
    if target.starts_with(b"/") || (target == b"*" && method == b"OPTIONS") {
        return Ok((target, None));
    }
    let scheme = memchr::memmem::find(target, b"://").ok_or(HeadError::Target)?;
    if !target[..scheme].eq_ignore_ascii_case(b"http")
        && !target[..scheme].eq_ignore_ascii_case(b"https")
    {
        return Err(HeadError::Target);
    }
    let rest = &target[scheme + 3..];
    let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if !field::is_authority(authority) {
        return Err(HeadError::Target);
    }
    match path {
        b"" if method == b"OPTIONS" => Ok((b"*", Some(authority))),
        b"" => Ok((b"/", Some(authority))),
        path if path.starts_with(b"/") => Ok((path, Some(authority))),
        _ => Err(HeadError::Target),
    }
}

/// What the field lines come to.
struct Fields<'b> {
    host: Option<&'b [u8]>,
    framing: Framing,
    expect_continue: bool,
    options: Options,
}

impl<'b> Fields<'b> {
    fn read(lines: &[Line<'b>], version: Version) -> Result<Self, HeadError> {
        let mut host = None;
        let mut expect_continue = false;
        let mut options = Options::default();
        let mut body = BodyFields::default();
        for line in lines {
            match line.field {
                Field::Other => {}
                Field::Host if host.is_some() => return Err(HeadError::HostRepeated),
                Field::Host if !field::is_authority(line.value) => {
                    return Err(HeadError::HostMalformed);
                }
                Field::Host => host = Some(line.value),
                Field::Connection => options.note(line.value)?,
                Field::Expect
                    if !line.value.eq_ignore_ascii_case(b"100-continue") || expect_continue =>
                {
                    return Err(HeadError::Expectation);
                }
                Field::Expect => expect_continue = true,
                field => body.note(field, line.value)?,
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
