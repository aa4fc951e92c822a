//! A second reader of HTTP/1 messages, strict to the letter and with no thought of speed.
//!
//! It knows two things: what a message means (RFC 9112 §6), and that anything which another reader could take for
//! something else is an error. It is not the product's code, nor a library that the product uses.

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Neither field is there.
    Undeclared,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// A head: the three words of its first line, and its fields.
#[derive(Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Method or version.
    pub first: &'a [u8],
    /// Target or status.
    pub second: &'a [u8],
    /// Version or reason.
    pub third: &'a [u8],
    /// (name, value without white space around it), in order.
    pub fields: Vec<(&'a [u8], &'a [u8])>,
    /// What the fields say of the body.
    pub body: Body,
}

impl<'a> Head<'a> {
    /// The values of all fields of this name.
    pub fn all(&self, name: &str) -> Vec<&'a [u8]> {
        let same = |field: &&(&[u8], &[u8])| field.0.eq_ignore_ascii_case(name.as_bytes());
        self.fields
            .iter()
            .filter(same)
            .map(|field| field.1)
            .collect()
    }
}

/// A head that is whole: it ends with its empty line.
///
/// # Errors
/// What is wrong.
pub fn head(bytes: &[u8]) -> Result<Head<'_>, &'static str> {
    let bytes = bytes
        .strip_suffix(b"\r\n\r\n")
        .ok_or("no empty line at the end")?;
    let lines = lines(bytes)?;
    let (start, rest) = lines.split_first().ok_or("no start line")?;
    let space = position(start, b' ').ok_or("one word in the start line")?;
    let (first, tail) = (&start[..space], &start[space + 1..]);
    // A status line may end behind its code, with or without a space.
    let space = position(tail, b' ').unwrap_or(tail.len());
    let (second, third) = (&tail[..space], tail.get(space + 1..).unwrap_or_default());
    if second.is_empty() || second.iter().any(|byte| !(0x21..=0x7e).contains(byte)) {
        return Err("second word of the start line");
    }
    let fields = rest
        .iter()
        .map(|line| field(line))
        .collect::<Result<Vec<_>, _>>()?;
    let body = body(&fields)?;
    Ok(Head {
        first,
        second,
        third,
        fields,
        body,
    })
}

/// Lines, split at CRLF; CR, LF and NUL anywhere else are errors.
fn lines(bytes: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    loop {
        let Some(end) = rest
            .iter()
            .position(|byte| matches!(byte, b'\r' | b'\n' | 0))
        else {
            lines.push(rest);
            return Ok(lines);
        };
        if !rest[end..].starts_with(b"\r\n") {
            return Err("a CR, LF or NUL that ends no line");
        }
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
}

/// `name ":" value`.
///
/// # Errors
/// What is wrong.
pub fn field(line: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let colon = position(line, b':').ok_or("a field without a colon")?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err("a field name that is no token");
    }
    if value
        .iter()
        .any(|byte| *byte == 0x7f || (*byte < 0x20 && *byte != b'\t'))
    {
        return Err("a control byte in a field value");
    }
    Ok((name, trim(value)))
}

fn body(fields: &[(&[u8], &[u8])]) -> Result<Body, &'static str> {
    let mut body = Body::Undeclared;
    for (name, value) in fields {
        // A reader that folds `_` into `-` must not see what we do not.
        let name: Vec<u8> = name
            .iter()
            .map(|byte| {
                if *byte == b'_' {
                    b'-'
                } else {
                    byte.to_ascii_lowercase()
                }
            })
            .collect();
        let found = match name.as_slice() {
            b"content-length" => Body::Length(number(value).ok_or("Content-Length is no number")?),
            b"transfer-encoding" if value.eq_ignore_ascii_case(b"chunked") => Body::Chunked,
            b"transfer-encoding" => return Err("a transfer coding that is not chunked"),
            _ => continue,
        };
        if body != Body::Undeclared {
            return Err("the body is declared twice");
        }
        body = found;
    }
    Ok(body)
}

/// Content, trailers and length of a chunked body at the start of `bytes`; `None` if it is not whole.
pub type ChunkedBody = Option<(Vec<u8>, usize)>;

/// Reads a chunked body.
///
/// # Errors
/// What is wrong.
pub fn chunked(bytes: &[u8]) -> Result<ChunkedBody, &'static str> {
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let Some(line) = line_at(bytes, at)? else {
            return Ok(None);
        };
        at += line.len() + 2;
        let size = &line[..position(line, b';').unwrap_or(line.len())];
        let size = std::str::from_utf8(size).map_err(|_| "a chunk size that is no number")?;
        if size.is_empty() || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("a chunk size that is no number");
        }
        if !quotes_close(line) {
            return Err("a quoted extension that its line does not end");
        }
        let size = usize::from_str_radix(size, 16).map_err(|_| "a chunk size beyond 64 bits")?;
        if size == 0 {
            break;
        }
        let Some(end) = at.checked_add(size).filter(|end| *end <= bytes.len()) else {
            return Ok(None);
        };
        content.extend_from_slice(&bytes[at..end]);
        match bytes.get(end..end + 2) {
            Some(b"\r\n") => at = end + 2,
            Some(_) => return Err("no line end behind a chunk"),
            None => return Ok(None),
        }
    }
    loop {
        let Some(line) = line_at(bytes, at)? else {
            return Ok(None);
        };
        at += line.len() + 2;
        if line.is_empty() {
            return Ok(Some((content, at)));
        }
        let (name, _) = field(line)?;
        let frames = [
            "content-length",
            "transfer-encoding",
            "host",
            "connection",
            "trailer",
            "te",
            "upgrade",
        ];
        if frames
            .iter()
            .any(|frame| name.eq_ignore_ascii_case(frame.as_bytes()))
        {
            return Err("a trailer that frames or routes");
        }
    }
}

/// Whether every quoted string (RFC 9110 §5.6.4) of a line ends in it: a reader that honours quotes would look for
/// the end of an open one in the bytes behind.
fn quotes_close(line: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    !quoted
}

/// The line at `at` without its CRLF; `None` if that is not there.
fn line_at(bytes: &[u8], at: usize) -> Result<Option<&[u8]>, &'static str> {
    let rest = &bytes[at..];
    let Some(end) = rest
        .iter()
        .position(|byte| *byte < 0x20 && *byte != b'\t' || *byte == 0x7f)
    else {
        return Ok(None);
    };
    match rest.get(end..end + 2) {
        Some(b"\r\n") => Ok(Some(&rest[..end])),
        None if rest[end] == b'\r' => Ok(None),
        _ => Err("a control byte in a line"),
    }
}

fn position(bytes: &[u8], byte: u8) -> Option<usize> {
    bytes.iter().position(|other| *other == byte)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn trim(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let from = value
        .iter()
        .position(|byte| !blank(byte))
        .unwrap_or(value.len());
    let to = value
        .iter()
        .rposition(|byte| !blank(byte))
        .map_or(from, |at| at + 1);
    &value[from..to]
}

fn number(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value)
        .ok()
        .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}
