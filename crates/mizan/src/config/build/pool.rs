//! Pools: members are resolved, live state is taken over.

use super::{Inputs, networks};
use crate::config::load::{Fnv, beside};
use crate::config::report::Cx;
use crate::config::schema::{self, BackendEntry, File, Policy, Statuses};
use crate::config::text::BackendAddress;
use crate::config::tree::At;
use crate::snapshot::{
    ClientTls, Configured, HealthCheck, Http2Upstream, Keepalive, LoadProbes, Origin, Ping, Pool,
    ProbeKind, Protocol, ProxyVersion, Queue, Retry, RetryOn, StatusSet, UpstreamTimeouts,
};
use ipnet::IpNet;
use mizan_core::backend::{Address, Member};
use mizan_core::ejection::EjectionConfig;
use mizan_core::policy::PolicyKind;
use mizan_core::pool::{AdaptiveConfig, PoolConfig, PrequalConfig};
use mizan_core::retry::RetryBudgetConfig;
use mizan_core::spread::{Place, SpreadConfig, Subset};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How far back requests count for the retry budget.
const BUDGET_WINDOW: Duration = Duration::from_secs(10);

/// Statuses that pass a probe unless the file says otherwise.
const PASSING: (u16, u16) = (200, 399);

pub(super) fn build(
    cx: &mut Cx<'_>,
    file: &File,
    inputs: &Inputs<'_>,
) -> Option<BTreeMap<Arc<str>, Arc<Pool>>> {
    let mut pools = BTreeMap::new();
    let list = At::ROOT.key("pool");
    for (name, from) in &file.pool {
        let name: Arc<str> = Arc::from(name.as_str());
        let pool = build_one(cx, (&name, from), file, inputs, &list.key(&name))?;
        pools.insert(name, Arc::new(pool));
    }
    Some(pools)
}

fn build_one(
    cx: &mut Cx<'_>,
    (name, from): (&Arc<str>, &schema::Pool),
    file: &File,
    inputs: &Inputs<'_>,
    at: &At<'_>,
) -> Option<Pool> {
    let previous = inputs
        .previous
        .and_then(|previous| previous.pools.get(name));
    let configured = all_configured(cx, from, file, at)?;
    let members = members(cx, &configured, inputs, previous, at);
    let config = config(from, &file.node);
    let core = match previous {
        Some(previous) => Arc::clone(&previous.core),
        None => {
            let mut seed = Fnv(inputs.random);
            seed.bytes(name.as_bytes());
            Arc::new(mizan_core::pool::Pool::new(
                inputs.now,
                config.clone(),
                members.clone(),
                seed.0,
            ))
        }
    };
    let tls = inputs.tls.pools.get(&**name).cloned();
    let health = match &from.health {
        Some(health) => Some(health_check(health, from, tls.as_ref())?),
        None => None,
    };
    Some(Pool {
        name: Arc::clone(name),
        core,
        config,
        versions: versions(&configured, &members),
        members,
        configured,
        discovery: previous
            .map(|previous| Arc::clone(&previous.discovery))
            .unwrap_or_default(),
        waiters: previous
            .map(|previous| Arc::clone(&previous.waiters))
            .unwrap_or_default(),
        hash_key: from.hash_key.as_ref().map(|key| key.value.clone()),
        health,
        load_probes: load_probes(from, tls.as_ref(), previous),
        tls,
        protocol: match from.protocol {
            schema::Protocol::Http1 => Protocol::Http1,
            schema::Protocol::Http2 => Protocol::Http2,
            schema::Protocol::Auto => Protocol::Auto,
        },
        http2: http2(&from.http2_limits)?,
        proxy_protocol: from.proxy_protocol.map(proxy_version),
        timeouts: timeouts(&from.timeouts),
        retry: retry(&from.retry)?,
        keepalive: Keepalive {
            idle_timeout: from.keepalive.idle_timeout.value.0,
            idle_max: from.keepalive.idle_max,
        },
        queue: Queue {
            requests_max: from.queue.requests_max,
            timeout: from.queue.timeout.value.0,
        },
    })
}

