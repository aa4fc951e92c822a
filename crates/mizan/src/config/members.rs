//! What the backends of a pool stand for: the one place where host names and lists become members.
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

/// Who is asked what host names stand for, and what lists have.
pub trait Lookup {
    /// The addresses of `name`, a `host:port`, as `servers` have it; none: the system's.
    ///
    /// # Errors
    /// [`Lost`], if they cannot be had now.
    fn addresses(&self, servers: &Arc<[SocketAddr]>, name: &str) -> Result<Vec<SocketAddr>, Lost>;

    /// The backends that `origin` lists; names among them are still to be looked up.
    fn list(&self, origin: &Origin) -> Listing;
}

/// Backends that a list has.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// They, as they were listed last.
    pub backends: Arc<[Configured]>,
    /// Why it could not be heard since; `None` if all is well.
    pub problem: Option<String>,
}

impl Listing {
    /// A list of which nothing is known.
    pub fn unknown(problem: String) -> Self {
        Self {
            backends: Arc::default(),
            problem: Some(problem),
        }
    }
}

/// What cannot be looked up now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Why.
    pub problem: String,
    /// What it stood for when it was last looked up; empty: nothing is known.
    pub last: Vec<SocketAddr>,
}

/// A function from `host:port` to addresses, whoever is to be asked; it knows no lists.
impl<F: Fn(&str) -> io::Result<Vec<SocketAddr>>> Lookup for F {
    fn addresses(&self, _: &Arc<[SocketAddr]>, name: &str) -> Result<Vec<SocketAddr>, Lost> {
        self(name).map_err(|error| Lost {
            problem: error.to_string(),
            last: Vec::new(),
        })
    }

    fn list(&self, _: &Origin) -> Listing {
        Listing::default()
    }
}

/// The members of a pool.
#[derive(Debug)]
pub struct Resolved {
    /// In the order of the file; the addresses of one name in their own order.
    pub members: Vec<Member>,
    /// Names and lists that could not be looked up.
    pub unresolved: Vec<Unresolved>,
}

/// A host name or a list that could not be looked up.
#[derive(Debug)]
pub struct Unresolved {
    /// Its position among the pool's backends.
    pub index: usize,
    /// `host:port`, or what a list is called.
    pub name: String,
    /// What it cannot be: `resolved`, `read`, `heard` or `used`.
    pub what: &'static str,
    /// Why.
    pub problem: String,
    /// Whether it stood for something before, which stays.
    pub has_last: bool,
}

/// Looks up the host names and lists among `configured`; `last` are the backends that the pool has now.
pub fn members(configured: &[Configured], last: &[Arc<Backend>], lookup: &dyn Lookup) -> Resolved {
    let mut out = Resolved {
        members: Vec::with_capacity(configured.len()),
        unresolved: Vec::new(),
    };
    for (index, backend) in configured.iter().enumerate() {
        let mut expand = Expand {
            out: &mut out,
            index,
            last,
            lookup,
        };
        match backend {
            Configured::Fixed(member) => expand.out.members.push(member.clone()),
            Configured::Named {
                name,
                template,
                servers,
                networks,
            } => expand.name((name, template), servers, networks),
            Configured::Listed {
                origin,
                template,
                servers,
                networks,
            } => expand.list((origin, template), servers, networks),
        }
    }
    out
}

/// All that is looked up for `configured`, as far as `lookup` knows what lists there are.
pub fn origins(configured: &[Configured], lookup: &dyn Lookup) -> BTreeSet<Origin> {
    let mut origins = BTreeSet::new();
    let mut name = |servers: &Arc<[SocketAddr]>, name: &str| {
        origins.insert(Origin::Name {
            servers: Arc::clone(servers),
            name: Arc::from(name),
        });
    };
    let mut lists = BTreeSet::new();
    for backend in configured {
        match backend {
            Configured::Fixed(_) => {}
            Configured::Named {
                name: of, servers, ..
            } => name(servers, of),
            Configured::Listed {
                origin, servers, ..
            } => {
                for backend in lookup.list(origin).backends.iter() {
                    if let Configured::Named { name: of, .. } = backend {
                        name(servers, of);
                    }
                }
                lists.insert(origin.clone());
            }
        }
    }
    origins.extend(lists);
    origins
}

/// One entry of the file on its way to members.
struct Expand<'a> {
    out: &'a mut Resolved,
    index: usize,
    last: &'a [Arc<Backend>],
    lookup: &'a dyn Lookup,
}

