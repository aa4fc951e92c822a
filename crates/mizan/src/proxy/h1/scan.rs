//! Finds the end of a head, and refuses bare LF before any parser sees it.

use super::HeadError;

/// Looks for the empty line that ends a head, over as many calls as bytes arrive in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scanner {
    /// Bytes looked at.
    seen: usize,
    /// Where the line being looked at began.
    line: usize,
}

impl Scanner {
    /// `bytes` is the head from its first byte, with what came since the last call. The length of the head
    /// with its empty line, or `None` while that is not there.
    ///
    /// # Errors
    /// [`HeadError::BareLf`].
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, HeadError> {
        let seen = self.seen;
        for at in memchr::memchr_iter(b'\n', &bytes[seen..]) {
            let lf = seen + at;
            if lf == 0 || bytes[lf - 1] != b'\r' {
                return Err(HeadError::BareLf);
            }
            if lf - 1 == self.line {
                return Ok(Some(lf + 1));
            }
            self.line = lf + 1;
        }
        self.seen = bytes.len();
        Ok(None)
    }
}
