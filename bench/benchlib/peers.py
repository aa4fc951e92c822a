"""The proxies: how each is started with good production settings.

A template in conf/ has tokens between @ signs; what a peer puts there is below. A new peer is one entry, and a peer can
do what its `fronts` name:

  http   HTTP/1.1 in the clear
  tls    the same and HTTP/2, over TLS, by ALPN
  h2c    HTTP/2 in the clear, by prior knowledge
  grpc   h2c, and h2c to the backends
  ws     HTTP/1.1 whose connections may become WebSockets
  tcp    bytes
  trouble  http, balanced as the peer does best where backends go bad
"""
import dataclasses
import glob
import os
import shutil

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.environ.get("BENCH_OUT", os.path.join(BENCH, "out"))
PORT_BASE = int(os.environ.get("BENCH_PORT_BASE", "17000"))
COUNT_PORT = PORT_BASE + 1
BACKEND_PORTS = [PORT_BASE + 2, PORT_BASE + 3, PORT_BASE + 4]
MANY_PORT = PORT_BASE + 5
GRPC_PORTS = [PORT_BASE + 6, PORT_BASE + 7, PORT_BASE + 8]
TROUBLE_PORTS = [PORT_BASE + 20 + index for index in range(5)]
TROUBLE_CONTROL_PORT = PORT_BASE + 25
CHECK_INTERVAL_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    command: list
    fronts: dict                     # front: its tokens, and "template" where it needs another; those of "http" are the base
    template: str = ""
    backend: str = ""                # one backend of the list; {address} and {index}
    joiner: str = "\n"
    check: str = ""                  # what turns active checks on, at the pool
    backend_check: str = ""          # and at each backend; appended to `backend`
    log_off: dict = dataclasses.field(default_factory=dict)
    log_on: dict = dataclasses.field(default_factory=dict)
    extra: str = ""
    environment: dict = dataclasses.field(default_factory=dict)
    kind: str = ""                   # a variant for some points alone: "large" bodies, or a way to "balance"
    is_proxy: bool = True            # False: no HTTP of its own

    @property
    def program(self):
        return self.command[0]

    def installed(self):
        return bool(shutil.which(self.program))


def binary(name):
    """nginx and HAProxy live where a user's PATH may not look."""
    return shutil.which(name) or f"/usr/sbin/{name}"


def nginx_module(name):
    """The line that loads a module which the distribution packages apart; nothing where it is built in."""
    path = f"/usr/lib/nginx/modules/{name}.so"
    return f"load_module {path};" if os.path.exists(path) else ""


def in_venv(pattern, otherwise):
    venv = os.environ.get("BENCH_VENV", os.path.join(OUT, "venv"))
    return next(iter(glob.glob(os.path.join(venv, pattern))), otherwise)


