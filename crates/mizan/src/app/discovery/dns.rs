//! Asks DNS as the system would: its hosts file first, then its servers or those that are named, by its search list.

use super::runtime::Here;
use super::srv;
use crate::snapshot::Configured;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::{Hosts, system_conf};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

/// Shortest time that an answer is gone by, whatever its TTL: a TTL of 0 asks nobody to be asked without end.
pub(super) const TTL_MIN: Duration = Duration::from_secs(1);
/// Longest time, whatever its TTL: what comes from the system's own files has none.
pub(super) const TTL_MAX: Duration = Duration::from_secs(30);
/// How long a server that the configuration names may take, and how often it is asked.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
const SERVER_TRIES: usize = 2;

/// The system's files that say how names are resolved.
const SYSTEM_FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Addresses of a host.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) found: Vec<IpAddr>,
    pub(super) ttl: Duration,
    /// The family that could not be asked for, with the reason: of that, what was known stays.
    pub(super) lost: Option<(Family, String)>,
}

/// Backends that a service names.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) backends: Arc<[Configured]>,
    pub(super) ttl: Duration,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// Whether the address is of it.
    pub(super) fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

/// Why nothing was found.
#[derive(Debug)]
pub(super) enum Missing {
    /// Servers answered: there is no such name, or nothing of this kind.
    Nothing(String),
    /// They did not answer, or not to this.
    Outage(String),
}

/// Makes the resolvers, and makes them anew when the system's files have changed.
#[derive(Debug, Default)]
pub(super) struct Dns {
    resolvers: Vec<(Arc<[SocketAddr]>, Arc<Resolver>)>,
    files: Option<[Option<(u64, i64, i64)>; 2]>,
}

impl Dns {
    /// Who asks `servers`; none: the system's.
    pub(super) fn resolver(&mut self, servers: &Arc<[SocketAddr]>) -> Arc<Resolver> {
        let files = SYSTEM_FILES.map(|path| {
            let meta = fs::metadata(path).ok()?;
            Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
        });
        if self.files != Some(files) {
            self.files = Some(files);
            self.resolvers.clear();
        }
        if let Some((_, resolver)) = self.resolvers.iter().find(|(asks, _)| asks == servers) {
            return Arc::clone(resolver);
        }
        let resolver = Arc::new(Resolver::new(servers));
        self.resolvers
            .push((Arc::clone(servers), Arc::clone(&resolver)));
        resolver
    }
}

/// Asks one set of servers.
#[derive(Debug)]
pub(super) struct Resolver {
    hosts: Hosts,
    /// `None`: this system names no servers.
    servers: Option<Servers>,
    is_system: bool,
}

#[derive(Debug)]
struct Servers {
    asks: hickory_resolver::Resolver<Here>,
    search: Vec<Name>,
    dots: usize,
}

impl Resolver {
    fn new(servers: &[SocketAddr]) -> Self {
        let is_system = servers.is_empty();
        let system = system_conf::read_system_conf();
        let made = match (system, is_system) {
            (Ok((config, options)), true) => Servers::new(config, options),
            (Err(error), true) => {
                tracing::debug!("/etc/resolv.conf: {error}: names are left to the system");
                None
            }
            (system, false) => {
                // Their names are written as they are for the system's servers.
                let (search, dots) = match system {
                    Ok((config, options)) => (config.search().to_vec(), options.ndots),
                    Err(_) => (Vec::new(), 1),
                };
                let named = servers.iter().map(|server| name_server(*server)).collect();
                let mut options = ResolverOpts::default();
                options.timeout = SERVER_TIMEOUT;
                options.attempts = SERVER_TRIES;
                options.ndots = dots;
                Servers::new(ResolverConfig::from_parts(None, search, named), options)
            }
        };
        Self {
            hosts: Hosts::from_system().unwrap_or_default(),
            servers: made,
            is_system,
        }
    }

    /// The addresses of `host`.
    pub(super) async fn addresses(&self, host: &str) -> Result<Addresses, Missing> {
        let name = Name::from_ascii(host)
            .map_err(|error| Missing::Nothing(format!("`{host}` is no name: {error}")))?;
        if let Some(found) = self.in_hosts(&name) {
            return Ok(found);
        }
        let Some(servers) = &self.servers else {
            return system(host).await;
        };
        match servers.addresses(&name).await {
            // The system knows other places than DNS: a local network's names, those of containers.
            Err(Missing::Nothing(error)) if self.is_system => {
                system(host).await.map_err(|_| Missing::Nothing(error))
            }
            other => other,
        }
    }

    /// What serves `name`, a service.
    pub(super) async fn services(&self, name: &str) -> Result<Lists, Missing> {
        let name = Name::from_ascii(name)
            .map_err(|error| Missing::Nothing(format!("`{name}` is no name: {error}")))?;
        match &self.servers {
            Some(servers) => servers.services(&name).await,
            None => Err(Missing::Outage(
                "this system names no DNS servers, and nobody else knows of services".to_owned(),
            )),
        }
    }

    fn in_hosts(&self, name: &Name) -> Option<Addresses> {
        let mut found = Vec::new();
        for kind in [RecordType::A, RecordType::AAAA] {
            let lookup = self
                .hosts
                .lookup_static_host(&Query::query(name.clone(), kind));
            found.extend(lookup.iter().flat_map(|it| ips(it.answers())));
        }
        (!found.is_empty()).then_some(Addresses {
            found,
            ttl: TTL_MAX,
            lost: None,
        })
    }
}

