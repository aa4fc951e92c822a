//! The drill, played by itself: every promise of the laboratory, with what was seen.
//!
//! It uses what a user has: `mizan serve` as a process of its own, requests over the wire, the admin socket and
//! `kill -9`.

mod load;
mod report;
mod watch;

use super::config::{Policy, RISE};
use super::stage::{LabError, Stage};
use crate::clock;
use crate::lab::client::Client;
use load::{Load, Tally, short, wait_until};
use report::Report;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv4Addr;
use std::time::Duration;
use watch::Watch;

/// Backends of the drill: panic is two of three.
pub(super) const BACKENDS: usize = 3;
/// The backend that is killed.
const VICTIM: usize = 1;
/// Clients of the load: some sixteen requests are in flight at each backend.
const CLIENTS: usize = 48;
/// Longest wait for anything that should happen in far less.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// After a kill, requests that had picked the backend before may still try it for this long.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Client addresses in the chapter on consistent hashing.
const SOURCES: u8 = 240;
/// What the slow backend takes for a request, and the others.
const SLOW: Duration = Duration::from_millis(150);
const FAST: Duration = Duration::from_millis(5);

/// Plays the whole drill on `stage`; false if a promise was broken.
pub(super) fn run(stage: &mut Stage, json: bool, out: &mut dyn Write) -> Result<bool, LabError> {
    let mut report = Report::new(out, json);
    rotation(stage, &mut report)?;
    outage(stage, &mut report, Policy::RoundRobin)?;
    outage(stage, &mut report, Policy::LeastConnections)?;
    slow_backend(stage, &mut report)?;
    hashing(stage, &mut report)?;
    panic(stage, &mut report)?;
    ending(stage, &mut report)?;
    report.finish()
}

/// A fresh proxy with `policy`, all backends well and up.
fn begin(
    stage: &mut Stage,
    report: &mut Report<'_>,
    title: &str,
    policy: Policy,
) -> Result<Watch, LabError> {
    report.chapter(title)?;
    for backend in &mut stage.backends {
        backend.revive()?;
        backend.control(true, Duration::ZERO)?;
    }
    stage.serve(policy)?;
    let watch = Watch::new(&stage.setup);
    watch.wait_all_up(BACKENDS, WAIT_MAX)?;
    Ok(watch)
}

fn rotation(stage: &mut Stage, report: &mut Report<'_>) -> Result<(), LabError> {
    begin(
        stage,
        report,
        "Round robin over three backends",
        Policy::RoundRobin,
    )?;
    let mut seen = Vec::new();
    let mut client =
        Client::connect(stage.setup.proxy, None).map_err(LabError::talk("connect to the proxy"))?;
    for _ in 0..9 {
        let answer = client
            .get("/")
            .map_err(LabError::talk("GET / of the proxy"))?;
        seen.push(answer.upstream.unwrap_or_default());
    }
    let distinct = seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2];
    let in_turn = distinct
        && seen
            .iter()
            .zip(&seen[3..])
            .all(|(earlier, later)| earlier == later);
    let saw = format!(
        "X-Upstream: {}",
        seen.iter()
            .map(|upstream| short(upstream))
            .collect::<Vec<_>>()
            .join(" ")
    );
    report.promise("requests go to the backends in turn", in_turn, saw)
}

/// One backend is killed under load and comes back.
fn outage(stage: &mut Stage, report: &mut Report<'_>, policy: Policy) -> Result<(), LabError> {
    let title = format!("kill -9 of one backend under load, {}", policy.name());
    let watch = begin(stage, report, &title, policy)?;
    let load = Load::start(stage.setup.proxy, CLIENTS);
    load.wait_for(1_000, WAIT_MAX);
    kill_one(stage, report, &watch, &load)?;
    let outage = load.tally();
    revive_it(stage, report, &watch, &load)?;
    load.wait_for(1_000, WAIT_MAX);
    let tally = load.stop().since(&outage);
    failures(report, "its return fails no request", &tally)
}

