//! Times of day in logs, as nanoseconds since 1970.

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// `2026-01-01T00:00:00.123Z` (RFC 3339, UTC or with an offset).
pub(super) fn rfc3339(text: &[u8]) -> Option<u64> {
    let (day, rest) = text.split_at_checked(10)?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *day else {
        return None;
    };
    let (year, month) = (number(&[y1, y2, y3, y4])?, number(&[m1, m2])?);
    let (&[b'T' | b't' | b' '], rest) = rest.split_at_checked(1)? else {
        return None;
    };
    let (time, rest) = rest.split_at_checked(8)?;
    let digits = match rest.strip_prefix(b".") {
        Some(rest) => rest.iter().take_while(|byte| byte.is_ascii_digit()).count(),
        None => 0,
    };
    let (fraction, zone) = match digits {
        0 => (0, rest),
        _ => (fraction(&rest[1..=digits])?, &rest[1 + digits..]),
    };
    let zone = match zone {
        b"Z" | b"z" => 0,
        zone => offset(zone)?,
    };
    let seconds = seconds(year, month, number(&[d1, d2])?, of_day(time)?)?;
    nanos(seconds, zone, fraction)
}

/// `10/Oct/2000:13:55:36 -0700`, as nginx and Apache write it. Whole seconds.
pub(super) fn common(text: &[u8]) -> Option<u64> {
    let (day, rest) = text.split_at_checked(12)?;
    let [d1, d2, b'/', m1, m2, m3, b'/', y1, y2, y3, y4, b':'] = *day else {
        return None;
    };
    let month = MONTHS.iter().position(|name| **name == [m1, m2, m3])?;
    let (time, rest) = rest.split_at_checked(8)?;
    let zone = offset(rest.strip_prefix(b" ")?)?;
    let year = number(&[y1, y2, y3, y4])?;
    let seconds = seconds(year, month as i64 + 1, number(&[d1, d2])?, of_day(time)?)?;
    nanos(seconds, zone, 0)
}

fn nanos(seconds: i64, zone: i64, fraction: u64) -> Option<u64> {
    let seconds = u64::try_from(seconds - zone).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// `13:55:36` in seconds; a leap second is the one before.
fn of_day(text: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = *text else {
        return None;
    };
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?);
    let is_sound = hour < 24 && minute < 60 && second <= 60;
    is_sound.then_some(hour * 3600 + minute * 60 + second.min(59))
}

/// `+0200` or `+02:00` in seconds.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, rest) = text.split_first()?;
    let sign = match sign {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (h1, h2, m1, m2) = match *rest {
        [h1, h2, m1, m2] | [h1, h2, b':', m1, m2] => (h1, h2, m1, m2),
        _ => return None,
    };
    let (hour, minute) = (number(&[h1, h2])?, number(&[m1, m2])?);
    (hour < 24 && minute < 60).then_some(sign * (hour * 3600 + minute * 60))
}

/// Digits behind a point, as nanoseconds.
fn fraction(digits: &[u8]) -> Option<u64> {
    let mut nanos = 0;
    for at in 0..9 {
        let digit = digits.get(at).copied().unwrap_or(b'0');
        nanos = nanos * 10 + number(&[digit])? as u64;
    }
    Some(nanos)
}

fn number(digits: &[u8]) -> Option<i64> {
    let mut value = 0;
    for digit in digits {
        value = value * 10 + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    Some(value)
}

/// Days of a month of the Gregorian calendar; 0 where there is no such month.
fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    }
}

/// Seconds since 1970 of a day of the Gregorian calendar. A year is counted from March, so that the leap day is its
/// last.
fn seconds(year: i64, month: i64, day: i64, of_day: i64) -> Option<i64> {
    if !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let from_march = (month + 9) % 12;
    let in_year = (153 * from_march + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + in_year - 719_468;
    Some(days * 86_400 + of_day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_kinds_are_the_same_instants() {
        let second = |text: &[u8]| rfc3339(text).map(|nanos| nanos / 1_000_000_000);
        assert_eq!(second(b"1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(second(b"2000-02-29T12:00:00Z"), Some(951_825_600));
        assert_eq!(second(b"2026-01-01T00:00:00.999Z"), Some(1_767_225_600));
        assert_eq!(
            rfc3339(b"2026-01-01T02:00:00.123+02:00"),
            Some(1_767_225_600_123_000_000)
        );
        assert_eq!(
            common(b"10/Oct/2000:13:55:36 -0700"),
            Some(971_211_336_000_000_000)
        );
        assert_eq!(second(b"2024-02-29T00:00:00Z"), Some(1_709_164_800));
        assert_eq!(
            second(b"2026-01-01T23:59:00+23:59"),
            second(b"2026-01-01T00:00:00Z")
        );
        assert_eq!(
            common(b"01/Jan/2026:00:00:00 +0000"),
            rfc3339(b"2026-01-01T00:00:00Z")
        );
        for wrong in [
            "",
            "2026-01-01",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            // Days that no calendar has, and offsets that no clock has.
            "2026-02-29T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-32T00:00:00Z",
            "2026-01-01T00:00:00+99:59",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+00:60",
        ] {
            assert_eq!(rfc3339(wrong.as_bytes()), None, "{wrong}");
        }
        for wrong in [
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36",
            "10/Oct/1960:13:55:36 +0000",
            "30/Feb/2026:13:55:36 +0000",
            "31/Nov/2026:13:55:36 +0000",
            "10/Oct/2000:13:55:36 +9959",
        ] {
            assert_eq!(common(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
