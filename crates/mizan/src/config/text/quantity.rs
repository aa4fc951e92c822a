//! Durations and sizes.

use super::{Meaning, did_you_mean};
use std::time::Duration;

/// A duration: `"250ms"`, `"1.5s"`, `"1m30s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Time(pub(in super::super) Duration);

/// A size in bytes: `"512B"`, `"16KiB"`, `"10MB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Bytes(pub(in super::super) u64);

/// A size, or `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct BytesOrUnlimited(pub(in super::super) Option<u64>);

/// Units of time, largest first, in nanoseconds.
const TIME_UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// What people write for the units of time.
const TIME_ALIASES: [(&str, &str); 20] = [
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("S", "s"),
    ("msec", "ms"),
    ("millis", "ms"),
    ("millisecond", "ms"),
    ("milliseconds", "ms"),
    ("MS", "ms"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("M", "m"),
    ("hour", "h"),
    ("hours", "h"),
    ("H", "h"),
    ("day", "d"),
    ("days", "d"),
];

/// Units of size; binary ones are powers of 1,024, the others of 1,000.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// What people write for the units of size.
const SIZE_ALIASES: [(&str, &str); 19] = [
    ("b", "B"),
    ("byte", "B"),
    ("bytes", "B"),
    ("k", "KiB"),
    ("K", "KiB"),
    ("kb", "KB"),
    ("kB", "KB"),
    ("kib", "KiB"),
    ("Ki", "KiB"),
    ("m", "MiB"),
    ("M", "MiB"),
    ("mb", "MB"),
    ("mib", "MiB"),
    ("Mi", "MiB"),
    ("g", "GiB"),
    ("G", "GiB"),
    ("gb", "GB"),
    ("gib", "GiB"),
    ("Gi", "GiB"),
];

impl Meaning for Time {
    const FORMAT: &'static str = "duration";
    const WHAT: &'static str = "a duration such as \"2s\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let mut nanos: u64 = 0;
        let mut rest = text;
        let mut last_unit = u64::MAX;
        while !rest.is_empty() || text.is_empty() {
            let (number, unit, tail) =
                part(rest).ok_or_else(|| not_read(text, "a duration", "2s"))?;
            let Some(factor) = factor(unit, &TIME_UNITS) else {
                return Err(bad_unit(
                    text,
                    number,
                    unit,
                    "s",
                    "us, ms, s, m, h, d",
                    &TIME_ALIASES,
                ));
            };
            if factor >= last_unit {
                return Err(format!(
                    "`{text}` is no duration: units go from the largest to the smallest, each once, as in `1m30s`"
                ));
            }
            last_unit = factor;
            nanos = scaled(number, factor)
                .and_then(|part| nanos.checked_add(part))
                .ok_or_else(|| format!("`{text}` is too long a time"))?;
            rest = tail;
        }
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

impl Meaning for Bytes {
    const FORMAT: &'static str = "size";
    const WHAT: &'static str = "a size such as \"16KiB\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(0));
        }
        let (number, unit, tail) = part(text).ok_or_else(|| not_read(text, "a size", "16KiB"))?;
        if !tail.is_empty() {
            return Err(not_read(text, "a size", "16KiB"));
        }
        let Some(factor) = factor(unit, &SIZE_UNITS) else {
            return Err(bad_unit(
                text,
                number,
                unit,
                "B",
                "B, KiB, MiB, GiB, KB, MB, GB",
                &SIZE_ALIASES,
            ));
        };
        scaled(number, factor)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is too large"))
    }
}

impl Meaning for BytesOrUnlimited {
    const FORMAT: &'static str = "size_or_unlimited";
    const WHAT: &'static str = "a size such as \"10MiB\", or \"unlimited\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self(None));
        }
        Bytes::read(text).map(|bytes| Self(Some(bytes.0)))
    }
}

/// A duration as the file would have it.
pub(in super::super) fn show_time(time: Duration) -> String {
    let nanos = time.as_nanos();
    if time > Duration::from_secs(1) && time.subsec_nanos() != 0 {
        return format!("{}s", time.as_secs_f64());
    }
    let unit = TIME_UNITS.iter().find(|(_, factor)| {
        nanos >= u128::from(*factor) && nanos.is_multiple_of(u128::from(*factor))
    });
    match unit {
        _ if nanos == 0 => "0s".to_owned(),
        Some((unit, factor)) => format!("{}{unit}", nanos / u128::from(*factor)),
        None => format!("{}s", time.as_secs_f64()),
    }
}

/// Splits the first number and unit off.
fn part(text: &str) -> Option<(&str, &str, &str)> {
    let number_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    let rest = rest.trim_start();
    let unit_end = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let (unit, tail) = rest.split_at(unit_end);
    let is_number =
        number.starts_with(|c: char| c.is_ascii_digit()) && number.parse::<f64>().is_ok();
    is_number.then_some((number, unit, tail))
}

fn factor(unit: &str, units: &[(&str, u64)]) -> Option<u64> {
    units
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, factor)| *factor)
}

/// `number` × `factor`, exact for whole numbers.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut value = u128::from(whole.parse::<u64>().ok()?) * u128::from(factor);
    let mut scale = u128::from(factor);
    for digit in fraction.bytes() {
        // Digits below the unit's resolution (1 ns, 1 B) are cut off.
        value += scale * u128::from(digit - b'0') / 10;
        scale /= 10;
    }
    u64::try_from(value).ok()
}

fn not_read(text: &str, what: &str, example: &str) -> String {
    format!(
        "`{}` is not {what} such as `{example}`",
        text.escape_debug()
    )
}

fn bad_unit(
    text: &str,
    number: &str,
    unit: &str,
    usual: &str,
    units: &str,
    aliases: &[(&str, &str)],
) -> String {
    if unit.is_empty() {
        return did_you_mean(
            format!("`{text}` lacks its unit ({units})"),
            Some(format!("{number}{usual}")),
        );
    }
    let meant = aliases
        .iter()
        .find(|(alias, _)| *alias == unit)
        .map(|(_, meant)| format!("{number}{meant}"));
    did_you_mean(format!("`{unit}` is no unit (units are {units})"), meant)
}
