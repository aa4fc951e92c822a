//! The service: readiness, pick and call.
//!
//! `poll_ready` picks: it gives its readiness when a backend has a place and that backend's service is ready, and holds
//! both until the call. If the service is not ready, others are picked beside it, up to [`CANDIDATES_MAX`], and the
//! first that gets ready is taken. The call checks that the backend is still usable, and picks anew if not.
//! With a [`Key`] the pick has to wait for the request: `poll_ready` then only says whether there is a place somewhere.

use crate::backends::Backends;
use crate::classify::{AnyResponse, Classify};
use crate::driver::{Driver, Held, Waiter};
use crate::error::BoxError;
use crate::future::ResponseFuture;
use crate::in_flight::InFlight;
use crate::key::{Key, NoKey};
use crate::source::Source;
use mizan_core::{Instant, NoPick};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// How many backends one handle waits for at a time when their services are not ready.
pub const CANDIDATES_MAX: usize = 8;

/// Balances requests over backends. Clones share the pool, so they count and learn together; a clone costs two reference
/// counts.
///
/// - **Ready** when a backend has a place and its service is ready. Until the call, that place is taken: do not hold a
///   ready handle for long, drop it instead.
/// - **Not ready** while all usable backends have as many requests in flight as they may
///   ([`Member::in_flight_max`](mizan_core::Member::in_flight_max)), while the services of all those that were picked are
///   not ready, and while there are no members, as nobody may have been discovered yet.
/// - **Ready, but the call fails** with [`Error::NoBackend`](crate::Error::NoBackend) when there are members and none of
///   them is usable: that is not over soon.
/// - `poll_ready` never fails: the error of one backend's service is not the end of the pool. It comes from the call.
///
/// A response future that is dropped counts as aborted. So a time limit around the balancer says nothing
/// of a backend that hangs: put it into the backends' services.
pub struct Balance<P: Source, C = AnyResponse, K = NoKey> {
    source: P,
    driver: Arc<Driver>,
    classify: C,
    key: K,
    state: State<P::Service>,
}

/// What a handle has got, from one call to the next.
enum State<S> {
    Idle,
    Waiting {
        /// For a place.
        waiter: Waiter,
        /// For their services.
        candidates: Vec<Picked<S>>,
    },
    Ready(Option<Picked<S>>),
    /// The service failed instead of getting ready.
    Failed(BoxError),
}

/// A place, and the service there.
struct Picked<S> {
    place: Held,
    service: S,
    /// A claim that is a trial is not usable for others from the start.
    was_usable: bool,
}

impl<P: Source> Balance<P> {
    /// Over `backends`, whose services `source` gives; [`Backends::balance`] takes those that it was given.
    pub fn new<S>(backends: &Backends<S>, source: P) -> Self {
        Self {
            source,
            driver: Arc::clone(backends.driver()),
            classify: AnyResponse,
            key: NoKey,
            state: State::Idle,
        }
    }
}

impl<P: Source, C, K> Balance<P, C, K> {
    /// Judges results with `classify`.
    pub fn classify<C2>(self, classify: C2) -> Balance<P, C2, K> {
        Balance {
            source: self.source,
            driver: self.driver,
            classify,
            key: self.key,
            state: self.state,
        }
    }

    /// Picks by the hash that `key` gives; a closure will do.
    pub fn key<K2>(self, key: K2) -> Balance<P, C, K2> {
        Balance {
            source: self.source,
            driver: self.driver,
            classify: self.classify,
            key,
            state: State::Idle,
        }
    }

    /// A backend and its service. Who leaves between the pick and the look at the services is not picked again.
    fn pick(
        &self,
        now: Instant,
        hash: Option<u64>,
        tried: &[u64],
    ) -> Result<Picked<P::Service>, NoPick> {
        let mut gone: Vec<u64> = Vec::new();
        loop {
            let place = match gone.is_empty() {
                true => self.driver.pick(now, hash, tried)?,
                false => self.driver.pick(now, hash, &[tried, &gone].concat())?,
            };
            let was_usable = place.backend().is_usable();
            match self.source.service(place.backend()) {
                Some(service) => {
                    return Ok(Picked {
                        place,
                        service,
                        was_usable,
                    });
                }
                // Picked again although it is gone: nobody else is there.
                None if gone.contains(&place.backend().id()) => return Err(NoPick::Empty),
                None => gone.push(place.backend().id()),
            }
        }
    }
}

