//! How far a body has come.

use crate::h1::Framing;
use crate::h1::chunked::{ChunkError, Chunked};
use std::sync::Arc;

/// What is left of a body.
#[derive(Debug)]
pub(super) enum Body {
    /// It has ended.
    Done,
    /// This many bytes, more than zero.
    Length(u64),
    /// Chunks.
    Chunked(Chunked),
    /// All until the connection's end.
    UntilClose,
}

impl Body {
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunked::default()),
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// Has trailers with these names refused.
    pub(super) fn refusing(self, reserved: &Arc<[Box<str>]>) -> Self {
        match self {
            Self::Chunked(_) if !reserved.is_empty() => Self::Chunked(Chunked::refusing(reserved)),
            other => other,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// How many bytes at the start of `bytes` belong to the body, and how many of them are content.
    ///
    /// # Errors
    /// If the chunked coding is broken.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, u64), ChunkError> {
        match self {
            Self::Done => Ok((0, 0)),
            Self::Length(left) => {
                let taken = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok((taken, taken as u64))
            }
            Self::Chunked(chunked) => {
                let taken = chunked.advance(bytes)?;
                if chunked.is_ended() {
                    *self = Self::Done;
                }
                Ok(taken)
            }
            Self::UntilClose => Ok((bytes.len(), bytes.len() as u64)),
        }
    }
}
