//! What stands in the files: chains, keys, roots, revocation lists.

use super::Made;
use crate::certificate::{Facts, KeyKind, Staple, list_holds_until};
use crate::config::load::Content;
use crate::config::report::Cx;
use crate::config::tree::At;
use crate::telemetry::json::time_string;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use std::sync::Arc;
use std::time::Duration;

/// A certificate that ends within this long is told.
const EXPIRES_SOON_SECONDS: i64 = 14 * DAY_SECONDS;
const DAY_SECONDS: i64 = 86_400;
/// Shorter RSA keys are taken by no client.
const RSA_BITS_MIN: usize = 2048;

/// A certificate with its key.
pub(super) struct Pair {
    pub(super) certified: CertifiedKey,
    pub(super) facts: Facts,
    /// Whether the dates of the certificate hold now.
    pub(super) is_current: bool,
}

/// Reads the files `cert` and `key` of the table at `at`; `None`: something is wrong, and told.
pub(super) fn pair(
    cx: &mut Cx<'_>,
    at: &At<'_>,
    provider: &CryptoProvider,
    made: &mut Made,
) -> Option<Pair> {
    let (cert_at, key_at) = (at.key("cert"), at.key("key"));
    // Both are looked at, so that what is wrong with either is told at once.
    let chain = cx.content(&cert_at).and_then(|content| {
        made.and(&content.bytes);
        chain(cx, &cert_at, &content)
    });
    let key = cx.content(&key_at).and_then(|content| {
        made.and(&content.bytes);
        private_key(cx, &key_at, &content)
    });
    let (chain, all) = chain?;
    let facts = all.first()?.clone();
    let is_strong = is_strong(cx, &cert_at, &facts);
    let is_current = dates(cx, &cert_at, &all);
    order(cx, &cert_at, &all);
    let key = match provider.key_provider.load_private_key(key?) {
        Ok(key) => key,
        Err(error) => {
            let message = format!("this private key cannot be used: {error}");
            cx.error(&key_at, "bad_key", message);
            return None;
        }
    };
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(Error::InconsistentKeys(_)) => {
            mismatch(cx, &key_at, &certified, &all);
            return None;
        }
        Err(error) => {
            let message = format!("this certificate cannot be used: {error}");
            cx.error(&cert_at, "bad_certificate", message);
            return None;
        }
    }
    is_strong.then_some(Pair {
        certified,
        facts,
        is_current,
    })
}

fn mismatch(cx: &mut Cx<'_>, at: &At<'_>, certified: &CertifiedKey, all: &[Facts]) {
    let spki = certified.key.public_key();
    let pin = spki.map(|spki| crate::certificate::sha256(spki.as_ref()));
    let of_other = all.iter().position(|facts| Some(facts.key_pin) == pin);
    let help = match of_other {
        Some(at) => format!(
            "it belongs to certificate {} of the file, which must come first",
            at + 1
        ),
        None => "give the key that the certificate was requested with".to_owned(),
    };
    let message = "this key does not belong to the certificate";
    cx.error_with(at, "key_mismatch", message, help);
}

/// The certificates of a file, and what they say.
fn chain(
    cx: &mut Cx<'_>,
    at: &At<'_>,
    content: &Content,
) -> Option<(Vec<CertificateDer<'static>>, Vec<Facts>)> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content.bytes).collect();
    let chain = match found {
        Ok(chain) if !chain.is_empty() => chain,
        Ok(_) => {
            let message = format!("`{}` holds no certificate", content.path.display());
            cx.error_with(
                at,
                "bad_certificate",
                message,
                no_pem(content, "BEGIN CERTIFICATE"),
            );
            return None;
        }
        Err(error) => {
            let message = format!("`{}` is broken: {error}", content.path.display());
            cx.error(at, "bad_certificate", message);
            return None;
        }
    };
    let mut facts = Vec::new();
    for (number, der) in chain.iter().enumerate() {
        match Facts::read(der) {
            Ok(read) => facts.push(read),
            Err(error) => {
                let message = format!(
                    "certificate {} of `{}` cannot be read: {error}",
                    number + 1,
                    content.path.display()
                );
                cx.error(at, "bad_certificate", message);
                return None;
            }
        }
    }
    Some((chain, facts))
}

