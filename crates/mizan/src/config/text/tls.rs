//! Words of TLS: names of certificates, pins, headers that may be off.

use super::http::HeaderName;
use super::{Meaning, did_you_mean};
use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use rustls::pki_types::ServerName;

/// A header's name, lower case; `None` is `off`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct HeaderOrOff(pub(in super::super) Option<String>);

/// SHA-256 of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Pin(pub(in super::super) [u8; 32]);

/// A name that a certificate may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct TlsName(pub(in super::super) ServerName<'static>);

impl Meaning for HeaderOrOff {
    const FORMAT: &'static str = "header_name_or_off";
    const WHAT: &'static str = "a header's name such as \"X-Client-Cert-Subject\", or \"off\"";

    fn read(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let HeaderName(name) = HeaderName::read(text)?;
        if OF_THE_MESSAGE.contains(&name.replace('_', "-").as_str()) {
            return Err(format!(
                "`{text}` has a meaning of its own, which backends would not get any more"
            ));
        }
        Ok(Self(Some(name)))
    }
}

/// Headers that say how a message is to be read, where it goes and where it comes from.
const OF_THE_MESSAGE: [&str; 25] = [
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
];

impl Meaning for Pin {
    const FORMAT: &'static str = "pin_sha256";
    const WHAT: &'static str = "the SHA-256 of a public key in base64, 44 characters";

    fn read(text: &str) -> Result<Self, String> {
        let plain = text.strip_prefix("sha256/").unwrap_or(text);
        let bytes = BASE64.decode(plain.as_bytes()).ok();
        if let Some(pin) = bytes.and_then(|bytes| bytes.try_into().ok()) {
            return Ok(Self(pin));
        }
        let hex = HEXLOWER_PERMISSIVE
            .decode(text.replace(':', "").as_bytes())
            .ok()
            .filter(|bytes| bytes.len() == 32)
            .map(|bytes| BASE64.encode(&bytes));
        Err(did_you_mean(
            "this is no SHA-256 in base64, which has 44 characters".to_owned(),
            hex,
        ))
    }
}

impl Meaning for TlsName {
    const FORMAT: &'static str = "tls_name";
    const WHAT: &'static str = "a host name or an IP address such as \"api.internal\"";

    fn read(text: &str) -> Result<Self, String> {
        if let Ok(name) = ServerName::try_from(text.to_owned()) {
            return Ok(Self(name));
        }
        let host = text.rsplit_once(':').map(|(host, _)| host);
        let host = host.filter(|host| ServerName::try_from(*host).is_ok());
        Err(did_you_mean(
            format!("`{text}` is no host name and no IP address"),
            host,
        ))
    }
}
