//! A blocking HTTP/1.1 client on one keep-alive connection: the drill's eyes. It takes nothing from the proxy's
//! own code, so that a fault there is not shared here.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A proxy that says nothing for this long has failed.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// `X-Upstream`: the backend that answered.
    pub(super) upstream: Option<String>,
    pub(super) body: Vec<u8>,
    /// Whether the connection can take no further request.
    pub(super) closing: bool,
}

/// Why nothing, or only a part, came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection.
    Connect(String),
    /// The connection failed before a byte of the answer came.
    Before(String),
    /// It failed in the middle of the answer.
    Cut(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "no connection: {why}"),
            Self::Before(why) => write!(f, "no answer: {why}"),
            Self::Cut(why) => write!(f, "cut in mid-answer: {why}"),
        }
    }
}

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// One connection.
pub(super) struct Client {
    stream: Box<dyn Stream>,
    /// Read, and not yet taken.
    bytes: Vec<u8>,
}

impl Client {
    /// Connects to `address`, from `source` if given: any address of 127.0.0.0/8 will do on Linux.
    pub(super) fn connect(address: SocketAddr, source: Option<Ipv4Addr>) -> Result<Self, Fault> {
        let connected = || -> io::Result<TcpStream> {
            let socket = socket2::Socket::new(
                socket2::Domain::for_address(address),
                socket2::Type::STREAM,
                None,
            )?;
            if let Some(source) = source {
                socket.bind(&SocketAddr::from((source, 0)).into())?;
            }
            socket.connect(&address.into())?;
            socket.set_tcp_nodelay(true)?;
            socket.set_read_timeout(Some(READ_TIMEOUT))?;
            Ok(socket.into())
        };
        let stream = connected().map_err(|error| Fault::Connect(error.to_string()))?;
        Ok(Self {
            stream: Box::new(stream),
            bytes: Vec::new(),
        })
    }

    /// Connects to a Unix socket.
    pub(super) fn connect_unix(path: &Path) -> Result<Self, Fault> {
        let connected = || -> io::Result<UnixStream> {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(READ_TIMEOUT))?;
            Ok(stream)
        };
        let stream = connected().map_err(|error| Fault::Connect(error.to_string()))?;
        Ok(Self {
            stream: Box::new(stream),
            bytes: Vec::new(),
        })
    }

    pub(super) fn get(&mut self, path: &str) -> Result<Answer, Fault> {
        self.request("GET", path, "")
    }

    /// Sends one request and reads its answer to the end.
    pub(super) fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<Answer, Fault> {
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: lab\r\nAccept: */*\r\n{length}\r\n{body}");
        self.stream
            .write_all(request.as_bytes())
            .map_err(|error| Fault::Before(error.to_string()))?;
        loop {
            let head = head(&self.bytes).map_err(Fault::Cut)?;
            let Some(head) = head else {
                self.read()?;
                continue;
            };
            self.bytes.drain(..head.length);
            if head.status >= 200 {
                let body = self.body(head.framing)?;
                let closing = head.closing || head.framing == Framing::Close;
                return Ok(Answer {
                    status: head.status,
                    upstream: head.upstream,
                    body,
                    closing,
                });
            }
        }
    }

    fn body(&mut self, framing: Framing) -> Result<Vec<u8>, Fault> {
        match framing {
            Framing::Length(length) => self.take(length),
            Framing::Chunked => self.chunks(),
            Framing::Close => {
                while self
                    .read_some()
                    .map_err(|error| Fault::Cut(error.to_string()))?
                    > 0
                {}
                Ok(std::mem::take(&mut self.bytes))
            }
        }
    }

    fn chunks(&mut self) -> Result<Vec<u8>, Fault> {
        let mut body = Vec::new();
        loop {
            let (line, size) = match httparse::parse_chunk_size(&self.bytes) {
                Ok(httparse::Status::Complete(found)) => found,
                Ok(httparse::Status::Partial) => {
                    self.read_more()?;
                    continue;
                }
                Err(_) => return Err(Fault::Cut("a bad chunk".to_owned())),
            };
            self.bytes.drain(..line);
            if size == 0 {
                // No trailers are asked for: the empty line ends it.
                return self.take(2).map(|_| body);
            }
            body.extend(self.take(usize::try_from(size).unwrap_or(usize::MAX))?);
            self.take(2)?;
        }
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, Fault> {
        while self.bytes.len() < length {
            self.read_more()?;
        }
        Ok(self.bytes.drain(..length).collect())
    }

    /// Reads on within an answer.
    fn read_more(&mut self) -> Result<(), Fault> {
        match self.read_some() {
            Ok(0) => Err(Fault::Cut("connection closed".to_owned())),
            Ok(_) => Ok(()),
            Err(error) => Err(Fault::Cut(error.to_string())),
        }
    }

    /// Reads on within a head, or before it.
    fn read(&mut self) -> Result<(), Fault> {
        let begun = !self.bytes.is_empty();
        let fault = |why: String| {
            if begun {
                Fault::Cut(why)
            } else {
                Fault::Before(why)
            }
        };
        match self.read_some() {
            Ok(0) => Err(fault("connection closed".to_owned())),
            Ok(_) => Ok(()),
            Err(error) => Err(fault(error.to_string())),
        }
    }

    fn read_some(&mut self) -> io::Result<usize> {
        let mut bytes = [0; READ_BYTES];
        let count = self.stream.read(&mut bytes)?;
        self.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    Close,
}

struct Head {
    length: usize,
    status: u16,
    upstream: Option<String>,
    closing: bool,
    framing: Framing,
}

/// The head at the start of `bytes`; none if it is not whole.
fn head(bytes: &[u8]) -> Result<Option<Head>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("bad head: {error}")),
    };
    let status = response.code.unwrap_or_default();
    let field = |name: &str| {
        let found = response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| String::from_utf8_lossy(header.value).trim().to_owned())
    };
    let framing = if matches!(status, 100..=199 | 204 | 304) {
        Framing::Length(0)
    } else if field("transfer-encoding").is_some() {
        Framing::Chunked
    } else if let Some(length) = field("content-length") {
        Framing::Length(
            length
                .parse()
                .map_err(|_| format!("bad Content-Length {length:?}"))?,
        )
    } else {
        Framing::Close
    };
    let closing = field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(Some(Head {
        length,
        status,
        upstream: field("x-upstream"),
        closing,
        framing,
    }))
}

#[cfg(test)]
mod tests;
