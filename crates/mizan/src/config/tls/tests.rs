//! From files to handshakes. Keys and certificates are made anew for each test.

mod clients;
mod freshness;
mod hello;
mod pki;
mod refused;
mod reload;
mod servers;

use super::super::{Diagnostic, compile, load};
use crate::config::Source;
use crate::snapshot::Snapshot;
use mizan_core::time::Instant;
use pki::Pki;
use std::time::Duration;

/// 2030-01-01, the day on which configurations are read here.
const TODAY: Duration = Duration::from_secs(1_893_456_000);

const POOL: &str = "[[route]]\npool = \"p\"\n[pool.p]\nbackends = [\"127.0.0.1:1\"]\n";

/// A listener with that `[listener.tls]`.
fn listener(tls: &str) -> String {
    format!("[[listener]]\nbind = \"127.0.0.1:8443\"\n[listener.tls]\n{tls}\n{POOL}")
}

/// A plain listener and a pool with that `[pool.p.tls]`.
fn pool(tls: &str) -> String {
    format!("[[listener]]\nbind = \"127.0.0.1:8000\"\n{POOL}[pool.p.tls]\n{tls}\n")
}

fn read(pki: &Pki, text: &str) -> Vec<Source> {
    let path = pki.write("lb.toml", text);
    let mut sources = load(&path).expect("the file is there");
    for source in &mut sources {
        source.read_at = TODAY;
    }
    sources
}

fn compiled(
    pki: &Pki,
    text: &str,
    previous: Option<&Snapshot>,
) -> Result<(Snapshot, Vec<Diagnostic>), Vec<Diagnostic>> {
    let no_names = |_: &str| Err(std::io::Error::other("no names"));
    compile(&read(pki, text), previous, &no_names, Instant::default(), 1)
}

/// The snapshot of a text that has nothing wrong with it.
fn clean(pki: &Pki, text: &str) -> Snapshot {
    match compiled(pki, text, None) {
        Ok((snapshot, warnings)) if warnings.is_empty() => snapshot,
        Ok((_, found)) | Err(found) => panic!("{}", told(&found).join("\n")),
    }
}

/// `error listener[0].tls: message`, one for each.
fn told(found: &[Diagnostic]) -> Vec<String> {
    let one = |one: &Diagnostic| {
        let severity = format!("{:?}", one.severity).to_lowercase();
        format!("{severity} {}: {}", one.path, one.message)
    };
    found.iter().map(one).collect()
}

/// What is said of a text, error or warning.
fn found(pki: &Pki, text: &str) -> Vec<String> {
    match compiled(pki, text, None) {
        Ok((_, found)) | Err(found) => told(&found),
    }
}
