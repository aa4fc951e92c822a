use super::*;
use proptest::prelude::*;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn known(source: &str, destination: &str) -> Peers {
    Peers::Known {
        source: address(source),
        destination: address(destination),
    }
}

/// A version 2 header from its thirteenth and fourteenth byte and what follows the length.
fn second(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = V2_SIGNATURE.to_vec();
    bytes.extend_from_slice(&[command, family]);
    bytes.extend_from_slice(&(rest.len() as u16).to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

const FOUR: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 7, 0x9c, 0x40, 0x01, 0xbb];

#[test]
fn version_1_is_read_as_its_text_says() {
    let read = |text: &str| parse(text.as_bytes());
    let header = |peers, length| Ok(Some(Header { peers, length }));
    assert_eq!(
        read("PROXY TCP4 192.0.2.1 198.51.100.7 40000 443\r\nGET /"),
        header(known("192.0.2.1:40000", "198.51.100.7:443"), 45)
    );
    assert_eq!(
        read("PROXY TCP6 2001:DB8::1 ::1 1 0\r\n"),
        header(known("[2001:db8::1]:1", "[::1]:0"), 32)
    );
    assert_eq!(read("PROXY UNKNOWN\r\n"), header(Peers::Unknown, 15));
    assert_eq!(
        read("PROXY UNKNOWN ffff:: whatever 1\r\nx"),
        header(Peers::Unknown, 33)
    );
}

#[test]
fn what_breaks_a_rule_of_version_1_is_refused_by_that_rule() {
    for (text, error) in [
        ("GET / HTTP/1.1\r\n", HeaderError::Missing),
        ("Proxy TCP4 ", HeaderError::Missing),
        ("PROXY\tTCP4", HeaderError::Missing),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n", HeaderError::V1Line),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\rx", HeaderError::V1Line),
        (
            "PROXY TCP4 192.0.2.1\t192.0.2.2 1 2\r\n",
            HeaderError::V1Line,
        ),
        ("PROXY UNKNOWN \0\r\n", HeaderError::V1Line),
        ("PROXY \r\n", HeaderError::V1Family),
        (
            "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
            HeaderError::V1Family,
        ),
        (
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            HeaderError::V1Family,
        ),
        ("PROXY TCP4\r\n", HeaderError::V1Fields),
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            HeaderError::V1Fields,
        ),
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            HeaderError::V1Fields,
        ),
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            HeaderError::V1Fields,
        ),
        (
            "PROXY TCP4  192.0.2.1 192.0.2.2 1\r\n",
            HeaderError::V1Address,
        ),
        (
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            HeaderError::V1Address,
        ),
        ("PROXY TCP4 ::1 ::2 1 2\r\n", HeaderError::V1Address),
        (
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            HeaderError::V1Address,
        ),
        ("PROXY TCP6 fe80::1%1 ::2 1 2\r\n", HeaderError::V1Address),
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            HeaderError::V1Port,
        ),
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            HeaderError::V1Port,
        ),
        (
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            HeaderError::V1Port,
        ),
    ] {
        assert_eq!(parse(text.as_bytes()), Err(error), "{text:?}");
    }
}

#[test]
fn a_version_1_header_is_at_most_107_bytes() {
    let line = |filling: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(filling));
    assert!(matches!(parse(line(91).as_bytes()), Ok(Some(header)) if header.length == 107));
    assert_eq!(parse(line(92).as_bytes()), Err(HeaderError::V1TooLong));
    assert_eq!(parse(line(500).as_bytes()), Err(HeaderError::V1TooLong));
    assert_eq!(parse(&line(92).as_bytes()[..106]), Ok(None));
}

#[test]
fn version_2_is_read_as_its_bytes_say() {
    let read = |bytes: &[u8]| parse(bytes).map(|header| header.map(|header| header.peers));
    let four = known("192.0.2.1:40000", "198.51.100.7:443");
    assert_eq!(read(&second(0x21, 0x11, FOUR)), Ok(Some(four)));
    assert_eq!(read(&second(0x21, 0x12, FOUR)), Ok(Some(four)));
    let mut six = [0; 36];
    (six[0], six[15], six[31], six[33], six[35]) = (0xfd, 1, 2, 80, 81);
    assert_eq!(
        read(&second(0x21, 0x21, &six)),
        Ok(Some(known("[fd00::1]:80", "[::2]:81")))
    );
    assert_eq!(
        read(&second(0x21, 0x31, &[b'/'; 216])),
        Ok(Some(Peers::Unknown))
    );
    assert_eq!(read(&second(0x21, 0x00, b"")), Ok(Some(Peers::Unknown)));
    // LOCAL: whatever else it says is passed over.
    assert_eq!(read(&second(0x20, 0x00, b"")), Ok(Some(Peers::Local)));
    assert_eq!(read(&second(0x20, 0x11, FOUR)), Ok(Some(Peers::Local)));
    assert_eq!(read(&second(0x20, 0x7f, b"\x01")), Ok(Some(Peers::Local)));
}

