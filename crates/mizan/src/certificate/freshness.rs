//! Until when what says of certificates that they are revoked, or not, holds: revocation lists (RFC 5280 §5.1.2.5) and
//! responses of OCSP (RFC 6960 §4.2.1). Signatures are not looked at: that is for whoever believes them.

use super::NotACertificate;
use x509_parser::asn1_rs::{Any, Class, FromDer as _, Tag};
use x509_parser::prelude::{ASN1Time, CertificateRevocationList};

/// `nextUpdate` of a revocation list, in seconds since 1970; `None`: it has none.
///
/// # Errors
/// It is no revocation list.
pub fn list_holds_until(der: &[u8]) -> Result<Option<i64>, NotACertificate> {
    match CertificateRevocationList::from_der(der) {
        Ok((_, list)) => Ok(list.next_update().map(|time| time.timestamp())),
        Err(_) => Err(NotACertificate),
    }
}

/// What a response of OCSP is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staple {
    /// The responder has given an account, and the next one is due then, in seconds since 1970; `None`: it does not say.
    Until(Option<i64>),
    /// The responder has given none: it was too busy, say.
    Unsuccessful,
}

impl Staple {
    /// Reads a response; `None`: it is none.
    pub fn read(der: &[u8]) -> Option<Self> {
        let mut response = Fields(der).enter(Class::Universal, Tag::Sequence)?;
        let status = response.enter(Class::Universal, Tag::Enumerated)?;
        if status.0 != [0] {
            return Some(Self::Unsuccessful);
        }
        let mut bytes = response
            .enter(Class::ContextSpecific, Tag(0))?
            .enter(Class::Universal, Tag::Sequence)?;
        // The kind of response: there is but one.
        bytes.next()?;
        let mut basic = bytes
            .enter(Class::Universal, Tag::OctetString)?
            .enter(Class::Universal, Tag::Sequence)?;
        let data = basic.enter(Class::Universal, Tag::Sequence)?;
        // Before them: version and responder, whose tags are their own, and a time.
        let responses = data.find(|field| is(field, Class::Universal, Tag::Sequence))?;
        let mut until = None;
        let mut is_any = false;
        for single in responses {
            let due = next_update(Fields(single.data))?;
            until = [until, due].into_iter().flatten().min();
            is_any = true;
        }
        is_any.then_some(Self::Until(until))
    }
}

/// Of one certificate: its name, its state, when that was known, and when it will be known anew.
fn next_update(mut single: Fields<'_>) -> Option<Option<i64>> {
    let (_certificate, _state, _this_update) = (single.next()?, single.next()?, single.next()?);
    let next = match single.next() {
        Some(field) if is(&field, Class::ContextSpecific, Tag(0)) => field,
        _ => return Some(None),
    };
    let (_, time) = ASN1Time::from_der(next.data).ok()?;
    Some(Some(time.timestamp()))
}

fn is(field: &Any<'_>, class: Class, tag: Tag) -> bool {
    field.class() == class && field.tag() == tag
}

/// Values of DER, one behind the other.
struct Fields<'d>(&'d [u8]);

impl<'d> Iterator for Fields<'d> {
    type Item = Any<'d>;

    fn next(&mut self) -> Option<Any<'d>> {
        let (rest, field) = Any::from_der(self.0).ok()?;
        self.0 = rest;
        Some(field)
    }
}

impl<'d> Fields<'d> {
    /// What lies in the next one, which is of this kind.
    fn enter(&mut self, class: Class, tag: Tag) -> Option<Self> {
        let field = self.next()?;
        is(&field, class, tag).then_some(Self(field.data))
    }

    /// What lies in the first one that `fits`.
    fn find(mut self, fits: impl Fn(&Any<'d>) -> bool) -> Option<Self> {
        Iterator::find(&mut self, fits).map(|field| Self(field.data))
    }
}

#[cfg(test)]
mod tests;