NGINX = Peer(
    name="nginx",
    command=[binary("nginx"), "-p", "@RUN@", "-c", "@CONF@"],
    template="nginx.conf",
    fronts={
        "http": {"@BALANCE@": "", "@FRONT@": "", "@LISTEN@": "", "@PASS@": "proxy_pass http://pool;", "@CONNECTION@": '""', "@MODULE@": ""},
        "tls": {"@LISTEN@": "ssl http2", "@FRONT@": "ssl_certificate @CERT@; ssl_certificate_key @KEY@; ssl_protocols TLSv1.2 TLSv1.3;\n"
                "    ssl_session_cache shared:tls:20m; ssl_session_timeout 1h;"},
        "h2c": {"@LISTEN@": "http2"},
        "grpc": {"@LISTEN@": "http2", "@PASS@": "grpc_pass grpc://pool; grpc_read_timeout 300s;"},
        "ws": {"@FRONT@": "map $http_upgrade $connection_upgrade { default upgrade; '' ''; }",
               "@CONNECTION@": "$connection_upgrade; proxy_set_header Upgrade $http_upgrade"},
        "tcp": {"template": "nginx-tcp.conf", "@MODULE@": nginx_module("ngx_stream_module")},
        "trouble": {"@BALANCE@": "least_conn;"},
    },
    backend="server {address};",
    log_off={"@LOG@": "access_log off;"},
    log_on={"@LOG@": "log_format bench escape=json '{\"time\":\"$time_iso8601\",\"client\":\"$remote_addr\",\"method\":\"$request_method\","
            "\"path\":\"$uri\",\"status\":$status,\"bytes\":$body_bytes_sent,\"seconds\":$request_time,\"backend\":\"$upstream_addr\"}';\n"
            "    access_log @RUN@/access.log bench buffer=64k flush=1s;"},
)
HAPROXY = Peer(
    name="haproxy",
    command=[binary("haproxy"), "-db", "-f", "@CONF@"],
    template="haproxy.cfg",
    fronts={
        "http": {"@BIND@": "", "@SERVER@": "", "@BALANCE@": "roundrobin"},
        "tls": {"@BIND@": "ssl crt @PEM@ alpn h2,http/1.1"},
        "h2c": {"@BIND@": "proto h2"},
        "grpc": {"@BIND@": "proto h2", "@SERVER@": " proto h2"},
        "ws": {},
        "tcp": {"template": "haproxy-tcp.cfg"},
        "trouble": {"@BALANCE@": "leastconn"},
    },
    backend="server b{index} {address}@SERVER@",
    joiner="\n    ",
    check="option httpchk GET /healthz",
    backend_check=f" check inter {CHECK_INTERVAL_SECONDS}s",
    log_off={"@LOG@": "", "@LOG_GLOBAL@": ""},
    log_on={"@LOG_GLOBAL@": "log stdout format raw local0",
            "@LOG@": "log global\n    log-format '{\"time\":\"%trl\",\"client\":\"%ci\",\"method\":\"%HM\",\"path\":\"%HPO\","
                     "\"status\":%ST,\"bytes\":%B,\"ms\":%Ta,\"backend\":\"%b/%s\"}'"},
)
ENVOY_TLS = (
    'transport_socket: { name: envoy.transport_sockets.tls, typed_config: { "@type": '
    'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, common_tls_context: { alpn_protocols: [h2, http/1.1], '
    'tls_params: { tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3 }, '
    'tls_certificates: [ { certificate_chain: { filename: "@CERT@" }, private_key: { filename: "@KEY@" } } ] } } }'
)
ENVOY_H2_UPSTREAM = (
    'typed_extension_protocol_options: { envoy.extensions.upstreams.http.v3.HttpProtocolOptions: { "@type": '
    'type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: { http2_protocol_options: {} } } }'
)
# By default it ejects at most a tenth of the hosts, which of five is none, and takes back whoever passes a check.
ENVOY_OUTLIERS = "outlier_detection: { max_ejection_percent: 50, successful_active_health_check_uneject_host: false }"
ENVOY_LOG = (
    'access_log: [ { name: envoy.access_loggers.file, typed_config: { "@type": '
    'type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: "@RUN@/access.log", log_format: { json_format: { '
    'time: "%START_TIME%", client: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", method: "%REQ(:METHOD)%", path: "%REQ(:PATH)%", '
    'status: "%RESPONSE_CODE%", bytes: "%BYTES_SENT%", ms: "%DURATION%", backend: "%UPSTREAM_HOST%" } } } } ]'
)


def host_and_port(text):
    """Fills `text` for an address, with the halves apart."""
    return lambda address, index: text.format(address=address, index=index, host=address.rpartition(":")[0], port=address.rpartition(":")[2])


