//! What a route asks for beside host and path.

use super::near::Failed;
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
    is_on(route, listener)
        && is_by_method(route, view)
        && is_from(route, view)
        && route
            .headers
            .iter()
            .all(|(name, value)| matches(value, view.header(name).as_deref()))
        && route
            .query
            .iter()
            .all(|(name, value)| matches(value, parameter(view.query(), name)))
}

/// The conditions of `route` that do not hold, and what they see: none exactly if [`hold`] says so.
pub(super) fn failed(route: &Route, listener: &str, view: &impl RequestView) -> Vec<Failed> {
    let mut failed = Vec::new();
    let mut note = |what: String, wanted: String, saw: Option<&[u8]>| {
        let saw = saw.map(|value| String::from_utf8_lossy(value).into_owned());
        failed.push(Failed { what, wanted, saw });
    };
    if !is_on(route, listener) {
        note(
            "listener".into(),
            one_of(&route.listeners),
            Some(listener.as_bytes()),
        );
    }
    if !is_by_method(route, view) {
        note("method".into(), one_of(&route.methods), Some(view.method()));
    }
    if !is_from(route, view) {
        let client = view
            .client()
            .map(|client| client.to_canonical().to_string());
        let client = client.as_deref().map(str::as_bytes);
        note("client".into(), one_of(&route.client), client);
    }
    for (name, value) in &route.headers {
        let saw = view.header(name);
        if !matches(value, saw.as_deref()) {
            note(format!("header {name}"), wanted(value), saw.as_deref());
        }
    }
    for (name, value) in &route.query {
        let saw = parameter(view.query(), name);
        if !matches(value, saw) {
            note(format!("query {name}"), wanted(value), saw);
        }
    }
    failed
}

fn one_of(values: &[impl ToString]) -> String {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    values.join(" or ")
}

fn wanted(value: &ValueMatch) -> String {
    match value {
        ValueMatch::Present => "any value".into(),
        ValueMatch::Exact(text) => text.clone(),
        ValueMatch::Regex(regex) => format!("~ {regex}"),
    }
}

fn is_on(route: &Route, listener: &str) -> bool {
    route.listeners.is_empty() || route.listeners.iter().any(|name| **name == *listener)
}

fn is_by_method(route: &Route, view: &impl RequestView) -> bool {
    let is = |method: &String| method.as_bytes() == view.method();
    route.methods.is_empty() || route.methods.iter().any(is)
}

fn is_from(route: &Route, view: &impl RequestView) -> bool {
    if route.client.is_empty() {
        return true;
    }
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
