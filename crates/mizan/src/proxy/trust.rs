//! Whether a connection may go on after a reload that changed how clients authenticate themselves.
//!
//! The handshake is not made again, so what it has shown is looked at under the rules in force when the next request
//! begins: a client whose certificate was revoked, or whose roots went, is served no more; one that fits the new rules
//! notices nothing. A certificate that nobody has asked for cannot be shown behind the handshake, so its client has to
//! come again.

use super::connection::Downstream;
use super::exchange::Standing;
use crate::certificate::Identity;
use crate::clock;
use crate::snapshot::{ClientAuthMode, ClientTrust, Listener, MadeOf};
use rustls::pki_types::{CertificateDer, UnixTime};

/// What a client has shown at its handshake.
#[derive(Debug)]
pub(super) struct Shown {
    /// Who it is, as backends are told.
    pub(super) identity: Identity,
    /// Its certificate and those behind it: what is believed may change while the connection lives.
    chain: Box<[CertificateDer<'static>]>,
}

impl Shown {
    /// `None`: no certificate, or one that cannot be read.
    pub(super) fn of(chain: Option<&[CertificateDer<'static>]>) -> Option<Self> {
        let chain = chain?;
        let identity = Identity::read(chain.first()?).ok()?;
        Some(Self {
            identity,
            chain: chain.into(),
        })
    }

    fn is_believed(&self, trust: &ClientTrust) -> bool {
        let now = UnixTime::since_unix_epoch(clock::wall());
        let Some((own, others)) = self.chain.split_first() else {
            return false;
        };
        let verified = trust.verifier.verify_client_cert(own, others, now);
        verified.is_ok()
    }
}

/// What a connection's handshake is worth under the rules in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// As much as one made now.
    Holds,
    /// The client was not asked as it would be now: it is served as one that shows no certificate, and has to come
    /// again to show one.
    Unasked,
    /// Nothing: its requests are not served.
    Broken,
}

/// What became of the handshake of a connection that now stands so.
pub(super) fn of(standing: Standing, shown: Option<&Shown>, listener: &Listener) -> Trust {
    match standing {
        Standing::AsksOtherwise => judge(shown, listener),
        Standing::InForce | Standing::Gone => Trust::Holds,
    }
}

/// The same of a client's own connection.
pub(super) fn of_client(standing: Standing, down: &Downstream) -> Trust {
    of(standing, down.shown.as_deref(), &down.listener)
}

fn judge(shown: Option<&Shown>, listener: &Listener) -> Trust {
    let tls = listener.tls.as_ref();
    let asked =
        tls.and_then(|tls| Some((tls.client_auth.as_ref()?.mode, tls.client_trust.as_ref()?)));
    let Some((mode, trust)) = asked else {
        return Trust::Holds;
    };
    match (shown, mode) {
        (Some(shown), _) if shown.is_believed(trust) => Trust::Holds,
        (None, ClientAuthMode::Optional) => Trust::Unasked,
        // One that is not believed ends a handshake in either mode.
        (Some(_), _) | (None, ClientAuthMode::Required) => Trust::Broken,
    }
}

/// Whether both listeners ask the same of their clients.
pub(super) fn ask_alike(one: &Listener, other: &Listener) -> bool {
    asked_by(one) == asked_by(other)
}

fn asked_by(listener: &Listener) -> Option<MadeOf> {
    let trust = listener.tls.as_ref()?.client_trust.as_ref();
    trust.map(|trust| trust.made_of)
}
