//! A value on cache lines of its own.

use std::ops::Deref;

/// Keeps its value off its neighbours' cache lines. 128 bytes, because Intel's adjacent-line
/// prefetcher and Apple's cores move lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