/// The pool's backends as the file has them, then the places of further ones.
fn all_configured(
    cx: &Cx<'_>,
    from: &schema::Pool,
    file: &File,
    at: &At<'_>,
) -> Option<Vec<Configured>> {
    let outside: Arc<[IpNet]> = networks(&file.store.backend_networks).into();
    let networks = match cx.is_stored(at) {
        true => Arc::clone(&outside),
        false => Arc::default(),
    };
    let servers = file.dns.servers.iter().map(|server| server.value);
    let servers: Arc<[SocketAddr]> = servers.collect();
    let mut configured: Vec<Configured> = from
        .backends
        .iter()
        .map(|from| configured(from, &networks, &servers))
        .collect::<Option<_>>()?;
    let list = at.key("discover");
    for (index, from) in from.discover.iter().enumerate() {
        let origin = origin(cx, from, &servers, &list.index(index))?;
        configured.push(listed(origin, from, (&servers, &outside)));
    }
    Some(configured)
}

/// The versions of its backends, each once.
fn versions(configured: &[Configured], members: &[Member]) -> Vec<Arc<str>> {
    let mut versions: Vec<Arc<str>> = Vec::new();
    let said = configured.iter().map(Configured::template);
    for version in said.chain(members).map(|member| &member.version) {
        if !versions.contains(version) {
            versions.push(Arc::clone(version));
        }
    }
    versions
}

/// The members as resolved now; a name that cannot be resolved is a warning.
fn members(
    cx: &mut Cx<'_>,
    configured: &[Configured],
    inputs: &Inputs<'_>,
    previous: Option<&Arc<Pool>>,
    at: &At<'_>,
) -> Vec<Member> {
    let last = previous
        .map(|previous| previous.core.backends())
        .unwrap_or_default();
    let resolved = crate::config::members(configured, &last, inputs.lookup);
    let (backends, discover) = (at.key("backends"), at.key("discover"));
    // Places of lists stand behind the backends.
    let backends_count = configured
        .iter()
        .filter(|it| !matches!(it, Configured::Listed { .. }))
        .count();
    for name in resolved.unresolved {
        let help = if name.has_last {
            "its last addresses stay in use, and it is asked for again and again"
        } else {
            "the pool has no backend from it until then; it is asked for again and again"
        };
        let message = format!("`{}` cannot be {}: {}", name.name, name.what, name.problem);
        let at = match name.index.checked_sub(backends_count) {
            Some(index) => discover.index(index),
            None => backends.index(name.index),
        };
        cx.warn(&at, "unresolved", message, help);
    }
    resolved.members
}

/// Where a list is that the file names; a path is relative to the file.
fn origin(
    cx: &Cx<'_>,
    from: &schema::Discover,
    servers: &Arc<[SocketAddr]>,
    at: &At<'_>,
) -> Option<Origin> {
    if let Some(service) = &from.srv {
        return Some(Origin::Srv {
            servers: Arc::clone(servers),
            name: Arc::from(service.value.0.as_str()),
        });
    }
    if let Some(name) = &from.instances {
        return Some(Origin::Instances(Arc::from(name.as_str())));
    }
    let file = from.file.as_ref()?;
    let place = cx.place(&at.key("file"));
    let source = cx.report.sources.get(place.file)?;
    Some(Origin::File(beside(&source.path, file)))
}

fn listed(
    origin: Origin,
    from: &schema::Discover,
    (servers, networks): (&Arc<[SocketAddr]>, &Arc<[IpNet]>),
) -> Configured {
    let text = |text: &Option<String>| Arc::from(text.as_deref().unwrap_or(""));
    Configured::Listed {
        template: Member {
            key: Arc::from(origin.name()),
            address: Address::Ip(SocketAddr::from(([0, 0, 0, 0], 0))),
            weight: 1,
            version: text(&from.version),
            in_flight_max: from.in_flight_max,
            place: Place {
                tier: 0,
                zone: text(&from.zone),
            },
        },
        origin,
        servers: Arc::clone(servers),
        networks: Arc::clone(networks),
    }
}

