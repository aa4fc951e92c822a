//! Backends are asked how much they have to do, for the policy that goes by it.
//!
//! A task beside the health checks: every [`LOOK`] it asks each pool whom to ask, and asks each of them by one `GET`
//! on a connection that is kept for the next. What an answer says goes to core at once; no answer says nothing of
//! the backend (health checks are for that).

use super::{Fault, Tls, first_bytes, tcp};
use crate::clock;
use crate::h1::field::Field;
use crate::h1::line::Lines;
use crate::h1::{Framing, response};
use crate::orca::{self, Malformed, Report};
use crate::snapshot::{Current, LoadProbes};
use mizan_core::backend::{Address, Backend};
use mizan_core::pool::{LoadSource, Pool};
use mizan_core::time::Instant;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Between two looks at whom to ask.
const LOOK: Duration = Duration::from_millis(10);
/// The same where no pool asks anybody.
const LOOK_IDLE: Duration = Duration::from_millis(100);
/// An answer that takes longer is none: its figures are old when they come.
const TIMEOUT: Duration = Duration::from_millis(250);
/// Questions at once; more are left out.
const ASKED_MAX: usize = 256;
/// A connection that was not used for so long is closed.
const KEPT: Duration = Duration::from_secs(10);
/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Longest body that is read to keep the connection.
const BODY_BYTES_MAX: u64 = 4 * 1024;
const READ_BYTES: usize = 1024;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

type Connection = Box<dyn Stream>;

/// Asks until `stop` holds true or its sender is gone.
pub(super) async fn run(current: Arc<Current>, mut stop: watch::Receiver<bool>) {
    let mut asker = Asker::default();
    loop {
        let is_asking = asker.look(&current);
        let sleep = if is_asking { LOOK } else { LOOK_IDLE };
        let next = tokio::time::sleep(sleep);
        tokio::pin!(next);
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                Some(ended) = asker.questions.join_next() => {
                    // One that panicked has told nobody, and its backend is asked no more: tokio has reported it.
                    if let Ok((id, connection)) = ended {
                        asker.ended(id, connection);
                    }
                }
                () = &mut next => break,
            }
        }
    }
}

#[derive(Default)]
struct Asker {
    questions: JoinSet<(u64, Option<Connection>)>,
    /// `Backend::id` of those that have not answered yet.
    asked: HashSet<u64>,
    /// Kept connections by `Backend::id`, and when each was last used.
    kept: HashMap<u64, (Connection, Instant)>,
}

impl Asker {
    /// Asks whom pools want asked; whether any pool asks at all.
    fn look(&mut self, current: &Current) -> bool {
        let (now, snapshot) = (clock::now(), current.load());
        self.kept
            .retain(|_, (_, used)| now.saturating_since(*used) < KEPT);
        let mut is_asking = false;
        for pool in snapshot.pools.values() {
            let Some(probes) = &pool.load_probes else {
                continue;
            };
            is_asking = true;
            for probe in pool.core.load_probes(now, clock::random(), probes.config) {
                let id = probe.backend.id();
                if self.asked.len() >= ASKED_MAX || !self.asked.insert(id) {
                    continue;
                }
                let kept = self.kept.remove(&id).map(|(connection, _)| connection);
                let question = Question {
                    core: Arc::clone(&pool.core),
                    backend: probe.backend,
                    workers: probe.workers,
                    probes: probes.clone(),
                };
                self.questions.spawn(question.put(kept));
            }
        }
        is_asking
    }

    fn ended(&mut self, id: u64, connection: Option<Connection>) {
        self.asked.remove(&id);
        if let Some(connection) = connection {
            self.kept.insert(id, (connection, clock::now()));
        }
    }
}

/// One question to one backend.
struct Question {
    core: Arc<Pool>,
    backend: Arc<Backend>,
    workers: u8,
    probes: LoadProbes,
}

impl Question {
    /// Puts it, and tells core what the answer says; gives the connection if it can be used again.
    async fn put(self, kept: Option<Connection>) -> (u64, Option<Connection>) {
        let id = self.backend.id();
        let Ok(Ok((said, connection))) = tokio::time::timeout(TIMEOUT, self.ask(kept)).await else {
            return (id, None);
        };
        match said {
            Some(Ok(report)) => {
                let source = LoadSource::Probe(self.workers);
                report.tell(&self.core, clock::now(), &self.backend, source);
            }
            Some(Err(Malformed)) => self.probes.malformed.count(self.backend.version()),
            None => {}
        }
        (id, connection)
    }

