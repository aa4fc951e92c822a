//! What one side has sent and the other side's protocol has no form for.

use crate::h1::HeadError;
use crate::h1::chunked::ChunkError;
use std::io;

/// The fault of who has sent it, met on the way to who was to get it: a write fails with it, and nothing is wrong with
/// what is written to.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(in super::super) enum Unfit {
    #[error(transparent)]
    Head(HeadError),
    #[error(transparent)]
    Body(ChunkError),
    /// A status of success to who asks for a WebSocket over HTTP/2, where that would be one (RFC 8441 §5).
    #[error("an answer that is no WebSocket")]
    Upgrade,
}

impl Unfit {
    /// What a write has failed with, if that was no failure of the transport's.
    pub(in super::super) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<Unfit> for io::Error {
    fn from(unfit: Unfit) -> Self {
        Self::new(io::ErrorKind::InvalidInput, unfit)
    }
}