impl Expand<'_> {
    fn name(
        &mut self,
        (name, template): (&str, &Member),
        servers: &Arc<[SocketAddr]>,
        networks: &[IpNet],
    ) {
        let key = key_of(name);
        let found = self.lookup.addresses(servers, name);
        let addresses = found.and_then(|found| inside(found, networks));
        let addresses = addresses.unwrap_or_else(|lost| {
            let last = match inside(lost.last, networks) {
                Ok(last) => last,
                Err(_) => last_addresses(&key, self.last),
            };
            self.unresolved(&key, "resolved", lost.problem, !last.is_empty());
            last
        });
        let of_name = addresses.into_iter().map(|address| Member {
            key: Arc::from(format!("{key}/{}", address.ip())),
            address: Address::Ip(address),
            ..template.clone()
        });
        self.out.members.extend(of_name);
    }

    fn list(
        &mut self,
        (origin, template): (&Origin, &Member),
        servers: &Arc<[SocketAddr]>,
        networks: &[IpNet],
    ) {
        let Listing { backends, problem } = self.lookup.list(origin);
        if let Some(problem) = problem {
            let what = match origin {
                Origin::File(_) => "read",
                Origin::Instances(_) => "heard",
                _ => "resolved",
            };
            self.unresolved(&origin.name(), what, problem, !backends.is_empty());
        }
        for backend in backends.iter() {
            match backend {
                Configured::Fixed(member) => {
                    let member = filled(member, template);
                    match is_inside(&member.address, networks) {
                        true => self.out.members.push(member),
                        false => self.unresolved(
                            &member.key,
                            "used",
                            "it is in none of `backend_networks`".to_owned(),
                            false,
                        ),
                    }
                }
                Configured::Named {
                    name,
                    template: own,
                    ..
                } => self.name((name, &filled(own, template)), servers, networks),
                // A list names no further lists.
                Configured::Listed { .. } => {}
            }
        }
    }

    fn unresolved(&mut self, name: &str, what: &'static str, problem: String, has_last: bool) {
        self.out.unresolved.push(Unresolved {
            index: self.index,
            name: name.to_owned(),
            what,
            problem,
            has_last,
        });
    }
}

/// `member`, with what it does not say as `template` has it.
fn filled(member: &Member, template: &Member) -> Member {
    let mut member = member.clone();
    if member.version.is_empty() {
        member.version = Arc::clone(&template.version);
    }
    if member.place.zone.is_empty() {
        member.place.zone = Arc::clone(&template.place.zone);
    }
    member.in_flight_max = member.in_flight_max.or(template.in_flight_max);
    member
}

/// Whether a member may be there. Sockets of this machine are in no network.
fn is_inside(address: &Address, networks: &[IpNet]) -> bool {
    match address {
        _ if networks.is_empty() => true,
        Address::Ip(address) => networks.iter().any(|it| it.contains(&address.ip())),
        Address::Unix(_) => false,
    }
}

/// What a name's members are known by: a dot at the end of the host only says that no search list is asked for it.
fn key_of(name: &str) -> String {
    name.replacen(".:", ":", 1)
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

    /// Knows one list, and no names.
    struct Lists(Vec<Configured>);

    impl Lookup for Lists {
        fn addresses(&self, _: &Arc<[SocketAddr]>, name: &str) -> Result<Vec<SocketAddr>, Lost> {
            match name {
                "zebra:80" => Ok(vec![SocketAddr::from(([10, 2, 0, 1], 80))]),
                _ => Err(Lost {
                    problem: "no such name".to_owned(),
                    last: vec![SocketAddr::from(([10, 2, 0, 7], 80))],
                }),
            }
        }

        fn list(&self, _: &Origin) -> Listing {
            Listing {
                backends: self.0.clone().into(),
                problem: None,
            }
        }
    }

    fn listed(networks: &[IpNet]) -> Configured {
        Configured::Listed {
            origin: Origin::File("a.json".into()),
            template: Member {
                version: Arc::from("v9"),
                in_flight_max: Some(5),
                ..member("a.json")
            },
            servers: Arc::from([]),
            networks: networks.into(),
        }
    }

    #[test]
    fn a_list_gives_its_backends_with_what_they_do_not_say() {
        let plain = Member {
            version: Arc::from(""),
            ..member("10.0.0.9:80")
        };
        let lists = Lists(vec![
            Configured::Fixed(plain),
            named("zebra.:80"),
            named("zebra:80"),
        ]);
        let resolved = members(&[listed(&[])], &[], &lists);
        // A name that is whole is the name; what fails keeps what is known of it.
        let want = ["10.0.0.9:80", "zebra:80/10.2.0.7", "zebra:80/10.2.0.1"];
        assert_eq!(keys(&resolved), want);
        let said = |at: usize| {
            (
                &*resolved.members[at].version,
                resolved.members[at].in_flight_max,
            )
        };
        assert_eq!((said(0), said(1)), (("v9", Some(5)), ("v2", Some(5))));
        let names = origins(&[listed(&[])], &lists);
        assert_eq!(names.len(), 3, "{names:?}");

        let elsewhere = "10.2.0.0/16".parse().expect("a network");
        let resolved = members(&[listed(&[elsewhere])], &[], &lists);
        assert_eq!(keys(&resolved), ["zebra:80/10.2.0.7", "zebra:80/10.2.0.1"]);
        let told: Vec<_> = resolved.unresolved.iter().map(|it| it.what).collect();
        assert_eq!(told, ["used", "resolved"]);
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
