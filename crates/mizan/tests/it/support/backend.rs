//! A scripted backend: each request is handed to a script that may answer, lie, stall or cut.

use super::wire::{Head, How, Wire};
use super::{PATIENCE, Stop, eventually, locked, now};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What becomes of the connection after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next request is read.
    Keep,
    /// FIN.
    Close,
    /// Reset.
    Reset,
}

/// A body and the fields behind it.
pub(crate) type WithTrailers = (Vec<u8>, Vec<(String, String)>);

/// What a backend does with a request.
pub(crate) type Script = dyn Fn(&mut Exchange) -> io::Result<Next> + Send + Sync;

/// Requests that are recorded byte for byte; under load the rest is only counted.
const RECORDED_MAX: usize = 1_000;

/// A scripted backend on a port of its own.
pub(crate) struct Backend {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    name: String,
    script: Mutex<Arc<Script>>,
    /// Probes (`/healthz`) answered 503, and then `Connection: close` on all answers.
    draining: AtomicBool,
    closing: AtomicBool,
    requests: AtomicUsize,
    probes: AtomicUsize,
    connections: AtomicUsize,
    next_connection: AtomicU64,
    open: Mutex<HashMap<u64, Open>>,
    recorded: Mutex<BTreeMap<usize, Vec<u8>>>,
    stop: Stop,
}

/// A connection that is open, and whether a request is being worked on.
struct Open {
    stream: TcpStream,
    is_busy: bool,
}

/// One request, as a script sees it.
pub(crate) struct Exchange {
    /// Its head.
    pub(crate) head: Head,
    /// From 0, over the backend's life, probes apart.
    pub(crate) number: usize,
    raw: Vec<u8>,
    wire: Wire,
    shared: Arc<Shared>,
    is_body_read: bool,
}

impl Backend {
    /// A backend whose answers are the script's. Probes of `/healthz` are answered 200 apart from it.
    pub(crate) fn start(
        script: impl Fn(&mut Exchange) -> io::Result<Next> + Send + Sync + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1:0", "backend", script).expect("a free port")
    }

    /// A backend that answers rightly: see [`Exchange::serve`].
    pub(crate) fn healthy(name: &str) -> Self {
        Self::start_at("127.0.0.1:0", name, Exchange::serve).expect("a free port")
    }

