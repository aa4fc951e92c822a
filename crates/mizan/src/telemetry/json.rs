//! Strings and times as JSON, written straight into a buffer.
//!
//! What clients send need not be UTF-8; a log line must be. Bytes that are not become U+FFFD, as
//! [`String::from_utf8_lossy`] would do.

use std::time::Duration;

/// Appends `bytes` as a JSON string with its quotes (RFC 8259 §7).
pub fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    push_escaped(out, bytes);
    out.push(b'"');
}

/// Appends `bytes` as the inside of a JSON string.
pub fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    // Nearly all need nothing. Without an early exit the compiler looks at many at a time.
    let is_special = |byte: u8| !(0x20..0x7f).contains(&byte) || byte == b'"' || byte == b'\\';
    if !bytes
        .iter()
        .fold(false, |any, byte| any | is_special(*byte))
    {
        return out.extend_from_slice(bytes);
    }
    if bytes.is_ascii() {
        return push_escaped_text(out, bytes);
    }
    for chunk in bytes.utf8_chunks() {
        push_escaped_text(out, chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// `bytes` is UTF-8. Runs without anything to escape are copied whole.
fn push_escaped_text(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]),
        }
    }
    out.extend_from_slice(&bytes[from..]);
}

fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[digit as usize]
}

/// Appends a whole number.
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a duration in milliseconds with three decimals, rounded down.
pub fn push_ms(out: &mut Vec<u8>, duration: Duration) {
    let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    push_number(out, us / 1000);
    let rest = us % 1000;
    out.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

fn digit(number: u64) -> u8 {
    b'0' + (number % 10) as u8
}

/// Writes times as RFC 3339 in UTC with milliseconds. The part up to the second is kept while it holds.
#[derive(Debug)]
pub struct TimeText {
    second: u64,
    text: [u8; 20],
}

impl Default for TimeText {
    fn default() -> Self {
        Self {
            second: 0,
            text: *b"1970-01-01T00:00:00.",
        }
    }
}

impl TimeText {
    /// Appends `wall` (since the Unix epoch): `2026-01-31T12:00:00.250Z`. Years beyond 9999 wrap.
    pub fn push(&mut self, out: &mut Vec<u8>, wall: Duration) {
        if wall.as_secs() != self.second {
            self.second = wall.as_secs();
            self.text = second_text(self.second);
        }
        out.extend_from_slice(&self.text);
        let ms = u64::from(wall.subsec_millis());
        out.extend_from_slice(&[digit(ms / 100), digit(ms / 10), digit(ms), b'Z']);
    }
}

/// `wall` (since the Unix epoch) as a string.
pub fn time_string(wall: Duration) -> String {
    let mut out = Vec::with_capacity(24);
    TimeText::default().push(&mut out, wall);
    String::from_utf8_lossy(&out).into_owned()
}

fn second_text(second: u64) -> [u8; 20] {
    let (year, month, day) = civil(second / 86_400);
    let of_day = second % 86_400;
    let mut text = *b"0000-00-00T00:00:00.";
    let fields = [
        (0, year / 100),
        (2, year % 100),
        (5, month),
        (8, day),
        (11, of_day / 3600),
        (14, of_day / 60 % 60),
        (17, of_day % 60),
    ];
    for (at, value) in fields {
        text[at] = digit(value / 10);
        text[at + 1] = digit(value);
    }
    text
}

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar.
///
/// Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day is the last.
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (
        era * 400 + year_of_era + u64::from(month <= 2),
        month,
        day_of_month,
    )
}

#[cfg(test)]
mod tests;
