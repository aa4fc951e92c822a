//! Requests on their way: a slab, so that the steady state allocates nothing.

use mizan_core::Claim;

/// Most tries of one request; `RetryPlan::tries_max` is at most this.
pub(crate) const TRIES_MAX: usize = 8;

/// One try of one request. A try that is over has a stamp that its slot no longer has, so whatever
/// still speaks of it (an answer under way, a time-out) is known to be late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TryId {
    pub(crate) slot: u32,
    pub(crate) stamp: u32,
}

/// What a request failed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    Status(u16),
    Refused,
    Reset,
    ResponseTimeout,
    ClientTimeout,
    NoBackend,
    Saturated,
}

impl Cause {
    pub(crate) const COUNT: usize = 7;

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Status(_) => 0,
            Self::Refused => 1,
            Self::Reset => 2,
            Self::ResponseTimeout => 3,
            Self::ClientTimeout => 4,
            Self::NoBackend => 5,
            Self::Saturated => 6,
        }
    }

    pub(crate) const NAMES: [&'static str; Self::COUNT] = [
        "status",
        "refused",
        "reset",
        "response_timeout",
        "client_timeout",
        "no_backend",
        "saturated",
    ];
}

/// One request, from its arrival to its end.
#[derive(Debug)]
pub(crate) struct Request {
    /// Unique in the simulation, unlike the slot.
    pub(crate) number: u64,
    pub(crate) arrived: u64,
    /// Nanoseconds in a slot of speed 1.
    pub(crate) work: f64,
    pub(crate) hash: u64,
    pub(crate) balancer: u32,
    /// Of the try in progress.
    pub(crate) stamp: u32,
    pub(crate) backend: u32,
    pub(crate) tries: u32,
    /// When the try in progress began.
    pub(crate) started: u64,
    /// Requests that it found at the backend.
    pub(crate) found: u32,
    pub(crate) claim: Option<Claim>,
    /// `Backend::id` of those tried.
    tried: [u64; TRIES_MAX],
    /// What the last try failed of.
    pub(crate) last: Option<Cause>,
}

impl Request {
    pub(crate) fn tried(&self) -> &[u64] {
        &self.tried[..(self.tries as usize).min(TRIES_MAX)]
    }

    /// A try begins.
    pub(crate) fn begin(&mut self, now: u64, claim: Claim, backend: u32) {
        if let Some(place) = self.tried.get_mut(self.tries as usize) {
            *place = claim.backend().id();
        }
        self.tries += 1;
        self.stamp = self.stamp.wrapping_add(1);
        self.started = now;
        self.backend = backend;
        self.claim = Some(claim);
    }

    /// The try in progress is over; its claim is given back when the result drops.
    pub(crate) fn end_try(&mut self) -> Option<Claim> {
        self.stamp = self.stamp.wrapping_add(1);
        self.claim.take()
    }
}

/// What an arrival brings with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: u64,
    pub(crate) balancer: u32,
    pub(crate) hash: u64,
    pub(crate) work: f64,
}

/// All requests on their way.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    slots: Vec<Request>,
    free: Vec<u32>,
    arrived: u64,
}

impl Requests {
    /// Takes in an arrival; gives its slot.
    pub(crate) fn add(&mut self, arrival: Arrival) -> u32 {
        self.arrived += 1;
        let fresh = |stamp| Request {
            number: self.arrived,
            arrived: arrival.at,
            work: arrival.work,
            hash: arrival.hash,
            balancer: arrival.balancer,
            stamp,
            backend: 0,
            tries: 0,
            started: arrival.at,
            found: 0,
            claim: None,
            tried: [0; TRIES_MAX],
            last: None,
        };
        match self.free.pop() {
            Some(slot) => {
                let place = &mut self.slots[slot as usize];
                *place = fresh(place.stamp);
                slot
            }
            None => {
                self.slots.push(fresh(0));
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        let request = &mut self.slots[slot as usize];
        request.number = 0;
        request.stamp = request.stamp.wrapping_add(1);
        self.free.push(slot);
    }

    pub(crate) fn slot(&mut self, slot: u32) -> &mut Request {
        &mut self.slots[slot as usize]
    }

    /// The request, if `id` is its try in progress.
    pub(crate) fn of_try(&mut self, id: TryId) -> Option<&mut Request> {
        let request = &mut self.slots[id.slot as usize];
        (request.stamp == id.stamp).then_some(request)
    }

    /// Whether somebody waits for this try.
    pub(crate) fn waits(&self, id: TryId) -> bool {
        self.slots[id.slot as usize].stamp == id.stamp
    }

    /// Whether the request of this number is still under way in this slot.
    pub(crate) fn is_under_way(&self, slot: u32, number: u64) -> bool {
        self.slots[slot as usize].number == number
    }

    /// Requests that arrived so far.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    pub(crate) fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
