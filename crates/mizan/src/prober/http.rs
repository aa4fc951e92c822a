//! An HTTP probe: one `GET` on a connection of its own, and the verdict on its answer.
//!
//! [`Judge`] is free of I/O: bytes in, verdict out. It reads no further than it must: without a text to look
//! for, the head decides.

use super::{Fault, Opening, http2, tcp};
use crate::h1::chunked::{ChunkError, Chunked, Piece};
use crate::h1::line::Lines;
use crate::h1::{Framing, response};
use crate::snapshot::StatusSet;
use mizan_core::backend::Address;
use std::fmt::Write as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest head of an answer, interim ones included.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How much of the body is searched.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;
/// Room for one read: most answers fit.
const READ_BYTES: usize = 1024;

/// What is asked, and what passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    /// Origin-form target.
    pub(super) path: &'a str,
    /// `Host`; the address if not given.
    pub(super) host: Option<&'a str>,
    /// Statuses that pass.
    pub(super) expect: &'a StatusSet,
    /// A piece of text that the first 64 KiB of the body must hold.
    pub(super) body: Option<&'a str>,
    /// Whether it is asked in HTTP/2.
    pub(super) http2: bool,
    /// The service whose health is asked for by gRPC; `None`: it is an ordinary request.
    pub(super) grpc_service: Option<&'a str>,
}

/// Asks the backend at `address`.
pub(super) async fn probe(
    address: &Address,
    question: Question<'_>,
    opening: Opening<'_>,
    connected: &mut bool,
) -> Result<(), Fault> {
    match address {
        Address::Ip(address) => {
            let stream = tcp::connect(*address).await?;
            tcp::reset_on_close(&stream);
            *connected = true;
            exchange_over(stream, opening, &address.to_string(), question).await
        }
        Address::Unix(path) => {
            let stream = tcp::connect_unix(path).await?;
            *connected = true;
            exchange_over(stream, opening, "localhost", question).await
        }
    }
}

async fn exchange_over<S>(
    mut stream: S,
    opening: Opening<'_>,
    authority: &str,
    question: Question<'_>,
) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let text = request(question, authority);
    match opening.tls {
        Some(tls) => {
            tcp::send(&mut stream, opening.first).await?;
            let mut stream = tls.handshake(stream).await?;
            if question.http2 {
                return http2::exchange(stream, true, authority, question).await;
            }
            exchange(&mut stream, text.as_bytes(), question).await
        }
        None if question.http2 => http2::exchange(stream, false, authority, question).await,
        None => {
            let bytes = [opening.first, text.as_bytes()].concat();
            exchange(&mut stream, &bytes, question).await
        }
    }
}

fn request(question: Question<'_>, address: &str) -> String {
    let Question { path, host, .. } = question;
    let host = host.unwrap_or(address);
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: mizan-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )
}

async fn exchange<S>(stream: &mut S, request: &[u8], question: Question<'_>) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // TLS keeps what is written until it is flushed; a socket does not.
    let written = async {
        stream.write_all(request).await?;
        stream.flush().await
    };
    written.await.map_err(|error| Fault::io("write", &error))?;
    let mut judge = Judge::new(question);
    loop {
        judge.bytes.reserve(READ_BYTES);
        // Bounded by what is reserved, so that a body is judged as it comes.
        let count = stream
            .read_buf(&mut judge.bytes)
            .await
            .map_err(|error| Fault::io("read", &error))?;
        let verdict = if count == 0 {
            Some(judge.closed())
        } else {
            judge.judge()
        };
        if let Some(verdict) = verdict {
            return verdict.map_err(Fault::Answer);
        }
    }
}

/// Reads an answer and says what it is worth, as early as it can. What the data path would refuse from this backend
/// is no proof of health: it is read by the same rules.
struct Judge<'a> {
    question: Question<'a>,
    /// What came and is not yet judged.
    bytes: Vec<u8>,
    /// Bytes of heads, then of the body as framed, that were judged.
    judged: usize,
    /// How the body goes on, once the head was good.
    framing: Option<Framing>,
    chunked: Chunked,
    /// The body so far.
    body: Vec<u8>,
}

type Verdict = Result<(), String>;

impl<'a> Judge<'a> {
    fn new(question: Question<'a>) -> Self {
        Self {
            question,
            bytes: Vec::new(),
            judged: 0,
            framing: None,
            chunked: Chunked::default(),
            body: Vec::new(),
        }
    }

