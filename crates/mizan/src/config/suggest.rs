//! What was meant: the nearest known word.

/// The word of `known` that `text` is likely a slip of.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if text.len() > 64 {
        return None;
    }
    let lower = text.to_lowercase().replace('-', "_");
    let distance_max = (text.len() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|word| {
            (
                strsim::damerau_levenshtein(&lower, &word.to_lowercase()),
                word,
            )
        })
        .filter(|(distance, word)| *distance <= distance_max && *distance < word.len())
        .min()
        .map(|(_, word)| word)
}

/// Words that other proxies use for a key of this file format.
const MEANT: [(&str, &str); 60] = [
    ("addr", "address"),
    ("addr", "bind"),
    ("address", "bind"),
    ("addresses", "backends"),
    ("algorithm", "policy"),
    ("availability_zone", "zone"),
    ("balance", "policy"),
    ("cluster", "pool"),
    ("connect_timeout", "connect"),
    ("connections_max", "in_flight_max"),
    ("connections_per_ip_max", "connections_per_address_max"),
    ("max_connections_per_ip", "connections_per_address_max"),
    ("max_conns_per_ip", "connections_per_address_max"),
    ("domain", "host"),
    ("domains", "host"),
    ("endpoint", "address"),
    ("endpoints", "backends"),
    ("frontend", "listener"),
    ("hash_balance_factor", "hash_load_bound"),
    ("header_timeout", "header"),
    ("headers", "header"),
    ("healthcheck", "health"),
    ("health_check", "health"),
    ("health_checks", "health"),
    ("healthy_threshold", "rise"),
    ("hostname", "host"),
    ("hosts", "host"),
    ("idle_timeout", "idle"),
    ("lb_policy", "policy"),
    ("listen", "bind"),
    ("locality", "zone"),
    ("max_body", "body_max"),
    ("max_body_size", "body_max"),
    ("max_conns", "connections_max"),
    ("max_conns", "in_flight_max"),
    ("max_connections", "connections_max"),
    ("max_connections", "in_flight_max"),
    ("max_retries", "tries_max"),
    ("max_tries", "tries_max"),
    ("max_in_flight", "in_flight_max"),
    ("maxconn", "connections_max"),
    ("maxconn", "in_flight_max"),
    ("members", "backends"),
    ("methods", "method"),
    ("outlier_detection", "ejection"),
    ("overprovisioning_factor", "overprovisioning"),
    ("port", "bind"),
    ("proxy_pass", "pool"),
    ("retries", "retry"),
    ("servers", "backends"),
    ("service", "pool"),
    ("standby", "backup"),
    ("strategy", "policy"),
    ("target", "pool"),
    ("targets", "backends"),
    ("tier", "priority"),
    ("unhealthy_threshold", "fall"),
    ("upstream", "pool"),
    ("upstreams", "backends"),
    ("url", "address"),
];

/// Words that other proxies use for a value of this file format.
const MEANT_VALUES: [(&str, &str); 28] = [
    ("1.1", "http1"),
    ("2", "http2"),
    ("alpn", "auto"),
    ("datagram", "udp"),
    ("dtls", "udp"),
    ("ewma", "peak_ewma"),
    ("grpc", "http2"),
    ("h1", "http1"),
    ("h2", "http2"),
    ("h2c", "http2"),
    ("hash", "consistent_hash"),
    ("http/1", "http1"),
    ("http/1.1", "http1"),
    ("http/2", "http2"),
    ("ip_hash", "consistent_hash"),
    ("least_conn", "least_connections"),
    ("least_request", "least_connections"),
    ("least_time", "least_response_time"),
    ("leastconn", "least_connections"),
    ("p2c", "power_of_two"),
    ("quic", "udp"),
    ("ring_hash", "consistent_hash"),
    ("rr", "round_robin"),
    ("source", "consistent_hash"),
    ("stream", "tcp"),
    ("uri", "consistent_hash"),
    ("weighted", "weighted_round_robin"),
    ("wrr", "weighted_round_robin"),
];

/// The word of `known` that is meant by `text`: a slip of the pen, or another proxy's word.
pub(super) fn meant_value<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    translated(text, &MEANT_VALUES, known).or_else(|| nearest(text, known.iter().copied()))
}

/// What to use in a pool in place of a limit on connections: with HTTP/1.1 a connection in use is a request.
fn limit_help(key: &str, known: &[&str]) -> Option<&'static str> {
    let is_limit = ["connections_max", "max_connections", "max_conns", "maxconn"].contains(&key);
    (is_limit && known.contains(&"backends") && known.contains(&"keepalive")).then_some(
        "`in_flight_max` of a backend bounds its connections in use, `keepalive.idle_max` those that idle",
    )
}

/// Where a key stands that is known, but not in a table with the keys `known`.
pub(super) fn elsewhere(key: &str, known: &[&str]) -> Option<&'static str> {
    let of_listener = [
        "tunnel",
        "tunnel_idle",
        "session_idle",
        "idle",
        "header",
        "body",
        "send",
    ];
    match key {
        "tls" if known.contains(&"listener") => Some(
            "`[listener.tls]` below a `[[listener]]` is for its clients, `[pool.NAME.tls]` for a pool's backends",
        ),
        _ if of_listener.contains(&key) && known.contains(&"per_try") => {
            Some("it is a time-out of the client's side: `[listener.timeouts]`")
        }
        _ => limit_help(key, known),
    }
}

/// The key of `known` that is meant by `key`: a slip of the pen, or another proxy's word.
pub(super) fn meant_key<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    nearest(key, known.iter().copied()).or_else(|| translated(key, &MEANT, known))
}

/// The first of `known` that another proxy calls `word`.
fn translated<'a>(word: &str, meant: &[(&str, &str)], known: &[&'a str]) -> Option<&'a str> {
    let meant = meant
        .iter()
        .filter(|(other, _)| other.eq_ignore_ascii_case(word));
    meant
        .map(|(_, meant)| *meant)
        .find_map(|meant| known.iter().copied().find(|known| *known == meant))
}
