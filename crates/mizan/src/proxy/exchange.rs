//! A burst of requests on one connection: read a head, decide, answer or forward, record.

use super::answer;
use super::connection::{self, BURST, Downstream, Next};
use super::cut;
use super::error::Reason;
use super::forward;
use super::plan::{self, Decision, Plan};
use super::record::{self, Record};
use super::trust::{self, Trust};
use super::upgrade::Upgraded;
use super::worker::{InForce, Worker};
use crate::clock;
use crate::h1::HeadError;
use crate::h1::scan::Scanner;
use crate::snapshot::Listener;
use mizan_core::time::Instant;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// What a connection is good for after an exchange.
#[derive(Debug)]
pub(super) enum After {
    /// The next request.
    Keep,
    /// Nothing.
    Close,
    /// Nothing, but the client may still be sending.
    Linger,
    /// This tunnel, which has not begun. Nothing of it is recorded yet.
    Tunnel(Box<Upgraded>),
}

/// Serves requests until none has come for [`BURST`].
pub(super) async fn burst(down: &mut Downstream, worker: &Rc<Worker>) -> Next {
    loop {
        let times = match read_head(down, worker).await {
            Head::Read(times) => times,
            Head::Idle => return Next::Idle,
            Head::End => return Next::Close,
            Head::Refused(reason, started) => return refuse(down, worker, (reason, started)).await,
            Head::Http2 => return Next::Http2,
        };
        down.requests += 1;
        match exchange(down, worker, times).await {
            After::Keep => {}
            After::Close => return Next::Close,
            After::Linger => return Next::Linger,
            After::Tunnel(upgraded) => return Next::Tunnel(upgraded),
        }
        if down.input.as_ref().is_some_and(|input| input.is_empty()) {
            down.input = None;
        }
        down.idle_until_ms = down.timer.deadline_after(down.listener.timeouts.idle);
        // Who pipelines without end gets its turn as everybody else does.
        tokio::task::coop::consume_budget().await;
    }
}

enum Head {
    /// A whole head is at the start of the input; its first and its last byte came then.
    Read((Instant, Instant)),
    /// Nothing came for [`BURST`].
    Idle,
    /// The client has closed, or is cut.
    End,
    /// It gets an answer and is cut; its first byte came then.
    Refused(Reason, Instant),
    /// It is no head: the connection speaks HTTP/2.
    Http2,
}

async fn read_head(down: &mut Downstream, worker: &Rc<Worker>) -> Head {
    let mut scanner = Scanner::default();
    let mut first_byte = None;
    let mut is_timed = false;
    let head_bytes_max = down.listener.limits.head_bytes_max;
    loop {
        if let Some(input) = &mut down.input {
            if first_byte.is_none() {
                skip_empty_lines(input);
            }
            // Half an empty line is not yet the beginning of a head.
            if !input.is_empty() && input.unread() != b"\r" {
                let is_preface = input.unread().starts_with(b"PRI * HTTP/2.0\r\n");
                if is_preface && down.requests == 0 && down.listener.http2.enabled {
                    return Head::Http2;
                }
                let begun = first_byte;
                let first = *first_byte.get_or_insert_with(clock::now);
                match scanner.scan(input.unread()) {
                    Ok(true) => {
                        let last = if begun.is_some() { clock::now() } else { first };
                        return Head::Read((first, last));
                    }
                    Ok(false) if input.len() >= head_bytes_max => {
                        return Head::Refused(too_large(input.unread(), &down.listener), first);
                    }
                    Ok(false) => {}
                    Err(error) => return Head::Refused(Reason::Head(error), first),
                }
                if input.is_full() {
                    input.grow(head_bytes_max);
                }
            }
        }
        if !is_timed {
            down.timer.set_at(head_deadline(down, first_byte.is_some()));
            is_timed = first_byte.is_some();
        }
        match read_more(down, worker).await {
            Read::Bytes => {}
            Read::End => return Head::End,
            Read::Expired => {
                return match first_byte {
                    Some(first) => Head::Refused(Reason::HeaderTimeout, first),
                    None if down.timer.now_ms() < down.idle_until_ms => Head::Idle,
                    None => Head::End,
                };
            }
        }
    }
}