/// A backend as a list has it.
pub(in super::super) fn configured(
    from: &BackendEntry,
    networks: &Arc<[IpNet]>,
    servers: &Arc<[SocketAddr]>,
) -> Option<Configured> {
    let alone = schema::Backend::default();
    let (address, table) = match from {
        BackendEntry::Address(address) => (address, &alone),
        BackendEntry::Full(table) => (table.address.as_ref()?, table),
    };
    let member = |key: String, address: Address| Member {
        key: Arc::from(key),
        address,
        weight: table.weight,
        version: Arc::from(table.version.as_deref().unwrap_or("")),
        in_flight_max: table.in_flight_max,
        place: Place {
            tier: from.tier(),
            zone: Arc::from(table.zone.as_deref().unwrap_or("")),
        },
    };
    Some(match &address.value {
        BackendAddress::Ip(address) => {
            Configured::Fixed(member(address.to_string(), Address::Ip(*address)))
        }
        BackendAddress::Unix(path) => Configured::Fixed(member(
            format!("unix:{}", path.display()),
            Address::Unix(path.clone()),
        )),
        BackendAddress::Name(name) => {
            let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
            Configured::Named {
                name: name.clone(),
                template: member(name.clone(), Address::Ip(nowhere)),
                servers: Arc::clone(servers),
                networks: Arc::clone(networks),
            }
        }
    })
}

fn config(from: &schema::Pool, node: &schema::Node) -> PoolConfig {
    let (rise, fall) = from
        .health
        .as_ref()
        .map_or((2, 3), |health| (health.rise, health.fall));
    PoolConfig {
        policy: match from.policy {
            Policy::Random => PolicyKind::Random,
            Policy::RoundRobin => PolicyKind::RoundRobin,
            Policy::WeightedRoundRobin => PolicyKind::WeightedRoundRobin,
            Policy::LeastConnections => PolicyKind::LeastConnections,
            Policy::LeastResponseTime => PolicyKind::LeastResponseTime,
            Policy::PowerOfTwo => PolicyKind::PowerOfTwo,
            Policy::PeakEwma => PolicyKind::PeakEwma,
            Policy::Prequal => PolicyKind::Prequal,
            Policy::ConsistentHash => PolicyKind::ConsistentHash,
            Policy::Maglev => PolicyKind::Maglev,
        },
        hash_load_bound: from.hash_load_bound,
        panic_threshold: from.panic_threshold,
        rise,
        fall,
        probed: from.health.is_some(),
        ejection: EjectionConfig {
            enabled: from.ejection.enabled,
            consecutive_failures: from.ejection.failures,
            consecutive_errors: from.ejection.failures,
            time_base: from.ejection.time.value.0,
            time_max: from.ejection.time_max.value.0,
            max_ejected: from.ejection.max_ejected,
            success_rate_deviations: from.ejection.success_rate_deviations,
            failed_share: from.ejection.failed_share,
            requests_min: from.ejection.requests_min,
            ..EjectionConfig::default()
        },
        adaptive: AdaptiveConfig {
            enabled: from.adaptive.enabled,
            latency_factor: from.adaptive.latency_factor,
            failed_share: from.adaptive.failed_share,
            saturation: from.adaptive.saturation,
            weight_min: from.adaptive.weight_min,
            recover_after: from.adaptive.recover_after.value.0,
            slow_start: from.adaptive.slow_start.value.0,
            slow_start_requests: from.adaptive.slow_start_requests,
        },
        spread: spread(from, node),
        retry_budget: RetryBudgetConfig {
            ratio: from.retry.budget,
            min_per_second: from.retry.budget_min_per_second,
            window: BUDGET_WINDOW,
        },
    }
}

