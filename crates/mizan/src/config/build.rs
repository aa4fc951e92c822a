//! Makes the snapshot of a file that has passed every check.
//!
//! A `None` on the way means that a check let something through that cannot be built: told as an
//! internal error, never a panic.

mod pool;
mod route;

pub(super) use pool::configured;

use super::diagnostic::Severity;
use super::report::Cx;
use super::schema::{self, File, NetworkList};
use super::text::{AbsolutePath, Meaning, Text};
use super::tls::Tls;
use super::tree::{Place, Stored};
use super::{Lookup, digest};
use crate::snapshot::route::RouteTable;
use crate::snapshot::{
    AccessLog, AdminBind, Bind, ClientTimeouts, Datagrams, DrainSettings, HeadLimits, Http2,
    Listener, ListenerKind, MinRate, Networks, Passthrough, Ping, ProxyHeader, Regions, Settings,
    Snapshot, StoreSettings, StoreTls,
};
use ipnet::IpNet;
use mizan_core::time::Instant;
use std::path::PathBuf;
use std::sync::Arc;

/// What a snapshot is made of beside the file.
pub(super) struct Inputs<'a> {
    pub(super) previous: Option<&'a Snapshot>,
    pub(super) stored: &'a Stored,
    pub(super) tls: &'a Tls,
    pub(super) lookup: &'a dyn Lookup,
    pub(super) now: Instant,
    pub(super) random: u64,
}

/// The snapshot.
pub(super) fn snapshot(cx: &mut Cx<'_>, file: &File, inputs: &Inputs<'_>) -> Option<Snapshot> {
    let pools = pool::build(cx, file, inputs);
    let regions = regions(file, inputs.stored);
    let listeners: Option<Vec<_>> = file
        .listener
        .iter()
        .enumerate()
        .map(|(index, from)| listener(index, from, inputs.tls))
        .collect();
    let routes: Option<Vec<_>> = match &pools {
        Some(pools) => file
            .route
            .iter()
            .enumerate()
            .map(|(index, from)| {
                let named = route::Named {
                    pools,
                    file,
                    stored: inputs.stored,
                    regions: &regions,
                };
                route::build(index, from, &named).map(Arc::new)
            })
            .collect(),
        None => None,
    };
    let (Some(pools), Some(listeners), Some(routes)) = (pools, listeners, routes) else {
        let place = Place {
            file: 0,
            start: 0,
            end: 0,
        };
        let message = "this configuration passed every check but cannot be built; please report it"
            .to_owned();
        cx.report.push(
            &place,
            String::new(),
            Severity::Error,
            "internal",
            message,
            None,
        );
        return None;
    };
    Some(Snapshot {
        generation: inputs
            .previous
            .map_or(1, |previous| previous.generation + 1),
        digest: digest(cx.report.sources),
        listeners,
        pools,
        routes: RouteTable::build(routes),
        regions,
        settings: settings(cx, file),
    })
}

fn settings(cx: &Cx<'_>, file: &File) -> Settings {
    let default_socket = || {
        let known = cx
            .report
            .sources
            .first()
            .and_then(|main| main.admin_socket.clone());
        Some(known.unwrap_or_else(|| PathBuf::from("/run/mizan/admin.sock")))
    };
    let socket = file
        .admin
        .socket
        .as_ref()
        .map_or_else(default_socket, |socket| socket.value.0.clone());
    let tcp = file.admin.bind.as_ref().zip(file.admin.token.as_ref());
    let tcp = tcp.map(|(bind, token)| AdminBind::Tcp {
        address: bind.value,
        token: token.clone(),
    });
    let access = file.log.access.value.clone();
    Settings {
        workers: file.workers.map_or_else(
            || std::thread::available_parallelism().map_or(1, usize::from),
            usize::from,
        ),
        admin: socket.map(AdminBind::Unix).into_iter().chain(tcp).collect(),
        health_bind: file.health.bind.value.0,
        metrics_bind: file.metrics.bind.value.0,
        access_log: access.map(|target| AccessLog {
            target,
            query: file.log.query,
        }),
        drain: DrainSettings {
            window: file.drain.window.value.0,
            deadline: file.drain.deadline.value.0,
        },
        reload_watch: file.reload.watch,
        node: file.node.name.as_deref().map(Arc::from),
        region: Arc::from(file.region.name.as_str()),
        store: store(&file.store),
        upstream_idle_max: file.limits.upstream_idle_max,
    }
}

fn regions(file: &File, stored: &Stored) -> Regions {
    let region = &file.region;
    let names = stored.regions.iter().map(|name| Arc::from(name.as_str()));
    let header = region.header.as_ref().map(|it| it.value.0.clone());
    // Its keys were read by the check against the schema.
    let clients = region.clients.iter().filter_map(|(network, name)| {
        let network = <IpNet as Meaning>::read(network).ok()?;
        Some((network, Arc::from(name.as_str())))
    });
    Regions::new(&region.name, names.collect(), header, clients)
}

