use super::*;
use proptest::prelude::*;

#[test]
fn known_times() {
    for (seconds, ms, text) in [
        (0, 0, "1970-01-01T00:00:00.000Z"),
        (951_782_400, 7, "2000-02-29T00:00:00.007Z"),
        (951_868_799, 999, "2000-02-29T23:59:59.999Z"),
        (951_868_800, 0, "2000-03-01T00:00:00.000Z"),
        (1_709_164_800, 250, "2024-02-29T00:00:00.250Z"),
        (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
        (253_402_300_799, 0, "9999-12-31T23:59:59.000Z"),
    ] {
        assert_eq!(
            time_string(Duration::from_secs(seconds) + Duration::from_millis(ms)),
            text
        );
    }
}

#[test]
fn a_kept_second_is_not_kept_too_long() {
    let mut time = TimeText::default();
    let mut out = Vec::new();
    for ms in [999, 1000, 1001, 2000] {
        time.push(&mut out, Duration::from_millis(ms));
    }
    let text = String::from_utf8(out).expect("ASCII");
    assert!(
        text.ends_with(
            "00:00:00.999Z1970-01-01T00:00:01.000Z1970-01-01T00:00:01.001Z1970-01-01T00:00:02.000Z"
        ),
        "{text}"
    );
}

#[test]
fn milliseconds_have_three_decimals() {
    for (us, text) in [
        (0, "0.000"),
        (7, "0.007"),
        (1234, "1.234"),
        (60_000_000, "60000.000"),
    ] {
        let mut out = Vec::new();
        push_ms(&mut out, Duration::from_micros(us));
        assert_eq!(out, text.as_bytes());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_string_that_serde_reads_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut out = Vec::new();
        push_string(&mut out, &bytes);
        let read: String = serde_json::from_slice(&out).expect("valid JSON");
        prop_assert_eq!(read, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn text_is_escaped_as_serde_does_it(text in "[\u{0}-\u{7e}é漢\"\\\\]{0,80}") {
        let mut out = Vec::new();
        push_string(&mut out, text.as_bytes());
        // serde_json shortens two more control characters.
        let expected = serde_json::to_string(&text).expect("a string").replace("\\b", "\\u0008").replace("\\f", "\\u000c");
        prop_assume!(!text.contains('\\'));
        prop_assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
    }

    #[test]
    fn numbers_are_decimal(number in any::<u64>()) {
        let mut out = Vec::new();
        push_number(&mut out, number);
        prop_assert_eq!(out, number.to_string().into_bytes());
    }

    #[test]
    fn days_follow_each_other(day in 0u64..4_000_000) {
        let (one, two) = (civil(day), civil(day + 1));
        prop_assert!(one < two);
        prop_assert!((1..=12).contains(&two.1) && (1..=31).contains(&two.2));
        prop_assert!(two.2 == one.2 + 1 || two.2 == 1);
    }
}
