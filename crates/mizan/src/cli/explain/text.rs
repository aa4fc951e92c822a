//! What is told, for people.

use crate::admin::explain::{
    Candidate, ExplainView, FailedCondition, NearMiss, OwnAnswer, PoolAsked, RouteTaken,
    SettingsOffered,
};
use crate::cli::output::{state_word, table};

/// Backends shown of a large pool: those that are spoken of come first.
const BACKENDS_SHOWN: usize = 30;

pub(super) fn describe(view: &ExplainView) -> String {
    let mut rows = vec![
        row("REQUEST", request(view)),
        row("LISTENER", listener(view)),
    ];
    rows.push(row(
        "ROUTE",
        view.route.as_ref().map_or("none".into(), route),
    ));
    let nearly = view.nearly.iter().map(near);
    let more = (view.nearly_more > 0).then(|| format!("and {} more", view.nearly_more));
    rows.extend(headed("NEARLY", nearly.chain(more)));
    let region = view.request.region.as_ref();
    rows.extend(region.map(|region| row("REGION", region.clone())));
    rows.extend(view.pool.iter().flat_map(pool));
    rows.extend(view.offered.iter().map(|it| row("OFFERED", offered(it))));
    rows.extend(view.answer.iter().map(|own| row("ANSWER", answer(own))));
    let mut text = table("", &rows);
    if let Some(pool) = &view.pool {
        text += &format!("\n\n{}", candidates(pool));
    }
    text
}

fn row(head: &str, text: String) -> Vec<String> {
    vec![head.to_owned(), text]
}

/// Lines under one heading.
fn headed(head: &str, lines: impl Iterator<Item = String>) -> Vec<Vec<String>> {
    let heads = std::iter::once(head).chain(std::iter::repeat(""));
    heads
        .zip(lines)
        .map(|(head, line)| row(head, line))
        .collect()
}

fn request(view: &ExplainView) -> String {
    let seen = &view.request;
    if seen.method.is_empty() {
        return "its head cannot be read".into();
    }
    let query = seen
        .query
        .as_ref()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let client = seen.client.as_deref().unwrap_or("a Unix socket");
    format!(
        "{} {}{}{query}, from {client}",
        seen.method, seen.host, seen.path
    )
}

fn listener(view: &ExplainView) -> String {
    let assumed = match view.listener_assumed {
        true => " (the first that fits; --listener names another)",
        false => "",
    };
    format!("{}{assumed}", view.listener)
}

fn offered(offered: &SettingsOffered) -> String {
    let language = offered.language.as_deref().unwrap_or("none");
    let headers = offered.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    match &headers[..] {
        [] => format!("no settings (language {language})"),
        headers => format!("{} (language {language})", headers.join(", ")),
    }
}

fn route(route: &RouteTaken) -> String {
    let hosts = match &route.hosts[..] {
        [] => "any host".into(),
        hosts => hosts.join(" or "),
    };
    let conditions: String = route
        .conditions
        .iter()
        .map(|one| format!(", {one}"))
        .collect();
    format!(
        "{}: {hosts} {}{conditions} -> {}",
        route.name, route.path, route.action
    )
}

fn near(near: &NearMiss) -> String {
    let failed = |failed: &FailedCondition| {
        let saw = match &failed.saw {
            Some(saw) => format!("saw {saw:?}"),
            None => "saw none".into(),
        };
        format!("{} must be {}, {saw}", failed.what, failed.wanted)
    };
    let why = match &near.failed[..] {
        [] => "all holds, but a more specific route is asked first".into(),
        all => all.iter().map(failed).collect::<Vec<_>>().join("; "),
    };
    let host = match &*near.host {
        "" => "any host",
        host => host,
    };
    format!("{} ({host} {}): {why}", near.route, near.path)
}

