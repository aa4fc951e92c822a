//! The two calls that no safe wrapper offers.

use rustix::ioctl::{Getter, Opcode};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `SIOCOUTQ`, which is `TIOCOUTQ` on Linux (tcp(7), unix(7)).
const OUTPUT_QUEUE: Opcode = 0x5411;

/// Bytes in the send queue: for TCP, those that the peer has not acknowledged.
#[expect(unsafe_code, reason = "rustix has no wrapper for SIOCOUTQ")]
pub(super) fn output_queue(fd: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: SIOCOUTQ writes one C int through its pointer and does nothing else (tcp(7), unix(7)), and
    // `Getter` gives it room for exactly one `i32`.
    let bytes = unsafe { rustix::ioctl::ioctl(fd, Getter::<OUTPUT_QUEUE, i32>::new()) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Watches a descriptor for what can be read from it: a listening socket's connections, an epoll's events.
#[expect(
    unsafe_code,
    reason = "tokio deprecated its safe constructor for descriptors that others could close"
)]
pub(super) fn watch_readable(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor must stay open while it is registered. `OwnedFd` is moved in, nobody else owns
    // it, and `AsyncFd` deregisters it before it drops it.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }.map_err(io::Error::from)
}
