//! Bytes both ways between two connections, until both have said all they had to say.
//!
//! ```text
//!          bytes                          FIN                    all written
//!   open ─────────▶ open      open ─────────────▶ finishing ─────────────────▶ done: FIN is passed on
//!                                 cannot write
//!   any stage ──────────────────────────────────▶ done: a reset is passed on, when the other way has ended
//! ```
//!
//! Each direction is on its own: a FIN is passed on as one, and the other way goes on. A reset is passed on as a reset,
//! because a FIN in its place would make a cut look like an end. While nothing moves, a tunnel holds no buffer and no
//! pipe.
//!
//! Of a WebSocket the frames are followed, so that at a drain a close can be put between two of them: each side is told
//! in its own protocol, and at a time of its own, so that not all clients come back at once.

mod direction;

use super::buffer::BufferPool;
use super::cut::Cut;
use super::timer::Timer;
use super::transport::Transport;
use super::worker::Worker;
use crate::websocket::Frames;
pub(super) use direction::Directions;
use direction::{Close, Side};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::futures::Notified;

/// How long a backend may still speak that was told of a drain, and how much of it is heard.
const LAST_WORDS: Duration = Duration::from_millis(500);
const LAST_BYTES_MAX: usize = 1 << 20;

/// What a tunnel needs and how long it may be.
#[derive(Debug)]
pub(super) struct Terms<'t> {
    /// The client's connection's.
    pub(super) timer: &'t Timer,
    pub(super) buffers: &'t Rc<BufferPool>,
    /// Silence both ways; zero: without end.
    pub(super) idle: Duration,
    /// Its end in any case, in ms of the timer; `u64::MAX`: none.
    pub(super) until_ms: u64,
    /// It carries a WebSocket, which a drain of this worker closes.
    pub(super) websocket: Option<&'t Worker>,
}

/// How a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Bytes written to the backend.
    pub(super) sent_up: u64,
    /// Bytes written to the client.
    pub(super) sent_down: u64,
    pub(super) why: Why,
}

/// Why a tunnel ended. But for the first two, what was on its way is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Both sides have ended, the client first.
    ClosedByClient,
    /// Both sides have ended, the backend first.
    ClosedByBackend,
    /// The client's connection is broken; the backend sees a reset.
    ClientReset,
    /// The backend's connection is broken; the client sees a reset.
    BackendReset,
    /// Nothing moved for [`Terms::idle`].
    Idle,
    /// It lasted until [`Terms::until_ms`].
    TooLong,
    /// A drain has closed it, both sides by a close frame.
    Drained,
    /// The process ends.
    Cut(Cut),
}

/// Hands bytes through between a client's connection and a backend's until the tunnel ends. `on_answer` is called when
/// the first byte of the backend has come.
///
/// Not an `async fn`: what such a one takes and moves on has a place in its future for as long as that lives.
pub(super) fn tunnel<'t>(
    directions: &'t mut Directions,
    (down, up): (&'t mut Transport, &'t mut Transport),
    terms: Terms<'t>,
    on_answer: impl FnMut() + 't,
) -> impl Future<Output = Ended> + 't {
    let mut tunnel = Tunnel {
        directions,
        down,
        up,
        terms,
        on_answer,
        is_answered: false,
        first: None,
        leave: Leave::default(),
    };
    async move {
        let mut drain = std::pin::pin!(tunnel.terms.websocket.map(Worker::drain_told));
        tunnel.begin();
        let why = std::future::poll_fn(|cx| tunnel.poll(cx, drain.as_mut().as_pin_mut())).await;
        tunnel.directions.upward.let_go();
        tunnel.directions.downward.let_go();
        if why == Why::Drained {
            Box::pin(hear_out(tunnel.up, &tunnel.terms)).await;
        }
        pass_on(why, tunnel.down, tunnel.up);
        Ended {
            sent_up: tunnel.directions.upward.sent,
            sent_down: tunnel.directions.downward.sent,
            why,
        }
    }
}

/// A tunnel under way.
struct Tunnel<'t, A> {
    directions: &'t mut Directions,
    down: &'t mut Transport,
    up: &'t mut Transport,
    terms: Terms<'t>,
    on_answer: A,
    is_answered: bool,
    /// How it will have ended when both sides have.
    first: Option<Why>,
    leave: Leave,
}

