//! Session tickets under keys from a file, so that a session begun with one instance goes on with another.
//!
//! A ticket is `name (16) | nonce (12) | AES-256-GCM-SIV of (seconds since 1970 (8) | session) | tag (16)`. The name and
//! the key are derived from the secret in the file; the key also from what authenticates clients, so that a session of
//! somebody who was not asked for a certificate opens nothing where it is asked for. GCM-SIV and not GCM: a fleet draws
//! its nonces at random, and two alike must not give the key away.

use crate::certificate::Digest;
use crate::clock;
use crate::config::load::Fnv;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use bytes::Bytes;
use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER_PERMISSIVE};
use rustls::server::ProducesTickets;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most keys in a file.
const KEYS_MAX: usize = 16;
/// Length of a secret.
const SECRET_BYTES_MIN: usize = 32;
/// How long a ticket is good for.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);

const NAME_BYTES: usize = 16;
const TIME_BYTES: usize = 8;

/// Ticket keys that instances share through the store, by their names. Their texts are never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TicketKeys(BTreeMap<String, Bytes>);

impl TicketKeys {
    /// Takes the text of `name`: lines as in a file of ticket keys.
    ///
    /// # Errors
    /// What is wrong with it; then what was there under the name stays.
    pub fn insert(&mut self, name: String, text: Bytes) -> Result<(), String> {
        read_secrets(&text)?;
        self.0.insert(name, text);
        Ok(())
    }

    /// The text of `name`.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.get(name)
    }

    pub(in super::super) fn digest_into(&self, hash: &mut Fnv) {
        for (name, text) in &self.0 {
            for bytes in [name.as_bytes(), text] {
                hash.bytes(&bytes.len().to_le_bytes());
                hash.bytes(bytes);
            }
        }
    }
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Reads a file of ticket keys.
///
/// # Errors
/// What is wrong with it. The text of a key is never part of it.
pub(super) fn read_secrets(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| "it is not text: keys are lines of base64 or hex".to_owned())?;
    let mut secrets = Vec::new();
    for (number, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let secret = decode(line)
            .filter(|secret| secret.len() >= SECRET_BYTES_MIN)
            .ok_or_else(|| {
                format!(
                    "line {} is not {SECRET_BYTES_MIN} bytes or more in base64 or hex",
                    number + 1
                )
            })?;
        secrets.push(secret);
    }
    match secrets.len() {
        0 => Err("it holds no key".to_owned()),
        1..=KEYS_MAX => Ok(secrets),
        more => Err(format!(
            "{more} keys are more than the {KEYS_MAX} that are tried"
        )),
    }
}

fn decode(line: &str) -> Option<Vec<u8>> {
    let line = line.as_bytes();
    let hex = HEXLOWER_PERMISSIVE.decode(line);
    hex.or_else(|_| BASE64.decode(line))
        .or_else(|_| BASE64_NOPAD.decode(line))
        .ok()
}

/// Keys that a fleet shares.
#[derive(Debug)]
pub(super) struct SharedTickets {
    /// The first encrypts, all decrypt.
    keys: Vec<TicketKey>,
}

#[derive(Debug)]
struct TicketKey {
    name: [u8; NAME_BYTES],
    key: RandomizedNonceKey,
}

impl SharedTickets {
    /// Of the secrets of a file; `auth` is a digest of what authenticates clients. `None` without a secret.
    pub(super) fn new(secrets: &[Vec<u8>], auth: &Digest) -> Option<Self> {
        let keys: Option<Vec<_>> = secrets
            .iter()
            .map(|secret| TicketKey::derive(secret, auth))
            .collect();
        keys.filter(|keys| !keys.is_empty())
            .map(|keys| Self { keys })
    }

    fn encrypt_at(&self, plain: &[u8], now: Duration) -> Option<Vec<u8>> {
        let key = self.keys.first()?;
        let mut sealed = now.as_secs().to_be_bytes().to_vec();
        sealed.extend_from_slice(plain);
        let nonce = key
            .key
            .seal_in_place_append_tag(Aad::from(key.name), &mut sealed)
            .ok()?;
        let mut ticket = Vec::with_capacity(NAME_BYTES + NONCE_LEN + sealed.len());
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(nonce.as_ref());
        ticket.append(&mut sealed);
        Some(ticket)
    }

    fn decrypt_at(&self, ticket: &[u8], now: Duration) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        // The name is no secret: it stands in every ticket.
        let key = self.keys.iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = key
            .key
            .open_in_place(nonce, Aad::from(key.name), &mut sealed)
            .ok()?;
        let (time, plain) = opened.split_at_checked(TIME_BYTES)?;
        let made = u64::from_be_bytes(time.try_into().ok()?);
        // Made in the future: another instance's clock is ahead.
        let age = now.as_secs().saturating_sub(made);
        (age <= LIFETIME.as_secs()).then(|| plain.to_vec())
    }
}

impl TicketKey {
    fn derive(secret: &[u8], auth: &Digest) -> Option<Self> {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = |label: &[u8], bytes: &[u8]| {
            let mut text = hmac::Context::with_key(&secret);
            text.update(label);
            text.update(bytes);
            text.sign()
        };
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(&derived(b"mizan ticket name", auth).as_ref()[..NAME_BYTES]);
        let key = derived(b"mizan ticket key", auth);
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, key.as_ref()).ok()?;
        Some(Self { name, key })
    }
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(LIFETIME.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, clock::wall())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(ticket, clock::wall())
    }
}

#[cfg(test)]
mod tests;
