//! What an X.509 certificate says, read from its DER: names, dates, keys, and how its holder is told to a backend.
//!
//! Pure: no I/O and no clock. Nothing here says whether a certificate is to be believed; TLS has checked that before.
//! What is told to a backend is a header value, so whatever a certificate holds becomes visible ASCII: the text of a
//! certificate can neither end a header nor look like a second name in a list.

mod freshness;

pub use freshness::{Staple, list_holds_until};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use std::fmt::Write as _;
use std::net::IpAddr;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate, X509Name, X509Version};
use x509_parser::public_key::PublicKey;

/// SHA-256.
pub type Digest = [u8; 32];

/// SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> Digest {
    let mut out = Digest::default();
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// This is no X.509 certificate, or no revocation list where one was wanted (RFC 5280).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not of X.509")]
pub struct NotACertificate;

/// Who a certificate is of, as a backend is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The subject as of RFC 4514, such as `CN=alice,O=Example`; empty if it has none.
    pub subject: String,
    /// The alternative names, such as `DNS:a.example, URI:spiffe://example/a`; empty if it has none.
    pub san: String,
    /// SHA-256 of the certificate, 64 hex digits in lower case.
    pub fingerprint: String,
}

impl Identity {
    /// Reads the certificate that a client has shown.
    ///
    /// # Errors
    /// It is none.
    pub fn read(der: &[u8]) -> Result<Self, NotACertificate> {
        let certificate = parse(der)?;
        Ok(Self {
            subject: name_text(certificate.subject()),
            san: san_text(&certificate),
            fingerprint: HEXLOWER.encode(&sha256(der)),
        })
    }
}

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// An elliptic curve.
    Ecdsa,
    /// RSA.
    Rsa {
        /// Length of the modulus.
        bits: usize,
    },
    /// Ed25519 and whatever else there is.
    Other,
}

/// What a certificate is for, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The host names and addresses that it holds for, in lower case; wildcards as they stand there.
    pub names: Vec<String>,
    /// From when it holds, in seconds since 1970.
    pub not_before: i64,
    /// Until when, in seconds since 1970.
    pub not_after: i64,
    /// Its key.
    pub key: KeyKind,
    /// Its subject as of RFC 4514.
    pub subject: String,
    /// Who signed it, as of RFC 4514.
    pub issuer: String,
    /// Whether subject and issuer are one.
    pub is_self_issued: bool,
    /// Whether it may sign others (RFC 5280 §4.2.1.9); one of a version before 3 does not say, and may.
    pub is_authority: bool,
    /// SHA-256 of its public key (SPKI), which a pin names.
    pub key_pin: Digest,
}

impl Facts {
    /// Reads a certificate.
    ///
    /// # Errors
    /// It is none.
    pub fn read(der: &[u8]) -> Result<Self, NotACertificate> {
        let certificate = parse(der)?;
        let validity = certificate.validity();
        let key = match certificate.public_key().parsed() {
            Ok(PublicKey::RSA(key)) => KeyKind::Rsa {
                bits: key.key_size(),
            },
            Ok(PublicKey::EC(_)) => KeyKind::Ecdsa,
            _ => KeyKind::Other,
        };
        Ok(Self {
            names: host_names(&certificate),
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            key,
            subject: name_text(certificate.subject()),
            issuer: name_text(certificate.issuer()),
            is_self_issued: certificate.subject().as_raw() == certificate.issuer().as_raw(),
            is_authority: certificate.is_ca() || certificate.version() != X509Version::V3,
            key_pin: sha256(certificate.public_key().raw),
        })
    }
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, NotACertificate> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(NotACertificate),
    }
}

fn alternative_names<'c>(certificate: &'c X509Certificate<'_>) -> &'c [GeneralName<'c>] {
    match certificate.subject_alternative_name() {
        Ok(Some(names)) => &names.value.general_names,
        _ => &[],
    }
}

/// The names that a client compares: a common name is none (RFC 9525 §2).
fn host_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    };
    alternative_names(certificate)
        .iter()
        .filter_map(text)
        .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

fn san_text(certificate: &X509Certificate<'_>) -> String {
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(format!("DNS:{}", escaped(name))),
        GeneralName::URI(name) => Some(format!("URI:{}", escaped(name))),
        GeneralName::RFC822Name(name) => Some(format!("email:{}", escaped(name))),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| format!("IP:{address}")),
        _ => None,
    };
    let names: Vec<String> = alternative_names(certificate)
        .iter()
        .filter_map(text)
        .collect();
    names.join(", ")
}

/// The attributes that RFC 4514 §3 has short names for.
const SHORT_NAMES: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// A name as text: the most specific part first (RFC 4514 §2.1).
fn name_text(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in name.iter_rdn() {
        let attributes = part.iter().map(|attribute| {
            let id = attribute.attr_type().to_id_string();
            let short = SHORT_NAMES
                .iter()
                .find(|(known, _)| *known == id)
                .map(|(_, short)| *short);
            match (short, attribute.as_str()) {
                (Some(short), Ok(text)) => format!("{short}={}", escaped(text)),
                // What has no short name is given as its encoding (§2.4); its value alone says enough here.
                (short, _) => {
                    let value = HEXLOWER.encode(attribute.as_slice());
                    format!("{}=#{value}", short.unwrap_or(&id))
                }
            }
        });
        parts.push(attributes.collect::<Vec<_>>().join("+"));
    }
    parts.reverse();
    parts.join(",")
}

/// RFC 4514 §2.4, and every byte beyond visible ASCII as `\XX`, so that it can stand in a header.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let last = text.len().wrapping_sub(1);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => out.extend(['\\', char::from(byte)]),
            b'#' if at == 0 => out.push_str("\\#"),
            b' ' if at == 0 || at == last => out.push_str("\\ "),
            b' '..=b'~' => out.push(char::from(byte)),
            // Writing to a String does not fail.
            _ => drop(write!(out, "\\{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests;
