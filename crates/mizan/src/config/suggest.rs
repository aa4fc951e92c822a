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
const MEANT: [(&str, &str); 42] = [
    ("address", "bind"),
    ("addresses", "backends"),
    ("algorithm", "policy"),
    ("balance", "policy"),
    ("cluster", "pool"),
    ("connect_timeout", "connect"),
    ("domain", "host"),
    ("domains", "host"),
    ("endpoint", "address"),
    ("endpoints", "backends"),
    ("frontend", "listener"),
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
    ("max_body", "body_max"),
    ("max_body_size", "body_max"),
    ("max_connections", "connections_max"),
    ("max_retries", "tries_max"),
    ("max_tries", "tries_max"),
    ("max_in_flight", "in_flight_max"),
    ("members", "backends"),
    ("methods", "method"),
    ("outlier_detection", "ejection"),
    ("port", "bind"),
    ("proxy_pass", "pool"),
    ("retries", "retry"),
    ("servers", "backends"),
    ("service", "pool"),
    ("strategy", "policy"),
    ("target", "pool"),
    ("targets", "backends"),
    ("unhealthy_threshold", "fall"),
    ("upstream", "pool"),
    ("upstreams", "backends"),
];

/// The key of `known` that is meant by `key`: a slip of the pen, or another proxy's word.
pub(super) fn meant_key<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    nearest(key, known.iter().copied()).or_else(|| {
        let meant = MEANT
            .iter()
            .filter(|(word, _)| *word == key)
            .map(|(_, meant)| *meant);
        meant
            .into_iter()
            .find_map(|meant| known.iter().copied().find(|known| *known == meant))
    })
}
