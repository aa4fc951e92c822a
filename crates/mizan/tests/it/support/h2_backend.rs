//! A scripted backend of HTTP/2, in the clear (a [`super::tls::Front`] before it makes it TLS).

use super::h2_client::{Answer, RUNTIME, read_all, run, send_all};
use super::locked;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Response, request};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

type Served = Pin<Box<dyn Future<Output = Result<(), h2::Error>> + Send>>;
type Script = dyn Fn(Call) -> Served + Send + Sync;

/// What all connections that are open are told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Serve,
    GoAway,
    Drop,
    /// Nothing is read or written any more.
    Freeze,
}

/// A backend that speaks HTTP/2 on a port of its own.
#[derive(Debug)]
pub(crate) struct H2Backend {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
}

struct Shared {
    name: String,
    script: Mutex<Arc<Script>>,
    builder: h2::server::Builder,
    requests: AtomicUsize,
    connections: AtomicUsize,
    open: AtomicUsize,
    resets: Mutex<Vec<Reason>>,
    seen: Mutex<Vec<request::Parts>>,
    order: watch::Sender<Order>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// One request, as a script sees it.
pub(crate) struct Call {
    pub(crate) head: request::Parts,
    pub(crate) frames: RecvStream,
    pub(crate) respond: SendResponse<Bytes>,
    shared: Arc<Shared>,
}

impl H2Backend {
    /// A backend that answers rightly: see [`Call::serve`].
    pub(crate) fn healthy(name: &str) -> Self {
        Self::with(name, &h2::server::Builder::new(), Call::serve)
    }

    /// A backend whose answers are the script's.
    pub(crate) fn start<F: Future<Output = Result<(), h2::Error>> + Send + 'static>(
        script: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::with("backend", &h2::server::Builder::new(), script)
    }

    /// The same with a name and settings of its own.
    pub(crate) fn with<F: Future<Output = Result<(), h2::Error>> + Send + 'static>(
        name: &str,
        builder: &h2::server::Builder,
        script: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            script: Mutex::new(Arc::new(move |call| Box::pin(script(call)))),
            builder: builder.clone(),
            requests: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            resets: Mutex::default(),
            seen: Mutex::default(),
            order: watch::Sender::new(Order::Serve),
        });
        let listener = run(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let served = Arc::clone(&shared);
        let acceptor = RUNTIME.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(connection(stream, Arc::clone(&served)));
            }
        });
        Self {
            address,
            shared,
            acceptor,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests whose head came.
    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Connections accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Why streams were reset while their script waited in [`Call::hang`].
    pub(crate) fn resets(&self) -> Vec<Reason> {
        locked(&self.shared.resets).clone()
    }

    /// Heads of all requests.
    pub(crate) fn seen(&self) -> Vec<request::Parts> {
        locked(&self.shared.seen).clone()
    }

    /// Another script from the next request on.
    pub(crate) fn set_script<F: Future<Output = Result<(), h2::Error>> + Send + 'static>(
        &self,
        script: impl Fn(Call) -> F + Send + Sync + 'static,
    ) {
        *locked(&self.shared.script) = Arc::new(move |call| Box::pin(script(call)));
    }

    /// Tells all connections that are open to go, gracefully.
    pub(crate) fn go_away(&self) {
        self.shared.order.send_replace(Order::GoAway);
    }

    /// Closes all connections that are open, as a process that dies.
    pub(crate) fn drop_connections(&self) {
        self.shared.order.send_replace(Order::Drop);
    }

    /// Has all connections that are open do nothing more, as a machine that hangs.
    pub(crate) fn freeze(&self) {
        self.shared.order.send_replace(Order::Freeze);
    }
}

impl Drop for H2Backend {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.drop_connections();
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let mut orders = shared.order.subscribe();
    orders.mark_unchanged();
    let Ok(mut connection) = shared.builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    shared.connections.fetch_add(1, Ordering::SeqCst);
    shared.open.fetch_add(1, Ordering::SeqCst);
    loop {
        tokio::select! {
            biased;
            changed = orders.changed() => {
                let order = *orders.borrow_and_update();
                match order {
                    _ if changed.is_err() => break,
                    Order::Serve => {}
                    Order::GoAway => connection.graceful_shutdown(),
                    Order::Drop => break,
                    Order::Freeze => std::future::pending().await,
                }
            }
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    serve(request.into_parts(), respond, &shared);
                }
                _ => break,
            }
        }
    }
    shared.open.fetch_sub(1, Ordering::SeqCst);
}

fn serve(
    (head, frames): (request::Parts, RecvStream),
    respond: SendResponse<Bytes>,
    shared: &Arc<Shared>,
) {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    locked(&shared.seen).push(head.clone());
    let script = Arc::clone(&locked(&shared.script));
    // An error is a stream that the other side ended.
    tokio::spawn(script(Call {
        head,
        frames,
        respond,
        shared: Arc::clone(shared),
    }));
}

impl Call {
    /// What a sound backend does: `/bytes/N` answers N bytes, everything else its name and, for a request with a
    /// body, the body's length.
    pub(crate) async fn serve(mut self) -> Result<(), h2::Error> {
        let length = self.read().await?.body.len();
        let count = self.head.uri.path().strip_prefix("/bytes/");
        let body = match count.and_then(|count| count.parse().ok()) {
            Some(count) => vec![b'x'; count],
            None => format!("{}:{length}", self.shared.name).into_bytes(),
        };
        self.answer(&body).await
    }

    /// The request's body and trailers.
    pub(crate) async fn read(&mut self) -> Result<Answer, h2::Error> {
        let mut read = Answer::default();
        read_all(&mut self.frames, &mut read).await?;
        Ok(read)
    }

    /// Answers 200 with `body`.
    pub(crate) async fn answer(self, body: &[u8]) -> Result<(), h2::Error> {
        let head = Response::builder()
            .header("x-backend", &self.shared.name)
            .header("content-length", body.len());
        let body = (self.head.method != http::Method::HEAD).then_some(body);
        self.respond_with(head, body, &HeaderMap::new()).await
    }

    /// Answers as told.
    pub(crate) async fn respond_with(
        mut self,
        head: http::response::Builder,
        body: Option<&[u8]>,
        trailers: &HeaderMap,
    ) -> Result<(), h2::Error> {
        let head = head.body(()).expect("a sound response");
        let ends = body.is_none_or(|body| body.is_empty()) && trailers.is_empty();
        let mut sending = self.respond.send_response(head, ends)?;
        if ends {
            return Ok(());
        }
        send_all(&mut sending, body.unwrap_or_default(), trailers).await
    }

    /// Writes down why a stream was reset.
    pub(crate) fn note(&self, reason: Reason) {
        locked(&self.shared.resets).push(reason);
    }

    /// Neither reads nor answers until the other side gives up.
    pub(crate) async fn hang(mut self) -> Result<(), h2::Error> {
        let reason = poll_fn(|cx| self.respond.poll_reset(cx)).await?;
        self.note(reason);
        Ok(())
    }
}
