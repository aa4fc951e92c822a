//! HTTP/1.1 as it comes from a socket: strict enough to notice what Mizan gets wrong, and made apart
//! from Mizan's own parser so that the two cannot agree on a mistake.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A connection with what was read from it and not yet used.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// How reading ended before the message did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The other side closed.
    Closed,
    /// The other side reset, or the connection failed otherwise.
    Reset,
    /// Nothing came for as long as the reader waits.
    TimedOut,
    /// What came is not HTTP.
    Malformed(String),
}

/// The start line and the fields of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// First line.
    pub(crate) start: String,
    /// Fields in order, names as sent.
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    /// The value of the first field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The values of all fields of this name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let same = move |field: &&(String, String)| field.0.eq_ignore_ascii_case(name);
        self.fields
            .iter()
            .filter(same)
            .map(|(_, value)| value.as_str())
    }

    /// Whether `Connection` has this option.
    pub(crate) fn connection_has(&self, option: &str) -> bool {
        let mut options = self.all("connection").flat_map(|value| value.split(','));
        options.any(|given| given.trim().eq_ignore_ascii_case(option))
    }

    /// The `at`th word of the start line.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.start.split(' ').nth(at).unwrap_or_default()
    }

    /// Whether a chunked body follows.
    pub(crate) fn is_chunked(&self) -> bool {
        self.field("transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    }

    /// The declared length.
    pub(crate) fn length(&self) -> Result<Option<usize>, How> {
        let parse = |value: &str| {
            value
                .parse()
                .map_err(|_| How::Malformed(format!("length {value}")))
        };
        self.field("content-length").map(parse).transpose()
    }
}

impl Wire {
    /// Takes over a connection.
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Scripts send in pieces on purpose; the kernel must not glue or hold them back.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The socket, for what is not reading.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// How long a read waits.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.stream
            .set_read_timeout(Some(patience))
            .expect("a patience above zero");
    }

    /// Writes all of `bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes with a reset instead of a FIN.
    pub(crate) fn reset(self) {
        // The reset goes out with the drop, unless linger fails on a socket that is closed already.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// The next head with its raw bytes, blank line included.
    pub(crate) fn head(&mut self) -> Result<(Head, Vec<u8>), How> {
        let raw = self.until(b"\r\n\r\n")?;
        let text = String::from_utf8(raw.clone())
            .map_err(|_| How::Malformed("head is not text".into()))?;
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let fields = lines.map(|line| {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| How::Malformed(format!("field {line:?}")))?;
            Ok((name.to_owned(), value.trim().to_owned()))
        });
        Ok((
            Head {
                start,
                fields: fields.collect::<Result<_, How>>()?,
            },
            raw,
        ))
    }

    /// Exactly `length` bytes, appended to `body`, which keeps what came if they do not.
    pub(crate) fn exactly(&mut self, mut length: usize, body: &mut Vec<u8>) -> Result<(), How> {
        while length > 0 {
            if self.buffer.is_empty() {
                self.fill()?;
            }
            let take = length.min(self.buffer.len());
            body.extend(self.buffer.drain(..take));
            length -= take;
        }
        Ok(())
    }

    /// A chunked body, appended to `body`; gives the trailers.
    pub(crate) fn chunked(&mut self, body: &mut Vec<u8>) -> Result<Vec<(String, String)>, How> {
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size, 16)
                .map_err(|_| How::Malformed(format!("chunk size {line:?}")))?;
            if size == 0 {
                break;
            }
            self.exactly(size, body)?;
            let end = self.line()?;
            if !end.is_empty() {
                return Err(How::Malformed(format!("{end:?} behind a chunk")));
            }
        }
        let mut trailers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(trailers);
            }
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| How::Malformed(format!("trailer {line:?}")))?;
            trailers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// Everything up to the other side's FIN, appended to `body`.
    pub(crate) fn rest(&mut self, body: &mut Vec<u8>) -> Result<(), How> {
        loop {
            body.append(&mut self.buffer);
            match self.fill() {
                Ok(()) => {}
                Err(How::Closed) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
    }

    /// What has come, at least a byte.
    pub(crate) fn some(&mut self) -> Result<Vec<u8>, How> {
        if self.buffer.is_empty() {
            self.fill()?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    fn line(&mut self) -> Result<String, How> {
        let mut raw = self.until(b"\r\n")?;
        raw.truncate(raw.len() - 2);
        String::from_utf8(raw).map_err(|_| How::Malformed("line is not text".into()))
    }

    fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, How> {
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memmem::find(&self.buffer[searched..], end) {
                return Ok(self.buffer.drain(..searched + at + end.len()).collect());
            }
            searched = self.buffer.len().saturating_sub(end.len());
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), How> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(How::Closed),
                Ok(length) => {
                    self.buffer.extend_from_slice(&chunk[..length]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Err(How::TimedOut);
                }
                Err(_) => return Err(How::Reset),
            }
        }
    }
}
