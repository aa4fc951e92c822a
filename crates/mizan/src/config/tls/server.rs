//! TLS towards clients: `[listener.tls]`.

use super::files::{self, Pair};
use super::tickets::{SharedTickets, read_secrets};
use super::{Made, provider};
use crate::certificate::{Digest, KeyKind};
use crate::config::report::Cx;
use crate::config::schema::{self, ClientAuth, Group, Hsts, ListenerTls, TicketChoice, TlsVersion};
use crate::config::tree::At;
use crate::snapshot::{
    self, Certificate, CertificateChoice, ClientAuthMode, ClientTrust, IdentityHeaders, KeyChoice,
    ServerTls, Tickets,
};
use rustls::crypto::aws_lc_rs::{Ticketer, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::collections::BTreeMap;
use std::sync::Arc;

/// TLS of a listener, and how many of its certificates hold now.
pub(super) struct Compiled {
    pub(super) tls: ServerTls,
    pub(super) usable: usize,
}

/// `None`: something is wrong, and told.
pub(super) fn compile(
    cx: &mut Cx<'_>,
    from: &ListenerTls,
    alpn: &[&str],
    at: &At<'_>,
    before: Option<&ServerTls>,
) -> Option<Compiled> {
    let provider = Arc::new(CryptoProvider {
        kx_groups: from.groups.iter().copied().map(group).collect(),
        ..provider()
    });
    let mut made = Made::of(&(from, alpn));
    // Each looks at its own files, so that what is wrong with any is told at once.
    let pairs = certificates(cx, from, at, &provider, &mut made);
    let mut auth_made = Made::of(&from.client_auth);
    let verifier = match &from.client_auth {
        Some(auth) => verifier(cx, auth, at, &provider, &mut auth_made).map(Some),
        None => Some(None),
    };
    let auth_digest = auth_made.digest();
    made.and(&auth_digest);
    let tickets = tickets(cx, from, at, &auth_digest, before, &mut made);
    let (pairs, verifier, tickets) = (pairs?, verifier?, tickets?);
    let client_trust = verifier.clone().map(|verifier| ClientTrust {
        verifier,
        made_of: auth_digest,
    });
    let parts = Parts {
        choice: choice(&pairs, from.strict_sni, &provider),
        provider,
        verifier,
        ticketer: tickets.as_ref().map(|made| Arc::clone(&made.producer)),
        alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
    };
    let config = config(cx, from, at, parts)?;
    let usable = pairs.iter().filter(|pair| pair.is_current).count();
    let tls = ServerTls {
        config: Arc::new(config),
        handshake: from.handshake_timeout.value.0,
        certificates: pairs.iter().map(summary).collect(),
        strict_sni: from.strict_sni,
        client_auth: from.client_auth.as_ref().map(client_auth),
        client_trust,
        hsts: from.hsts.as_ref().map(hsts),
        tickets,
        made_of: made.digest(),
    };
    Some(Compiled { tls, usable })
}

fn group(group: Group) -> &'static dyn SupportedKxGroup {
    match group {
        Group::X25519MlKem768 => kx_group::X25519MLKEM768,
        Group::X25519 => kx_group::X25519,
        Group::Secp256r1 => kx_group::SECP256R1,
        Group::Secp384r1 => kx_group::SECP384R1,
    }
}

/// The versions from `low` to `high`.
pub(super) fn versions(
    low: TlsVersion,
    high: TlsVersion,
) -> Vec<&'static SupportedProtocolVersion> {
    [(TlsVersion::V12, &TLS12), (TlsVersion::V13, &TLS13)]
        .into_iter()
        .filter(|(version, _)| (low..=high).contains(version))
        .map(|(_, version)| version)
        .collect()
}

fn certificates(
    cx: &mut Cx<'_>,
    from: &ListenerTls,
    at: &At<'_>,
    provider: &CryptoProvider,
    made: &mut Made,
) -> Option<Vec<Pair>> {
    let list = at.key("certificates");
    let mut pairs = Vec::new();
    for (index, files) in from.certificates.iter().enumerate() {
        let at = list.index(index);
        let pair = files::pair(cx, &at, provider, made);
        let ocsp = match &files.ocsp {
            Some(_) => files::ocsp(cx, &at.key("ocsp"), made),
            None => Some(None),
        };
        if let (Some(mut pair), Some(ocsp)) = (pair, ocsp) {
            // Both change with the time, though no file does.
            made.and(&[u8::from(pair.is_current), u8::from(ocsp.is_some())]);
            pair.certified.ocsp = ocsp;
            pairs.push(pair);
        }
    }
    if pairs.len() < from.certificates.len() || pairs.is_empty() {
        return None;
    }
    names(cx, &pairs, &list);
    Some(pairs)
}

