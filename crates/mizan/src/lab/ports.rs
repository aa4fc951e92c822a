//! Finding ports that nobody has.

use crate::clock;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::time::Duration;

/// How many ports are tried from the wanted one on.
const TRIES_MAX: u16 = 1_000;

/// The abstract socket whose owner may look for ports: known within one network namespace, as ports are, and
/// free again by itself when its owner dies.
const TURN_NAME: &[u8] = b"mizan-lab-start";
/// How long another laboratory may take to start.
const TURN_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// The right to look for ports and take them, ended by dropping it: two laboratories that start at the same time
/// would find the same ones free.
#[derive(Debug)]
pub(super) struct Turn {
    /// None if another one did not end its turn in time. Better two that may clash than none.
    _owned: Option<UnixListener>,
}

impl Turn {
    /// Waits for it.
    ///
    /// # Errors
    /// What binding says if it fails for another reason than that another laboratory has the turn.
    pub(super) fn wait() -> io::Result<Self> {
        Self::wait_for(TURN_NAME, TURN_MAX)
    }

    fn wait_for(name: &[u8], limit: Duration) -> io::Result<Self> {
        let address = UnixAddress::from_abstract_name(name)?;
        let end = clock::now() + limit;
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(owned) => {
                    return Ok(Self {
                        _owned: Some(owned),
                    });
                }
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
                Err(_) if clock::now() >= end => return Ok(Self { _owned: None }),
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }
}

/// Hands out ports of the loopback address, none of them twice.
#[derive(Debug, Default)]
pub(super) struct Ports {
    given: Vec<u16>,
}

impl Ports {
    /// The first port from `wanted` on that nothing listens on, as a loopback address.
    ///
    /// # Errors
    /// `AddrInUse` if 1,000 in a row are taken; what binding says if it fails for another reason.
    pub(super) fn next_free(&mut self, wanted: u16) -> io::Result<SocketAddr> {
        for port in (wanted..=u16::MAX).take(usize::from(TRIES_MAX)) {
            if self.given.contains(&port) {
                continue;
            }
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            match TcpListener::bind(address) {
                Ok(_) => {
                    self.given.push(port);
                    return Ok(address);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("no free port among the {TRIES_MAX} from {wanted} on"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_gives_the_next_free_one() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut ports = Ports::default();
        let first = ports.next_free(port).unwrap().port();
        assert!(first > port);
        let second = ports.next_free(port).unwrap().port();
        assert!(second > first, "{second} was given already");
    }

    #[test]
    fn one_laboratory_at_a_time_has_its_turn() {
        let name = format!("mizan-test-{:x}", clock::random());
        let none = Duration::ZERO;
        let first = Turn::wait_for(name.as_bytes(), none).unwrap();
        assert!(first._owned.is_some());
        assert!(
            Turn::wait_for(name.as_bytes(), none)
                .unwrap()
                ._owned
                .is_none()
        );
        drop(first);
        assert!(
            Turn::wait_for(name.as_bytes(), none)
                .unwrap()
                ._owned
                .is_some()
        );
    }

    #[test]
    fn a_port_that_may_not_be_bound_is_an_error() {
        let mut ports = Ports::default();
        ports.given.extend(u16::MAX - 10..=u16::MAX);
        let error = ports.next_free(u16::MAX - 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
