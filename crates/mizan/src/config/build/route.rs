//! Routes.

use super::networks;
use crate::config::rules::without_slash;
use crate::config::schema;
use crate::config::text::Text;
use crate::config::tree::Factors;
use crate::snapshot::Networks;
use crate::snapshot::Pool;
use crate::snapshot::route::{
    Action, ErrorPage, HeaderEdits, PathMatch, Rewrite, Route, RouteTimeouts, Split, ValueMatch,
};
use mizan_routing::document::FACTOR;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pools by name.
type Pools = BTreeMap<Arc<str>, Arc<Pool>>;

/// What routes name.
pub(super) struct Named<'a> {
    pub(super) pools: &'a Pools,
    pub(super) file: &'a schema::File,
    /// What weights of pools are multiplied by.
    pub(super) factors: &'a Factors,
}

impl Named<'_> {
    fn pool(&self, name: &str) -> Option<Arc<Pool>> {
        self.pools.get(name).cloned()
    }

    /// A pool's weight in a split; in thousandths where something is boosted.
    fn weight(&self, pool: &str, weight: u32) -> u64 {
        if self.factors.is_empty() {
            return u64::from(weight);
        }
        let factor = self.factors.get(pool).copied().unwrap_or(1.0);
        let (least, most) = FACTOR.into_inner();
        let boosted = f64::from(weight) * factor.clamp(least, most);
        (boosted * 1000.0).round() as u64
    }
}

pub(super) fn build(index: usize, from: &schema::Route, named: &Named<'_>) -> Option<Route> {
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
        action: action(from, named)?,
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

fn action(from: &schema::Route, named: &Named<'_>) -> Option<Action> {
    if let Some(name) = &from.pool {
        return forward(
            vec![(named.pool(name)?, 1)],
            fallback(from, &[], named)?,
            from,
        );
    }
    if let Some(name) = &from.chain {
        let chained = named.file.chained(name);
        let (first, next) = chained.split_first()?;
        return forward(
            vec![(named.pool(first)?, 1)],
            fallback(from, next, named)?,
            from,
        );
    }
    if let Some(parts) = &from.split {
        let mut sum = 0;
        let mut weighted = Vec::with_capacity(parts.len());
        for part in parts {
            let pool = part.pool.as_deref()?;
            sum += named.weight(pool, part.weight?);
            weighted.push((named.pool(pool)?, sum));
        }
        return (sum > 0)
            .then_some(forward(weighted, fallback(from, &[], named)?, from))
            .flatten();
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

fn forward(
    pools: Vec<(Arc<Pool>, u64)>,
    fallback: Vec<Arc<Pool>>,
    from: &schema::Route,
) -> Option<Action> {
    Some(Action::Forward(Split {
        pools,
        key: from.split_key.as_ref().map(|key| key.value.clone()),
        fallback,
    }))
}

/// The rest of its chain, and what stands in for that.
fn fallback(from: &schema::Route, chained: &[&str], named: &Named<'_>) -> Option<Vec<Arc<Pool>>> {
    let own = from.fallback.iter().map(String::as_str);
    let names = chained.iter().copied().chain(own);
    names.map(|name| named.pool(name)).collect()
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
