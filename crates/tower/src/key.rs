//! What policies that go by a hash go by.

/// Gives a request's hash, for [`PolicyKind::ConsistentHash`](mizan_core::PolicyKind::ConsistentHash) and
/// [`PolicyKind::Maglev`](mizan_core::PolicyKind::Maglev).
pub trait Key<Req> {
    /// Whether there are hashes at all. With them a backend is picked when the request is there, and not before.
    const IS_KEYED: bool = true;

    /// Equal hashes go to one backend while the members stay. Spread them well over all 64 bits. `None`:
    /// the request may go anywhere.
    fn hash(&self, request: &Req) -> Option<u64>;
}

/// Every request may go anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoKey;

impl<Req> Key<Req> for NoKey {
    const IS_KEYED: bool = false;

    fn hash(&self, _request: &Req) -> Option<u64> {
        None
    }
}

impl<Req, F: Fn(&Req) -> Option<u64>> Key<Req> for F {
    fn hash(&self, request: &Req) -> Option<u64> {
        self(request)
    }
}
