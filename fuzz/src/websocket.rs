//! WebSocket frames: wherever a close is put, it is between two of them.

use super::{Verdict, cuts, show};
use mizan::websocket::{CloseCode, Frames, close_frame};

/// Panics if one of the promises does not hold for `data`.
pub fn check(data: &[u8]) -> Verdict {
    let (ends, is_sound) = frames(data);
    let mut followed = Frames::default();
    let mut from = 0;
    for cut in cuts(data) {
        let read = followed.advance(&data[from..cut]);
        from = cut;
        if read.is_err() {
            assert!(!is_sound, "refused: {}", show(data));
            return Verdict::Refused;
        }
        let is_end = cut == 0 || ends.contains(&cut);
        let why = || format!("{cut} bytes of {}", show(data));
        assert_eq!(followed.is_at_boundary(), is_end, "{}", why());
        let closed = ends.iter().filter(|end| **end <= cut);
        let mut begin = 0;
        let mut is_closed = false;
        for end in closed {
            is_closed |= data[begin] & 0x0f == 8;
            begin = *end;
        }
        assert_eq!(followed.is_closed(), is_closed, "{}", why());
        if let Some(place) = place(&followed, &data[cut..]) {
            put(data, &ends, cut + place);
        }
    }
    match (is_sound, ends.last().copied().unwrap_or(0) == data.len()) {
        (false, _) => panic!("taken: {}", show(data)),
        (true, true) => Verdict::Accepted,
        (true, false) => Verdict::Incomplete,
    }
}

/// Where the frame that is under way ends in what follows: a close goes there.
fn place(frames: &Frames, rest: &[u8]) -> Option<usize> {
    if frames.is_at_boundary() {
        return Some(0);
    }
    let mut frames = frames.clone();
    let length = frames.next(rest).ok()?;
    frames.is_at_boundary().then_some(length)
}

/// With a close at `at`, another reader sees the frames before it, then the close, then those behind it.
fn put(data: &[u8], ends: &[usize], at: usize) {
    for (code, key) in [
        (CloseCode::ServiceRestart, None),
        (CloseCode::GoingAway, Some([9, 8, 7, 6])),
    ] {
        let close = close_frame(code, key);
        let with = [&data[..at], &close, &data[at..]].concat();
        let (seen, _) = frames(&with);
        let before = ends.iter().filter(|end| **end <= at).copied();
        let behind = ends.iter().filter(|end| **end > at);
        let expected: Vec<usize> = before
            .chain([at + close.len()])
            .chain(behind.map(|end| end + close.len()))
            .collect();
        assert_eq!(seen, expected, "a close at {at} of {}", show(data));
    }
}

/// Where the frames end, up to the first that is none; whether there is none such (RFC 6455 §5.2, §5.5).
fn frames(data: &[u8]) -> (Vec<usize>, bool) {
    let (mut ends, mut at) = (Vec::new(), 0);
    loop {
        match frame(&data[at..]) {
            Ok(Some(length)) => at += length,
            Ok(None) => return (ends, true),
            Err(()) => return (ends, false),
        }
        ends.push(at);
    }
}

/// The length of the frame that begins here; `None`: it is not whole.
fn frame(bytes: &[u8]) -> Result<Option<usize>, ()> {
    let [first, second, ..] = bytes else {
        return Ok(None);
    };
    let key = if second & 0x80 == 0 { 0 } else { 4 };
    let (header, length) = match second & 0x7f {
        126 => match bytes.get(2..4) {
            Some(length) => (4, u64::from(length[0]) << 8 | u64::from(length[1])),
            None => return Ok(None),
        },
        127 => match bytes.get(2..10) {
            Some(length) => (
                10,
                length
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
            ),
            None => return Ok(None),
        },
        length => (2, u64::from(length)),
    };
    if bytes.len() < header + key {
        return Ok(None);
    }
    let is_control = first & 0x08 != 0;
    if length >> 63 == 1 || (is_control && (first & 0x80 == 0 || second & 0x7f > 125)) {
        return Err(());
    }
    let rest = (bytes.len() - header - key) as u64;
    Ok((rest >= length).then(|| header + key + length as usize))
}
