//! Looks up what members of pools are learned from, again and again, on a thread of its own.
//!
//! Who compiles a configuration asks and waits. What is in force is wanted: it is looked up again whenever what was found
//! has had its time, and what has become of it lies on the [`Board`]. A place that cannot be heard keeps what it said last.

mod board;
mod desk;
mod dns;
mod file;
pub(super) mod members;
mod runtime;
mod srv;

pub(super) use board::Board;

use crate::config::{Listing, Lookup, Lost};
use crate::snapshot::Origin;
use board::{Found, Heard};
use desk::Ask;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// How long somebody waits who needs an answer now: longer than a lookup may take.
const WAIT: Duration = Duration::from_secs(12);

/// What is looked up, and what was found. Its thread starts with the first question, and ends with it.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    desk: OnceLock<Option<UnboundedSender<Ask>>>,
    board: Arc<Board>,
}

impl Discovery {
    /// What is known, for whoever must not wait.
    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// All that is in force: it is looked up again and again; what is not among it is forgotten.
    pub(super) fn want(&self, mut origins: BTreeSet<Origin>) {
        origins.retain(|origin| !matches!(origin, Origin::Instances(_)));
        if !origins.is_empty() || self.desk.get().is_some() {
            self.tell(Ask::Want(origins));
        }
    }

    /// What is known of `origin`, looked up if that is not known, or not any more.
    fn heard(&self, origin: &Origin) -> Result<Heard, String> {
        if let Some(heard) = self.board.fresh(origin) {
            return Ok(heard);
        }
        let (done, answer) = mpsc::channel();
        self.tell(Ask::Look(origin.clone(), done));
        match answer.recv_timeout(WAIT) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(format!("no answer within {} s", WAIT.as_secs()));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err("nobody looks it up: its thread did not start".to_owned());
            }
        }
        let heard = self.board.heard(origin);
        heard.ok_or_else(|| "nothing was found".to_owned())
    }

    fn tell(&self, ask: Ask) {
        if let Some(desk) = self
            .desk
            .get_or_init(|| start(Arc::clone(&self.board)).ok())
        {
            // A thread that has ended answers nobody, which whoever waits for one sees.
            let _ = desk.send(ask);
        }
    }
}

impl Lookup for Discovery {
    fn addresses(&self, servers: &Arc<[SocketAddr]>, name: &str) -> Result<Vec<SocketAddr>, Lost> {
        let origin = Origin::Name {
            servers: Arc::clone(servers),
            name: Arc::from(name),
        };
        let nothing = |problem| Lost {
            problem,
            last: Vec::new(),
        };
        self.heard(&origin).map_err(nothing)?.addresses()
    }

    fn list(&self, origin: &Origin) -> Listing {
        // The store is followed, not asked: who is known by then is there, and who is not joins.
        if matches!(origin, Origin::Instances(_)) {
            let known = self.board.heard(origin);
            return known.map_or_else(Listing::default, Heard::list);
        }
        match self.heard(origin) {
            Ok(heard) => heard.list(),
            Err(problem) => Listing::unknown(problem),
        }
    }
}

fn start(board: Arc<Board>) -> io::Result<UnboundedSender<Ask>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (sender, asks) = unbounded_channel();
    std::thread::Builder::new()
        .name("mizan-discovery".into())
        .spawn(move || {
            super::reload::stand_back();
            runtime.block_on(desk::run(asks, board));
            // A system's resolver that does not come back holds nobody up.
            runtime.shutdown_background();
        })?;
    Ok(sender)
}

impl Heard {
    fn addresses(self) -> Result<Vec<SocketAddr>, Lost> {
        let found = match self.found {
            Some(Found::Addresses(found)) => found.to_vec(),
            Some(Found::List(_)) | None => Vec::new(),
        };
        match self.has_failed {
            false => Ok(found),
            true => Err(Lost {
                problem: self.error,
                last: found,
            }),
        }
    }

    fn list(self) -> Listing {
        let backends = match self.found {
            Some(Found::List(backends)) => backends,
            Some(Found::Addresses(_)) | None => Arc::default(),
        };
        Listing {
            backends,
            problem: self.has_failed.then_some(self.error),
        }
    }
}
