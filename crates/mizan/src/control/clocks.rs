//! Whether the clocks of the nodes agree: a boost ends on each by its own.
//!
//! Each node says by its clock when it told what it has in force. Who hears that says "I am behind" where the time is still to come;
//! how long the message took makes the difference only look smaller. Of two clocks one is behind, so one of the two says it.

use super::Layout;
use super::nodes::Account;
use crate::clock;
use mizan_store::follower::{Entries, Follower, Options, Told};
use mizan_store::{Entry, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A difference up to this is nobody's concern.
const GOOD: Duration = Duration::from_millis(500);

/// Another node's clock is ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Which node's.
    pub node: String,
    /// By how much at least.
    pub by: Duration,
}

impl std::fmt::Display for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the clock of node `{}` is {:.1} s ahead of this one's: a boost ends on each node by its own clock, so let all of them follow the same time (NTP)",
            self.node,
            self.by.as_secs_f64()
        )
    }
}

/// Hears the other nodes until it is dropped.
#[derive(Debug)]
pub struct Clocks {
    furthest: watch::Receiver<Option<Ahead>>,
    task: JoinHandle<()>,
}

impl Drop for Clocks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Clocks {
    /// Hears what nodes other than `own` say in `store`, in the runtime that it is called in.
    pub fn start(store: Arc<dyn Store>, layout: &Layout, own: String) -> Self {
        let (tell, furthest) = watch::channel(None);
        let mut heard = Heard::default();
        let told = move |told| {
            let Told::View(view) = told else { return };
            heard.hear(&view.entries, &own, clock::wall());
            let now = heard.furthest();
            tell.send_if_modified(|before| {
                let is_new = *before != now;
                if let Some(ahead) = now.as_ref().filter(|_| is_new) {
                    tracing::warn!("{ahead}");
                }
                *before = now;
                is_new
            });
        };
        let options = Options::new(clock::random);
        let follower = Follower::new(store, layout.nodes(), options, told);
        let task = tokio::spawn(async move { follower.run().await });
        Self { furthest, task }
    }

    /// Who is furthest ahead, if anybody is by more than half a second.
    pub fn furthest(&self) -> Option<Ahead> {
        self.furthest.borrow().clone()
    }

    /// Waits until that changes. Drop-safe.
    pub async fn changed(&mut self) {
        // The other end is dropped with the task alone, which ends with this.
        if self.furthest.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What the other nodes' words made of their clocks, by their keys, with the revision of the word.
#[derive(Debug, Default)]
struct Heard(BTreeMap<bytes::Bytes, (u64, Option<Ahead>)>);

impl Heard {
    /// Judges what is new among `entries`, heard at `now` (since 1970).
    fn hear(&mut self, entries: &Entries, own: &str, now: Duration) {
        self.0.retain(|key, _| entries.contains_key(key));
        for (key, entry) in entries.iter() {
            let is_known = |(modified, _): &(u64, _)| *modified == entry.modified;
            if !self.0.get(key).is_some_and(is_known) {
                let judged = (entry.modified, judge(entry, own, now));
                self.0.insert(key.clone(), judged);
            }
        }
    }

    fn furthest(&self) -> Option<Ahead> {
        let ahead = self.0.values().filter_map(|(_, ahead)| ahead.as_ref());
        ahead.max_by_key(|ahead| ahead.by).cloned()
    }
}

fn judge(entry: &Entry, own: &str, now: Duration) -> Option<Ahead> {
    let account: Account = serde_json::from_slice(&entry.value).ok()?;
    let by = Duration::from_millis(account.told_ms).saturating_sub(now);
    (account.node != own && by > GOOD).then_some(Ahead {
        node: account.node,
        by,
    })
}

#[cfg(test)]
mod tests;
