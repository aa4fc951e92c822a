//! Ticket keys that instances share through the store. They lie outside the table, which everybody may read.

use super::Layout;
use crate::clock;
use crate::config::TicketKeys;
use mizan_store::Store;
use mizan_store::follower::{Follower, Options, Standing, Told, View};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Follows them until it is dropped.
#[derive(Debug)]
pub struct FollowingKeys {
    known: watch::Receiver<Option<TicketKeys>>,
    task: JoinHandle<()>,
}

impl Drop for FollowingKeys {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FollowingKeys {
    /// Follows those of `store`, in the runtime that it is called in.
    pub fn start(store: Arc<dyn Store>, layout: &Layout) -> Self {
        let (tell, known) = watch::channel(None);
        let prefix = layout.ticket_keys();
        let length = prefix.len();
        let told = move |told| {
            let Told::View(view) = told else { return };
            if view.standing == Standing::Unknown {
                return;
            }
            tell.send_if_modified(|before| {
                let now = Some(read(&view, length, before.as_ref()));
                let is_new = *before != now;
                *before = now;
                is_new
            });
        };
        let follower = Follower::new(store, prefix, Options::new(clock::random), told);
        let task = tokio::spawn(async move { follower.run().await });
        Self { known, task }
    }

    /// What is known of them.
    pub fn known(&self) -> TicketKeys {
        self.known.borrow().clone().unwrap_or_default()
    }

    /// Whether the store was heard.
    pub fn is_heard(&self) -> bool {
        self.known.borrow().is_some()
    }

    /// Waits until something else is known. Drop-safe.
    pub async fn changed(&mut self) {
        // The other end is dropped with the task alone, which ends with this.
        if self.known.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What is bad stays as it was, and is told: clients who cannot resume cost a handshake each.
fn read(view: &View, prefix_length: usize, before: Option<&TicketKeys>) -> TicketKeys {
    let mut keys = TicketKeys::default();
    for entry in view.entries.values() {
        let name = entry.key.get(prefix_length..).unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        let Err(problem) = keys.insert(name.clone(), entry.value.clone()) else {
            continue;
        };
        let last = before.and_then(|before| before.get(&name)).cloned();
        let stays = match &last {
            Some(_) => "those of before stay in use",
            None => "they are not used",
        };
        tracing::error!(name, "the store's ticket keys are none: {problem}; {stays}");
        if let Some(last) = last {
            // It was good before.
            let _ = keys.insert(name, last);
        }
    }
    keys
}
