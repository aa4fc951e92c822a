//! Who looks things up: what is due is asked for, a bounded number at once, and what is found goes on the board.

use super::board::{Board, Found, Heard};
use super::dns::{Addresses, Dns, Missing, TTL_MAX};
use crate::clock;
use crate::snapshot::Origin;
use mizan_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

/// Lookups at once: servers of names see no more, however many names there are.
const LOOKUPS_MAX: usize = 64;
/// A lookup that takes longer has failed.
const LOOKUP_MAX: Duration = Duration::from_secs(10);
/// The wait after a first failure; doubled with each further one, up to [`TTL_MAX`].
const AGAIN: Duration = Duration::from_secs(1);
/// How long what was asked for once is remembered though it is not wanted: a configuration may be on its way.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What somebody wants to know.
#[derive(Debug)]
pub(super) enum Ask {
    /// This, now; told when it is on the board.
    Look(Origin, mpsc::Sender<()>),
    /// All of these, from now on.
    Want(BTreeSet<Origin>),
}

/// Looks things up until nobody can ask any more.
pub(super) async fn run(mut asks: UnboundedReceiver<Ask>, board: Arc<Board>) {
    let mut desk = Desk {
        board,
        dns: Dns::default(),
        orders: BTreeMap::new(),
        due: BTreeSet::new(),
        wanted: BTreeSet::new(),
        running: JoinSet::new(),
    };
    loop {
        desk.start_due();
        let next = desk.next_due();
        tokio::select! {
            ask = asks.recv() => match ask {
                Some(Ask::Look(origin, done)) => desk.look(origin, done),
                Some(Ask::Want(origins)) => desk.want(origins),
                None => return,
            },
            Some(done) = desk.running.join_next() => {
                // One that has panicked is a bug of ours or a library's; its place is asked again when it is wanted anew.
                if let Ok((origin, looked)) = done {
                    desk.finish(&origin, looked);
                }
            }
            () = until(next) => {}
        }
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(at) => tokio::time::sleep(at.saturating_since(clock::now())).await,
        None => std::future::pending().await,
    }
}

type Looked = Result<Addresses, Missing>;

struct Desk {
    board: Arc<Board>,
    dns: Dns,
    orders: BTreeMap<Origin, Order>,
    /// When which is looked up next.
    due: BTreeSet<(Instant, Origin)>,
    wanted: BTreeSet<Origin>,
    running: JoinSet<(Origin, Looked)>,
}

/// One place that is looked up.
struct Order {
    waiting: Vec<mpsc::Sender<()>>,
    is_running: bool,
    due: Option<Instant>,
    asked: Instant,
    failures_in_row: u32,
}

impl Desk {
    fn look(&mut self, origin: Origin, done: mpsc::Sender<()>) {
        let order = self.order(&origin);
        order.waiting.push(done);
        order.asked = clock::now();
        if !order.is_running {
            self.schedule(&origin, clock::now());
        }
    }

    fn want(&mut self, origins: BTreeSet<Origin>) {
        for origin in &origins {
            let order = self.order(origin);
            if order.due.is_none() && !order.is_running {
                let left = self.board.fresh(origin);
                let left =
                    left.map_or(Duration::ZERO, |it| it.until.saturating_since(clock::now()));
                self.schedule(origin, clock::now() + left);
            }
        }
        self.wanted = origins;
        let now = clock::now();
        let gone: Vec<Origin> = self
            .orders
            .iter()
            .filter(|(origin, order)| {
                let is_old = now.saturating_since(order.asked) > REMEMBERED;
                is_old && !self.wanted.contains(*origin) && !order.is_running
            })
            .map(|(origin, _)| origin.clone())
            .collect();
        for origin in gone {
            if let Some(due) = self.orders.remove(&origin).and_then(|order| order.due) {
                self.due.remove(&(due, origin.clone()));
            }
            self.board.forget(&origin);
        }
    }

    fn order(&mut self, origin: &Origin) -> &mut Order {
        self.orders.entry(origin.clone()).or_insert_with(|| Order {
            waiting: Vec::new(),
            is_running: false,
            due: None,
            asked: clock::now(),
            failures_in_row: 0,
        })
    }

    fn schedule(&mut self, origin: &Origin, at: Instant) {
        let before = self.order(origin).due.replace(at);
        if let Some(before) = before {
            self.due.remove(&(before, origin.clone()));
        }
        self.due.insert((at, origin.clone()));
    }