/// Until when the next bytes must come: within a head its own time-out holds, before it the burst's and the idle
/// time. A connection's first head is due within its time-out of the connection.
fn head_deadline(down: &Downstream, has_begun: bool) -> u64 {
    let is_first = down.requests == 0;
    match (has_begun, is_first) {
        (_, true) => down.idle_until_ms,
        (true, false) => down.timer.deadline_after(down.listener.timeouts.header),
        (false, false) => down.idle_until_ms.min(down.timer.deadline_after(BURST)),
    }
}

/// RFC 9112 §2.2: an empty line or two before a request line are passed over.
fn skip_empty_lines(input: &mut super::buffer::Buffer) {
    for _ in 0..4 {
        if input.unread().starts_with(b"\r\n") {
            input.consume(2);
        }
    }
}

/// 414 if the first line alone is too long, else 431.
fn too_large(bytes: &[u8], listener: &Listener) -> Reason {
    let line = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let in_target = line > listener.limits.target_bytes_max;
    Reason::Head(if in_target {
        HeadError::TargetTooLong
    } else {
        HeadError::TooLarge
    })
}

/// Serves the one request of a stream, whose head lies in the input; gives the tunnel that it has become.
pub(super) async fn one(down: &mut Downstream, worker: &Rc<Worker>) -> Option<Box<Upgraded>> {
    let now = clock::now();
    match exchange(down, worker, (now, now)).await {
        After::Tunnel(upgraded) => return Some(upgraded),
        After::Close => return None,
        After::Keep if down.transport.is_read() => return None,
        After::Keep | After::Linger => {}
    }
    // A reset right behind an answer makes some clients forget the answer. Also where a length has said that the body
    // is whole, the frame that ends it may still come.
    connection::linger(down, worker).await;
    None
}

/// Answers a stream whose head is not sound.
pub(super) async fn refuse_one(down: &mut Downstream, worker: &Rc<Worker>, reason: Reason) {
    refuse(down, worker, (reason, clock::now())).await;
    connection::linger(down, worker).await;
}

enum Read {
    Bytes,
    End,
    Expired,
}

/// Reads what is there; holds no buffer while nothing is.
async fn read_more(down: &mut Downstream, worker: &Rc<Worker>) -> Read {
    std::future::poll_fn(|cx| {
        loop {
            match down.transport.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Read::End),
                Poll::Pending if down.timer.poll_expired(cx) => return Poll::Ready(Read::Expired),
                Poll::Pending => return Poll::Pending,
            }
            let input = down.input.get_or_insert_with(|| worker.buffers.small());
            match down.transport.poll_read(cx, input.room()) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => return Poll::Ready(Read::End),
                Poll::Ready(Ok(count)) => {
                    input.filled(count);
                    return Poll::Ready(Read::Bytes);
                }
                // The readiness was stale; it is cleared now.
                Poll::Pending => {}
            }
        }
    })
    .await
}

/// Answers a head that was never whole or never sound, and ends the connection.
async fn refuse(
    down: &mut Downstream,
    worker: &Rc<Worker>,
    (reason, started): (Reason, Instant),
) -> Next {
    let in_force = settle(&mut down.listener, worker).0;
    let mut plan = Plan::new(Vec::new());
    let mut outcome = Record::new(started, 0);
    if let Some(input) = &down.input {
        outcome.bytes_in = input.len() as u64;
        plan::note_unsound(input.unread(), down, worker, &in_force, &mut plan);
    }
    let mut begun = record::started(down, &in_force);
    answer::send(down, worker, &plan, None, reason, false, &mut outcome).await;
    record::finished(down, worker, &in_force, &plan, &outcome);
    begun.told();
    if plan.logged.bytes.capacity() > 0 {
        worker.put_scratch(plan.logged.bytes);
    }
    Next::Linger
}

/// What a connection is in the snapshot of its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its listener is in it.
    InForce,
    /// The same, but it asks something else of clients than it did when the connection was last looked at.
    AsksOtherwise,
    /// Its listener is no longer in it.
    Gone,
}

