//! Whether a whole head has arrived, over as many calls as its bytes arrive in.

use super::HeadError;

/// Looks for the empty line that ends a head. A head in pieces is looked at once, however many they are; one that
/// arrives whole is not looked at here at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scanner {
    /// Bytes looked at.
    seen: usize,
    /// Where the line being looked at began.
    line: usize,
}

impl Scanner {
    /// `bytes` begin with the head's first byte; what came since the last call is at their end. Whether a whole
    /// head is among them: the parser says where it ends.
    ///
    /// # Errors
    /// [`HeadError::BareLf`]: what would be waited for may never come.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<bool, HeadError> {
        if bytes.ends_with(b"\r\n\r\n") {
            return Ok(true);
        }
        let seen = self.seen;
        for at in memchr::memchr_iter(b'\n', &bytes[seen..]) {
            let lf = seen + at;
            if lf == 0 || bytes[lf - 1] != b'\r' {
                return Err(HeadError::BareLf);
            }
            if lf - 1 == self.line {
                return Ok(true);
            }
            self.line = lf + 1;
        }
        self.seen = bytes.len();
        Ok(false)
    }
}
