//! What happens next: the event queue.
//!
//! Most events of a request come a constant time after their cause (the network's delay, the
//! time-outs), so they come in the order in which they were caused: a plain line holds them, with no
//! cost for sorting. Only what is left (ends of service, faults, ticks, probes) needs a heap.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::load::Load;
use super::request::{Cause, TryId};

/// What a backend sends back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    Failed(Cause),
}

/// What a probe finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Refused,
    Failed,
}

/// Something that happens at a time of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A backend is done with a request.
    Served { backend: u32 },
    /// A fault begins or ends at a backend: an index into the time line.
    Fault { change: u32 },
    /// A backend's speed drifts: look again.
    Drift { backend: u32 },
    /// A backend that fails slowly has its answer ready.
    Reply { id: TryId, answer: Answer },
    /// A balancer looks at what is due.
    Tick { balancer: u32 },
    /// A rule from outside looks at a balancer's backends.
    Weigh { balancer: u32 },
    /// A balancer hears who is a member.
    Members { balancer: u32 },
    /// A balancer probes a backend.
    Probe {
        balancer: u32,
        backend: u32,
        is_first: bool,
    },
    /// A probe has its result.
    Probed {
        balancer: u32,
        backend: u32,
        verdict: Verdict,
    },
    /// A balancer asks backends for their load.
    Ask { balancer: u32 },
    /// The question reaches a backend; `workers` is the balancer's own note.
    Asked {
        balancer: u32,
        backend: u32,
        workers: u8,
    },
    /// The answer is back.
    Told {
        balancer: u32,
        backend: u32,
        workers: u8,
        load: Load,
    },
    /// The back-off before another try is over.
    Retry { slot: u32, number: u64 },
}

/// A line's entry or the heap's, whatever is first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// A try reaches its backend.
    Reached(TryId),
    /// An answer reaches its balancer.
    Answered(TryId, Answer),
    /// A try has taken too long.
    TryTimeout(TryId),
    /// A client has waited too long: slot and number of the request.
    ClientTimeout(u32, u64),
    Event(Event),
}

#[derive(Debug)]
struct Entry {
    at: u64,
    /// Breaks ties in the order of causes, so that a run can be repeated.
    number: u64,
    event: Event,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Entry>,
    number: u64,
    /// Each in order of time.
    to_backend: VecDeque<(u64, TryId)>,
    to_balancer: VecDeque<(u64, TryId, Answer)>,
    try_timeouts: VecDeque<(u64, TryId)>,
    client_timeouts: VecDeque<(u64, u32, u64)>,
}

impl Events {
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.number += 1;
        let number = self.number;
        self.heap.push(Entry { at, number, event });
    }

    pub(crate) fn push_reached(&mut self, at: u64, id: TryId) {
        self.to_backend.push_back((at, id));
    }

    pub(crate) fn push_answered(&mut self, at: u64, id: TryId, answer: Answer) {
        self.to_balancer.push_back((at, id, answer));
    }

    pub(crate) fn push_try_timeout(&mut self, at: u64, id: TryId) {
        self.try_timeouts.push_back((at, id));
    }

    pub(crate) fn push_client_timeout(&mut self, at: u64, slot: u32, number: u64) {
        self.client_timeouts.push_back((at, slot, number));
    }

    /// When the next one is; `u64::MAX` for never.
    pub(crate) fn next_at(&self) -> u64 {
        self.fronts().into_iter().min().unwrap_or(u64::MAX)
    }

    /// The next one. Of those at the same time, answers go before time-outs.
    pub(crate) fn pop(&mut self) -> Option<Next> {
        let fronts = self.fronts();
        let at = fronts.into_iter().min()?;
        let first = fronts.iter().position(|&front| front == at)?;
        match first {
            0 => self
                .to_balancer
                .pop_front()
                .map(|(_, id, answer)| Next::Answered(id, answer)),
            1 => self.to_backend.pop_front().map(|(_, id)| Next::Reached(id)),
            2 => self.heap.pop().map(|entry| Next::Event(entry.event)),
            3 => self
                .try_timeouts
                .pop_front()
                .map(|(_, id)| Next::TryTimeout(id)),
            _ => self
                .client_timeouts
                .pop_front()
                .map(|(_, slot, number)| Next::ClientTimeout(slot, number)),
        }
    }

    fn fronts(&self) -> [u64; 5] {
        let never = u64::MAX;
        [
            self.to_balancer.front().map_or(never, |front| front.0),
            self.to_backend.front().map_or(never, |front| front.0),
            self.heap.peek().map_or(never, |entry| entry.at),
            self.try_timeouts.front().map_or(never, |front| front.0),
            self.client_timeouts.front().map_or(never, |front| front.0),
        ]
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, because the heap gives the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
