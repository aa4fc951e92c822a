//! Response heads.

use super::field::Field;
use super::line::{self, Line, Lines, Options};
use super::request::BodyFields;
use super::{FIELDS_MAX, Framing, HeadError, Version};

/// A parsed and checked response head.
#[derive(Debug)]
pub struct ResponseHead<'h, 'b> {
    /// The head's bytes, start line and empty line included.
    pub bytes: &'b [u8],
    /// 100 to 599.
    pub status: u16,
    /// Reason phrase; may be empty.
    pub reason: &'b [u8],
    /// Version.
    pub version: Version,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the backend keeps the connection.
    pub keep_alive: bool,
    /// All fields, in order.
    pub lines: &'h [Line<'b>],
    options: Options,
}

impl ResponseHead<'_, '_> {
    /// Whether `Connection` lists the field `name`, which then is for this hop only.
    pub fn is_listed(&self, name: &[u8]) -> bool {
        self.options.lists(self.lines, name)
    }

    /// Whether the answer is still to come behind it: 1xx but 101, with which the protocol changes (RFC 9110 §15.2).
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// The one protocol that the backend changes to, if it says so in both fields.
    pub fn upgrade(&self) -> Option<&[u8]> {
        let mut lines = self
            .lines
            .iter()
            .filter(|line| line.field == Field::Upgrade);
        let line = lines.next()?;
        (lines.next().is_none() && self.is_listed(b"upgrade")).then_some(line.value)
    }
}

/// Whether `bytes` are the beginning of HTTP/2: a SETTINGS frame, with which its servers begin (RFC 9113 §3.4).
pub fn is_http2(bytes: &[u8]) -> bool {
    matches!(bytes, [0, 0, _, 4, 0 | 1, 0, 0, 0, 0, ..])
}

/// Parses the head that `bytes` begin with; `None` while it is not whole. `to_head`: the request was HEAD, so there
/// is no body whatever the fields say.
///
/// # Errors
/// The first rule that the head breaks: such a response is not passed on.
pub fn parse<'h, 'b>(
    bytes: &'b [u8],
    lines: &'h mut Lines<'b>,
    to_head: bool,
) -> Result<Option<ResponseHead<'h, 'b>>, HeadError> {
    let Some(start) = StatusLine::read(bytes)? else {
        return Ok(None);
    };
    let Some(length) = line::read(bytes, start.length, lines, FIELDS_MAX)? else {
        return Ok(None);
    };
    let (code, version) = (start.code, start.version);
    let mut options = Options::default();
    let mut body = BodyFields::default();
    for line in &*lines {
        match line.field {
            Field::Other => {}
            Field::Connection => options.note(line.value)?,
            field => body.note(field, line.value)?,
        }
    }
    let declared = body.framing(version)?;
    let framing = if to_head || code < 200 || code == 204 || code == 304 {
        Framing::None
    } else {
        declared.unwrap_or(Framing::UntilClose)
    };
    let keep_alive = options.keeps(version) && framing != Framing::UntilClose;
    Ok(Some(ResponseHead {
        bytes: &bytes[..length],
        status: code,
        reason: start.reason,
        version,
        framing,
        keep_alive,
        lines,
        options,
    }))
}

/// `HTTP-version SP status-code SP [ reason-phrase ] CRLF` (RFC 9112 §4); the second SP may be missing where no
/// phrase follows, as many servers have it.
struct StatusLine<'b> {
    version: Version,
    code: u16,
    reason: &'b [u8],
    length: usize,
}

impl<'b> StatusLine<'b> {
    fn read(bytes: &'b [u8]) -> Result<Option<Self>, HeadError> {
        const BEGIN: &[u8] = b"HTTP/1.";
        let begin = &bytes[..bytes.len().min(BEGIN.len())];
        if !BEGIN.starts_with(begin) {
            return Err(if begin.starts_with(b"HTTP/") {
                HeadError::Version
            } else {
                HeadError::StartLine
            });
        }
        let [.., minor, space, a, b, c, after] = match bytes.first_chunk::<13>() {
            Some(first) => first,
            None if bytes.contains(&b'\n') => return Err(HeadError::StartLine),
            None => return Ok(None),
        };
        let version = match minor {
            b'0' => Version::Http10,
            b'1' => Version::Http11,
            _ => return Err(HeadError::Version),
        };
        let digits = [a, b, c];
        if *space != b' ' || !digits.iter().all(|digit| digit.is_ascii_digit()) {
            return Err(HeadError::StartLine);
        }
        let reason_at = match after {
            b' ' => 13,
            b'\r' => 12,
            b'\n' => return Err(HeadError::BareLf),
            _ => return Err(HeadError::StartLine),
        };
        let code = digits
            .iter()
            .fold(0, |sum, digit| sum * 10 + u16::from(**digit - b'0'));
        if !(100..600).contains(&code) {
            return Err(HeadError::Status);
        }
        Ok(line::line_end(bytes, reason_at)?.map(|end| Self {
            version,
            code,
            reason: &bytes[reason_at..end],
            length: end + 2,
        }))
    }
}
