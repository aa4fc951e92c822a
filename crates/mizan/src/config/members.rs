//! What the backends of a pool stand for: the one place where host names become members.
//!
//! A configuration is compiled with it, and with it members are told anew whenever a name stands for others, so that the two
//! give the same members in the same order. A name that fails keeps what it stood for last; the others are not held up by it.

use crate::snapshot::{Configured, Origin};
use ipnet::IpNet;
use mizan_core::backend::{Address, Backend, Member};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Who is asked what host names stand for.
pub trait Lookup {
    /// The addresses of `name`, a `host:port`, as `servers` have it; none: the system's.
    ///
    /// # Errors
    /// [`Lost`], if they cannot be had now.
    fn addresses(&self, servers: &Arc<[SocketAddr]>, name: &str) -> Result<Vec<SocketAddr>, Lost>;
}

/// What cannot be looked up now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Why.
    pub problem: String,
    /// What it stood for when it was last looked up; empty: nothing is known.
    pub last: Vec<SocketAddr>,
}

/// A function from `host:port` to addresses, whoever is to be asked.
impl<F: Fn(&str) -> io::Result<Vec<SocketAddr>>> Lookup for F {
    fn addresses(&self, _: &Arc<[SocketAddr]>, name: &str) -> Result<Vec<SocketAddr>, Lost> {
        self(name).map_err(|error| Lost {
            problem: error.to_string(),
            last: Vec::new(),
        })
    }
}

/// The members of a pool.
#[derive(Debug)]
pub struct Resolved {
    /// In the order of the file; the addresses of one name in their own order.
    pub members: Vec<Member>,
    /// Names that could not be resolved.
    pub unresolved: Vec<Unresolved>,
}

/// A host name that could not be resolved.
#[derive(Debug)]
pub struct Unresolved {
    /// Its position among the pool's backends.
    pub index: usize,
    /// `host:port`.
    pub name: String,
    /// Why.
    pub problem: String,
    /// Whether it stood for something before, which stays.
    pub has_last: bool,
}

/// Looks up the host names among `configured`; `last` are the backends that the pool has now.
pub fn members(configured: &[Configured], last: &[Arc<Backend>], lookup: &dyn Lookup) -> Resolved {
    let mut out = Resolved {
        members: Vec::with_capacity(configured.len()),
        unresolved: Vec::new(),
    };
    for (index, backend) in configured.iter().enumerate() {
        match backend {
            Configured::Fixed(member) => out.members.push(member.clone()),
            Configured::Named {
                name,
                template,
                servers,
                networks,
            } => {
                let found = lookup.addresses(servers, name);
                let addresses = found.and_then(|found| inside(found, networks));
                let addresses = addresses.unwrap_or_else(|lost| {
                    let last = match inside(lost.last, networks) {
                        Ok(last) => last,
                        Err(_) => last_addresses(name, last),
                    };
                    out.unresolved.push(Unresolved {
                        index,
                        name: name.clone(),
                        problem: lost.problem,
                        has_last: !last.is_empty(),
                    });
                    last
                });
                let of_name = addresses.into_iter().map(|address| Member {
                    key: Arc::from(format!("{name}/{}", address.ip())),
                    address: Address::Ip(address),
                    ..template.clone()
                });
                out.members.extend(of_name);
            }
        }
    }
    out
}

/// All that is looked up for `configured`.
pub fn origins(configured: &[Configured]) -> BTreeSet<Origin> {
    let mut origins = BTreeSet::new();
    for backend in configured {
        if let Configured::Named { name, servers, .. } = backend {
            origins.insert(Origin::Name {
                servers: Arc::clone(servers),
                name: Arc::from(name.as_str()),
            });
        }
    }
    origins
}

/// Those of `found` that may be members, sorted.
fn inside(found: Vec<SocketAddr>, networks: &[IpNet]) -> Result<Vec<SocketAddr>, Lost> {
    let nothing = |problem| Lost {
        problem,
        last: Vec::new(),
    };
    let mut found: Vec<SocketAddr> = found
        .into_iter()
        .map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()))
        .collect();
    found.sort();
    found.dedup();
    let Some(first) = found.first().copied() else {
        return Err(nothing("it has no addresses".to_owned()));
    };
    let is_inside = |address: &SocketAddr| networks.iter().any(|it| it.contains(&address.ip()));
    found.retain(|address| networks.is_empty() || is_inside(address));
    if found.is_empty() {
        return Err(nothing(format!(
            "{} is in none of `backend_networks`",
            first.ip()
        )));
    }
    Ok(found)
}