fn load_probes(
    from: &schema::Pool,
    tls: Option<&Arc<ClientTls>>,
    previous: Option<&Arc<Pool>>,
) -> Option<LoadProbes> {
    let before = previous.and_then(|previous| previous.load_probes.as_ref());
    let path = from.prequal.path.clone();
    Some(LoadProbes {
        path: path.filter(|_| from.policy == Policy::Prequal)?,
        config: PrequalConfig {
            probes_per_request: from.prequal.probes_per_request,
            probes_per_second_max: from.prequal.probes_per_second_max,
        },
        tls: tls.cloned(),
        proxy_protocol: from.proxy_protocol.map(proxy_version),
        reports: before
            .map(|before| Arc::clone(&before.reports))
            .unwrap_or_default(),
    })
}

fn spread(from: &schema::Pool, node: &schema::Node) -> SpreadConfig {
    let subset = |size| {
        Some(Subset {
            size,
            index: node.index?,
            of: node.of?,
        })
    };
    SpreadConfig {
        overprovisioning: from.overprovisioning,
        zone: node.zone.as_deref().map(Arc::from),
        subset: from.subset_size.and_then(subset),
    }
}

fn proxy_version(from: schema::ProxyVersion) -> ProxyVersion {
    match from {
        schema::ProxyVersion::V1 => ProxyVersion::V1,
        schema::ProxyVersion::V2 => ProxyVersion::V2,
    }
}

fn health_check(
    from: &schema::Health,
    pool: &schema::Pool,
    tls: Option<&Arc<ClientTls>>,
) -> Option<HealthCheck> {
    let kind = if from.tcp {
        ProbeKind::Tcp
    } else if let Some(service) = &from.grpc {
        ProbeKind::Grpc {
            service: service.clone(),
            host: from.host.as_ref().map(|host| host.value.0.clone()),
        }
    } else {
        let expect = from.expect.as_ref().map_or(vec![PASSING], |expect| {
            let range = |statuses: &Statuses| match statuses {
                Statuses::Number(status) => (*status, *status),
                Statuses::Range(range) => (range.value.0, range.value.1),
            };
            expect.as_slice().iter().map(range).collect()
        });
        ProbeKind::Http {
            path: from.path.clone()?,
            host: from.host.as_ref().map(|host| host.value.0.clone()),
            expect: StatusSet(expect),
            body: from.body.clone(),
        }
    };
    let (interval, timeout) = (from.interval.value.0, from.timeout.value.0);
    Some(HealthCheck {
        kind,
        interval,
        jitter: from.jitter,
        timeout,
        port: from.port,
        tls: tls.filter(|_| from.tls.unwrap_or(true)).cloned(),
        http2: pool.protocol == schema::Protocol::Http2,
        proxy_protocol: pool.proxy_protocol.map(proxy_version),
    })
}

fn http2(from: &schema::PoolHttp2) -> Option<Http2Upstream> {
    Some(Http2Upstream {
        window_bytes: u32::try_from(from.window.value.0).ok()?,
        connection_window_bytes: u32::try_from(from.connection_window.value.0).ok()?,
        ping: Ping {
            interval: from.ping_interval.value.0,
            timeout: from.ping_timeout.value.0,
        },
    })
}

fn timeouts(from: &schema::PoolTimeouts) -> UpstreamTimeouts {
    UpstreamTimeouts {
        connect: from.connect.value.0,
        response_header: from.response_header.value.0,
        response_idle: from.response_idle.value.0,
        per_try: from.per_try.value.0,
        request: from.request.value.0,
    }
}

fn retry(from: &schema::Retry) -> Option<Retry> {
    Some(Retry {
        tries_max: from.tries_max,
        on: RetryOn {
            reset: from.reset,
            timeout: from.timeout,
            statuses: from.statuses.clone(),
        },
        backoff: from.backoff.value.0,
        backoff_max: from.backoff_max.value.0,
        buffer_bytes_max: usize::try_from(from.buffer_max.value.0).ok()?,
    })
}