/// What may have been given instead of a file with `wanted`.
fn no_pem(content: &Content, wanted: &str) -> String {
    let text = String::from_utf8_lossy(&content.bytes);
    if text.contains("PRIVATE KEY-----") && wanted.contains("CERTIFICATE") {
        return "it holds a private key: were `cert` and `key` swapped?".to_owned();
    }
    if text.contains("BEGIN CERTIFICATE-----") {
        return "it holds a certificate: were `cert` and `key` swapped?".to_owned();
    }
    if content.bytes.first() == Some(&0x30) {
        return "it looks like DER; `openssl x509 -inform der -in FILE` (or `openssl pkey`) writes PEM"
            .to_owned();
    }
    format!("it is a PEM file, with a line `-----{wanted}-----`")
}

fn private_key(cx: &mut Cx<'_>, at: &At<'_>, content: &Content) -> Option<PrivateKeyDer<'static>> {
    let text = String::from_utf8_lossy(&content.bytes);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        cx.error_with(
            at,
            "encrypted_key",
            "this private key is encrypted, and nobody is there to type its password",
            "`openssl pkey -in FILE -out PLAIN` decrypts it; keep it readable for Mizan's user only",
        );
        return None;
    }
    match PrivateKeyDer::from_pem_slice(&content.bytes) {
        Ok(key) => Some(key),
        Err(rustls::pki_types::pem::Error::NoItemsFound) => {
            let message = format!("`{}` holds no private key", content.path.display());
            cx.error_with(at, "bad_key", message, no_pem(content, "BEGIN PRIVATE KEY"));
            None
        }
        Err(error) => {
            let message = format!("`{}` is broken: {error}", content.path.display());
            cx.error(at, "bad_key", message);
            None
        }
    }
}

fn is_strong(cx: &mut Cx<'_>, at: &At<'_>, facts: &Facts) -> bool {
    let KeyKind::Rsa { bits } = facts.key else {
        return true;
    };
    if bits < RSA_BITS_MIN {
        let message = format!("an RSA key of {bits} bits is refused by clients");
        let help = format!("use ECDSA P-256, or RSA with {RSA_BITS_MIN} bits or more");
        cx.error_with(at, "weak_key", message, help);
    }
    bits >= RSA_BITS_MIN
}

/// Tells certificates whose dates do not hold, or not for long. Whether those of the first do.
fn dates(cx: &mut Cx<'_>, at: &At<'_>, all: &[Facts]) -> bool {
    let now = cx.read_at();
    let mut is_current = true;
    for (number, facts) in all.iter().enumerate() {
        let who = match number {
            0 => "this certificate".to_owned(),
            _ => format!("certificate {} of this chain", number + 1),
        };
        let is_first = number == 0;
        if facts.not_after < now {
            let message = format!("{who} has expired on {}", day(facts.not_after));
            cx.warn(at, "expired", message, "renew it: clients refuse it");
            is_current &= !is_first;
        } else if facts.not_before > now {
            let message = format!("{who} does not hold before {}", day(facts.not_before));
            let help = "clients refuse it until then; is this machine's clock right?";
            cx.warn(at, "not_yet_valid", message, help);
            is_current &= !is_first;
        } else if facts.not_after - now < EXPIRES_SOON_SECONDS {
            let days = (facts.not_after - now) / DAY_SECONDS;
            let message = format!(
                "{who} expires on {}, in {}",
                day(facts.not_after),
                match days {
                    0 => "less than a day".to_owned(),
                    1 => "one day".to_owned(),
                    days => format!("{days} days"),
                }
            );
            cx.warn(at, "expires_soon", message, "renew it in time");
        }
    }
    is_current
}

/// `2026-12-01`.
fn day(seconds: i64) -> String {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    time_string(since).chars().take(10).collect()
}

/// Tells chains that lead nowhere.
fn order(cx: &mut Cx<'_>, at: &At<'_>, all: &[Facts]) {
    if let [only] = all
        && !only.is_self_issued
    {
        let message = format!(
            "the issuer of this certificate, `{}`, is not in the file",
            only.issuer
        );
        let is_own = at.to_string().contains(".client_certificate");
        let who = if is_own { "backends" } else { "clients" };
        let help = format!(
            "{who} that lack it refuse the certificate: append the issuer's certificate to the file (a root, too, to have this warning gone)"
        );
        cx.warn(at, "incomplete_chain", message, help);
    }
    let broken = all
        .windows(2)
        .position(|pair| pair[0].issuer != pair[1].subject);
    if let Some(number) = broken {
        let message = format!(
            "certificate {} of this chain is not the issuer of certificate {}",
            number + 2,
            number + 1
        );
        let help =
            "each is followed by the one that has signed it, from the server's own to the root";
        cx.warn(at, "incomplete_chain", message, help);
    }
}

