//! First messages of TLS clients: cut anywhere, and split into other records, they say the same.

use super::{Verdict, cuts, show};
use mizan::client_hello::{HelloError, RECORDS_BYTES_MAX, parse};

/// Panics if one of the promises does not hold for `data`.
pub fn check(data: &[u8]) -> Verdict {
    let whole = parse(data);
    let mut by_pieces = Ok(None);
    for cut in cuts(data) {
        let now = parse(&data[..cut]);
        if by_pieces == Ok(None) {
            by_pieces = now.clone();
        }
        assert_eq!(now, by_pieces, "no final verdict: {}", show(data));
    }
    assert_eq!(whole, by_pieces, "whole, and by pieces: {}", show(data));
    let hello = match whole {
        Ok(Some(hello)) => hello,
        Ok(None) => {
            assert!(data.len() < RECORDS_BYTES_MAX, "waits on: {}", show(data));
            return Verdict::Incomplete;
        }
        Err(_) => return Verdict::Refused,
    };
    if let Some(name) = &hello.server_name {
        assert!(!name.is_empty() && name.len() <= 253, "{name}");
        assert_eq!(*name, name.to_ascii_lowercase());
    }
    if let Some(split) = in_halves(data) {
        let again = parse(&split);
        assert!(
            again == Ok(Some(hello)) || again == Err(HelloError::TooLong),
            "{} became {}",
            show(data),
            show(&split)
        );
    }
    Verdict::Accepted
}

/// The first record as two.
fn in_halves(data: &[u8]) -> Option<Vec<u8>> {
    let (header, rest) = data.split_at_checked(5)?;
    let length = usize::from(u16::from_be_bytes([header[3], header[4]])).min(rest.len());
    let first = length / 2;
    if first == 0 {
        return None;
    }
    let mut split = Vec::new();
    for part in [&rest[..first], &rest[first..length]] {
        split.extend_from_slice(&header[..3]);
        split.extend_from_slice(&u16::try_from(part.len()).ok()?.to_be_bytes());
        split.extend_from_slice(part);
    }
    split.extend_from_slice(&rest[length..]);
    Some(split)
}