    fn next_due(&self) -> Option<Instant> {
        let has_room = self.running.len() < LOOKUPS_MAX;
        self.due.first().filter(|_| has_room).map(|(at, _)| *at)
    }

    fn start_due(&mut self) {
        while self.next_due().is_some_and(|at| at <= clock::now()) {
            let Some((_, origin)) = self.due.pop_first() else {
                return;
            };
            let order = self.order(&origin);
            order.due = None;
            // Nobody has asked for it, and it is not in force any more.
            let is_left = order.waiting.is_empty() && !self.wanted.contains(&origin);
            if !is_left {
                self.order(&origin).is_running = true;
                self.start(origin);
            }
        }
    }

    fn start(&mut self, origin: Origin) {
        let Origin::Name { servers, name } = &origin;
        let resolver = self.dns.resolver(servers);
        let host = name.rsplit_once(':').map_or(&**name, |(host, _)| host);
        let host = host.to_owned();
        self.running.spawn(async move {
            let looked = tokio::time::timeout(LOOKUP_MAX, resolver.addresses(&host)).await;
            let too_long = || format!("no answer within {} s", LOOKUP_MAX.as_secs());
            let looked = looked.unwrap_or_else(|_| Err(Missing::Outage(too_long())));
            (origin, looked)
        });
    }

    fn finish(&mut self, origin: &Origin, looked: Looked) {
        let before = self.board.heard(origin);
        let failures_in_row = self.order(origin).failures_in_row;
        let (heard, holds) = heard(origin, before.as_ref(), looked, failures_in_row);
        tell(origin, before.as_ref(), &heard);
        let order = self.order(origin);
        order.is_running = false;
        order.failures_in_row = match heard.error.is_empty() {
            true => 0,
            false => failures_in_row.saturating_add(1),
        };
        let waiting = std::mem::take(&mut order.waiting);
        self.board.put(origin, heard);
        for done in waiting {
            // Who has waited too long is gone.
            let _ = done.send(());
        }
        if self.wanted.contains(origin) {
            self.schedule(origin, clock::now() + holds);
        }
    }
}

/// What is known after a lookup, and for how long: what could not be heard stays as it was.
fn heard(
    origin: &Origin,
    before: Option<&Heard>,
    looked: Looked,
    failures_in_row: u32,
) -> (Heard, Duration) {
    let last = before.and_then(|before| before.found.clone());
    let again = AGAIN
        .saturating_mul(1 << failures_in_row.min(8))
        .min(TTL_MAX);
    let (found, has_failed, error, holds) = match looked {
        Ok(Addresses { found, ttl, lost }) => {
            let Origin::Name { name, .. } = origin;
            let port = name
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse().ok());
            let mut found: Vec<IpAddr> = found.iter().map(IpAddr::to_canonical).collect();
            if let (Some((family, _)), Some(Found::Addresses(last))) = (&lost, &last) {
                let last = last.iter().map(SocketAddr::ip);
                found.extend(last.filter(|address| family.has(*address)));
            }
            found.sort();
            found.dedup();
            let at_port = |address| SocketAddr::new(address, port.unwrap_or_default());
            let found = Found::Addresses(found.into_iter().map(at_port).collect());
            match lost {
                None => (Some(found), false, String::new(), ttl),
                Some((_, error)) => (Some(found), false, error, again.min(ttl)),
            }
        }
        Err(Missing::Nothing(error) | Missing::Outage(error)) => (last, true, error, again),
    };
    let at = before.map_or(Duration::ZERO, |before| before.at);
    let failures = before.map_or(0, |before| before.failures);
    let heard = Heard {
        found,
        at: if has_failed { at } else { clock::wall() },
        failures: failures + u64::from(!error.is_empty()),
        has_failed,
        error,
        until: clock::now() + holds,
    };
    (heard, holds)
}

/// A failure is told once, until it is another or over.
fn tell(origin: &Origin, before: Option<&Heard>, now: &Heard) {
    let was = before.map_or("", |before| before.error.as_str());
    if was == now.error {
        return;
    }
    let (kind, name) = (origin.kind(), origin.name());
    match now.error.is_empty() {
        true => tracing::info!(kind, name, "discovery hears it again"),
        false => tracing::warn!(
            kind,
            name,
            error = now.error,
            "discovery does not hear it: what it said last stays"
        ),
    }
}