fn kill_one(
    stage: &mut Stage,
    report: &mut Report<'_>,
    watch: &Watch,
    load: &Load,
) -> Result<(), LabError> {
    let victim = stage.backends[VICTIM].key();
    let before = load.tally();
    let failed_before = watch.backend(&victim)?.failures;
    let killed = clock::now();
    stage.backends[VICTIM].kill()?;
    let shown = watch.wait_for(WAIT_MAX, |pool| pool.is_out(&victim))?;
    let shown_after = clock::now().saturating_since(killed);
    wait_until(AT_ONCE.saturating_sub(shown_after), || false);
    let at_once = watch.backend(&victim)?;
    let settled = load.tally();
    load.wait_for(2_000, WAIT_MAX);
    // Long enough for the probes to find it down too.
    let down = watch.wait_for(WAIT_MAX, |pool| pool.is_down(&victim))?;
    let outage = load.tally();
    let late = watch.backend(&victim)?.requests - at_once.requests;

    failures(report, "not one request fails", &outage.since(&before))?;
    // Tries are counted at all: else none after the kill would mean nothing.
    let counted = at_once.requests > 0;
    let saw = format!(
        "of {} tries so far, {} failed in the first {AT_ONCE:?} and the others saved them; then {late}",
        at_once.requests,
        at_once.failures - failed_before
    );
    report.promise("it gets no more traffic at once", counted && late == 0, saw)?;
    let saw = match &shown {
        Some(pool) => format!("after {} ms: {}", shown_after.as_millis(), pool.text()),
        None => format!("{} still usable after {WAIT_MAX:?}", short(&victim)),
    };
    report.promise("its state is shown", shown.is_some() && down.is_some(), saw)?;
    let rest = outage.since(&settled);
    let counts = [0, 2].map(|index: usize| rest.of(&stage.backends[index].key()));
    // Evenly by count in turn; with least connections, by how fast each answers.
    let least_share = if stage.setup.policy == Policy::RoundRobin {
        40
    } else {
        10
    };
    let sum: u64 = counts.iter().sum();
    let shared = sum > 0 && counts.iter().all(|count| count * 100 >= sum * least_share);
    report.promise("the others share its traffic", shared, rest.shares())
}

fn revive_it(
    stage: &mut Stage,
    report: &mut Report<'_>,
    watch: &Watch,
    load: &Load,
) -> Result<(), LabError> {
    let victim = stage.backends[VICTIM].key();
    let gone = load.tally().of(&victim);
    let revived = clock::now();
    stage.backends[VICTIM].revive()?;
    let back = wait_until(WAIT_MAX, || load.tally().of(&victim) > gone);
    let took = clock::now().saturating_since(revived).as_millis();
    let probes = stage.backends[VICTIM].state()?.probes_before_traffic;
    let kept = back && probes.is_some_and(|probes| probes >= RISE);
    let saw = match probes {
        Some(probes) => {
            format!("first request {took} ms after its start, behind {probes} probes")
        }
        None => format!("no request in {WAIT_MAX:?}: {}", watch.pool()?.text()),
    };
    let promise = format!("it is back in after {RISE} probes that passed");
    report.promise(&promise, kept, saw)
}

/// A promise that nothing failed in `tally`.
fn failures(report: &mut Report<'_>, promise: &str, tally: &Tally) -> Result<(), LabError> {
    let kept = tally.failed == 0 && tally.cut == 0 && tally.answers > 0;
    report.promise(promise, kept, tally.outcome())
}

fn slow_backend(stage: &mut Stage, report: &mut Report<'_>) -> Result<(), LabError> {
    let title = format!("One slow backend ({SLOW:?} instead of {FAST:?}), least_connections");
    begin(stage, report, &title, Policy::LeastConnections)?;
    for (index, backend) in stage.backends.iter().enumerate() {
        backend.control(true, if index == 2 { SLOW } else { FAST })?;
    }
    let load = Load::start(stage.setup.proxy, CLIENTS);
    load.wait_for(3_000, WAIT_MAX);
    let tally = load.stop();
    let counts: Vec<_> = stage
        .backends
        .iter()
        .map(|backend| tally.of(&backend.key()))
        .collect();
    let kept = counts[2] > 0 && counts[2] * 2 < counts[0].min(counts[1]);
    report.promise("the slow one gets fewer requests", kept, tally.shares())?;
    failures(report, "not one request fails", &tally)
}

type Owners = BTreeMap<Ipv4Addr, String>;

/// Which backend answers which client address; each client makes a connection of its own.
fn owners(stage: &Stage) -> Result<Owners, LabError> {
    let mut owners = Owners::new();
    for number in 1..=SOURCES {
        let source = Ipv4Addr::new(127, 0, 1, number);
        let answer =
            Client::connect(stage.setup.proxy, Some(source)).and_then(|mut client| client.get("/"));
        let answer = answer.map_err(LabError::talk(format!("GET / from {source}")))?;
        let failed = (answer.status != 200).then(|| format!("status {}", answer.status));
        owners.insert(source, failed.or(answer.upstream).unwrap_or_default());
    }
    Ok(owners)
}

/// Clients by backend, of those for which `counts` holds.
fn count(owners: &Owners, counts: impl Fn(&Ipv4Addr) -> bool) -> BTreeMap<&str, usize> {
    let mut by_owner = BTreeMap::new();
    for (_, owner) in owners.iter().filter(|(source, _)| counts(source)) {
        *by_owner.entry(short(owner)).or_default() += 1;
    }
    by_owner
}

/// `9001: 80, 9002: 84`
fn shares(counts: &BTreeMap<&str, usize>) -> String {
    let share = |(owner, count): (&&str, &usize)| format!("{owner}: {count}");
    counts.iter().map(share).collect::<Vec<_>>().join(", ")
}

