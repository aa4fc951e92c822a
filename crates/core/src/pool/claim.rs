//! One request's place at a backend.

use std::sync::Arc;

use crate::availability::Gate;
use crate::backend::Backend;

/// Holds one of a backend's requests in flight until it drops: for an HTTP/1 request, an HTTP/2
/// stream, a tunnel or a TCP connection alike.
#[derive(Debug)]
#[must_use = "the backend's place is given back when the claim drops"]
pub struct Claim {
    backend: Arc<Backend>,
}

impl Claim {
    /// Claims `backend`, unless it is full, has `limit` requests in flight or is gated by `mask`.
    pub(crate) fn take(backend: &Arc<Backend>, mask: Gate, limit: u32) -> Option<Self> {
        backend.live().claim(mask, limit).then(|| Self {
            backend: Arc::clone(backend),
        })
    }

    /// The backend that was picked.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.backend.live().release();
        self.backend.shared().refresh(&self.backend);
    }
}
