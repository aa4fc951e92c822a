//! An HTTP probe: one `GET` on a connection of its own, and the verdict on its answer.
//!
//! [`Judge`] is free of I/O: bytes in, verdict out. It reads no further than it must: without a text to look
//! for, the head decides.

use super::{Fault, tcp};
use crate::snapshot::StatusSet;
use mizan_core::backend::Address;
use std::fmt::Write as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest head of an answer, interim ones included.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most fields in it.
const HEADERS_MAX: usize = 100;
/// How much of the body is searched.
const BODY_BYTES_MAX: usize = 64 * 1024;
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
}

/// Asks the backend at `address`.
pub(super) async fn probe(
    address: &Address,
    question: Question<'_>,
    connected: &mut bool,
) -> Result<(), Fault> {
    match address {
        Address::Ip(address) => {
            let stream = tcp::connect(*address).await?;
            *connected = true;
            exchange(stream, &request(question, &address.to_string()), question).await
        }
        Address::Unix(path) => {
            let stream = tcp::connect_unix(path).await?;
            *connected = true;
            exchange(stream, &request(question, "localhost"), question).await
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

async fn exchange<S>(mut stream: S, request: &str, question: Question<'_>) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream
        .write_all(request.as_bytes())
        .await
        .map_err(|error| Fault::io("write", &error))?;
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

/// Reads an answer and says what it is worth, as early as it can.
struct Judge<'a> {
    question: Question<'a>,
    /// What came and is not yet judged: the head, then the body as framed.
    bytes: Vec<u8>,
    head_bytes: usize,
    framing: Option<Framing>,
}

/// How a body ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    Close,
}

type Verdict = Result<(), String>;

impl<'a> Judge<'a> {
    fn new(question: Question<'a>) -> Self {
        Self {
            question,
            bytes: Vec::new(),
            head_bytes: 0,
            framing: None,
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
            let what = if self.bytes.is_empty() && self.head_bytes == 0 {
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
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(&self.bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial)
                if self.head_bytes + self.bytes.len() > HEAD_BYTES_MAX =>
            {
                return Err(format!("answer's head longer than {HEAD_BYTES_MAX} bytes"));
            }
            Ok(httparse::Status::Partial) => return Ok(false),
            Err(error) => return Err(format!("answer is not HTTP/1: {error}")),
        };
        let status = head.code.unwrap_or_default();
        // httparse takes a bare LF for a line end; the data path refuses such an answer, so it is no proof of health.
        if self.bytes[..length]
            .iter()
            .enumerate()
            .any(|(at, byte)| *byte == b'\n' && (at == 0 || self.bytes[at - 1] != b'\r'))
        {
            return Err("answer is not HTTP/1: a line ends without CR".to_owned());
        }
        if (100..200).contains(&status) && status != 101 {
            self.bytes.drain(..length);
            self.head_bytes += length;
            return Ok(!self.bytes.is_empty());
        }
        if !self.question.expect.contains(status) {
            return Err(format!(
                "status {status}, expected {}",
                statuses(self.question.expect)
            ));
        }
        let framing = framing(status, head.headers)?;
        self.bytes.drain(..length);
        self.head_bytes += length;
        self.framing = Some(framing);
        Ok(true)
    }

    /// Looks for `text` in the body so far; `None` while it may still come.
    fn search(&self, text: &str, closed: bool) -> Option<Verdict> {
        let (body, whole) = match self.framing {
            Some(Framing::Length(length)) => (
                self.bytes[..self.bytes.len().min(length)].to_vec(),
                self.bytes.len() >= length,
            ),
            Some(Framing::Chunked) => match dechunked(&self.bytes) {
                Ok(decoded) => decoded,
                Err(reason) => return Some(Err(reason.to_owned())),
            },
            _ => (self.bytes.clone(), closed),
        };
        let searched = &body[..body.len().min(BODY_BYTES_MAX)];
        if memchr::memmem::find(searched, text.as_bytes()).is_some() {
            return Some(Ok(()));
        }
        (whole || body.len() >= BODY_BYTES_MAX || self.bytes.len() >= 4 * BODY_BYTES_MAX)
            .then(|| Err(missing(text)))
    }
}

fn missing(text: &str) -> String {
    format!("answer's body does not hold {text:?}")
}

fn framing(status: u16, headers: &[httparse::Header<'_>]) -> Result<Framing, String> {
    if matches!(status, 101 | 204 | 304) {
        return Ok(Framing::Length(0));
    }
    let value = |name: &str| {
        headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    if let Some(coding) = value("transfer-encoding") {
        return if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            Ok(Framing::Chunked)
        } else {
            Err("answer has an unknown Transfer-Encoding".to_owned())
        };
    }
    let Some(length) = value("content-length") else {
        return Ok(Framing::Close);
    };
    let digits = std::str::from_utf8(length)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .map(Framing::Length)
        .ok_or_else(|| "answer has a bad Content-Length".to_owned())
}

/// The body that `bytes` hold in chunks, and whether it is whole.
fn dechunked(mut bytes: &[u8]) -> Result<(Vec<u8>, bool), &'static str> {
    let mut body = Vec::new();
    loop {
        let (start, size) = match httparse::parse_chunk_size(bytes) {
            Ok(httparse::Status::Complete((start, size))) => (start, size),
            Ok(httparse::Status::Partial) => return Ok((body, false)),
            Err(_) => return Err("answer's chunked body is broken"),
        };
        if size == 0 {
            return Ok((body, true));
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let data = &bytes[start..];
        body.extend_from_slice(&data[..data.len().min(size)]);
        match data.get(size..size.saturating_add(2)) {
            Some(b"\r\n") => bytes = &data[size + 2..],
            Some(_) => return Err("answer's chunked body is broken"),
            None => return Ok((body, false)),
        }
    }
}

/// `200-399`, `200, 204-299`.
fn statuses(set: &StatusSet) -> String {
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
