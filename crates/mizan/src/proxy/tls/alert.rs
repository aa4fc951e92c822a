//! What the peer is told of a record that was refused.

use super::{Goal, Step, Tls};
use crate::proxy::buffer::Buffer;
use rustls::Error;

/// Types of records (RFC 8446 §5.1).
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;
/// A header, level and description, the inner type, and the tag: an alert under TLS 1.3. Nothing else that is sent in a
/// handshake is as short.
const SEALED_ALERT: usize = 5 + 2 + 1 + 16;

/// Descriptions (RFC 8446 §6).
const UNEXPECTED_MESSAGE: u8 = 10;
const ACCESS_DENIED: u8 = 49;
const DECODE_ERROR: u8 = 50;
const UNRECOGNIZED_NAME: u8 = 112;

impl Tls {
    /// Puts the alert that says what was wrong behind all that is to be sent.
    ///
    /// The session is asked with the bytes that it was shown: it remembers where in them a handshake message lies that
    /// is not whole yet, and looks there before anything else.
    pub(super) fn alert(&mut self, error: &Error) {
        // An answer may lie before it. Beyond it the session would go on with what was refused.
        loop {
            let before = self.outgoing.as_ref().map_or(0, Buffer::len);
            if !matches!(self.advance(&mut Goal::Alert, 0), Ok(Step::Again)) {
                break;
            }
            let Some(outgoing) = &mut self.outgoing else {
                break;
            };
            let record = &mut outgoing.unread_mut()[before..];
            if is_alert(record) {
                if is_unknown_name(error) {
                    name_unknown(record);
                }
                return;
            }
        }
        // For some errors the library has none. Once keys are in use, only it could say so.
        if self.settled().protocol_version().is_none()
            && let Some(description) = description(error)
        {
            let outgoing = self.outgoing.get_or_insert_with(|| self.buffers.small());
            outgoing.write(|out| out.extend_from_slice(&[ALERT, 3, 3, 0, 2, 2, description]));
        }
    }
}

/// What is said of a peer's fault; of an alert that it has sent, nothing.
fn description(error: &Error) -> Option<u8> {
    match error {
        Error::InvalidMessage(_) => Some(DECODE_ERROR),
        Error::PeerMisbehaved(_) | Error::InappropriateHandshakeMessage { .. } => {
            Some(UNEXPECTED_MESSAGE)
        }
        _ => None,
    }
}

fn is_alert(record: &[u8]) -> bool {
    match record.first() {
        Some(&ALERT) => true,
        Some(&APPLICATION_DATA) => record.len() == SEALED_ALERT,
        _ => false,
    }
}

/// Whether no certificate was found for the name that the client asks for.
fn is_unknown_name(error: &Error) -> bool {
    matches!(error, Error::General(text) if text.contains("no server certificate chain"))
}

/// The library calls it `access_denied` when no certificate is found for a name: RFC 6066 §3 has a word of its own.
fn name_unknown(record: &mut [u8]) {
    if let [ALERT, .., last @ ACCESS_DENIED] = record {
        *last = UNRECOGNIZED_NAME;
    }
}