def all_peers(mizan):
    envoy = in_venv("lib/python3*/site-packages/envoy/_bin/envoy", "envoy")
    caddy = in_venv("bin/caddy", "caddy")
    tool = os.path.join(OUT, "bin", "relay")
    peers = [
        Peer(name="relay", command=[tool, "@PORT@", *map(str, BACKEND_PORTS)], fronts={"http": {}, "tcp": {}}, is_proxy=False),
        NGINX,
        dataclasses.replace(NGINX, name="nginx-64k", extra="proxy_buffers 8 64k; proxy_buffer_size 64k; proxy_busy_buffers_size 128k;", kind="large",
                            fronts={**NGINX.fronts, "tcp": {**NGINX.fronts["tcp"], "@EXTRA@": "proxy_buffer_size 64k;"}}),
        dataclasses.replace(NGINX, name="nginx-random", kind="balance", fronts={**NGINX.fronts, "trouble": {"@BALANCE@": "random two least_conn;"}}),
        HAPROXY,
        dataclasses.replace(HAPROXY, name="haproxy-random", kind="balance", fronts={**HAPROXY.fronts, "trouble": {"@BALANCE@": "random(2)"}}),
        dataclasses.replace(HAPROXY, name="haproxy-observe", kind="balance", backend_check=HAPROXY.backend_check + " observe layer7 error-limit 5 on-error mark-down"),
        dataclasses.replace(HAPROXY, name="haproxy-splice", extra="option splice-auto", kind="large"),
        Peer(
            name="envoy",
            command=[envoy, "-c", "@CONF@", "--concurrency", "@WORKERS@", "--log-level", "error", "--disable-hot-restart"],
            template="envoy.yaml",
            fronts={
                "http": {"@BALANCE@": "ROUND_ROBIN", "@OUTLIERS@": "", "@CODEC@": "HTTP1", "@UPGRADES@": "", "@TRANSPORT@": "", "@UPSTREAM@": ""},
                "tls": {"@CODEC@": "AUTO", "@TRANSPORT@": ENVOY_TLS},
                "h2c": {"@CODEC@": "HTTP2"},
                "grpc": {"@CODEC@": "HTTP2", "@UPSTREAM@": ENVOY_H2_UPSTREAM},
                "ws": {"@UPGRADES@": "upgrade_configs: [ { upgrade_type: websocket } ]"},
                "tcp": {"template": "envoy-tcp.yaml"},
                "trouble": {"@BALANCE@": "LEAST_REQUEST", "@OUTLIERS@": ENVOY_OUTLIERS},
            },
            backend="- endpoint: {{ address: {{ socket_address: {{ address: {host}, port_value: {port} }} }} }}",
            joiner="\n        ",
            check=f"health_checks: [ {{ interval: {CHECK_INTERVAL_SECONDS}s, no_traffic_interval: {CHECK_INTERVAL_SECONDS}s, timeout: 1s, unhealthy_threshold: 3, healthy_threshold: 2, "
                  "http_health_check: { path: /healthz } } ]",
            log_off={"@LOG@": ""},
            log_on={"@LOG@": ENVOY_LOG},
        ),
        Peer(
            name="caddy",
            command=[caddy, "run", "--adapter", "caddyfile", "--config", "@CONF@"],
            template="caddy.Caddyfile",
            fronts={    # no TCP without a plug-in
                "http": {"@PROTOCOLS@": "h1", "@SCHEME@": "http", "@TLS@": "", "@UPSTREAM@": ""},
                "tls": {"@PROTOCOLS@": "h1 h2", "@SCHEME@": "https", "@TLS@": "tls @CERT@ @KEY@"},
                "h2c": {"@PROTOCOLS@": "h1 h2c"},
                "grpc": {"@PROTOCOLS@": "h1 h2c", "@UPSTREAM@": "versions h2c"},
                "ws": {},
            },
            backend="{address}",
            joiner=" ",
            check=f"health_uri /healthz\n\t\thealth_interval {CHECK_INTERVAL_SECONDS}s\n\t\thealth_timeout 1s",
            log_off={"@LOG@": ""},
            log_on={"@LOG@": "log {\n\t\toutput file @RUN@/access.log\n\t\tformat json\n\t}"},
            environment={"GOMAXPROCS": "@WORKERS@", "XDG_DATA_HOME": "@RUN@", "XDG_CONFIG_HOME": "@RUN@"},
        ),
        Peer(
            name="mizan",
            command=[mizan, "serve", "--config", "@CONF@"],
            template="mizan.toml",
            fronts={
                "http": {"@BALANCE@": "round_robin", "@LISTENER@": "", "@ROUTE@": '[[route]]\npool = "bench"', "@POOL@": ""},
                "tls": {"@LISTENER@": 'tls = { certificates = [{ cert = "@CERT@", key = "@KEY@" }] }'},
                "h2c": {},
                "grpc": {"@POOL@": 'protocol = "http2"'},
                "ws": {},
                "tcp": {"@LISTENER@": 'kind = "tcp"\npool = "bench"', "@ROUTE@": ""},
                "trouble": {"@BALANCE@": "power_of_two"},
            },
            backend='    "{address}",',
            check=f'health = {{ path = "/healthz", interval = "{CHECK_INTERVAL_SECONDS}s", timeout = "1s", fall = 3, rise = 2 }}',
            log_off={"@LOG@": "off"},
            log_on={"@LOG@": "@RUN@/access.log"},
        ),
    ]
    return {peer.name: peer for peer in peers}


def port_of(peer_name, names):
    """Each peer has ten ports of its own, so that all can run at once."""
    return PORT_BASE + 100 + 10 * names.index(peer_name)


def tls_file(name):
    """The proxies' certificate ("cert"), its key ("key"), or both in one ("pem"); also the clients' settings ("client")."""
    return os.path.join(OUT, "tls", name)


def fill(text, values):
    """Replaces tokens, those inside replaced text too."""
    for _ in range(2):
        for token, value in values.items():
            text = text.replace(token, str(value))
    return text


def render(peer, run, port, workers, backends, log, checks, front):
    """(argv, environment), with the configuration written into `run`."""
    tokens = {"template": peer.template, **peer.fronts["http"], **peer.fronts[front]}
    template = tokens.pop("template")
    extension = os.path.splitext(template)[1]
    configuration = os.path.join(run, "configuration" + extension)
    line = host_and_port(peer.backend + (peer.backend_check if checks else ""))
    values = {
        "@BACKENDS@": peer.joiner.join(line(address, index) for index, address in enumerate(backends)),
        "@CHECK@": peer.check if checks else "",
        "@EXTRA@": peer.extra,
        **tokens,
        **{f"@{name.upper()}@": tls_file(name) for name in ("cert", "key", "pem")},
        **(peer.log_on if log else peer.log_off),
        "@PORT@": port, "@SIDE_PORT@": port + 1, "@WORKERS@": workers, "@RUN@": run, "@CONF@": configuration,
    }
    if template:
        with open(os.path.join(BENCH, "conf", template)) as file:
            text = fill(file.read(), values)
        with open(configuration, "w") as file:
            file.write(text)
    argv = [fill(word, values) for word in peer.command]
    environment = {**os.environ, "HOME": run, **{key: fill(value, values) for key, value in peer.environment.items()}}
    return argv, environment
