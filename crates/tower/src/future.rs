//! A call on its way.

use crate::classify::Classify;
use crate::error::{BoxError, Error};
use crate::in_flight::InFlight;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

pin_project! {
    /// A call on its way. Dropped before its end it counts as aborted, and the backend's place is given back.
    pub struct ResponseFuture<S, Req, C>
    where
        S: Service<Req>,
    {
        // Dropped before `in_flight`: the call has ended when its place is given back.
        #[pin]
        state: State<S, Req>,
        // None if nobody was picked, and after the end.
        in_flight: Option<InFlight>,
        classify: C,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, Req>
    where
        S: Service<Req>,
    {
        // Picked for this request: its service gets ready only now.
        Waiting { service: S, request: Option<Req> },
        Calling {
            #[pin]
            future: S::Future,
        },
        Failed { error: Option<Error> },
    }
}

impl<S: Service<Req>, Req, C> ResponseFuture<S, Req, C> {
    pub(crate) fn waiting(service: S, request: Req, in_flight: InFlight, classify: C) -> Self {
        let request = Some(request);
        Self {
            state: State::Waiting { service, request },
            in_flight: Some(in_flight),
            classify,
        }
    }

    pub(crate) fn calling(future: S::Future, in_flight: InFlight, classify: C) -> Self {
        Self {
            state: State::Calling { future },
            in_flight: Some(in_flight),
            classify,
        }
    }

    pub(crate) fn failed(error: Error, classify: C) -> Self {
        Self {
            state: State::Failed { error: Some(error) },
            in_flight: None,
            classify,
        }
    }
}

impl<S, Req, C> Future for ResponseFuture<S, Req, C>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
    C: Classify<S::Response>,
{
    type Output = Result<S::Response, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = loop {
            match this.state.as_mut().project() {
                StateProjection::Waiting { service, request } => {
                    if let Err(error) = ready!(service.poll_ready(cx)) {
                        break Err(error);
                    }
                    let request = request.take().expect("leaves this state with the call");
                    let future = service.call(request);
                    this.state.set(State::Calling { future });
                }
                StateProjection::Calling { future } => break ready!(future.poll(cx)),
                StateProjection::Failed { error } => {
                    let error = error.take().expect("polled after it had ended");
                    return Poll::Ready(Err(error));
                }
            }
        };
        let result = result.map_err(Into::into);
        let verdict = match &result {
            Ok(response) => this.classify.classify(Ok(response)),
            Err(error) => this.classify.classify(Err(&**error)),
        };
        if let Some(in_flight) = this.in_flight.take() {
            in_flight.ended(verdict);
        }
        Poll::Ready(result.map_err(Error::Service))
    }
}

impl<S: Service<Req>, Req, C> fmt::Debug for ResponseFuture<S, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}
