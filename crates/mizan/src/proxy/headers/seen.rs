//! What routes and keys see of a request's fields: what its backend will read, not what its client wrote.
//!
//! Otherwise a client could have the route of somebody else by a field that never reaches the backend, such as the name
//! in a certificate that it has not. What Mizan makes only when the head is written (an identifier, a trace, `Via`) is
//! not seen, and what a route's edits do comes later: they are the route's, and it is looked for here.

use super::{
    Chain, Forwarding, is_request_id, is_traceparent, scheme, write_forwarded, write_forwarded_for,
};
use crate::h1::field::{self, Field};
use crate::h1::request::RequestHead;
use crate::snapshot::is_reserved;
use std::borrow::Cow;

/// The value of the first field `name` (in lower case) that the backend gets.
pub(in super::super) fn seen<'v>(
    head: &RequestHead<'_, 'v>,
    name: &str,
    forwarding: &Forwarding<'v>,
) -> Option<Cow<'v, [u8]>> {
    let first = || {
        let mut lines = head.lines.iter();
        lines.find(|line| line.is(name)).map(|line| line.value)
    };
    let sound = |is_sound: fn(&[u8]) -> bool| {
        let mut values = head.lines.iter().filter(|line| line.is(name));
        values
            .find(|line| is_sound(line.value))
            .map(|line| line.value)
    };
    let told = || forwarding.trusted.then(first).flatten();
    let value = match field::classify(name.as_bytes()) {
        Field::Other | Field::Via if is_reserved(forwarding.reserved, name.as_bytes()) => {
            identity(name, forwarding)
        }
        Field::Other | Field::Via | Field::XUpstream if head.is_listed(name.as_bytes()) => None,
        // One of an absolute target counts for more (RFC 9112 §3.2.2).
        Field::Host => (!head.authority.is_empty()).then_some(head.authority),
        Field::IdentityLookalike => None,
        Field::XForwardedFor => {
            let mut value = Vec::new();
            let kept = chain(head, Field::XForwardedFor, forwarding);
            write_forwarded_for(&mut value, &kept, forwarding);
            return Some(Cow::Owned(value));
        }
        Field::Forwarded => {
            let mut value = Vec::new();
            let kept = chain(head, Field::Forwarded, forwarding);
            write_forwarded(&mut value, &kept, (head, forwarding));
            return Some(Cow::Owned(value));
        }
        Field::XForwardedProto => told().or(Some(scheme(forwarding.secure))),
        Field::XForwardedHost => told().or(Some(head.authority)),
        Field::XRealIp if head.is_listed(name.as_bytes()) => None,
        Field::XRealIp => told(),
        Field::XRequestId => sound(is_request_id),
        Field::Traceparent => sound(is_traceparent),
        // Of this hop: no claim, but how the client speaks to Mizan.
        _ => first(),
    };
    value.map(Cow::Borrowed)
}

/// What Mizan tells the backend of the client's certificate under `name`, which only Mizan may use.
fn identity<'v>(name: &str, forwarding: &Forwarding<'v>) -> Option<&'v [u8]> {
    let (names, identity) = forwarding.identity?;
    let is = |known: &Option<String>| known.as_deref() == Some(name);
    if is(&names.verified) {
        return Some(super::verified(identity).as_bytes());
    }
    let identity = identity?;
    let told = [
        (&names.subject, &identity.subject),
        (&names.san, &identity.san),
        (&names.fingerprint, &identity.fingerprint),
    ];
    let value = told.into_iter().find(|(known, _)| is(known));
    value.map(|(_, value)| value.as_bytes())
}

/// The lines of a list field that are passed on.
fn chain<'v>(head: &RequestHead<'_, 'v>, field: Field, forwarding: &Forwarding<'_>) -> Chain<'v> {
    let mut chain = Chain::default();
    for line in head.lines.iter().filter(|line| line.field == field) {
        chain.note(forwarding.trusted, line.value);
    }
    chain
}

#[cfg(test)]
mod tests;
