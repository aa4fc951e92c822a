//! What changes of the table, as it does.

use super::{Shared, bad, editor, failed};
use crate::admin::view::ApiError;
use crate::control::editor::ObjectView;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use mizan_store::{Batch, Message, Range, Watch};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Most callers that follow the table at once: the other connections are for everybody else.
pub(super) const WATCHES_MAX: usize = 32;

/// One who follows.
struct Follower {
    /// `None`: the store was lost, and that was told.
    watch: Option<Box<dyn Watch>>,
    /// What is to be told before anything new.
    waiting: VecDeque<Event>,
    /// How long the prefix of the table's keys is.
    prefix: usize,
    _place: OwnedSemaphorePermit,
}

/// Each change of the table as a server-sent event, from the next one on, or from behind `Last-Event-ID`: `{key, revision,
/// document}`. The last one of a revision has it for its `id`, so that whoever goes on from there misses nothing. The event
/// `lost` ends it: the store was lost, and the caller asks again.
pub(super) async fn events(
    State(table): Shared,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let editor = editor(&table)?;
    let place = Arc::clone(&table.watches).try_acquire_owned();
    let place = place.map_err(|_| {
        let message = format!("{WATCHES_MAX} follow the table here already");
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_many_watches",
            message,
            "",
        )
    })?;
    let after = match headers.get("last-event-id").map(HeaderValue::to_str) {
        None => editor.table(None).await.map_err(failed)?.revision,
        Some(id) => {
            let id = id.ok().and_then(|id| id.parse().ok());
            id.ok_or_else(|| bad("bad_condition", "`Last-Event-ID` is a revision", ""))?
        }
    };
    let prefix = editor.layout().table();
    let length = prefix.len();
    let range = Range::Prefix(prefix);
    let watch = editor.store().watch(range, after.saturating_add(1)).await;
    let follower = Follower {
        watch: Some(watch.map_err(|error| failed(error.into()))?),
        waiting: VecDeque::new(),
        prefix: length,
        _place: place,
    };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

impl Follower {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            match self.watch.as_mut()?.next().await {
                Ok(Message::Batch(batch)) => self.waiting.extend(told(&batch, self.prefix)),
                Ok(_) => {}
                Err(error) => {
                    self.watch = None;
                    return Some(Event::default().event("lost").data(error.to_string()));
                }
            }
        }
    }
}

fn told(batch: &Batch, prefix: usize) -> Vec<Event> {
    let last = batch.events.len().saturating_sub(1);
    let events = batch.events.iter().enumerate().map(|(at, event)| {
        let document = match event {
            mizan_store::Event::Put(entry) => serde_json::from_slice(&entry.value).ok(),
            mizan_store::Event::Delete(_) => None,
        };
        let key = event.key();
        let view = ObjectView {
            key: String::from_utf8_lossy(key.get(prefix..).unwrap_or_default()).into_owned(),
            revision: batch.revision,
            document: document.unwrap_or(Value::Null),
        };
        let data = serde_json::to_string(&view).unwrap_or_default();
        let event = Event::default().data(data);
        match at == last {
            true => event.id(batch.revision.to_string()),
            false => event,
        }
    });
    events.collect()
}
