//! The text form of gRPC-Web: base64 in padded pieces, cut anywhere, is what a reader of groups of four reads.

use super::{Verdict, cuts, show};
use mizan::proxy::http2::grpc_web::Decoder;

/// Panics if one of the promises does not hold for `data`.
pub fn check(data: &[u8]) -> Verdict {
    let expected = groups(data);
    let whole = Decoder::default().decode(data);
    let mut decoder = Decoder::default();
    let mut by_pieces = Some(Vec::new());
    let mut from = 0;
    for cut in cuts(data) {
        let piece = decoder.decode(&data[from..cut]);
        by_pieces = by_pieces
            .zip(piece)
            .map(|(so_far, piece)| [so_far, piece].concat());
        if by_pieces.is_none() {
            break;
        }
        from = cut;
    }
    assert_eq!(whole, expected, "whole: {}", show(data));
    assert_eq!(by_pieces, expected, "by pieces: {}", show(data));
    match expected {
        None => Verdict::Refused,
        Some(_) if !data.len().is_multiple_of(4) => Verdict::Incomplete,
        Some(_) => Verdict::Accepted,
    }
}

/// What the whole groups of four say; `None` if one of them says nothing (RFC 4648 §4, §3.5).
fn groups(data: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for group in data.chunks_exact(4) {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 {
            return None;
        }
        let mut bits = 0u32;
        for byte in &group[..4 - padding] {
            bits = bits << 6 | value(*byte)?;
        }
        bits <<= 6 * padding;
        let bytes = &bits.to_be_bytes()[1..];
        if bytes[3 - padding..].iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(&bytes[..3 - padding]);
    }
    Some(out)
}

fn value(byte: u8) -> Option<u32> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let at = alphabet.iter().position(|other| *other == byte)?;
    u32::try_from(at).ok()
}
