//! A connection to the instance, and how a question is put to it.
//!
//! Nothing runs beside the caller: who waits for an answer moves the connection's bytes. So a watch that is not read costs
//! no memory here, what is dropped is closed at once, and an answer is never late because a task was not run.

use super::wire::ANSWER_BYTES_MAX;
use crate::{Clock, Error, System};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Most questions at once; more wait here. An instance takes 256 of all its callers, and operators are among them.
const QUESTIONS_MAX: usize = 16;
/// How long a connection may have been idle for another question. An instance closes it after 10 s, and a question that
/// meets that would have no answer.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// Longest wait for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Between two tries to connect while the instance's queue of new connections is full.
const CONNECT_AGAIN: Duration = Duration::from_millis(5);
/// Longest wait for an answer's beginning, and for each piece of it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nothing was sent.
    Unsent(Error),
    /// Something was; who knows what became of it.
    Lost(String),
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// The way to one instance.
#[derive(Debug)]
pub(super) struct Lines {
    socket: PathBuf,
    /// Connections that wait for a question, the last used at the end.
    idle: Mutex<Vec<Idle>>,
    places: Semaphore,
}

#[derive(Debug)]
struct Idle {
    line: Line,
    /// By the monotonic clock.
    since: Duration,
}

impl Lines {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            idle: Mutex::default(),
            places: Semaphore::new(QUESTIONS_MAX),
        }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The answer to `question`.
    pub(super) async fn ask(&self, path: &'static str, question: Bytes) -> Result<Answer, Failed> {
        let _place = self.places.acquire().await;
        while let Some(mut line) = self.take() {
            match line.send(request(path, question.clone())).await {
                Ok(response) => return self.answer(line, response).await,
                // It was closed while it was idle.
                Err(Unanswered::Unsent(_)) => {}
                Err(Unanswered::Lost(why)) => return Err(Failed::Lost(why)),
            }
        }
        let (line, response) = self.follow(path, question).await?;
        self.answer(line, response).await
    }

    /// Asks on a new connection, and leaves the answer to be read.
    pub(super) async fn follow(
        &self,
        path: &'static str,
        question: Bytes,
    ) -> Result<(Line, Response<Incoming>), Failed> {
        let mut line = Line::open(&self.socket).await.map_err(Failed::Unsent)?;
        match line.send(request(path, question)).await {
            Ok(response) => Ok((line, response)),
            Err(Unanswered::Unsent(why)) => Err(Failed::Unsent(self.gone(&why))),
            Err(Unanswered::Lost(why)) => Err(Failed::Lost(why)),
        }
    }

    /// Reads the rest of an answer, and keeps the connection for the next question.
    async fn answer(&self, mut line: Line, response: Response<Incoming>) -> Result<Answer, Failed> {
        let answer = line.read(response).await.map_err(Failed::Lost)?;
        if !line.is_closed() {
            let since = System.monotonic();
            self.idle().push(Idle { line, since });
        }
        Ok(answer)
    }

    fn take(&self) -> Option<Line> {
        let mut idle = self.idle();
        let now = System.monotonic();
        idle.retain(|idle| now.saturating_sub(idle.since) < IDLE_MAX);
        idle.pop().map(|idle| idle.line)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self, why: &str) -> Error {
        let socket = self.socket.display();
        Error::Unavailable(format!("the instance on {socket} is gone: {why}"))
    }
}

fn request(path: &'static str, body: Bytes) -> Request<Full<Bytes>> {
    Request::post(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .expect("its parts are constants")
}

/// Why a request has no answer.
enum Unanswered {
    /// Not a byte of it has left.
    Unsent(String),
    Lost(String),
}

/// A connection.
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    wire: Driven,
    has_left: Arc<AtomicBool>,
}

/// The half that moves bytes; `None` once it has ended.
struct Driven(Option<Pin<Box<Moving>>>);

type Moving = Connection<TokioIo<Noted>, Full<Bytes>>;

