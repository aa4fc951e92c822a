//! From an open connection to a response head.

use super::answer;
use super::buffer::Buffer;
use super::connection::Downstream;
use super::error::Reason;
use super::forward::{Failed, Request, Sent};
use super::headers::{self, ResponseChange};
use super::plan::{Plan, Upgrade};
use super::record::Record;
use super::relay::{Head, Response};
use super::retry_after;
use super::transport::Transport;
use super::upload::{Progress, Upload};
use super::upstream::{self, End, Upstream};
use super::watch::Watch;
use crate::clock;
use crate::h1::field::Field;
use crate::h1::line::Lines;
use crate::h1::response;
use crate::h1::scan::Scanner;
use crate::h1::{Framing, HeadError, Version};
use crate::orca;
use crate::snapshot::Pool;
use crate::snapshot::route::{HeaderEdits, RouteTimeouts};
use mizan_core::backend::Backend;
use mizan_core::pool::LoadSource;
use mizan_core::time::Instant;
use std::task::{Context, Poll};
use std::time::Duration;

/// Longest response head; what a backend sends beyond is no HTTP.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Interim responses before the final one.
const INTERIM_MAX: u32 = 64;
/// How long a connection that refuses more of a request is still read for what it may have said.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The time-outs that hold for one request, the route's before the pool's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// End of the whole request, in ms of the wheel.
    pub(super) request_ms: u64,
    /// It was the client that set it: no backend is to blame for how short it is.
    is_clients: bool,
    pub(super) per_try: Duration,
    pub(super) response_header: Duration,
    pub(super) response_idle: Duration,
}

impl Deadlines {
    pub(super) fn new(down: &Downstream, pool: &Pool, route: &RouteTimeouts, plan: &Plan) -> Self {
        let timeouts = &pool.timeouts;
        let request = route.request.unwrap_or(timeouts.request);
        let ours_ms = down.timer.deadline_after(request);
        let clients_ms = match plan.patience {
            Some(patience) => down
                .timer
                .deadline_after(patience.max(Duration::from_millis(1))),
            None => u64::MAX,
        };
        Self {
            request_ms: ours_ms.min(clients_ms),
            is_clients: clients_ms < ours_ms,
            per_try: route.per_try.unwrap_or(timeouts.per_try),
            response_header: route.response_header.unwrap_or(timeouts.response_header),
            response_idle: route.response_idle.unwrap_or(timeouts.response_idle),
        }
    }
}

impl Deadlines {
    /// What the end of the whole request's time means.
    pub(super) fn over(&self) -> Reason {
        if self.is_clients {
            Reason::ClientTimeout
        } else {
            Reason::RequestTimeout
        }
    }
}

