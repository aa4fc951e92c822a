//! WebSockets by hand (RFC 6455, and RFC 8441 over HTTP/2): frames, a client, and backends that echo.
//!
//! Nothing here checks what a WebSocket must not send: what a proxy should hand through untouched is made with it.

use super::h2_client::run;
use super::wire::{Head, How, Wire};
use super::{Call, H2Backend, H2Client, PATIENCE, RawBackend, locked};
use bytes::Bytes;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{Method, Request, Response};
use std::future::poll_fn;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;

/// The example of RFC 6455 §1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A frame: FIN, reserved bits and opcode in one byte; the payload as it is meant, not as it is masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) first: u8,
    pub(crate) key: Option<[u8; 4]>,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// As a client sends it.
    pub(crate) fn masked(first: u8, payload: impl Into<Vec<u8>>) -> Self {
        let payload = payload.into();
        let key = (payload.len() as u32).wrapping_mul(0x9e37_79b9) ^ u32::from(first) << 7 ^ 0x5a5a;
        Self {
            first,
            key: Some(key.to_be_bytes()),
            payload,
        }
    }

    /// As a server sends it.
    pub(crate) fn plain(first: u8, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            first,
            key: None,
            payload: payload.into(),
        }
    }

    /// A client's close.
    pub(crate) fn close(code: u16, why: &str) -> Self {
        Self::masked(CLOSE, [&code.to_be_bytes(), why.as_bytes()].concat())
    }

    /// The code of a close.
    pub(crate) fn code(&self) -> Option<u16> {
        let code = self.payload.first_chunk().filter(|_| self.first == CLOSE)?;
        Some(u16::from_be_bytes(*code))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mask = if self.key.is_some() { 0x80 } else { 0 };
        let mut bytes = vec![self.first];
        match self.payload.len() {
            length @ 0..=125 => bytes.push(mask | length as u8),
            length @ 126..=0xffff => {
                bytes.push(mask | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            length => {
                bytes.push(mask | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(self.key.into_iter().flatten());
        let from = bytes.len();
        bytes.extend_from_slice(&self.payload);
        unmask(&mut bytes[from..], self.key);
        bytes
    }

    /// The frame that `bytes` begin with and its length; `None` while it is not whole.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let [first, second, rest @ ..] = bytes else {
            return None;
        };
        let (length, rest) = match second & 0x7f {
            126 => {
                let (length, rest) = rest.split_first_chunk()?;
                (usize::from(u16::from_be_bytes(*length)), rest)
            }
            127 => {
                let (length, rest) = rest.split_first_chunk()?;
                let length = u64::from_be_bytes(*length);
                (usize::try_from(length).expect("no such memory"), rest)
            }
            length => (usize::from(length), rest),
        };
        let (key, rest) = match second & 0x80 {
            0 => (None, rest),
            _ => rest
                .split_first_chunk()
                .map(|(key, rest)| (Some(*key), rest))?,
        };
        let mut payload = rest.get(..length)?.to_vec();
        unmask(&mut payload, key);
        let frame = Self {
            first: *first,
            key,
            payload,
        };
        Some((frame, bytes.len() - rest.len() + length))
    }

    /// All frames of `bytes`, and how many bytes are left behind the last whole one.
    pub(crate) fn all(mut bytes: &[u8]) -> (Vec<Self>, usize) {
        let mut frames = Vec::new();
        while let Some((frame, length)) = Self::read(bytes) {
            frames.push(frame);
            bytes = &bytes[length..];
        }
        (frames, bytes.len())
    }
}

fn unmask(payload: &mut [u8], key: Option<[u8; 4]>) {
    let keys = key.unwrap_or_default().into_iter().cycle();
    payload
        .iter_mut()
        .zip(keys)
        .for_each(|(byte, key)| *byte ^= key);
}

/// The head of an upgrade to a WebSocket.
pub(crate) fn upgrade(host: &str, path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nOrigin: http://a.example\r\n\r\n"
    )
}

/// What answers `key` (RFC 6455 §4.2.2).
pub(crate) fn accept(key: &str) -> String {
    use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
    let text = format!("{key}{GUID}");
    data_encoding::BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref())
}

/// The head of the 101 that answers `head`.
pub(crate) fn accepted(head: &Head) -> String {
    let key = head.field("sec-websocket-key").unwrap_or_default();
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        accept(key)
    )
}

/// A client's end of a WebSocket.
pub(crate) enum WebSocket {
    /// A connection of its own, or one to a relay that puts TLS around it.
    Connection(Wire),
    /// A stream of HTTP/2.
    Stream(SendStream<Bytes>, RecvStream),
}

