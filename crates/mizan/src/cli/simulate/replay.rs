//! `mizan simulate --replay`.

use clap::Args;
use mizan_core::PolicyKind;
use mizan_sim::{Changes, LogFormat, LogReader, ReplayReport, replay};
use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// A longer line is none of a log.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// What is played, and with what changed.
#[derive(Debug, Args)]
pub(super) struct Replay {
    /// Plays an access log again in place of scenarios; `-` is standard input.
    #[arg(long = "replay", value_name = "LOG")]
    log: Option<String>,
    /// How the log is written: mizan, nginx (combined, $request_time last) or apache (combined, %D
    /// last). Default: as its first good line has it.
    #[arg(long, value_name = "NAME", requires = "log")]
    format: Option<String>,
    /// Plays the requests of this pool. Default: the one with most.
    #[arg(long, value_name = "NAME", requires = "log")]
    pool: Option<String>,
    /// So many backends. Default: as many as the log names.
    #[arg(long, value_name = "N", requires = "log")]
    backends: Option<usize>,
    /// Requests that a backend works on at once. Default: the most that the log shows at one.
    #[arg(long, value_name = "N", requires = "log", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    slots: Option<u32>,
    /// A backend, by name or number from 1, that is FACTOR times slower; may be repeated.
    #[arg(long, value_name = "NAME=FACTOR", requires = "log")]
    slow: Vec<String>,
}

impl Replay {
    pub(super) fn is_asked(&self) -> bool {
        self.log.is_some()
    }

    pub(super) fn play(
        &self,
        policies: Vec<PolicyKind>,
        seed: u64,
    ) -> Result<ReplayReport, String> {
        let format = self.format.as_deref().map(format).transpose()?;
        let slow = self.slow.iter().map(|text| slow(text));
        let changes = Changes {
            policies,
            pool: self.pool.clone(),
            backends: self.backends,
            slots: self.slots.map(|slots| slots as usize),
            slow: slow.collect::<Result<_, _>>()?,
            seed,
        };
        let name = self.log.as_deref().unwrap_or("-");
        let unread = |error: io::Error| format!("cannot read {name}: {error}");
        let reader: Box<dyn io::Read> = match name {
            "-" => Box::new(io::stdin().lock()),
            path => Box::new(File::open(path).map_err(unread)?),
        };
        let log = read(BufReader::with_capacity(256 * 1024, reader), format).map_err(unread)?;
        replay(log, &changes).map_err(|error| format!("{name}: {error}"))
    }
}

/// Reads line by line: a log may be larger than memory, and what is kept of a line is little.
fn read(mut reader: impl BufRead, format: Option<LogFormat>) -> io::Result<LogReader> {
    let mut log = LogReader::new(format);
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let end = memchr::memchr(b'\n', buffer);
        let piece = &buffer[..end.unwrap_or(buffer.len())];
        is_too_long |= line.len() + piece.len() > LINE_BYTES_MAX;
        if !is_too_long {
            line.extend_from_slice(piece);
        }
        let length = piece.len() + usize::from(end.is_some());
        reader.consume(length);
        if end.is_some() && !take(&mut log, &mut line, &mut is_too_long) {
            return Ok(log);
        }
    }
    if !line.is_empty() || is_too_long {
        take(&mut log, &mut line, &mut is_too_long);
    }
    Ok(log)
}

/// Hands over a line; false if no more are wanted.
fn take(log: &mut LogReader, line: &mut Vec<u8>, is_too_long: &mut bool) -> bool {
    let goes_on = match std::mem::take(is_too_long) {
        true => {
            log.too_long(LINE_BYTES_MAX);
            true
        }
        false => log.line(line),
    };
    line.clear();
    goes_on
}

fn format(name: &str) -> Result<LogFormat, String> {
    let known = LogFormat::ALL.iter().find(|(known, _)| *known == name);
    known.map(|(_, format)| *format).ok_or_else(|| {
        let names: Vec<_> = LogFormat::ALL.iter().map(|(name, _)| *name).collect();
        format!("there is no format `{name}`: one of {}", names.join(", "))
    })
}

fn slow(text: &str) -> Result<(String, f64), String> {
    let wrong = || format!("`{text}` is no backend and a factor: write --slow NAME=3");
    let (name, factor) = text.rsplit_once('=').ok_or_else(wrong)?;
    let factor: f64 = factor.parse().map_err(|_| wrong())?;
    match factor.is_finite() && factor > 0.0 && !name.is_empty() {
        true => Ok((name.to_owned(), factor)),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_left_out_and_the_next_is_read() {
        let good = r#"{"time":"2026-01-01T00:00:00Z","status":200,"backend":"b","tries":1,"duration_ms":3.5}"#;
        let text = format!("{}\n{good}\n{good}", "x".repeat(3 * LINE_BYTES_MAX));
        let log = read(BufReader::with_capacity(100, text.as_bytes()), None).expect("memory");
        let report = replay(log, &Changes::default()).expect("two good lines");
        assert_eq!((report.counts.requests, report.counts.bad), (2, 1));
        assert_eq!(report.counts.first_bad[0].why, "longer than 65536 bytes");
    }

    #[test]
    fn options_that_are_none_say_how_to_write_them() {
        assert_eq!(slow("10.0.0.1:80=3.5"), Ok(("10.0.0.1:80".into(), 3.5)));
        for wrong in ["a", "a=", "=2", "a=-1", "a=NaN"] {
            assert!(slow(wrong).expect_err(wrong).contains("--slow NAME=3"));
        }
        let error = format("ngnix").expect_err("none");
        assert!(error.contains("one of mizan, nginx, apache"));
    }
}
