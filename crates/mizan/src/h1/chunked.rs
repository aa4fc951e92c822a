//! The chunked coding (RFC 9112 §7.1), checked byte by byte and never re-assembled: the relay forwards
//! the very bytes that passed.

use super::field::{self, Field};
use std::sync::Arc;

/// Longest chunk-size line, with its extensions.
const LINE_MAX: u32 = 256;
/// Extension bytes in one body.
const EXTENSIONS_MAX: u32 = 4096;
/// Longest trailer section, but for its last line.
pub const TRAILERS_MAX: usize = 8190;
/// Longest trailer name that is compared with the forbidden ones.
const NAME_MAX: usize = 64;

/// Why a chunked body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// Not `1*HEXDIG` of at most 15 digits.
    #[error("malformed chunk size")]
    Size,
    /// A forbidden byte in an extension, or more extensions than 4 KiB.
    #[error("malformed or oversized chunk extension")]
    Extension,
    /// A line end that is not CRLF.
    #[error("malformed line end in a chunked body")]
    LineEnd,
    /// A malformed, forbidden (RFC 9110 §6.5.1) or oversized trailer field.
    #[error("malformed or forbidden trailer field")]
    Trailer,
    /// More trailer fields than HTTP/2 is sent.
    #[error("too many trailer fields")]
    TooManyTrailers,
    /// A body in base64 that is none.
    #[error("malformed or incomplete base64")]
    Base64,
}

impl ChunkError {
    /// The broken rule, for logs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Size => "chunk_size",
            Self::Extension => "chunk_extension",
            Self::LineEnd => "chunk_line_end",
            Self::Trailer => "trailer",
            Self::TooManyTrailers => "too_many_trailers",
            Self::Base64 => "base64",
        }
    }
}

/// What the next bytes of a chunked body are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// This many bytes of framing or trailers.
    Framing(usize),
    /// This many bytes of content.
    Data(usize),
    /// The body has ended; nothing was consumed by this call.
    End,
}

/// ```text
///  Size ──;──▶ Extension          ┌────────────┐
///   │ CR          │ CR            ▼            │
///   └──▶ SizeLf ◀─┘   size>0 ──▶ Data ▶ DataCr ▶ DataLf ──▶ Size
///          │ size = 0
///          ▼
///   TrailerStart ──name──▶ TrailerName ──:──▶ TrailerValue ──CR──▶ TrailerLf ──▶ TrailerStart
///          │ CR
///          ▼
///        LastLf ──LF──▶ End
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
    End,
}

/// A decoder of one body.
#[derive(Clone, Debug)]
pub struct Chunked {
    state: State,
    /// Size being read, then data left of the chunk.
    size: u64,
    digits: u8,
    line: u32,
    extensions: u32,
    trailers: u32,
    name: [u8; NAME_MAX],
    name_length: u8,
    quoted: bool,
    /// The last byte was a backslash in a quoted string (RFC 9110 §5.6.4).
    escaped: bool,
    /// Further names that no trailer may have, in lower case; however a trailer spells them.
    reserved: Option<Arc<[Box<str>]>>,
}

impl Default for Chunked {
    fn default() -> Self {
        Self {
            state: State::Size,
            size: 0,
            digits: 0,
            line: 0,
            extensions: 0,
            trailers: 0,
            name: [0; NAME_MAX],
            name_length: 0,
            quoted: false,
            escaped: false,
            reserved: None,
        }
    }
}

impl Chunked {
    /// One that refuses trailers with these names (in lower case), too.
    pub fn refusing(reserved: &Arc<[Box<str>]>) -> Self {
        Self {
            reserved: Some(Arc::clone(reserved)),
            ..Self::default()
        }
    }

    /// Whether the whole body has been read.
    pub fn is_ended(&self) -> bool {
        self.state == State::End
    }

    /// The next piece at the start of `input`, which is not empty.
    ///
    /// # Errors
    /// The rule that the bytes break; the decoder is of no use then.
    pub fn next(&mut self, input: &[u8]) -> Result<Piece, ChunkError> {
        match self.state {
            State::End => Ok(Piece::End),
            State::Data => {
                let length = usize::try_from(self.size)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                self.size -= length as u64;
                if self.size == 0 {
                    self.state = State::DataCr;
                }
                Ok(Piece::Data(length))
            }
            _ => {
                for (at, byte) in input.iter().enumerate() {
                    self.framing(*byte)?;
                    if matches!(self.state, State::Data | State::End) {
                        return Ok(Piece::Framing(at + 1));
                    }
                }
                Ok(Piece::Framing(input.len()))
            }
        }
    }

    /// Takes all pieces of `input` up to the end of the body: how many bytes, and how many of them content.
    ///
    /// # Errors
    /// As [`Chunked::next`].
    pub fn advance(&mut self, input: &[u8]) -> Result<(usize, u64), ChunkError> {
        let (mut taken, mut content) = (0, 0);
        while taken < input.len() {
            match self.next(&input[taken..])? {
                Piece::End => break,
                Piece::Framing(length) => taken += length,
                Piece::Data(length) => {
                    taken += length;
                    content += length as u64;
                }
            }
        }
        Ok((taken, content))
    }

