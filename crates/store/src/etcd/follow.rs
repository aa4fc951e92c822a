//! A watch: one stream on a connection of its own.
//!
//! It is opened one revision earlier than it is asked for, and what happened there is left out. Of what is compacted at
//! revision `c`, etcd still takes a watch from `c`, though deletes at `c` may be gone; so asked, it refuses exactly where
//! something may be missing.

use super::Inner;
use super::call::{self, Caller, Token};
use super::connection::Link;
use super::generated::{etcdserverpb as pb, mvccpb};
use super::refusal::{Kind, Refusal};
use super::translate::{revision, signed, unsigned};
use super::version::{Progress, Version};
use crate::{Answer, Batch, Denial, Error, Message, Range, Revision, Watch};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

const PATH: &str = "/etcdserverpb.Watch/Watch";

/// Questions on their way to the member; more are not asked before it takes them.
const QUESTIONS_MAX: usize = 4;

/// Most bytes of the parts of a response that are held until the last of them has come.
const PARTS_BYTES_MAX: usize = call::ANSWER_BYTES_MAX;

/// Questions without an answer after which a watch is given up.
const UNANSWERED_MAX: u32 = 3;

/// A watch on one member.
pub(super) struct Follow {
    inner: Arc<Inner>,
    link: Link,
    stream: Streaming<pb::WatchResponse>,
    questions: mpsc::Sender<pb::WatchRequest>,
    /// What the member's answers to progress requests are worth.
    progress: Progress,
    /// Up to here all is said, or was not asked for.
    said: Revision,
    /// Whether it was opened before its first revision had come, and nothing was said since: newer versions answer no
    /// progress request then.
    is_early: bool,
    /// Events of a response whose other parts are still to come.
    parts: Vec<mvccpb::Event>,
    parts_bytes: usize,
    ready: VecDeque<Message>,
    pulse: Pulse,
    end: Option<Error>,
}

/// Whether the member is alive.
struct Pulse {
    /// Ticks when nothing was heard for a while.
    silence: Interval,
    unanswered: u32,
    /// A question on the side, where the stream itself cannot be asked.
    aside: Option<Aside>,
}

type Aside = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow")
            .field("link", &self.link)
            .field("said", &self.said)
            .finish_non_exhaustive()
    }
}

/// A stream that has said that it is there, and what it said.
struct Stream {
    responses: Streaming<pb::WatchResponse>,
    questions: mpsc::Sender<pb::WatchRequest>,
    first: pb::WatchResponse,
}

/// Opens a watch of `range` from revision `from`, at the first member that takes it.
pub(super) async fn open(
    inner: &Arc<Inner>,
    range: &Range,
    from: Revision,
) -> Result<Follow, Error> {
    let before = from.saturating_sub(1);
    let (key, range_end) = inner.namespace.range(range);
    let create = pb::WatchCreateRequest {
        key,
        range_end,
        // 0 would be now.
        start_revision: signed(before.max(1)),
        fragment: true,
    };
    let (link, version, stream) = in_time(&inner.caller, start(&inner.caller, create)).await?;
    let known = version.as_deref().and_then(Version::parse);
    let mut silence = interval(inner.caller.deadlines.progress);
    silence.set_missed_tick_behavior(MissedTickBehavior::Delay);
    silence.reset();
    let current = revision(stream.first.header.as_ref());
    let progress = known.map_or(Progress::Unsaid, Version::progress);
    let mut follow = Follow {
        inner: Arc::clone(inner),
        link,
        stream: stream.responses,
        questions: stream.questions,
        progress,
        said: before,
        is_early: before > current,
        parts: Vec::new(),
        parts_bytes: 0,
        ready: VecDeque::new(),
        pulse: Pulse {
            silence,
            unanswered: 0,
            aside: None,
        },
        end: None,
    };
    follow.take(stream.first)?;
    Ok(follow)
}

/// The oldest revision that is held: what etcd ends a watch from the beginning with.
pub(super) async fn oldest(inner: &Inner) -> Result<Revision, Error> {
    let least = inner.namespace.least();
    let create = pb::WatchCreateRequest {
        key: least.key,
        start_revision: 1,
        ..Default::default()
    };
    let caller = &inner.caller;
    let (_, _, mut stream) = in_time(caller, start(caller, create)).await?;
    let mut response = stream.first;
    loop {
        if response.compact_revision > 0 {
            return Ok(unsigned(response.compact_revision));
        }
        match timeout(caller.deadlines.patience, stream.responses.message()).await {
            Ok(Ok(Some(next))) => response = next,
            Ok(Ok(None)) => return Err(Error::Unavailable("the watch ended".to_owned())),
            Ok(Err(status)) => return Err(Refusal::of(&status).undone()),
            // Nothing is missing from the first revision on.
            Err(_) => return Ok(1),
        }
    }
}

async fn in_time<T>(
    caller: &Caller,
    opening: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let wait = caller.deadlines.request;
    timeout(wait, opening)
        .await
        .unwrap_or_else(|_| Err(Error::Unavailable(format!("no watch within {wait:?}"))))
}

