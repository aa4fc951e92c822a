use super::*;

/// Made by `openssl ocsp`: good for seven days, and without an end.
const RESPONSE: &[u8] = include_bytes!("response.der");
const WITHOUT_NEXT: &[u8] = include_bytes!("without_next.der");

#[test]
fn a_response_says_when_the_next_is_due() {
    // 2026-12-07T18:56:42Z
    let until = Staple::Until(Some(1_796_669_802));
    assert_eq!(Staple::read(RESPONSE), Some(until));
    assert_eq!(Staple::read(WITHOUT_NEXT), Some(Staple::Until(None)));
}

#[test]
fn a_response_without_an_account_is_known() {
    // `tryLater`
    let busy = [0x30, 3, 0x0a, 1, 3];
    assert_eq!(Staple::read(&busy), Some(Staple::Unsuccessful));
}

#[test]
fn what_is_no_response_is_none_wherever_it_is_cut() {
    for length in 0..RESPONSE.len() {
        assert_eq!(Staple::read(&RESPONSE[..length]), None, "{length} bytes");
    }
    for bytes in [&b""[..], &[0x30, 0], &[0x30, 3, 0x0a, 1, 0], b"-----BEGIN"] {
        assert_eq!(Staple::read(bytes), None, "{bytes:?}");
    }
    assert_eq!(list_holds_until(RESPONSE), Err(NotACertificate));
}
