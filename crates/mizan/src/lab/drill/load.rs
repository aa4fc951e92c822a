//! Load: threads that ask one request after the other, each on a keep-alive connection, and count what they see.

use crate::clock;
use crate::lab::client::{Answer, Client, Fault};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many failures are kept word for word; all are counted.
const FAULTS_KEPT: usize = 20;
/// A client that failed waits this long, so that a proxy that is gone is not asked a million times.
const PAUSE: Duration = Duration::from_millis(10);
const POLL: Duration = Duration::from_millis(2);

/// What the clients saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Answers with status 200.
    pub(super) answers: u64,
    /// The same by `X-Upstream`.
    pub(super) by_upstream: BTreeMap<String, u64>,
    /// Requests without an answer, or with another status.
    pub(super) failed: u64,
    /// Answers that were cut in the middle.
    pub(super) cut: u64,
    /// The first failures and cuts, in words.
    pub(super) faults: Vec<String>,
}

impl Tally {
    fn add(&mut self, seen: Result<Answer, Fault>) {
        match seen {
            Ok(answer) if answer.status == 200 => {
                self.answers += 1;
                *self
                    .by_upstream
                    .entry(answer.upstream.unwrap_or_default())
                    .or_default() += 1;
            }
            Ok(answer) => {
                self.failed += 1;
                let text = String::from_utf8_lossy(&answer.body).trim().to_owned();
                self.note(format!("status {}: {text}", answer.status));
            }
            Err(fault) => {
                *if matches!(fault, Fault::Cut(_)) {
                    &mut self.cut
                } else {
                    &mut self.failed
                } += 1;
                self.note(fault.to_string());
            }
        }
    }

    fn note(&mut self, fault: String) {
        if self.faults.len() < FAULTS_KEPT {
            self.faults.push(fault);
        }
    }

    /// Answers by `upstream`.
    pub(super) fn of(&self, upstream: &str) -> u64 {
        self.by_upstream.get(upstream).copied().unwrap_or_default()
    }

    /// What was seen after `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let by_upstream = self
            .by_upstream
            .iter()
            .map(|(name, count)| (name.clone(), count - earlier.of(name)))
            .collect();
        Self {
            answers: self.answers - earlier.answers,
            by_upstream,
            failed: self.failed - earlier.failed,
            cut: self.cut - earlier.cut,
            faults: self.faults[earlier.faults.len()..].to_vec(),
        }
    }

    /// `2041 answers, 0 failed`, and the first fault if there is one.
    pub(super) fn outcome(&self) -> String {
        let cut = if self.cut > 0 {
            format!(", {} cut in mid-answer", self.cut)
        } else {
            String::new()
        };
        let first = self
            .faults
            .first()
            .map(|fault| format!(" (first: {fault})"))
            .unwrap_or_default();
        format!(
            "{} answers, {} failed{cut}{first}",
            self.answers, self.failed
        )
    }

    /// `9001: 700, 9002: 690`
    pub(super) fn shares(&self) -> String {
        let share = |(name, count): (&String, &u64)| format!("{}: {count}", short(name));
        self.by_upstream
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(share)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The port of `127.0.0.1:9001`: enough to tell the laboratory's backends apart.
pub(super) fn short(upstream: &str) -> &str {
    upstream.rsplit_once(':').map_or(upstream, |(_, port)| port)
}

/// Clients at work; stopped when dropped.
pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// From now on, no connection is no failure: the proxy was told to stop.
    ending: AtomicBool,
    tally: Mutex<Tally>,
}

impl Load {
    /// Starts `clients` that ask `proxy` for `/`.
    pub(super) fn start(proxy: SocketAddr, clients: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let work = |shared: Arc<Shared>| std::thread::spawn(move || shared.work(proxy));
        let threads = (0..clients).map(|_| work(shared.clone())).collect();
        Self { shared, threads }
    }

    /// What was seen so far.
    pub(super) fn tally(&self) -> Tally {
        self.shared.tally().clone()
    }

    /// Waits until `answers` more have come than now; false if `limit` passes first.
    pub(super) fn wait_for(&self, answers: u64, limit: Duration) -> bool {
        let wanted = self.shared.tally().answers + answers;
        wait_until(limit, || self.shared.tally().answers >= wanted)
    }

    /// No connection is no failure from now on.
    pub(super) fn expect_end(&self) {
        self.shared.ending.store(true, Ordering::SeqCst);
    }

    /// Ends the load: what was seen in all.
    pub(super) fn stop(mut self) -> Tally {
        self.join();
        self.shared.tally().clone()
    }

    fn join(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // A client that panicked has printed why.
            let _ = thread.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, proxy: SocketAddr) {
        let mut client = None;
        while !self.stop.load(Ordering::SeqCst) {
            let seen = match client
                .take()
                .map_or_else(|| Client::connect(proxy, None), Ok)
            {
                Ok(mut connected) => {
                    let seen = connected.get("/");
                    client = Some(connected)
                        .filter(|_| seen.as_ref().is_ok_and(|answer| !answer.closing));
                    seen
                }
                Err(fault) => Err(fault),
            };
            if matches!(seen, Err(Fault::Connect(_))) && self.ending.load(Ordering::SeqCst) {
                return;
            }
            let failed = seen.is_err();
            self.tally().add(seen);
            if failed {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Asks until `holds`; false if `limit` passes first.
pub(super) fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = clock::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if clock::now() >= end {
            return false;
        }
        std::thread::sleep(POLL);
    }
}
