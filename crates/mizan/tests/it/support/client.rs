//! One client connection.

use super::PATIENCE;
use super::wire::{Head, How, Wire};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// A client on one connection.
#[derive(Debug)]
pub(crate) struct Client {
    wire: Wire,
}

/// A whole response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// Status.
    pub(crate) status: u16,
    /// Start line and fields.
    pub(crate) head: Head,
    /// The body, without its framing.
    pub(crate) body: Vec<u8>,
    /// Fields behind a chunked body.
    pub(crate) trailers: Vec<(String, String)>,
    /// Interim responses (1xx) that came before.
    pub(crate) interim: Vec<Head>,
}

impl Response {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of the first field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }
}

/// A response that did not come whole.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// How it ended.
    pub(crate) how: How,
    /// Its head, if that came.
    pub(crate) head: Option<Head>,
    /// What came of the body.
    pub(crate) body: Vec<u8>,
}

impl From<How> for Cut {
    fn from(how: How) -> Self {
        Self {
            how,
            head: None,
            body: Vec::new(),
        }
    }
}

impl Client {
    /// Connects; reads wait up to [`PATIENCE`].
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        match Self::try_connect(address) {
            Ok(client) => client,
            Err(error) => panic!("connect to {address}: {error}"),
        }
    }

    /// Connects, or says why not.
    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let wire = Wire::new(TcpStream::connect_timeout(&address, PATIENCE)?);
        wire.set_patience(PATIENCE);
        Ok(Self { wire })
    }

    /// How long a read waits.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.wire.set_patience(patience);
    }

    /// The socket.
    pub(crate) fn stream(&self) -> &TcpStream {
        self.wire.stream()
    }

    /// Sends bytes; a failure shows in the read that follows.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.wire.send(bytes.as_ref()).is_ok()
    }

    /// Sends a GET without a body on this connection and reads the whole response.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        self.read()
    }

    /// Sends a POST with a declared length and reads the whole response.
    #[track_caller]
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> Response {
        let length = body.len();
        self.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n"
        ));
        self.send(body);
        self.read()
    }

    /// Sends `request` as it is and reads the whole response.
    #[track_caller]
    pub(crate) fn exchange(&mut self, request: impl AsRef<[u8]>) -> Response {
        self.send(request);
        self.read()
    }

    /// Reads the whole next response to anything but HEAD.
    #[track_caller]
    pub(crate) fn read(&mut self) -> Response {
        match self.try_read("GET") {
            Ok(response) => response,
            Err(cut) => panic!("no whole response: {cut:?}"),
        }
    }

    /// Reads the next response to a request by `method`, interim ones with it.
    pub(crate) fn try_read(&mut self, method: &str) -> Result<Response, Cut> {
        let mut interim = Vec::new();
        let head = loop {
            let head = self.wire.head()?.0;
            match status_of(&head)? {
                100 | 102..=199 => interim.push(head),
                _ => break head,
            }
        };
        let status = status_of(&head)?;
        let mut body = Vec::new();
        match self.read_body(method, status, &head, &mut body) {
            Ok(trailers) => Ok(Response {
                status,
                head,
                body,
                trailers,
                interim,
            }),
            Err(how) => Err(Cut {
                how,
                head: Some(head),
                body,
            }),
        }
    }

    fn read_body(
        &mut self,
        method: &str,
        status: u16,
        head: &Head,
        body: &mut Vec<u8>,
    ) -> Result<Vec<(String, String)>, How> {
        if method == "HEAD" || matches!(status, 101 | 204 | 304) {
            return Ok(Vec::new());
        }
        if head.is_chunked() {
            return self.wire.chunked(body);
        }
        match head.length()? {
            Some(length) => self.wire.exactly(length, body)?,
            None => self.wire.rest(body)?,
        }
        Ok(Vec::new())
    }

    /// Reads a head only (an interim response, or one whose body is of no interest yet).
    #[track_caller]
    pub(crate) fn read_head(&mut self) -> Head {
        match self.wire.head() {
            Ok((head, _)) => head,
            Err(how) => panic!("no head: {how:?}"),
        }
    }

    /// Reads exactly `length` bytes as they come.
    #[track_caller]
    pub(crate) fn read_exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = self.wire.exactly(length, &mut bytes);
        assert_eq!(read, Ok(()), "after {} of {length} bytes", bytes.len());
        bytes
    }

    /// Reads on until the other side has closed: what came, and how it ended.
    pub(crate) fn read_to_end(&mut self) -> (Vec<u8>, Result<(), How>) {
        let mut bytes = Vec::new();
        let end = self.wire.rest(&mut bytes);
        (bytes, end)
    }

    /// Waits until the other side has closed or reset, whatever it sends before.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        let (rest, end) = self.read_to_end();
        assert!(
            matches!(end, Ok(()) | Err(How::Reset)),
            "still open: {end:?}"
        );
        assert_eq!(
            String::from_utf8_lossy(&rest),
            "",
            "bytes behind the response"
        );
    }

    /// Whether the other side has closed and left nothing to read, without waiting for it.
    pub(crate) fn is_closed(&self) -> bool {
        match self.peek() {
            Ok(length) => length == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Whether there is an answer or an end to read, without waiting for it.
    pub(crate) fn is_answered(&self) -> bool {
        self.peek().map_err(|error| error.kind()) != Err(io::ErrorKind::WouldBlock)
    }

    /// Whether a byte comes before the end.
    pub(crate) fn try_read_some(&mut self) -> bool {
        self.wire.exactly(1, &mut Vec::new()).is_ok()
    }

    fn peek(&self) -> io::Result<usize> {
        let stream = self.stream();
        stream.set_nonblocking(true)?;
        let seen = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        seen
    }

    /// Says that nothing more will be sent, and goes on reading.
    pub(crate) fn finish_sending(&self) {
        self.stream()
            .shutdown(Shutdown::Write)
            .expect("a live socket");
    }
}

fn status_of(head: &Head) -> Result<u16, How> {
    let is_http = head.start.starts_with("HTTP/1.1 ") || head.start.starts_with("HTTP/1.0 ");
    let status = head
        .word(1)
        .parse()
        .ok()
        .filter(|status| is_http && (100..=599).contains(status));
    status.ok_or_else(|| How::Malformed(head.start.clone()))
}
