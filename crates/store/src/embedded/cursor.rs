//! A watch: where somebody has come to in the history that all share. It holds no change of its own, so that a thousand
//! cost next to nothing, and one that is slow holds up nobody.

use super::Shared;
use crate::{Answer, Batch, Error, Event, Message, Range, Revision, Watch};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Interval;

/// How long it is silent.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Most revisions that it looks at in one go, as whoever writes waits meanwhile.
const LOOK_MAX: usize = 256;

/// Follows `range`.
#[derive(Debug)]
pub(super) struct Cursor {
    shared: Arc<Shared>,
    moved: watch::Receiver<Revision>,
    range: Range,
    /// The first revision that was not looked at.
    next: Revision,
    /// All that was watched up to here was said.
    passed: Revision,
    ended: Option<Error>,
    /// Is over when progress is to be said.
    silence: Interval,
}

/// What was found.
enum Look {
    Batch(Batch),
    /// Nothing yet, but there is more to look at.
    More,
    Nothing,
}

impl Cursor {
    /// From revision `from` on. Wants tokio's timer.
    pub(super) fn new(shared: Arc<Shared>, range: Range, from: Revision) -> Result<Self, Error> {
        let next = from.max(1);
        drop(shared.history().changes(next, 0)?);
        let mut silence = tokio::time::interval(PROGRESS_EVERY);
        // Not at once, as it would begin.
        silence.reset();
        Ok(Self {
            moved: shared.moved.clone(),
            shared,
            range,
            next,
            passed: 0,
            ended: None,
            silence,
        })
    }

    fn look(&mut self) -> Result<Look, Error> {
        let history = self.shared.history();
        for batch in history.changes(self.next, LOOK_MAX)? {
            self.next = batch.revision + 1;
            let watched = |event: &&Event| self.range.contains(event.key());
            let events: Vec<_> = batch.events.iter().filter(watched).cloned().collect();
            if !events.is_empty() {
                self.passed = batch.revision;
                return Ok(Look::Batch(Batch {
                    revision: batch.revision,
                    events,
                }));
            }
        }
        if self.next <= history.revision {
            return Ok(Look::More);
        }
        self.passed = history.revision;
        Ok(Look::Nothing)
    }

    /// Something is said now.
    fn say(&mut self, change: Message) -> Message {
        self.silence.reset();
        change
    }

    async fn follow(&mut self) -> Result<Message, Error> {
        loop {
            let is_closed = self.moved.has_changed().is_err();
            self.moved.mark_unchanged();
            match self.look()? {
                Look::Batch(batch) => return Ok(self.say(Message::Batch(batch))),
                Look::More => continue,
                Look::Nothing if is_closed => {
                    return Err(Error::Unavailable("the store was closed".to_owned()));
                }
                Look::Nothing => {}
            }
            tokio::select! {
                // That it is closed is seen above, after what it did last.
                _ = self.moved.changed() => {}
                _ = self.silence.tick() => return Ok(self.say(Message::Progress(self.passed))),
            }
        }
    }
}

impl Watch for Cursor {
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