/// How many clients have the same backend in both.
fn same(one: &Owners, other: &Owners) -> usize {
    one.iter()
        .filter(|(source, owner)| other.get(source) == Some(owner))
        .count()
}

fn hashing(stage: &mut Stage, report: &mut Report<'_>) -> Result<(), LabError> {
    let watch = begin(
        stage,
        report,
        "Consistent hash by client address",
        Policy::ConsistentHash,
    )?;
    let first = owners(stage)?;
    let again = owners(stage)?;
    let counts = count(&first, |_| true);
    let kept = first == again && counts.len() == BACKENDS;
    let saw = format!("{SOURCES} clients, asked twice; {}", shares(&counts));
    report.promise("a client stays with its backend", kept, saw)?;

    let victim = stage.backends[VICTIM].key();
    stage.backends[VICTIM].kill()?;
    let at_once = owners(stage)?;
    watch.wait_for(WAIT_MAX, |pool| pool.is_down(&victim))?;
    let without = owners(stage)?;
    arc_moved(report, &victim, &first, &without)?;
    let saw = format!("{} of {SOURCES} as at the kill", same(&at_once, &without));
    let promise = "they do not move again when the probes see it";
    report.promise(promise, at_once == without, saw)?;

    stage.backends[VICTIM].revive()?;
    watch.wait_all_up(BACKENDS, WAIT_MAX)?;
    let back = owners(stage)?;
    let saw = format!("{} of {SOURCES}", same(&first, &back));
    report.promise("all are home again when it is back", back == first, saw)
}

fn arc_moved(
    report: &mut Report<'_>,
    victim: &str,
    first: &Owners,
    without: &Owners,
) -> Result<(), LabError> {
    let owned = first.values().filter(|owner| *owner == victim).count();
    let rest = first.len() - owned;
    let stayed = same(first, without);
    let left = without.values().any(|owner| owner == victim);
    let kept = owned > 0 && !left && stayed == rest;
    let saw = format!(
        "its {owned} moved, and {} of the other {rest}",
        rest.saturating_sub(stayed)
    );
    report.promise("a kill moves only that arc's clients", kept, saw)?;
    let spread = count(without, |source| first[source] == victim);
    // Far from even only by a bad hash: 128 points share the arc out.
    let kept = spread.len() == BACKENDS - 1 && spread.values().all(|count| count * 7 >= owned);
    report.promise("they spread over the others", kept, shares(&spread))
}

fn panic(stage: &mut Stage, report: &mut Report<'_>) -> Result<(), LabError> {
    let title = "Two of three backends fail their probe and serve traffic";
    let watch = begin(stage, report, title, Policy::RoundRobin)?;
    let load = Load::start(stage.setup.proxy, CLIENTS);
    load.wait_for(500, WAIT_MAX);
    for backend in &stage.backends[..2] {
        backend.control(false, Duration::ZERO)?;
    }
    let entered = watch.wait_for(WAIT_MAX, |pool| pool.panic)?;
    let before = load.tally();
    load.wait_for(2_000, WAIT_MAX);
    let during = load.tally().since(&before);
    let saw = entered.map_or_else(|| "no panic".to_owned(), |pool| pool.text());
    report.promise("the pool panics, and shows it", saw != "no panic", saw)?;
    let used = stage
        .backends
        .iter()
        .filter(|backend| during.of(&backend.key()) * 5 > during.answers)
        .count();
    report.promise(
        "health is ignored: all three are used",
        used == BACKENDS,
        during.shares(),
    )?;
    for backend in &stage.backends[..2] {
        backend.control(true, Duration::ZERO)?;
    }
    let left = watch.wait_for(WAIT_MAX, |pool| !pool.panic && pool.up() == BACKENDS)?;
    let saw = left
        .as_ref()
        .map_or_else(|| "still in panic".to_owned(), |pool| pool.text());
    report.promise("it ends when they are well again", left.is_some(), saw)?;
    failures(report, "not one request fails", &load.stop())
}

fn ending(stage: &mut Stage, report: &mut Report<'_>) -> Result<(), LabError> {
    begin(stage, report, "SIGTERM under load", Policy::RoundRobin)?;
    let load = Load::start(stage.setup.proxy, CLIENTS);
    load.wait_for(1_000, WAIT_MAX);
    load.expect_end();
    let before = load.tally();
    stage.terminate_proxy()?;
    let asked = clock::now();
    let ended = stage.wait_for_proxy(WAIT_MAX)?;
    let took = clock::now().saturating_since(asked).as_millis();
    let saw = ended.map_or_else(
        || format!("still there after {WAIT_MAX:?}"),
        |status| format!("{status} after {took} ms"),
    );
    report.promise(
        "the proxy ends by itself, with exit status 0",
        ended.is_some_and(|status| status.success()),
        saw,
    )?;
    let tally = load.stop().since(&before);
    let kept = tally.failed == 0 && tally.cut == 0;
    report.promise("no request in flight is cut", kept, tally.outcome())
}
