//! A folder with a root and what it has signed.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RevokedCertParams, SerialNumber, SignatureAlgorithm,
    date_time_ymd,
};
use rustls::RootCertStore;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) struct Pki {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    root: Certificate,
}

/// What is asked of a certificate.
pub(super) struct Wish {
    pub(super) names: Vec<&'static str>,
    pub(super) kind: &'static SignatureAlgorithm,
    /// First and last year.
    pub(super) years: (i32, i32),
    pub(super) serial: u64,
}

impl Wish {
    pub(super) fn of(names: &[&'static str]) -> Self {
        Self {
            names: names.to_vec(),
            kind: &PKCS_ECDSA_P256_SHA256,
            years: (2020, 2050),
            serial: 7,
        }
    }

    pub(super) fn rsa(self) -> Self {
        let kind = &PKCS_RSA_SHA256;
        Self { kind, ..self }
    }
}

/// An OCSP response whose next one is due at that time, such as `20400101000000Z`. Its signature is not looked at.
pub(super) fn staple(until: &str) -> Vec<u8> {
    const NEXT: &[u8] = b"20261207185642Z";
    let mut bytes = include_bytes!("../../../certificate/freshness/response.der").to_vec();
    let at = bytes.windows(NEXT.len()).position(|part| part == NEXT);
    let at = at.expect("the response says when the next one is due");
    bytes[at..at + NEXT.len()].copy_from_slice(until.as_bytes());
    bytes
}

impl Pki {
    /// With `ca.pem`.
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let root = params.self_signed(&key).expect("signed");
        let pki = Self {
            folder: tempfile::tempdir().expect("a folder"),
            issuer: Issuer::new(params, key),
            root,
        };
        pki.write("ca.pem", pki.root.pem());
        pki
    }

    /// Writes a file that only its owner may read.
    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("written");
        self.mode(name, 0o600);
        path
    }

    pub(super) fn mode(&self, name: &str, mode: u32) {
        let path = self.folder.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the file is there");
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).expect("readable")
    }

    /// Writes `NAME.pem`, with the root behind, and `NAME.key`.
    pub(super) fn issue(&self, name: &str, wish: Wish) -> (Certificate, KeyPair) {
        let key = KeyPair::generate_for(wish.kind).expect("a key");
        let names: Vec<String> = wish.names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.not_before = date_time_ymd(wish.years.0, 1, 1);
        params.not_after = date_time_ymd(wish.years.1, 1, 10);
        params.serial_number = Some(SerialNumber::from(wish.serial));
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        self.write(&format!("{name}.pem"), certificate.pem() + &self.root.pem());
        self.write(&format!("{name}.key"), key.serialize_pem());
        (certificate, key)
    }

    /// Writes `NAME.pem` and `NAME.key` as they come from a tool in its simplest use: signed by itself, and an authority.
    pub(super) fn issue_authority(&self, name: &str, host: &str) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("signed");
        self.write(&format!("{name}.pem"), certificate.pem());
        self.write(&format!("{name}.key"), key.serialize_pem());
    }

    /// Writes `crl.pem`, which revokes the certificates with those numbers.
    pub(super) fn revoke(&self, serials: &[u64]) {
        self.revoke_until(serials, 2050);
    }

    /// The same, to be replaced at the beginning of that year.
    pub(super) fn revoke_until(&self, serials: &[u64], year: i32) {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2021, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("signed");
        self.write("crl.pem", list.pem().expect("PEM"));
    }

    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.der().clone()).expect("a root");
        Arc::new(roots)
    }
}
