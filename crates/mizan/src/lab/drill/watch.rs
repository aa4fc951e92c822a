//! What the proxy itself shows of the pool, by the admin socket.

use crate::clock;
use crate::lab::client::{Client, Fault};
use crate::lab::config::{POOL, Setup};
use crate::lab::stage::LabError;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(5);

/// Looks at one proxy.
pub(super) struct Watch {
    admin: PathBuf,
}

/// What the drill reads of `GET /v1/pools/{pool}`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PoolView {
    pub(super) panic: bool,
    backends: Vec<BackendView>,
}

/// A backend in it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct BackendView {
    key: String,
    /// Whether it may get new requests.
    usable: bool,
    /// `usable`, `panic`, `refused`, `ejected`, `down`...
    state: String,
    /// What probes say.
    health: String,
    reason: String,
    /// Tries at it since the start.
    pub(super) requests: u64,
    /// Those of them that failed.
    pub(super) failures: u64,
}

impl Watch {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            admin: setup.admin.clone(),
        }
    }

    pub(super) fn pool(&self) -> Result<PoolView, LabError> {
        let path = format!("/v1/pools/{POOL}");
        let failed = || LabError::talk(format!("GET {path} of the admin socket"));
        let answer = Client::connect_unix(&self.admin)
            .and_then(|mut client| client.get(&path))
            .map_err(failed())?;
        if answer.status != 200 {
            return Err(failed()(Fault::Before(format!("status {}", answer.status))));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| failed()(Fault::Before(error.to_string())))
    }

    /// Looks at the pool until `holds`: the view for which it did, or none if `limit` passes first.
    pub(super) fn wait_for(
        &self,
        limit: Duration,
        holds: impl Fn(&PoolView) -> bool,
    ) -> Result<Option<PoolView>, LabError> {
        let end = clock::now() + limit;
        loop {
            let pool = self.pool()?;
            if holds(&pool) {
                return Ok(Some(pool));
            }
            if clock::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until `count` backends are up and nothing else is there.
    pub(super) fn wait_all_up(&self, count: usize, limit: Duration) -> Result<(), LabError> {
        let up = self.wait_for(limit, |pool| {
            pool.up() == count && pool.backends.len() == count && !pool.panic
        })?;
        match up {
            Some(_) => Ok(()),
            None => Err(LabError::Child(format!(
                "not all backends are up after {limit:?}: {}",
                self.pool()?.text()
            ))),
        }
    }

    pub(super) fn backend(&self, key: &str) -> Result<BackendView, LabError> {
        let missing = || LabError::Child(format!("the admin socket does not show {key}"));
        self.pool()?.backend(key).cloned().ok_or_else(missing)
    }
}

impl PoolView {
    fn backend(&self, key: &str) -> Option<&BackendView> {
        self.backends.iter().find(|backend| backend.key == key)
    }

    /// Whether `key` gets no new requests, and says so.
    pub(super) fn is_out(&self, key: &str) -> bool {
        self.backend(key)
            .is_some_and(|backend| !backend.usable && backend.state != "usable")
    }

    /// Whether the probes have found `key` down.
    pub(super) fn is_down(&self, key: &str) -> bool {
        self.backend(key)
            .is_some_and(|backend| backend.health == "down")
    }

    /// Backends that are up and usable.
    pub(super) fn up(&self) -> usize {
        self.backends
            .iter()
            .filter(|backend| backend.usable && backend.health == "up")
            .count()
    }

    /// `panic: 9001 usable, 9002 panic (status 503, expected 200-399)`
    pub(super) fn text(&self) -> String {
        let backends: Vec<_> = self.backends.iter().map(BackendView::text).collect();
        format!(
            "{}{}",
            if self.panic { "panic: " } else { "" },
            backends.join(", ")
        )
    }
}

impl BackendView {
    pub(super) fn text(&self) -> String {
        let reason = if self.reason.is_empty() {
            String::new()
        } else {
            format!(" ({})", self.reason)
        };
        format!("{} {}{reason}", super::short(&self.key), self.state)
    }
}
