//! The life of a request: arrive, pick, reach, be served, be answered, perhaps be tried again.
//!
//! It follows the product's own (`proxy/forward.rs`): what a failure means to core, what is tried
//! again, what draws on the retry budget, and how long a back-off lasts.

use mizan_core::{Failure, NoPick, Outcome};
use std::time::Duration;

use super::events::{Answer, Event};
use super::request::{Cause, TryId};
use super::station::Admitted;
use super::{Arrival, Engine};

/// First back-off and the longest, nanoseconds. The product's defaults.
const BACKOFF: u64 = 10_000_000;
const BACKOFF_MAX: u64 = 250_000_000;

impl Engine<'_> {
    pub(super) fn arrive(&mut self, arrival: Arrival) {
        let slot = self.requests.add(arrival);
        if let Some(timeout) = self.scenario.client_timeout {
            let at = self.now + timeout.as_nanos() as u64;
            let number = self.requests.slot(slot).number;
            self.events.push_client_timeout(at, slot, number);
        }
        self.balancers[arrival.balancer as usize].deposit();
        self.begin_try(slot);
    }

    pub(super) fn begin_try(&mut self, slot: u32) {
        let request = self.requests.slot(slot);
        let balancer = &self.balancers[request.balancer as usize];
        let wanted = (request.hash, request.tried());
        let (claim, backend) = match balancer.pick(self.now, self.picks.next(), wanted) {
            Ok(picked) => picked,
            Err(why) => {
                let cause = unpicked(why, request.last);
                return self.end(slot, Err(cause));
            }
        };
        request.begin(self.now, claim, backend);
        let id = TryId {
            slot,
            stamp: request.stamp,
        };
        self.record.picked(self.now, backend, request.tries);
        self.events.push_reached(self.now + self.network, id);
        if let Some(timeout) = self.scenario.pool.response_timeout {
            let at = self.now + timeout.as_nanos() as u64;
            self.events.push_try_timeout(at, id);
        }
    }

    /// A try reaches its backend.
    pub(super) fn reached(&mut self, id: TryId) {
        let Some(request) = self.requests.of_try(id) else {
            return;
        };
        let (number, work) = (request.backend, request.work);
        let backend = &mut self.backends[number as usize];
        request.found = backend.station.in_flight() as u32;
        if backend.is_refusing() {
            return self.answer(id, Answer::Failed(Cause::Refused));
        }
        if let Some(failing) = backend.failing()
            && (failing.share >= 1.0 || self.chance.unit() < failing.share)
        {
            let at = self.now + failing.after.as_nanos() as u64;
            let answer = Answer::Failed(Cause::Status(failing.status));
            return self.events.push(at, Event::Reply { id, answer });
        }
        match backend.station.arrive(self.now, id, work) {
            Admitted::Started => self.schedule(number),
            Admitted::Queued => self.record.queued(backend.station.queued()),
            Admitted::Full => self.answer(id, Answer::Failed(Cause::Status(503))),
        }
    }

    /// A backend's next end of service is due, unless its speed has changed since.
    pub(super) fn served(&mut self, number: u32) {
        let backend = &mut self.backends[number as usize];
        if backend.scheduled != self.now {
            return;
        }
        backend.scheduled = u64::MAX;
        let requests = &self.requests;
        let served = backend.station.finish(self.now, |id| requests.waits(id));
        if backend.note_served() {
            backend.adjust(self.now);
        }
        self.schedule(number);
        if let Some(id) = served {
            if let Some(request) = self.requests.of_try(id) {
                let took = self.now - (request.started + self.network);
                self.backends[number as usize]
                    .recent
                    .note(request.found, took);
            }
            self.answer(id, Answer::Ok);
        }
    }

    /// An answer reaches its balancer.
    pub(super) fn answered(&mut self, id: TryId, answer: Answer) {
        let Some(request) = self.requests.of_try(id) else {
            return;
        };
        match answer {
            Answer::Failed(cause) => self.try_failed(id.slot, cause),
            Answer::Ok => {
                let latency = Duration::from_nanos(self.now - request.started);
                let balancer = &mut self.balancers[request.balancer as usize];
                if let Some(claim) = request.end_try() {
                    balancer.observe(self.now, &claim, Outcome::Success { latency });
                }
                self.end(id.slot, Ok(()));
            }
        }
    }

    pub(super) fn try_timed_out(&mut self, id: TryId) {
        if self.requests.waits(id) {
            self.try_failed(id.slot, Cause::ResponseTimeout);
        }
    }

    pub(super) fn client_timed_out(&mut self, slot: u32, number: u64) {
        if !self.requests.is_under_way(slot, number) {
            return;
        }
        let request = self.requests.slot(slot);
        let waited = Duration::from_nanos(self.now - request.started);
        if let Some(claim) = request.end_try() {
            let aborted = Outcome::Aborted { waited };
            self.balancers[request.balancer as usize].observe(self.now, &claim, aborted);
        }
        self.end(slot, Err(Cause::ClientTimeout));
    }

    /// The backend's next end of service becomes an event.
    pub(super) fn schedule(&mut self, number: u32) {
        let backend = &mut self.backends[number as usize];
        let next = backend.station.next_end().map(|at| at.max(self.now));
        match next {
            Some(at) if at != backend.scheduled => {
                backend.scheduled = at;
                self.events.push(at, Event::Served { backend: number });
            }
            Some(_) => {}
            None => backend.scheduled = u64::MAX,
        }
    }

    pub(super) fn answer(&mut self, id: TryId, answer: Answer) {
        if self.requests.waits(id) {
            self.events
                .push_answered(self.now + self.network, id, answer);
        }
    }

    fn try_failed(&mut self, slot: u32, cause: Cause) {
        let request = self.requests.slot(slot);
        let balancer = &mut self.balancers[request.balancer as usize];
        if let Some(claim) = request.end_try() {
            let latency = Duration::from_nanos(self.now - request.started);
            balancer.observe(self.now, &claim, outcome(cause, latency));
        }
        let retry = &self.scenario.pool.retry;
        let is_retried = request.tries < retry.tries_max
            && match cause {
                // What provably reached nothing costs no backend anything.
                Cause::Refused => true,
                Cause::Reset => retry.reset && balancer.withdraw(self.now),
                Cause::ResponseTimeout => retry.timeout && balancer.withdraw(self.now),
                Cause::Status(status) => {
                    retry.statuses.contains(&status) && balancer.withdraw(self.now)
                }
                _ => false,
            };
        if !is_retried {
            return self.end(slot, Err(cause));
        }
        request.last = Some(cause);
        let (tries, number) = (request.tries, request.number);
        if tries < 2 {
            return self.begin_try(slot);
        }
        let most = (BACKOFF << (tries - 2)).min(BACKOFF_MAX);
        let at = self.now + (most as f64 * self.chance.unit()) as u64;
        self.events.push(at, Event::Retry { slot, number });
    }

    fn end(&mut self, slot: u32, result: Result<(), Cause>) {
        let arrived = self.requests.slot(slot).arrived;
        self.requests.remove(slot);
        self.record.ended(self.now, arrived, result);
    }
}

/// What a request fails of that finds nobody: of its last try if there was one.
fn unpicked(why: NoPick, last: Option<Cause>) -> Cause {
    match last {
        Some(cause) if !matches!(cause, Cause::Status(_)) => cause,
        _ if why == NoPick::Saturated => Cause::Saturated,
        _ => Cause::NoBackend,
    }
}

fn outcome(cause: Cause, latency: Duration) -> Outcome {
    match cause {
        Cause::Status(status) => Outcome::ServerError {
            status,
            latency,
            retry_after: None,
        },
        Cause::Refused => Outcome::Failure(Failure::ConnectRefused),
        Cause::Reset => Outcome::Failure(Failure::Reset),
        Cause::ResponseTimeout => Outcome::Failure(Failure::Timeout),
        Cause::ClientTimeout | Cause::NoBackend | Cause::Saturated => Outcome::Aborted {
            waited: Duration::ZERO,
        },
    }
}