/// Sends the request and waits for the final response's head; interim ones are passed on.
pub(super) async fn response(
    down: &mut Downstream,
    request: &Request<'_>,
    upload: &mut Upload,
    up: &mut Upstream<'_>,
    (outcome, may_retry): (&mut Record<'_>, bool),
) -> Result<Response, Failed> {
    let plan = request.plan;
    let mut wait = Wait::new(down, request);
    let mut interim = 0;
    loop {
        if let Err(reason) = wait.more(down, request, upload, up).await {
            let failed = classify(reason, up, upload, interim > 0).await;
            let sent = wait.sent();
            return Err(Failed { sent, ..failed });
        }
        let Some(input) = wait.input.as_mut() else {
            return Err(Failed::delivered(Reason::Reset));
        };
        let mut out = request.worker.scratch();
        let translated = translate(input.unread(), &mut out, down, request, upload, up);
        let head = match translated.map_err(|error| unsound(error, input.unread(), up))? {
            Some((head, length)) => {
                input.consume(length);
                head
            }
            // Its end was seen, but the parser does not see it: one of the two is wrong, and nothing is passed on.
            None if wait.is_partial => {
                return Err(Failed::delivered(Reason::BadResponse(HeadError::StartLine)));
            }
            None => {
                request.worker.put_scratch(out);
                wait.is_partial = true;
                continue;
            }
        };
        if head.is_upgrade {
            return Ok(Response::new(head, wait.input, out, wait.sent_late));
        }
        if head.status >= 200 {
            let may_retry = may_retry && interim == 0;
            if may_retry && is_retried(&head, request, upload) {
                let failed = Failed::delivered(Reason::RetryStatus(head.status));
                let retry_after = head.retry_after;
                return Err(Failed {
                    retry_after,
                    ..failed
                });
            }
            return first_bytes(Response::new(head, wait.input, out, wait.sent_late));
        }
        if head.status == 101 || interim == INTERIM_MAX {
            return Err(Failed::delivered(Reason::BadInterim));
        }
        interim += 1;
        // RFC 9110 §15.2: HTTP/1.0 knows no interim responses; 100 is for who asked.
        if head.status == 100 {
            upload.client_may_send();
            // Its time to send begins now.
            wait.mark = (u64::MAX, usize::MAX);
        }
        if plan.version == Version::Http11 && (head.status != 100 || plan.expects_continue) {
            if !answer::write_all(down, &out).await {
                return Err(Failed::delivered(Reason::ClientGone));
            }
            outcome.bytes_out += out.len() as u64;
        }
        request.worker.put_scratch(out);
        wait.scanner = Scanner::default();
        wait.is_partial = false;
    }
}

/// What is wrong with an answer that the parser does not take.
fn unsound(error: HeadError, bytes: &[u8], up: &Upstream<'_>) -> Failed {
    if response::is_http2(bytes) {
        upstream::say_wrong_protocol(up.backend, "HTTP/2");
        return Failed::delivered(Reason::WrongProtocol);
    }
    Failed::delivered(Reason::BadResponse(error))
}

/// Looks at what of the body came with the head: as long as nothing was passed on, a broken one is a failed try.
fn first_bytes(mut response: Response) -> Result<Response, Failed> {
    match response.take_input() {
        Ok(()) => Ok(response),
        Err(reason) => Err(Failed::delivered(reason)),
    }
}

/// Whether the pool's retry rule names this status, and everything else allows another try. Draws on the budget.
fn is_retried(head: &Head, request: &Request<'_>, upload: &Upload) -> bool {
    request.pool.retry.on.statuses.contains(&head.status)
        && request.plan.idempotent
        && upload.is_replayable()
        && request.pool.core.retry_budget().withdraw(clock::now())
}

/// Parses the backend's head and writes the client's to `out`. The length of the former, or `None` if it is not whole.
fn translate(
    bytes: &[u8],
    out: &mut Vec<u8>,
    down: &Downstream,
    request: &Request<'_>,
    upload: &Upload,
    up: &Upstream<'_>,
) -> Result<Option<(Head, usize)>, HeadError> {
    let plan = request.plan;
    let mut lines = Lines::new();
    let Some(head) = response::parse(bytes, &mut lines, plan.is_head)? else {
        return Ok(None);
    };
    let framing_out = match (head.framing, plan.version) {
        // A cut must be visible to the client, which the end of a connection is not.
        (Framing::UntilClose, Version::Http11) => Framing::Chunked,
        (Framing::Chunked, Version::Http10) => Framing::UntilClose,
        (framing, _) => framing,
    };
    let keep_downstream = plan.keep_alive
        && framing_out != Framing::UntilClose
        && upload.is_read()
        && !request.worker.is_closing();
    let none = HeaderEdits::default();
    let is_final = head.status >= 200;
    let change = ResponseChange {
        version: plan.version,
        close: is_final && !keep_downstream,
        framing: framing_out,
        hsts: headers::hsts(down).filter(|_| is_final),
        upstream: (down.listener.upstream_header && is_final).then(|| up.backend.key().as_bytes()),
        edits: if is_final {
            &request.route.response_headers
        } else {
            &none
        },
    };
    headers::write_response(out, &head, &change);
    note_load(&head, request, up);
    let translated = Head {
        status: head.status,
        framing: head.framing,
        keep_upstream: head.keep_alive,
        keep_downstream,
        framing_out,
        is_upgrade: head.status == 101 && is_asked_for(plan, &head),
        retry_after: retry_after::asked(&head),
    };
    Ok(Some((translated, head.bytes.len())))
}

/// Tells core what the backend says of its load.
fn note_load(head: &response::ResponseHead<'_, '_>, request: &Request<'_>, up: &Upstream<'_>) {
    for line in head.lines {
        let read = match line.field {
            Field::LoadReport => orca::read(line.value),
            Field::LoadReportBinary => orca::read_binary(line.value),
            _ => continue,
        };
        report_load(read, request, up.backend);
    }
}

/// The same of a report that was read, wherever it stood. One that cannot be read is counted, and ignored.
pub(super) fn report_load(
    read: Result<orca::Report, orca::Malformed>,
    request: &Request<'_>,
    backend: &Backend,
) {
    let pool = request.pool;
    let place = request.in_force.series.pool_place(pool, backend.version());
    match read {
        Ok(report) => {
            request.in_force.series.pool(place).load_report();
            let source = LoadSource::Answer(request.worker.index);
            report.tell(&pool.core, clock::now(), backend, source);
        }
        Err(orca::Malformed) => {
            request.in_force.series.pool(place).bad_load_report();
        }
    }
}

/// Whether the backend changes to the protocol that the client has asked for.
fn is_asked_for(plan: &Plan, head: &response::ResponseHead<'_, '_>) -> bool {
    let (Some(asked), Some(protocol)) = (plan.upgrade, head.upgrade()) else {
        return false;
    };
    match asked {
        Upgrade::WebSocket => Upgrade::of(b"GET", protocol) == Some(Upgrade::WebSocket),
        // Names of protocols know no case, nor do their versions (RFC 9110 §7.8).
        Upgrade::Other => protocol.eq_ignore_ascii_case(headers::asked_protocol(&plan.head)),
    }
}

/// The wait for a head.
struct Wait {
    input: Option<Buffer>,
    /// What is in `input` was parsed and is not a whole head: from then on more bytes are only looked through.
    is_partial: bool,
    scanner: Scanner,
    watch: Watch,
    try_ms: u64,
    /// Deadline of what is being waited for, and what its passing means.
    phase: (u64, Reason),
    /// What the upload had achieved when the phase began.
    mark: (u64, usize),
    is_sent: bool,
    /// When everything was sent, if that was not at once: from then on the backend is what is waited for.
    sent_late: Option<Instant>,
    is_refused: bool,
}

impl Wait {
    fn new(down: &Downstream, request: &Request<'_>) -> Self {
        Self {
            input: None,
            is_partial: false,
            scanner: Scanner::default(),
            watch: Watch::default(),
            try_ms: down.timer.deadline_after(request.deadlines.per_try),
            phase: (u64::MAX, Reason::ResponseTimeout),
            mark: (u64::MAX, usize::MAX),
            is_sent: false,
            sent_late: None,
            is_refused: false,
        }
    }

    /// When the backend had all that it is waited for with.
    fn sent(&self) -> Option<Sent> {
        self.is_sent
            .then(|| self.sent_late.map_or(Sent::AtOnce, Sent::Late))
    }

    /// Until `self.input` holds what may be a whole head.
    async fn more(
        &mut self,
        down: &mut Downstream,
        request: &Request<'_>,
        upload: &mut Upload,
        up: &mut Upstream<'_>,
    ) -> Result<(), Reason> {
        let head = &request.plan.head;
        std::future::poll_fn(|cx| {
            if !self.is_sent && !self.is_refused {
                let progress = upload.poll(cx, head, down, &mut up.transport, request.worker);
                if let Progress::Refused(error) = progress {
                    up.end.note(error);
                }
                if let Err(reason) = self.note(progress, down, request, upload) {
                    return Poll::Ready(Err(reason));
                }
            }
            if let Poll::Ready(read) = self.poll_read(cx, request, up) {
                return Poll::Ready(read);
            }
            if !self.is_sent && down.transport.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(Reason::ClientGone));
            }
            if self.is_sent
                && let Some(reason) = self.watch.poll(cx, down, request.worker)
            {
                return Poll::Ready(Err(reason));
            }
            self.poll_time(cx, down, request)
        })
        .await
    }

    /// Sets the deadline that fits what the upload waits for.
    fn note(
        &mut self,
        progress: Progress,
        down: &Downstream,
        request: &Request<'_>,
        upload: &Upload,
    ) -> Result<(), Reason> {
        let (after, reason) = match progress {
            Progress::Faulty(reason) => return Err(reason),
            Progress::Sent => {
                self.is_sent = true;
                // Another phase than the first was waited in.
                if self.phase.1 != Reason::ResponseTimeout {
                    self.sent_late = Some(clock::now());
                }
                (request.deadlines.response_header, Reason::ResponseTimeout)
            }
            Progress::Refused(_) => {
                self.is_refused = true;
                (LAST_WORDS, Reason::Reset)
            }
            Progress::AwaitsClient => (down.listener.timeouts.body, Reason::BodyTimeout),
            // RFC 9110 §10.1.1: the client need not wait for ever, so its silence is not held against the backend.
            Progress::AwaitsContinue => (request.deadlines.response_header, Reason::BodyTimeout),
            Progress::AwaitsBackend => (request.deadlines.response_header, Reason::UploadTimeout),
        };
        let mark = (upload.read, upload.sent_in_try);
        if self.is_sent || self.is_refused || mark != self.mark || reason != self.phase.1 {
            self.mark = mark;
            self.phase = (down.timer.deadline_after(after), reason);
        }
        Ok(())
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request<'_>,
        up: &mut Upstream<'_>,
    ) -> Poll<Result<(), Reason>> {
        loop {
            if let Some(input) = &mut self.input
                && !input.is_empty()
            {
                if !self.is_partial {
                    return Poll::Ready(Ok(()));
                }
                match self.scanner.scan(input.unread()) {
                    Ok(true) => return Poll::Ready(Ok(())),
                    Ok(false) if input.len() >= HEAD_BYTES_MAX => {
                        return Poll::Ready(Err(Reason::BadResponse(HeadError::TooLarge)));
                    }
                    Ok(false) if input.is_full() => input.grow(HEAD_BYTES_MAX),
                    Ok(false) => {}
                    Err(error) => return Poll::Ready(Err(Reason::BadResponse(error))),
                }
            }
            match up.transport.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::Reset)),
                Poll::Pending => return Poll::Pending,
            }
            let input = self
                .input
                .get_or_insert_with(|| request.worker.buffers.large());
            match up.transport.poll_read(cx, input.room()) {
                Poll::Ready(Ok(0)) => {
                    up.end.finished = true;
                    return Poll::Ready(Err(Reason::Reset));
                }
                Poll::Ready(Err(error)) => {
                    up.end.note(error.kind());
                    return Poll::Ready(Err(Reason::Reset));
                }
                Poll::Ready(Ok(count)) => input.filled(count),
                Poll::Pending => {}
            }
        }
    }

    fn poll_time(
        &self,
        cx: &Context<'_>,
        down: &Downstream,
        request: &Request<'_>,
    ) -> Poll<Result<(), Reason>> {
        let request_ms = request.deadlines.request_ms;
        // A client that is slow to send is no fault of the backend: a try's time holds against the backend alone.
        let awaits_client = self.phase.1 == Reason::BodyTimeout;
        let try_ms = if awaits_client { u64::MAX } else { self.try_ms };
        down.timer.set_at(
            self.phase
                .0
                .min(try_ms)
                .min(request_ms)
                .min(self.watch.deadline_ms())
                .min(self.watch.look_again_ms()),
        );
        if !down.timer.poll_expired(cx) {
            return Poll::Pending;
        }
        let now_ms = down.timer.now_ms();
        Poll::Ready(Err(match () {
            () if self.watch.deadline_ms() <= now_ms => Reason::ClientGone,
            () if request_ms <= now_ms && awaits_client => Reason::ClientTimeout,
            () if request_ms <= now_ms => request.deadlines.over(),
            () if try_ms <= now_ms => Reason::ResponseTimeout,
            () => self.phase.1,
        }))
    }
}

