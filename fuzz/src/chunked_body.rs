//! Chunked bodies: the same however they arrive, and the same for another reader.

use super::strict;
use super::{Verdict, cuts, show};
use mizan::h1::chunked::{ChunkError, Chunked, Piece};

/// What a decoder made of its input.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    content: Vec<u8>,
    /// Bytes of the body, framing included.
    length: usize,
    ended: bool,
}

/// Panics if one of the promises does not hold for `data`.
pub fn check(data: &[u8]) -> Verdict {
    let whole = read(data, &[data.len()]);
    let bytewise = read(data, &(1..=data.len()).collect::<Vec<_>>());
    let pieces = read(data, &cuts(data));
    assert_eq!(whole, bytewise, "byte by byte: {}", show(data));
    assert_eq!(whole, pieces, "by pieces: {}", show(data));
    let mut counter = Chunked::default();
    let counted = counter.advance(data);
    let Ok(reading) = whole else {
        assert!(counted.is_err(), "only counting, it passes: {}", show(data));
        return Verdict::Refused;
    };
    assert_eq!(
        counted,
        Ok((reading.length, reading.content.len() as u64)),
        "counting: {}",
        show(data)
    );
    assert_eq!(
        counter.is_ended(),
        reading.ended,
        "counting: {}",
        show(data)
    );
    let other = strict::chunked(data)
        .unwrap_or_else(|what| panic!("taken in spite of: {what}: {}", show(data)));
    if !reading.ended {
        assert_eq!(
            other,
            None,
            "not whole for us, whole for another: {}",
            show(data)
        );
        return Verdict::Incomplete;
    }
    assert_eq!(
        other,
        Some((reading.content, reading.length)),
        "{}",
        show(data)
    );
    Verdict::Accepted
}

/// Feeds `data` in pieces that end at `cuts`.
fn read(data: &[u8], cuts: &[usize]) -> Result<Reading, ChunkError> {
    let mut decoder = Chunked::default();
    let mut reading = Reading {
        content: Vec::new(),
        length: 0,
        ended: false,
    };
    for cut in cuts {
        while reading.length < *cut && !decoder.is_ended() {
            match decoder.next(&data[reading.length..*cut])? {
                Piece::End => break,
                Piece::Framing(length) => {
                    assert!(
                        length > 0,
                        "no progress at {}: {}",
                        reading.length,
                        show(data)
                    );
                    reading.length += length;
                }
                Piece::Data(length) => {
                    assert!(
                        length > 0,
                        "no progress at {}: {}",
                        reading.length,
                        show(data)
                    );
                    reading
                        .content
                        .extend_from_slice(&data[reading.length..reading.length + length]);
                    reading.length += length;
                }
            }
        }
    }
    reading.ended = decoder.is_ended();
    Ok(reading)
}
