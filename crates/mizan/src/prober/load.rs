//! Backends are asked how much they have to do, for the policy that goes by it.
//!
//! A task beside the health checks: every [`LOOK`] it asks each pool whom to ask, and asks each of them by one `GET`
//! on a connection that is kept for the next. What an answer says goes to core at once; no answer says nothing of
//! the backend (health checks are for that). A backend that serves and never says its load is warned of, once.

use super::{Fault, Tls, first_bytes, tcp};
use crate::clock;
use crate::h1::Framing;
use crate::h1::field::Field;
use crate::h1::line::Lines;
use crate::h1::response::{self, ResponseHead};
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

mod silence;

use silence::{Lack, Silence};

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
                    if let Ok(ended) = ended {
                        asker.ended(ended);
                    }
                }
                () = &mut next => break,
            }
        }
    }
}

#[derive(Default)]
struct Asker {
    questions: JoinSet<Ended>,
    /// `Backend::id` of those that have not answered yet.
    asked: HashSet<u64>,
    /// By `Backend::id`.
    kept: HashMap<u64, Kept>,
    /// What was got in place of a report, by `Backend::id`.
    lacks: HashMap<u64, Lack>,
    silence: Silence,
}

/// A connection for the next question.
struct Kept {
    connection: Connection,
    used: Instant,
    /// For which it was made.
    probes: LoadProbes,
}

/// What became of a question.
struct Ended {
    /// `Backend::id`.
    id: u64,
    /// One that can be used again.
    connection: Option<Connection>,
    /// For which it was made.
    probes: LoadProbes,
    lack: Option<Lack>,
}