impl WebSocket {
    /// Opens one with an upgrade; `early` is sent right behind it.
    #[track_caller]
    pub(crate) fn open(address: SocketAddr, host: &str, path: &str, early: &[u8]) -> Self {
        let mut wire = Wire::new(TcpStream::connect(address).expect("it listens"));
        wire.set_patience(4 * PATIENCE);
        let request = [upgrade(host, path).as_bytes(), early].concat();
        wire.send(&request).expect("it is open");
        let (head, _) = wire.head().expect("an answer");
        assert_eq!(head.word(1), "101", "{head:?}");
        assert_eq!(head.field("sec-websocket-accept"), Some(&*accept(KEY)));
        assert!(head.connection_has("upgrade"), "{head:?}");
        let protocol = head.field("upgrade").unwrap_or_default();
        assert!(protocol.eq_ignore_ascii_case("websocket"), "{head:?}");
        Self::Connection(wire)
    }

    /// Opens one with an extended CONNECT.
    #[track_caller]
    pub(crate) fn over(client: &H2Client, host: &str, path: &str) -> Self {
        match run(Self::ask(client, host, path)).expect("an answer") {
            (response, Some(socket)) => {
                assert!(response.headers().get("sec-websocket-accept").is_none());
                socket
            }
            (response, None) => panic!("not accepted: {response:?}"),
        }
    }

    /// The answer to an extended CONNECT, and the WebSocket if it is 200.
    pub(crate) async fn ask(
        client: &H2Client,
        host: &str,
        path: &str,
    ) -> Result<(Response<()>, Option<Self>), h2::Error> {
        let mut request = Request::new(());
        *request.method_mut() = Method::CONNECT;
        let uri = format!("http://{host}{path}");
        *request.uri_mut() = uri.parse().expect("a sound target");
        request
            .extensions_mut()
            .insert(Protocol::from_static("websocket"));
        let version = http::HeaderValue::from_static("13");
        request
            .headers_mut()
            .insert("sec-websocket-version", version);
        let (response, sending) = client.send(request, false).await?;
        let (parts, frames) = response.await?.into_parts();
        let is_accepted = parts.status == 200;
        let socket = is_accepted.then(|| Self::Stream(sending, frames));
        Ok((Response::from_parts(parts, ()), socket))
    }

    /// Sends pieces as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self {
            // A failure shows in the read that follows.
            Self::Connection(wire) => _ = wire.send(bytes),
            Self::Stream(sending, _) => _ = run(send_piece(sending, bytes)),
        }
    }

    /// The next frame; an error if what came before the end is none.
    pub(crate) fn read(&mut self) -> Result<Frame, How> {
        let mut bytes = Vec::new();
        loop {
            if let Some((frame, length)) = Frame::read(&bytes) {
                assert_eq!(length, bytes.len(), "read by the byte");
                return Ok(frame);
            }
            let wanted = missing(&bytes);
            match self {
                Self::Connection(wire) => wire.exactly(wanted, &mut bytes)?,
                Self::Stream(..) => panic!("a stream is played"),
            }
        }
    }

    /// Ends its own way, and goes on reading.
    pub(crate) fn finish(&mut self) {
        match self {
            Self::Connection(wire) => _ = wire.stream().shutdown(std::net::Shutdown::Write),
            Self::Stream(sending, _) => _ = sending.send_data(Bytes::new(), true),
        }
    }

    /// Sends all pieces while it reads to the end: what came. It must end with a FIN.
    #[track_caller]
    pub(crate) fn play(self, pieces: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Connection(mut wire) => {
                let mut writer = Wire::new(wire.stream().try_clone().expect("a socket"));
                let (mut read, mut ended) = (Vec::new(), Ok(()));
                std::thread::scope(|scope| {
                    // The other side may close before it has read all.
                    scope.spawn(|| pieces.iter().all(|piece| writer.send(piece).is_ok()));
                    ended = wire.rest(&mut read);
                });
                assert_eq!(ended, Ok(()), "after {} bytes", read.len());
                read
            }
            Self::Stream(mut sending, mut frames) => run(async {
                let sent = async {
                    for piece in pieces {
                        send_piece(&mut sending, piece).await?;
                    }
                    // Said with the end of the other side's, as a client of RFC 6455 closes its connection.
                    std::future::pending::<Result<(), h2::Error>>().await
                };
                let read = async {
                    let mut read = Vec::new();
                    while let Some(data) = frames.data().await {
                        let data = data.expect("an end that is none of a broken stream");
                        let released = frames.flow_control().release_capacity(data.len());
                        released.expect("so much was received");
                        read.extend_from_slice(&data);
                    }
                    read
                };
                tokio::select! {
                    read = read => read,
                    Err(error) = sent => panic!("not sent: {error}"),
                }
            }),
        }
    }
}

/// How many bytes the frame that begins with these wants at least.
fn missing(bytes: &[u8]) -> usize {
    let Some(second) = bytes.get(1) else {
        return 2 - bytes.len();
    };
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let header = 2 + extended + if second & 0x80 == 0 { 0 } else { 4 };
    if bytes.len() < header {
        return header - bytes.len();
    }
    let length = match second & 0x7f {
        126 => u64::from(u16::from_be_bytes([bytes[2], bytes[3]])),
        127 => u64::from_be_bytes(bytes[2..10].try_into().expect("eight bytes")),
        length => u64::from(length),
    };
    header + length as usize - bytes.len()
}