impl Servers {
    fn new(config: ResolverConfig, mut options: ResolverOpts) -> Option<Self> {
        // An answer is kept by who asked, for as long as it holds.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        let search = match config.search() {
            [] => config.domain().into_iter().cloned().collect(),
            search => search.to_vec(),
        };
        let dots = options.ndots;

        let asks = hickory_resolver::Resolver::builder_with_config(config, Here)
            .with_options(options)
            .build();
        let asks = asks
            .map_err(|error| tracing::warn!("DNS cannot be asked: {error}"))
            .ok()?;
        Some(Self { asks, search, dots })
    }

    /// The first of the names that `name` may stand for that has addresses. A name that could not be asked for ends the
    /// search: what comes after it is another host.
    async fn addresses(&self, name: &Name) -> Result<Addresses, Missing> {
        let mut nothing = None;
        for name in self.candidates(name) {
            let (v4, v6) = tokio::join!(
                self.asks.lookup(name.clone(), RecordType::A),
                self.asks.lookup(name.clone(), RecordType::AAAA),
            );
            let mut found = Vec::new();
            let mut ttl = TTL_MAX;
            let mut lost = None;
            for (family, looked) in [(Family::V4, v4), (Family::V6, v6)] {
                match looked.map_err(|error| missing(&error)) {
                    Ok(lookup) => {
                        found.extend(ips(lookup.answers()));
                        ttl = ttl.min(time_to_live(lookup.answers()));
                    }
                    Err(Missing::Nothing(error)) => nothing = Some(error),
                    Err(Missing::Outage(error)) => lost = Some((family, error)),
                }
            }
            match (found.is_empty(), lost) {
                (true, Some((_, error))) => return Err(Missing::Outage(error)),
                (true, None) => {}
                (false, lost) => return Ok(Addresses { found, ttl, lost }),
            }
        }
        let error = nothing.unwrap_or_else(|| "it has no addresses".to_owned());
        Err(Missing::Nothing(error))
    }

    async fn services(&self, name: &Name) -> Result<Lists, Missing> {
        let mut nothing = Missing::Nothing("there is no such service".to_owned());
        for name in self.candidates(name) {
            match self.asks.lookup(name, RecordType::SRV).await {
                Ok(lookup) => {
                    let services = lookup.answers().iter().filter_map(|it| match &it.data {
                        RData::SRV(service) => Some(service),
                        _ => None,
                    });
                    let services: Vec<_> = services.collect();
                    if !services.is_empty() {
                        return Ok(Lists {
                            backends: srv::backends(&services).into(),
                            ttl: time_to_live(lookup.answers()),
                        });
                    }
                }
                Err(error) => match missing(&error) {
                    Missing::Nothing(_) => {}
                    outage @ Missing::Outage(_) => {
                        nothing = outage;
                        break;
                    }
                },
            }
        }
        Err(nothing)
    }

    /// What `name` may stand for, in the order of resolv.conf(5): as it is, and below the search list.
    fn candidates(&self, name: &Name) -> Vec<Name> {
        let mut whole = name.clone();
        whole.set_fqdn(true);
        if name.is_fqdn() {
            return vec![whole];
        }
        let below = self.search.iter();
        let mut names: Vec<Name> = below
            .filter_map(|domain| name.clone().append_domain(domain).ok())
            .collect();
        let is_first = usize::from(name.num_labels()) > self.dots;
        names.insert(if is_first { 0 } else { names.len() }, whole);
        names.dedup();
        names
    }
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let at = |mut connection: ConnectionConfig| {
        connection.port = server.port();
        connection
    };
    let connections = vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())];
    NameServerConfig::new(server.ip(), true, connections)
}

/// The system's resolver, which gives no TTL. It blocks, so it is asked on a thread that may.
async fn system(host: &str) -> Result<Addresses, Missing> {
    use std::net::ToSocketAddrs;
    let host = host.to_owned();
    let asked = tokio::task::spawn_blocking(move || (host.as_str(), 0).to_socket_addrs());
    let found = match asked.await {
        Ok(found) => found.map_err(|error| Missing::Outage(error.to_string()))?,
        Err(_) => return Err(Missing::Outage("it could not be asked for".to_owned())),
    };
    let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    match found.is_empty() {
        true => Err(Missing::Nothing("it has no addresses".to_owned())),
        false => Ok(Addresses {
            found,
            ttl: TTL_MAX,
            lost: None,
        }),
    }
}

fn ips(records: &[Record]) -> impl Iterator<Item = IpAddr> {
    records.iter().filter_map(|record| match &record.data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    })
}

/// How long an answer holds: as long as the shortest-lived of its records, aliases among them.
fn time_to_live(records: &[Record]) -> Duration {
    let shortest = records.iter().map(|record| record.ttl).min();
    let ttl = shortest.map_or(TTL_MAX, |seconds| Duration::from_secs(u64::from(seconds)));
    ttl.clamp(TTL_MIN, TTL_MAX)
}

fn missing(error: &NetError) -> Missing {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(NoRecords { response_code, .. })) => {
            match response_code {
                ResponseCode::NXDomain => Missing::Nothing("there is no such name".to_owned()),
                ResponseCode::NoError => Missing::Nothing("it has no addresses".to_owned()),
                code => Missing::Outage(format!("the servers say {code}")),
            }
        }
        NetError::Dns(DnsError::ResponseCode(code)) => {
            Missing::Outage(format!("the servers say {code}"))
        }
        NetError::Timeout => Missing::Outage("the servers do not answer".to_owned()),
        error => Missing::Outage(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
