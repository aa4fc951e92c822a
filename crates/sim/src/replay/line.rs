//! One line of an access log.

use std::borrow::Cow;

use serde::Deserialize;

use super::calendar;

/// Longer than this no request takes.
const LONGEST_SECONDS: f64 = 86_400.0;

/// How an access log is written, and so what its times mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Mizan's own: JSON with `time` (the end), `duration_ms` and `upstream_ms`.
    Mizan,
    /// nginx: combined, with `$request_time` (seconds) as the last field. `$time_local` is a request's end.
    Nginx,
    /// Apache: combined, with `%D` (microseconds) as the last field. `%t` is a request's begin.
    Apache,
}

impl LogFormat {
    /// Each with its name.
    pub const ALL: [(&str, Self); 3] = [
        ("mizan", Self::Mizan),
        ("nginx", Self::Nginx),
        ("apache", Self::Apache),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mizan => "mizan",
            Self::Nginx => "nginx",
            Self::Apache => "apache",
        }
    }

    /// What a line looks like: JSON is Mizan's; else the last field decides, as nginx writes seconds with a point
    /// and Apache whole microseconds. `None`: like neither.
    pub(super) fn of(line: &[u8]) -> Option<Self> {
        if line.trim_ascii_start().first() == Some(&b'{') {
            return Some(Self::Mizan);
        }
        let last = last_field(line);
        let is_number = !last.is_empty()
            && last
                .iter()
                .all(|byte| byte.is_ascii_digit() || *byte == b'.');
        match (is_number, last.contains(&b'.')) {
            (true, true) => Some(Self::Nginx),
            (true, false) => Some(Self::Apache),
            (false, _) => None,
        }
    }
}

/// A request as a log has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Logged<'l> {
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    /// That is its begin, not its end.
    pub(super) is_begin: bool,
    /// That is known to the second only.
    pub(super) is_whole_second: bool,
    /// From begin to end, nanoseconds.
    pub(super) duration: u64,
    /// The part that it was at a backend, nanoseconds.
    pub(super) latency: u64,
    pub(super) failed: bool,
    /// Client's address without the port.
    pub(super) client: Cow<'l, str>,
    pub(super) pool: Cow<'l, str>,
    /// Empty if the log does not say.
    pub(super) backend: Cow<'l, str>,
}

/// What a line comes to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line<'l> {
    Request(Logged<'l>),
    /// Nothing that a backend was asked and has answered, and why.
    Other(&'static str),
}

/// Answered by the balancer itself.
pub(super) const OWN: &str = "answered without a backend";
const GONE: &str = "the client went away before the answer";
const TUNNEL: &str = "a connection handed through, or an upgrade";

/// Reads a line without its end.
///
/// # Errors
/// Why it is none of this format.
pub(super) fn read(format: LogFormat, line: &[u8]) -> Result<Line<'_>, String> {
    match format {
        LogFormat::Mizan => mizan(line),
        LogFormat::Nginx | LogFormat::Apache => combined(format, line),
    }
}

#[derive(Deserialize)]
struct Fields<'l> {
    #[serde(borrow)]
    time: Cow<'l, str>,
    status: u16,
    duration_ms: f64,
    upstream_ms: Option<f64>,
    #[serde(default)]
    tries: u32,
    #[serde(borrow, default)]
    protocol: Cow<'l, str>,
    #[serde(borrow, default)]
    client: Cow<'l, str>,
    #[serde(borrow, default)]
    pool: Cow<'l, str>,
    #[serde(borrow, default)]
    backend: Cow<'l, str>,
    #[serde(borrow, default)]
    reason: Cow<'l, str>,
}

fn mizan(line: &[u8]) -> Result<Line<'_>, String> {
    let fields: Fields<'_> = serde_json::from_slice(line).map_err(|error| {
        // There is but one line.
        let told = error.to_string().replace(" at line 1 column", " at column");
        format!("no line of Mizan's log: {told}")
    })?;
    let time = calendar::rfc3339(fields.time.as_bytes()).ok_or_else(|| {
        format!(
            "`time` is {:?}, no time of RFC 3339",
            shown(fields.time.as_bytes())
        )
    })?;
    let duration = nanos(fields.duration_ms, 1e3, "duration_ms")?;
    let upstream = fields
        .upstream_ms
        .map(|ms| nanos(ms, 1e3, "upstream_ms"))
        .transpose()?;
    if fields.status == 101 || matches!(&*fields.protocol, "tcp" | "udp") {
        return Ok(Line::Other(TUNNEL));
    }
    if fields.status == 499 {
        return Ok(Line::Other(GONE));
    }
    if fields.tries == 0 || fields.backend.is_empty() {
        return Ok(Line::Other(OWN));
    }
    Ok(Line::Request(Logged {
        time,
        is_begin: false,
        is_whole_second: false,
        duration,
        latency: upstream.unwrap_or(duration).min(duration),
        failed: fields.status >= 500 || !fields.reason.is_empty(),
        client: without_port(fields.client),
        pool: fields.pool,
        backend: fields.backend,
    }))
}

