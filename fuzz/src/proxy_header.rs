//! PROXY headers: cut anywhere, read once, written again in both versions.

use super::{Verdict, cuts, show};
use mizan::proxy_protocol::{HEADER_BYTES_MAX, Peers, parse, write_v1, write_v2};
use std::net::SocketAddr;

/// Panics if one of the promises does not hold for `data`.
pub fn check(data: &[u8]) -> Verdict {
    let whole = parse(data);
    let mut by_pieces = Ok(None);
    for cut in cuts(data) {
        let now = parse(&data[..cut]);
        if by_pieces == Ok(None) {
            by_pieces = now;
        }
        assert_eq!(now, by_pieces, "no final verdict: {}", show(data));
    }
    assert_eq!(whole, by_pieces, "whole, and by pieces: {}", show(data));
    let header = match whole {
        Ok(Some(header)) => header,
        Ok(None) => {
            assert!(data.len() < HEADER_BYTES_MAX, "waits on: {}", show(data));
            return Verdict::Incomplete;
        }
        Err(_) => return Verdict::Refused,
    };
    let (length, peers) = (header.length, header.peers);
    assert!(length <= data.len() && length <= HEADER_BYTES_MAX);
    assert_eq!(parse(&data[..length]), Ok(Some(header)), "{}", show(data));
    assert_eq!(parse(&data[..length - 1]), Ok(None), "{}", show(data));
    for write in [write_v1, write_v2] {
        let mut again = Vec::new();
        write(&mut again, &peers);
        let read = parse(&again).unwrap_or_else(|error| panic!("{error}: {}", show(&again)));
        let read = read.unwrap_or_else(|| panic!("not whole: {}", show(&again)));
        assert_eq!(read.length, again.len());
        assert_eq!(
            named(read.peers),
            named(peers),
            "{} became {}",
            show(data),
            show(&again)
        );
    }
    Verdict::Accepted
}

/// The two addresses, IPv4 however it is written; version 1 has no word for LOCAL.
fn named(peers: Peers) -> Option<(SocketAddr, SocketAddr)> {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    match peers {
        Peers::Known {
            source,
            destination,
        } => Some((plain(source), plain(destination))),
        Peers::Local | Peers::Unknown => None,
    }
}
