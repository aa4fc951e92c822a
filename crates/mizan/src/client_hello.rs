//! The first message of a TLS client, read without taking part in the handshake: bytes in, names out, no I/O.
//!
//! A listener that passes TLS through unopened picks a pool by the server name (SNI, RFC 6066 §3) in it. Records may
//! split the message anywhere (RFC 8446 §5.1), so its fragments are joined first. Nothing is judged but what is needed
//! to find the two extensions; the backend judges the rest. An encrypted hello shows its outer name.

use std::borrow::Cow;
use thiserror::Error;

/// Longest message that is read, its four bytes of header included.
pub const HELLO_BYTES_MAX: usize = 16 << 10;
/// Most bytes of records that such a message may take: empty records and tiny ones are for wasting time.
pub const RECORDS_BYTES_MAX: usize = 2 * HELLO_BYTES_MAX;

const RECORD_HEADER: usize = 5;
/// Longest content of a record in the clear (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
/// Longest name of a host (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// What a client says before anything is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The host that it wants, lower case; `None` if it names none.
    pub server_name: Option<String>,
    /// Protocols that it offers, the preferred first (RFC 7301 §3.1).
    pub alpn: Vec<Vec<u8>>,
}

/// Why there is no message to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HelloError {
    /// The bytes do not begin as TLS.
    #[error("it is not TLS")]
    NotTls,
    /// Longer than [`HELLO_BYTES_MAX`], or in more records than anyone needs.
    #[error("it is longer than 16 KiB")]
    TooLong,
    /// A length leads out of what holds it, or an extension is there twice.
    #[error("it is malformed")]
    Malformed,
    /// The server name is empty, too long, or has bytes that no host's name has.
    #[error("its server name is none")]
    ServerName,
}

impl HelloError {
    /// Code for the access log.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotTls => "not_tls",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::ServerName => "server_name",
        }
    }
}

/// Reads the message at the start of `bytes`; `None` if it is not whole yet.
///
/// # Errors
/// Why it never will be.
pub fn parse(bytes: &[u8]) -> Result<Option<ClientHello>, HelloError> {
    let Some(message) = message(bytes)? else {
        return Ok(None);
    };
    let mut body = Reader(&message);
    body.take(4)?;
    hello(&mut body).map(Some)
}

/// The handshake message, header included, joined from its records.
fn message(bytes: &[u8]) -> Result<Option<Cow<'_, [u8]>>, HelloError> {
    let mut joined: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    let mut rest = bytes;
    loop {
        begins_as_tls(rest)?;
        let Some((header, behind)) = rest.split_at_checked(RECORD_HEADER) else {
            return unfinished(bytes);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > RECORD_BYTES_MAX {
            return Err(HelloError::Malformed);
        }
        let there = &behind[..length.min(behind.len())];
        if joined.is_empty() {
            joined = Cow::Borrowed(there);
        } else {
            joined.to_mut().extend_from_slice(there);
        }
        if let Some(whole) = whole_length(&joined)?
            && joined.len() >= whole
        {
            return Ok(Some(match joined {
                Cow::Borrowed(message) => Cow::Borrowed(&message[..whole]),
                Cow::Owned(mut message) => {
                    message.truncate(whole);
                    Cow::Owned(message)
                }
            }));
        }
        if there.len() < length {
            return unfinished(bytes);
        }
        rest = &behind[length..];
    }
}

/// More is to come, if there is a point in waiting for it.
fn unfinished<T>(bytes: &[u8]) -> Result<Option<T>, HelloError> {
    if bytes.len() >= RECORDS_BYTES_MAX {
        Err(HelloError::TooLong)
    } else {
        Ok(None)
    }
}

/// A record's type and major version, as far as they are there. TLS 1.0 to 1.3 say 3 (RFC 8446 §5.1).
fn begins_as_tls(bytes: &[u8]) -> Result<(), HelloError> {
    let is_handshake = bytes.first().is_none_or(|kind| *kind == HANDSHAKE_RECORD);
    let is_tls = bytes.get(1).is_none_or(|major| *major == 3);
    if is_handshake && is_tls {
        Ok(())
    } else {
        Err(HelloError::NotTls)
    }
}

/// The length of the message that begins with `bytes`, header included; `None` if that is not there yet.
fn whole_length(bytes: &[u8]) -> Result<Option<usize>, HelloError> {
    if bytes.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(HelloError::NotTls);
    }
    let Some(&[_, high, middle, low]) = bytes.get(..4) else {
        return Ok(None);
    };
    let length = 4 + (usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low));
    if length > HELLO_BYTES_MAX {
        return Err(HelloError::TooLong);
    }
    Ok(Some(length))
}

/// Everything behind the message's header (RFC 8446 §4.1.2).
fn hello(body: &mut Reader<'_>) -> Result<ClientHello, HelloError> {
    // Version and random.
    body.take(2 + 32)?;
    let session = body.u8()?;
    body.take(usize::from(session))?;
    // Cipher suites, then compression methods.
    let suites = body.u16()?;
    body.take(usize::from(suites))?;
    let methods = body.u8()?;
    body.take(usize::from(methods))?;
    let mut found = ClientHello::default();
    if body.0.is_empty() {
        // TLS 1.2 without extensions.
        return Ok(found);
    }
    let mut extensions = body.vector()?;
    if !body.0.is_empty() {
        return Err(HelloError::Malformed);
    }
    let (mut has_name, mut has_alpn) = (false, false);
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let data = extensions.vector()?;
        let seen = match kind {
            SERVER_NAME => &mut has_name,
            ALPN => &mut has_alpn,
            _ => continue,
        };
        if std::mem::replace(seen, true) {
            return Err(HelloError::Malformed);
        }
        if kind == SERVER_NAME {
            found.server_name = server_name(data)?;
        } else {
            found.alpn = alpn(data)?;
        }
    }
    Ok(found)
}

/// RFC 6066 §3: a list with at most one name of each type, of which there is one.
fn server_name(mut data: Reader<'_>) -> Result<Option<String>, HelloError> {
    let mut list = data.vector()?;
    let kind = list.u8()?;
    let name = list.vector()?.0;
    if kind != 0 || !list.0.is_empty() || !data.0.is_empty() {
        return Err(HelloError::Malformed);
    }
    // Some clients send an address against the RFC; it matches no name, and that is all.
    let is_of_hosts = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:".contains(byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.iter().all(is_of_hosts) {
        return Err(HelloError::ServerName);
    }
    let text = String::from_utf8_lossy(name).to_ascii_lowercase();
    Ok(Some(text))
}

/// RFC 7301 §3.1.
fn alpn(mut data: Reader<'_>) -> Result<Vec<Vec<u8>>, HelloError> {
    let mut list = data.vector()?;
    if list.0.is_empty() || !data.0.is_empty() {
        return Err(HelloError::Malformed);
    }
    let mut names = Vec::new();
    while !list.0.is_empty() {
        let length = list.u8()?;
        if length == 0 {
            return Err(HelloError::Malformed);
        }
        names.push(list.take(usize::from(length))?.to_vec());
    }
    Ok(names)
}

/// What is left to read.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], HelloError> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, HelloError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, HelloError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// What stands behind a length of two bytes.
    fn vector(&mut self) -> Result<Self, HelloError> {
        let length = self.u16()?;
        self.take(usize::from(length)).map(Self)
    }
}

#[cfg(test)]
mod tests;