/// `client - user [time] "request" status bytes "referer" "agent" … seconds-or-microseconds`.
fn combined(format: LogFormat, line: &[u8]) -> Result<Line<'_>, String> {
    let text = line.trim_ascii();
    let (client, rest) = split_once(text, b' ').ok_or("no fields")?;
    let open = memchr(rest, b'[').ok_or("no [time]")?;
    let (stamp, rest) = split_once(&rest[open + 1..], b']').ok_or("[time] has no end")?;
    let time = calendar::common(stamp).ok_or_else(|| {
        format!(
            "[{}] is no time such as [10/Oct/2000:13:55:36 -0700]",
            shown(stamp)
        )
    })?;
    let rest = rest
        .trim_ascii_start()
        .strip_prefix(b"\"")
        .ok_or("no \"request\" behind the time")?;
    let rest = behind_quote(rest)
        .ok_or("the \"request\" has no end")?
        .trim_ascii_start();
    let (status, rest) = split_once(rest, b' ').ok_or("nothing behind the status")?;
    let status: u16 = number(status).ok_or_else(|| format!("`{}` is no status", shown(status)))?;
    let last = last_field(rest);
    let (scale, what) = match format {
        LogFormat::Apache => (1e6, "%D in microseconds"),
        _ => (1.0, "$request_time in seconds"),
    };
    let value: f64 =
        number(last).ok_or_else(|| format!("the last field, {:?}, is no {what}", shown(last)))?;
    // nginx writes three decimals always, and Apache none: a unit mistaken would be a million times wrong.
    if last.contains(&b'.') == (format == LogFormat::Apache) {
        return Err(format!(
            "the last field, {:?}, is no {what}: it is of another format",
            shown(last)
        ));
    }
    let duration = nanos(value, scale, what)?;
    match status {
        101 => return Ok(Line::Other(TUNNEL)),
        499 => return Ok(Line::Other(GONE)),
        _ => {}
    }
    let backend = match upstream(rest) {
        Upstream::Unsaid => Cow::Borrowed(""),
        Upstream::Nobody => return Ok(Line::Other(OWN)),
        Upstream::Last(address) => String::from_utf8_lossy(address),
    };
    Ok(Line::Request(Logged {
        time,
        is_begin: format == LogFormat::Apache,
        is_whole_second: true,
        duration,
        latency: duration,
        failed: status >= 500,
        client: String::from_utf8_lossy(client),
        pool: Cow::Borrowed(""),
        backend,
    }))
}

/// What a field `upstream=` with `$upstream_addr` says.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Upstream<'l> {
    /// There is no such field.
    Unsaid,
    /// No backend was asked.
    Nobody,
    /// The one that was asked last; those before were tried in vain.
    Last(&'l [u8]),
}

/// Reads the fields behind the status. The list has `, ` between tries and ` : ` where the request went on to another
/// group; a name without a port is that of a group in which nobody could be asked.
fn upstream(rest: &[u8]) -> Upstream<'_> {
    const NAME: &[u8] = b"upstream=";
    let mut found = Upstream::Unsaid;
    let mut fields = fields(rest).peekable();
    while let Some(field) = fields.next() {
        let Some(first) = field.strip_prefix(NAME) else {
            continue;
        };
        if first.first() == Some(&b'"') {
            let inner = first.trim_ascii_end();
            let inner = inner[1..].strip_suffix(b"\"").unwrap_or(&inner[1..]);
            found = inner
                .split(|byte| *byte == b' ')
                .fold(Upstream::Nobody, later);
            continue;
        }
        found = later(Upstream::Nobody, first);
        let mut goes_on = first.ends_with(b",");
        // A list has spaces of its own; what has a name is the next field.
        while let Some(next) = fields.next_if(|next| {
            *next == b":" || (goes_on && !next.starts_with(b"\"") && !next.contains(&b'='))
        }) {
            found = later(found, next);
            goes_on = next.ends_with(b",") || next == b":";
        }
    }
    found
}

