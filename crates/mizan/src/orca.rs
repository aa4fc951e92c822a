//! What a backend says of its own load, in a field of its answer: the Open Request Cost Aggregation report, as gRPC
//! (A51) and Envoy read it. No I/O.
//!
//! | field | value |
//! | --- | --- |
//! | `endpoint-load-metrics` | `TEXT cpu_utilization=0.3, application_utilization=0.5`, `JSON {"cpu_utilization": 0.3}` or `BIN` and base64 |
//! | `endpoint-load-metrics-bin` | base64 of the message `OrcaLoadReport` |
//!
//! Three things of it count: the utilization, which is the application's own figure or else the processor's; and two
//! named metrics, `rif`, the requests in flight at the backend without the one that this answers, and `latency_ms`, how
//! long a request takes at that. In text they are `named_metrics.rif=3`, in JSON `{"named_metrics": {"rif": 3}}`.

use data_encoding::{BASE64, BASE64_NOPAD};
use mizan_core::backend::Backend;
use mizan_core::pool::{LoadReport, LoadSource, Pool};
use mizan_core::time::Instant;
use std::fmt;
use std::time::Duration;

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

/// What of a report counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// What of all that can be taken is taken, from 0; above 1 is more than that. `None`: it does not say.
    pub utilization: Option<f64>,
    /// Requests in flight, without the one that is answered, from 0.
    pub in_flight: Option<f64>,
    /// How long a request takes at that.
    pub latency: Option<Duration>,
}

impl Report {
    /// Tells `core` what `backend` has said, wherever it was said.
    pub fn tell(self, core: &Pool, now: Instant, backend: &Backend, source: LoadSource) {
        if let Some(utilization) = self.utilization {
            core.report(now, backend, utilization);
        }
        if let Some(in_flight) = self.in_flight {
            let latency = self.latency;
            core.note_load(now, backend, LoadReport { in_flight, latency }, source);
        }
    }
}

/// Figures of a report as they stand.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    processor: Option<f64>,
    application: Option<f64>,
    in_flight: Option<f64>,
    latency_ms: Option<f64>,
}

/// Names of the named metrics.
const IN_FLIGHT: &str = "rif";
const LATENCY_MS: &str = "latency_ms";

/// Longest latency that is taken for one, in milliseconds: a day.
pub const LATENCY_MS_MAX: f64 = 86_400_000.0;

impl Figures {
    fn named(&mut self, name: &str, figure: f64) {
        match name {
            IN_FLIGHT => self.in_flight = Some(figure),
            LATENCY_MS => self.latency_ms = Some(figure),
            _ => {}
        }
    }

    fn report(self) -> Result<Report, Malformed> {
        let set = |figure: Option<f64>| figure.filter(|figure| *figure != 0.0);
        let utilization = set(self.application).or(set(self.processor));
        let utilization = utilization.or(self.application).or(self.processor);
        let figures = [utilization, self.in_flight, self.latency_ms];
        let is_none = |figure: f64| !figure.is_finite() || figure < 0.0;
        let is_too_much = self.in_flight > Some(LoadReport::IN_FLIGHT_MAX)
            || self.latency_ms > Some(LATENCY_MS_MAX);
        if is_too_much || figures.into_iter().flatten().any(is_none) {
            return Err(Malformed);
        }
        Ok(Report {
            utilization,
            in_flight: self.in_flight,
            latency: self
                .latency_ms
                .map(|ms| Duration::from_secs_f64(ms / 1_000.0)),
        })
    }
}

/// What the value of `endpoint-load-metrics` says.
///
/// # Errors
/// [`Malformed`]: no form of a report, or a figure that cannot be.
pub fn read(value: &[u8]) -> Result<Report, Malformed> {
    if value.len() > LENGTH_MAX {
        return Err(Malformed);
    }
    let value = std::str::from_utf8(value).map_err(|_| Malformed)?.trim();
    let (form, rest) = value.split_once(' ').ok_or(Malformed)?;
    match form {
        "TEXT" => text(rest)?.report(),
        "JSON" => json(rest)?.report(),
        "BIN" => read_binary(rest.trim().as_bytes()),
        _ => Err(Malformed),
    }
}

/// The same in the value of `endpoint-load-metrics-bin`.
///
/// # Errors
/// [`Malformed`].
pub fn read_binary(value: &[u8]) -> Result<Report, Malformed> {
    if value.len() > LENGTH_MAX {
        return Err(Malformed);
    }
    let encoding = if value.ends_with(b"=") {
        BASE64
    } else {
        BASE64_NOPAD
    };
    let message = encoding.decode(value).map_err(|_| Malformed)?;
    message_of(&message)?.report()
}

fn text(value: &str) -> Result<Figures, Malformed> {
    let mut report = Figures::default();
    for pair in value.split(',') {
        let (name, figure) = pair.split_once('=').ok_or(Malformed)?;
        let figure = figure.trim().parse().map_err(|_| Malformed)?;
        match name.trim() {
            "cpu_utilization" => report.processor = Some(figure),
            "application_utilization" => report.application = Some(figure),
            name => {
                if let Some(name) = name.strip_prefix("named_metrics.") {
                    report.named(name, figure);
                }
            }
        }
    }
    Ok(report)
}