#[test]
fn what_breaks_a_rule_of_version_2_is_refused_by_that_rule() {
    let with = |tail: &[u8]| [FOUR, tail].concat();
    for (bytes, error) in [
        (b"\r\n\r\n\0\r\nQUIX".to_vec(), HeaderError::Missing),
        (second(0x11, 0x11, FOUR), HeaderError::V2Version),
        (second(0x31, 0x11, FOUR), HeaderError::V2Version),
        (second(0x22, 0x11, FOUR), HeaderError::V2Command),
        (second(0x2f, 0x11, FOUR), HeaderError::V2Command),
        (second(0x21, 0x10, FOUR), HeaderError::V2Family),
        (second(0x21, 0x13, FOUR), HeaderError::V2Family),
        (second(0x21, 0x41, FOUR), HeaderError::V2Family),
        (second(0x21, 0x01, FOUR), HeaderError::V2Family),
        (second(0x21, 0x11, &FOUR[..11]), HeaderError::V2TooShort),
        (second(0x21, 0x21, FOUR), HeaderError::V2TooShort),
        (second(0x21, 0x31, FOUR), HeaderError::V2TooShort),
        (second(0x21, 0x11, &[0; 2033]), HeaderError::V2TooLong),
        (second(0x20, 0x11, &[0; 2033]), HeaderError::V2TooLong),
        (second(0x21, 0x11, &with(b"\x04\0")), HeaderError::V2Tlv),
        (
            second(0x21, 0x11, &with(b"\x04\0\x02x")),
            HeaderError::V2Tlv,
        ),
        (
            second(0x21, 0x11, &with(b"\x03\0\x04abcd")),
            HeaderError::V2Checksum,
        ),
        (
            second(0x21, 0x11, &with(b"\x03\0\x03abc")),
            HeaderError::V2Checksum,
        ),
    ] {
        assert_eq!(parse(&bytes), Err(error), "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_checksum_covers_the_whole_header() {
    // The check value of CRC32c for "123456789"; the hole lies outside.
    assert_eq!(crc32c(b"123456789", 100), 0xe306_9283);
    let mut bytes = second(
        0x21,
        0x11,
        &[FOUR, b"\x05\0\x02id\x03\0\x04\0\0\0\0"].concat(),
    );
    let value = bytes.len() - 4;
    let sum = crc32c(&bytes, value);
    bytes[value..].copy_from_slice(&sum.to_be_bytes());
    assert!(matches!(parse(&bytes), Ok(Some(_))));
    for at in (16..28).chain(value..bytes.len()) {
        let mut broken = bytes.clone();
        broken[at] ^= 1;
        assert_eq!(parse(&broken), Err(HeaderError::V2Checksum), "byte {at}");
    }
}

#[test]
fn addresses_of_two_families_are_written_as_ipv6() {
    let mut text = Vec::new();
    write_v1(&mut text, &known("192.0.2.1:1", "[2001:db8::1]:2"));
    assert_eq!(text, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n");
    text.clear();
    write_v1(&mut text, &known("[::ffff:192.0.2.1]:1", "192.0.2.2:2"));
    assert_eq!(text, b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        any::<[u8; 4]>().prop_map(|octets| IpAddr::V6(Ipv4Addr::from(octets).to_ipv6_mapped())),
    ];
    (ip, any::<u16>()).prop_map(SocketAddr::from)
}

fn any_peers() -> impl Strategy<Value = Peers> {
    prop_oneof![
        Just(Peers::Local),
        Just(Peers::Unknown),
        (any_address(), any_address()).prop_map(|(source, destination)| Peers::Known {
            source,
            destination
        }),
    ]
}

/// The same whichever way an IPv4 address is written.
fn canonical(peers: Peers) -> Peers {
    let same = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    match peers {
        Peers::Known {
            source,
            destination,
        } => Peers::Known {
            source: same(source),
            destination: same(destination),
        },
        other => other,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(peers in any_peers(), rest in any::<Vec<u8>>()) {
        for write in [write_v1, write_v2] {
            let mut bytes = Vec::new();
            write(&mut bytes, &peers);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            }
            bytes.extend_from_slice(&rest);
            let header = parse(&bytes).expect("sound").expect("whole");
            prop_assert_eq!(header.length, length);
            let is_text = bytes[0] == b'P';
            let expected = if is_text && peers == Peers::Local { Peers::Unknown } else { peers };
            prop_assert_eq!(canonical(header.peers), canonical(expected));
        }
    }

    #[test]
    fn an_error_is_final_and_a_header_ends_where_it_ends(
        peers in any_peers(),
        second in any::<bool>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        if second { write_v2(&mut bytes, &peers) } else { write_v1(&mut bytes, &peers) };
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.extend_from_slice(b"\r\nGET / HTTP/1.1\r\n\r\n");
        let mut verdict = Ok(None);
        for cut in 0..=bytes.len() {
            let now = parse(&bytes[..cut]);
            if verdict == Ok(None) { verdict = now } else { prop_assert_eq!(now, verdict) }
            if let Ok(Some(header)) = now { prop_assert!(header.length <= cut) }
        }
    }
}
