//! Many clients for a while: each request has an id, and its fate is written down.

use super::client::{Client, Cut};
use super::{Stop, now};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a load is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Clients, each on a connection of its own with one request at a time.
    pub(crate) clients: usize,
    /// Every so many-th request is a POST; 0: none.
    pub(crate) post_every: usize,
    /// What is asked for.
    pub(crate) path: &'static str,
    /// Between a client's answer and its next request.
    pub(crate) pause: Duration,
    /// How long a client waits for an answer.
    pub(crate) patience: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            clients: 16,
            post_every: 4,
            path: "/",
            pause: Duration::from_millis(1),
            patience: Duration::from_secs(10),
        }
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A whole answer.
    Answered(u16),
    /// The connection ended before the first byte of an answer.
    Unanswered,
    /// The connection ended, or nothing more came, within an answer.
    CutShort,
    /// No answer within the client's patience.
    TimedOut,
    /// No connection.
    Refused,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Shot {
    /// Whether it was a POST.
    pub(crate) is_post: bool,
    /// When it was sent.
    pub(crate) started: Duration,
    /// How long it took.
    pub(crate) took: Duration,
    /// Its fate.
    pub(crate) fate: Fate,
    /// The backend that answered.
    pub(crate) backend: String,
    /// The body of an answer that is no 200, or how it ended.
    pub(crate) note: String,
}

impl Shot {
    /// Whether the client saw it fail. A connect that was refused is told apart.
    pub(crate) fn failed(&self) -> bool {
        !matches!(self.fate, Fate::Answered(200) | Fate::Refused)
    }
}

/// A load that is running.
pub(crate) struct Load {
    stop: Arc<Stop>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<Shot>>>,
}

/// All that became of a load.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Each request, in no order.
    pub(crate) shots: Vec<Shot>,
}

impl Load {
    /// Starts clients towards `address`.
    pub(crate) fn start(address: SocketAddr, plan: Plan) -> Self {
        let (stop, answered) = (Arc::new(Stop::default()), Arc::new(AtomicUsize::new(0)));
        let clients = (0..plan.clients).map(|number| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || run_client(number, address, plan, &stop, &answered))
        });
        Self {
            clients: clients.collect(),
            stop,
            answered,
        }
    }

    /// Requests that were answered so far.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// Waits until so many more requests have been answered: the load has got on.
    #[track_caller]
    pub(crate) fn wait_for(&self, more: usize) {
        let goal = self.answered() + more;
        super::eventually(2 * super::PATIENCE, "the load gets answers", || {
            self.answered() >= goal
        });
    }

    /// Lets the load run on for `time`: what is observed is the time itself (a rate, a penalty).
    pub(crate) fn run_for(&self, time: Duration) {
        let _ = self.stop.pace(time);
    }

    /// Ends the load when the requests under way have their answers.
    pub(crate) fn stop(self) -> Report {
        self.stop.stop();
        let shots = self
            .clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client does not panic"));
        Report {
            shots: shots.collect(),
        }
    }
}

impl Report {
    /// Those that failed.
    pub(crate) fn failed(&self) -> Vec<&Shot> {
        self.shots.iter().filter(|shot| shot.failed()).collect()
    }

    /// How many came to `fate`.
    pub(crate) fn count(&self, fate: &Fate) -> usize {
        self.shots.iter().filter(|shot| shot.fate == *fate).count()
    }

    /// Answers by backend of the requests that were sent in `from..to`.
    pub(crate) fn shares(&self, from: Duration, to: Duration) -> BTreeMap<&str, usize> {
        let mut shares = BTreeMap::new();
        for shot in self
            .shots
            .iter()
            .filter(|shot| (from..to).contains(&shot.started))
        {
            *shares.entry(shot.backend.as_str()).or_default() += 1;
        }
        shares
    }

    /// The time within which `share` (0.0–1.0) of those sent in `from..to` were done.
    pub(crate) fn latency(&self, share: f64, from: Duration, to: Duration) -> Duration {
        let within = self
            .shots
            .iter()
            .filter(|shot| (from..to).contains(&shot.started));
        let mut times: Vec<_> = within.map(|shot| shot.took).collect();
        times.sort_unstable();
        let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(at).copied().unwrap_or_default()
    }

    /// Panics with the first failures if there is any.
    #[track_caller]
    pub(crate) fn expect_no_failure(&self) {
        let failed = self.failed();
        let shown: Vec<_> = failed.iter().take(8).collect();
        assert!(
            failed.is_empty(),
            "{} of {} failed: {shown:#?}",
            failed.len(),
            self.shots.len()
        );
        assert!(!self.shots.is_empty(), "the load sent nothing");
    }
}

fn run_client(
    number: usize,
    address: SocketAddr,
    plan: Plan,
    stop: &Stop,
    answered: &AtomicUsize,
) -> Vec<Shot> {
    let mut shots = Vec::new();
    let mut connection = None;
    while stop.pace(plan.pause) {
        let count = number + shots.len();
        let is_post = plan.post_every > 0 && count.is_multiple_of(plan.post_every);
        let started = now();
        let mut shot = Shot {
            is_post,
            started,
            took: Duration::ZERO,
            fate: Fate::Refused,
            backend: String::new(),
            note: String::new(),
        };
        if connection.is_none() {
            connection = Client::try_connect(address).ok();
        }
        if let Some(client) = &mut connection {
            client.set_patience(plan.patience);
            let id = format!("{number}-{}", shots.len());
            if fire(client, &plan, &id, &mut shot) {
                connection = None;
            }
        } else if !stop.pace(Duration::from_millis(20)) {
            break;
        }
        shot.took = now() - started;
        answered.fetch_add(
            usize::from(matches!(shot.fate, Fate::Answered(_))),
            Ordering::SeqCst,
        );
        shots.push(shot);
    }
    shots
}

/// Sends one request and writes its fate down; says whether the connection is done with.
fn fire(client: &mut Client, plan: &Plan, id: &str, shot: &mut Shot) -> bool {
    let path = plan.path;
    let head = format!("Host: a.example\r\nX-Id: {id}\r\n");
    client.send(match shot.is_post {
        true => format!(
            "POST {path} HTTP/1.1\r\n{head}Content-Length: {}\r\n\r\n{id}",
            id.len()
        ),
        false => format!("GET {path} HTTP/1.1\r\n{head}\r\n"),
    });
    match client.try_read("GET") {
        Ok(response) => {
            shot.fate = Fate::Answered(response.status);
            shot.backend = response.field("x-backend").unwrap_or_default().to_owned();
            if response.status != 200 {
                shot.note = response.text();
            }
            response.head.connection_has("close")
        }
        Err(Cut { how, head, body }) => {
            shot.fate = match (&how, &head) {
                (super::How::TimedOut, None) => Fate::TimedOut,
                (_, None) => Fate::Unanswered,
                (_, Some(_)) => Fate::CutShort,
            };
            shot.note = format!("{how:?} after {} bytes of body", body.len());
            true
        }
    }
}
