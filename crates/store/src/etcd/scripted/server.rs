//! A server of etcd's protocol whose answers are written by a test.

use crate::etcd::generated::etcdserverpb as pb;
use crate::etcd::{Credentials, Deadlines, Etcd, Options, Password};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::codegen::tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codegen::{BoxStream, tokio_stream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

/// The scripted server and a store that asks it.
pub(super) struct Stage {
    pub(super) script: Arc<Script>,
    pub(super) store: Etcd,
    /// Each watch as it is opened.
    pub(super) watches: mpsc::Receiver<Played>,
    server: JoinHandle<()>,
}

/// What the server does.
#[derive(Default)]
pub(super) struct Script {
    pub(super) version: String,
    /// Whether each question must come with the token that is good now.
    pub(super) wants_token: bool,
    /// The number of the token that is good now.
    pub(super) token: AtomicU64,
    /// How often somebody has authenticated.
    pub(super) authenticated: AtomicU64,
    /// What is answered to ranges and transactions, before there is nothing more to refuse.
    pub(super) refusals: Mutex<VecDeque<Status>>,
    /// What is answered to who asks for a token, before there is nothing more to refuse.
    pub(super) token_refusals: Mutex<VecDeque<Status>>,
    pub(super) ranges: AtomicU64,
    pub(super) transactions: AtomicU64,
    pub(super) statuses: AtomicU64,
    /// Whether nobody may ask for the version.
    pub(super) hides_version: AtomicBool,
    opened: Option<mpsc::Sender<Played>>,
}

/// One watch, from the server's side.
pub(super) struct Played {
    pub(super) create: pb::WatchCreateRequest,
    /// What it is asked after that.
    pub(super) asked: mpsc::Receiver<pb::WatchRequest>,
    says: mpsc::Sender<Result<pb::WatchResponse, Status>>,
}

impl Played {
    pub(super) async fn says(&self, response: pb::WatchResponse) {
        self.says.send(Ok(response)).await.expect("it is open");
    }

    pub(super) async fn created(&self, revision: i64) {
        self.says(pb::WatchResponse {
            created: true,
            ..said_at(revision)
        })
        .await;
    }

    /// Events of puts, as (revision, key), in one response.
    pub(super) async fn puts(&self, puts: &[(i64, &'static str)], fragment: bool) {
        let last = puts.last().map_or(0, |put| put.0);
        self.says(pb::WatchResponse {
            events: puts.iter().map(|(at, key)| put_event(*at, key)).collect(),
            fragment,
            ..said_at(last)
        })
        .await;
    }
}

/// A response with nothing but its revision: what is said for progress.
pub(super) fn said_at(revision: i64) -> pb::WatchResponse {
    pb::WatchResponse {
        header: header(revision),
        ..Default::default()
    }
}

fn put_event(revision: i64, key: &'static str) -> crate::etcd::generated::mvccpb::Event {
    crate::etcd::generated::mvccpb::Event {
        r#type: 0,
        kv: Some(crate::etcd::generated::mvccpb::KeyValue {
            key: Bytes::from_static(key.as_bytes()),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            ..Default::default()
        }),
    }
}

fn header(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader {
        cluster_id: 7,
        member_id: 1,
        revision,
    })
}

/// Deadlines that make a test short.
pub(super) const SHORT: Deadlines = Deadlines {
    connect: Duration::from_secs(1),
    patience: Duration::from_millis(300),
    request: Duration::from_secs(2),
    progress: Duration::from_millis(100),
};

impl Stage {
    /// A server of `version` that takes anyone.
    pub(super) async fn open(version: &str) -> Self {
        Self::play(Script {
            version: version.to_owned(),
            ..Script::default()
        })
        .await
    }

    /// One that wants a token with each question, and a user who knows the password.
    pub(super) async fn guarded(version: &str) -> Self {
        Self::play(Script {
            version: version.to_owned(),
            wants_token: true,
            ..Script::default()
        })
        .await
    }

    async fn play(mut script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (opened, watches) = mpsc::channel(16);
        script.opened = Some(opened);
        let credentials = script.wants_token.then(|| Credentials {
            user: "root".to_owned(),
            password: Password::Text("r00t".to_owned()),
        });
        let script = Arc::new(script);
        let played = || Arc::clone(&script);
        let server = Server::builder()
            .add_service(pb::kv_server::KvServer::from_arc(played()))
            .add_service(pb::lease_server::LeaseServer::from_arc(played()))
            .add_service(pb::watch_server::WatchServer::from_arc(played()))
            .add_service(pb::auth_server::AuthServer::from_arc(played()))
            .add_service(pb::maintenance_server::MaintenanceServer::from_arc(played()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { server.await.expect("it serves") });
        let options = Options {
            members: vec![address.to_string()],
            tls: None,
            credentials,
            namespace: Bytes::new(),
            deadlines: SHORT,
        };
        Self {
            script,
            store: Etcd::new(&options).expect("good options"),
            watches,
            server,
        }
    }

    /// The next watch that is opened.
    pub(super) async fn opened(&mut self) -> Played {
        let opened = tokio::time::timeout(Duration::from_secs(10), self.watches.recv());
        opened.await.expect("in time").expect("it serves")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Script {
    /// Refuses what no question may lack: that there must be a leader, and the token that is good now.
    fn admit<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let metadata = request.metadata();
        if metadata.get("hasleader").is_none_or(|it| it != "true") {
            return Err(Status::internal("`hasleader` is missing"));
        }
        if !self.wants_token {
            return Ok(());
        }
        let Some(token) = metadata.get("token") else {
            return Err(Status::invalid_argument("etcdserver: user name is empty"));
        };
        if token != &self.token.load(Ordering::SeqCst).to_string() {
            return Err(Status::unauthenticated("etcdserver: invalid auth token"));
        }
        Ok(())
    }

    /// The next refusal of the script, if any is left.
    fn refuse(&self) -> Result<(), Status> {
        let next = self.refusals.lock().expect("not poisoned").pop_front();
        next.map_or(Ok(()), Err)
    }
}

#[tonic::async_trait]
impl pb::kv_server::Kv for Script {
    async fn range(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<pb::RangeResponse>, Status> {
        self.ranges.fetch_add(1, Ordering::SeqCst);
        self.admit(&request)?;
        self.refuse()?;
        Ok(Response::new(pb::RangeResponse {
            header: header(1),
            kvs: Vec::new(),
        }))
    }

    async fn txn(
        &self,
        request: Request<pb::TxnRequest>,
    ) -> Result<Response<pb::TxnResponse>, Status> {
        self.transactions.fetch_add(1, Ordering::SeqCst);
        self.admit(&request)?;
        self.refuse()?;
        Ok(Response::new(pb::TxnResponse {
            header: header(2),
            succeeded: true,
            responses: Vec::new(),
        }))
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        self.admit(&request)?;
        Ok(Response::new(pb::CompactionResponse { header: header(2) }))
    }
}

#[tonic::async_trait]
impl pb::lease_server::Lease for Script {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        self.admit(&request)?;
        Ok(Response::new(pb::LeaseGrantResponse {
            header: header(1),
            id: 5,
            ttl: request.get_ref().ttl,
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        self.admit(&request)?;
        Ok(Response::new(pb::LeaseRevokeResponse { header: header(1) }))
    }

    type LeaseKeepAliveStream = BoxStream<pb::LeaseKeepAliveResponse>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        self.admit(&request)?;
        let asked = request.into_inner().message().await?.expect("one question");
        let answer = pb::LeaseKeepAliveResponse {
            header: header(1),
            id: asked.id,
            ttl: if asked.id == 5 { 10 } else { 0 },
        };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(answer)))))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        self.admit(&request)?;
        Ok(Response::new(pb::LeaseTimeToLiveResponse {
            header: header(1),
            id: 5,
            ttl: 9,
            granted_ttl: 10,
        }))
    }
}

#[tonic::async_trait]
impl pb::auth_server::Auth for Script {
    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        self.authenticated.fetch_add(1, Ordering::SeqCst);
        let refusal = self
            .token_refusals
            .lock()
            .expect("not poisoned")
            .pop_front();
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let asked = request.into_inner();
        assert_eq!(
            (asked.name.as_str(), asked.password.as_str()),
            ("root", "r00t")
        );
        Ok(Response::new(pb::AuthenticateResponse {
            header: header(1),
            token: self.token.load(Ordering::SeqCst).to_string(),
        }))
    }
}

#[tonic::async_trait]
impl pb::maintenance_server::Maintenance for Script {
    async fn status(
        &self,
        request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        self.statuses.fetch_add(1, Ordering::SeqCst);
        self.admit(&request)?;
        if self.hides_version.load(Ordering::SeqCst) {
            return Err(Status::permission_denied("etcdserver: permission denied"));
        }
        Ok(Response::new(pb::StatusResponse {
            header: header(1),
            version: self.version.clone(),
        }))
    }
}

#[tonic::async_trait]
impl pb::watch_server::Watch for Script {
    type WatchStream = ReceiverStream<Result<pb::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.admit(&request)?;
        let mut asked = request.into_inner();
        let first = asked.message().await?.and_then(|it| it.request_union);
        let Some(pb::watch_request::RequestUnion::CreateRequest(create)) = first else {
            return Err(Status::invalid_argument("it begins with what to watch"));
        };
        let (says, said) = mpsc::channel(64);
        let (forward, forwarded) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok(Some(request)) = asked.message().await {
                if forward.send(request).await.is_err() {
                    return;
                }
            }
        });
        let played = Played {
            create,
            asked: forwarded,
            says,
        };
        let opened = self.opened.as_ref().expect("it is on a stage");
        opened
            .send(played)
            .await
            .map_err(|_| Status::cancelled("over"))?;
        Ok(Response::new(ReceiverStream::new(said)))
    }
}