impl<A: FnMut()> Tunnel<'_, A> {
    fn begin(&mut self) {
        if self.terms.websocket.is_some() {
            self.directions.upward.frames = Some(Frames::default());
            self.directions.downward.frames = Some(Frames::default());
        }
        self.terms.timer.set_at(self.terms.deadline_ms());
    }

    /// Moves what there is both ways, and looks at the time. `drain` tells of a drain that the tunnel has a part in.
    fn poll(&mut self, cx: &mut Context<'_>, drain: Option<Pin<&mut Notified<'_>>>) -> Poll<Why> {
        let (terms, down, up) = (&self.terms, &mut *self.down, &mut *self.up);
        let Directions { upward, downward } = &mut *self.directions;
        if self.leave.is_due(cx, drain, terms) {
            upward.close = Some(Close::ToBackend);
            downward.close = Some(Close::ToClient);
            self.first = Some(Why::Drained);
            // What the timer waited for has come: that is no silence.
            terms.timer.set_at(terms.deadline_ms());
        }
        let from_client = upward.poll(cx, down, up, terms.buffers);
        let from_backend = downward.poll(cx, up, down, terms.buffers);
        if !self.is_answered && downward.is_begun {
            self.is_answered = true;
            (self.on_answer)();
        }
        if let Some(why) = broken(&from_client, &from_backend) {
            return Poll::Ready(why);
        }
        let is_told = upward.poll_fin(cx, up).is_ready() & downward.poll_fin(cx, down).is_ready();
        if self.first.is_none() {
            self.first = match (upward.has_ended(), downward.has_ended()) {
                // Both at once: a client's goes before what it led to.
                (true, _) => Some(Why::ClosedByClient),
                (false, true) => Some(Why::ClosedByBackend),
                (false, false) => None,
            };
        }
        if from_client.is_ready() && from_backend.is_ready() && is_told {
            return Poll::Ready(self.first.unwrap_or(Why::ClosedByClient));
        }
        if upward.take_active() | downward.take_active() {
            terms
                .timer
                .set_at(terms.deadline_ms().min(self.leave.at_ms()));
        }
        if let Some(cut) = terms.timer.is_cut() {
            return Poll::Ready(Why::Cut(cut));
        }
        if !terms.timer.poll_expired(cx) {
            return Poll::Pending;
        }
        let is_over = terms.until_ms <= terms.timer.now_ms();
        Poll::Ready(if is_over { Why::TooLong } else { Why::Idle })
    }
}

impl Terms<'_> {
    fn deadline_ms(&self) -> u64 {
        self.timer.deadline_after(self.idle).min(self.until_ms)
    }
}

/// Makes a cut one to the other side as well.
fn pass_on(why: Why, down: &mut Transport, up: &mut Transport) {
    match why {
        Why::ClientReset => up.reset_on_close(),
        Why::BackendReset => down.reset_on_close(),
        Why::TooLong | Why::Cut(_) => {
            up.reset_on_close();
            down.reset_on_close();
        }
        Why::ClosedByClient | Why::ClosedByBackend | Why::Idle | Why::Drained => {}
    }
}

/// Reads and drops what the backend still says to its close: to close with bytes unread would be a reset, by which
/// it can lose the close.
async fn hear_out(up: &mut Transport, terms: &Terms<'_>) {
    terms.timer.set(LAST_WORDS);
    let mut left = LAST_BYTES_MAX;
    let mut buffer = terms.buffers.small();
    std::future::poll_fn(|cx| {
        while left > 0 && !terms.timer.poll_expired(cx) {
            match ready!(up.poll_read(cx, buffer.room())) {
                Ok(count @ 1..) => left = left.saturating_sub(count),
                Ok(_) | Err(_) => break,
            }
        }
        Poll::Ready(())
    })
    .await;
}

/// When a tunnel leaves in a drain.
#[derive(Debug, Default)]
enum Leave {
    /// No drain has begun that it has a part in.
    #[default]
    Untold,
    /// At this time, in ms of the timer.
    At(u64),
    /// It was time to.
    Due,
}

impl Leave {
    /// Whether it is time to; true once.
    fn is_due(
        &mut self,
        cx: &mut Context<'_>,
        drain: Option<Pin<&mut Notified<'_>>>,
        terms: &Terms<'_>,
    ) -> bool {
        if let (Self::Untold, Some(worker), Some(drain)) = (&*self, terms.websocket, drain)
            // The look comes after the wait has begun, so that nothing is missed between the two.
            && (drain.poll(cx).is_ready() || worker.is_closing())
        {
            let at_ms = worker.leave_at_ms();
            terms.timer.set_at(terms.deadline_ms().min(at_ms));
            *self = Self::At(at_ms);
        }
        let is_due = matches!(self, Self::At(at_ms) if *at_ms <= terms.timer.now_ms());
        if is_due {
            *self = Self::Due;
        }
        is_due
    }

    fn at_ms(&self) -> u64 {
        match self {
            Self::At(at_ms) => *at_ms,
            Self::Untold | Self::Due => u64::MAX,
        }
    }
}

/// Whose connection is broken, once what the other way could still bring has been passed on: a backend may answer,
/// close and then reset what it is sent further; its answer is read to its end all the same.
fn broken(
    from_client: &Poll<Result<(), Side>>,
    from_backend: &Poll<Result<(), Side>>,
) -> Option<Why> {
    match (from_client, from_backend) {
        (Poll::Ready(Err(Side::From)), _) => Some(Why::ClientReset),
        (_, Poll::Ready(Err(Side::From))) => Some(Why::BackendReset),
        (Poll::Ready(Err(Side::To)), Poll::Ready(_)) => Some(Why::BackendReset),
        (Poll::Ready(_), Poll::Ready(Err(Side::To))) => Some(Why::ClientReset),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