/// The later of what was `found` and `piece`, if that is an address.
fn later<'l>(found: Upstream<'l>, piece: &'l [u8]) -> Upstream<'l> {
    let piece = piece.strip_suffix(b",").unwrap_or(piece);
    match piece.len() > 1 && piece.contains(&b':') {
        true => Upstream::Last(piece),
        false => found,
    }
}

/// Splits at spaces that stand in no quotes.
fn fields(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return None;
        }
        let (mut quoted, mut escaped) = (false, false);
        let end = rest.iter().position(|byte| {
            quoted ^= *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            *byte == b' ' && !quoted
        });
        let (field, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(field)
    })
}

/// What follows a closing quote; `\"` is none.
fn behind_quote(text: &[u8]) -> Option<&[u8]> {
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let is_end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_end
    })?;
    Some(&text[end + 1..])
}

/// The last field, without a name as in `rt=0.012` and without quotes.
fn last_field(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    let from = line
        .iter()
        .rposition(|byte| *byte == b' ')
        .map_or(0, |at| at + 1);
    let field = &line[from..];
    let from = field
        .iter()
        .rposition(|byte| *byte == b'=')
        .map_or(0, |at| at + 1);
    let field = &field[from..];
    field
        .strip_prefix(b"\"")
        .and_then(|field| field.strip_suffix(b"\""))
        .unwrap_or(field)
}

fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr(text, separator)?;
    Some((&text[..at], &text[at + 1..]))
}

