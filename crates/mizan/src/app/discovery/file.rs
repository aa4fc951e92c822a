//! A file with a list of backends, looked at until it changes and read when it rests.

use crate::config;
use crate::snapshot::Configured;
use mizan_core::time::Instant;
use std::path::Path;
use std::time::Duration;

/// A change is read after this long without a further one.
const QUIET: Duration = Duration::from_millis(200);

/// How a file was.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// When it was read.
    read: Option<u64>,
    /// When it was seen last, if that is another, and since when it is so.
    seen: Option<(u64, Instant)>,
}

/// What came of a look.
#[derive(Debug)]
pub(super) enum Look {
    /// It is as it was, or changes just now.
    Same,
    /// It is another: what it says, or what is wrong with it.
    Read(Result<Vec<Configured>, String>),
}

impl Watched {
    /// Looks at `path`. Blocks. What is being written is left alone until it rests, the first time apart.
    pub(super) fn look(&mut self, path: &Path, now: Instant) -> Look {
        let is = config::file_signature(path);
        if self.read == Some(is) {
            self.seen = None;
            return Look::Same;
        }
        let since = match self.seen {
            Some((seen, since)) if seen == is => since,
            _ => now,
        };
        self.seen = Some((is, since));
        if self.read.is_some() && now.saturating_since(since) < QUIET {
            return Look::Same;
        }
        let read = config::listed_in(path);
        if config::file_signature(path) != is {
            // It has changed under the reader's hands.
            return Look::Same;
        }
        self.read = Some(is);
        self.seen = None;
        Look::Read(read)
    }
}
