//! Values of a scenario file that mean something: durations, choices of backends.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// A duration with one unit: `"250ms"`, `"1.5s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"2s\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                time(text).map(Time).ok_or_else(|| {
                    E::custom(format!(
                        "`{text}` is no duration: a number and one of us, ms, s, m, h, as in \"1.5s\""
                    ))
                })
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

fn time(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 5] = [
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3_600.0),
    ];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..end].parse().ok()?;
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == &text[end..])?;
    Duration::try_from_secs_f64(number * unit).ok()
}

/// Which backends: `"all"`, the first so many (`3`), or by number (`[0, 4]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Which {
    All,
    First(usize),
    These(Vec<usize>),
}

impl<'de> Deserialize<'de> for Which {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Which;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "backends: \"all\", a count such as 3 (the first three), or numbers such as [0, 4]",
                )
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<Which, E> {
                let count = usize::try_from(count)
                    .map_err(|_| E::custom(format!("{count} is no count of backends")))?;
                Ok(Which::First(count))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Which, E> {
                if text == "all" {
                    return Ok(Which::All);
                }
                Err(E::custom(format!(
                    "`{text}` names no backends: \"all\", a count or a list of numbers does"
                )))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Which, A::Error> {
                let mut these = Vec::new();
                while let Some(number) = numbers.next_element()? {
                    these.push(number);
                }
                Ok(Which::These(these))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, millis) in [("2s", 2_000), ("1.5s", 1_500), ("250ms", 250), ("0", 0)] {
            assert_eq!(time(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "2", "s", "2 s", "-1s", "2S", "1.2.3s", "1e999h"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
