//! What the process itself can run out of, which is no fault of the other side.

use rustix::io::Errno;
use std::io;

/// Whether `error` says that this process or machine lacks descriptors, memory or free ports.
pub fn is_our_lack(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        code,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL)
    )
}
