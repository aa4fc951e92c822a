//! Certificates that change while Mizan runs.

use crate::support::*;
use rcgen::{CertificateParams, KeyPair};
use std::path::Path;

const END: &str = "mizan_certificate_expiry_timestamp_seconds";

/// Writes `a.pem`, which holds until that year, and its key `a.key`.
pub(crate) fn issue(folder: &Path, year: i32) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let certificate = params.self_signed(&key).expect("signed");
    replace(folder, "a.key", &key.serialize_pem());
    replace(folder, "a.pem", &certificate.pem());
}

/// As tools that renew certificates do it.
fn replace(folder: &Path, name: &str, text: &str) {
    let new = folder.join("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(&new, folder.join(name)).expect("moved");
}

#[test]
fn a_renewed_certificate_comes_into_force_by_itself_and_a_broken_one_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    issue(folder.path(), 2100);
    let file = |name: &str| folder.path().join(name).display().to_string();
    let backend = Backend::healthy("a");
    let tls = format!(
        "[reload]\nwatch = true\n[[listener]]\nname = \"tls\"\nbind = \"{{listen2}}\"\n[listener.tls]\ncertificates = [{{ cert = \"{}\", key = \"{}\" }}]\n",
        file("a.pem"),
        file("a.key")
    );
    let mizan = Mizan::start(&(config("", "", &[backend.address()]) + &tls));
    let end = || mizan.metric(END, "listener=\"tls\"");
    let first = end();
    issue(folder.path(), 2101);
    eventually(PATIENCE, "the new certificate is in force", || {
        end() > first
    });
    let second = end();
    replace(folder.path(), "a.key", "half a k");
    eventually(PATIENCE, "the broken key is told", || {
        mizan.log().contains("holds no private key")
    });
    assert!(mizan.log().contains("stays in force"), "{}", mizan.log());
    assert_eq!(end(), second);
    assert_eq!(mizan.get("/").status, 200);
    std::fs::remove_file(folder.path().join("a.key")).expect("it was there");
    eventually(PATIENCE, "the missing key is told", || {
        mizan.log().contains("cannot be read: No such file")
    });
    assert_eq!(end(), second);
    issue(folder.path(), 2102);
    eventually(PATIENCE, "the next one is in force", || end() > second);
}
