//! What would become of a request, by the functions that decide on real ones.
//!
//! A head is judged as a worker judges it, on a snapshot in force or one that was only compiled; then its pool is
//! asked whom it would pick. Nothing is sent, counted or claimed.

use super::answer;
use super::error::Reason;
use super::plan::{self, Decision, Plan, Sender, View};
use crate::h1::line::Lines;
use crate::h1::request;
use crate::snapshot::route::{NormalPath, Route};
use crate::snapshot::{
    Answer, AskError, Asked, Bind, Explained, HashKey, Listener, ListenerKind, Offered, Picked,
    Pool, Seen, Snapshot,
};
use mizan_core::pool::Pick;
use mizan_core::time::Instant;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Says what would become of the request that is `asked` about.
///
/// # Errors
/// If it names a listener or pool that is not there, or fits no listener.
pub fn explain<'s>(
    snapshot: &'s Snapshot,
    asked: &Asked,
    now: Instant,
) -> Result<Explained<'s>, AskError> {
    let named = |name: &String| {
        let pool = snapshot.pools.get(&**name);
        pool.ok_or_else(|| AskError::UnknownPool(name.clone()))
    };
    let instead = asked.pool.as_ref().map(named).transpose()?;
    let region = |name: &str| {
        let place = snapshot.regions.named(&snapshot.settings.region, name);
        place.ok_or_else(|| AskError::UnknownRegion(name.to_owned()))
    };
    let (listener, assumed_listener) = listener(snapshot, asked)?;
    let peer = match listener.bind {
        Bind::Unix(_) => None,
        Bind::Tcp(_) | Bind::Udp(_) => Some(asked.client.unwrap_or(Ipv4Addr::LOCALHOST.into())),
    };
    let peer = peer.map(|peer| peer.to_canonical());
    let peer_text = peer.map_or("unknown".into(), |peer| peer.to_string());
    let sender = Sender {
        listener,
        peer,
        peer_text: peer_text.as_bytes(),
        trusted: listener.believes(peer),
        secure: listener.tls.is_some(),
        http2: false,
        shown: None,
        chance: Some(asked.seed),
        region: asked.region.as_deref().map(region).transpose()?,
    };
    let mut explained = Explained {
        listener,
        assumed_listener,
        seen: Seen::default(),
        route: None,
        region: None,
        offered: None,
        near: (Vec::new(), 0),
        answer: None,
        picked: None,
    };
    if !listener.networks.permits(peer) {
        explained.answer = Some(Answer {
            status: 0,
            code: "denied",
            is_wanted: false,
            location: String::new(),
            why: format!(
                "listener `{}` does not let {peer_text} connect (allow, deny)",
                listener.name
            ),
        });
        return Ok(explained);
    }
    judge(snapshot, asked, &sender, (instead, now), &mut explained);
    Ok(explained)
}

/// Decides, and then looks at what it was decided on.
fn judge<'s>(
    snapshot: &'s Snapshot,
    asked: &Asked,
    sender: &Sender<'_>,
    (instead, now): (Option<&'s Arc<Pool>>, Instant),
    explained: &mut Explained<'s>,
) {
    let mut plan = Plan::new(Vec::new());
    let decision = plan::judge(&asked.head, sender, snapshot, Vec::new, &mut plan);
    let (route, decided) = match decision {
        Decision::Forward(route, pool) => (Some(route), Some(pool)),
        Decision::Answer(route, _) => (route, None),
    };
    let pool = decided.map(|pool| instead.unwrap_or(pool));
    explained.route = route;
    let mut lines = Lines::new();
    if let Ok(Some(head)) = request::parse(&asked.head, &mut lines, plan::limits(sender.listener)) {
        let (raw_path, query) = plan::split_query(head.target);
        let path = NormalPath::parse(raw_path).map(|(path, _)| path);
        let mut lower = [0; 256];
        let view = View {
            head: &head,
            forwarding: &sender.forwarding(),
            host: plan::lower_host(&head, &mut lower),
            path: path.as_ref().map_or("", |path| path.as_str()),
            query,
            client: plan.client,
        };
        explained.seen = seen(&view);
        if let Some(route) = route {
            let names = &snapshot.regions;
            let others = plan.region.checked_sub(1).map(usize::from);
            let name = others.map_or(&snapshot.settings.region, |at| &names.names()[at]);
            explained.region = (!names.is_single()).then(|| Arc::clone(name));
            explained.offered = offered(route, asked.language.as_deref(), &view);
        }
        if path.is_ok() && !matches!(decision, Decision::Answer(_, Reason::RedirectToHttps)) {
            explained.near = snapshot.routes.near(&sender.listener.name, &view);
        }
        if let (Some(route), Some(pool)) = (route, pool) {
            let ask = |pool: &'s Arc<Pool>| Picked {
                pool,
                instead: instead.is_some(),
                stands_in_for: Vec::new(),
                then: Vec::new(),
                split: split(route, plan.region),
                split_by: split_by(route, plan.region, &view),
                target: target(&plan),
                key: pool.hash_key.as_ref(),
                value: pool.hash_key.as_ref().and_then(|key| value(key, &view)),
                hash: hash(pool, instead.is_some(), (&plan, decided), &view),
                seed: asked.seed,
                pick: pool.core.explain(&Pick {
                    now,
                    random: asked.seed,
                    hash: hash(pool, instead.is_some(), (&plan, decided), &view),
                    tried: &[],
                    worker: 0,
                }),
                waiting: pool.waiters.count(),
            };
            explained.picked = Some(match instead {
                Some(_) => ask(pool),
                None => first_with_somebody(pool, route.fallback(plan.region.into()), ask),
            });
        }
    }
    explained.answer = match (&decision, &explained.picked) {
        (Decision::Answer(route, reason), _) => Some(answer(&plan, *route, *reason)),
        (Decision::Forward(route, _), Some(picked)) => {
            refusal(picked).map(|reason| answer(&plan, Some(route), reason))
        }
        (Decision::Forward(..), None) => None,
    };
}

