//! Routes.

use super::networks;
use crate::config::rules::without_slash;
use crate::config::schema;
use crate::config::text::Text;
use crate::snapshot::Networks;
use crate::snapshot::Pool;
use crate::snapshot::route::{
    Action, ErrorPage, HeaderEdits, PathMatch, Rewrite, Route, RouteTimeouts, Split, ValueMatch,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pools by name.
type Pools = BTreeMap<Arc<str>, Arc<Pool>>;

pub(super) fn build(index: usize, from: &schema::Route, pools: &Pools) -> Option<Route> {
    Some(Route {
        name: from
            .name
            .clone()
            .map_or_else(|| Arc::from(format!("route[{index}]")), Arc::from),
        index,
        listeners: from
            .listener
            .as_slice()
            .iter()
            .map(|name| Arc::from(name.as_str()))
            .collect(),
        hosts: from
            .host
            .as_slice()
            .iter()
            .map(|host| host.value.clone())
            .collect(),
        path: path(from),
        methods: from
            .method
            .as_slice()
            .iter()
            .map(|method| method.value.0.clone())
            .collect(),
        headers: values(&from.header, str::to_ascii_lowercase)?,
        query: values(&from.query, str::to_owned)?,
        client: from
            .client
            .as_slice()
            .iter()
            .map(|network| network.value)
            .collect(),
        networks: Networks {
            allow: networks(&from.allow),
            deny: networks(&from.deny),
        },
        allow_odd_path: from.allow_odd_path,
        grpc_web: from.grpc_web,
        action: action(from, pools)?,
        request_headers: edits(&from.request_headers),
        response_headers: edits(&from.response_headers),
        rewrite: match &from.rewrite {
            Some(from) => Some(rewrite(from)?),
            None => None,
        },
        timeouts: timeouts(&from.timeouts),
        body_bytes_max: from
            .body_max
            .as_ref()
            .map(|size| size.value.0.unwrap_or(u64::MAX)),
        error_pages: from
            .error_pages
            .iter()
            .map(|(status, page)| Some((status.parse().ok()?, Arc::new(error_page(page)))))
            .collect::<Option<_>>()?,
    })
}

fn path(from: &schema::Route) -> PathMatch {
    match (&from.path, &from.prefix, &from.regex) {
        (Some(path), _, _) => PathMatch::Exact(path.value.0.clone()),
        (_, Some(prefix), _) => PathMatch::Prefix(without_slash(&prefix.value).to_owned()),
        (_, _, Some(regex)) => PathMatch::Regex(regex.value.whole.clone()),
        (None, None, None) => PathMatch::Prefix("/".to_owned()),
    }
}

fn values(
    from: &BTreeMap<String, schema::ValueMatch>,
    name: impl Fn(&str) -> String,
) -> Option<Vec<(String, ValueMatch)>> {
    let value = |value: &schema::ValueMatch| {
        Some(match value {
            schema::ValueMatch::Present(_) => ValueMatch::Present,
            schema::ValueMatch::Exact(text) => ValueMatch::Exact(text.clone()),
            schema::ValueMatch::Regex(regex) => {
                ValueMatch::Regex(regex.regex.as_ref()?.value.whole.clone())
            }
        })
    };
    from.iter()
        .map(|(key, wanted)| Some((name(key), value(wanted)?)))
        .collect()
}

fn action(from: &schema::Route, pools: &Pools) -> Option<Action> {
    if let Some(name) = &from.pool {
        let pool = Arc::clone(pools.get(name.as_str())?);
        return Some(Action::Forward(Split {
            pools: vec![(pool, 1)],
            key: None,
            fallback: fallback(from, pools)?,
        }));
    }
    if let Some(parts) = &from.split {
        let mut sum = 0;
        let mut weighted = Vec::with_capacity(parts.len());
        for part in parts {
            sum += u64::from(part.weight?);
            weighted.push((Arc::clone(pools.get(part.pool.as_deref()?)?), sum));
        }
        let key = from.split_key.as_ref().map(|key| key.value.clone());
        return (sum > 0).then_some(Action::Forward(Split {
            pools: weighted,
            key,
            fallback: fallback(from, pools)?,
        }));
    }
    if let Some(redirect) = &from.redirect {
        return Some(Action::Redirect {
            status: redirect.status,
            location: redirect.location.as_ref()?.value.0.clone(),
        });
    }
    let respond = from.respond.as_ref()?;
    Some(Action::Respond {
        status: respond.status,
        content_type: respond.content_type.value.0.clone(),
        body: Arc::from(respond.body.as_bytes()),
    })
}

fn fallback(from: &schema::Route, pools: &Pools) -> Option<Vec<Arc<Pool>>> {
    let named = from.fallback.iter();
    named
        .map(|name| pools.get(name.as_str()).cloned())
        .collect()
}

fn edits(from: &schema::HeaderEdits) -> HeaderEdits {
    let fields = |fields: &BTreeMap<String, Text<crate::config::text::HeaderValue>>| {
        fields
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.value.0.clone()))
            .collect()
    };
    HeaderEdits {
        remove: from
            .remove
            .iter()
            .map(|name| name.value.0.clone())
            .collect(),
        set: fields(&from.set),
        add: fields(&from.add),
    }
}

fn rewrite(from: &schema::Rewrite) -> Option<Rewrite> {
    if let Some(prefix) = &from.prefix {
        return Some(Rewrite::Prefix(without_slash(&prefix.value).to_owned()));
    }
    Some(Rewrite::Regex {
        pattern: from.regex.as_ref()?.value.anywhere.clone(),
        replacement: from.to.clone()?,
    })
}

fn timeouts(from: &schema::RouteTimeouts) -> RouteTimeouts {
    let time =
        |time: &Option<Text<crate::config::text::Time>>| time.as_ref().map(|time| time.value.0);
    RouteTimeouts {
        request: time(&from.request),
        response_header: time(&from.response_header),
        response_idle: time(&from.response_idle),
        per_try: time(&from.per_try),
    }
}

fn error_page(from: &schema::ErrorPage) -> ErrorPage {
    let (body, content_type) = match from {
        schema::ErrorPage::Body(body) => {
            (body, schema::ErrorPageTable::default().content_type.value.0)
        }
        schema::ErrorPage::Full(page) => (&page.body, page.content_type.value.0.clone()),
    };
    ErrorPage {
        content_type,
        body: body.clone().into_bytes(),
    }
}
