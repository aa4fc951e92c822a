//! The path that routes are matched on.
//!
//! Two spellings of one path must meet the same route, or an access rule on a route could be walked
//! around. Only what RFC 3986 calls equivalent is folded together; what a backend might or might not
//! fold (an encoded slash, a backslash, a NUL) is reported, so that a route has to accept it by name.
//! The original is what is forwarded.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

/// A path in normal form (RFC 3986 §6.2.2): unreserved characters decoded, the hex digits of other
/// encodings in upper case, dot segments removed (§5.2.4), the empty path as `/`. ASCII only.
///
/// Empty segments (`//`) and a trailing slash are kept: they are part of the path's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalPath<'a>(Cow<'a, str>);

/// What is wrong, or odd, with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// `%2F`: some backends take it for a separator.
    #[error("the path has an encoded slash (%2F)")]
    EncodedSlash,
    /// `\` or `%5C`: some backends take it for a separator.
    #[error("the path has a backslash")]
    Backslash,
    /// `%00`: some backends end the path there.
    #[error("the path has a NUL (%00)")]
    Nul,
    /// A `%` without two hex digits behind it.
    #[error("the path has a % without two hex digits")]
    BadEncoding,
    /// A byte beyond ASCII, which RFC 3986 wants encoded.
    #[error("the path has a byte that is not ASCII")]
    NotAscii,
}

impl<'a> NormalPath<'a> {
    /// The normal form of `raw`, a request target's path. A query (from the first `?` on) is not part
    /// of the path and is left out. Allocates only where something has to change.
    ///
    /// Beside the path comes the first oddity in it ([`PathError::EncodedSlash`],
    /// [`PathError::Backslash`] or [`PathError::Nul`]): 400 unless the route lets it through.
    ///
    /// # Errors
    /// [`PathError::BadEncoding`] and [`PathError::NotAscii`]: no route can accept these.
    pub fn parse(raw: &'a [u8]) -> Result<(Self, Option<PathError>), PathError> {
        let mut end = raw.len();
        let mut plain = true;
        let mut previous = 0;
        for (at, &byte) in raw.iter().enumerate() {
            match CLASS[byte as usize] {
                PLAIN => {}
                DOT => plain &= previous != b'/' || !ends_segment_of_dots(&raw[at..]),
                QUERY => {
                    end = at;
                    break;
                }
                _ => plain = false,
            }
            previous = byte;
        }
        let raw = &raw[..end];
        if raw.is_empty() {
            return Ok((Self(Cow::Borrowed("/")), None));
        }
        if plain {
            let path = std::str::from_utf8(raw).map_err(|_| PathError::NotAscii)?;
            return Ok((Self(Cow::Borrowed(path)), None));
        }
        let (decoded, odd) = decode_unreserved(raw)?;
        Ok((Self(Cow::Owned(remove_dot_segments(decoded))), odd))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Decodes unreserved characters and puts the digits of all other encodings into upper case.
fn decode_unreserved(raw: &[u8]) -> Result<(String, Option<PathError>), PathError> {
    let mut decoded = String::with_capacity(raw.len());
    let mut odd = None;
    let mut rest = raw;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        let seen = match *byte {
            b'%' => {
                let ([high, low], tail) = rest
                    .split_first_chunk::<2>()
                    .ok_or(PathError::BadEncoding)?;
                rest = tail;
                let value = hex_value(*high)? << 4 | hex_value(*low)?;
                if is_unreserved(value) {
                    decoded.push(char::from(value));
                } else {
                    decoded.push('%');
                    decoded.push(char::from(high.to_ascii_uppercase()));
                    decoded.push(char::from(low.to_ascii_uppercase()));
                }
                (value == b'/')
                    .then_some(PathError::EncodedSlash)
                    .or_else(|| oddity(value))
            }
            byte if !byte.is_ascii() => return Err(PathError::NotAscii),
            byte => {
                decoded.push(char::from(byte));
                oddity(byte)
            }
        };
        odd = odd.or(seen);
    }
    Ok((decoded, odd))
}

/// What is odd about a character whether it came encoded or not.
fn oddity(byte: u8) -> Option<PathError> {
    match byte {
        b'\\' => Some(PathError::Backslash),
        0 => Some(PathError::Nul),
        _ => None,
    }
}

/// RFC 3986 §5.2.4 for an absolute path; anything else (`*`) stays as it is.
fn remove_dot_segments(path: String) -> String {
    let Some(segments) = path.strip_prefix('/') else {
        return path;
    };
    let mut out = String::with_capacity(path.len());
    let mut segments = segments.split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_dots = segment == "." || segment == "..";
        if segment == ".." {
            out.truncate(out.rfind('/').unwrap_or(0));
        }
        if !is_dots {
            out.push('/');
            out.push_str(segment);
        } else if segments.peek().is_none() {
            out.push('/');
        }
    }
    out
}

/// Whether `rest`, which begins with the first dot of a segment, begins with a whole `.` or `..` segment.
fn ends_segment_of_dots(rest: &[u8]) -> bool {
    let behind = rest.strip_prefix(b"..").or_else(|| rest.strip_prefix(b"."));
    matches!(behind, Some([] | [b'/' | b'?' | b'%', ..]))
}

fn hex_value(digit: u8) -> Result<u8, PathError> {
    char::from(digit)
        .to_digit(16)
        .map(|value| value as u8)
        .ok_or(PathError::BadEncoding)
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

const PLAIN: u8 = 0;
const DOT: u8 = 1;
const QUERY: u8 = 2;
const ODD: u8 = 3;

/// What a byte means to the scan: most are plain, and cost one look-up.
static CLASS: [u8; 256] = {
    let mut class = [PLAIN; 256];
    class[b'.' as usize] = DOT;
    class[b'?' as usize] = QUERY;
    class[b'%' as usize] = ODD;
    class[b'\\' as usize] = ODD;
    class[0] = ODD;
    let mut byte = 128;
    while byte < 256 {
        class[byte] = ODD;
        byte += 1;
    }
    class
};
