//! HTTP/2 frame by frame, for clients that a library does not let misbehave (RFC 9113 §4).

use super::PATIENCE;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const ACK: u8 = 1;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error code of RST_STREAM or GOAWAY.
    pub(crate) fn code(&self) -> Option<u32> {
        let at = match self.kind {
            RST_STREAM => 0,
            GOAWAY => 4,
            _ => return None,
        };
        let bytes = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// The status of a head, where the table of RFC 7541 (appendix A) or plain digits hold it.
    pub(crate) fn status(&self) -> Option<u16> {
        if self.kind != HEADERS {
            return None;
        }
        match *self.payload.first()? {
            0x88 => Some(200),
            0x89 => Some(204),
            0x8b => Some(304),
            0x8c => Some(400),
            0x8d => Some(404),
            0x8e => Some(500),
            // The name by index, then three digits: in Huffman's code five bits for 0–2, six for 3–9.
            0x48 => huffman_digits(self.payload.get(2..)?),
            _ => None,
        }
    }
}

fn huffman_digits(bytes: &[u8]) -> Option<u16> {
    let mut bits = 0;
    for at in 0..3 {
        bits = bits << 8 | u32::from(bytes.get(at).copied().unwrap_or(0xff));
    }
    let (mut left, mut status) = (24, 0);
    for _ in 0..3 {
        let five = (bits >> (left - 5)) & 0x1f;
        let six = (bits >> (left - 6)) & 0x3f;
        let (digit, length) = if five <= 2 {
            (five, 5)
        } else {
            (six - 0x16, 6)
        };
        status = status * 10 + digit;
        left -= length;
    }
    u16::try_from(status).ok()
}

/// A connection on which anything may be sent.
#[derive(Debug)]
pub(crate) struct Frames {
    stream: TcpStream,
}

impl Frames {
    /// Connects and says hello, with `settings` as the first frame's payload.
    #[track_caller]
    pub(crate) fn open(address: SocketAddr, settings: &[u8]) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time");
        stream.set_nodelay(true).expect("a live socket");
        let mut frames = Self { stream };
        frames.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frames.send(SETTINGS, 0, 0, settings);
        frames
    }

    /// Says hello to who has connected, and reads the hello and the settings that it sends.
    pub(crate) fn accept(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut frames = Self { stream };
        frames.send(SETTINGS, 0, 0, b"");
        frames.stream.read_exact(&mut [0; 24])?;
        frames.read()?;
        frames.send(SETTINGS, ACK, 0, b"");
        Ok(frames)
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes; whether they went.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends a frame; whether it went.
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.raw(&frame(kind, flags, stream, payload))
    }

    /// Sends a head of these lines, pseudo fields among them.
    pub(crate) fn head(&mut self, stream: u32, flags: u8, lines: &[(&str, &str)]) -> bool {
        self.send(HEADERS, flags | END_HEADERS, stream, &block(lines))
    }

    /// Sends a GET.
    pub(crate) fn get(&mut self, stream: u32, path: &str) -> bool {
        self.head(stream, END_STREAM, &request("GET", path))
    }

    /// The next frame; an error if the connection has ended.
    pub(crate) fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff,
            payload,
        })
    }

    /// The first frame that fits, whatever comes before; `None` if the connection ends before.
    #[track_caller]
    pub(crate) fn until(&mut self, fits: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            match self.read() {
                Ok(frame) if fits(&frame) => return Some(frame),
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    panic!("no such frame within {PATIENCE:?}");
                }
                Err(_) => return None,
            }
        }
    }

    /// What comes of a request: its status, or the code of the reset that it gets, or of the GOAWAY; `None`: the
    /// connection ends without a word.
    #[track_caller]
    pub(crate) fn fate(&mut self, stream: u32) -> Fate {
        let frame = self.until(|frame| {
            (matches!(frame.kind, HEADERS | RST_STREAM) && frame.stream == stream)
                || (frame.kind == GOAWAY && frame.code() != Some(0))
        });
        match frame {
            None => Fate::Closed,
            Some(frame) => match frame.kind {
                HEADERS => Fate::Status(frame.status().unwrap_or_default()),
                RST_STREAM => Fate::Reset(frame.code().unwrap_or_default()),
                _ => Fate::GoAway(frame.code().unwrap_or_default()),
            },
        }
    }
}

/// What comes of a request or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Status(u16),
    Reset(u32),
    GoAway(u32),
    Closed,
}

/// A frame's bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A header block of literals that go into no table (RFC 7541 §6.2.2).
pub(crate) fn block(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in lines {
        bytes.push(0);
        for text in [name, value] {
            integer(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// An integer with a prefix of seven bits (RFC 7541 §5.1).
fn integer(bytes: &mut Vec<u8>, value: usize) {
    if value < 127 {
        bytes.push(value as u8);
        return;
    }
    bytes.push(127);
    let mut rest = value - 127;
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
}

/// The pseudo fields of a request.
pub(crate) fn request<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a.example"),
        (":path", path),
    ]
}

/// One setting.
pub(crate) fn setting(id: u16, value: u32) -> [u8; 6] {
    let mut bytes = [0; 6];
    bytes[..2].copy_from_slice(&id.to_be_bytes());
    bytes[2..].copy_from_slice(&value.to_be_bytes());
    bytes
}
