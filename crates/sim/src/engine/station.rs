//! A backend's slots and queue: who is served when, at a speed that changes.
//!
//! Work is measured by a clock of its own, which runs at the backend's speed: a request that starts
//! at work time `w` and needs `n` ends at `w + n`, whatever happens to the speed meanwhile. So a
//! change of speed touches no request, and standing still is speed zero.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::request::TryId;

/// Slots, queue and work clock.
#[derive(Debug)]
pub(crate) struct Station {
    slots: usize,
    queue_max: usize,
    running: BinaryHeap<Reverse<Running>>,
    queue: VecDeque<(TryId, f64)>,
    /// Work done by one busy slot so far, nanoseconds.
    done: f64,
    /// When `done` was reckoned.
    at: u64,
    speed: f64,
    /// Numbers requests in the order of their starts.
    started: u64,
}

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    Started,
    Queued,
    Full,
}

/// A request that is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Running {
    /// Work time of its end, as bits: those of positive numbers are ordered as the numbers are.
    end: u64,
    number: u64,
    id: TryId,
}

impl Station {
    pub(crate) fn new(slots: usize, queue_max: usize, speed: f64) -> Self {
        Self {
            slots,
            queue_max,
            running: BinaryHeap::with_capacity(slots.min(1_024)),
            queue: VecDeque::new(),
            done: 0.0,
            at: 0,
            speed,
            started: 0,
        }
    }

    /// From `now` on, each slot does `speed` of work a unit of time; 0 stands still.
    pub(crate) fn set_speed(&mut self, now: u64, speed: f64) {
        self.advance(now);
        self.speed = speed;
    }

    /// A request arrives that needs `work` nanoseconds.
    pub(crate) fn arrive(&mut self, now: u64, id: TryId, work: f64) -> Admitted {
        if self.running.len() < self.slots {
            self.start(now, id, work);
            Admitted::Started
        } else if self.queue.len() < self.queue_max {
            self.queue.push_back((id, work));
            Admitted::Queued
        } else {
            Admitted::Full
        }
    }

    /// When the next request ends if the speed stays; `None` if none does.
    pub(crate) fn next_end(&self) -> Option<u64> {
        let &Reverse(first) = self.running.peek()?;
        if self.speed <= 0.0 {
            return None;
        }
        let left = (f64::from_bits(first.end) - self.done).max(0.0);
        // Rounded up, so that nobody is served faster than their work takes.
        Some(self.at.saturating_add((left / self.speed).ceil() as u64))
    }

    /// The request that ends at `next_end`, which is now. Its slot goes to the first in the queue
    /// that somebody still waits for.
    pub(crate) fn finish(&mut self, now: u64, waits: impl Fn(TryId) -> bool) -> Option<TryId> {
        let Reverse(ended) = self.running.pop()?;
        while let Some((id, work)) = self.queue.pop_front() {
            if waits(id) {
                self.start(now, id, work);
                break;
            }
        }
        Some(ended.id)
    }

    /// The process is gone: takes everybody out.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = TryId> + '_ {
        let running = self.running.drain().map(|Reverse(running)| running.id);
        running.chain(self.queue.drain(..).map(|(id, _)| id))
    }

    /// Requests in slots and queue, those that nobody waits for any more included.
    pub(crate) fn in_flight(&self) -> usize {
        self.running.len() + self.queue.len()
    }

    /// Requests in the queue, those that nobody waits for any more included.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    fn start(&mut self, now: u64, id: TryId, work: f64) {
        self.advance(now);
        self.started += 1;
        self.running.push(Reverse(Running {
            end: (self.done + work).to_bits(),
            number: self.started,
            id,
        }));
    }

    fn advance(&mut self, now: u64) {
        self.done += (now - self.at) as f64 * self.speed;
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(slot: u32) -> TryId {
        TryId { slot, stamp: 1 }
    }

    #[test]
    fn requests_are_served_in_order_by_as_many_slots_as_there_are() {
        let mut station = Station::new(2, 1, 1.0);
        assert_eq!(station.arrive(0, id(1), 100.0), Admitted::Started);
        assert_eq!(station.arrive(10, id(2), 50.0), Admitted::Started);
        assert_eq!(station.arrive(20, id(3), 50.0), Admitted::Queued);
        assert_eq!(station.arrive(20, id(4), 50.0), Admitted::Full);
        let mut ends = Vec::new();
        while let Some(now) = station.next_end() {
            ends.push((now, station.finish(now, |_| true).unwrap().slot));
        }
        assert_eq!(ends, [(60, 2), (100, 1), (110, 3)]);
    }

    #[test]
    fn a_change_of_speed_holds_for_what_is_left() {
        let mut station = Station::new(1, 1, 1.0);
        station.arrive(0, id(1), 100.0);
        station.set_speed(50, 0.1);
        assert_eq!(station.next_end(), Some(550));
        station.set_speed(150, 0.0);
        assert_eq!(station.next_end(), None, "it stands still");
        station.set_speed(1_000, 4.0);
        assert_eq!(station.next_end(), Some(1_010));
    }

    #[test]
    fn those_that_nobody_waits_for_are_passed_over() {
        let mut station = Station::new(1, 9, 1.0);
        for slot in 1..=3 {
            station.arrive(0, id(slot), 10.0);
        }
        assert_eq!(station.finish(10, |id| id.slot != 2), Some(id(1)));
        assert_eq!(station.next_end(), Some(20));
        assert_eq!(station.finish(20, |_| true), Some(id(3)));
        assert_eq!(station.queued(), 0);
    }

    proptest! {
        #[test]
        fn nobody_is_served_faster_than_their_work_and_all_are_served(
            slots in 1usize..5,
            steps in prop::collection::vec((0u64..1_000, 1u32..5_000, 0.05f64..4.0), 1..60),
        ) {
            let mut station = Station::new(slots, usize::MAX, 1.0);
            let mut now = 0;
            let mut arrived = Vec::new();
            let mut served = 0;
            let mut serve = |station: &mut Station, arrived: &[(u64, f64)], until: u64| {
                while let Some(end) = station.next_end().filter(|&end| end <= until) {
                    let id = station.finish(end, |_| true).unwrap();
                    let (at, work): (u64, f64) = arrived[id.slot as usize];
                    // Four is the highest speed of all.
                    prop_assert!(end as f64 >= at as f64 + work / 4.0 - 1e-3);
                    served += 1;
                }
                Ok(())
            };
            for (gap, work, speed) in steps {
                now += gap;
                serve(&mut station, &arrived, now)?;
                arrived.push((now, f64::from(work)));
                let id = id(arrived.len() as u32 - 1);
                station.arrive(now, id, f64::from(work));
                station.set_speed(now, speed);
            }
            serve(&mut station, &arrived, u64::MAX)?;
            prop_assert_eq!(served, arrived.len());
        }
    }
}
