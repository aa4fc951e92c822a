//! Response heads.

use super::field::{self, Field};
use super::request::{BodyFields, ConnectionOptions};
use super::{Framing, HeadError, Version};
use httparse::Header;
use std::mem::MaybeUninit;

/// A parsed and checked response head.
#[derive(Debug)]
pub struct ResponseHead<'h, 'b> {
    /// 100 to 599.
    pub status: u16,
    /// Reason phrase; may be empty.
    pub reason: &'b str,
    /// Version.
    pub version: Version,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the backend keeps the connection.
    pub keep_alive: bool,
    /// All fields, in order.
    pub headers: &'h [Header<'b>],
    /// What `Connection` lists.
    pub options: ConnectionOptions<'b>,
}

/// Parses a whole head. `to_head`: the request was HEAD, so there is no body whatever the fields say.
///
/// # Errors
/// The first rule that the head breaks: such a response is not passed on.
pub fn parse<'h, 'b>(
    bytes: &'b [u8],
    storage: &'h mut [MaybeUninit<Header<'b>>],
    to_head: bool,
) -> Result<ResponseHead<'h, 'b>, HeadError> {
    let mut response = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut response, bytes, storage)
        .map_err(|error| match error {
            httparse::Error::TooManyHeaders => HeadError::TooManyFields,
            httparse::Error::Version => HeadError::Version,
            httparse::Error::Status | httparse::Error::Token | httparse::Error::NewLine => {
                HeadError::StartLine
            }
            _ => HeadError::Field,
        })?;
    if status.is_partial() {
        return Err(HeadError::StartLine);
    }
    let (Some(code), Some(reason), Some(minor)) =
        (response.code, response.reason, response.version)
    else {
        return Err(HeadError::StartLine);
    };
    if !(100..600).contains(&code) {
        return Err(HeadError::Status);
    }
    let version = if minor == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
    let mut options = ConnectionOptions::new();
    let mut body = BodyFields::default();
    for header in &*response.headers {
        match field::classify(header.name.as_bytes()) {
            Field::Connection => options.add(header.value)?,
            field => body.note(field, header.value)?,
        }
    }
    let declared = body.framing(version)?;
    let framing = if to_head || code < 200 || code == 204 || code == 304 {
        Framing::None
    } else {
        declared.unwrap_or(Framing::UntilClose)
    };
    let keep_alive = options.keeps(version) && framing != Framing::UntilClose;
    Ok(ResponseHead {
        status: code,
        reason,
        version,
        framing,
        keep_alive,
        headers: response.headers,
        options,
    })
}
