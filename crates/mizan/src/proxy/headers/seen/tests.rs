use super::*;
use crate::certificate::Identity;
use crate::h1::line::Lines;
use crate::h1::request::{self, Limits};
use crate::proxy::headers::write_request;
use crate::snapshot::IdentityHeaders;
use crate::snapshot::route::HeaderEdits;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const LIMITS: Limits = Limits {
    headers_max: 100,
    target_bytes_max: 8192,
};

/// Names that a client may send and a route may ask for, however they are spelt.
const NAMES: [&str; 18] = [
    "x-user",
    "x_user",
    "host",
    "via",
    "forwarded",
    "x-forwarded-for",
    "x_forwarded_for",
    "x-forwarded-proto",
    "x-forwarded_proto",
    "x-forwarded-host",
    "x-real-ip",
    "x_real-ip",
    "x-upstream",
    "verified",
    "client-subject",
    "client_subject",
    "ssl_san",
    "ssl-san",
];

fn names() -> IdentityHeaders {
    IdentityHeaders {
        verified: Some("verified".to_owned()),
        subject: Some("client-subject".to_owned()),
        san: Some("ssl_san".to_owned()),
        fingerprint: None,
    }
}

fn alice() -> Identity {
    Identity {
        subject: "CN=alice".to_owned(),
        san: "DNS:alice.example".to_owned(),
        fingerprint: "00".to_owned(),
    }
}

/// The first line of `name` in a head.
fn first(bytes: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut lines = Lines::new();
    let head = request::parse(bytes, &mut lines, LIMITS)
        .expect("a good head")
        .expect("a whole head");
    let mut lines = head.lines.iter();
    let line = lines.find(|line| line.is(name))?;
    Some(line.value.to_vec())
}

proptest! {
    /// Whoever asks by a route for what the backend would not get asks for a client's bare word.
    #[test]
    fn a_route_sees_what_the_backend_gets(
        sent in subsequence(NAMES.to_vec(), 0..10).prop_shuffle(),
        listed in subsequence(vec!["x-user", "x-real-ip", "verified", "x-forwarded-for", "via"], 0..3),
        (trusted, secure, asks, shown) in any::<(bool, bool, bool, bool)>(),
        absolute in any::<bool>(),
        asked in select(NAMES.to_vec()),
    ) {
        let target = if absolute { "http://b.example/" } else { "/" };
        let mut text = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n");
        for name in sent.iter().filter(|name| **name != "host") {
            text += &format!("{name}: the {name} of the client\r\n");
        }
        if !listed.is_empty() {
            text += &format!("Connection: {}\r\n", listed.join(", "));
        }
        text += "\r\n";
        let mut lines = Lines::new();
        let head = request::parse(text.as_bytes(), &mut lines, LIMITS)
            .expect("a good head")
            .expect("a whole head");
        let (names, alice) = (names(), alice());
        let reserved: Vec<Box<str>> = names.names().map(Box::from).collect();
        let forwarding = Forwarding {
            peer: b"192.0.2.7",
            trusted,
            secure,
            http2: false,
            reserved: &reserved,
            identity: asks.then_some((&names, shown.then_some(&alice))),
            upgrade: None,
            random: (1, 2),
        };
        let mut written = Vec::new();
        write_request(&mut written, &head, head.target, &HeaderEdits::default(), &forwarding);
        let seen = seen(&head, asked, &forwarding).map(Cow::into_owned);
        let made = asked == "via" && seen.is_none();
        prop_assert!(made || seen == first(&written, asked), "{asked}: {seen:?}");
    }
}

#[test]
fn an_identifier_counts_only_if_it_is_passed_on() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: no good\r\nX-Request-Id: r-1\r\nTraceparent: 00-1\r\n\r\n";
    let mut lines = Lines::new();
    let head = request::parse(text, &mut lines, LIMITS)
        .expect("a good head")
        .expect("a whole head");
    let forwarding = Forwarding {
        peer: b"192.0.2.7",
        trusted: false,
        secure: false,
        http2: false,
        reserved: &[],
        identity: None,
        upgrade: None,
        random: (1, 2),
    };
    let value = |name| seen(&head, name, &forwarding);
    assert_eq!(value("x-request-id").as_deref(), Some(&b"r-1"[..]));
    assert_eq!(value("traceparent"), None);
}
