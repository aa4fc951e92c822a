//! The frames of a WebSocket (RFC 6455 §5), as far as a relay has to know them: where one ends, so that a close can be
//! put between two. No I/O; payloads are passed over, never looked at.

/// Codes of a close that Mizan sends (RFC 6455 §7.4.1, and the IANA registry for 1012).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCode {
    /// 1001: this end goes away.
    GoingAway,
    /// 1012: the service restarts; come back.
    ServiceRestart,
}

impl CloseCode {
    const fn number(self) -> u16 {
        match self {
            Self::GoingAway => 1001,
            Self::ServiceRestart => 1012,
        }
    }
}

/// Opcode of a close frame.
const CLOSE: u8 = 0x8;

/// Why a stream is no WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A control frame that is fragmented or longer than 125 bytes (RFC 6455 §5.5).
    #[error("malformed control frame")]
    Control,
    /// A length of 64 bits with its highest one set (RFC 6455 §5.2).
    #[error("malformed frame length")]
    Length,
}

/// Follows one direction of a WebSocket.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    /// Bytes of a header that is not whole yet.
    header: [u8; 14],
    header_length: u8,
    /// What is left of the payload.
    left: u64,
    in_close: bool,
    is_closed: bool,
}

impl Frames {
    /// Whether the bytes so far end with a whole frame: another may be put here.
    pub fn is_at_boundary(&self) -> bool {
        self.header_length == 0 && self.left == 0
    }

    /// Whether a close has gone by whole: nothing may follow it.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Passes over `bytes` up to the end of the first frame that ends there: how many those are.
    ///
    /// # Errors
    /// If the bytes cannot be those of a WebSocket; what follows them means nothing then.
    pub fn next(&mut self, bytes: &[u8]) -> Result<usize, FrameError> {
        let mut at = 0;
        while at < bytes.len() {
            if self.left == 0 {
                self.header[usize::from(self.header_length)] = bytes[at];
                self.header_length += 1;
                at += 1;
                if usize::from(self.header_length) < header_length(&self.header) {
                    continue;
                }
                self.begin()?;
                if self.left > 0 {
                    continue;
                }
            } else {
                let rest = (bytes.len() - at) as u64;
                let taken = self.left.min(rest);
                self.left -= taken;
                at += taken as usize;
            }
            if self.left == 0 {
                self.is_closed |= std::mem::take(&mut self.in_close);
                return Ok(at);
            }
        }
        Ok(at)
    }

    /// Passes over all of `bytes`.
    ///
    /// # Errors
    /// As [`Frames::next`].
    pub fn advance(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        let mut at = 0;
        while at < bytes.len() {
            at += self.next(&bytes[at..])?;
        }
        Ok(())
    }

    /// A header is whole.
    fn begin(&mut self) -> Result<(), FrameError> {
        self.header_length = 0;
        let [first, second, rest @ ..] = self.header;
        let is_control = first & 0x08 != 0;
        let is_final = first & 0x80 != 0;
        if is_control && (!is_final || second & 0x7f > 125) {
            return Err(FrameError::Control);
        }
        self.left = match second & 0x7f {
            126 => u64::from(u16::from_be_bytes([rest[0], rest[1]])),
            127 => {
                let (bytes, _) = rest.split_first_chunk().ok_or(FrameError::Length)?;
                u64::from_be_bytes(*bytes)
            }
            length => u64::from(length),
        };
        if self.left >> 63 == 1 {
            return Err(FrameError::Length);
        }
        self.in_close = first & 0x0f == CLOSE;
        Ok(())
    }
}

/// How long the header is that begins with these bytes, of which at least one is known; 2 while the second is not.
fn header_length(header: &[u8; 14]) -> usize {
    let extended = match header[1] & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let key = if header[1] & 0x80 != 0 { 4 } else { 0 };
    2 + extended + key
}

/// A close frame. A client masks what it sends (RFC 6455 §5.3), with `key`; a server does not.
pub fn close_frame(code: CloseCode, key: Option<[u8; 4]>) -> Vec<u8> {
    let [high, low] = code.number().to_be_bytes();
    match key {
        None => vec![0x88, 2, high, low],
        Some(key) => {
            let mut frame = vec![0x88, 0x82];
            frame.extend_from_slice(&key);
            frame.extend_from_slice(&[high ^ key[0], low ^ key[1]]);
            frame
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame with `length` bytes of payload.
    fn frame(opcode: u8, length: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match length {
            0..=125 => frame.push(mask | length as u8),
            126..=0xffff => {
                frame.push(mask | 126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        if masked {
            frame.extend_from_slice(&[1, 2, 3, 4]);
        }
        frame.resize(frame.len() + length, b'x');
        frame
    }

    proptest! {
        /// Wherever the stream is cut, the boundaries are where the frames end.
        #[test]
        fn every_frame_s_end_is_found(
            lengths in prop::collection::vec((0usize..300, any::<bool>()), 1..8),
            long in 0usize..70_000,
            cuts in prop::collection::vec(1usize..97, 1..6),
        ) {
            let mut stream = Vec::new();
            let mut ends = Vec::new();
            let all = lengths.iter().copied().chain([(long, true)]);
            for (length, masked) in all {
                stream.extend(frame(2, length, masked));
                ends.push(stream.len());
            }
            let (mut frames, mut at, mut found) = (Frames::default(), 0, Vec::new());
            let mut cuts = cuts.iter().cycle();
            while at < stream.len() {
                let to = (at + cuts.next().expect("a cycle")).min(stream.len());
                let taken = frames.next(&stream[at..to]).expect("frames");
                prop_assert!(taken > 0);
                at += taken;
                if frames.is_at_boundary() {
                    found.push(at);
                }
            }
            prop_assert_eq!(found, ends);
            prop_assert!(!frames.is_closed());
        }
    }

    #[test]
    fn nothing_follows_a_close() {
        let mut frames = Frames::default();
        frames.advance(&frame(1, 5, true)).expect("a frame");
        let close = close_frame(CloseCode::GoingAway, Some([9, 8, 7, 6]));
        frames.advance(&close[..5]).expect("a part");
        assert!(!frames.is_closed());
        frames.advance(&close[5..]).expect("the rest");
        assert!(frames.is_closed() && frames.is_at_boundary());
    }

    #[test]
    fn a_close_says_its_code() {
        assert_eq!(
            close_frame(CloseCode::GoingAway, None),
            [0x88, 2, 0x03, 0xe9]
        );
        let masked = close_frame(CloseCode::ServiceRestart, Some([1, 2, 3, 4]));
        assert_eq!(masked, [0x88, 0x82, 1, 2, 3, 4, 0x03 ^ 1, 0xf4 ^ 2]);
    }

    #[test]
    fn what_cannot_be_a_frame_is_refused() {
        assert_eq!(
            Frames::default().advance(&[0x08, 0]),
            Err(FrameError::Control)
        );
        assert_eq!(
            Frames::default().advance(&[0x89, 126, 0, 200]),
            Err(FrameError::Control)
        );
        let too_long = [0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            Frames::default().advance(&too_long),
            Err(FrameError::Length)
        );
    }
}