fn store(from: &schema::Store) -> Option<StoreSettings> {
    let path = |path: &Option<Text<AbsolutePath>>| path.as_ref().map(|path| path.value.0.clone());
    Some(StoreSettings {
        address: from.address.as_ref()?.value.clone(),
        namespace: Arc::from(from.namespace.as_str()),
        tls: from.tls.as_ref().map(|tls| StoreTls {
            roots: path(&tls.roots),
            cert: path(&tls.cert),
            key: path(&tls.key),
            server_name: tls.server_name.clone(),
        }),
        user: from.user.clone(),
        password_file: path(&from.password_file),
        last_good: path(&from.last_good),
    })
}

fn listener(index: usize, from: &schema::Listener, tls: &Tls) -> Option<Arc<Listener>> {
    let bind: &Bind = &from.bind.as_ref()?.value;
    let (timeouts, rate) = (&from.timeouts, &from.min_rate);
    Some(Arc::new(Listener {
        name: Arc::from(&*from.known_as()?),
        index,
        bind: match (from.kind, bind) {
            (schema::ListenerKind::Udp, Bind::Tcp(address)) => Bind::Udp(*address),
            _ => bind.clone(),
        },
        mode: from.mode.as_ref().map(|mode| mode.value.0),
        backlog: from.backlog,
        connections_max: from.connections_max,
        connections_per_address_max: from.connections_per_address_max,
        networks: Networks {
            allow: networks(&from.allow),
            deny: networks(&from.deny),
        },
        trusted: networks(&from.trusted_proxies),
        trusted_depth: from.trusted_depth,
        limits: HeadLimits {
            head_bytes_max: usize::try_from(from.head_max.value.0).ok()?,
            headers_max: from.headers_max,
            target_bytes_max: usize::try_from(from.target_max.value.0).ok()?,
        },
        body_bytes_max: from.body_max.value.0,
        timeouts: ClientTimeouts {
            header: timeouts.header.value.0,
            body: timeouts.body.value.0,
            send: timeouts.send.value.0,
            idle: timeouts.idle.value.0,
            half_close: timeouts.half_close.value.0,
            tunnel_idle: timeouts.tunnel_idle.value.0,
            tunnel: timeouts.tunnel.value.0,
        },
        min_rate: MinRate {
            upload_bytes_per_second: rate.upload.value.0,
            download_bytes_per_second: rate.download.value.0,
            grace: rate.grace.value.0,
        },
        requests_per_connection_max: from.requests_per_connection_max,
        upstream_header: from.upstream_header,
        tls: tls.listeners.get(index)?.clone(),
        http2: http2(from)?,
        redirect_to_https: from.redirect_to_https.and_then(|redirect| redirect.port()),
        reserved_headers: Arc::clone(&tls.reserved_headers),
        kind: kind(from)?,
        proxy_header: from.proxy_protocol.as_ref().map(|from| ProxyHeader {
            from: networks(&from.from),
            timeout: from.timeout.value.0,
        }),
    }))
}

fn kind(from: &schema::Listener) -> Option<ListenerKind> {
    match from.kind {
        schema::ListenerKind::Http => return Some(ListenerKind::Http),
        schema::ListenerKind::Tcp => {}
        schema::ListenerKind::Udp => {
            return Some(ListenerKind::Udp(Datagrams {
                pool: from.pool.as_deref().map(Arc::from)?,
                session_idle: from.timeouts.session_idle.value.0,
                sessions_max: from.sessions_max,
            }));
        }
    }
    let mut names = Vec::new();
    for sni in &from.sni {
        let pool: Arc<str> = Arc::from(sni.pool.as_deref()?);
        let hosts = sni.names.as_slice().iter();
        names.extend(hosts.map(|host| (host.value.clone(), Arc::clone(&pool))));
    }
    Some(ListenerKind::Tcp(Passthrough {
        names,
        pool: from.pool.as_deref().map(Arc::from),
    }))
}

fn http2(from: &schema::Listener) -> Option<Http2> {
    let limits = &from.http2_limits;
    Some(Http2 {
        enabled: from.http2,
        streams_max: limits.streams_max,
        window_bytes: u32::try_from(limits.window.value.0).ok()?,
        connection_window_bytes: u32::try_from(limits.connection_window.value.0).ok()?,
        resets_pending_max: usize::try_from(limits.resets_pending_max).ok()?,
        resets_per_second_max: limits.resets_per_second_max,
        control_frames_per_second_max: limits.control_frames_per_second_max,
        age_max: limits.age_max.value.0,
        ping: Ping {
            interval: limits.ping_interval.value.0,
            timeout: limits.ping_timeout.value.0,
        },
    })
}

fn networks(list: &NetworkList) -> Vec<IpNet> {
    list.iter().map(|network| network.value).collect()
}
