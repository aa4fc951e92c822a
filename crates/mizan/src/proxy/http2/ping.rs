//! Whether the peer of a connection still lives, while streams wait on it (RFC 9113 §6.7).

use h2::{Ping, PingPong};
use std::task::{Context, Poll};

/// Asks now and then.
pub(super) struct Pinger {
    pings: Option<PingPong>,
    interval_ms: u64,
    timeout_ms: u64,
    /// When the next one is sent, in ms.
    next_ms: u64,
    /// By when the one under way must be answered, in ms.
    due_ms: Option<u64>,
}

impl Pinger {
    /// An interval of zero: never.
    pub(super) fn new(
        pings: Option<PingPong>,
        settings: &crate::snapshot::Ping,
        now_ms: u64,
    ) -> Self {
        let interval_ms = settings.interval.as_millis() as u64;
        Self {
            pings: pings.filter(|_| interval_ms > 0),
            interval_ms,
            timeout_ms: settings.timeout.as_millis() as u64,
            next_ms: now_ms + interval_ms,
            due_ms: None,
        }
    }

    /// Whether the peer is dead. Called at least once a second; `is_used`: streams are open.
    pub(super) fn poll_dead(&mut self, cx: &mut Context<'_>, is_used: bool, now_ms: u64) -> bool {
        let Some(pings) = &mut self.pings else {
            return false;
        };
        match self.due_ms {
            Some(due_ms) => match pings.poll_pong(cx) {
                Poll::Ready(Ok(_)) => {
                    self.due_ms = None;
                    self.next_ms = now_ms + self.interval_ms;
                    false
                }
                Poll::Ready(Err(_)) => false,
                Poll::Pending => now_ms >= due_ms,
            },
            None if is_used && now_ms >= self.next_ms => {
                if pings.send_ping(Ping::opaque()).is_ok() {
                    self.due_ms = Some(now_ms + self.timeout_ms);
                    // Registers the waker.
                    let _ = pings.poll_pong(cx);
                }
                false
            }
            None => false,
        }
    }
}
