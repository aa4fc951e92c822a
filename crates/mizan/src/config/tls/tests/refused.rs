//! What is said of files that are not as they should be.

use super::pki::{Pki, Wish};
use super::{compiled, found, listener, pool, told};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

const ONE: &str = "certificates = [{ cert = \"a.pem\", key = \"a.key\" }]";
const CERT: &str = "listener[0].tls.certificates[0].cert";
const KEY: &str = "listener[0].tls.certificates[0].key";

fn with_one() -> Pki {
    let pki = Pki::new();
    pki.issue("a", Wish::of(&["a.example"]));
    pki
}

/// The only thing that is said of it, without the folder.
fn only(pki: &Pki, text: &str) -> String {
    let found = found(pki, text);
    assert_eq!(found.len(), 1, "{found:#?}");
    let folder = pki.write("x", "").parent().expect("a folder").to_owned();
    found[0].replace(&format!("{}/", folder.display()), "")
}

#[test]
fn a_missing_file_is_told_at_its_key_and_all_of_them_at_once() {
    let pki = Pki::new();
    let found = found(&pki, &listener(ONE));
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].contains("a.pem` cannot be read: No such file"));
    assert!(found[1].contains("a.key` cannot be read: No such file"));
}

#[test]
fn a_file_without_what_is_wanted_says_what_it_holds_instead() {
    let pki = with_one();
    let swapped = "certificates = [{ cert = \"a.key\", key = \"a.pem\" }]";
    let all = compiled(&pki, &listener(swapped), None).expect_err("refused");
    let told = told(&all);
    assert!(
        told[0].starts_with(&format!("error {CERT}: "))
            && told[0].ends_with("holds no certificate")
    );
    assert!(
        told[1].starts_with(&format!("error {KEY}: ")) && told[1].ends_with("holds no private key")
    );
    for one in &all {
        assert!(
            one.help
                .as_ref()
                .is_some_and(|help| help.contains("swapped")),
            "{one:?}"
        );
    }
    pki.write("a.pem", [0x30, 0x82, 1, 1]);
    let all = compiled(&pki, &listener(ONE), None).expect_err("refused");
    assert!(
        all[0]
            .help
            .as_ref()
            .is_some_and(|help| help.contains("DER"))
    );
    pki.write(
        "a.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    assert!(only(&pki, &listener(ONE)).contains("certificate 1 of `a.pem` cannot be read"));
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let pki = with_one();
    pki.issue("b", Wish::of(&["b.example"]));
    let text = listener("certificates = [{ cert = \"a.pem\", key = \"b.key\" }]");
    let expected = format!("error {KEY}: this key does not belong to the certificate");
    assert_eq!(only(&pki, &text), expected);
}

#[test]
fn a_chain_that_begins_with_the_root_says_which_one_must_come_first() {
    let pki = with_one();
    let pem = pki.read("a.pem");
    let (leaf, root) = pem.split_once("-----END CERTIFICATE-----").expect("two");
    pki.write(
        "a.pem",
        format!("{}{leaf}-----END CERTIFICATE-----\n", root.trim_start()),
    );
    let all = compiled(&pki, &listener(ONE), None).expect_err("refused");
    let key = all
        .iter()
        .find(|one| one.code == "key_mismatch")
        .expect("told");
    let help = key.help.as_deref().expect("help");
    assert!(help.contains("certificate 2 of the file"), "{help}");
}

#[test]
fn an_encrypted_key_is_told_as_such() {
    for text in [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
    ] {
        let pki = with_one();
        pki.write("a.key", text);
        let told = only(&pki, &listener(ONE));
        assert!(
            told.starts_with(&format!("error {KEY}: this private key is encrypted")),
            "{told}"
        );
    }
}

#[test]
fn keys_of_pkcs8_pkcs1_and_sec1_are_read() {
    let pki = Pki::new();
    for (name, wish, label) in [
        ("rsa", Wish::of(&["a.example"]).rsa(), "RSA PRIVATE KEY"),
        ("ec", Wish::of(&["a.example"]), "EC PRIVATE KEY"),
    ] {
        pki.issue(name, wish);
        let text = listener(&format!(
            "certificates = [{{ cert = \"{name}.pem\", key = \"{name}.key\" }}]"
        ));
        assert!(found(&pki, &text).is_empty(), "PKCS#8");
        let file = format!("{name}.key");
        let key = PrivateKeyDer::from_pem_slice(pki.read(&file).as_bytes()).expect("PEM");
        let inner = inside_pkcs8(key.secret_der());
        let body = data_encoding::BASE64.encode(inner);
        pki.write(
            &file,
            format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"),
        );
        assert_eq!(found(&pki, &text), [""; 0], "{label}");
    }
}

/// The octet string at the end of a PKCS#8 key (RFC 5958): a version, an algorithm, then the key.
fn inside_pkcs8(der: &[u8]) -> &[u8] {
    fn take(der: &[u8]) -> (&[u8], &[u8]) {
        let (head, length) = match der[1] {
            long @ 0x81.. => {
                let bytes = usize::from(long & 0x7f);
                let length = der[2..2 + bytes]
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                (2 + bytes, length)
            }
            short => (2, usize::from(short)),
        };
        (&der[head..head + length], &der[head + length..])
    }
    let (whole, _) = take(der);
    let (_, rest) = take(whole);
    let (_, rest) = take(rest);
    take(rest).0
}

#[test]
fn a_certificate_without_its_issuer_is_a_warning() {
    let pki = with_one();
    let pem = pki.read("a.pem");
    let end = "-----END CERTIFICATE-----\n";
    let leaf = pem.split_inclusive(end).next().expect("the first");
    pki.write("a.pem", leaf);
    let told = only(&pki, &listener(ONE));
    assert!(
        told.starts_with(&format!(
            "warning {CERT}: the issuer of this certificate, `CN=root"
        )),
        "{told}"
    );
    pki.issue("b", Wish::of(&["b.example"]));
    let other = pki.read("b.pem");
    let other = other.split_inclusive(end).next().expect("the first");
    pki.write("a.pem", format!("{leaf}{other}"));
    let told = only(&pki, &listener(ONE));
    assert!(
        told.contains("certificate 2 of this chain is not the issuer of certificate 1"),
        "{told}"
    );
}

#[test]
fn a_root_that_may_sign_nobody_is_a_warning() {
    let pki = with_one();
    pki.issue("client", Wish::of(&["client.example"]));
    let pem = pki.read("client.pem");
    let end = "-----END CERTIFICATE-----\n";
    pki.write(
        "client.pem",
        pem.split_inclusive(end).next().expect("the first"),
    );
    let told = only(
        &pki,
        &listener(&format!(
            "{ONE}\nclient_auth = {{ roots = \"client.pem\" }}"
        )),
    );
    assert_eq!(
        told,
        "warning listener[0].tls.client_auth.roots: none of these certificates may sign others: at most whoever holds one of them gets in"
    );
}

#[test]
fn dates_are_told_and_an_expired_certificate_takes_nothing_down_with_it() {
    let pki = with_one();
    let issue = |from: i32, to: i32| {
        let wish = Wish {
            years: (from, to),
            ..Wish::of(&["b.example"])
        };
        pki.issue("b", wish);
    };
    let two = listener(
        "certificates = [{ cert = \"b.pem\", key = \"b.key\" }, { cert = \"a.pem\", key = \"a.key\" }]",
    );
    issue(2020, 2029);
    assert_eq!(
        only(&pki, &two),
        format!("warning {CERT}: this certificate has expired on 2029-01-10")
    );
    issue(2031, 2040);
    assert_eq!(
        only(&pki, &two),
        format!("warning {CERT}: this certificate does not hold before 2031-01-01")
    );
    issue(2020, 2030);
    assert_eq!(
        only(&pki, &two),
        format!("warning {CERT}: this certificate expires on 2030-01-10, in 9 days")
    );
    // Alone, there is nothing that could be taken down.
    issue(2020, 2029);
    let one = listener("certificates = [{ cert = \"b.pem\", key = \"b.key\" }]");
    let told = found(&pki, &one);
    assert!(
        told[0].starts_with(
            "error listener[0].tls.certificates: no certificate of this configuration holds"
        ),
        "{told:#?}"
    );
}

#[test]
fn of_two_for_one_name_the_one_that_holds_today_is_shown() {
    let pki = Pki::new();
    pki.issue(
        "old",
        Wish {
            years: (2020, 2029),
            ..Wish::of(&["a.example"])
        },
    );
    let (new, _) = pki.issue("new", Wish::of(&["a.example"]).rsa());
    let text = listener(
        "certificates = [{ cert = \"old.pem\", key = \"old.key\" }, { cert = \"new.pem\", key = \"new.key\" }]",
    );
    let (snapshot, _) = compiled(&pki, &text, None).expect("compiles");
    let met = super::hello::shake(
        &super::hello::client(&pki),
        &super::hello::server(&snapshot),
        "a.example",
    );
    assert_eq!(met.expect("a handshake").shown(), new.der().to_vec());
}

#[test]
fn a_name_that_two_certificates_hold_says_which_one_wins() {
    let pki = with_one();
    pki.issue("b", Wish::of(&["b.example", "a.example"]));
    let text = listener(
        "certificates = [{ cert = \"a.pem\", key = \"a.key\" }, { cert = \"b.pem\", key = \"b.key\" }]",
    );
    let expected = "warning listener[0].tls.certificates[1].cert: `a.example` is held by certificate 1 as well, which wins";
    assert_eq!(only(&pki, &text), expected);
    pki.issue("b", Wish::of(&[]));
    let told = only(&pki, &text);
    assert!(told.contains("holds no name (subjectAltName)"), "{told}");
}

#[test]
fn a_short_rsa_key_is_refused() {
    let pki = Pki::new();
    pki.write("a.pem", include_str!("weak.pem"));
    pki.write("a.key", include_str!("weak.key"));
    let told = found(&pki, &listener(ONE));
    assert_eq!(
        told[0],
        format!("error {CERT}: an RSA key of 1024 bits is refused by clients")
    );
}

#[test]
fn ticket_keys_must_be_keys_and_closed_to_others() {
    let pki = with_one();
    let text = listener(&format!("{ONE}\ntickets = {{ file = \"tickets.key\" }}"));
    let at = "error listener[0].tls.tickets.file: `tickets.key`";
    for (keys, problem) in [
        ("", "it holds no key"),
        ("# nothing\n", "it holds no key"),
        ("abcd", "line 1 is not 32 bytes or more in base64 or hex"),
    ] {
        pki.write("tickets.key", keys);
        let expected = format!("{at} is no file of ticket keys: {problem}");
        assert_eq!(only(&pki, &text), expected);
    }
    pki.write("tickets.key", data_encoding::BASE64.encode(&[7; 48]));
    pki.mode("tickets.key", 0o640);
    let expected = format!("{at} can be read by others (mode 0640): they could read all sessions");
    assert_eq!(only(&pki, &text), expected);
    pki.mode("tickets.key", 0o400);
    assert_eq!(found(&pki, &text), [""; 0]);
}

#[test]
fn ticket_keys_of_the_store_need_a_store_and_no_file_beside_it() {
    let pki = with_one();
    let keys = |tickets: &str| listener(&format!("{ONE}\ntickets = {{ {tickets} }}"));
    let at = "error listener[0].tls.tickets.store: ";
    let none = format!("{at}there is no store that ticket keys could come from");
    assert_eq!(found(&pki, &keys("store = \"edge\""))[0], none);
    let store = "[store]\naddress = \"embedded:/var/lib/mizan\"\n";
    pki.write("tickets.key", "11".repeat(32));
    let both = keys("store = \"edge\", file = \"tickets.key\"") + store;
    let expected = format!("{at}ticket keys come from a file or from the store, not from both");
    assert_eq!(only(&pki, &both), expected);
    let told = found(&pki, &(keys("store = \"a/b\"") + store));
    assert!(
        told[0].starts_with(&format!("{at}`a/b` is no name")),
        "{told:?}"
    );
}

#[test]
fn roots_and_revocation_lists_are_looked_at_too() {
    let pki = with_one();
    pki.write("none.pem", "");
    let auth = "client_auth = { roots = \"none.pem\", crl = \"none.pem\" }";
    let told = found(&pki, &listener(&format!("{ONE}\n{auth}")));
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].starts_with("error listener[0].tls.client_auth.roots"));
    assert!(told[1].ends_with("holds no revocation list"));
    let told = only(&pki, &pool("roots = \"none.pem\""));
    assert!(told.starts_with("error pool.p.tls.roots"), "{told}");
    pki.write("a.ocsp", "-----BEGIN");
    let ocsp = "certificates = [{ cert = \"a.pem\", key = \"a.key\", ocsp = \"a.ocsp\" }]";
    assert!(only(&pki, &listener(ocsp)).ends_with("holds no OCSP response in DER"));
}
