//! Which member is asked: one until it disappoints, then the next.

use super::connection::{Failure, Goal, Link};
use super::options::{Deadlines, InvalidOptions, Options, parse_member};
use super::tls;
use crate::{Denial, Error};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The members, and the connection that questions share.
pub(super) struct Members {
    addresses: Vec<String>,
    server_name: Option<String>,
    tls: Option<TlsConnector>,
    deadlines: Deadlines,
    current: Mutex<Current>,
}

struct Current {
    member: usize,
    link: Option<Link>,
}

impl Members {
    pub(super) fn new(options: &Options) -> Result<Self, InvalidOptions> {
        if options.members.is_empty() {
            return Err(InvalidOptions::Address {
                address: String::new(),
                why: "no member is named, as `10.0.0.1:2379`".to_owned(),
            });
        }
        let addresses = options.members.iter().map(|address| {
            parse_member(address).map_err(|why| InvalidOptions::Address {
                address: address.clone(),
                why,
            })
        });
        Ok(Self {
            addresses: addresses.collect::<Result<_, _>>()?,
            server_name: options.tls.as_ref().and_then(|tls| tls.server_name.clone()),
            tls: options.tls.as_ref().map(tls::connector).transpose()?,
            deadlines: options.deadlines,
            current: Mutex::new(Current {
                // Many clients with one list should not all begin with its first.
                member: (crate::clock::random() % options.members.len() as u64) as usize,
                link: None,
            }),
        })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.addresses.len()
    }

    /// The connection that questions share; opened if it is not.
    pub(super) async fn link(&self) -> Result<Link, Error> {
        if let Some(link) = self.open_link() {
            return Ok(link);
        }
        let link = self.connect().await?;
        // Whoever else was connecting meanwhile may have come first.
        if let Some(link) = self.open_link() {
            return Ok(link);
        }
        self.current().link = Some(link.clone());
        Ok(link)
    }

    fn open_link(&self) -> Option<Link> {
        let current = self.current();
        current.link.clone().filter(|link| !link.is_closed())
    }

    /// A new connection, to the first member that takes one, from the current one on.
    pub(super) async fn connect(&self) -> Result<Link, Error> {
        let first = self.current().member;
        let (mut unreachable, mut refusals) = (Vec::new(), Vec::new());
        for turn in 0..self.count() {
            let member = (first + turn) % self.count();
            let address = &self.addresses[member];
            match self.open(member).await {
                Ok(link) => {
                    self.current().member = member;
                    return Ok(link);
                }
                Err(Failure::Unreachable(why)) => unreachable.push(format!("{address}: {why}")),
                Err(Failure::Tls(why)) => refusals.push(format!("{address}: {why}")),
            }
        }
        if refusals.is_empty() {
            return Err(Error::Unavailable(unreachable.join("; ")));
        }
        Err(Error::Denied(Denial::Tls(refusals.join("; "))))
    }

    async fn open(&self, member: usize) -> Result<Link, Failure> {
        let goal = Goal {
            member,
            address: &self.addresses[member],
            server_name: self.server_name.as_deref(),
        };
        let wait = self.deadlines.connect;
        match timeout(wait, Link::open(goal, self.tls.as_ref())).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Unreachable(format!(
                "no connection within {wait:?}"
            ))),
        }
    }

    /// `link` has disappointed: whoever asks next asks another member. What was asked on it already goes on.
    pub(super) fn leave(&self, link: &Link) {
        let mut current = self.current();
        if current
            .link
            .as_ref()
            .is_some_and(|shared| shared.is(link) || shared.member == link.member)
        {
            current.link = None;
        }
        if current.member == link.member {
            current.member = (link.member + 1) % self.count();
        }
    }

    /// The address that `link` goes to.
    pub(super) fn address(&self, link: &Link) -> &str {
        &self.addresses[link.member]
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // Each change is whole in itself.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
