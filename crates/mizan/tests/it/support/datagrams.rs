//! Both ends of UDP: a backend that answers datagram by datagram, and a client that expects answers.

use super::{PATIENCE, eventually, locked};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest datagram over IPv4.
pub(crate) const LONGEST: usize = 65_507;

/// How long an answer may take that may as well never come.
const A_WHILE: Duration = Duration::from_millis(300);

/// A UDP socket whose datagrams go to a script, one after the other.
pub(crate) struct UdpBackend {
    address: SocketAddr,
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    received: AtomicUsize,
    /// Who sent something, by address and port.
    peers: Mutex<BTreeSet<SocketAddr>>,
}

impl UdpBackend {
    /// Answers what the script makes of a datagram, if it does.
    pub(crate) fn start(script: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), script)
    }

    /// The same on a given address.
    pub(crate) fn start_at(
        address: SocketAddr,
        script: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind(address).expect("a free port");
        let address = socket.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; LONGEST + 1];
            loop {
                let received = socket.recv_from(&mut buffer);
                if seen.stopped.load(Ordering::SeqCst) {
                    return;
                }
                // An error is of an answer before, to a socket that was closed since.
                let Ok((length, peer)) = received else {
                    continue;
                };
                locked(&seen.peers).insert(peer);
                seen.received.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = script(&buffer[..length]) {
                    let _ = socket.send_to(&answer, peer);
                }
            }
        });
        Self {
            address,
            shared,
            reader: Some(reader),
        }
    }

    /// Answers its name, a colon and what it was sent.
    pub(crate) fn named(name: &'static str) -> Self {
        Self::start(named(name))
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Datagrams that came.
    pub(crate) fn received(&self) -> usize {
        self.shared.received.load(Ordering::SeqCst)
    }

    /// From how many addresses and ports they came.
    pub(crate) fn peers(&self) -> usize {
        locked(&self.shared.peers).len()
    }
}

/// A script: the name, a colon and what was sent.
pub(crate) fn named(name: &'static str) -> impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static {
    move |bytes| Some([name.as_bytes(), b":", bytes].concat())
}

impl Drop for UdpBackend {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the reader, which then sees that it should end.
        if let Ok(socket) = UdpSocket::bind((self.address.ip(), 0)) {
            let _ = socket.send_to(b"", self.address);
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// A client: one socket, so one session.
pub(crate) struct UdpClient(UdpSocket);

impl UdpClient {
    /// One that speaks to `address` and hears nobody else.
    #[track_caller]
    pub(crate) fn new(address: SocketAddr) -> Self {
        let own: SocketAddr = if address.is_ipv4() {
            ([127, 0, 0, 1], 0).into()
        } else {
            (std::net::Ipv6Addr::LOCALHOST, 0).into()
        };
        let socket = UdpSocket::bind(own).expect("a free port");
        socket.connect(address).expect("a local address");
        Self(socket)
    }

    /// Sends one datagram.
    #[track_caller]
    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) {
        // A refusal is of a datagram before, and this one has not left.
        let sent = self.0.send(bytes.as_ref());
        let sent = sent.or_else(|_| self.0.send(bytes.as_ref()));
        assert_eq!(sent.expect("it is sent"), bytes.as_ref().len());
    }

    /// The next datagram, which must come.
    #[track_caller]
    pub(crate) fn receive(&self) -> Vec<u8> {
        self.receive_within(PATIENCE).expect("an answer")
    }

    /// The next datagram if it comes soon.
    pub(crate) fn receive_soon(&self) -> Option<Vec<u8>> {
        self.receive_within(A_WHILE)
    }

    fn receive_within(&self, time: Duration) -> Option<Vec<u8>> {
        self.0.set_read_timeout(Some(time)).expect("a live socket");
        let mut buffer = vec![0; LONGEST + 1];
        let length = self.0.recv(&mut buffer).ok()?;
        buffer.truncate(length);
        Some(buffer)
    }

    /// Sends and waits for the answer, as text.
    #[track_caller]
    pub(crate) fn ask(&self, text: &str) -> String {
        self.send(text);
        String::from_utf8(self.receive()).expect("text")
    }

    /// Asks again and again until an answer comes.
    #[track_caller]
    pub(crate) fn insist(&self, text: &str) -> String {
        let mut answer = None;
        eventually(PATIENCE, "an answer comes", || {
            self.send(text);
            answer = self.receive_soon();
            answer.is_some()
        });
        String::from_utf8(answer.expect("it came")).expect("text")
    }

    /// Whether nobody listens there any more.
    pub(crate) fn is_refused(&self) -> bool {
        let _ = self.0.send(b"?");
        let _ = self.0.set_read_timeout(Some(A_WHILE));
        let answer = self.0.recv(&mut [0; 1]);
        answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }
}