impl<P, C, K, Req> Service<Req> for Balance<P, C, K>
where
    P: Source,
    P::Service: Service<Req>,
    <P::Service as Service<Req>>::Error: Into<BoxError>,
    C: Classify<<P::Service as Service<Req>>::Response> + Clone,
    K: Key<Req>,
{
    type Response = <P::Service as Service<Req>>::Response;
    type Error = crate::Error;
    type Future = ResponseFuture<P::Service, Req, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let (mut waiter, mut candidates) = match std::mem::replace(&mut self.state, State::Idle) {
            ready @ (State::Ready(_) | State::Failed(_)) => {
                self.state = ready;
                return Poll::Ready(Ok(()));
            }
            State::Waiting { waiter, candidates } => (Some(waiter), candidates),
            State::Idle => (None, Vec::new()),
        };
        loop {
            // Only who is known to those who give something back, and then finds nothing, may wait.
            waiter.take_if(|waiter| waiter.poll(cx).is_ready());
            candidates = match self.look::<Req>(cx, candidates) {
                Look::Found(state) => {
                    self.state = state;
                    return Poll::Ready(Ok(()));
                }
                Look::Nothing(candidates) => candidates,
            };
            if let Some(waiter) = waiter {
                self.state = State::Waiting { waiter, candidates };
                return Poll::Pending;
            }
            waiter = Some(Waiter::new(&self.driver, self.driver.now()));
        }
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let now = self.driver.now();
        let picked = match std::mem::replace(&mut self.state, State::Idle) {
            State::Failed(error) => {
                return ResponseFuture::failed(crate::Error::Service(error), self.classify.clone());
            }
            State::Ready(picked) => picked.filter(Picked::is_good),
            State::Idle | State::Waiting { .. } => None,
        };
        let classify = self.classify.clone();
        if let Some(mut picked) = picked {
            let future = picked.service.call(request);
            return ResponseFuture::calling(future, InFlight::new(picked.place, now), classify);
        }
        let hash = self.key.hash(&request);
        match self.pick(now, hash, &[]) {
            Ok(Picked { place, service, .. }) => {
                ResponseFuture::waiting(service, request, InFlight::new(place, now), classify)
            }
            Err(no_pick) => ResponseFuture::failed(crate::Error::NoBackend(no_pick), classify),
        }
    }
}

/// What a look at the pool came to.
enum Look<S> {
    /// It is worth a call.
    Found(State<S>),
    /// Nothing yet; these are being waited for.
    Nothing(Vec<Picked<S>>),
}

impl<P: Source, C, K> Balance<P, C, K> {
    /// Looks for a place whose service is ready.
    fn look<Req>(
        &self,
        cx: &mut Context<'_>,
        mut candidates: Vec<Picked<P::Service>>,
    ) -> Look<P::Service>
    where
        P::Service: Service<Req>,
        <P::Service as Service<Req>>::Error: Into<BoxError>,
        C: Classify<<P::Service as Service<Req>>::Response>,
        K: Key<Req>,
    {
        let mut tried: Vec<u64> = Vec::new();
        let mut last_error = None;
        let mut waiting = Vec::new();
        let now = self.driver.now();
        loop {
            let next = match candidates.pop() {
                Some(candidate) if candidate.is_good() => candidate,
                Some(_) => continue,
                None if waiting.len() >= CANDIDATES_MAX => break,
                None => match self.pick(now, None, &tried) {
                    Ok(picked) if tried.contains(&picked.place.backend().id()) => {
                        picked.place.put_back();
                        break;
                    }
                    Ok(_) if K::IS_KEYED => return Look::Found(State::Ready(None)),
                    Ok(picked) => picked,
                    Err(NoPick::NoneUsable) if waiting.is_empty() && last_error.is_none() => {
                        return Look::Found(State::Ready(None));
                    }
                    Err(_) => break,
                },
            };
            let mut next = next;
            match next.service.poll_ready(cx) {
                Poll::Ready(Ok(())) => return Look::Found(State::Ready(Some(next))),
                Poll::Ready(Err(error)) => {
                    let error = error.into();
                    tried.push(next.place.backend().id());
                    let outcome = self.classify.classify(Err(&*error)).outcome(Duration::ZERO);
                    self.driver.observe(now, next.place.backend(), outcome);
                    next.place.put_back();
                    last_error = Some(error);
                }
                Poll::Pending => {
                    tried.push(next.place.backend().id());
                    waiting.push(next);
                }
            }
        }
        match last_error {
            Some(error) if waiting.is_empty() => Look::Found(State::Failed(error)),
            _ => Look::Nothing(waiting),
        }
    }
}

impl<S> Picked<S> {
    /// Whether its backend is as good as when it was picked.
    fn is_good(&self) -> bool {
        !self.was_usable || self.place.backend().is_usable()
    }
}

/// The clone has nothing in hand: a place is for one request.
impl<P: Source, C: Clone, K: Clone> Clone for Balance<P, C, K> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            driver: Arc::clone(&self.driver),
            classify: self.classify.clone(),
            key: self.key.clone(),
            state: State::Idle,
        }
    }
}

impl<P: Source, C, K> fmt::Debug for Balance<P, C, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Idle => "idle",
            State::Waiting { .. } => "waiting",
            State::Ready(_) => "ready",
            State::Failed(_) => "failed",
        };
        f.debug_struct("Balance")
            .field("driver", &self.driver)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