    /// Judges what came to `bytes`. `None`: more is needed.
    fn judge(&mut self) -> Option<Verdict> {
        while self.framing.is_none() {
            match self.head() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(reason) => return Some(Err(reason)),
            }
        }
        match self.question.body {
            None => Some(Ok(())),
            Some(text) => self.search(text, false),
        }
    }

    /// The connection ended in good order.
    fn closed(&mut self) -> Verdict {
        if self.framing.is_none() {
            let what = if self.bytes.is_empty() && self.judged == 0 {
                "no answer"
            } else {
                "half an answer"
            };
            return Err(format!("closed after {what}"));
        }
        let Some(text) = self.question.body else {
            return Ok(());
        };
        self.search(text, true)
            .unwrap_or_else(|| Err(missing(text)))
    }

    /// Takes one head off `bytes`. False: it is not whole yet. Interim ones (1xx but 101) are skipped.
    fn head(&mut self) -> Result<bool, String> {
        let sound = match sound_head(&self.bytes)? {
            Some(head) => head,
            None if self.judged + self.bytes.len() > HEAD_BYTES_MAX => {
                return Err(format!("answer's head longer than {HEAD_BYTES_MAX} bytes"));
            }
            None => return Ok(false),
        };
        self.take(sound.length);
        if sound.is_interim {
            return Ok(!self.bytes.is_empty());
        }
        let status = sound.status;
        if !self.question.expect.contains(status) {
            let expected = statuses(self.question.expect);
            return Err(format!("status {status}, expected {expected}"));
        }
        self.framing = Some(sound.framing);
        Ok(true)
    }

    fn take(&mut self, length: usize) {
        self.bytes.drain(..length);
        self.judged += length;
    }

    /// Looks for `text` in the body so far; `None` while it may still come.
    fn search(&mut self, text: &str, closed: bool) -> Option<Verdict> {
        let whole = match self.read_body(closed) {
            Ok(whole) => whole,
            Err(error) => return Some(Err(format!("answer's body is broken: {error}"))),
        };
        let searched = &self.body[..self.body.len().min(BODY_BYTES_MAX)];
        if memchr::memmem::find(searched, text.as_bytes()).is_some() {
            return Some(Ok(()));
        }
        (whole || self.body.len() >= BODY_BYTES_MAX || self.judged >= 4 * BODY_BYTES_MAX)
            .then(|| Err(missing(text)))
    }

    /// Moves the body from `bytes` to `body`, without its framing. Whether that was all of it.
    fn read_body(&mut self, closed: bool) -> Result<bool, ChunkError> {
        match &mut self.framing {
            None | Some(Framing::None) => return Ok(true),
            Some(Framing::Length(left)) => {
                let length = usize::try_from(*left)
                    .map_or(self.bytes.len(), |left| left.min(self.bytes.len()));
                *left -= length as u64;
                let whole = *left == 0;
                self.body.extend_from_slice(&self.bytes[..length]);
                self.take(length);
                return Ok(whole);
            }
            Some(Framing::UntilClose) => {
                self.body.extend_from_slice(&self.bytes);
                self.take(self.bytes.len());
                return Ok(closed);
            }
            Some(Framing::Chunked) => {}
        }
        while !self.bytes.is_empty() && !self.chunked.is_ended() {
            match self.chunked.next(&self.bytes)? {
                Piece::End => break,
                Piece::Framing(length) => self.take(length),
                Piece::Data(length) => {
                    self.body.extend_from_slice(&self.bytes[..length]);
                    self.take(length);
                }
            }
        }
        Ok(self.chunked.is_ended())
    }
}

/// What of a head counts.
struct SoundHead {
    status: u16,
    is_interim: bool,
    framing: Framing,
    /// Bytes.
    length: usize,
}

/// The head that `bytes` begin with; `None` while it is not whole.
fn sound_head(bytes: &[u8]) -> Result<Option<SoundHead>, String> {
    let mut lines = Lines::new();
    let head =
        response::parse(bytes, &mut lines, false).map_err(|error| {
            match response::is_http2(bytes) {
                true => "the backend speaks HTTP/2: see `protocol`".to_owned(),
                false => format!("answer is not sound HTTP/1: {error}"),
            }
        })?;
    Ok(head.map(|head| SoundHead {
        status: head.status,
        is_interim: head.is_interim(),
        framing: head.framing,
        length: head.bytes.len(),
    }))
}

pub(super) fn missing(text: &str) -> String {
    format!("answer's body does not hold {text:?}")
}

/// `200-399`, `200, 204-299`.
pub(super) fn statuses(set: &StatusSet) -> String {
    let mut text = String::new();
    for (low, high) in &set.0 {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = if low == high {
            write!(text, "{comma}{low}")
        } else {
            write!(text, "{comma}{low}-{high}")
        };
    }
    text
}

#[cfg(test)]
mod tests;
