use super::*;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name = DistinguishedName::new();
    change(&mut params);
    params.self_signed(&key).expect("signed").der().to_vec()
}

fn common_name(name: &str) -> Vec<u8> {
    certificate(|params| params.distinguished_name.push(DnType::CommonName, name))
}

#[test]
fn a_subject_is_told_with_its_most_specific_part_first() {
    let der = certificate(|params| {
        let name = &mut params.distinguished_name;
        name.push(DnType::CountryName, "DE");
        name.push(DnType::OrganizationName, "Example, Inc.");
        name.push(DnType::CommonName, "alice");
    });
    let identity = Identity::read(&der).expect("a certificate");
    assert_eq!(identity.subject, r"CN=alice,O=Example\, Inc.,C=DE");
    assert_eq!(identity.san, "");
}

#[test]
fn nothing_in_a_name_can_end_a_header_or_begin_another_name() {
    for (name, told) in [
        ("a\r\nX-Admin: 1", r"CN=a\0D\0AX-Admin: 1"),
        ("a,CN=root", r"CN=a\,CN=root"),
        (" #a ", r"CN=\ #a\ "),
        ("#a", r"CN=\#a"),
        ("é", r"CN=\C3\A9"),
        ("a\\\"+;<>", r#"CN=a\\\"\+\;\<\>"#),
    ] {
        let identity = Identity::read(&common_name(name)).expect("a certificate");
        assert_eq!(identity.subject, told);
    }
}

#[test]
fn an_attribute_without_a_short_name_is_told_by_its_number() {
    let der = certificate(|params| {
        let kind = DnType::CustomDnType(vec![1, 2, 3, 4]);
        params.distinguished_name.push(kind, "ab");
    });
    let identity = Identity::read(&der).expect("a certificate");
    assert_eq!(identity.subject, "1.2.3.4=#6162");
}

#[test]
fn alternative_names_are_a_list_that_no_name_can_lengthen() {
    let der = certificate(|params| {
        params.subject_alt_names = vec![
            SanType::DnsName("a.example".try_into().expect("ASCII")),
            SanType::URI("spiffe://e/a, DNS:root".try_into().expect("ASCII")),
            SanType::IpAddress("2001:db8::1".parse().expect("an address")),
            SanType::Rfc822Name("a@b.example".try_into().expect("ASCII")),
        ];
    });
    let identity = Identity::read(&der).expect("a certificate");
    assert_eq!(
        identity.san,
        r"DNS:a.example, URI:spiffe://e/a\, DNS:root, IP:2001:db8::1, email:a@b.example"
    );
    assert_eq!(
        Facts::read(&der).expect("a certificate").names,
        ["a.example", "2001:db8::1"]
    );
}

#[test]
fn the_fingerprint_is_that_of_the_whole_certificate() {
    let der = common_name("a");
    let identity = Identity::read(&der).expect("a certificate");
    assert_eq!(identity.fingerprint, HEXLOWER.encode(&sha256(&der)));
    assert_eq!(identity.fingerprint.len(), 64);
}

#[test]
fn what_is_no_certificate_is_refused_and_nothing_may_follow_one() {
    assert_eq!(Identity::read(b"hello"), Err(NotACertificate));
    let mut der = common_name("a");
    der.push(0);
    assert_eq!(Facts::read(&der), Err(NotACertificate));
    for length in 0..der.len() - 1 {
        assert_eq!(Facts::read(&der[..length]), Err(NotACertificate));
    }
}