/// A stream on a new connection, and the version of the member that it goes to.
async fn start(
    caller: &Caller,
    create: pb::WatchCreateRequest,
) -> Result<(Link, Option<String>, Stream), Error> {
    let (mut is_renewed, mut failed) = (false, 0);
    loop {
        let link = caller.members.connect().await?;
        let refusal = match start_on(caller, &link, create.clone()).await {
            Ok((version, stream)) => return Ok((link, version, stream)),
            Err(refusal) => refusal,
        };
        if let Some(error) = caller.tls_denial(&link) {
            return Err(error);
        }
        // Until 3.5, a watch with a token that is no longer good is not permitted, like one of a user who may not.
        let is_of_the_token = matches!(
            refusal.kind,
            Kind::Token | Kind::Final(Error::Denied(Denial::Permission(_)))
        );
        match refusal.kind {
            Kind::Token if !caller.has_credentials() => {
                return Err(Error::Denied(Denial::Anonymous));
            }
            _ if is_of_the_token && caller.has_credentials() && !is_renewed => {
                is_renewed = true;
                caller.forget_token();
            }
            Kind::Token | Kind::Final(_) => return Err(refusal.undone()),
            _ if failed < caller.members.count() => {
                failed += 1;
                caller.members.leave(&link);
            }
            _ => {
                caller.members.leave(&link);
                return Err(refusal.undone());
            }
        }
    }
}

async fn start_on(
    caller: &Caller,
    link: &Link,
    create: pb::WatchCreateRequest,
) -> Result<(Option<String>, Stream), Refusal> {
    let token = caller.token(link).await?;
    let wait = caller.deadlines.patience;
    let both = async {
        tokio::join!(
            caller.send(link, pb::StatusRequest {}, token.clone()),
            create_on(link, create, token.clone())
        )
    };
    let Ok((status, stream)) = timeout(wait, both).await else {
        let address = caller.members.address(link);
        let text = format!("{address}: no watch within {wait:?}");
        return Err(Refusal::new(Kind::Late, text));
    };
    let stream = stream.map_err(|status| caller.refusal(link, &status))?;
    if stream.first.canceled && stream.first.compact_revision == 0 {
        return Err(canceled(&stream.first));
    }
    Ok((status.ok().map(|status| status.version), stream))
}

async fn create_on(
    link: &Link,
    create: pb::WatchCreateRequest,
    token: Token,
) -> Result<Stream, Status> {
    let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
    let create = pb::watch_request::RequestUnion::CreateRequest(create);
    let create = pb::WatchRequest {
        request_union: Some(create),
    };
    questions
        .try_send(create)
        .map_err(|_| Status::internal("a new channel is full"))?;
    let mut grpc = call::grpc(link);
    grpc.ready()
        .await
        .map_err(|lost| Status::from_error(Box::new(lost)))?;
    let request = call::request(ReceiverStream::new(asked), token);
    let codec = ProstCodec::<pb::WatchRequest, pb::WatchResponse>::default();
    let path = PathAndQuery::from_static(PATH);
    let mut responses = grpc.streaming(request, path, codec).await?.into_inner();
    let first = responses.message().await?;
    let first = first.ok_or_else(|| Status::cancelled("the watch ended"))?;
    Ok(Stream {
        responses,
        questions,
        first,
    })
}

/// Why `response` ends its watch.
fn canceled(response: &pb::WatchResponse) -> Refusal {
    if response.compact_revision > 0 {
        let oldest = unsigned(response.compact_revision);
        return Refusal::new(Kind::Final(Error::Compacted { oldest }), "compacted");
    }
    let reason = match response.cancel_reason.as_str() {
        "" => "the member ended the watch without a reason",
        reason => reason,
    };
    Refusal::new(Refusal::said(Code::Unavailable, reason), reason)
}

impl Watch for Follow {
    fn next(&mut self) -> Answer<'_, Message> {
        Box::pin(async move {
            loop {
                if let Some(change) = self.ready.pop_front() {
                    return Ok(change);
                }
                if let Some(end) = &self.end {
                    return Err(end.clone());
                }
                if let Err(error) = self.hear().await {
                    // What is compacted or denied here is so at every member.
                    if error.is_transient() {
                        self.inner.caller.members.leave(&self.link);
                    }
                    self.end = Some(error);
                }
            }
        })
    }
}

impl Follow {
    /// Waits for what happens next. What was heard is first: silence is only what is left when it is taken.
    async fn hear(&mut self) -> Result<(), Error> {
        let Self {
            stream,
            pulse: Pulse { silence, aside, .. },
            ..
        } = self;
        tokio::select! {
            biased;
            heard = stream.message() => match heard {
                Ok(Some(response)) => {
                    self.alive();
                    self.take(response)
                }
                Ok(None) => Err(self.lost("the member ended the watch")),
                Err(status) => Err(self.failed(&status)),
            },
            answer = answer(aside) => match answer {
                Ok(()) => {
                    self.alive();
                    Ok(())
                }
                Err(refusal) => Err(self.lost(&refusal.reason)),
            },
            _ = silence.tick() => self.ask(),
        }
    }

