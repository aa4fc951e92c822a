//! The field lines of a head, split and checked in one pass over the bytes (RFC 9110 §5, RFC 9112 §5).

use super::field::{self, Field};
use super::{FIELDS_MAX, HeadError};
use arrayvec::ArrayVec;

/// Most members that `Connection` may have over all its lines, empty ones too: each field of the head is looked for
/// among them.
const OPTIONS_MAX: usize = 32;

/// One field line.
#[derive(Clone, Copy, Debug)]
pub struct Line<'b> {
    /// A token.
    pub name: &'b [u8],
    /// Without the white space around it; no control byte but a tab is in it.
    pub value: &'b [u8],
    /// What the name means.
    pub field: Field,
    /// Where the line begins in the head.
    pub(crate) at: usize,
    /// Its length there, line end included.
    pub(crate) length: usize,
}

impl Line<'_> {
    /// Whether the name is `name`, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Room for a head's lines.
pub type Lines<'b> = ArrayVec<Line<'b>, FIELDS_MAX>;

/// What `Connection` says; the names that it lists stay where they are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    close: bool,
    keep_alive: bool,
    has_names: bool,
    members: usize,
}

impl Options {
    /// Adds the options of one `Connection` line.
    ///
    /// # Errors
    /// If there are more than anybody needs.
    pub(super) fn note(&mut self, value: &[u8]) -> Result<(), HeadError> {
        self.members += 1 + value.iter().filter(|byte| **byte == b',').count();
        if self.members > OPTIONS_MAX {
            return Err(HeadError::ConnectionOptions);
        }
        for option in field::list(value) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else {
                self.has_names = true;
            }
        }
        Ok(())
    }

    /// Whether the connection goes on after the exchange (RFC 9112 §9.3).
    pub(super) fn keeps(self, version: super::Version) -> bool {
        !self.close && (version == super::Version::Http11 || self.keep_alive)
    }

    /// Whether one of `lines` lists `name` as a field of this hop only.
    pub(super) fn lists(self, lines: &[Line<'_>], name: &[u8]) -> bool {
        self.has_names
            && lines
                .iter()
                .filter(|line| line.field == Field::Connection)
                .flat_map(|line| field::list(line.value))
                .any(|option| option.eq_ignore_ascii_case(name))
    }
}

/// Reads the lines of `bytes` from `at` to the empty one into `lines`. The head's length, or `None` while the empty
/// line is not there.
///
/// # Errors
/// The first rule that a line breaks; [`HeadError::TooManyFields`] beyond `most`.
pub(crate) fn read<'b>(
    bytes: &'b [u8],
    mut at: usize,
    lines: &mut Lines<'b>,
    most: usize,
) -> Result<Option<usize>, HeadError> {
    loop {
        let rest = &bytes[at..];
        let name = token_length(rest);
        match rest.get(name) {
            Some(b':') if name > 0 => {}
            Some(b'\r') if name == 0 => match rest.get(1) {
                None => return Ok(None),
                Some(b'\n') => return Ok(Some(at + 2)),
                Some(_) => return Err(HeadError::Field),
            },
            None => return Ok(None),
            Some(b'\n') => return Err(HeadError::BareLf),
            Some(_) => return Err(HeadError::Field),
        }
        let mut start = name + 1;
        while matches!(rest.get(start), Some(b' ' | b'\t')) {
            start += 1;
        }
        let Some(end) = line_end(rest, start)? else {
            return Ok(None);
        };
        let mut value = &rest[start..end];
        while let [before @ .., b' ' | b'\t'] = value {
            value = before;
        }
        let length = end + 2;
        let line = Line {
            name: &rest[..name],
            value,
            field: field::classify(&rest[..name]),
            at,
            length,
        };
        if lines.len() >= most || lines.try_push(line).is_err() {
            return Err(HeadError::TooManyFields);
        }
        at += length;
    }
}

/// Where the CRLF stands that ends the line, looking from `start`; `None` while it is not there.
///
/// # Errors
/// A control byte before it.
pub(super) fn line_end(bytes: &[u8], start: usize) -> Result<Option<usize>, HeadError> {
    let mut at = start;
    loop {
        at += control_at(&bytes[at..]);
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b'\t'), _) => at += 1,
            (Some(b'\r'), Some(b'\n')) => return Ok(Some(at)),
            (None, _) | (Some(b'\r'), None) => return Ok(None),
            (Some(b'\n'), _) => return Err(HeadError::BareLf),
            (Some(_), _) => return Err(HeadError::Field),
        }
    }
}

/// How many token bytes (RFC 9110 §5.6.2) `bytes` begins with.
pub(crate) fn token_length(bytes: &[u8]) -> usize {
    let others = |byte: &u8| !field::IS_TOKEN[usize::from(*byte)];
    bytes.iter().position(others).unwrap_or(bytes.len())
}

/// The position of the first control byte (below 0x20, or DEL), or the length. Eight bytes at a time: the lowest
/// byte that the classic tests for "a byte less than n" mark is one, though those above it may be marked wrongly.
fn control_at(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let below_space = word.wrapping_sub(ONES * 0x20) & !word;
        let no_del = word ^ (ONES * 0x7f);
        let marked = (below_space | (no_del.wrapping_sub(ONES) & !no_del)) & (ONES * 0x80);
        if marked != 0 {
            return index * 8 + marked.trailing_zeros() as usize / 8;
        }
    }
    let in_rest = rest
        .iter()
        .position(|byte| *byte < 0x20 || *byte == 0x7f)
        .unwrap_or(rest.len());
    words.len() * 8 + in_rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_control_byte_is_found_wherever_it_stands(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let by_byte = bytes.iter().position(u8::is_ascii_control).unwrap_or(bytes.len());
            prop_assert_eq!(control_at(&bytes), by_byte);
        }

        #[test]
        fn text_with_one_control_byte_has_it_found(
            mut bytes in prop::collection::vec(0x20u8..=0xff, 1..64),
            control in prop::sample::select(vec![0u8, 9, 10, 13, 31, 127]),
            at in any::<prop::sample::Index>(),
        ) {
            let at = at.index(bytes.len());
            bytes[at] = control;
            let by_byte = bytes.iter().position(u8::is_ascii_control);
            prop_assert_eq!(Some(control_at(&bytes)), by_byte);
        }
    }
}
