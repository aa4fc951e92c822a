//! Asks one question: whom, with which token, for how long, and whether once more.

use super::connection::{Failure, Link};
use super::generated::etcdserverpb as pb;
use super::members::Members;
use super::options::{Credentials, Deadlines, InvalidOptions, Options};
use super::refusal::{Kind, Refusal};
use crate::clock;
use crate::{Denial, Error};
use prost::Message;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Longest answer that is read, in bytes; eight times the largest table.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The pause before a question is asked again is random, up to this at first and twice as much each time,
const PAUSE: Duration = Duration::from_millis(50);
/// but up to this at most.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A question with one answer.
pub(super) trait Ask: Message + Clone + Default + 'static {
    /// The answer.
    type Reply: Message + Default + 'static;
    /// The method.
    const PATH: &'static str;
    /// Whether it may be asked twice, because it changes nothing or the same.
    const IS_REPEATABLE: bool;
    /// Whether etcd takes it as a stream of one.
    const IS_STREAM: bool = false;
}

macro_rules! asks {
    ($($request:ident -> $reply:ident, $path:literal, $repeatable:literal;)*) => {
        $(impl Ask for pb::$request {
            type Reply = pb::$reply;
            const PATH: &'static str = $path;
            const IS_REPEATABLE: bool = $repeatable;
        })*
    };
}

asks! {
    RangeRequest -> RangeResponse, "/etcdserverpb.KV/Range", true;
    TxnRequest -> TxnResponse, "/etcdserverpb.KV/Txn", false;
    CompactionRequest -> CompactionResponse, "/etcdserverpb.KV/Compact", false;
    LeaseGrantRequest -> LeaseGrantResponse, "/etcdserverpb.Lease/LeaseGrant", false;
    LeaseRevokeRequest -> LeaseRevokeResponse, "/etcdserverpb.Lease/LeaseRevoke", false;
    LeaseTimeToLiveRequest -> LeaseTimeToLiveResponse, "/etcdserverpb.Lease/LeaseTimeToLive", true;
    AuthenticateRequest -> AuthenticateResponse, "/etcdserverpb.Auth/Authenticate", true;
    StatusRequest -> StatusResponse, "/etcdserverpb.Maintenance/Status", true;
}

impl Ask for pb::LeaseKeepAliveRequest {
    type Reply = pb::LeaseKeepAliveResponse;
    const PATH: &'static str = "/etcdserverpb.Lease/LeaseKeepAlive";
    const IS_REPEATABLE: bool = true;
    const IS_STREAM: bool = true;
}

/// What goes with each question of a user.
pub(super) type Token = Option<MetadataValue<Ascii>>;

/// Asks.
pub(super) struct Caller {
    pub(super) members: Members,
    pub(super) deadlines: Deadlines,
    credentials: Option<Credentials>,
    token: Mutex<Held>,
}

/// What is known of our token.
#[derive(Clone)]
enum Held {
    /// It is to be asked for.
    None,
    /// etcd knows no users.
    NotNeeded,
    /// It was good when it was last used.
    Some(MetadataValue<Ascii>),
}

/// How far a question has come, for when its time is over.
#[derive(Default)]
struct Course {
    is_sent: AtomicBool,
    reason: Mutex<Option<String>>,
}

impl Caller {
    pub(super) fn new(options: &Options) -> Result<Self, InvalidOptions> {
        Ok(Self {
            members: Members::new(options)?,
            deadlines: options.deadlines,
            credentials: options.credentials.clone(),
            token: Mutex::new(Held::None),
        })
    }

