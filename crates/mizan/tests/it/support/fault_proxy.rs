//! A TCP relay with faults that are switched on while it runs.

use super::{Stop, locked};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the relay does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Passes them on.
    None,
    /// Closes each connection when the next byte is to pass.
    Cut,
    /// Resets each connection when the next byte is to pass.
    Reset,
    /// Passes nothing on and says nothing, connections stay.
    Stall,
    /// Holds each piece of the response back for this long.
    Delay(Duration),
    /// Passes the response on a byte at a time, this far apart.
    Drip(Duration),
    /// Passes requests on and drops responses and the backend's FIN: a peer that vanished.
    HalfOpen,
    /// Closes after this many bytes of response, once for each connection.
    CutAfter(usize),
}

/// How often a relay that waits looks at the fault in force.
const LOOK: Duration = Duration::from_millis(10);

/// The relay.
pub(crate) struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    backend: SocketAddr,
    fault: Mutex<Fault>,
    stop: Stop,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Response,
}

impl FaultProxy {
    /// A relay before `backend`, with no fault yet.
    pub(crate) fn start(backend: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            backend,
            fault: Mutex::new(Fault::None),
            stop: Stop::default(),
        });
        let for_acceptor = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if for_acceptor.stop.is_stopped() {
                    return;
                }
                let shared = Arc::clone(&for_acceptor);
                // A connection that fails is one that a fault or a side ended.
                std::thread::spawn(move || stream.and_then(|stream| relay(stream, &shared)));
            }
        });
        Self {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Another fault, at once, for open connections too.
    pub(crate) fn set(&self, fault: Fault) {
        *locked(&self.shared.fault) = fault;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.stop.stop();
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn relay(front: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let back = TcpStream::connect(shared.backend)?;
    for stream in [&front, &back] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
    }
    let (front_out, back_out) = (front.try_clone()?, back.try_clone()?);
    let is_reset = Arc::new(AtomicBool::new(false));
    let (shared_too, is_reset_too) = (Arc::clone(shared), Arc::clone(&is_reset));
    let requests = std::thread::spawn(move || {
        pump(
            &front,
            &back_out,
            Direction::Request,
            &shared_too,
            &is_reset_too,
        )
    });
    let responses = pump(&back, &front_out, Direction::Response, shared, &is_reset);
    let _ = requests.join();
    responses
}

/// Moves bytes one way until a side or a fault ends it; a fault ends both sides.
fn pump(
    from: &TcpStream,
    to: &TcpStream,
    direction: Direction,
    shared: &Shared,
    is_reset: &AtomicBool,
) -> io::Result<()> {
    let outcome = pump_until_end(from, to, direction, shared, is_reset);
    match &outcome {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
            // A shutdown would send a FIN: the reset goes out when both directions have let go.
            is_reset.store(true, Ordering::SeqCst);
            for stream in [from, to] {
                socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
            }
        }
        Err(_) => {
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        }
    }
    outcome
}

fn pump_until_end(
    mut from: &TcpStream,
    mut to: &TcpStream,
    direction: Direction,
    shared: &Shared,
    is_reset: &AtomicBool,
) -> io::Result<()> {
    let mut chunk = [0; 16 * 1024];
    let mut passed = 0;
    while !shared.stop.is_stopped() && !is_reset.load(Ordering::SeqCst) {
        let length = match from.read(&mut chunk) {
            Ok(length) => length,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        while *locked(&shared.fault) == Fault::Stall && shared.stop.pace(LOOK) {}
        let fault = *locked(&shared.fault);
        match fault {
            Fault::HalfOpen if direction == Direction::Response => {
                while *locked(&shared.fault) == Fault::HalfOpen && shared.stop.pace(LOOK) {}
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            Fault::Cut => return Err(io::ErrorKind::ConnectionAborted.into()),
            Fault::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
            _ => {}
        }
        if length == 0 {
            return to.shutdown(Shutdown::Write);
        }
        let bytes = &chunk[..length];
        match fault {
            Fault::Delay(pause) if direction == Direction::Response => {
                shared.stop.pace(pause);
                to.write_all(bytes)?;
            }
            Fault::Drip(pause) if direction == Direction::Response => {
                for byte in bytes {
                    to.write_all(&[*byte])?;
                    shared.stop.pace(pause);
                }
            }
            Fault::CutAfter(limit) if direction == Direction::Response => {
                let left = limit.saturating_sub(passed).min(length);
                to.write_all(&bytes[..left])?;
                passed += left;
                if passed >= limit {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
            _ => to.write_all(bytes)?,
        }
    }
    Ok(())
}
