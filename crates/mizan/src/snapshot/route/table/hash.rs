//! A map for look-ups by short text.
//!
//! Its keys come from the configuration and requests only look up, so a sender cannot fill a bucket:
//! a hash that is cheap for short text (FNV-1a) does what std's SipHash is too careful for.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from text.
pub(super) type FastMap<V> = HashMap<Box<str>, V, BuildHasherDefault<Fnv>>;

/// FNV-1a, 64 bits, with the high half folded in at the end: the map takes its bucket from the low
/// bits and its tag from the high ones.
#[derive(Clone, Debug)]
pub(super) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
