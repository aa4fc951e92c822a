//! Durations on the command line, written as in the configuration.

use std::time::Duration;

/// `250ms`, `2s`, `1m` or `1h`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration such as 250ms, 2s, 1m or 1h");
    let digits = text
        .find(|character: char| !character.is_ascii_digit())
        .ok_or_else(wrong)?;
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit_ms: u64 = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}

/// `750 ms`, `12 s`, `3 min`, `5 h`, `2 d`.
pub(super) fn show(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, ms) in [
            ("250ms", 250),
            ("2s", 2000),
            ("1m", 60_000),
            ("1h", 3_600_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "2",
            "s",
            "-1s",
            "1.5s",
            "2 s",
            "1d",
            "99999999999999999999s",
            "9999999999999999999h",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
