//! Who looks things up: what is due is asked for, a bounded number at once, and what is found goes on the board.

use super::board::{Board, Found, Heard};
use super::dns::{Addresses, Dns, Lists, Missing, TTL_MAX};
use super::file::{Look, Watched};
use crate::clock;
use crate::snapshot::Origin;
use mizan_core::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
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
/// Between two looks at a file.
const LOOK: Duration = Duration::from_millis(100);
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

/// What came of a lookup.
enum Looked {
    Addresses(Result<Addresses, Missing>),
    List(Result<Lists, Missing>),
    File(Watched, Look),
}

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
    /// How a file was when it was looked at last.
    file: Watched,
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
            file: Watched::default(),
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
        match &origin {
            Origin::Name { servers, name } => {
                let resolver = self.dns.resolver(servers);
                let host = name.rsplit_once(':').map_or(&**name, |(host, _)| host);
                let host = host.to_owned();
                self.running.spawn(async move {
                    let looked = in_time(resolver.addresses(&host)).await;
                    (origin, Looked::Addresses(looked))
                });
            }
            Origin::Srv { servers, name } => {
                let (resolver, name) = (self.dns.resolver(servers), Arc::clone(name));
                self.running.spawn(async move {
                    let looked = in_time(resolver.services(&name)).await;
                    (origin, Looked::List(looked))
                });
            }
            // What the store says is heard elsewhere.
            Origin::Instances(_) => {}
            Origin::File(path) => {
                let path = path.clone();
                let mut file = std::mem::take(&mut self.order(&origin).file);
                self.running.spawn_blocking(move || {
                    let look = file.look(&path, clock::now());
                    (origin, Looked::File(file, look))
                });
            }
        }
    }

    fn finish(&mut self, origin: &Origin, looked: Looked) {
        let before = self.board.heard(origin);
        let last = before.as_ref().and_then(|it| it.found.clone());
        let failures_in_row = self.order(origin).failures_in_row;
        let said = match looked {
            Looked::Addresses(Ok(found)) => Some(Said::addresses(origin, found, last.as_ref())),
            Looked::List(Ok(Lists { backends, ttl })) => {
                Some(Said::all(Found::List(backends), ttl))
            }
            Looked::Addresses(Err(missing)) | Looked::List(Err(missing)) => {
                let (Missing::Nothing(error) | Missing::Outage(error)) = missing;
                Some(Said::nothing(error, TTL_MAX))
            }
            Looked::File(file, look) => {
                self.order(origin).file = file;
                match look {
                    Look::Same => None,
                    Look::Read(Ok(backends)) => Some(Said::all(Found::List(backends.into()), LOOK)),
                    Look::Read(Err(error)) => Some(Said::nothing(error, LOOK)),
                }
            }
        };
        let holds = match said {
            Some(said) => {
                let holds = said.holds(failures_in_row);
                let heard = said.heard(before.as_ref(), holds);
                tell(origin, before.as_ref(), &heard);
                self.order(origin).failures_in_row = match heard.error.is_empty() {
                    true => 0,
                    false => failures_in_row.saturating_add(1),
                };
                self.board.put(origin, heard);
                holds
            }
            None => {
                self.board.still_holds(origin, clock::now() + LOOK);
                LOOK
            }
        };
        let order = self.order(origin);
        order.is_running = false;
        for done in std::mem::take(&mut order.waiting) {
            // Who has waited too long is gone.
            let _ = done.send(());
        }
        if self.wanted.contains(origin) {
            self.schedule(origin, clock::now() + holds);
        }
    }
}

async fn in_time<T>(lookup: impl Future<Output = Result<T, Missing>>) -> Result<T, Missing> {
    let looked = tokio::time::timeout(LOOKUP_MAX, lookup).await;
    let too_long = || format!("no answer within {} s", LOOKUP_MAX.as_secs());
    looked.unwrap_or_else(|_| Err(Missing::Outage(too_long())))
}

/// What a place has said, or why it has not.
struct Said {
    /// `None`: nothing, and what it said last stays.
    found: Option<Found>,
    /// What is wrong; empty if all is well.
    error: String,
    /// For how long it is gone by at most.
    most: Duration,
}

impl Said {
    fn all(found: Found, most: Duration) -> Self {
        let (found, error) = (Some(found), String::new());
        Self { found, error, most }
    }

    fn nothing(error: String, most: Duration) -> Self {
        let found = None;
        Self { found, error, most }
    }

    /// Addresses; those of a family that could not be asked for stay as `last` has them.
    fn addresses(origin: &Origin, answer: Addresses, last: Option<&Found>) -> Self {
        let Addresses { found, ttl, lost } = answer;
        let name = origin.name();
        let port = name
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok());
        let at_port =
            |ip: std::net::IpAddr| SocketAddr::new(ip.to_canonical(), port.unwrap_or_default());
        let mut found: Vec<SocketAddr> = found.into_iter().map(at_port).collect();
        if let (Some((family, _)), Some(Found::Addresses(last))) = (&lost, last) {
            found.extend(last.iter().filter(|address| family.has(address.ip())));
        }
        found.sort();
        found.dedup();
        Self {
            found: Some(Found::Addresses(found.into())),
            error: lost.map_or_else(String::new, |(_, error)| error),
            most: ttl,
        }
    }

    /// How long it is gone by: what is not well is asked for soon, and then less and less often.
    fn holds(&self, failures_in_row: u32) -> Duration {
        if self.error.is_empty() {
            return self.most;
        }
        let again = AGAIN.saturating_mul(1 << failures_in_row.min(8));
        again.min(self.most)
    }

    fn heard(self, before: Option<&Heard>, holds: Duration) -> Heard {
        let has_failed = self.found.is_none();
        let last = before.and_then(|before| before.found.clone());
        let failures = before.map_or(0, |before| before.failures);
        Heard {
            at: match (has_failed, before) {
                (false, _) => clock::wall(),
                (true, Some(before)) => before.at,
                (true, None) => Duration::ZERO,
            },
            found: self.found.or(last),
            has_failed,
            failures: failures + u64::from(!self.error.is_empty()),
            error: self.error,
            kept: Vec::new(),
            until: clock::now() + holds,
        }
    }
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