    async fn ask(&self, kept: Option<Connection>) -> Result<Answer, Fault> {
        if let Some(mut connection) = kept
            && let Ok(answer) = self.exchange(&mut connection).await
        {
            return Ok(answer.kept(connection));
        }
        // None was kept, or the backend had closed it.
        let mut connection = self.connect().await?;
        let answer = self.exchange(&mut connection).await?;
        Ok(answer.kept(connection))
    }

    async fn connect(&self) -> Result<Connection, Fault> {
        match self.backend.address() {
            Address::Ip(address) => {
                let stream = tcp::connect(*address).await?;
                tcp::reset_on_close(&stream);
                self.open(stream).await
            }
            Address::Unix(path) => self.open(tcp::connect_unix(path).await?).await,
        }
    }

    async fn open<S: Stream + 'static>(&self, mut stream: S) -> Result<Connection, Fault> {
        tcp::send(&mut stream, &first_bytes(self.probes.proxy_protocol)).await?;
        let Some(settings) = self.probes.tls.as_deref() else {
            return Ok(Box::new(stream));
        };
        let tls = Tls {
            settings,
            backend: &self.backend,
        };
        Ok(Box::new(tls.handshake(stream).await?))
    }

    async fn exchange(&self, connection: &mut Connection) -> Result<Said, Fault> {
        let host = match self.backend.address() {
            Address::Ip(address) => address.to_string(),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let path = &self.probes.path;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: mizan-probe\r\n\r\n");
        tcp::send(connection, request.as_bytes()).await?;
        connection
            .flush()
            .await
            .map_err(|error| Fault::io("write", &error))?;
        let mut bytes = Vec::with_capacity(READ_BYTES);
        loop {
            read_more(connection, &mut bytes).await?;
            if let Some((mut said, rest)) = said(&bytes)? {
                said.is_reusable &= pass(connection, &bytes, rest).await?;
                return Ok(said);
            }
            if bytes.len() > HEAD_BYTES_MAX {
                return Err(Fault::Answer("its head is too long".to_owned()));
            }
        }
    }
}

/// What an answer says of load, if anything, and the connection if it can be used again.
type Answer = (Option<Result<Report, Malformed>>, Option<Connection>);

/// An answer that was read to its end, or far enough.
struct Said {
    report: Option<Result<Report, Malformed>>,
    is_reusable: bool,
}

impl Said {
    fn kept(self, connection: Connection) -> Answer {
        (self.report, self.is_reusable.then_some(connection))
    }
}

/// Where the body begins, and how long it is.
type Rest = (usize, u64);

/// Reads the head that `bytes` begin with; `None` while it is not whole.
fn said(bytes: &[u8]) -> Result<Option<(Said, Rest)>, Fault> {
    let mut lines = Lines::new();
    let head = response::parse(bytes, &mut lines, false)
        .map_err(|error| Fault::Answer(error.to_string()))?;
    let Some(head) = head else {
        return Ok(None);
    };
    let mut reports = head.lines.iter().filter_map(|line| match line.field {
        Field::LoadReport => Some(orca::read(line.value)),
        Field::LoadReportBinary => Some(orca::read_binary(line.value)),
        _ => None,
    });
    let is_good = (200..300).contains(&head.status);
    let body = match head.framing {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length).filter(|length| *length <= BODY_BYTES_MAX),
        Framing::Chunked | Framing::UntilClose => None,
    };
    let said = Said {
        report: reports.next_back().filter(|_| is_good),
        is_reusable: head.keep_alive && body.is_some(),
    };
    Ok(Some((said, (head.bytes.len(), body.unwrap_or(0)))))
}

/// Reads the rest of a body; whether nothing came behind it.
async fn pass(
    connection: &mut Connection,
    bytes: &[u8],
    (begin, length): Rest,
) -> Result<bool, Fault> {
    let mut body = bytes[begin..].to_vec();
    while (body.len() as u64) < length {
        read_more(connection, &mut body).await?;
    }
    Ok(body.len() as u64 == length)
}

async fn read_more(connection: &mut Connection, bytes: &mut Vec<u8>) -> Result<(), Fault> {
    bytes.reserve(READ_BYTES);
    match connection.read_buf(bytes).await {
        Ok(0) => Err(Fault::Answer("closed in its middle".to_owned())),
        Ok(_) => Ok(()),
        Err(error) => Err(Fault::io("read", &error)),
    }
}