    fn alive(&mut self) {
        self.pulse.unanswered = 0;
        self.pulse.silence.reset();
    }

    /// Nothing was heard for a while.
    fn ask(&mut self) -> Result<(), Error> {
        if self.pulse.unanswered >= UNANSWERED_MAX {
            let silent = self.inner.caller.deadlines.progress * (UNANSWERED_MAX + 1);
            return Err(self.lost(&format!("nothing was heard for {silent:?}")));
        }
        self.pulse.unanswered += 1;
        if self.progress != Progress::Unsaid {
            let ask = pb::watch_request::RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
            // One that is full or closed is not taken from: that is silence, too.
            let _ = self.questions.try_send(pb::WatchRequest {
                request_union: Some(ask),
            });
        }
        let may_not_say = self.progress == Progress::Unsaid || self.is_early;
        if may_not_say && self.pulse.aside.is_none() {
            let (inner, link) = (Arc::clone(&self.inner), self.link.clone());
            self.pulse.aside = Some(Box::pin(async move { ask_aside(&inner, &link).await }));
        }
        Ok(())
    }

    /// Looks at what was said, in the order that it has to be looked at: a watch that is refused may be said to have been
    /// created as well.
    fn take(&mut self, response: pb::WatchResponse) -> Result<(), Error> {
        if response.canceled || response.compact_revision > 0 {
            return Err(canceled(&response).undone());
        }
        if response.created {
            // Its revision is no barrier: what happened before it may come after it.
            return Ok(());
        }
        self.is_early = false;
        if response.events.is_empty() {
            // Between two parts, what it says to have passed is not whole yet.
            if self.parts.is_empty() {
                self.advance(revision(response.header.as_ref()));
            }
            return Ok(());
        }
        self.parts_bytes += response
            .events
            .iter()
            .map(prost::Message::encoded_len)
            .sum::<usize>();
        if self.parts_bytes > PARTS_BYTES_MAX {
            return Err(self.lost("it says more at one revision than can be held"));
        }
        self.parts.extend(response.events);
        if response.fragment {
            return Ok(());
        }
        self.group()
    }

    /// Says progress, where it is proven.
    fn advance(&mut self, revision: Revision) {
        if self.progress == Progress::Proven && revision >= self.said {
            self.said = revision;
            self.ready.push_back(Message::Progress(revision));
        }
    }

    /// Says the parts of a response, a batch for each revision that was not said yet.
    fn group(&mut self) -> Result<(), Error> {
        self.parts_bytes = 0;
        let mut batch: Option<Batch> = None;
        for event in std::mem::take(&mut self.parts) {
            let revision = event.kv.as_ref().map_or(0, |kv| unsigned(kv.mod_revision));
            let is_new = match &batch {
                Some(batch) if batch.revision == revision => false,
                _ if revision <= self.said => continue,
                _ => true,
            };
            let event = self.inner.namespace.event(event);
            let event =
                event.ok_or_else(|| self.lost("it said a change that is not understood"))?;
            if is_new {
                self.ready.extend(batch.take().map(Message::Batch));
                self.said = revision;
            }
            batch
                .get_or_insert_with(|| Batch {
                    revision,
                    events: Vec::new(),
                })
                .events
                .push(event);
        }
        self.ready.extend(batch.map(Message::Batch));
        Ok(())
    }

    fn failed(&self, status: &Status) -> Error {
        let caller = &self.inner.caller;
        let error = || caller.refusal(&self.link, status).undone();
        caller.tls_denial(&self.link).unwrap_or_else(error)
    }

    fn lost(&self, why: &str) -> Error {
        let address = self.inner.caller.members.address(&self.link);
        Error::Unavailable(format!("{address}: {why}"))
    }
}

/// Asks for the member's status, on the watch's own connection: whether it answers is what counts.
async fn ask_aside(inner: &Inner, link: &Link) -> Result<(), Refusal> {
    let caller = &inner.caller;
    let token = caller.token(link).await?;
    let wait: Duration = caller.deadlines.progress * UNANSWERED_MAX;
    match timeout(wait, caller.send(link, pb::StatusRequest {}, token)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => match caller.refusal(link, &status) {
            // It answers: no more is asked.
            Refusal {
                kind: Kind::Token | Kind::Final(_),
                ..
            } => Ok(()),
            refusal => Err(refusal),
        },
        Err(_) => Err(Refusal::new(
            Kind::Late,
            format!("it does not answer within {wait:?}"),
        )),
    }
}

/// The answer to a question on the side; for ever if there is none. It stays asked if this is dropped.
async fn answer(aside: &mut Option<Aside>) -> Result<(), Refusal> {
    let Some(question) = aside else {
        return pending().await;
    };
    let answer = question.await;
    *aside = None;
    answer
}
