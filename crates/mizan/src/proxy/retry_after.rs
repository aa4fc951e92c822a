//! What a backend asks for by `Retry-After` (RFC 9110 §10.2.3): to be left alone for so long. It is heeded beside being
//! passed on, and as far as core allows.

use crate::clock;
use crate::h1::response::ResponseHead;
use std::time::{Duration, UNIX_EPOCH};

/// What an answer of 429 or 503 asks for: other statuses say nothing of how busy the backend is.
pub(super) fn asked(head: &ResponseHead<'_, '_>) -> Option<Duration> {
    if !matches!(head.status, 429 | 503) {
        return None;
    }
    let mut lines = head.lines.iter();
    let line = lines.find(|line| line.name.eq_ignore_ascii_case(b"retry-after"))?;
    read(line.value, clock::wall())
}

/// Seconds, or a date, of which the part ahead of `wall` (since the Unix epoch) counts; `None` for anything else.
fn read(value: &[u8], wall: Duration) -> Option<Duration> {
    let value = std::str::from_utf8(value).ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than a number can hold is long enough.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let date = date.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(wall))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_each_form_of_a_date_are_read_and_anything_else_is_nothing() {
        // Sun, 06 Nov 1994 08:49:30 GMT.
        let wall = Duration::from_secs(784_111_770);
        for (value, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(7)),
            ("Sun Nov  6 08:49:37 1994", Some(7)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("soon", None),
            ("1, 2", None),
        ] {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(read(value.as_bytes(), wall), expected, "{value}");
        }
        assert_eq!(read(b"\xff", wall), None);
    }
}