impl Asker {
    /// Asks whom pools want asked; whether any pool asks at all.
    fn look(&mut self, current: &Current) -> bool {
        let (now, snapshot) = (clock::now(), current.load());
        self.kept
            .retain(|_, kept| now.saturating_since(kept.used) < KEPT);
        for (pool, text) in self.silence.look(now, &snapshot, &mut self.lacks) {
            tracing::warn!(pool = &*pool, "{text}");
        }
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
                let kept = self.take(id, probes);
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

    /// The backend's kept connection, unless the pool has come to connect otherwise.
    fn take(&mut self, id: u64, probes: &LoadProbes) -> Option<Connection> {
        let kept = self.kept.remove(&id)?;
        let is_as = kept.probes.connects_as(probes);
        is_as.then_some(kept.connection)
    }

    fn ended(&mut self, ended: Ended) {
        self.asked.remove(&ended.id);
        match ended.lack {
            Some(lack) => self.lacks.insert(ended.id, lack),
            None => self.lacks.remove(&ended.id),
        };
        if let Some(connection) = ended.connection {
            let kept = Kept {
                connection,
                used: clock::now(),
                probes: ended.probes,
            };
            self.kept.insert(ended.id, kept);
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
    /// Puts it, and tells core what the answer says.
    async fn put(self, kept: Option<Connection>) -> Ended {
        let answer = tokio::time::timeout(TIMEOUT, self.ask(kept)).await;
        let (lack, connection) = match answer {
            Ok(Ok((said, connection))) => (self.tell(said), connection),
            Ok(Err(_)) | Err(_) => (Some(Lack::Answer), None),
        };
        Ended {
            id: self.backend.id(),
            connection,
            probes: self.probes,
            lack,
        }
    }

    /// Tells core, and counts; what is lacking, if anything.
    fn tell(&self, said: Result<Report, Lack>) -> Option<Lack> {
        let version = self.backend.version();
        match said {
            Ok(report) => {
                self.probes.reports.count(version, true);
                let source = LoadSource::Probe(self.workers);
                report.tell(&self.core, clock::now(), &self.backend, source);
                report.in_flight.is_none().then_some(Lack::Report)
            }
            Err(lack) => {
                if lack == Lack::Sense {
                    self.probes.reports.count(version, false);
                }
                Some(lack)
            }
        }
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

/// What an answer says of load, and the connection if it can be used again.
type Answer = (Result<Report, Lack>, Option<Connection>);

/// An answer that was read to its end, or far enough.
struct Said {
    report: Result<Report, Lack>,
    is_reusable: bool,
}

impl Said {
    fn kept(self, connection: Connection) -> Answer {
        (self.report, self.is_reusable.then_some(connection))
    }
}

/// Where the body begins, and how long it is.
type Rest = (usize, u64);

/// Reads the head that `bytes` begin with, interim ones before it apart; `None` while it is not whole.
fn said(bytes: &[u8]) -> Result<Option<(Said, Rest)>, Fault> {
    let mut begin = 0;
    loop {
        let mut lines = Lines::new();
        let head = response::parse(&bytes[begin..], &mut lines, false)
            .map_err(|error| Fault::Answer(error.to_string()))?;
        let Some(head) = head else {
            return Ok(None);
        };
        begin += head.bytes.len();
        if head.is_interim() {
            continue;
        }
        let body = match head.framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length).filter(|length| *length <= BODY_BYTES_MAX),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let said = Said {
            report: report(&head),
            is_reusable: head.status >= 200 && head.keep_alive && body.is_some(),
        };
        return Ok(Some((said, (begin, body.unwrap_or(0)))));
    }
}

fn report(head: &ResponseHead<'_, '_>) -> Result<Report, Lack> {
    if !(200..300).contains(&head.status) {
        return Err(Lack::Status(head.status));
    }
    let mut reports = head.lines.iter().filter_map(|line| match line.field {
        Field::LoadReport => Some(orca::read(line.value)),
        Field::LoadReportBinary => Some(orca::read_binary(line.value)),
        _ => None,
    });
    match reports.next_back() {
        Some(Ok(report)) => Ok(report),
        Some(Err(Malformed)) => Err(Lack::Sense),
        None => Err(Lack::Report),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::ProxyVersion;
    use mizan_core::pool::PrequalConfig;

    const REPORT: &str = "endpoint-load-metrics: TEXT named_metrics.rif=3\r\n";

    fn in_flight(answer: &str) -> Option<Result<Option<f64>, Lack>> {
        let said = said(answer.as_bytes()).expect("sound HTTP/1")?;
        Some(said.0.report.map(|report| report.in_flight))
    }

    #[test]
    fn interim_answers_are_passed_over_whatever_they_say() {
        let early =
            "HTTP/1.1 103 Early Hints\r\nendpoint-load-metrics: TEXT named_metrics.rif=9\r\n\r\n";
        let last = format!("HTTP/1.1 200 OK\r\n{REPORT}Content-Length: 2\r\n\r\n");
        assert_eq!(in_flight(early), None);
        let whole = format!("HTTP/1.1 100 Continue\r\n\r\n{early}{last}");
        assert_eq!(in_flight(&whole), Some(Ok(Some(3.0))));
        assert_eq!(in_flight(&whole[..whole.len() - 1]), None);
        let (_, rest) = said(whole.as_bytes()).expect("sound").expect("whole");
        assert_eq!(rest, (whole.len(), 2));
    }

    #[test]
    fn what_an_answer_lacks_is_told_apart() {
        let of = |status: &str, field: &str| {
            in_flight(&format!(
                "HTTP/1.1 {status}\r\n{field}Content-Length: 0\r\n\r\n"
            ))
        };
        assert_eq!(of("404 Not Found", REPORT), Some(Err(Lack::Status(404))));
        assert_eq!(of("101 Other", REPORT), Some(Err(Lack::Status(101))));
        assert_eq!(of("200 OK", ""), Some(Err(Lack::Report)));
        let absurd = "endpoint-load-metrics: TEXT named_metrics.rif=1e308\r\n";
        assert_eq!(of("200 OK", absurd), Some(Err(Lack::Sense)));
    }

    #[test]
    fn a_kept_connection_is_of_no_use_where_the_pool_has_come_to_connect_otherwise() {
        let probes = |proxy_protocol| LoadProbes {
            path: "/load".into(),
            config: PrequalConfig::default(),
            tls: None,
            proxy_protocol,
            reports: Arc::default(),
        };
        let mut asker = Asker::default();
        for (after, is_used) in [(None, true), (Some(ProxyVersion::V1), false)] {
            asker.ended(Ended {
                id: 1,
                connection: Some(Box::new(tokio::io::duplex(1).0)),
                probes: probes(None),
                lack: None,
            });
            assert_eq!(
                asker.take(1, &probes(after)).is_some(),
                is_used,
                "{after:?}"
            );
            assert!(asker.kept.is_empty());
        }
    }
}
