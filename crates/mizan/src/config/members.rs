//! What the backends of a pool stand for: the one place where host names become members.
//!
//! A configuration is compiled with it, and every 30 s names are resolved again with it, so that the two give the same
//! members in the same order. A name that fails keeps what it stood for last; the others are not held up by it.

use super::Resolve;
use crate::snapshot::Configured;
use ipnet::IpNet;
use mizan_core::backend::{Address, Backend, Member};
use std::net::SocketAddr;
use std::sync::Arc;

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

/// Resolves the host names among `configured`; `last` are the backends that the pool has now.
pub fn members(configured: &[Configured], last: &[Arc<Backend>], resolve: Resolve<'_>) -> Resolved {
    let mut out = Resolved {
        members: Vec::with_capacity(configured.len()),
        unresolved: Vec::new(),
    };
    for (index, backend) in configured.iter().enumerate() {
        let (name, template, networks) = match backend {
            Configured::Fixed(member) => {
                out.members.push(member.clone());
                continue;
            }
            Configured::Named {
                name,
                template,
                networks,
            } => (name, template, networks),
        };
        let addresses = addresses(name, networks, resolve).unwrap_or_else(|problem| {
            let last = last_addresses(name, last);
            out.unresolved.push(Unresolved {
                index,
                name: name.clone(),
                problem,
                has_last: !last.is_empty(),
            });
            last
        });
        out.members
            .extend(addresses.into_iter().map(|address| Member {
                key: Arc::from(format!("{name}/{}", address.ip())),
                address: Address::Ip(address),
                ..template.clone()
            }));
    }
    out
}

/// What a name stands for now, or why it stands for nothing.
fn addresses(
    name: &str,
    networks: &[IpNet],
    resolve: Resolve<'_>,
) -> Result<Vec<SocketAddr>, String> {
    let found = resolve(name).map_err(|error| error.to_string())?;
    let mut found: Vec<SocketAddr> = found
        .into_iter()
        .map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()))
        .collect();
    found.sort();
    found.dedup();
    let Some(first) = found.first().copied() else {
        return Err("it has no addresses".to_owned());
    };
    let is_inside = |address: &SocketAddr| networks.iter().any(|it| it.contains(&address.ip()));
    found.retain(|address| networks.is_empty() || is_inside(address));
    if found.is_empty() {
        return Err(format!("{} is in none of `backend_networks`", first.ip()));
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
    use std::io;

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
        let resolved = members(&configured(), &[], &|_| Ok(Vec::new()));
        assert_eq!(keys(&resolved), ["10.0.0.1:80", "10.0.0.0:80"]);
        let told: Vec<(usize, bool)> = resolved
            .unresolved
            .iter()
            .map(|one| (one.index, one.has_last))
            .collect();
        assert_eq!(told, [(0, false), (2, false)]);
    }
}