/// Certificates that are believed.
pub(super) struct Roots {
    /// Whoever they vouch for.
    pub(super) store: Arc<RootCertStore>,
    /// Those that were given one by one, and so may stand for themselves; none of the system's.
    pub(super) given: Vec<CertificateDer<'static>>,
    /// Whether one of them may vouch for others.
    pub(super) has_authority: bool,
}

/// The roots of a file.
pub(super) fn roots(cx: &mut Cx<'_>, at: &At<'_>, made: &mut Made) -> Option<Roots> {
    let content = cx.content(at)?;
    made.and(&content.bytes);
    let (found, facts) = chain(cx, at, &content)?;
    let mut store = RootCertStore::empty();
    for (number, root) in found.iter().enumerate() {
        if let Err(error) = store.add(root.clone()) {
            let message = format!("root {} cannot be used: {error}", number + 1);
            cx.error(at, "bad_certificate", message);
            return None;
        }
    }
    Some(Roots {
        store: Arc::new(store),
        given: found,
        has_authority: facts.iter().any(|facts| facts.is_authority),
    })
}

/// The revocation lists of a file.
pub(super) fn revocation_lists(
    cx: &mut Cx<'_>,
    at: &At<'_>,
    made: &mut Made,
) -> Option<Vec<CertificateRevocationListDer<'static>>> {
    let content = cx.content(at)?;
    made.and(&content.bytes);
    let found: Result<Vec<_>, _> =
        CertificateRevocationListDer::pem_slice_iter(&content.bytes).collect();
    match found {
        Ok(lists) if !lists.is_empty() => {
            list_dates(cx, at, &lists);
            Some(lists)
        }
        Ok(_) => {
            let message = format!("`{}` holds no revocation list", content.path.display());
            cx.error_with(
                at,
                "bad_certificate",
                message,
                no_pem(&content, "BEGIN X509 CRL"),
            );
            None
        }
        Err(error) => {
            let message = format!("`{}` is broken: {error}", content.path.display());
            cx.error(at, "bad_certificate", message);
            None
        }
    }
}

/// Tells lists whose successor is overdue: they still count, but know nothing of what was revoked since.
fn list_dates(cx: &mut Cx<'_>, at: &At<'_>, lists: &[CertificateRevocationListDer<'_>]) {
    let now = cx.read_at();
    for (number, list) in lists.iter().enumerate() {
        let Ok(Some(until)) = list_holds_until(list) else {
            continue;
        };
        if until < now {
            let message = format!(
                "revocation list {} of this file was to be replaced on {}: certificates that were revoked since are believed",
                number + 1,
                day(until)
            );
            cx.warn(at, "expired", message, "fetch the issuer's next list");
        }
    }
}

/// An OCSP response as it is sent to clients, or `Some(None)`: it is not, for they would refuse it. `None`: it is none.
pub(super) fn ocsp(cx: &mut Cx<'_>, at: &At<'_>, made: &mut Made) -> Option<Option<Vec<u8>>> {
    let content = cx.content(at)?;
    made.and(&content.bytes);
    let Some(staple) = Staple::read(&content.bytes) else {
        let message = format!("`{}` holds no OCSP response in DER", content.path.display());
        let help = "`openssl ocsp -respout FILE` writes one";
        cx.error_with(at, "bad_certificate", message, help);
        return None;
    };
    let now = cx.read_at();
    let problem = match staple {
        Staple::Until(Some(until)) if until < now => {
            format!("this OCSP response has expired on {}", day(until))
        }
        Staple::Until(_) => return Some(Some(content.bytes)),
        Staple::Unsuccessful => {
            "the responder gave no account of the certificate in this OCSP response".to_owned()
        }
    };
    let message = format!("{problem}: it is not sent");
    cx.warn(at, "expired", message, "fetch the responder's next one");
    Some(None)
}
