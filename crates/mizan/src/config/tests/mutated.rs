//! No text makes the compiler panic, and what it tells is always inside the text.

use super::*;
use proptest::prelude::*;

const FULL: &str = include_str!("../../../../../examples/full.toml");

/// Pieces that are likely to be read wrongly.
const PIECES: [&str; 24] = [
    "=",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "\"",
    "'",
    "\"\"\"",
    "\n",
    "#",
    ",",
    ".",
    "-1",
    "0",
    "99999999999999999999",
    "é",
    "\u{0}",
    "inf",
    "true",
    "\"${X}\"",
    "\"unix:\"",
    "[[route]]\n",
];

/// Changes `text` at some places: cuts, doubles, moves and puts in.
fn mutated(text: &str, changes: &[(usize, usize, usize)]) -> String {
    let mut text = text.to_owned();
    for (at, len, what) in changes {
        let start = text.floor_char_boundary(at % (text.len() + 1));
        let end = text.ceil_char_boundary((start + len).min(text.len()));
        match what % (PIECES.len() + 2) {
            0 => text.replace_range(start..end, ""),
            1 => text = format!("{}{}", &text[..end], &text[start..]),
            piece => text.replace_range(start..end, PIECES[piece - 2]),
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_file_is_compiled_or_refused_but_never_a_panic(
        changes in proptest::collection::vec((0_usize..10_000, 0_usize..30, 0_usize..1_000), 1..6)
    ) {
        let source = Source::new("lb.toml", mutated(FULL, &changes));
        let sources = [source];
        let found = match compile(&sources, None, &no_names, Instant::default(), 1) {
            Ok((_, found)) | Err(found) => found,
        };
        for one in &found {
            prop_assert!(sources[0].text.get(one.span.clone()).is_some(), "{one:?}");
            prop_assert_ne!(one.code, "internal", "{}", one);
            prop_assert!(!one.render(&sources).is_empty());
        }
    }

    #[test]
    fn any_text_at_all_is_refused_without_a_panic(text in "[\\[\\]{}=\"'#,.\\na-z0-9é\\\\ ]{0,200}") {
        let _ = compile_text(&text);
    }
}

#[test]
fn the_full_file_compiles_so_that_mutations_start_from_something_right() {
    let (snapshot, _) =
        compile_text(FULL).unwrap_or_else(|found| panic!("{}", lines(&found).join("\n")));
    assert_eq!(snapshot.pools.len(), 5);
}
