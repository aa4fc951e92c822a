use super::*;

const NOW: Duration = Duration::from_secs(1_900_000_000);

fn tickets(secrets: &[&[u8]], auth: u8) -> SharedTickets {
    let secrets: Vec<Vec<u8>> = secrets.iter().map(|secret| secret.to_vec()).collect();
    SharedTickets::new(&secrets, &[auth; 32]).expect("keys")
}

#[test]
fn what_was_encrypted_is_decrypted_by_any_key_of_the_file_and_by_no_other() {
    let ticket = tickets(&[&[1; 32]], 0).encrypt_at(b"session", NOW);
    let ticket = ticket.expect("a ticket");
    let opened = |keys: &SharedTickets| keys.decrypt_at(&ticket, NOW);
    let rotated = tickets(&[&[2; 32], &[1; 32]], 0);
    assert_eq!(opened(&rotated).as_deref(), Some(&b"session"[..]));
    assert_eq!(opened(&tickets(&[&[2; 32]], 0)), None);
    assert_eq!(
        opened(&tickets(&[&[1; 32]], 9)),
        None,
        "other client authentication"
    );
}

#[test]
fn a_ticket_is_good_for_twelve_hours() {
    let keys = tickets(&[&[1; 32]], 0);
    let ticket = keys.encrypt_at(b"session", NOW).expect("a ticket");
    assert!(keys.decrypt_at(&ticket, NOW + LIFETIME).is_some());
    let later = NOW + LIFETIME + Duration::from_secs(1);
    assert_eq!(keys.decrypt_at(&ticket, later), None);
    let behind = NOW - Duration::from_secs(60);
    assert!(
        keys.decrypt_at(&ticket, behind).is_some(),
        "a clock that is behind"
    );
}

#[test]
fn no_two_tickets_are_alike_and_none_survives_a_change() {
    let keys = tickets(&[&[1; 32]], 0);
    let one = keys.encrypt_at(b"session", NOW).expect("a ticket");
    assert_ne!(keys.encrypt_at(b"session", NOW), Some(one.clone()));
    for at in 0..one.len() {
        let mut changed = one.clone();
        changed[at] ^= 1;
        assert_eq!(keys.decrypt_at(&changed, NOW), None, "byte {at}");
        assert_eq!(keys.decrypt_at(&one[..at], NOW), None, "length {at}");
    }
}

#[test]
fn keys_are_lines_of_base64_or_hex() {
    let hex = "AB".repeat(32);
    let base64 = BASE64.encode(&[7; 48]);
    let text = format!("# the new one\n{base64}\n\n  {hex}  \n");
    let secrets = read_secrets(text.as_bytes()).expect("two keys");
    assert_eq!(secrets, [vec![7; 48], vec![0xab; 32]]);
    let short = read_secrets(b"abcd\n").expect_err("too short");
    assert!(!short.contains("abcd"), "a key is not shown: {short}");
    assert!(read_secrets(&[0xff; 48]).is_err());
    let many = format!("{hex}\n").repeat(KEYS_MAX + 1);
    assert!(read_secrets(many.as_bytes()).is_err());
}
