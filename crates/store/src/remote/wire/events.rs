//! A watch as server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use super::{ANSWER_BYTES_MAX, Wire, read, write};
use crate::{Error, Message, Revision};
use bytes::{Bytes, BytesMut};

const BATCH: &str = "batch";
const PROGRESS: &str = "progress";
const ERROR: &str = "error";

/// What a watch said, as one event. Its `id` is the revision, where there is one.
pub fn event(said: &Result<Message, Error>) -> Bytes {
    let (name, id, data) = match said {
        Ok(Message::Batch(batch)) => (BATCH, Some(batch.revision), write(&Wire(batch.clone()))),
        Ok(Message::Progress(revision)) => (PROGRESS, Some(*revision), write(revision)),
        Err(error) => (ERROR, None, write(&Wire(error.clone()))),
    };
    let mut event = format!("event: {name}\n").into_bytes();
    if let Some(id) = id {
        event.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    event.reserve_exact(data.len() + 8);
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(&data);
    event.extend_from_slice(b"\n\n");
    event.into()
}

/// A comment: nothing has happened, and somebody is there.
pub fn silence() -> Bytes {
    Bytes::from_static(b":\n\n")
}

/// Reads events as their bytes come.
#[derive(Debug, Default)]
pub struct Events {
    pub(super) waiting: BytesMut,
    /// So many of `waiting` are known to hold no end of an event.
    pub(super) looked: usize,
}

impl Events {
    /// More bytes.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if an event is larger than [`ANSWER_BYTES_MAX`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.waiting.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(Error::Unavailable(format!(
                "an event of a watch is larger than {ANSWER_BYTES_MAX} bytes"
            )));
        }
        self.waiting.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole event; `None`: more bytes are needed. What it does not know it leaves out: a later version may say
    /// more.
    #[expect(clippy::should_implement_trait, reason = "`None` is not the end of it")]
    pub fn next(&mut self) -> Option<Result<Message, Error>> {
        loop {
            let end = self.waiting[self.looked..]
                .windows(2)
                .position(|pair| pair == b"\n\n");
            let Some(end) = end else {
                self.looked = self.waiting.len().saturating_sub(1);
                return None;
            };
            let event = self.waiting.split_to(self.looked + end + 2);
            self.looked = 0;
            if let Some(said) = said(&event) {
                return Some(said);
            }
        }
    }
}

fn said(event: &[u8]) -> Option<Result<Message, Error>> {
    let field = |name: &[u8]| {
        let mut lines = event.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(name))
    };
    let name = field(b"event: ")?;
    let data = field(b"data: ").unwrap_or_default();
    let said = match name {
        name if name == BATCH.as_bytes() => read(data).map(|Wire(batch)| Ok(Message::Batch(batch))),
        name if name == PROGRESS.as_bytes() => {
            read::<Revision>(data).map(|revision| Ok(Message::Progress(revision)))
        }
        name if name == ERROR.as_bytes() => read(data).map(|Wire(error)| Err(error)),
        _ => return None,
    };
    Some(said.unwrap_or_else(|why| {
        Err(Error::Unavailable(format!(
            "what the watch said is not understood: {why}"
        )))
    }))
}