/// Sends `bytes` as the window allows; the stream goes on.
pub(crate) async fn send_piece(
    sending: &mut SendStream<Bytes>,
    bytes: &[u8],
) -> Result<(), h2::Error> {
    let mut rest = Bytes::copy_from_slice(bytes);
    while !rest.is_empty() {
        sending.reserve_capacity(rest.len().min(64 << 10));
        let given = poll_fn(|cx| sending.poll_capacity(cx)).await;
        let count = given.unwrap_or_else(|| Err(h2::Reason::STREAM_CLOSED.into()))?;
        sending.send_data(rest.split_to(count.min(rest.len())), false)?;
    }
    Ok(())
}

/// What an echoing backend does, by its path: `/echo` answers each frame with the same one, unmasked (a ping with a
/// pong, a close with its own and the end); `/fragments/N` the same, its messages in fragments of N bytes;
/// `/close/CODE` closes first; `/early` says hello with its 101.
#[derive(Debug)]
struct Echo {
    fragment: usize,
    unread: Vec<u8>,
    heard: Vec<u8>,
    is_closed: bool,
}

impl Echo {
    /// And what it says at once.
    fn new(path: &str) -> (Self, Vec<u8>) {
        let number = |prefix| {
            path.strip_prefix(prefix)
                .and_then(|rest: &str| rest.parse().ok())
        };
        let first = match number("/close/") {
            Some(code) => Frame {
                key: None,
                ..Frame::close(code, "bye")
            }
            .bytes(),
            None if path == "/early" => Frame::plain(TEXT, "hello").bytes(),
            None => Vec::new(),
        };
        let echo = Self {
            fragment: number("/fragments/").map_or(usize::MAX, usize::from),
            unread: Vec::new(),
            heard: Vec::new(),
            is_closed: false,
        };
        (echo, first)
    }

    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.heard.extend_from_slice(bytes);
        self.unread.extend_from_slice(bytes);
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some((frame, length)) =
            Frame::read(&self.unread[at..]).filter(|_| !self.is_closed)
        {
            at += length;
            self.is_closed = frame.first == CLOSE;
            let first = if frame.first == PING {
                PONG
            } else {
                frame.first
            };
            let is_message = matches!(first, TEXT | BINARY) && !frame.payload.is_empty();
            if !is_message || frame.payload.len() <= self.fragment {
                out.extend(Frame::plain(first, frame.payload).bytes());
                continue;
            }
            let count = frame.payload.len().div_ceil(self.fragment);
            for (index, part) in frame.payload.chunks(self.fragment).enumerate() {
                let opcode = if index == 0 { first & 0x0f } else { 0 };
                let last = if index + 1 == count { 0x80 } else { 0 };
                out.extend(Frame::plain(opcode | last, part).bytes());
            }
        }
        self.unread.drain(..at);
        out
    }
}

/// All that each WebSocket was sent that a backend has closed.
pub(crate) type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

/// Echoes over HTTP/1.1.
pub(crate) fn echo(heard: &Heard) -> RawBackend {
    let heard = Arc::clone(heard);
    RawBackend::start(move |connection| {
        let mut wire = Wire::new(connection.stream.try_clone().expect("a socket"));
        wire.set_patience(10 * PATIENCE);
        let Ok((head, _)) = wire.head() else {
            return;
        };
        let (mut echo, first) = Echo::new(head.word(1));
        let mut sent = wire.send(&[accepted(&head).as_bytes(), &first].concat());
        while let (Ok(()), false) = (&sent, echo.is_closed) {
            let Ok(bytes) = wire.some() else {
                break;
            };
            sent = wire.send(&echo.answer(&bytes));
        }
        locked(&heard).push(echo.heard);
    })
}

/// Echoes over HTTP/2.
pub(crate) fn echo_h2(heard: &Heard) -> H2Backend {
    let heard = Arc::clone(heard);
    let mut builder = h2::server::Builder::new();
    // The library takes so many small frames at a time as the connection's window is wide.
    builder
        .enable_connect_protocol()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20);
    H2Backend::with("echo", &builder, move |call| {
        echo_call(call, Arc::clone(&heard))
    })
}

async fn echo_call(mut call: Call, heard: Heard) -> Result<(), h2::Error> {
    let protocol = call.head.extensions.get::<Protocol>();
    let is_asked = call.head.method == Method::CONNECT
        && protocol.is_some_and(|protocol| protocol.as_str() == "websocket")
        && !call.head.headers.contains_key("sec-websocket-key");
    if !is_asked {
        return call.answer(b"no websocket").await;
    }
    let (mut echo, first) = Echo::new(call.head.uri.path());
    let mut sending = call.respond.send_response(Response::new(()), false)?;
    send_piece(&mut sending, &first).await?;
    while let Some(data) = call.frames.data().await {
        let data = data?;
        call.frames.flow_control().release_capacity(data.len())?;
        send_piece(&mut sending, &echo.answer(&data)).await?;
        if echo.is_closed {
            break;
        }
    }
    locked(&heard).push(echo.heard);
    sending.send_data(Bytes::new(), true)
}
