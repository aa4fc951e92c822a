//! A small snapshot for tests.

use crate::snapshot::route::{
    Action, HeaderEdits, PathMatch, Route, RouteTable, RouteTimeouts, Split,
};
use crate::snapshot::{
    Bind, Certificate, CertificateChoice, ClientTimeouts, DrainSettings, HeadLimits, Keepalive,
    Listener, ListenerKind, MinRate, Networks, Pool, Queue, Retry, RetryOn, ServerTls, Settings,
    Snapshot, UpstreamTimeouts,
};
use mizan_core::backend::{Address, Member};
use mizan_core::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// A snapshot with these listeners, pools (name and backends' versions; ports count from 8000) and
/// routes (name and pools; none is a redirect).
pub(crate) fn snapshot(
    listeners: &[&str],
    pools: &[(&str, &[&str])],
    routes: &[(&str, &[&str])],
) -> Snapshot {
    let listeners = listeners
        .iter()
        .enumerate()
        .map(|(index, name)| Arc::new(listener(name, index)))
        .collect();
    let pools: Vec<Arc<Pool>> = pools
        .iter()
        .map(|(name, versions)| Arc::new(pool(name, versions)))
        .collect();
    let routes = routes
        .iter()
        .enumerate()
        .map(|(index, (name, names))| {
            let named = names
                .iter()
                .filter_map(|name| pools.iter().find(|pool| *pool.name == **name))
                .cloned();
            Arc::new(route(name, index, named.collect()))
        })
        .collect();
    Snapshot {
        regions: Default::default(),
        generation: 1,
        digest: 0xfeed,
        listeners,
        pools: pools
            .iter()
            .map(|pool| (pool.name.clone(), pool.clone()))
            .collect(),
        routes: RouteTable::build(routes),
        settings: settings(),
    }
}

fn listener(name: &str, index: usize) -> Listener {
    Listener {
        name: name.into(),
        index,
        bind: Bind::Tcp(([127, 0, 0, 1], 8000).into()),
        mode: None,
        backlog: 4096,
        connections_per_address_max: None,
        connections_max: 100_000,
        networks: Networks::default(),
        trusted: Vec::new(),
        trusted_depth: 0,
        limits: HeadLimits {
            head_bytes_max: 32 * 1024,
            headers_max: 100,
            target_bytes_max: 8 * 1024,
        },
        body_bytes_max: None,
        timeouts: ClientTimeouts {
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            send: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            half_close: Duration::from_secs(1),
            tunnel_idle: Duration::from_secs(3600),
            tunnel: Duration::ZERO,
        },
        min_rate: MinRate {
            upload_bytes_per_second: 256,
            download_bytes_per_second: 256,
            grace: Duration::from_secs(5),
        },
        requests_per_connection_max: None,
        upstream_header: false,
        redirect_to_https: None,
        reserved_headers: std::sync::Arc::from([]),
        tls: None,
        kind: ListenerKind::Http,
        proxy_header: None,
        http2: crate::snapshot::Http2::default(),
    }
}

/// TLS with a certificate of these names that holds until `not_after`, in seconds since 1970; no key is behind it.
pub(crate) fn server_tls(names: &[&str], not_after: i64) -> ServerTls {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let choice = CertificateChoice::new(&[], false, &provider);
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the default versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(choice));
    ServerTls {
        config: Arc::new(config),
        handshake: Duration::from_secs(10),
        certificates: vec![Certificate {
            names: names.iter().map(ToString::to_string).collect(),
            not_after,
            key: "ECDSA".to_owned(),
        }],
        strict_sni: false,
        client_auth: None,
        client_trust: None,
        hsts: None,
        tickets: None,
        made_of: [0; 32],
    }
}

fn pool(name: &str, versions: &[&str]) -> Pool {
    let members: Vec<Member> = versions
        .iter()
        .enumerate()
        .map(|(at, version)| {
            let address = ([10, 0, 0, 1], 8000 + at as u16).into();
            Member {
                key: std::net::SocketAddr::to_string(&address).into(),
                address: Address::Ip(address),
                weight: 1,
                version: (*version).into(),
                in_flight_max: None,
                place: Default::default(),
            }
        })
        .collect();
    let mut distinct: Vec<Arc<str>> = members
        .iter()
        .map(|member| member.version.clone())
        .collect();
    distinct.sort();
    distinct.dedup();
    let config = pool_config();
    Pool {
        name: name.into(),
        core: Arc::new(mizan_core::pool::Pool::new(
            Instant::default(),
            config.clone(),
            members.clone(),
            1,
        )),
        config,
        members,
        configured: Vec::new(),
        discovery: Arc::default(),
        versions: distinct,
        hash_key: None,
        health: None,
        load_probes: None,
        protocol: crate::snapshot::Protocol::default(),
        http2: crate::snapshot::Http2Upstream::default(),
        tls: None,
        proxy_protocol: None,
        timeouts: UpstreamTimeouts {
            connect: Duration::from_secs(1),
            response_header: Duration::from_secs(30),
            response_idle: Duration::from_secs(60),
            per_try: Duration::ZERO,
            request: Duration::ZERO,
        },
        retry: Retry {
            tries_max: 3,
            on: RetryOn {
                reset: true,
                timeout: false,
                statuses: Vec::new(),
            },
            backoff: Duration::from_millis(10),
            backoff_max: Duration::from_millis(250),
            buffer_bytes_max: 0,
        },
        keepalive: Keepalive {
            idle_timeout: Duration::from_secs(4),
            idle_max: 256,
        },
        queue: Queue {
            requests_max: 1024,
            timeout: Duration::from_secs(1),
        },
        waiters: Arc::default(),
    }
}

fn pool_config() -> mizan_core::pool::PoolConfig {
    mizan_core::pool::PoolConfig::default()
}

fn route(name: &str, index: usize, pools: Vec<Arc<Pool>>) -> Route {
    let action = if pools.is_empty() {
        Action::Redirect {
            status: 308,
            location: "https://{host}{path}{query}".into(),
        }
    } else {
        let weighted = pools.into_iter().zip(1..).collect();
        Action::Forward(Split {
            fallback: Vec::new(),
            pools: weighted,
            key: None,
        })
    };
    Route {
        name: name.into(),
        index,
        listeners: Vec::new(),
        hosts: Vec::new(),
        path: PathMatch::Prefix(format!("/{name}")),
        methods: Vec::new(),
        headers: Vec::new(),
        query: Vec::new(),
        client: Vec::new(),
        networks: Networks::default(),
        allow_odd_path: false,
        grpc_web: false,
        action,
        varying: None,
        request_headers: HeaderEdits::default(),
        response_headers: HeaderEdits::default(),
        rewrite: None,
        timeouts: RouteTimeouts::default(),
        body_bytes_max: None,
        error_pages: Vec::new(),
    }
}

fn settings() -> Settings {
    Settings {
        workers: 2,
        admin: Vec::new(),
        health_bind: None,
        metrics_bind: None,
        access_log: None,
        drain: DrainSettings {
            window: Duration::from_secs(15),
            deadline: Duration::from_secs(30),
        },
        reload_watch: false,
        node: None,
        region: Arc::from("default"),
        store: None,
        upstream_idle_max: 10_000,
    }
}
