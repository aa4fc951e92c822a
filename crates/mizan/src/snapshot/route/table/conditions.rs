//! What a route asks for beside host and path.

use crate::snapshot::route::{RequestView, Route, ValueMatch};

/// How many conditions `route` has: more make it more specific.
pub(super) fn count(route: &Route) -> usize {
    let lists = [
        route.listeners.is_empty(),
        route.methods.is_empty(),
        route.client.is_empty(),
    ];
    lists.into_iter().filter(|is_empty| !is_empty).count() + route.headers.len() + route.query.len()
}

/// Whether all conditions of `route` hold.
pub(super) fn hold(route: &Route, listener: &str, view: &impl RequestView) -> bool {
    (route.listeners.is_empty() || route.listeners.iter().any(|name| **name == *listener))
        && (route.methods.is_empty()
            || route
                .methods
                .iter()
                .any(|method| method.as_bytes() == view.method()))
        && (route.client.is_empty() || comes_from(route, view))
        && route
            .headers
            .iter()
            .all(|(name, value)| matches(value, view.header(name).as_deref()))
        && route
            .query
            .iter()
            .all(|(name, value)| matches(value, parameter(view.query(), name)))
}

fn comes_from(route: &Route, view: &impl RequestView) -> bool {
    let client = view.client().map(|address| address.to_canonical());
    client.is_some_and(|client| route.client.iter().any(|network| network.contains(&client)))
}

fn matches(expected: &ValueMatch, value: Option<&[u8]>) -> bool {
    let Some(value) = value else {
        return false;
    };
    match expected {
        ValueMatch::Present => true,
        ValueMatch::Exact(text) => text.as_bytes() == value,
        ValueMatch::Regex(regex) => regex.is_match(value),
    }
}

/// The raw value of the first parameter `name`; one without `=` has an empty value.
fn parameter<'a>(query: Option<&'a [u8]>, name: &str) -> Option<&'a [u8]> {
    query?.split(|byte| *byte == b'&').find_map(|pair| {
        match pair.strip_prefix(name.as_bytes())? {
            [] => Some(&[][..]),
            [b'=', value @ ..] => Some(value),
            _ => None,
        }
    })
}
