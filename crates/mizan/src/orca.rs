//! What a backend says of its own load, in a field of its answer: the Open Request Cost Aggregation report, as gRPC
//! (A51) and Envoy read it. No I/O.
//!
//! | field | value |
//! | --- | --- |
//! | `endpoint-load-metrics` | `TEXT cpu_utilization=0.3, application_utilization=0.5`, `JSON {"cpu_utilization": 0.3}` or `BIN` and base64 |
//! | `endpoint-load-metrics-bin` | base64 of the message `OrcaLoadReport` |
//!
//! Of the report only the utilization counts: the application's own figure, or else the processor's.

use data_encoding::{BASE64, BASE64_NOPAD};
use std::fmt;

/// Longest report that is looked at, in bytes.
pub const LENGTH_MAX: usize = 4096;

/// A report that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the load report of an answer cannot be read")
    }
}

impl std::error::Error for Malformed {}

/// Two figures of a report.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    processor: Option<f64>,
    application: Option<f64>,
}

impl Report {
    /// What of it can be taken is taken, from 0; above 1 is more than that. `None`: it does not say.
    fn utilization(self) -> Result<Option<f64>, Malformed> {
        let set = |figure: Option<f64>| figure.filter(|figure| *figure != 0.0);
        let figure = set(self.application).or(set(self.processor));
        let figure = figure.or(self.application).or(self.processor);
        match figure {
            Some(figure) if !figure.is_finite() || figure < 0.0 => Err(Malformed),
            figure => Ok(figure),
        }
    }
}

/// The utilization in the value of `endpoint-load-metrics`; `None` if it does not say.
///
/// # Errors
/// [`Malformed`]: no form of a report, or a figure that cannot be.
pub fn read(value: &[u8]) -> Result<Option<f64>, Malformed> {
    if value.len() > LENGTH_MAX {
        return Err(Malformed);
    }
    let value = std::str::from_utf8(value).map_err(|_| Malformed)?.trim();
    let (form, rest) = value.split_once(' ').ok_or(Malformed)?;
    match form {
        "TEXT" => text(rest)?.utilization(),
        "JSON" => json(rest)?.utilization(),
        "BIN" => read_binary(rest.trim().as_bytes()),
        _ => Err(Malformed),
    }
}

/// The same in the value of `endpoint-load-metrics-bin`.
///
/// # Errors
/// [`Malformed`].
pub fn read_binary(value: &[u8]) -> Result<Option<f64>, Malformed> {
    if value.len() > LENGTH_MAX {
        return Err(Malformed);
    }
    let encoding = if value.ends_with(b"=") {
        BASE64
    } else {
        BASE64_NOPAD
    };
    let message = encoding.decode(value).map_err(|_| Malformed)?;
    message_of(&message)?.utilization()
}

fn text(value: &str) -> Result<Report, Malformed> {
    let mut report = Report::default();
    for pair in value.split(',') {
        let (name, figure) = pair.split_once('=').ok_or(Malformed)?;
        let figure = figure.trim().parse().map_err(|_| Malformed)?;
        match name.trim() {
            "cpu_utilization" => report.processor = Some(figure),
            "application_utilization" => report.application = Some(figure),
            _ => {}
        }
    }
    Ok(report)
}

fn json(value: &str) -> Result<Report, Malformed> {
    let value: serde_json::Value = serde_json::from_str(value).map_err(|_| Malformed)?;
    let fields = value.as_object().ok_or(Malformed)?;
    // Either spelling of proto3's JSON.
    let figure = |one: &str, other: &str| match fields.get(one).or(fields.get(other)) {
        None => Ok(None),
        Some(figure) => figure.as_f64().map(Some).ok_or(Malformed),
    };
    Ok(Report {
        processor: figure("cpu_utilization", "cpuUtilization")?,
        application: figure("application_utilization", "applicationUtilization")?,
    })
}

/// Fields of `OrcaLoadReport` (xds.data.orca.v3).
const PROCESSOR: u64 = 1;
const APPLICATION: u64 = 9;

/// Reads a protobuf message: keys, each with its wire type, and what they hold.
fn message_of(mut bytes: &[u8]) -> Result<Report, Malformed> {
    let mut report = Report::default();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let (field, wire_type) = (key >> 3, key & 7);
        match wire_type {
            0 => {
                varint(&mut bytes)?;
            }
            1 => {
                let figure = take(&mut bytes, 8)?.try_into().map_err(|_| Malformed)?;
                let figure = f64::from_le_bytes(figure);
                match field {
                    PROCESSOR => report.processor = Some(figure),
                    APPLICATION => report.application = Some(figure),
                    _ => {}
                }
            }
            2 => {
                let length = varint(&mut bytes)?;
                take(&mut bytes, usize::try_from(length).map_err(|_| Malformed)?)?;
            }
            5 => {
                take(&mut bytes, 4)?;
            }
            _ => return Err(Malformed),
        }
    }
    Ok(report)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Result<&'b [u8], Malformed> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(Malformed)?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_form_is_read_and_the_application_s_own_figure_goes_first() {
        for (value, expected) in [
            ("TEXT cpu_utilization=0.3,mem_utilization=0.8", Some(0.3)),
            (
                "TEXT cpu_utilization=0.3, application_utilization=0.5",
                Some(0.5),
            ),
            (
                "TEXT application_utilization=0,cpu_utilization=0.25",
                Some(0.25),
            ),
            ("TEXT named_metrics.queue=7", None),
            (
                "JSON {\"cpu_utilization\": 0.3, \"mem_utilization\": 0.8}",
                Some(0.3),
            ),
            ("JSON {\"applicationUtilization\": 1.5}", Some(1.5)),
            ("JSON {}", None),
            ("BIN CQAAAAAAAOA/", Some(0.5)),
        ] {
            assert_eq!(read(value.as_bytes()), Ok(expected), "{value}");
        }
        // cpu_utilization 0.25, a map entry that is passed over, application_utilization 0.75.
        let mut message = vec![9];
        message.extend(0.25f64.to_le_bytes());
        message.extend([0x22, 3, 1, 2, 3, 0x49]);
        message.extend(0.75f64.to_le_bytes());
        for encoding in [BASE64, BASE64_NOPAD] {
            let value = encoding.encode(&message);
            assert_eq!(read_binary(value.as_bytes()), Ok(Some(0.75)), "{value}");
        }
    }

    #[test]
    fn what_is_no_report_is_told_as_such() {
        for value in [
            "",
            "TEXT",
            "TEXT ",
            "TEXT cpu_utilization",
            "TEXT cpu_utilization=high",
            "JSON {",
            "JSON []",
            "JSON {\"cpu_utilization\": \"0.3\"}",
            "TEXT cpu_utilization=-1",
            "TEXT cpu_utilization=nan",
            "TEXT cpu_utilization=inf",
            "XML <a/>",
            "BIN !!!!",
            "BIN CQAAAAAAAPB",
            "BIN CwAA",
        ] {
            assert_eq!(read(value.as_bytes()), Err(Malformed), "{value}");
        }
        assert_eq!(read(&[b'T'; LENGTH_MAX + 1]), Err(Malformed));
        assert_eq!(read(b"TEXT \xff=1"), Err(Malformed));
    }

    proptest! {
        #[test]
        fn nothing_panics(value in prop::collection::vec(any::<u8>(), 0..200), message in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&value);
            let _ = read_binary(BASE64.encode(&message).as_bytes());
        }
    }
}
