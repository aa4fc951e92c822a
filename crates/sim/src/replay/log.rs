//! Takes in a log line by line, and keeps of each request what a replay needs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mizan_core::policy::stable_hash;
use serde::Serialize;

use super::Recorded;
use super::line::{self, Line, LogFormat, Logged};
use crate::random::scramble;

/// Most requests that are kept, 48 bytes each.
pub(super) const REQUESTS_MAX: usize = 10_000_000;
/// Lines that do not parse and are shown.
const SHOWN: usize = 3;
/// Distinct pools and backends that are told apart.
const NAMES_MAX: usize = 20_000;
/// Characters of a name, or of what is wrong with a line, that are kept.
const CHARS_MAX: usize = 200;
const SECOND: u64 = 1_000_000_000;

/// A line that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// What became of a log's lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LineCounts {
    /// All of them, empty ones apart.
    pub lines: u64,
    /// Requests that a backend was asked and has answered.
    pub requests: u64,
    /// Those that are of no use here, by the reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Those that do not parse.
    pub bad: u64,
    /// The first three of them.
    pub first_bad: Vec<BadLine>,
    /// Whether the log has more requests than are kept.
    pub is_cut: bool,
}

/// A log as it is read: give it each line, then see what is in it.
#[derive(Debug, Default)]
pub struct LogReader {
    format: Option<LogFormat>,
    counts: LineCounts,
    number: u64,
    requests: Vec<Recorded>,
    whole_seconds: bool,
    pools: Names,
    backends: Names,
}

#[derive(Debug, Default)]
struct Names {
    by_name: BTreeMap<String, u32>,
    in_order: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &str) -> Option<u32> {
        let name = &*printable(name);
        if let Some(number) = self.by_name.get(name) {
            return Some(*number);
        }
        let number = self.in_order.len();
        if number >= NAMES_MAX {
            return None;
        }
        self.by_name.insert(name.to_owned(), number as u32);
        self.in_order.push(name.to_owned());
        Some(number as u32)
    }
}

impl LogReader {
    /// Of a log in `format`; `None`: as the first line that parses has it.
    pub fn new(format: Option<LogFormat>) -> Self {
        Self {
            format,
            ..Self::default()
        }
    }

    /// Takes in a line, without its end; false if no more are wanted.
    pub fn line(&mut self, line: &[u8]) -> bool {
        self.number += 1;
        if line.trim_ascii().is_empty() {
            return true;
        }
        if self.requests.len() >= REQUESTS_MAX {
            self.counts.is_cut = true;
            return false;
        }
        self.counts.lines += 1;
        let Some(format) = self.format.or_else(|| LogFormat::of(line)) else {
            self.bad(
                "neither JSON nor a line that ends in the time that the request took".to_owned(),
            );
            return true;
        };
        match line::read(format, line) {
            Err(why) => self.bad(why),
            Ok(line) => {
                self.format = Some(format);
                match line {
                    Line::Other(why) => *self.counts.skipped.entry(why).or_default() += 1,
                    Line::Request(logged) => self.keep(&logged),
                }
            }
        }
        true
    }

    /// A line that is too long to be one.
    pub fn too_long(&mut self, bytes_max: usize) {
        self.number += 1;
        self.counts.lines += 1;
        self.bad(format!("longer than {bytes_max} bytes"));
    }

    fn bad(&mut self, why: String) {
        self.counts.bad += 1;
        if self.counts.first_bad.len() < SHOWN {
            self.counts.first_bad.push(BadLine {
                line: self.number,
                why: printable(&why).into_owned(),
            });
        }
    }

    fn keep(&mut self, logged: &Logged<'_>) {
        let pool = self.pools.number(&logged.pool);
        let backend = match &*logged.backend {
            "" => Some(Recorded::NOBODY),
            name => self.backends.number(name),
        };
        let (Some(pool), Some(backend)) = (pool, backend) else {
            return self.bad(format!("more than {NAMES_MAX} pools or backends"));
        };
        self.counts.requests += 1;
        self.whole_seconds |= logged.is_whole_second;
        // Where in its second it was nobody knows: anywhere, and the same in each run.
        let within = match logged.is_whole_second {
            true => scramble(self.number) % SECOND,
            false => 0,
        };
        let time = logged.time.saturating_add(within);
        self.requests.push(Recorded {
            at: match logged.is_begin {
                true => time,
                false => time.saturating_sub(logged.duration),
            },
            latency: logged.latency,
            work: logged.latency,
            hash: stable_hash(logged.client.as_bytes()),
            pool,
            backend,
            failed: logged.failed,
        });
    }

    /// What was read. Requests are those of `pool`, or of the pool that has most, in the order of their begins.
    pub(super) fn finish(mut self, pool: Option<&str>) -> Read {
        let mut by_pool = vec![0u64; self.pools.in_order.len()];
        for request in &self.requests {
            by_pool[request.pool as usize] += 1;
        }
        let chosen = match pool {
            Some(name) => self.pools.by_name.get(name).copied(),
            None => (0..by_pool.len())
                .max_by_key(|at| (by_pool[*at], usize::MAX - at))
                .map(|at| at as u32),
        };
        self.requests.retain(|request| Some(request.pool) == chosen);
        self.requests.sort_by_key(|request| request.at);
        let pools = self.pools.in_order.iter().cloned().zip(by_pool).collect();
        Read {
            format: self.format,
            counts: self.counts,
            requests: self.requests,
            whole_seconds: self.whole_seconds,
            pool: chosen.map(|at| self.pools.in_order[at as usize].clone()),
            pools,
            backends: self.backends.in_order,
        }
    }
}

/// `text` without what a terminal would obey: others than who reads a log may write into it. Control and formatting
/// characters stand as `\u{1b}`, and what is too long is cut.
fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |char: char| matches!(char, ' '..='~');
    if text.len() <= CHARS_MAX && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    let mut chars = text.chars();
    for char in chars.by_ref().take(CHARS_MAX) {
        match char {
            '"' | '\'' | '\\' => shown.push(char),
            char => shown.extend(char.escape_debug()),
        }
    }
    if chars.next().is_some() {
        shown.push('…');
    }
    Cow::Owned(shown)
}

/// All that a log has.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) format: Option<LogFormat>,
    pub(super) counts: LineCounts,
    pub(super) requests: Vec<Recorded>,
    pub(super) whole_seconds: bool,
    pub(super) pool: Option<String>,
    /// Each pool with its requests.
    pub(super) pools: BTreeMap<String, u64>,
    pub(super) backends: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_told_and_not_done() {
        assert_eq!(printable("api-1 \"ü\" \\ 漢"), "api-1 \"ü\" \\ 漢");
        assert_eq!(
            printable("a\u{1b}[2J\r\n\0\u{9b}\u{7f}\u{202e}b"),
            "a\\u{1b}[2J\\r\\n\\0\\u{9b}\\u{7f}\\u{202e}b"
        );
        assert_eq!(printable(&"x".repeat(5_000)).chars().count(), CHARS_MAX + 1);
    }
}