    /// Asks until there is an answer, the time is over, or it may not be asked again.
    pub(super) async fn ask<A: Ask>(&self, request: A) -> Result<A::Reply, Error> {
        let course = Course::default();
        let wait = self.deadlines.request;
        match timeout(wait, self.ask_in_time(request, &course)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let reason = locked(&course.reason).take();
                let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
                let text = format!("no answer within {wait:?}{reason}");
                if A::IS_REPEATABLE || !course.is_sent.load(Ordering::Relaxed) {
                    return Err(Error::Unavailable(text));
                }
                Err(Error::Unknown(text))
            }
        }
    }

    async fn ask_in_time<A: Ask>(&self, request: A, course: &Course) -> Result<A::Reply, Error> {
        let (mut rounds, mut unsent, mut is_renewed) = (0_u32, 0, false);
        loop {
            let link = self.members.link().await?;
            let refusal = match self.ask_once(&link, &request, course).await {
                Ok(reply) => return Ok(reply),
                Err(refusal) => refusal,
            };
            *locked(&course.reason) = Some(refusal.reason.clone());
            if let Some(error) = self.tls_denial(&link) {
                return Err(error);
            }
            match refusal.kind {
                Kind::Token if self.credentials.is_none() => {
                    return Err(Error::Denied(Denial::Anonymous));
                }
                Kind::Token if !is_renewed => {
                    is_renewed = true;
                    self.forget_token();
                    course.is_sent.store(false, Ordering::Relaxed);
                    continue;
                }
                Kind::NotSent if unsent <= self.members.count() => {
                    unsent += 1;
                    self.members.leave(&link);
                    course.is_sent.store(false, Ordering::Relaxed);
                    continue;
                }
                Kind::NotSent | Kind::Token | Kind::Final(_) => return Err(refusal.undone()),
                Kind::Lost | Kind::NotNow => self.members.leave(&link),
                // Of one that is late, the connection was left already; one in doubt is alive.
                Kind::Late | Kind::Doubtful => {}
            }
            if !A::IS_REPEATABLE {
                return Err(refusal.unknown());
            }
            if refusal.kind != Kind::Late {
                pause(rounds).await;
                rounds += 1;
            }
        }
    }

    /// Asks on `link`. Whoever asks nothing that can be repeated waits for the answer, but those behind do not.
    async fn ask_once<A: Ask>(
        &self,
        link: &Link,
        request: &A,
        course: &Course,
    ) -> Result<A::Reply, Refusal> {
        let token = self.token(link).await?;
        course.is_sent.store(true, Ordering::Relaxed);
        let mut answer = pin!(self.send(link, request.clone(), token));
        let wait = self.deadlines.patience;
        match timeout(wait, &mut answer).await {
            Ok(outcome) => outcome.map_err(|status| self.refusal(link, &status)),
            Err(_) => {
                self.members.leave(link);
                if A::IS_REPEATABLE {
                    let address = self.members.address(link);
                    let text = format!("{address}: no answer within {wait:?}");
                    return Err(Refusal::new(Kind::Late, text));
                }
                answer.await.map_err(|status| self.refusal(link, &status))
            }
        }
    }

    /// Asks on `link`, whatever comes of it.
    pub(super) async fn send<A: Ask>(
        &self,
        link: &Link,
        message: A,
        token: Token,
    ) -> Result<A::Reply, Status> {
        let mut grpc = grpc(link);
        grpc.ready()
            .await
            .map_err(|lost| Status::from_error(Box::new(lost)))?;
        let path = PathAndQuery::from_static(A::PATH);
        let codec = ProstCodec::<A, A::Reply>::default();
        if !A::IS_STREAM {
            let mut request = request(message, token);
            request.set_timeout(self.deadlines.request);
            return grpc
                .unary(request, path, codec)
                .await
                .map(Response::into_inner);
        }
        let request = request(tokio_stream::once(message), token);
        let mut answers = grpc.streaming(request, path, codec).await?.into_inner();
        answers
            .message()
            .await?
            .ok_or_else(|| Status::cancelled("the stream ended with no answer"))
    }

    /// What `status` means, with who said it.
    pub(super) fn refusal(&self, link: &Link, status: &Status) -> Refusal {
        let Refusal { kind, reason } = Refusal::of(status);
        let reason = match link.end() {
            Some(Failure::Unreachable(end)) => format!("{reason} ({end})"),
            _ => reason,
        };
        Refusal::new(kind, format!("{}: {reason}", self.members.address(link)))
    }

    /// The error of a connection that TLS ended, if it did: nothing was done.
    pub(super) fn tls_denial(&self, link: &Link) -> Option<Error> {
        let Failure::Tls(why) = link.end()? else {
            return None;
        };
        let address = self.members.address(link);
        Some(Error::Denied(Denial::Tls(format!("{address}: {why}"))))
    }

    /// What proves who we are; asked for on `link` if it is not there. A failure leaves whatever it is for unsent.
    pub(super) async fn token(&self, link: &Link) -> Result<Token, Refusal> {
        let Some(credentials) = &self.credentials else {
            return Ok(None);
        };
        let held = locked(&self.token).clone();
        match held {
            Held::NotNeeded => return Ok(None),
            Held::Some(token) => return Ok(Some(token)),
            Held::None => {}
        }
        let password = credentials.password.read().map_err(|why| {
            let reason = format!("the password cannot be read: {why}");
            Refusal::new(Kind::Final(Error::Unavailable(reason.clone())), reason)
        })?;
        let request = pb::AuthenticateRequest {
            name: credentials.user.clone(),
            password,
        };
        let wait = self.deadlines.patience;
        let outcome = match timeout(wait, self.send(link, request, None)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let text = format!("{}: no token within {wait:?}", self.members.address(link));
                return Err(Refusal::new(Kind::NotSent, text));
            }
        };
        let held =
            match outcome {
                Ok(reply) => Held::Some(reply.token.parse().map_err(|_| {
                    Refusal::new(Kind::NotSent, "its token is no text of a header")
                })?),
                Err(status) if status.message().contains("authentication is not enabled") => {
                    Held::NotNeeded
                }
                Err(status) => {
                    let refusal = self.refusal(link, &status);
                    return Err(match refusal.kind {
                        Kind::Final(_) => refusal,
                        _ => Refusal::new(Kind::NotSent, refusal.reason),
                    });
                }
            };
        *locked(&self.token) = held.clone();
        match held {
            Held::Some(token) => Ok(Some(token)),
            _ => Ok(None),
        }
    }

    /// The token is no longer good.
    pub(super) fn forget_token(&self) {
        *locked(&self.token) = Held::None;
    }

    /// Whether there is a user whom a new token could be asked for.
    pub(super) fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }
}

/// Speaks gRPC over `link`.
pub(super) fn grpc(link: &Link) -> Grpc<Link> {
    Grpc::with_origin(link.clone(), link.origin.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// `message` with what goes with every question: a member that has no leader is to say so, rather than to wait for one.
pub(super) fn request<M>(message: M, token: Token) -> Request<M> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        metadata.insert("token", token);
    }
    request
}

/// Waits before the question is asked for the `round`th time again.
async fn pause(round: u32) {
    let most = PAUSE.saturating_mul(1 << round.min(10)).min(PAUSE_MAX);
    let share = (clock::random() >> 11) as f64 / (1_u64 << 53) as f64;
    tokio::time::sleep(most.mul_f64(share)).await;
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is whole in itself.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