/// As a request goes on: to the next pool where those before have nobody.
fn first_with_somebody<'s>(
    pool: &'s Arc<Pool>,
    fallback: &'s [Arc<Pool>],
    ask: impl Fn(&'s Arc<Pool>) -> Picked<'s>,
) -> Picked<'s> {
    let mut picked = ask(pool);
    let mut before = Vec::new();
    let mut others = fallback.iter().filter(|next| !Arc::ptr_eq(next, pool));
    while refusal(&picked) == Some(Reason::NoBackend) {
        let Some(next) = others.next() else {
            break;
        };
        before.push(Arc::clone(&picked.pool.name));
        picked = ask(next);
    }
    picked.stands_in_for = before;
    picked.then = others.map(|next| Arc::clone(&next.name)).collect();
    picked
}

/// What places the request in `pool`: as it was planned, where that is by the same key.
fn hash(
    pool: &Pool,
    is_asked_for: bool,
    (plan, decided): (&Plan, Option<&Arc<Pool>>),
    view: &View<'_, '_, '_>,
) -> Option<u64> {
    let key = pool.hash_key.as_ref()?;
    if is_asked_for {
        return plan::hash_of(key, view);
    }
    let is_same = decided.is_some_and(|decided| decided.hash_key.as_ref() == Some(key));
    plan.hash.filter(|_| is_same)
}

fn seen(view: &View<'_, '_, '_>) -> Seen {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Seen {
        method: text(view.head.method),
        host: view.host.into(),
        path: view.path.into(),
        query: view.query.map(text),
        client: view.client,
    }
}

/// The value that is hashed, for people.
fn value(key: &HashKey, view: &View<'_, '_, '_>) -> Option<String> {
    let text = plan::with_key(key, view, |value| {
        String::from_utf8_lossy(value).into_owned()
    })?;
    Some(match (key, view.client) {
        (HashKey::ClientAddress, Some(client)) => client.to_string(),
        _ => text,
    })
}

/// The target in the head that the backend gets.
fn target(plan: &Plan) -> String {
    let mut words = plan.head.split(|byte| *byte == b' ');
    String::from_utf8_lossy(words.nth(1).unwrap_or_default()).into_owned()
}

/// The settings that the route offers its backends for the request's language, or for `instead`.
fn offered(route: &Route, instead: Option<&str>, view: &View<'_, '_, '_>) -> Option<Offered> {
    let headers = route.varying.as_ref()?.settings.as_ref()?;
    let said = || value(&headers.language, view);
    let language = instead.map(str::to_owned).or_else(said);
    let edits = headers.of(language.as_deref().map(str::as_bytes));
    let is_setting = |edit: &&(String, String)| !route.request_headers.set.contains(edit);
    Some(Offered {
        language,
        settings: edits.set.iter().filter(is_setting).cloned().collect(),
    })
}

fn split_by<'s>(
    route: &'s Route,
    region: u16,
    view: &View<'_, '_, '_>,
) -> Option<(&'s HashKey, String)> {
    let key = route.split(region.into())?.key.as_ref()?;
    Some((key, value(key, view)?))
}