    /// A backend on a given address.
    pub(crate) fn start_at(
        address: &str,
        name: &str,
        script: impl Fn(&mut Exchange) -> io::Result<Next> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            script: Mutex::new(Arc::new(script)),
            draining: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            probes: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            next_connection: AtomicU64::new(0),
            open: Mutex::new(HashMap::new()),
            recorded: Mutex::new(BTreeMap::new()),
            stop: Stop::default(),
        });
        let mut backend = Self {
            address,
            shared,
            acceptor: None,
        };
        backend.listen(listener);
        Ok(backend)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests whose head came whole, probes apart.
    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Probes of `/healthz` answered.
    pub(crate) fn probes(&self) -> usize {
        self.shared.probes.load(Ordering::SeqCst)
    }

    /// Connections accepted, probes' too.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Connections with a request that is being worked on.
    pub(crate) fn busy(&self) -> usize {
        locked(&self.shared.open)
            .values()
            .filter(|open| open.is_busy)
            .count()
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        locked(&self.shared.open).len()
    }

    /// The bytes of each request that was read, body included if the script read it.
    pub(crate) fn recorded(&self) -> Vec<String> {
        locked(&self.shared.recorded)
            .values()
            .map(|raw| String::from_utf8_lossy(raw).into_owned())
            .collect()
    }

    /// Another script from the next request on.
    pub(crate) fn set_script(
        &self,
        script: impl Fn(&mut Exchange) -> io::Result<Next> + Send + Sync + 'static,
    ) {
        *locked(&self.shared.script) = Arc::new(script);
    }

    /// Goes away at once: nothing listens, all connections are closed.
    pub(crate) fn stop(&mut self) {
        self.close_listener();
        for open in locked(&self.shared.open).values() {
            // Closed already is as good.
            let _ = open.stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes the connections on which no request is being worked on, as a backend may at any time.
    pub(crate) fn close_idle(&self) {
        for open in locked(&self.shared.open)
            .values()
            .filter(|open| !open.is_busy)
        {
            // Closed already is as good.
            let _ = open.stream.shutdown(Shutdown::Both);
        }
    }

    /// Comes back on the same address after [`Backend::stop`] or [`Backend::drain`].
    pub(crate) fn restart(&mut self) {
        self.shared.draining.store(false, Ordering::SeqCst);
        self.shared.closing.store(false, Ordering::SeqCst);
        self.listen(TcpListener::bind(self.address).expect("its own address"));
    }

    /// Leaves as a backend should: fails its probes while it still serves, until no request has come
    /// for a while; then closes what is idle, finishes what is not, and is gone.
    pub(crate) fn drain(&mut self) {
        const QUIET: Duration = Duration::from_millis(300);
        self.shared.draining.store(true, Ordering::SeqCst);
        let (mut seen, mut since) = (self.requests(), now());
        eventually(PATIENCE, "traffic leaves a draining backend", || {
            if seen != self.requests() {
                (seen, since) = (self.requests(), now());
            }
            now() > since + QUIET
        });
        self.close_listener();
        self.close_idle();
        eventually(PATIENCE, "a draining backend's requests end", || {
            self.busy() == 0
        });
        self.stop();
    }

    fn listen(&mut self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        self.acceptor = Some(std::thread::spawn(move || accept(&listener, &shared)));
    }

    fn close_listener(&mut self) {
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        self.shared.closing.store(true, Ordering::SeqCst);
        // Wakes the acceptor, which then sees that it should end.
        drop(TcpStream::connect(self.address));
        let _ = acceptor.join();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.stop.stop();
        self.stop();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.closing.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else {
            continue;
        };
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let id = shared.next_connection.fetch_add(1, Ordering::SeqCst);
            if let Ok(clone) = stream.try_clone() {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                locked(&shared.open).insert(
                    id,
                    Open {
                        stream: clone,
                        is_busy: false,
                    },
                );
                // An error is a connection that the script or the other side ended.
                let next = serve_connection(id, stream, &shared);
                locked(&shared.open).remove(&id);
                drop(next);
            }
        });
    }
}