/// Tells a stale pooled connection from a backend that failed, and whether anything was delivered.
async fn classify(reason: Reason, up: &Upstream<'_>, upload: &Upload, interim: bool) -> Failed {
    if reason != Reason::Reset || interim {
        return Failed::delivered(reason);
    }
    let sent = up.transport.sent_of(upload.sent_in_try, up.sent_before);
    let undelivered =
        up.transport.is_refused() || nothing_was_taken(&up.transport, up.end, sent).await;
    let reason = if up.reused && undelivered {
        Reason::PoolReuse
    } else {
        reason
    };
    Failed {
        undelivered,
        ..Failed::delivered(reason)
    }
}

/// Whether provably not one byte of this try was taken by the backend's kernel: it had closed (FIN), then answered
/// our bytes with a reset, and all of them are unacknowledged, though its FIN acknowledged all it had. A bare reset
/// proves nothing, for an acknowledgement may be late; nor does a FIN alone, for the reset may be on its way.
async fn nothing_was_taken(transport: &Transport, end: End, sent: usize) -> bool {
    if sent == 0 {
        return true;
    }
    if !end.finished || !transport.is_tcp() {
        return false;
    }
    for _ in 0..10 {
        match transport.unacknowledged() {
            Some(left) if left >= sent => {}
            _ => return false,
        }
        if end.reset || transport.was_reset() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::socket::Socket;
    use super::*;
    use std::io::Read;
    use tokio::net::{TcpListener, TcpStream};

    /// A connection to a backend, and the backend's end of it.
    async fn pair() -> (Transport, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let ours = TcpStream::connect(address).await.expect("it listens");
        let theirs = listener.accept().await.expect("a connection").0;
        let theirs = theirs.into_std().expect("a socket");
        theirs.set_nonblocking(false).expect("a socket");
        (Transport::Plain(Socket::Tcp(ours)), theirs)
    }

    /// Writes `request`, then reads to the end, as a try does.
    async fn send(transport: &mut Transport, request: &[u8]) -> End {
        let written = std::future::poll_fn(|cx| transport.poll_write(cx, request)).await;
        assert_eq!(written.expect("the FIN does not forbid it"), request.len());
        end_of(transport).await
    }

    async fn end_of(transport: &mut Transport) -> End {
        let mut end = End::default();
        match std::future::poll_fn(|cx| transport.poll_read(cx, &mut [0; 64])).await {
            Ok(0) => end.finished = true,
            Ok(_) => panic!("bytes that nobody sent"),
            Err(error) => end.note(error.kind()),
        }
        end
    }

    #[tokio::test]
    async fn bytes_written_behind_a_fin_that_was_not_seen_were_provably_not_taken() {
        let (mut ours, theirs) = pair().await;
        drop(theirs);
        // On loopback the FIN has arrived when `drop` returns; nothing here has looked at it.
        let end = send(&mut ours, b"POST / HTTP/1.1\r\n").await;
        assert!(nothing_was_taken(&ours, end, 17).await);
    }

    #[tokio::test]
    async fn bytes_that_the_backend_read_before_it_closed_were_taken() {
        let (mut ours, mut theirs) = pair().await;
        let reader = std::thread::spawn(move || theirs.read_exact(&mut [0; 17]).map(|()| theirs));
        let written = std::future::poll_fn(|cx| ours.poll_write(cx, b"POST / HTTP/1.1\r\n")).await;
        assert_eq!(written.expect("it is open"), 17);
        drop(reader.join().expect("no panic").expect("17 bytes"));
        let end = end_of(&mut ours).await;
        assert!(end.finished && !nothing_was_taken(&ours, end, 17).await);
    }

    #[tokio::test]
    async fn a_bare_reset_proves_nothing() {
        let (mut ours, theirs) = pair().await;
        let written = std::future::poll_fn(|cx| ours.poll_write(cx, b"POST / HTTP/1.1\r\n")).await;
        assert_eq!(written.expect("it is open"), 17);
        // Closing with unread bytes resets (RFC 2525 §2.17): the kernel had acknowledged them.
        drop(theirs);
        let end = end_of(&mut ours).await;
        assert!(end.reset && !nothing_was_taken(&ours, end, 17).await);
    }
}