/// The snapshot for this request, and what the connection is in it.
pub(super) fn settle(held: &mut Arc<Listener>, worker: &Worker) -> (Rc<InForce>, Standing) {
    let in_force = worker.in_force();
    let listeners = &in_force.snapshot.listeners;
    let is_in_force = |listener: &Arc<Listener>| Arc::ptr_eq(listener, held);
    if listeners.get(held.index).is_some_and(is_in_force) {
        return (in_force, Standing::InForce);
    }
    let Some(listener) = Worker::listener(&in_force.snapshot, &held.bind) else {
        return (in_force, Standing::Gone);
    };
    let before = std::mem::replace(held, listener);
    let standing = match trust::ask_alike(&before, held) {
        true => Standing::InForce,
        false => Standing::AsksOtherwise,
    };
    (in_force, standing)
}

async fn exchange(
    down: &mut Downstream,
    worker: &Rc<Worker>,
    (started, decided): (Instant, Instant),
) -> After {
    let _in_flight = worker.in_flight();
    let (in_force, standing) = settle(&mut down.listener, worker);
    let trust = trust::of_client(standing, down);
    let mut begun = record::started(down, &in_force);
    let mut plan = Plan::new(worker.scratch());
    let mut outcome = Record::new(started, 0);
    outcome.decided = decided;
    let decision = match &down.input {
        Some(input) => plan::decide(input.unread(), down, worker, &in_force, &mut plan),
        None => Decision::Answer(None, Reason::ClientGone),
    };
    let decision = match trust {
        Trust::Holds | Trust::Unasked => decision,
        Trust::Broken => Decision::Answer(None, Reason::ClientAuth),
    };
    outcome.bytes_in = plan.head_length as u64;
    if let Some(input) = &mut down.input {
        if plan.head_length == 0 {
            // It ends here: all that came was for nothing.
            outcome.bytes_in = input.len() as u64;
        }
        input.consume(plan.head_length);
    }
    plan.keep_alive &= standing != Standing::Gone && trust == Trust::Holds;
    plan.keep_alive &= !worker.is_closing();
    if let Some(most) = down.listener.requests_per_connection_max {
        plan.keep_alive &= down.requests < most;
    }
    let done = {
        let doing = act(down, (worker, &in_force), &plan, decision, &mut outcome);
        cut::until(&worker.wheel, std::pin::pin!(doing)).await
    };
    let after = match done {
        Ok(after) => after,
        Err(cut) => {
            cut::note(cut, &in_force, &mut outcome);
            match outcome.status {
                // Boxed: a burst's future has no room for what happens once.
                0 => Box::pin(cut::answer(down, worker, &plan, cut, &mut outcome)).await,
                _ => After::Close,
            }
        }
    };
    if !matches!(after, After::Tunnel(_)) {
        record::finished(down, worker, &in_force, &plan, &outcome);
    }
    begun.told();
    worker.put_scratch(plan.head);
    if plan.logged.bytes.capacity() > 0 {
        worker.put_scratch(plan.logged.bytes);
    }
    after
}

/// Does what was decided.
async fn act<'s>(
    down: &mut Downstream,
    (worker, in_force): (&'s Rc<Worker>, &'s Rc<InForce>),
    plan: &'s Plan,
    decision: Decision<'s>,
    outcome: &mut Record<'s>,
) -> After {
    match decision {
        Decision::Forward(route, pool) => {
            forward::forward(down, worker, in_force, plan, (route, pool), outcome).await
        }
        Decision::Answer(route, reason) => {
            outcome.route = route.map(|route| &**route);
            outcome.place = in_force
                .series
                .place(route.map(|route| route.index), None, "");
            let keep = answer::keeps(plan, reason);
            answer::send(down, worker, plan, route, reason, keep, outcome).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<'a, F: Future + 'a>(
        _: impl Fn(&'a mut Downstream, &'a Rc<Worker>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// A connection is one of these while a request is under way, and a tenth of a second longer.
    #[test]
    fn the_future_of_a_burst_is_small() {
        let size = size_of_future(burst);
        assert!(size <= 2_700, "{size} bytes");
    }
}