/// Tells certificates that no client is shown.
fn names(cx: &mut Cx<'_>, pairs: &[Pair], list: &At<'_>) {
    let mut seen: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for (index, pair) in pairs.iter().enumerate() {
        let at = list.index(index);
        let at = at.key("cert");
        if pair.facts.names.is_empty() {
            let message = "this certificate holds no name (subjectAltName): clients refuse it";
            cx.warn(
                &at,
                "no_name",
                message,
                "a common name alone is not looked at any more",
            );
        }
        // RSA may stand beside ECDSA: clients that know only one of them get that.
        let is_rsa = matches!(pair.facts.key, KeyKind::Rsa { .. });
        for name in &pair.facts.names {
            let first = *seen.entry((name, is_rsa)).or_insert(index);
            if first != index && pairs[first].is_current == pair.is_current {
                let message = format!(
                    "`{name}` is held by certificate {} as well, which wins",
                    first + 1
                );
                let help = "leave one of them out";
                cx.warn(&at, "duplicate", message, help);
                break;
            }
        }
    }
}

fn choice(pairs: &[Pair], is_strict: bool, provider: &CryptoProvider) -> CertificateChoice {
    let choices: Vec<KeyChoice> = pairs
        .iter()
        .map(|pair| KeyChoice {
            certified: Arc::new(pair.certified.clone()),
            names: pair.facts.names.clone(),
            is_current: pair.is_current,
        })
        .collect();
    CertificateChoice::new(&choices, is_strict, provider)
}

fn summary(pair: &Pair) -> Certificate {
    Certificate {
        names: pair.facts.names.clone(),
        not_after: pair.facts.not_after,
        key: match pair.facts.key {
            KeyKind::Ecdsa => "ECDSA".to_owned(),
            KeyKind::Rsa { bits } => format!("RSA {bits}"),
            KeyKind::Other => "Ed25519".to_owned(),
        },
    }
}

fn verifier(
    cx: &mut Cx<'_>,
    from: &ClientAuth,
    at: &At<'_>,
    provider: &Arc<CryptoProvider>,
    made: &mut Made,
) -> Option<Arc<dyn ClientCertVerifier>> {
    let at = at.key("client_auth");
    let roots = files::roots(cx, &at.key("roots"), made);
    let lists = match &from.crl {
        Some(_) => files::revocation_lists(cx, &at.key("crl"), made),
        None => Some(Vec::new()),
    };
    let (roots, lists) = (roots?, lists?);
    if !roots.has_authority {
        let message =
            "none of these certificates may sign others: at most whoever holds one of them gets in";
        let help = "give the certificate of the authority that signs clients' certificates";
        cx.warn(&at.key("roots"), "no_authority", message, help);
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots.store, Arc::clone(provider));
    // Of whom the lists say nothing is refused: a list that is missing must not let revoked ones in.
    let builder = match lists.is_empty() {
        true => builder,
        false => builder.with_crls(lists).only_check_end_entity_revocation(),
    };
    let builder = match from.mode {
        schema::ClientAuthMode::Required => builder,
        schema::ClientAuthMode::Optional => builder.allow_unauthenticated(),
    };
    match builder.build() {
        Ok(verifier) => Some(verifier),
        Err(error) => {
            let message = format!("clients cannot be verified by these files: {error}");
            cx.error(&at, "bad_certificate", message);
            None
        }
    }
}

fn client_auth(from: &ClientAuth) -> snapshot::ClientAuth {
    let headers = &from.headers;
    snapshot::ClientAuth {
        mode: match from.mode {
            schema::ClientAuthMode::Required => ClientAuthMode::Required,
            schema::ClientAuthMode::Optional => ClientAuthMode::Optional,
        },
        headers: IdentityHeaders {
            verified: headers.verified.value.0.clone(),
            subject: headers.subject.value.0.clone(),
            san: headers.san.value.0.clone(),
            fingerprint: headers.fingerprint.value.0.clone(),
        },
    }
}