/// A stream that notes when bytes leave. hyper says only whether it had begun to write, but what was closed while it was
/// idle is often noticed by writing, and takes nothing any more.
struct Noted {
    stream: UnixStream,
    has_left: Arc<AtomicBool>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl Line {
    async fn open(socket: &Path) -> Result<Self, Error> {
        let refused = |error: io::Error| {
            let socket = socket.display();
            match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    Error::Denied(crate::Denial::Permission(format!(
                        "{socket} is another user's: only the instance's own may use its store"
                    )))
                }
                _ => Error::Unavailable(format!("no instance answers on {socket}: {error}")),
            }
        };
        let stream = timeout(CONNECT_TIME_MAX, connect(socket)).await;
        let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let has_left = Arc::<AtomicBool>::default();
        let noted = Noted {
            stream: stream.map_err(refused)?,
            has_left: Arc::clone(&has_left),
        };
        let spoken = handshake(TokioIo::new(noted)).await;
        let (sender, connection) = spoken.map_err(|error| refused(io::Error::other(error)))?;
        Ok(Self {
            sender,
            wire: Driven(Some(Box::pin(connection))),
            has_left,
        })
    }

    fn is_closed(&self) -> bool {
        self.wire.0.is_none() || self.sender.is_closed()
    }

    /// Sends a question and waits for the beginning of its answer.
    async fn send(
        &mut self,
        question: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let Self {
            sender,
            wire,
            has_left,
        } = self;
        has_left.store(false, Relaxed);
        let sent = async {
            wire.with(sender.ready()).await?;
            wire.with(sender.send_request(question)).await
        };
        let why = match timeout(ANSWER_TIME_MAX, sent).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => error.to_string(),
            Err(_) => no_word(),
        };
        Err(match has_left.load(Relaxed) {
            true => Unanswered::Lost(why),
            false => Unanswered::Unsent(why),
        })
    }

    /// All of an answer.
    pub(super) async fn read(&mut self, response: Response<Incoming>) -> Result<Answer, String> {
        let status = response.status();
        let mut incoming = response.into_body();
        let mut body = BytesMut::new();
        while let Some(piece) = timeout(ANSWER_TIME_MAX, self.piece(&mut incoming))
            .await
            .unwrap_or_else(|_| Some(Err(no_word())))
        {
            let piece = piece?;
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(format!(
                    "the answer is larger than {ANSWER_BYTES_MAX} bytes"
                ));
            }
            body.extend_from_slice(&piece);
        }
        let body = body.freeze();
        Ok(Answer { status, body })
    }

    /// The next bytes of an answer; `None` at its end. A future that is dropped loses nothing.
    pub(super) async fn piece(&mut self, body: &mut Incoming) -> Option<Result<Bytes, String>> {
        loop {
            return match self.wire.with(body.frame()).await? {
                Ok(frame) => match frame.into_data() {
                    Ok(bytes) => Some(Ok(bytes)),
                    // Trailers say nothing here.
                    Err(_) => continue,
                },
                Err(error) => Some(Err(error.to_string())),
            };
        }
    }
}

fn no_word() -> String {
    format!("it said nothing for {ANSWER_TIME_MAX:?}")
}

impl Driven {
    /// What comes of `future`, which waits for what this connection moves.
    async fn with<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            self.poll(context);
            future.as_mut().poll(context)
        })
        .await
    }

    fn poll(&mut self, context: &mut Context<'_>) {
        let Some(connection) = &mut self.0 else {
            return;
        };
        // How it ended, who waits for an answer is told.
        if let Poll::Ready(_ended) = connection.as_mut().poll(context) {
            self.0 = None;
        }
    }
}

impl Noted {
    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.has_left.store(true, Relaxed);
        }
        written
    }
}

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Noted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A Unix socket refuses who comes while its queue is full, where one of TCP would wait.
async fn connect(socket: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(socket).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
            outcome => return outcome,
        }
    }
}