fn memchr(text: &[u8], wanted: u8) -> Option<usize> {
    text.iter().position(|byte| *byte == wanted)
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `value` of a unit of which `scale` make a second, as nanoseconds.
fn nanos(value: f64, scale: f64, what: &str) -> Result<u64, String> {
    let seconds = value / scale;
    match (0.0..=LONGEST_SECONDS).contains(&seconds) {
        true => Ok((seconds * 1e9).round() as u64),
        false => Err(format!("{what} is {value}: no time that a request takes")),
    }
}

fn without_port(client: Cow<'_, str>) -> Cow<'_, str> {
    match client.rfind(':') {
        None => client,
        Some(at) => match client {
            Cow::Borrowed(text) => Cow::Borrowed(&text[..at]),
            Cow::Owned(text) => Cow::Owned(text[..at].to_owned()),
        },
    }
}

/// A piece of a line, for people.
fn shown(text: &[u8]) -> String {
    const SHOWN: usize = 40;
    let mut shown = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]).into_owned();
    if text.len() > SHOWN {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(format: LogFormat, line: &str) -> Logged<'_> {
        match read(format, line.as_bytes()) {
            Ok(Line::Request(logged)) => logged,
            other => panic!("{line}: {other:?}"),
        }
    }

    const NGINX: &str = r#"10.0.0.7 - - [01/Jan/2026:00:00:01 +0000] "GET /a\"b?c HTTP/1.1" 200 5 "-" "curl/8 [x]" upstream=10.1.0.2:80 rt=0.250"#;
    const APACHE: &str =
        r#"2001:db8::7 - bob [01/Jan/2026:00:00:01 +0000] "GET / HTTP/1.1" 503 5 "-" "x" 250000"#;

    #[test]
    fn each_format_tells_its_own_unit_and_what_its_time_is_of() {
        let nginx = request(LogFormat::Nginx, NGINX);
        assert_eq!((nginx.duration, nginx.is_begin), (250_000_000, false));
        assert_eq!(
            (&*nginx.client, &*nginx.backend),
            ("10.0.0.7", "10.1.0.2:80")
        );
        let apache = request(LogFormat::Apache, APACHE);
        assert_eq!(
            (apache.duration, apache.is_begin, apache.failed),
            (250_000_000, true, true)
        );
        assert_eq!(&*apache.client, "2001:db8::7");
        assert_eq!(LogFormat::of(NGINX.as_bytes()), Some(LogFormat::Nginx));
        assert_eq!(LogFormat::of(APACHE.as_bytes()), Some(LogFormat::Apache));
        let plain =
            r#"10.0.0.7 - - [01/Jan/2026:00:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8""#;
        assert_eq!(
            LogFormat::of(plain.as_bytes()),
            None,
            "no time that it took"
        );
        let why = read(LogFormat::Nginx, plain.as_bytes()).expect_err("no time");
        assert!(
            why.contains("\"curl/8\", is no $request_time in seconds"),
            "{why}"
        );
    }

    #[test]
    fn of_several_addresses_the_last_one_served_it() {
        let of = |field: &str| {
            let line = NGINX.replace("upstream=10.1.0.2:80", field);
            match read(LogFormat::Nginx, line.as_bytes()) {
                Ok(Line::Request(logged)) => logged.backend.into_owned(),
                Ok(Line::Other(OWN)) => "nobody".to_owned(),
                other => panic!("{field}: {other:?}"),
            }
        };
        for (field, backend) in [
            ("upstream=10.1.0.1:80, 10.1.0.2:80", "10.1.0.2:80"),
            (
                "upstream=10.1.0.1:80, 10.1.0.2:80 : 10.2.0.1:81",
                "10.2.0.1:81",
            ),
            (
                "upstream=10.1.0.1:80 : unix:/run/a.sock",
                "unix:/run/a.sock",
            ),
            (
                "upstream=10.1.0.1:80, [2001:db8::1]:80 ut=0.1, 0.2",
                "[2001:db8::1]:80",
            ),
            ("upstream=\"10.1.0.1:80, 10.1.0.2:80\" 0.1", "10.1.0.2:80"),
            ("upstream=10.1.0.1:80, 10.1.0.2:80, api", "10.1.0.2:80"),
            ("upstream=10.1.0.1:80 : ", "10.1.0.1:80"),
            ("upstream=-", "nobody"),
            ("upstream=\"-\"", "nobody"),
            ("upstream=api", "nobody"),
            ("upstream=", "nobody"),
            ("to=10.1.0.1:80", ""),
            // What a client may write.
            (
                "\"a upstream=6.6.6.6:80 b\" upstream=10.1.0.2:80",
                "10.1.0.2:80",
            ),
            ("\"\\\" upstream=6.6.6.6:80, \"", ""),
        ] {
            assert_eq!(of(field), backend, "{field}");
        }
    }

    #[test]
    fn a_line_of_mizan_goes_by_the_time_at_the_backend() {
        let line = r#"{"time":"2026-01-01T00:00:00.123Z","client":"[::1]:4","status":200,"pool":"api","backend":"b1","tries":1,"duration_ms":3.5,"upstream_ms":2.25}"#;
        let logged = request(LogFormat::Mizan, line);
        assert_eq!((logged.duration, logged.latency), (3_500_000, 2_250_000));
        assert_eq!(&*logged.client, "[::1]");
        let own = line.replace("\"tries\":1", "\"tries\":0");
        assert_eq!(read(LogFormat::Mizan, own.as_bytes()), Ok(Line::Other(OWN)));
        for (from, to, why) in [
            ("3.5", "-1", "no time that a request takes"),
            ("2026", "20x6", "no time of RFC 3339"),
            ("\"status\":200,", "", "missing field `status`"),
        ] {
            let wrong = line.replace(from, to);
            let told = read(LogFormat::Mizan, wrong.as_bytes()).expect_err(to);
            assert!(told.contains(why), "{told}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Whatever the bytes: a line, or why not.
        #[test]
        fn no_bytes_are_too_odd_to_be_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = LogFormat::of(&bytes);
            for (_, format) in LogFormat::ALL {
                let _ = read(format, &bytes);
            }
        }

        /// Nor are lines that are nearly good.
        #[test]
        fn no_change_of_a_good_line_is_too_odd(
            which in 0usize..3,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<Option<u8>>()), 1..6),
        ) {
            let good = [
                NGINX,
                APACHE,
                r#"{"time":"2026-01-01T00:00:00.123Z","client":"a:4","status":200,"backend":"b","tries":1,"duration_ms":3.5}"#,
            ];
            let mut line = good[which].as_bytes().to_vec();
            for (at, change) in changes {
                let at = at.index(line.len());
                match change {
                    Some(byte) => line[at] = byte,
                    None => line.truncate(at.max(1)),
                }
            }
            let _ = LogFormat::of(&line);
            for (_, format) in LogFormat::ALL {
                if let Ok(Line::Request(logged)) = read(format, &line) {
                    prop_assert!(logged.latency <= logged.duration);
                }
            }
        }
    }
}