fn last_addresses(name: &str, last: &[Arc<Backend>]) -> Vec<SocketAddr> {
    let is_of_name = |backend: &Backend| {
        let rest = backend.key().strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let of_name = last.iter().filter(|backend| is_of_name(backend));
    of_name
        .filter_map(|backend| match backend.address() {
            Address::Ip(address) => Some(*address),
            Address::Unix(_) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizan_core::pool::{Pool, PoolConfig};
    use mizan_core::time::Instant;

    fn member(key: &str) -> Member {
        Member {
            key: Arc::from(key),
            address: Address::Ip(SocketAddr::from(([10, 0, 0, 1], 80))),
            weight: 3,
            version: Arc::from("v2"),
            in_flight_max: None,
            place: Default::default(),
        }
    }

    fn named(name: &str) -> Configured {
        Configured::Named {
            name: name.to_owned(),
            template: member(name),
            servers: Arc::from([]),
            networks: Arc::from([]),
        }
    }

    fn configured() -> [Configured; 4] {
        [
            named("zebra:80"),
            Configured::Fixed(member("10.0.0.1:80")),
            named("app:80"),
            Configured::Fixed(member("10.0.0.0:80")),
        ]
    }

    fn resolve(name: &str) -> io::Result<Vec<SocketAddr>> {
        let last = if name == "app:80" {
            [7, 7, 5]
        } else {
            [9, 8, 8]
        };
        let address = |last| SocketAddr::from(([10, 1, 0, last], 80));
        Ok(last.map(address).to_vec())
    }

    fn keys(resolved: &Resolved) -> Vec<&str> {
        let keys = resolved.members.iter().map(|member| &*member.key);
        keys.collect()
    }

    const IN_ORDER: [&str; 6] = [
        "zebra:80/10.1.0.8",
        "zebra:80/10.1.0.9",
        "10.0.0.1:80",
        "app:80/10.1.0.5",
        "app:80/10.1.0.7",
        "10.0.0.0:80",
    ];

    #[test]
    fn members_stand_in_the_order_of_the_file() {
        let resolved = members(&configured(), &[], &resolve);
        assert_eq!(keys(&resolved), IN_ORDER);
        assert_eq!(
            (resolved.members[0].weight, &*resolved.members[0].version),
            (3, "v2")
        );
        assert!(resolved.unresolved.is_empty());
    }

    #[test]
    fn a_name_that_fails_keeps_its_last_addresses_and_holds_up_no_other() {
        let before = members(&configured(), &[], &resolve).members;
        let pool = Pool::new(Instant::default(), PoolConfig::default(), before, 1);
        let half = |name: &str| match name {
            "app:80" => Ok(vec![SocketAddr::from(([10, 1, 0, 6], 80))]),
            _ => Err(io::Error::other("no such name")),
        };
        let resolved = members(&configured(), &pool.backends(), &half);
        assert_eq!(
            keys(&resolved),
            [
                "zebra:80/10.1.0.8",
                "zebra:80/10.1.0.9",
                "10.0.0.1:80",
                "app:80/10.1.0.6",
                "10.0.0.0:80",
            ]
        );
        let unresolved = &resolved.unresolved[..];
        assert!(
            matches!(unresolved, [one] if one.index == 0 && one.name == "zebra:80" && one.has_last),
            "{unresolved:?}"
        );
    }

    #[test]
    fn a_name_without_addresses_has_failed() {
        let resolved = members(&configured(), &[], &|_: &str| Ok(Vec::new()));
        assert_eq!(keys(&resolved), ["10.0.0.1:80", "10.0.0.0:80"]);
        let told: Vec<(usize, bool)> = resolved
            .unresolved
            .iter()
            .map(|one| (one.index, one.has_last))
            .collect();
        assert_eq!(told, [(0, false), (2, false)]);
    }
}
