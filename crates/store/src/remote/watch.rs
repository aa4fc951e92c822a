//! A watch through the instance.

use super::line::Line;
use super::wire::{Events, SILENCE};
use crate::{Answer, Error, Message, Watch};
use hyper::body::Incoming;
use tokio::time::Interval;

/// So many times [`SILENCE`] without a word, and nobody is there any more.
const SILENCES: u32 = 3;

/// Events as they come. What is not read waits in the socket, and then at the instance, which ends it after a while.
#[derive(Debug)]
pub(super) struct Remote {
    line: Line,
    body: Incoming,
    events: Events,
    ended: Option<Error>,
    /// Is over when nobody is there any more.
    silence: Interval,
}

impl Remote {
    pub(super) fn new(line: Line, body: Incoming) -> Self {
        let mut silence = tokio::time::interval(SILENCE * SILENCES);
        // Not at once, as it would begin.
        silence.reset();
        Self {
            line,
            body,
            events: Events::default(),
            ended: None,
            silence,
        }
    }

    async fn follow(&mut self) -> Result<Message, Error> {
        loop {
            if let Some(said) = self.events.next() {
                return said;
            }
            let piece = tokio::select! {
                // What has come in a long time without being asked for counts, so it is looked at first.
                biased;
                piece = self.line.piece(&mut self.body) => piece,
                _ = self.silence.tick() => {
                    let long = SILENCE * SILENCES;
                    return Err(Error::Unavailable(format!("the instance said nothing for {long:?}")));
                }
            };
            self.silence.reset();
            let lost = |why: &str| {
                Error::Unavailable(format!(
                    "the instance is gone, or has cut off who does not read: {why}"
                ))
            };
            match piece {
                Some(Ok(bytes)) => self.events.push(&bytes)?,
                Some(Err(why)) => return Err(lost(&why)),
                None => return Err(lost("the watch ended without a word")),
            }
        }
    }
}

impl Watch for Remote {
    fn next(&mut self) -> Answer<'_, Message> {
        Box::pin(async move {
            if let Some(error) = &self.ended {
                return Err(error.clone());
            }
            let said = self.follow().await;
            if let Err(error) = &said {
                self.ended = Some(error.clone());
            }
            said
        })
    }
}
