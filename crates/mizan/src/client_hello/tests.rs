use super::*;
use proptest::prelude::*;
use rustls::pki_types::ServerName;
use std::sync::Arc;

/// The first bytes that rustls sends to `name`, offering `alpn`.
fn hello(name: &str, alpn: &[&[u8]]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that the provider has")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("a vector takes all");
    bytes
}

/// The message of `hello` in records of `sizes`, the last of which goes on.
fn in_records(hello: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut rest = &hello[RECORD_HEADER..];
    let mut sizes = sizes.iter().copied();
    let mut bytes = Vec::new();
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(rest.len()).clamp(1, rest.len());
        bytes.extend_from_slice(&[HANDSHAKE_RECORD, 3, 1]);
        bytes.extend_from_slice(&(size as u16).to_be_bytes());
        bytes.extend_from_slice(&rest[..size]);
        rest = &rest[size..];
    }
    bytes
}

#[test]
fn the_name_and_the_protocols_of_a_client_are_read() {
    let bytes = hello("WWW.Example.org", &[b"h2", b"http/1.1"]);
    let found = parse(&bytes).expect("sound").expect("whole");
    assert_eq!(found.server_name.as_deref(), Some("www.example.org"));
    assert_eq!(found.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
}

#[test]
fn a_client_that_names_an_address_has_no_server_name() {
    let found = parse(&hello("192.0.2.1", &[])).expect("sound");
    assert_eq!(found, Some(ClientHello::default()));
}

#[test]
fn what_is_not_tls_is_told_at_its_first_bytes() {
    for bytes in [
        &b"G"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x15\x03\x01\0\x02",
        b"\x16\x02",
        b"\x80\x2e\x01\x03\x01",
        b"\x16\x03\x01\0\x05\x02",
    ] {
        assert_eq!(
            parse(bytes),
            Err(HelloError::NotTls),
            "{}",
            bytes.escape_ascii()
        );
    }
}

#[test]
fn a_hello_that_says_to_be_too_long_is_not_waited_for() {
    let mut bytes = b"\x16\x03\x01\x40\0\x01\0\x40\0".to_vec();
    assert_eq!(parse(&bytes), Err(HelloError::TooLong));
    bytes[8] = 0;
    bytes[7] = 0x3f;
    assert_eq!(parse(&bytes), Ok(None));
    // A record for each byte.
    let tiny = b"\x16\x03\x01\0\x01x".repeat(RECORDS_BYTES_MAX / 6 + 1);
    let tiny = [&b"\x16\x03\x01\0\x04\x01\0\x3f\0"[..], &tiny].concat();
    assert_eq!(parse(&tiny), Err(HelloError::TooLong));
}

#[test]
fn lengths_that_lead_outside_are_malformed() {
    let sound = hello("a.example", &[]);
    // The session identifier's length, with everything else as it is.
    let mut bytes = sound.clone();
    bytes[RECORD_HEADER + 4 + 34] = 255;
    assert!(parse(&bytes).is_err());
    // An empty record.
    let mut bytes = b"\x16\x03\x01\0\0".to_vec();
    bytes.extend_from_slice(&sound);
    assert_eq!(parse(&bytes), Err(HelloError::Malformed));
}

/// What rustls, as a server, makes of `bytes`: the name, if it takes the message.
fn name_by_rustls(bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = rustls::server::Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        acceptor.read_tls(&mut rest).ok()?;
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                return Some(hello.server_name().map(str::to_ascii_lowercase));
            }
            Err(_) => return None,
        }
    }
    None
}

fn any_name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,20}(\\.[a-z][a-z0-9-]{0,20}[a-z0-9]){0,4}"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_hello_is_read_however_it_is_split(
        name in any_name(),
        sizes in prop::collection::vec(1usize..400, 0..6),
        rest in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let whole = hello(&name, &[b"http/1.1"]);
        let mut bytes = in_records(&whole, &sizes);
        let length = bytes.len();
        for cut in 0..length {
            prop_assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {}", cut);
        }
        bytes.extend_from_slice(&rest);
        let found = parse(&bytes).expect("sound").expect("whole");
        prop_assert_eq!(found.server_name.as_deref(), Some(name.as_str()));
        prop_assert_eq!(found.alpn, [b"http/1.1".to_vec()]);
    }

    /// What a TLS server would take must not be read as another name here.
    #[test]
    fn what_a_server_takes_has_the_same_name_here(
        name in any_name(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = hello(&name, &[b"h2"]);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let (Some(theirs), Ok(Some(ours))) = (name_by_rustls(&bytes), parse(&bytes))
            && theirs.is_some()
        {
            prop_assert_eq!(ours.server_name, theirs);
        }
    }

    #[test]
    fn an_error_is_final(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        sizes in prop::collection::vec(1usize..400, 0..4),
    ) {
        let mut bytes = in_records(&hello("a.example", &[]), &sizes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let mut verdict = Ok(None);
        for cut in 0..=bytes.len() {
            let now = parse(&bytes[..cut]);
            if verdict == Ok(None) { verdict = now } else { prop_assert_eq!(&now, &verdict) }
        }
    }
}