fn pool(pool: &PoolAsked) -> Vec<Vec<String>> {
    let panic = match pool.panic {
        true => ", PANIC: health is ignored",
        false => "",
    };
    let instead = match pool.instead {
        true => ", asked for in place of the route's",
        false => "",
    };
    let before = match &pool.stands_in_for[..] {
        [] => String::new(),
        pools => format!(", in place of {}, which have nobody", pools.join(" and ")),
    };
    let of = format!(
        "{} ({}): {} of {} usable{panic}{instead}{before}",
        pool.name, pool.policy, pool.usable, pool.total
    );
    let mut rows = vec![row("POOL", of)];
    if !pool.split.is_empty() {
        let shares: Vec<_> = pool
            .split
            .iter()
            .map(|share| format!("{} {} %", share.pool, share.percent))
            .collect();
        rows.push(row(
            "SPLIT",
            match &pool.split_by {
                Some(by) => format!("{} (by {by})", shares.join(", ")),
                None => format!("{} (seed {})", shares.join(", "), pool.seed),
            },
        ));
    }
    rows.extend(pool.key.as_ref().map(|key| {
        let value = match (&key.value, &key.hash) {
            (Some(value), Some(hash)) => format!("{value:?}, hash {hash}"),
            _ => format!("not there: chance stands in for it (seed {})", pool.seed),
        };
        row("KEY", format!("{} = {value}", key.what))
    }));
    if !pool.drawn.is_empty() {
        let drawn = pool.drawn.join(" and ");
        rows.push(row("DRAWN", format!("{drawn} (seed {})", pool.seed)));
    }
    let passed = pool.passed_over.iter().enumerate().map(|(at, passed)| {
        let place = if at == 0 { "owner" } else { "next" };
        format!("{place} {}: {}", passed.backend, passed.why)
    });
    rows.extend(headed("PASSED", passed));
    let backend = match &pool.backend {
        Some(backend) => format!("{backend}: {}", pool.why),
        None => format!("nobody: {}", pool.why),
    };
    rows.push(row("GOES TO", backend));
    if !pool.then.is_empty() {
        let then = pool.then.join(", then ");
        rows.push(row(
            "THEN",
            format!("{then}: where nobody of {} can be reached", pool.name),
        ));
    }
    rows.push(row("AS", pool.target.clone()));
    rows
}

fn answer(answer: &OwnAnswer) -> String {
    let location = answer
        .location
        .as_ref()
        .map(|to| format!(" to {to}"))
        .unwrap_or_default();
    match answer.status {
        0 => format!("none, the connection is closed: {}", answer.why),
        status => format!("{status} {}{location}: {}", answer.code, answer.why),
    }
}

fn candidates(pool: &PoolAsked) -> String {
    let is_told = |one: &Candidate| {
        pool.backend.as_ref() == Some(&one.key)
            || pool.drawn.contains(&one.key)
            || pool
                .passed_over
                .iter()
                .any(|passed| passed.backend == one.key)
    };
    let mut shown: Vec<&Candidate> = pool.candidates.iter().collect();
    if shown.len() > BACKENDS_SHOWN {
        shown.sort_by_key(|one| {
            (
                !is_told(one),
                one.state == "usable" && one.reason.is_empty(),
            )
        });
    }
    let hidden = shown.len().saturating_sub(BACKENDS_SHOWN);
    let mut heads = vec![
        "",
        "BACKEND",
        "STATE",
        "WEIGHT",
        "LEVEL",
        "SCORE",
        "IN FLIGHT",
        "LATENCY",
        "WHY",
    ];
    if pool.candidates.iter().any(|one| one.told.is_some()) {
        heads.insert(heads.len() - 1, "SAYS");
    }
    let mut rows: Vec<Vec<String>> = vec![heads.into_iter().map(str::to_owned).collect()];
    rows.extend(
        shown
            .into_iter()
            .take(BACKENDS_SHOWN)
            .map(|one| candidate(one, pool)),
    );
    let mut text = table("", &rows);
    if hidden > 0 {
        text += &format!("\n  and {hidden} more; --json shows all");
    }
    text
}

fn candidate(one: &Candidate, pool: &PoolAsked) -> Vec<String> {
    let mark = match pool.backend.as_ref() == Some(&one.key) {
        true => ">",
        false => "",
    };
    let penalty = match one.penalty > 0.0 {
        true => format!(" + {} for failures", one.penalty),
        false => String::new(),
    };
    let mut cells = vec![
        mark.into(),
        one.key.clone(),
        state_word(&one.state, &one.traffic).to_owned(),
        one.weight.to_string(),
        format!("{:.0} %", one.weight_share * 100.0),
        format!("{:.2}", one.score),
        format!("{}{penalty}", one.in_flight),
        one.latency_ms
            .map_or("-".into(), |ms| format!("{ms:.1} ms")),
        one.reason.clone(),
    ];
    if pool.candidates.iter().any(|one| one.told.is_some()) {
        let says = one.told.map_or("-".into(), |told| told.to_string());
        cells.insert(cells.len() - 1, says);
    }
    cells
}