/// Serves one connection; gives it back, so that the last handle to the socket is dropped after it left
/// `open` (a reset goes out with the last handle).
fn serve_connection(id: u64, stream: TcpStream, shared: &Arc<Shared>) -> io::Result<Exchange> {
    let set_busy = |is_busy| {
        if let Some(open) = locked(&shared.open).get_mut(&id) {
            open.is_busy = is_busy;
        }
    };
    let (wire, shared_too) = (Wire::new(stream), Arc::clone(shared));
    let mut exchange = Exchange {
        head: Head::default(),
        number: 0,
        raw: Vec::new(),
        wire,
        shared: shared_too,
        is_body_read: false,
    };
    loop {
        (exchange.head, exchange.raw) = exchange.wire.head().map_err(broken)?;
        exchange.is_body_read = false;
        set_busy(true);
        let next = exchange.work()?;
        set_busy(false);
        match next {
            Next::Keep if !shared.closing.load(Ordering::SeqCst) => {}
            Next::Keep | Next::Close => return Ok(exchange),
            Next::Reset => {
                locked(&shared.open).remove(&id);
                exchange.wire.reset();
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
    }
}

fn broken(how: How) -> io::Error {
    io::Error::other(format!("{how:?}"))
}

impl Exchange {
    fn work(&mut self) -> io::Result<Next> {
        let shared = Arc::clone(&self.shared);
        if self.target() == "/healthz" {
            shared.probes.fetch_add(1, Ordering::SeqCst);
            let status = if shared.draining.load(Ordering::SeqCst) {
                "503 Draining"
            } else {
                "200 OK"
            };
            self.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))?;
            return Ok(Next::Keep);
        }
        self.number = shared.requests.fetch_add(1, Ordering::SeqCst);
        let script = Arc::clone(&locked(&shared.script));
        // Before any answer: a test that has one finds the request recorded.
        let raw = std::mem::take(&mut self.raw);
        self.record(&raw);
        script(self)
    }

    /// The path with its query.
    pub(crate) fn target(&self) -> &str {
        self.head.word(1)
    }

    /// Reads the request's body.
    pub(crate) fn body(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.body_and_trailers()?.0)
    }

    /// Reads the request's body, and the fields behind it if it is chunked.
    pub(crate) fn body_and_trailers(&mut self) -> io::Result<WithTrailers> {
        self.is_body_read = true;
        let (mut body, mut trailers) = (Vec::new(), Vec::new());
        if self.head.is_chunked() {
            trailers = self.wire.chunked(&mut body).map_err(broken)?;
            self.record(&body);
            for (name, value) in &trailers {
                self.record(format!("{name}: {value}\r\n").as_bytes());
            }
        } else if let Some(length) = self.head.length().map_err(broken)? {
            self.wire.exactly(length, &mut body).map_err(broken)?;
            self.record(&body);
        }
        Ok((body, trailers))
    }

    /// Reads `length` bytes of the request's body as they come.
    pub(crate) fn some_of_body(&mut self, length: usize) -> io::Result<Vec<u8>> {
        self.is_body_read = true;
        let mut body = Vec::new();
        self.wire.exactly(length, &mut body).map_err(broken)?;
        Ok(body)
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.wire.send(bytes.as_ref())
    }

    /// Sends bytes one at a time, `pause` apart.
    pub(crate) fn drip(&mut self, bytes: impl AsRef<[u8]>, pause: Duration) -> io::Result<()> {
        for byte in bytes.as_ref() {
            self.send([*byte])?;
            self.pause(pause)?;
        }
        Ok(())
    }

    /// Waits; an error if the test has ended.
    pub(crate) fn pause(&self, pause: Duration) -> io::Result<()> {
        let goes_on = self.shared.stop.pace(pause);
        goes_on
            .then_some(())
            .ok_or_else(|| io::ErrorKind::Interrupted.into())
    }

    /// Reads the body, if it is not read yet, and answers 200 with `body`.
    pub(crate) fn answer(&mut self, body: &[u8]) -> io::Result<Next> {
        if !self.is_body_read {
            self.body()?;
        }
        let is_closing = self.shared.closing.load(Ordering::SeqCst);
        let (name, length) = (&self.shared.name, body.len());
        let close = if is_closing {
            "Connection: close\r\n"
        } else {
            ""
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nX-Backend: {name}\r\n{close}Content-Length: {length}\r\n\r\n"
        );
        let is_head = self.head.word(0) == "HEAD";
        let whole = [head.as_bytes(), if is_head { &[] } else { body }].concat();
        self.send(whole)?;
        Ok(if is_closing { Next::Close } else { Next::Keep })
    }

    /// What a sound backend does: `/bytes/N` answers N bytes, everything else its name and, for a
    /// request with a body, the body's length.
    pub(crate) fn serve(&mut self) -> io::Result<Next> {
        let length = self.body()?.len();
        let bytes = self
            .target()
            .strip_prefix("/bytes/")
            .and_then(|count| count.parse().ok());
        match bytes {
            Some(count) => self.answer(&vec![b'x'; count]),
            None => self.answer(format!("{}:{length}", self.shared.name).as_bytes()),
        }
    }

    /// Neither reads nor answers until the other side goes away or the test ends.
    pub(crate) fn hang(&mut self) -> io::Result<Next> {
        loop {
            self.pause(Duration::from_millis(10))?;
            // Not by reading: what the other side has sent may lie before its FIN.
            let mut watched = [PollFd::new(self.wire.stream(), PollFlags::RDHUP)];
            poll(&mut watched, Some(&Timespec::default()))?;
            if !watched[0].revents().is_empty() {
                return Ok(Next::Close);
            }
        }
    }

    fn record(&self, bytes: &[u8]) {
        if self.number < RECORDED_MAX {
            let mut recorded = locked(&self.shared.recorded);
            recorded
                .entry(self.number)
                .or_default()
                .extend_from_slice(bytes);
        }
    }
}
