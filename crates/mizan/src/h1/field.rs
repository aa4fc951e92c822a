//! Header field names that Mizan looks at, and small parsers for values.

/// A field by its meaning for a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Passed on as it is.
    Other,
    /// `Host`
    Host,
    /// `Content-Length`
    ContentLength,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Connection`
    Connection,
    /// Hop by hop (RFC 9110 §7.6.1): `Keep-Alive`, `Proxy-Connection`, `TE`, `Upgrade`, `HTTP2-Settings`, `Proxy-Authorization`, `Proxy-Authenticate`.
    HopByHop,
    /// `Upgrade`
    Upgrade,
    /// `Expect`
    Expect,
    /// `X-Forwarded-For`
    XForwardedFor,
    /// `X-Forwarded-Proto`
    XForwardedProto,
    /// `X-Forwarded-Host`
    XForwardedHost,
    /// `Forwarded` (RFC 7239)
    Forwarded,
    /// `Max-Forwards` (RFC 9110 §7.6.2)
    MaxForwards,
    /// `Via`
    Via,
    /// `X-Real-IP`, by which many backends know a client, though no standard has it.
    XRealIp,
    /// `X-Request-Id`
    XRequestId,
    /// `traceparent` (W3C Trace Context)
    Traceparent,
    /// `X-Upstream`, which Mizan sets on responses.
    XUpstream,
    /// `endpoint-load-metrics`, a backend's account of its load, which is Mizan's to read.
    LoadReport,
    /// The same in binary: `endpoint-load-metrics-bin`.
    LoadReportBinary,
    /// A name with `_` where one of the identity fields has `-`: some backends fold the two.
    IdentityLookalike,
    /// The same for a framing field.
    FramingLookalike,
}

/// What the field `name` means.
pub fn classify(name: &[u8]) -> Field {
    let Some(first) = name.first() else {
        return Field::Other;
    };
    let field = match (name.len(), first | 0x20) {
        (2, b't') if is(name, b"te") => Field::HopByHop,
        (3, b'v') if is(name, b"via") => Field::Via,
        (4, b'h') if is(name, b"host") => Field::Host,
        (6, b'e') if is(name, b"expect") => Field::Expect,
        (7, b'u') if is(name, b"upgrade") => Field::Upgrade,
        (9, b'f') if is(name, b"forwarded") => Field::Forwarded,
        (9, b'x') if is(name, b"x-real-ip") => Field::XRealIp,
        (10, b'c') if is(name, b"connection") => Field::Connection,
        (10, b'k') if is(name, b"keep-alive") => Field::HopByHop,
        (10, b'x') if is(name, b"x-upstream") => Field::XUpstream,
        (11, b't') if is(name, b"traceparent") => Field::Traceparent,
        (12, b'm') if is(name, b"max-forwards") => Field::MaxForwards,
        (12, b'x') if is(name, b"x-request-id") => Field::XRequestId,
        (14, b'c') if is(name, b"content-length") => Field::ContentLength,
        (14, b'h') if is(name, b"http2-settings") => Field::HopByHop,
        (15, b'x') if is(name, b"x-forwarded-for") => Field::XForwardedFor,
        (16, b'x') if is(name, b"x-forwarded-host") => Field::XForwardedHost,
        (16, b'p') if is(name, b"proxy-connection") => Field::HopByHop,
        (17, b't') if is(name, b"transfer-encoding") => Field::TransferEncoding,
        (17, b'x') if is(name, b"x-forwarded-proto") => Field::XForwardedProto,
        (18, b'p') if is(name, b"proxy-authenticate") => Field::HopByHop,
        (19, b'p') if is(name, b"proxy-authorization") => Field::HopByHop,
        (21, b'e') if is(name, b"endpoint-load-metrics") => Field::LoadReport,
        (25, b'e') if is(name, b"endpoint-load-metrics-bin") => Field::LoadReportBinary,
        _ => return Field::Other,
    };
    if !name.contains(&b'_') {
        return field;
    }
    match field {
        Field::ContentLength | Field::TransferEncoding => Field::FramingLookalike,
        Field::XForwardedFor
        | Field::XForwardedProto
        | Field::XForwardedHost
        | Field::XRealIp
        | Field::XRequestId
        | Field::XUpstream => Field::IdentityLookalike,
        _ => Field::Other,
    }
}

/// Whether two names are the same to a backend that folds case, and `_` into `-` (CGI, WSGI).
pub fn is_same_folded(one: &[u8], other: &[u8]) -> bool {
    let fold = |byte: &u8| match byte {
        b'_' => b'-',
        other => other.to_ascii_lowercase(),
    };
    one.len() == other.len() && one.iter().map(fold).eq(other.iter().map(fold))
}

/// Whether `name` is `lower` but for case and `_` for `-`. Without branches, so that it becomes a few vector
/// instructions; bit 5 makes a letter small and leaves digits and `-` as they are.
fn is<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    const UNDERSCORE: u8 = (b'_' | 0x20) ^ b'-';
    let Ok(name) = <&[u8; N]>::try_from(name) else {
        return false;
    };
    let differences = name.iter().zip(lower).map(|(byte, want)| {
        let difference = (byte | 0x20) ^ want;
        let is_folded = difference == UNDERSCORE && *want == b'-';
        if is_folded { 0 } else { difference }
    });
    differences.fold(0, |all, one| all | one) == 0
}

/// Token bytes (RFC 9110 §5.6.2).
pub(super) const IS_TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");

/// Bytes of a registered name (RFC 3986 §3.2.2), `%` taken for one.
const IS_NAME: [bool; 256] = table(b"-._~!$&'()*+,;=%");

/// Letters, digits and `others`.
const fn table(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

/// A token byte (RFC 9110 §5.6.2).
pub fn is_token_byte(byte: u8) -> bool {
    IS_TOKEN[usize::from(byte)]
}

/// The non-empty members of a comma-separated list, white space trimmed.
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(trim)
        .filter(|member| !member.is_empty())
}

/// `value` without spaces and tabs at its ends.
pub fn trim(value: &[u8]) -> &[u8] {
    let start = value
        .iter()
        .position(|byte| !matches!(byte, b' ' | b'\t'))
        .unwrap_or(value.len());
    let end = value
        .iter()
        .rposition(|byte| !matches!(byte, b' ' | b'\t'))
        .map_or(start, |at| at + 1);
    &value[start..end]
}

/// A `Content-Length` value: 1 to 19 digits (so that it fits in 64 bits).
pub fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    value.iter().try_fold(0u64, |sum, byte| {
        byte.is_ascii_digit()
            .then(|| sum * 10 + u64::from(byte - b'0'))
    })
}

/// Whether `authority` is `uri-host [":" port]` (RFC 9110 §7.2) with a non-empty host and no user information.
pub fn is_authority(authority: &[u8]) -> bool {
    let (host, port) = split_port(authority);
    let host_is_good = match host {
        [b'[', inside @ .., b']'] => {
            !inside.is_empty()
                && inside
                    .iter()
                    .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
        }
        _ => !host.is_empty() && host.iter().all(|byte| IS_NAME[usize::from(*byte)]),
    };
    host_is_good && port.is_none_or(|port| port.len() <= 5 && port.iter().all(u8::is_ascii_digit))
}

/// Host and port of an authority; the port may be empty (`a:`).
pub fn split_port(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    // Only in brackets can a colon be of the host.
    let from = match authority.first() {
        Some(b'[') => authority
            .iter()
            .rposition(|byte| *byte == b']')
            .unwrap_or(0),
        _ => 0,
    };
    match authority[from..].iter().position(|byte| *byte == b':') {
        Some(at) => (&authority[..from + at], Some(&authority[from + at + 1..])),
        None => (authority, None),
    }
}
