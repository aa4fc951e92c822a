use super::*;
use proptest::prelude::*;
use std::time::Duration;

fn time(text: &str) -> Result<Duration, String> {
    Time::read(text).map(|time| time.0)
}

fn bytes(text: &str) -> Result<u64, String> {
    Bytes::read(text).map(|bytes| bytes.0)
}

#[test]
fn durations_have_a_unit_and_may_be_joined() {
    for (text, wanted) in [
        ("0", 0),
        ("0s", 0),
        ("1us", 1_000),
        ("250ms", 250_000_000),
        ("2s", 2_000_000_000),
        ("1.5s", 1_500_000_000),
        ("0.001s", 1_000_000),
        ("1m30s", 90_000_000_000),
        ("2 s", 2_000_000_000),
        ("1d", 86_400_000_000_000),
    ] {
        assert_eq!(time(text), Ok(Duration::from_nanos(wanted)), "{text}");
    }
    for text in [
        "",
        "s",
        "2",
        "2 sec",
        "-1s",
        "1s1m",
        "1s1s",
        "1.2.3s",
        ".5s",
        "1e3s",
        "2ß",
        "9999999999d",
    ] {
        assert!(time(text).is_err(), "{text}");
    }
}

#[test]
fn sizes_have_a_unit() {
    for (text, wanted) in [
        ("0", 0),
        ("512B", 512),
        ("16KiB", 16_384),
        ("10MB", 10_000_000),
        ("1.5GiB", 1_610_612_736),
    ] {
        assert_eq!(bytes(text), Ok(wanted), "{text}");
    }
    for text in ["", "B", "512", "1KiB1B", "-1B", "16 QiB", "99999999TiB"] {
        assert!(bytes(text).is_err(), "{text}");
    }
    assert_eq!(
        BytesOrUnlimited::read("unlimited"),
        Ok(BytesOrUnlimited(None))
    );
}

#[test]
fn a_wrong_unit_names_the_right_one() {
    for (text, meant) in [
        ("2", "`2s`"),
        ("10 sec", "`10s`"),
        ("5minutes", "`5m`"),
        ("1H", "`1h`"),
    ] {
        assert!(
            time(text).is_err_and(|message| message.contains(meant)),
            "{text}: {:?}",
            time(text)
        );
    }
    for (text, meant) in [
        ("512", "`512B`"),
        ("10m", "`10MiB`"),
        ("4kb", "`4KB`"),
        ("1Gi", "`1GiB`"),
    ] {
        assert!(
            bytes(text).is_err_and(|message| message.contains(meant)),
            "{text}: {:?}",
            bytes(text)
        );
    }
}

#[test]
fn a_duration_is_shown_as_it_is_read() {
    for text in [
        "0s", "1us", "250ms", "2s", "75s", "2500ms", "1m", "90s", "1h", "1d",
    ] {
        let read = time(text).expect("a duration");
        assert_eq!(
            time(&show_time(read)),
            Ok(read),
            "{text} is shown as {}",
            show_time(read)
        );
    }
    assert_eq!(show_time(Duration::from_millis(2500)), "2.5s");
    assert_eq!(show_time(Duration::from_secs(75)), "75s");
}

#[test]
fn backends_are_addresses_sockets_or_names() {
    let read = |text| BackendAddress::read(text);
    let ip = |text: &str| BackendAddress::Ip(text.parse().expect("an address"));
    assert_eq!(read("10.0.0.1:8080"), Ok(ip("10.0.0.1:8080")));
    assert_eq!(read("[2001:db8::1]:80"), Ok(ip("[2001:db8::1]:80")));
    assert_eq!(
        read("[::ffff:10.0.0.1]:80"),
        Ok(ip("10.0.0.1:80")),
        "one backend has one spelling"
    );
    assert_eq!(
        read("App.Local:80"),
        Ok(BackendAddress::Name("app.local:80".to_owned()))
    );
    assert_eq!(
        read("my_app:80"),
        Ok(BackendAddress::Name("my_app:80".to_owned()))
    );
    assert_eq!(
        read("unix:/run/a.sock"),
        Ok(BackendAddress::Unix("/run/a.sock".into()))
    );
    for text in [
        "", ":80", "a b:80", "-a:80", "a..b:80", "1.2.3:80", "[::1:80", "unix:", "unix:a", "a:0",
        "http://", "a:80:90",
    ] {
        assert!(read(text).is_err(), "{text}: {:?}", read(text));
    }
}

#[test]
fn a_unix_path_fits_the_kernel() {
    let path = |len: usize| format!("unix:/{}", "a".repeat(len - 1));
    assert!(Bind::read(&path(107)).is_ok());
    assert!(Bind::read(&path(108)).is_err());
}

#[test]
fn networks_may_be_single_addresses() {
    assert_eq!(
        IpNet::read("10.0.0.7").map(|network| network.to_string()),
        Ok("10.0.0.7/32".to_owned())
    );
    assert_eq!(
        IpNet::read("2001:db8::/32").map(|network| network.prefix_len()),
        Ok(32)
    );
    assert!(IpNet::read("10.0.0.7/8").is_err_and(|message| message.contains("`10.0.0.0/8`")));
}

#[test]
fn a_pattern_matches_the_whole_text_also_with_alternatives() {
    let pattern = Pattern::read("/a|/b").expect("a regex");
    assert!(pattern.whole.is_match(b"/a") && pattern.whole.is_match(b"/b"));
    assert!(!pattern.whole.is_match(b"/ax") && !pattern.whole.is_match(b"x/b"));
    assert!(pattern.anywhere.is_match(b"x/b"));
}

#[test]
fn a_pattern_that_would_take_too_much_memory_is_refused() {
    assert!(Pattern::read(r"\w{1000}{1000}").is_err());
}

#[test]
fn a_host_with_a_wildcard_is_kept_without_its_star() {
    use crate::snapshot::route::HostMatch;
    assert_eq!(
        HostMatch::read("*.Example.org"),
        Ok(HostMatch::Wildcard("example.org".to_owned()))
    );
    assert_eq!(
        HostMatch::read("Example.org."),
        Ok(HostMatch::Exact("example.org".to_owned()))
    );
    assert_eq!(
        HostMatch::read("[::1]"),
        Ok(HostMatch::Exact("[::1]".to_owned()))
    );
}

#[test]
fn the_token_is_in_no_message() {
    for token in ["hunter2", "hunter2 hunter2 hunter2"] {
        assert!(check_token(token).is_err_and(|message| !message.contains("hunter2")));
    }
    assert_eq!(check_token("hunter2-hunter2-hunter2"), Ok(()));
}

#[test]
fn formats_have_names_of_their_own() {
    let mut names: Vec<&str> = FORMATS
        .iter()
        .chain(&PLAIN_FORMATS)
        .map(|format| format.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FORMATS.len() + PLAIN_FORMATS.len());
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC{0,40}|[0-9a-z./:*\\[\\]{}%\u{e9}-]{0,40}") {
        for format in FORMATS.iter().chain(&PLAIN_FORMATS) {
            let _ = (format.check)(&text);
        }
    }

    #[test]
    fn every_duration_is_shown_as_it_is_read_to_the_millisecond(millis in 0_u64..1_000_000_000) {
        let wanted = Duration::from_millis(millis);
        prop_assert_eq!(time(&show_time(wanted)), Ok(wanted));
    }
}
