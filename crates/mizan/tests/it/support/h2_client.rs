//! A client of HTTP/2, on the `h2` crate: many requests at once on one connection.

use super::PATIENCE;
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::LazyLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

/// Where all clients and backends of HTTP/2 live: a thread that drives their sockets.
pub(crate) static RUNTIME: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let handle = runtime.handle().clone();
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
});

/// Runs `future` to its end, which must come.
#[track_caller]
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    match RUNTIME.block_on(async { tokio::time::timeout(4 * PATIENCE, future).await }) {
        Ok(output) => output,
        Err(_) => panic!("not within {:?}", 4 * PATIENCE),
    }
}

/// A request as a test asks it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) authority: String,
    pub(crate) path: String,
    pub(crate) fields: HeaderMap,
    /// `None`: the request ends with its head.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) trailers: HeaderMap,
}

impl Ask {
    /// A request without a body.
    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self {
            method,
            authority: "a.example".to_owned(),
            path: path.to_owned(),
            fields: HeaderMap::new(),
            body: None,
            trailers: HeaderMap::new(),
        }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new(Method::GET, path)
    }

    /// A POST whose length is declared.
    pub(crate) fn post(path: &str, body: impl Into<Vec<u8>>) -> Self {
        let ask = Self::streamed(path, body);
        let length = ask.body.as_ref().map_or(0, Vec::len);
        ask.field("content-length", &length.to_string())
    }

    /// A POST whose length is not.
    pub(crate) fn streamed(path: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut ask = Self::new(Method::POST, path);
        ask.body = Some(body.into());
        ask
    }

    pub(crate) fn to(mut self, authority: &str) -> Self {
        authority.clone_into(&mut self.authority);
        self
    }

    /// One more field.
    pub(crate) fn field(mut self, name: &str, value: &str) -> Self {
        append(&mut self.fields, name, value);
        self
    }

    /// One more trailer.
    pub(crate) fn trailer(mut self, name: &str, value: &str) -> Self {
        append(&mut self.trailers, name, value);
        self
    }

    pub(crate) fn head(&self, scheme: &str) -> Request<()> {
        let uri = format!("{scheme}://{}{}", self.authority, self.path);
        let request = Request::builder().method(self.method.clone()).uri(uri);
        let mut request = request.body(()).expect("a sound request");
        *request.headers_mut() = self.fields.clone();
        request
    }
}

fn append(fields: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::try_from(name).expect("a name");
    fields.append(name, HeaderValue::try_from(value).expect("a value"));
}

/// A whole answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
    /// Statuses of interim heads before it.
    pub(crate) interim: Vec<u16>,
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of a field, or of a trailer if there is none.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let value = self.fields.get(name).or_else(|| self.trailers.get(name));
        value.and_then(|value| value.to_str().ok())
    }
}

/// A connection to Mizan.
#[derive(Debug)]
pub(crate) struct H2Client {
    sender: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
    scheme: &'static str,
}

impl H2Client {
    /// In the clear, by prior knowledge.
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        run(Self::open(address)).expect("a connection")
    }

    /// The same, for those who wait already.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, h2::Error> {
        let stream = TcpStream::connect(address).await.map_err(h2_io)?;
        Self::over(stream, "http", &windows()).await
    }

    /// With settings of its own.
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        scheme: &'static str,
        builder: &h2::client::Builder,
    ) -> Result<Self, h2::Error> {
        let (sender, connection) = builder.handshake(stream).await?;
        Ok(Self {
            sender,
            connection: RUNTIME.spawn(connection),
            scheme,
        })
    }

    /// Asks and waits for the whole answer.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Answer, h2::Error> {
        let (mut response, mut sending) = self.begin(&ask).await?;
        let upload = async {
            if let Some(body) = &ask.body {
                // A backend may answer early and not want the rest.
                let _ = send_all(&mut sending, body, &ask.trailers).await;
            }
        };
        let answer = async {
            let mut answer = Answer::default();
            while let Some(interim) = poll_fn(|cx| response.poll_informational(cx)).await {
                answer.interim.push(interim?.status().as_u16());
            }
            let (parts, mut frames) = response.await?.into_parts();
            (answer.status, answer.fields) = (parts.status.as_u16(), parts.headers);
            read_all(&mut frames, &mut answer).await?;
            Ok(answer)
        };
        // What is not sent when the answer is there does not matter any more.
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            () = upload => answer.await,
        }
    }

    /// Sends the head; the body, if there is one, is the caller's.
    pub(crate) async fn begin(
        &self,
        ask: &Ask,
    ) -> Result<(h2::client::ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.send(ask.head(self.scheme), ask.body.is_none()).await
    }

    /// Sends a head of the caller's own making.
    pub(crate) async fn send(
        &self,
        head: Request<()>,
        ends: bool,
    ) -> Result<(h2::client::ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        sender.send_request(head, ends)
    }

    /// Asks, and the answer must come.
    #[track_caller]
    pub(crate) fn exchange(&self, ask: Ask) -> Answer {
        match run(self.ask(ask)) {
            Ok(answer) => answer,
            Err(error) => panic!("no whole answer: {error:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.exchange(Ask::get(path))
    }

    /// Whether the connection has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.connection.is_finished()
    }

    /// Closes the socket at once.
    pub(crate) fn cut(&self) {
        self.connection.abort();
    }
}

impl Drop for H2Client {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Windows wide enough not to be what a test waits for.
pub(crate) fn windows() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20);
    builder
}

fn h2_io(error: std::io::Error) -> h2::Error {
    // The only way to one from outside is the reason; its text is in the panic of whoever expected more.
    let _ = error;
    Reason::CONNECT_ERROR.into()
}

/// Sends a body as the window allows, with trailers if there are any.
pub(crate) async fn send_all(
    sending: &mut SendStream<Bytes>,
    body: &[u8],
    trailers: &HeaderMap,
) -> Result<(), h2::Error> {
    let has_trailers = !trailers.is_empty();
    let mut rest = Bytes::copy_from_slice(body);
    while !rest.is_empty() {
        sending.reserve_capacity(rest.len().min(64 << 10));
        let given = poll_fn(|cx| sending.poll_capacity(cx)).await;
        let count = given.unwrap_or_else(|| Err(Reason::STREAM_CLOSED.into()))?;
        let piece = rest.split_to(count.min(rest.len()));
        sending.send_data(piece, rest.is_empty() && !has_trailers)?;
    }
    if has_trailers {
        sending.send_trailers(trailers.clone())?;
    } else if body.is_empty() {
        sending.send_data(Bytes::new(), true)?;
    }
    Ok(())
}

/// Reads a body with its trailers into `answer`.
pub(crate) async fn read_all(
    frames: &mut RecvStream,
    answer: &mut Answer,
) -> Result<(), h2::Error> {
    while let Some(data) = frames.data().await {
        let data = data?;
        frames.flow_control().release_capacity(data.len())?;
        answer.body.extend_from_slice(&data);
    }
    answer.trailers = frames.trailers().await?.unwrap_or_default();
    Ok(())
}
