//! Finding ports that nobody has.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// How many ports are tried from the wanted one on.
const TRIES_MAX: u16 = 1_000;

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
    fn a_port_that_may_not_be_bound_is_an_error() {
        let mut ports = Ports::default();
        ports.given.extend(u16::MAX - 10..=u16::MAX);
        let error = ports.next_free(u16::MAX - 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