/// `Some(None)`: no tickets.
fn tickets(
    cx: &mut Cx<'_>,
    from: &ListenerTls,
    at: &At<'_>,
    auth: &Digest,
    before: Option<&ServerTls>,
    all: &mut Made,
) -> Option<Option<Tickets>> {
    let own = schema::Tickets::default();
    let shared = match &from.tickets {
        Some(TicketChoice::Switch(false)) => return Some(None),
        Some(TicketChoice::Full(tickets)) => tickets,
        Some(TicketChoice::Switch(true)) | None => &own,
    };
    let mut made = Made::of(shared);
    made.and(auth);
    let at = at.key("tickets");
    let secrets = match (&shared.file, &shared.store) {
        (Some(_), _) => secrets(cx, &at.key("file"), &mut made)?,
        (None, Some(name)) => stored_secrets(cx, &at.key("store"), name, &mut made),
        (None, None) => Vec::new(),
    };
    let made_of = made.digest();
    all.and(&made_of);
    let kept = before
        .and_then(|before| before.tickets.as_ref())
        .filter(|tickets| tickets.made_of == made_of);
    if let Some(kept) = kept {
        return Some(Some(kept.clone()));
    }
    let producer: Arc<dyn ProducesTickets> = match SharedTickets::new(&secrets, auth) {
        Some(shared) => Arc::new(shared),
        None => match Ticketer::new() {
            Ok(own) => own,
            Err(error) => {
                let message = format!("ticket keys cannot be made: {error}");
                cx.error(&at, "internal", message);
                return None;
            }
        },
    };
    Some(Some(Tickets {
        producer,
        made_of,
        is_shared_by_store: shared.store.is_some(),
    }))
}

/// None while the store has none: handshakes go on, and only resumption elsewhere is lost.
fn stored_secrets(cx: &mut Cx<'_>, at: &At<'_>, name: &str, made: &mut Made) -> Vec<Vec<u8>> {
    let Some(text) = cx.ticket_keys(name) else {
        let message = format!("the store has no ticket keys `{name}`, or was not heard yet");
        let help =
            "until it has, clients resume with the instance alone that they were with before";
        cx.warn(at, "no_keys", message, help);
        return Vec::new();
    };
    made.and(&text);
    // They were judged when they were heard.
    read_secrets(&text).unwrap_or_default()
}

fn secrets(cx: &mut Cx<'_>, at: &At<'_>, made: &mut Made) -> Option<Vec<Vec<u8>>> {
    let content = cx.content(at)?;
    made.and(&content.bytes);
    let path = content.path.display();
    if content.mode & 0o077 != 0 {
        let message = format!(
            "`{path}` can be read by others (mode {:04o}): they could read all sessions",
            content.mode & 0o7777
        );
        cx.error_with(at, "open_file", message, format!("chmod 600 {path}"));
        return None;
    }
    match read_secrets(&content.bytes) {
        Ok(secrets) => Some(secrets),
        Err(problem) => {
            let message = format!("`{path}` is no file of ticket keys: {problem}");
            let help = "`openssl rand -base64 32` makes a key";
            cx.error_with(at, "bad_key", message, help);
            None
        }
    }
}

/// `max-age=31536000; includeSubDomains`.
fn hsts(from: &Hsts) -> String {
    let mut value = format!("max-age={}", from.max_age.value.0.as_secs());
    if from.include_subdomains {
        value.push_str("; includeSubDomains");
    }
    if from.preload {
        value.push_str("; preload");
    }
    value
}

/// What a configuration of rustls is made of, beside the settings.
struct Parts {
    provider: Arc<CryptoProvider>,
    choice: CertificateChoice,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    ticketer: Option<Arc<dyn ProducesTickets>>,
    alpn: Vec<Vec<u8>>,
}

fn config(cx: &mut Cx<'_>, from: &ListenerTls, at: &At<'_>, parts: Parts) -> Option<ServerConfig> {
    let versions = versions(from.min_version, from.max_version);
    let builder = ServerConfig::builder_with_provider(parts.provider);
    let builder = match builder.with_protocol_versions(&versions) {
        Ok(builder) => builder,
        Err(error) => {
            let message = format!("these settings leave no handshake possible: {error}");
            cx.error(at, "contradiction", message);
            return None;
        }
    };
    let builder = match parts.verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(parts.choice));
    config.alpn_protocols = parts.alpn;
    // Sessions live in tickets alone: a store of our own would be a lock that all workers share.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    match parts.ticketer {
        Some(ticketer) => config.ticketer = ticketer,
        None => config.send_tls13_tickets = 0,
    }
    Some(config)
}
