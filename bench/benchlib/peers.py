"""The proxies: how each is started with good production settings.

A template in conf/ has tokens between @ signs; what a peer puts there is below. A new peer is one entry.
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
CHECK_INTERVAL_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    command: list
    template: str = ""
    backend: str = ""                # one backend of the list; {address} and {index}
    joiner: str = "\n"
    check: str = ""                  # what turns active checks on, at the pool
    backend_check: str = ""          # and at each backend; appended to `backend`
    log_off: dict = dataclasses.field(default_factory=dict)
    log_on: dict = dataclasses.field(default_factory=dict)
    extra: str = ""
    environment: dict = dataclasses.field(default_factory=dict)
    large_only: bool = False         # a variant for large bodies
    is_proxy: bool = True            # False: no HTTP of its own

    @property
    def program(self):
        return self.command[0]

    def installed(self):
        return bool(shutil.which(self.program))


def binary(name):
    """nginx and HAProxy live where a user's PATH may not look."""
    return shutil.which(name) or f"/usr/sbin/{name}"


def in_venv(pattern, otherwise):
    venv = os.environ.get("BENCH_VENV", os.path.join(OUT, "venv"))
    return next(iter(glob.glob(os.path.join(venv, pattern))), otherwise)


NGINX = Peer(
    name="nginx",
    command=[binary("nginx"), "-p", "@RUN@", "-c", "@CONF@"],
    template="nginx.conf",
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
    backend="server b{index} {address}",
    joiner="\n    ",
    check="option httpchk GET /healthz",
    backend_check=f" check inter {CHECK_INTERVAL_SECONDS}s",
    log_off={"@LOG@": "", "@LOG_GLOBAL@": ""},
    log_on={"@LOG_GLOBAL@": "log stdout format raw local0",
            "@LOG@": "log global\n    log-format '{\"time\":\"%trl\",\"client\":\"%ci\",\"method\":\"%HM\",\"path\":\"%HPO\","
                     "\"status\":%ST,\"bytes\":%B,\"ms\":%Ta,\"backend\":\"%b/%s\"}'"},
)
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
        Peer(name="relay", command=[tool, "@PORT@", *map(str, BACKEND_PORTS)], is_proxy=False),
        NGINX,
        dataclasses.replace(NGINX, name="nginx-64k", extra="proxy_buffers 8 64k; proxy_buffer_size 64k; proxy_busy_buffers_size 128k;", large_only=True),
        HAPROXY,
        dataclasses.replace(HAPROXY, name="haproxy-splice", extra="option splice-auto", large_only=True),
        Peer(
            name="envoy",
            command=[envoy, "-c", "@CONF@", "--concurrency", "@WORKERS@", "--log-level", "error", "--disable-hot-restart"],
            template="envoy.yaml",
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


def fill(text, values):
    """Replaces tokens, those inside replaced text too."""
    for _ in range(2):
        for token, value in values.items():
            text = text.replace(token, str(value))
    return text


def render(peer, run, port, workers, backends, log, checks):
    """(argv, environment), with the configuration written into `run`."""
    extension = os.path.splitext(peer.template)[1]
    configuration = os.path.join(run, "configuration" + extension)
    line = host_and_port(peer.backend + (peer.backend_check if checks else ""))
    values = {
        "@BACKENDS@": peer.joiner.join(line(address, index) for index, address in enumerate(backends)),
        "@CHECK@": peer.check if checks else "",
        "@EXTRA@": peer.extra,
        **(peer.log_on if log else peer.log_off),
        "@PORT@": port, "@SIDE_PORT@": port + 1, "@WORKERS@": workers, "@RUN@": run, "@CONF@": configuration,
    }
    if peer.template:
        with open(os.path.join(BENCH, "conf", peer.template)) as file:
            text = fill(file.read(), values)
        with open(configuration, "w") as file:
            file.write(text)
    argv = [fill(word, values) for word in peer.command]
    environment = {**os.environ, "HOME": run, **{key: fill(value, values) for key, value in peer.environment.items()}}
    return argv, environment
