//! A backend of bytes: each connection is handed to a script of the test's own.

use super::{PATIENCE, locked};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A TCP listener whose connections go to a script, each on a thread of its own.
pub(crate) struct RawBackend {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    connections: AtomicUsize,
    /// What scripts told.
    heard: Mutex<Vec<Vec<u8>>>,
}

/// One connection, as a script sees it; reads wait up to [`PATIENCE`].
pub(crate) struct RawConnection {
    /// The socket.
    pub(crate) stream: TcpStream,
    shared: Arc<Shared>,
}

impl RawBackend {
    /// Starts it on a free port.
    pub(crate) fn start(script: impl Fn(&mut RawConnection) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let (script, seen) = (Arc::new(script), Arc::clone(&shared));
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if seen.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (script, shared) = (Arc::clone(&script), Arc::clone(&seen));
                let _ = stream.set_read_timeout(Some(PATIENCE));
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let mut connection = RawConnection { stream, shared };
                std::thread::spawn(move || script(&mut connection));
            }
        });
        Self {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// Tells, for each connection that has ended, all that it was sent; sends nothing.
    pub(crate) fn listening() -> Self {
        Self::start(|connection| {
            let bytes = connection.read_to_end();
            connection.hear(bytes);
        })
    }

    /// Sends `name` first, as who speaks first does, and then whatever it is sent.
    pub(crate) fn echo(name: &'static str) -> Self {
        Self::start(move |connection| {
            use std::io::Write;
            let mut piece = vec![0; 64 << 10];
            let mut sent = connection.stream.write_all(name.as_bytes());
            while sent.is_ok() {
                match connection.stream.read(&mut piece) {
                    Ok(0) | Err(_) => return,
                    Ok(count) => sent = connection.stream.write_all(&piece[..count]),
                }
            }
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// What scripts told with [`RawConnection::hear`].
    pub(crate) fn heard(&self) -> Vec<Vec<u8>> {
        locked(&self.shared.heard).clone()
    }
}

impl Drop for RawBackend {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the acceptor, which then sees that it should end.
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl RawConnection {
    /// Tells the test.
    pub(crate) fn hear(&self, bytes: Vec<u8>) {
        locked(&self.shared.heard).push(bytes);
    }

    /// Everything up to the end, a reset included.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // What came before a failure stays in `bytes`.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }

    /// Exactly `count` bytes.
    pub(crate) fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("so many bytes");
        bytes
    }

    /// Closes with a reset.
    pub(crate) fn reset(&self) {
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(std::time::Duration::ZERO));
    }
}