fn split(route: &Route, region: u16) -> Vec<(Arc<str>, f64)> {
    let Some(split) = route.split(region.into()) else {
        return Vec::new();
    };
    let total = split.pools.last().map_or(1, |(_, sum)| *sum).max(1);
    let mut before = 0;
    let share = |(pool, sum): &(Arc<Pool>, u64)| {
        let weight = sum - std::mem::replace(&mut before, *sum);
        (Arc::clone(&pool.name), 100.0 * weight as f64 / total as f64)
    };
    match split.pools.len() {
        1 => Vec::new(),
        _ => split.pools.iter().map(share).collect(),
    }
}

/// What is answered if nobody is picked; `None`: somebody is, or may be after a wait.
fn refusal(picked: &Picked<'_>) -> Option<Reason> {
    let no_pick = picked.pick.picked.as_ref().err()?;
    let is_full = picked.waiting >= picked.pool.queue.requests_max;
    Reason::of(*no_pick).or(is_full.then_some(Reason::QueueFull))
}

fn answer(plan: &Plan, route: Option<&Arc<Route>>, reason: Reason) -> Answer {
    Answer {
        status: answer::status(plan, route, reason),
        code: reason.code(),
        is_wanted: matches!(
            reason,
            Reason::Redirect
                | Reason::RedirectToHttps
                | Reason::Respond
                | Reason::Options
                | Reason::Trace
        ),
        location: String::from_utf8_lossy(&plan.location).into_owned(),
        why: why(plan, route, reason),
    }
}

fn why(plan: &Plan, route: Option<&Arc<Route>>, reason: Reason) -> String {
    let name = route.map_or("", |route| &*route.name);
    let client = plan
        .client
        .map_or("a Unix socket".into(), |client| client.to_string());
    match reason {
        Reason::Head(error) => format!("the head is refused: {error}"),
        Reason::Path if route.is_some() => format!(
            "the path has an encoded slash, a backslash or a NUL, and route `{name}` does not set allow_odd_path"
        ),
        Reason::Path => {
            "the path has an encoded slash, a backslash, a NUL or a bad percent-encoding".into()
        }
        Reason::NoRoute => "no route's host, path and conditions all hold".into(),
        Reason::Forbidden => format!("route `{name}` does not let {client} use it (allow, deny)"),
        Reason::BodyTooLarge => "its body is larger than body_max allows".into(),
        Reason::Redirect | Reason::Respond => format!("route `{name}` asks for it"),
        Reason::RedirectToHttps => "the listener sends every request to https".into(),
        Reason::Options | Reason::Trace => "Max-Forwards is 0: no further proxy may see it".into(),
        Reason::NoBackend => "the pool has no backend that may get it".into(),
        Reason::QueueFull => "all usable backends are full, and the pool's queue too".into(),
        _ => String::new(),
    }
}

/// The listener that a request comes to, and whether others would do as well.
fn listener<'s>(
    snapshot: &'s Snapshot,
    asked: &Asked,
) -> Result<(&'s Arc<Listener>, bool), AskError> {
    let listeners = &snapshot.listeners;
    let reads = |listener: &&Arc<Listener>| listener.kind == ListenerKind::Http;
    let fits = |listener: &&Arc<Listener>| {
        let secure = listener.tls.is_some();
        asked.secure.is_none_or(|wanted| wanted == secure)
    };
    let unfit = |listener: &Listener| {
        let speaks = match listener.tls {
            Some(_) => "speaks TLS: ask for https://",
            None => "speaks no TLS: ask for http://",
        };
        AskError::OtherScheme(listener.name.to_string(), speaks)
    };
    if let Some(name) = &asked.listener {
        let named = listeners.iter().find(|listener| *listener.name == **name);
        let named = named.ok_or_else(|| AskError::UnknownListener(name.clone()))?;
        return match (reads(&named), fits(&named)) {
            (false, _) => Err(AskError::NotHttp(name.clone())),
            (true, false) => Err(unfit(named)),
            (true, true) => Ok((named, false)),
        };
    }
    let reading: Vec<_> = listeners.iter().filter(reads).collect();
    let fitting: Vec<_> = reading.iter().copied().filter(fits).collect();
    let on_port =
        |listener: &&&Arc<Listener>| asked.port.is_some() && listener.bind.port() == asked.port;
    match (fitting.iter().find(on_port), &fitting[..], &reading[..]) {
        (Some(listener), _, _) => Ok((listener, false)),
        (None, [first, others @ ..], _) => Ok((first, !others.is_empty())),
        (None, [], [other, ..]) => Err(unfit(other)),
        (None, [], []) => Err(AskError::NoListener),
    }
}
