use super::*;
use proptest::prelude::*;

fn normal(raw: &str) -> String {
    let (path, odd) = NormalPath::parse(raw.as_bytes()).unwrap();
    assert_eq!(odd, None, "{raw}");
    path.as_str().to_owned()
}

#[test]
fn a_path_in_normal_form_is_borrowed() {
    for raw in [
        "/",
        "/api/users",
        "/a//b/",
        "/file.txt",
        "/.well-known/x",
        "/...",
        "/a..b/",
        "/x%20y",
        "*",
    ] {
        let (path, odd) = NormalPath::parse(raw.as_bytes()).unwrap();
        assert_eq!((path.as_str(), odd), (raw, None));
        if !raw.contains('%') {
            assert!(matches!(path.0, Cow::Borrowed(_)), "{raw} was copied");
        }
    }
}

#[test]
fn unreserved_characters_are_decoded_and_the_others_keep_their_encoding_in_upper_case() {
    assert_eq!(normal("/%61%7Eb%2d%5f"), "/a~b-_");
    assert_eq!(normal("/a%3fb%c3%bc"), "/a%3Fb%C3%BC");
    assert_eq!(normal("/%2541"), "/%2541");
}

#[test]
fn dot_segments_are_removed_in_every_spelling() {
    for (raw, expected) in [
        ("/a/b/c/./../../g", "/a/g"),
        ("/..", "/"),
        ("/../../x", "/x"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a/.", "/a/"),
        ("/a/./b", "/a/b"),
        ("/a//../b", "/a/b"),
        ("/pub/%2e%2e/admin", "/admin"),
        ("/pub/.%2E/admin", "/admin"),
        ("/pub/%2e./admin", "/admin"),
        ("/pub/%2e/x", "/pub/x"),
        ("/a/..?x=/../..", "/"),
    ] {
        assert_eq!(normal(raw), expected, "{raw}");
    }
}

#[test]
fn the_query_is_no_part_of_the_path() {
    assert_eq!(normal("/a?b=%zz/../\\"), "/a");
    assert_eq!(normal("?x"), "/");
    assert_eq!(normal(""), "/");
}

#[test]
fn what_backends_read_differently_is_reported_beside_a_usable_path() {
    for (raw, expected, error) in [
        ("/a%2fb", "/a%2Fb", PathError::EncodedSlash),
        ("/a/..%2Fb", "/a/..%2Fb", PathError::EncodedSlash),
        ("/a\\b", "/a\\b", PathError::Backslash),
        ("/a%5cb", "/a%5Cb", PathError::Backslash),
        ("/a%00b", "/a%00b", PathError::Nul),
        ("/%00/%2F", "/%00/%2F", PathError::Nul),
    ] {
        let (path, odd) = NormalPath::parse(raw.as_bytes()).unwrap();
        assert_eq!((path.as_str(), odd), (expected, Some(error)));
    }
}

#[test]
fn broken_encodings_and_raw_bytes_beyond_ascii_are_errors() {
    for raw in ["/%", "/%4", "/%g1", "/%1g", "/a%2F%+1", "/%%41"] {
        assert_eq!(
            NormalPath::parse(raw.as_bytes()),
            Err(PathError::BadEncoding),
            "{raw}"
        );
    }
    assert_eq!(NormalPath::parse("/ü".as_bytes()), Err(PathError::NotAscii));
    assert_eq!(NormalPath::parse(b"/\xff"), Err(PathError::NotAscii));
}

/// RFC 3986 §5.2.4 word by word, on text that is decoded already.
fn remove_dot_segments_by_the_letter(path: &str) -> String {
    let mut input = path.to_owned();
    let mut output = String::new();
    while !input.is_empty() {
        if input.starts_with("/./") || input == "/." {
            input = format!("/{}", input.get(3..).unwrap_or_default());
        } else if input.starts_with("/../") || input == "/.." {
            input = format!("/{}", input.get(4..).unwrap_or_default());
            output.truncate(output.rfind('/').unwrap_or(0));
        } else {
            let end = input[1..].find('/').map_or(input.len(), |at| at + 1);
            output.push_str(&input[..end]);
            input = input[end..].to_owned();
        }
    }
    output
}

proptest! {
    #[test]
    fn dot_segments_go_as_the_rfc_says(path in "(/|/[.ab]{0,3}){1,8}") {
        prop_assert_eq!(normal(&path), remove_dot_segments_by_the_letter(&path));
    }

    #[test]
    fn encoding_an_unreserved_character_changes_nothing(path in "(/[.a~]{0,3}){1,6}", pick in any::<u64>()) {
        let mut spelled = String::new();
        for (at, character) in path.chars().enumerate() {
            if character != '/' && pick >> (at % 64) & 1 == 1 {
                spelled.push_str(&format!("%{:02x}", u32::from(character)));
            } else {
                spelled.push(character);
            }
        }
        prop_assert_eq!(normal(&spelled), normal(&path));
    }

    #[test]
    fn any_bytes_are_refused_or_come_to_a_form_that_stays(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok((path, odd)) = NormalPath::parse(&raw) {
            let (again, odd_again) = NormalPath::parse(path.as_str().as_bytes()).unwrap();
            prop_assert_eq!(&again, &path);
            prop_assert_eq!(odd_again, odd);
            prop_assert!(path.as_str().is_ascii());
        }
    }
}
