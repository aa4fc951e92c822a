//! Routes.

use super::networks;
use crate::config::rules::without_slash;
use crate::config::schema;
use crate::config::text::Text;
use crate::config::tree::Stored;
use crate::snapshot::route::{
    Action, ErrorPage, HeaderEdits, PathMatch, Rewrite, Route, RouteTimeouts, Split, ValueMatch,
};
use crate::snapshot::{HashKey, Networks, Pool, Regions, SettingHeaders, Varying};
use mizan_routing::document::FACTOR;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pools by name.
type Pools = BTreeMap<Arc<str>, Arc<Pool>>;

/// What routes name.
pub(super) struct Named<'a> {
    pub(super) pools: &'a Pools,
    pub(super) file: &'a schema::File,
    pub(super) stored: &'a Stored,
    pub(super) regions: &'a Regions,
}

impl Named<'_> {
    fn pool(&self, name: &str) -> Option<Arc<Pool>> {
        self.pools.get(name).cloned()
    }

    /// A pool's weight in a split; in thousandths where something is boosted.
    fn weight(&self, pool: &str, weight: u32) -> u64 {
        if self.stored.factors.is_empty() {
            return u64::from(weight);
        }
        let factor = self.stored.factors.get(pool).copied().unwrap_or(1.0);
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
        varying: varying(from, named),
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

/// What depends on a request's region and language.
fn varying(from: &schema::Route, named: &Named<'_>) -> Option<Box<Varying>> {
    let is_forwarding = from.pool.is_some() || from.chain.is_some() || from.split.is_some();
    let regions: Vec<_> = match is_forwarding {
        true => named
            .regions
            .names()
            .iter()
            .map(|region| split_of(from, region, named))
            .collect(),
        false => Vec::new(),
    };
    let settings = (!from.settings.is_empty()).then(|| settings(from, named.stored));
    let varies = !regions.is_empty() || settings.is_some();
    varies.then(|| Box::new(Varying { regions, settings }))
}

/// Where requests of another region go: to its pools of those names, and to pools that are of no region. `None`: there are
/// none of them.
fn split_of(from: &schema::Route, region: &str, named: &Named<'_>) -> Option<Split> {
    let there = |name: &str| -> Option<String> {
        let own = format!("{region}/{name}");
        if named.pools.contains_key(own.as_str()) {
            return Some(own);
        }
        // A pool of the balancer's own region is no stand-in for one that is missing in another.
        let is_of_file = named.file.pool.contains_key(name) && !named.stored.pools.contains(name);
        is_of_file.then(|| name.to_owned())
    };
    let weighted = |parts: Vec<(String, u32)>| {
        let mut sum = 0;
        let pools: Vec<_> = parts
            .into_iter()
            .filter_map(|(name, weight)| {
                sum += named.weight(&name, weight);
                Some((named.pool(&name)?, sum))
            })
            .collect();
        (sum > 0 && !pools.is_empty()).then_some(pools)
    };
    let chain = from.chain.as_ref().map(|chain| {
        let own = format!("{region}/{chain}");
        match named.file.chain.get(&own) {
            // Its links have their regions' names already.
            Some(chain) => chain.pools.clone(),
            None => match named
                .file
                .chain
                .get(chain)
                .filter(|_| !named.stored.chains.contains(chain))
            {
                Some(of_file) => of_file
                    .pools
                    .iter()
                    .filter_map(|name| there(name))
                    .collect(),
                None => there(chain).into_iter().collect(),
            },
        }
    });
    let mut chained = chain.unwrap_or_default().into_iter();
    let parts: Vec<(String, u32)> = match (&from.pool, &from.split) {
        (Some(pool), _) => there(pool).map(|pool| (pool, 1)).into_iter().collect(),
        (None, Some(parts)) => {
            let part =
                |part: &schema::SplitPart| Some((there(part.pool.as_deref()?)?, part.weight?));
            parts.iter().filter_map(part).collect()
        }
        (None, None) => chained.next().map(|pool| (pool, 1)).into_iter().collect(),
    };
    let fallback = from.fallback.iter().filter_map(|name| there(name));
    Some(Split {
        pools: weighted(parts)?,
        key: from.split_key.as_ref().map(|key| key.value.clone()),
        fallback: chained
            .chain(fallback)
            .filter_map(|name| named.pool(&name))
            .collect(),
    })
}

fn settings(from: &schema::Route, stored: &Stored) -> SettingHeaders {
    let names: Vec<String> = from
        .settings
        .keys()
        .map(|name| name.to_ascii_lowercase())
        .collect();
    let mut without = edits(&from.request_headers);
    without.remove.extend(names.iter().cloned());
    let of = |values: &BTreeMap<String, String>| {
        let mut edits = without.clone();
        for (header, setting) in &from.settings {
            if let Some(value) = values.get(setting) {
                edits.set.push((header.to_ascii_lowercase(), value.clone()));
            }
        }
        edits
    };
    let by_language = stored
        .settings
        .iter()
        .map(|(tag, values)| (tag.clone(), of(values)));
    SettingHeaders {
        language: from.language.as_ref().map_or_else(
            || HashKey::Header("accept-language".to_owned()),
            |key| key.value.clone(),
        ),
        by_language: by_language.collect(),
        without,
    }
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