    fn framing(&mut self, byte: u8) -> Result<(), ChunkError> {
        match self.state {
            State::Size | State::Extension | State::SizeLf => self.size_line(byte),
            State::DataCr => self.expect(byte, b'\r', State::DataLf),
            State::DataLf => {
                (self.size, self.digits, self.line) = (0, 0, 0);
                self.expect(byte, b'\n', State::Size)
            }
            _ => self.trailer(byte),
        }
    }

    fn expect(&mut self, byte: u8, wanted: u8, then: State) -> Result<(), ChunkError> {
        if byte != wanted {
            return Err(ChunkError::LineEnd);
        }
        self.state = then;
        Ok(())
    }

    fn size_line(&mut self, byte: u8) -> Result<(), ChunkError> {
        self.line += 1;
        if self.line > LINE_MAX {
            return Err(ChunkError::Extension);
        }
        match (self.state, byte) {
            (State::Size, b'\r') if self.digits > 0 => self.state = State::SizeLf,
            (State::Size, b';') if self.digits > 0 => {
                self.state = State::Extension;
                self.quoted = false;
            }
            (State::Size, _) => {
                let digit = char::from(byte).to_digit(16).ok_or(ChunkError::Size)?;
                self.digits += 1;
                // 15 digits: below 2^60, so that no sum of sizes can overflow.
                if self.digits > 15 {
                    return Err(ChunkError::Size);
                }
                self.size = self.size << 4 | u64::from(digit);
            }
            (State::Extension, b'\r') if !self.quoted => self.state = State::SizeLf,
            (State::Extension, _) => {
                self.extensions += 1;
                let allowed = byte == b'\t' || (0x20..0x7f).contains(&byte) || byte >= 0x80;
                if !allowed || self.extensions > EXTENSIONS_MAX {
                    return Err(ChunkError::Extension);
                }
                self.quoted ^= byte == b'"' && !self.escaped;
                self.escaped = self.quoted && byte == b'\\' && !self.escaped;
            }
            (State::SizeLf, b'\n') => {
                self.state = if self.size == 0 {
                    State::TrailerStart
                } else {
                    State::Data
                }
            }
            _ => return Err(ChunkError::LineEnd),
        }
        Ok(())
    }

    fn trailer(&mut self, byte: u8) -> Result<(), ChunkError> {
        self.trailers += 1;
        if self.trailers as usize > TRAILERS_MAX + 2 {
            return Err(ChunkError::Trailer);
        }
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => self.state = State::LastLf,
            (State::TrailerStart, _) => {
                self.name_length = 0;
                self.state = State::TrailerName;
                return self.trailer_name(byte);
            }
            (State::TrailerName, b':') => {
                if self.name_is_forbidden() {
                    return Err(ChunkError::Trailer);
                }
                self.state = State::TrailerValue;
            }
            (State::TrailerName, _) => return self.trailer_name(byte),
            (State::TrailerValue, b'\r') => self.state = State::TrailerLf,
            (State::TrailerValue, b'\t' | 0x20..=0x7e | 0x80..) => {}
            (State::TrailerLf, b'\n') => self.state = State::TrailerStart,
            (State::LastLf, b'\n') => self.state = State::End,
            (State::TrailerLf | State::LastLf, _) => return Err(ChunkError::LineEnd),
            _ => return Err(ChunkError::Trailer),
        }
        Ok(())
    }

    fn trailer_name(&mut self, byte: u8) -> Result<(), ChunkError> {
        if !field::is_token_byte(byte) {
            return Err(ChunkError::Trailer);
        }
        if let Some(place) = self.name.get_mut(usize::from(self.name_length)) {
            *place = byte;
            self.name_length += 1;
        } else {
            // Longer than any forbidden name: the length alone keeps it from matching one.
            self.name_length = NAME_MAX as u8;
        }
        Ok(())
    }

    fn name_is_forbidden(&self) -> bool {
        let name = &self.name[..usize::from(self.name_length)];
        let is_reserved = |reserved: &str| field::is_same_folded(name, reserved.as_bytes());
        is_forbidden_trailer(name)
            || self
                .reserved
                .iter()
                .flat_map(|names| names.iter())
                .any(|name| is_reserved(name))
    }
}

/// Fields that frame, route or authenticate a message must not come behind it (RFC 9110 §6.5.1).
pub fn is_forbidden_trailer(name: &[u8]) -> bool {
    !matches!(field::classify(name), Field::Other)
        || [
            &b"authorization"[..],
            b"cookie",
            b"set-cookie",
            b"content-type",
            b"content-encoding",
            b"content-range",
        ]
        .iter()
        .any(|forbidden| name.eq_ignore_ascii_case(forbidden))
}