fn json(value: &str) -> Result<Figures, Malformed> {
    let value: serde_json::Value = serde_json::from_str(value).map_err(|_| Malformed)?;
    let fields = value.as_object().ok_or(Malformed)?;
    // Either spelling of proto3's JSON.
    let figure = |one: &str, other: &str| match fields.get(one).or(fields.get(other)) {
        None => Ok(None),
        Some(figure) => figure.as_f64().map(Some).ok_or(Malformed),
    };
    let mut figures = Figures {
        processor: figure("cpu_utilization", "cpuUtilization")?,
        application: figure("application_utilization", "applicationUtilization")?,
        ..Figures::default()
    };
    let named = fields.get("named_metrics").or(fields.get("namedMetrics"));
    if let Some(named) = named {
        for (name, figure) in named.as_object().ok_or(Malformed)? {
            figures.named(name, figure.as_f64().ok_or(Malformed)?);
        }
    }
    Ok(figures)
}

/// Fields of `OrcaLoadReport` (xds.data.orca.v3).
const PROCESSOR: u64 = 1;
const NAMED_METRICS: u64 = 8;
const APPLICATION: u64 = 9;

/// Reads a protobuf message: keys, each with its wire type, and what they hold.
fn message_of(mut bytes: &[u8]) -> Result<Figures, Malformed> {
    let mut report = Figures::default();
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
                let value = take(&mut bytes, usize::try_from(length).map_err(|_| Malformed)?)?;
                if field == NAMED_METRICS {
                    let (name, figure) = entry_of(value)?;
                    report.named(name, figure);
                }
            }
            5 => {
                take(&mut bytes, 4)?;
            }
            _ => return Err(Malformed),
        }
    }
    Ok(report)
}

/// Reads an entry of a map from names to numbers: what is left out is empty, or 0.
fn entry_of(mut bytes: &[u8]) -> Result<(&str, f64), Malformed> {
    let (mut name, mut figure) = ("", 0.0);
    while !bytes.is_empty() {
        match varint(&mut bytes)? {
            0x0a => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| Malformed)?;
                name = std::str::from_utf8(take(&mut bytes, length)?).map_err(|_| Malformed)?;
            }
            0x11 => {
                let bits = take(&mut bytes, 8)?.try_into().map_err(|_| Malformed)?;
                figure = f64::from_le_bytes(bits);
            }
            _ => return Err(Malformed),
        }
    }
    Ok((name, figure))
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
            let utilization = read(value.as_bytes()).map(|report| report.utilization);
            assert_eq!(utilization, Ok(expected), "{value}");
        }
        // cpu_utilization 0.25, a map entry that is passed over, application_utilization 0.75.
        let mut message = vec![9];
        message.extend(0.25f64.to_le_bytes());
        // Of field 4, which does not count.
        message.extend([0x22, 3, 1, 2, 3, 0x49]);
        message.extend(0.75f64.to_le_bytes());
        for encoding in [BASE64, BASE64_NOPAD] {
            let value = encoding.encode(&message);
            let utilization = read_binary(value.as_bytes()).map(|report| report.utilization);
            assert_eq!(utilization, Ok(Some(0.75)), "{value}");
        }
    }

    #[test]
    fn requests_in_flight_and_their_latency_are_named_metrics_in_each_form() {
        let entry = |name: &str, figure: f64| {
            let mut entry = vec![0x0a, name.len() as u8];
            entry.extend(name.as_bytes());
            entry.push(0x11);
            entry.extend(figure.to_le_bytes());
            [vec![0x42, entry.len() as u8], entry].concat()
        };
        let entries = [
            entry("rif", 3.0),
            entry("latency_ms", 12.5),
            entry("x", 1.0),
        ];
        let binary = format!("BIN {}", BASE64.encode(&entries.concat()));
        for value in [
            "TEXT named_metrics.rif=3,named_metrics.latency_ms=12.5,named_metrics.x=1",
            "JSON {\"named_metrics\": {\"rif\": 3, \"latency_ms\": 12.5, \"x\": 1}}",
            "JSON {\"namedMetrics\": {\"rif\": 3.0, \"latency_ms\": 12.5}}",
            &binary,
        ] {
            let expected = Report {
                utilization: None,
                in_flight: Some(3.0),
                latency: Some(Duration::from_micros(12_500)),
            };
            assert_eq!(read(value.as_bytes()), Ok(expected), "{value}");
        }
        let only = read(b"TEXT named_metrics.rif=0").expect("a report");
        assert_eq!((only.in_flight, only.latency), (Some(0.0), None));
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
            "TEXT named_metrics.rif=-1",
            "TEXT named_metrics.rif=nan",
            "TEXT named_metrics.rif=1e308",
            "TEXT named_metrics.rif=1000001",
            "TEXT named_metrics.latency_ms=1e300",
            "JSON {\"named_metrics\": [3]}",
            "JSON {\"named_metrics\": {\"rif\": \"3\"}}",
            "BIN QgQKAXIR",
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
