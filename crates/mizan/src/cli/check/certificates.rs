//! What clients of each listener are shown by TLS, and for how long.

use crate::cli::output::table;
use crate::snapshot::{Certificate, ClientAuthMode, ServerTls, Snapshot};
use crate::telemetry::json::time_string;
use serde::Serialize;
use std::time::Duration;

const DAY_SECONDS: i64 = 86_400;
/// Names of a certificate that are printed; `--json` has all.
const NAMES_MAX: usize = 3;

/// A certificate of a listener.
#[derive(Serialize)]
pub(super) struct CertificateRow {
    listener: String,
    names: Vec<String>,
    /// `ECDSA`, `RSA 2048`.
    key: String,
    /// As of RFC 3339.
    expires: String,
    /// Whole days until then; below zero if it has expired.
    expires_in_days: i64,
    /// What becomes of clients without a certificate of their own: `required`, `optional`, or nothing is asked.
    client_certificate: Option<&'static str>,
}

/// One row for each certificate; `wall` is the time since 1970.
pub(super) fn rows(snapshot: &Snapshot, wall: Duration) -> Vec<CertificateRow> {
    let now = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
    let with_tls = snapshot
        .listeners
        .iter()
        .filter_map(|listener| Some((&listener.name, listener.tls.as_ref()?)));
    with_tls
        .flat_map(|(name, tls)| {
            tls.certificates
                .iter()
                .map(move |certificate| row(name, tls, certificate, now))
        })
        .collect()
}

fn row(listener: &str, tls: &ServerTls, certificate: &Certificate, now: i64) -> CertificateRow {
    let since = Duration::from_secs(u64::try_from(certificate.not_after).unwrap_or_default());
    CertificateRow {
        listener: listener.to_owned(),
        names: certificate.names.clone(),
        key: certificate.key.clone(),
        expires: time_string(since),
        expires_in_days: (certificate.not_after - now).div_euclid(DAY_SECONDS),
        client_certificate: tls.client_auth.as_ref().map(|auth| match auth.mode {
            ClientAuthMode::Required => "required",
            ClientAuthMode::Optional => "optional",
        }),
    }
}

/// `public  example.org, *.example.org  ECDSA  expires 2027-01-01, in 32 days`.
pub(super) fn show(rows: &[CertificateRow]) -> String {
    let cells = rows.iter().map(|row| {
        let day: String = row.expires.chars().take(10).collect();
        let expires = match row.expires_in_days {
            ..0 => format!("has expired on {day}"),
            0 => format!("expires on {day}, today"),
            1 => format!("expires on {day}, in one day"),
            days => format!("expires on {day}, in {days} days"),
        };
        let clients = row
            .client_certificate
            .map(|mode| format!("client certificates {mode}"));
        let cells = [
            row.listener.clone(),
            names(&row.names),
            row.key.clone(),
            expires,
        ];
        cells.into_iter().chain(clients).collect()
    });
    table("  ", &cells.collect::<Vec<Vec<String>>>())
}

fn names(all: &[String]) -> String {
    match all.len() {
        0 => "no name".to_owned(),
        count @ ..=NAMES_MAX => all[..count].join(", "),
        count => format!(
            "{} and {} more",
            all[..NAMES_MAX].join(", "),
            count - NAMES_MAX
        ),
    }
}
