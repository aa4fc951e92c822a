//! Read buffers, lent by a pool of each worker: taken when bytes are there, given back when they are gone,
//! so that an idle connection holds none.

use std::cell::RefCell;
use std::rc::Rc;

/// Enough for nearly every request head.
pub(super) const SMALL: usize = 8 << 10;
/// For bodies and response heads.
pub(super) const LARGE: usize = 32 << 10;
/// Free buffers kept of each size; more go back to the allocator.
const FREE_MAX: usize = 256;

/// The free buffers of one worker.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    small: RefCell<Vec<Vec<u8>>>,
    large: RefCell<Vec<Vec<u8>>>,
}

impl BufferPool {
    pub(super) fn small(self: &Rc<Self>) -> Buffer {
        let bytes = self
            .small
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| vec![0; SMALL]);
        Buffer {
            bytes,
            start: 0,
            end: 0,
            pool: Rc::clone(self),
        }
    }

    pub(super) fn large(self: &Rc<Self>) -> Buffer {
        let bytes = self
            .large
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| vec![0; LARGE]);
        Buffer {
            bytes,
            start: 0,
            end: 0,
            pool: Rc::clone(self),
        }
    }
}

#[cfg(test)]
impl BufferPool {
    /// How many lie here.
    pub(super) fn free(&self) -> usize {
        self.small.borrow().len() + self.large.borrow().len()
    }
}

/// A buffer with its unread bytes at `start..end`.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    pool: Rc<BufferPool>,
}

impl Buffer {
    /// The unread bytes.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The unread bytes, to be decrypted in place.
    pub(super) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Count of unread bytes.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first `count` unread bytes are done with.
    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.len(), "consumed more than was read");
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room behind the unread bytes, which may move to make it; empty if the buffer is full of them.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.end == self.bytes.len() {
            self.move_to_front();
        }
        &mut self.bytes[self.end..]
    }

    fn move_to_front(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Whether no byte more fits.
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.bytes.len()
    }

    /// `count` bytes were read into [`Buffer::room`].
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Has `write` put bytes behind the unread ones of a vector.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let size = self.bytes.len();
        self.move_to_front();
        self.bytes.truncate(self.end);
        let result = write(&mut self.bytes);
        self.end = self.bytes.len();
        if self.end < size {
            self.bytes.resize(size, 0);
        }
        result
    }

    /// Makes room for `capacity` unread bytes in all, in one piece behind them.
    pub(super) fn grow(&mut self, capacity: usize) {
        self.move_to_front();
        if self.bytes.len() < capacity {
            self.bytes.resize(capacity, 0);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let free = match bytes.len() {
            SMALL => &self.pool.small,
            LARGE => &self.pool.large,
            _ => return,
        };
        let mut free = free.borrow_mut();
        if free.len() < FREE_MAX {
            free.push(bytes);
        }
    }
}
