"""What is measured. A point is a function from a peer to figures; the round and the order are the caller's."""
import dataclasses
import json
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
from typing import Callable

from . import peers, procfs
from .load import h2load, handshakes, load, wrk
from .run import BenchError, LOAD_CPU, Running, backend_requests, place, tool
from .troubled import Troubled
from .verify import verify

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Point:
    name: str
    title: str
    measure: Callable            # (peer, Settings) -> {metric: value}
    columns: list                # (metric, heading, digits)
    ratio: str                   # the metric that is compared
    front: str = "http"          # what is spoken on both sides; see peers.py
    kind: str = ""               # variants of this kind take part
    relay: bool = True           # the raw relay takes part
    direct: bool = False         # the backends themselves take part
    pinned: bool = True
    many: bool = False           # backends on all of 127.0.0.0/8
    only: tuple = ()             # peers that can do it at all; empty: all


@dataclasses.dataclass(frozen=True)
class Settings:
    names: list                  # all peers, which settles their ports
    seconds: int
    backend_pids: list
    rest_seconds: int


class Account:
    """CPU of a proxy, and of what does not belong here, over a `with` block."""

    def __init__(self, pid, settings):
        self.pid, self.settings = pid, settings

    def snap(self):
        own, kids = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        ours = sum(sum(procfs.cpu_seconds(pid)) for pid in self.settings.backend_pids) + own.ru_utime + own.ru_stime + kids.ru_utime + kids.ru_stime
        return procfs.cpu_seconds(self.pid), ours, procfs.machine_busy_seconds(), time.monotonic()

    def __enter__(self):
        self.before = self.snap()
        return self

    def __exit__(self, *_):
        (user0, system0), ours0, busy0, at0 = self.before
        (user1, system1), ours1, busy1, at1 = self.snap()
        self.user, self.cpu = user1 - user0, user1 - user0 + system1 - system0
        self.seconds = at1 - at0
        # Cores' worth of CPU that something else on the machine used: the measure of how far to trust this one.
        self.noise = max(0.0, busy1 - busy0 - (ours1 - ours0) - self.cpu) / self.seconds


def saturate(generate, size=128, front="http", pinned=True, workers=1, log=False):
    """As many requests as go: CPU a request. `generate` is a load of (port, seconds)."""
    def measure(peer, settings):
        with Running(peer, settings.names, pinned, workers, log, front=front) as running:
            if peer.is_proxy:
                verify(running)
            generate(running.port, 1)
            before = procfs.cpu_by_thread(running.pid)
            with Account(running.pid, settings) as account:
                result = generate(running.port, settings.seconds)
            after = procfs.cpu_by_thread(running.pid)
        requests = max(result["requests"], 1)
        busiest = sorted((after[thread] - before.get(thread, 0) for thread in after), reverse=True)[:workers]
        return {
            "us_request": account.cpu / requests * 1e6,
            "us_user": account.user / requests * 1e6,
            "s_gib": account.cpu / (requests * size / 2**30),
            "requests_second": requests / (result["microseconds"] / 1e6),
            "p50_us": result["p50"], "p99_us": result["p99"], "bad": result["bad"],
            "core_used": account.cpu / (result["microseconds"] / 1e6), "noise": account.noise,
            "spread": (busiest[0] - busiest[-1]) / (sum(busiest) / len(busiest)) if workers > 1 and busiest[0] else 0.0,
        }
    return measure


def closed_loop(path, connections, size, pinned=True, threads=1, workers=1, log=False, front="http"):
    """HTTP/1.1 with keep-alive."""
    return saturate(lambda port, seconds: wrk(port, path, connections, seconds, pinned, threads, tls=front == "tls"),
                    size, front, pinned, workers, log)


def streams(front):
    """HTTP/2: eight connections with eight requests in flight on each."""
    return saturate(lambda port, seconds: h2load(port, 8, 8, seconds, True, tls=front == "tls", calls=front == "grpc"), front=front)


def fresh_connections(kind):
    """A new TLS connection for each request, 16 at once."""
    return saturate(lambda port, seconds: handshakes(port, 16, seconds, kind), front="tls")


def open_loop(rate, connections):
    """Latency at a fixed rate, from when a request was due."""
    def once(port, settings):
        return json.loads(load([tool("rate"), str(port), "/128", str(rate), str(connections), str(settings.seconds)], True, settings.seconds + 30))

    def measure(peer, settings):
        if peer is None:
            result = once(peers.BACKEND_PORTS[0], settings)
            return {**{f"{name}_us": result[name] for name in ("p50", "p99", "p999")}, "bad": result["bad"]}
        with Running(peer, settings.names) as running:
            if peer.is_proxy:
                verify(running)
            wrk(running.port, "/128", connections, 1, True)
            with Account(running.pid, settings) as account:
                result = once(running.port, settings)
        return {
            **{f"{name}_us": result[name] for name in ("p50", "p99", "p999")}, "bad": result["bad"],
            "us_request": account.cpu / max(result["requests"], 1) * 1e6, "noise": account.noise,
        }
    return measure


def idle(count, front="http"):
    """Resident memory of `count` idle connections: keep-alive, in the clear or over TLS, or WebSockets."""
    how = {"http": [], "tls": ["tls"], "ws": ["websocket"]}[front]

    def measure(peer, settings):
        with Running(peer, settings.names, front=front) as running:
            verify(running)
            subprocess.run([tool("hold"), str(running.port), "/128", "100", *how], input="", text=True, stdout=subprocess.DEVNULL, check=True)
            time.sleep(0.5)
            before = procfs.memory_kib(running.pid)
            holder = subprocess.Popen([tool("hold"), str(running.port), "/128", str(count), *how], preexec_fn=place(LOAD_CPU),
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                held, failed = map(int, re.match(r"held (\d+) failed (\d+)", holder.stdout.readline()).groups())
                time.sleep(1)
                after = procfs.memory_kib(running.pid)
                with Account(running.pid, settings) as account:
                    time.sleep(1)
            finally:
                rest = holder.communicate(timeout=60)[0]
        alive = int(rest.split()[1])
        return {"kib_connection": (after - before) / max(held, 1), "rss_mib": after / 1024, "alive": alive, "bad": failed + held - alive,
                "idle_cpu": account.cpu / account.seconds, "noise": 0.0}
    return measure


def upload(length):
    """Growth of resident memory's peak during one upload of `length` bytes."""
    def measure(peer, settings):
        block = b"u" * (256 << 10)
        with Running(peer, settings.names) as running:
            subprocess.run([tool("hold"), str(running.port), "/128", "100"], input="", text=True, stdout=subprocess.DEVNULL, check=True)
            time.sleep(0.5)
            procfs.reset_peak(running.pid)
            before = procfs.memory_kib(running.pid)
            with Account(running.pid, settings) as account, socket.create_connection(("127.0.0.1", running.port), 60) as client:
                client.sendall(f"POST /upload HTTP/1.1\r\nHost: bench\r\nContent-Length: {length}\r\n\r\n".encode())
                for _ in range(length // len(block)):
                    client.sendall(block)
                answer = client.recv(4096)
            peak = procfs.memory_kib(running.pid, "VmHWM")
        return {"growth_mib": (peak - before) / 1024, "s_gib": account.cpu / (length / 2**30), "seconds": account.seconds,
                "bad": int(not answer.startswith(b"HTTP/1.1 200")), "noise": account.noise}
    return measure


def access_log(peer, settings):
    """CPU a request with a JSON access log in a file, beside the same without."""
    without = closed_loop("/128", 64, 128)(peer, settings)
    with_log = closed_loop("/128", 64, 128, log=True)(peer, settings)
    return {"us_request": with_log["us_request"], "us_without": without["us_request"],
            "rise_percent": (with_log["us_request"] / without["us_request"] - 1) * 100,
            "bad": with_log["bad"] + without["bad"], "noise": max(with_log["noise"], without["noise"])}


def count_calls_with_perf(pids, seconds):
    return ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", ",".join(map(str, pids)), "--", "sleep", str(seconds)]


def perf_can_count():
    if not shutil.which("perf"):
        return False
    probe = subprocess.run(["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "true"], capture_output=True, text=True)
    return probe.returncode == 0 and re.search(r"^[1-9]\d*,", probe.stderr, re.M) is not None


def system_calls(peer, settings):
    """System calls a request at saturation. perf counts without slowing the proxy; strace is there where perf is not."""
    with Running(peer, settings.names) as running:
        wrk(running.port, "/128", 64, 1, True)
        pids = procfs.tree(running.pid)
        if perf_can_count():
            counter = subprocess.Popen(count_calls_with_perf(pids, 3), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(0.5)
            requests = wrk(running.port, "/128", 64, 2, True)["requests"]
            text = counter.communicate(timeout=30)[1]
            calls = sum(int(count) for count in re.findall(r"^(\d+),", text, re.M))
        else:
            counter = subprocess.Popen(["strace", "-c", "-f", "-q", *(word for pid in pids for word in ("-p", str(pid)))],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(0.5)
            requests = wrk(running.port, "/128", 64, 2, True)["requests"]
            counter.send_signal(2)
            text = counter.communicate(timeout=30)[1]
            totals = re.findall(r"^100\.00\s+\S+\s+(?:\S+\s+)??(\d+)(?:\s+\d+)?\s+total", text, re.M)
            calls = int(totals[-1]) if totals else 0
    if not calls or not requests:
        raise BenchError(f"{peer.name}: no system call was counted: {text[-300:]}")
    return {"calls_request": calls / requests, "bad": 0, "noise": 0.0}


def addresses(count):
    """Distinct loopback addresses, all answered by one socket."""
    return [f"127.{1 + i // 62500}.{i // 250 % 250}.{i % 250 + 1}:{peers.MANY_PORT}" for i in range(count)]


def at_rest(count):
    """CPU and memory of a proxy that does nothing but check `count` backends."""
    def measure(peer, settings):
        with Running(peer, settings.names, checks=True, addresses=addresses(count)) as running:
            time.sleep(peers.CHECK_INTERVAL_SECONDS + 1)
            before = backend_requests()
            with Account(running.pid, settings) as account:
                time.sleep(settings.rest_seconds)
            checks = backend_requests() - before
            return {"checks_second": checks / account.seconds, "core_percent": account.cpu / account.seconds * 100, "rss_mib": procfs.memory_kib(running.pid) / 1024,
                    "ready_seconds": running.ready_seconds, "bad": 0, "noise": account.noise}
    return measure


def reload_text(base, backends, routes):
    """A configuration with 100 backends in each pool, and the routes spread over the pools; `base` up to its routes."""
    lines = [base]
    pools = backends // 100
    lines += [f'[[route]]\nhost = "h{i}.example"\npath = "/p{i}/*"\npool = "pool{i % pools}"' for i in range(routes)]
    lines.append('[[route]]\npool = "pool0"')
    every = addresses(backends)
    for pool in range(pools):
        members = ", ".join(f'"{address}"' for address in every[pool * 100:pool * 100 + 100])
        lines.append(f'[pool.pool{pool}]\npolicy = "round_robin"\nbackends = [{members}]')
    return "\n".join(lines) + "\n"


def reload_under_load(rate, backends, routes, reloads):
    """Latency at a fixed rate before, and in the seconds in which a configuration of this size comes into force."""
    def window(port, seconds):
        return subprocess.Popen([tool("rate"), str(port), "/128", str(rate), "64", str(seconds)], preexec_fn=place(LOAD_CPU),
                                stdout=subprocess.PIPE, text=True)

    def measure(peer, settings):
        with Running(peer, settings.names, pinned=False, addresses=addresses(3)) as running:
            path = f"{running.folder}/configuration.toml"
            with open(path) as file:
                base = file.read().split("[[route]]")[0]
            text = reload_text(base, backends, routes)

            def write(number):
                with open(path, "w") as file:
                    file.write(f"{text}# {number}\n")

            def reloaded():
                with open(running.log) as file:
                    return file.read().count("configuration reloaded")

            def apply():
                """By signal: another process to ask for it would take its time from the load."""
                done, started = reloaded() + 1, time.monotonic()
                running.process.send_signal(signal.SIGHUP)
                while reloaded() < done:
                    if time.monotonic() > started + 10:
                        raise BenchError("no reload within 10 s")
                    time.sleep(0.02)
                return time.monotonic() - started

            write(0)
            apply()
            wrk(running.port, "/128", 64, 2, True)
            before = [json.loads(window(running.port, 1).communicate(timeout=30)[0]) for _ in range(reloads)]
            during, took = [], []
            for number in range(1, reloads + 1):
                write(number)
                load_now = window(running.port, 1)
                time.sleep(0.2)
                took.append(apply())
                during.append(json.loads(load_now.communicate(timeout=30)[0]))
        middle = lambda values: sorted(values)[len(values) // 2]
        p99 = [middle([second["p99"] for second in seconds]) for seconds in (before, during)]
        return {"p99_before_us": p99[0], "p99_us": p99[1], "times": p99[1] / p99[0], "took_ms": middle(took) * 1000,
                "bad": sum(second["bad"] for second in [*before, *during]), "noise": 0.0}
    return measure


def trouble(rate, connections):
    """One of five backends becomes ten times slower and one a black hole: it fails everything in 1 ms, and its checks pass.

    The five seconds in which that is found out, and what is left of it after.
    """
    def once(port, seconds):
        return json.loads(load([tool("rate"), str(port), "/", str(rate), str(connections), str(seconds)], True, seconds + 30))

    def measure(peer, settings):
        ports = peers.TROUBLE_PORTS
        slow, hole = ports[1], ports[3]
        addresses = [f"127.0.0.1:{port}" for port in ports]
        with Troubled(peers.TROUBLE_CONTROL_PORT, ports) as backends, \
                Running(peer, settings.names, checks=True, addresses=addresses, front="trouble") as running:
            before = once(running.port, 4)
            backends.requests(port=slow, median_ms=100, status=200)
            served = backends.requests(port=hole, median_ms=1, status=500)
            onset = once(running.port, 5)
            with Account(running.pid, settings) as account:
                after = once(running.port, 4 * settings.seconds)
            shares = [now - then for now, then in zip(backends.requests(), served)]
        return {
            "p99_before_ms": before["p99"] / 1e3, "onset_p99_ms": onset["p99"] / 1e3, "onset_failed": onset["bad"], "failed": after["bad"],
            "failed_percent": 100 * (onset["bad"] + after["bad"]) / max(onset["sent"] + after["sent"], 1),
            **{f"{name}_ms": after[name] / 1e3 for name in ("p50", "p99", "p999")},
            "slow_percent": 100 * shares[1] / max(sum(shares), 1), "noise": account.noise,
        }
    return measure


REQUEST_COLUMNS = [("us_request", "CPU µs/request", 2), ("us_user", "of it user", 2), ("requests_second", "requests/s", 0),
                   ("p50_us", "p50 µs", 0), ("p99_us", "p99 µs", 0), ("core_used", "core used", 2)]
SIZE_COLUMNS = [("us_request", "CPU µs/request", 1), ("s_gib", "CPU s/GiB", 3), ("requests_second", "requests/s", 0),
                ("p99_us", "p99 µs", 0), ("core_used", "core used", 2)]
REST_COLUMNS = [("core_percent", "% of a core", 2), ("checks_second", "checks/s", 1), ("rss_mib", "RSS MiB", 1), ("ready_seconds", "start s", 2)]
HANDSHAKE_COLUMNS = [("us_request", "CPU µs/connection", 1), ("us_user", "of it user", 1), *REQUEST_COLUMNS[2:]]
IDLE_COLUMNS = [("kib_connection", "KiB/connection", 2), ("rss_mib", "RSS MiB", 1), ("idle_cpu", "core used", 3), ("alive", "alive", 0)]
TROUBLE_COLUMNS = [("p99_before_ms", "p99 before ms", 1), ("onset_p99_ms", "p99 of 5 s ms", 1), ("onset_failed", "failed in them", 0), ("failed", "failed after", 0),
                   ("failed_percent", "failed %", 2), ("p50_ms", "p50 after ms", 1), ("p99_ms", "p99 after ms", 1), ("p999_ms", "p99.9 after ms", 1),
                   ("slow_percent", "slow one's share %", 2)]
CHECKING = ("haproxy", "envoy", "caddy", "mizan")      # nginx has no active checks in its free edition

POINTS = [
    Point("small", "128 B, 64 keep-alive connections, one worker pinned", closed_loop("/128", 64, 128), REQUEST_COLUMNS, "us_request"),
    Point("16k", "16 KiB, 64 connections, one worker pinned", closed_loop("/16384", 64, 16384), SIZE_COLUMNS, "us_request", kind="large"),
    Point("1m", "1 MiB, 16 connections, one worker pinned", closed_loop(f"/{MIB}", 16, MIB), SIZE_COLUMNS, "us_request", kind="large"),
    Point("tls", "128 B over TLS 1.3, 64 keep-alive connections, one worker pinned", closed_loop("/128", 64, 128, front="tls"),
          REQUEST_COLUMNS, "us_request", front="tls"),
    Point("handshake", "full TLS 1.3 handshake (P-256) and one request a connection, 16 at once", fresh_connections("full"), HANDSHAKE_COLUMNS, "us_request", front="tls"),
    Point("resumed", "resumed TLS 1.3 handshake and one request a connection, 16 at once", fresh_connections("resumed"), HANDSHAKE_COLUMNS, "us_request", front="tls"),
    Point("h2tls", "128 B over HTTP/2 and TLS, 8 connections of 8 streams, HTTP/1.1 to the backends", streams("tls"), REQUEST_COLUMNS, "us_request", front="tls"),
    Point("h2c", "128 B over HTTP/2 in the clear, 8 connections of 8 streams, HTTP/1.1 to the backends", streams("h2c"), REQUEST_COLUMNS, "us_request", front="h2c"),
    Point("grpc", "unary calls of 128 B, HTTP/2 on both sides, 8 connections of 8 streams", streams("grpc"), REQUEST_COLUMNS, "us_request", front="grpc"),
    Point("tcp128", "128 B, 64 connections, handed through as TCP", closed_loop("/128", 64, 128, front="tcp"), REQUEST_COLUMNS, "us_request", front="tcp"),
    Point("tcp1m", "1 MiB, 16 connections, handed through as TCP", closed_loop(f"/{MIB}", 16, MIB, front="tcp"), SIZE_COLUMNS, "us_request", front="tcp", kind="large"),
    Point("rate", "open loop, 5,000 requests/s, 64 connections", open_loop(5000, 64),
          [("p50_us", "p50 µs", 0), ("p99_us", "p99 µs", 0), ("p999_us", "p99.9 µs", 0), ("us_request", "CPU µs/request", 1)], "p99_us", direct=True),
    Point("idle", "10,000 idle keep-alive connections", idle(10_000), IDLE_COLUMNS, "kib_connection", relay=False),
    Point("idletls", "10,000 idle keep-alive connections over TLS", idle(10_000, "tls"), IDLE_COLUMNS, "kib_connection", front="tls", relay=False),
    Point("idlews", "4,000 idle WebSockets", idle(4_000, "ws"), IDLE_COLUMNS, "kib_connection", front="ws", relay=False),
    Point("upload", "1 GiB upload", upload(1 << 30),
          [("growth_mib", "peak RSS growth MiB", 1), ("s_gib", "CPU s/GiB", 3), ("seconds", "seconds", 2)], "growth_mib", relay=False),
    Point("log", "128 B with a JSON access log in a file", access_log,
          [("us_request", "CPU µs/request", 2), ("us_without", "without log", 2), ("rise_percent", "rise %", 1)], "us_request", relay=False),
    Point("workers", "128 B, 64 connections, two workers, nothing pinned",
          closed_loop("/128", 64, 128, pinned=False, threads=2, workers=2),
          [*REQUEST_COLUMNS[:5], ("spread", "spread of workers' CPU", 2)], "us_request", relay=False, pinned=False),
    Point("calls", "system calls a request at saturation, 128 B", system_calls, [("calls_request", "calls/request", 2)], "calls_request"),
    Point("reload", "reload of 10,000 backends and 5,000 routes at 2,000 requests/s", reload_under_load(2_000, 10_000, 5_000, 9),
          [("p99_before_us", "p99 before µs", 0), ("p99_us", "p99 in that second µs", 0), ("times", "times", 2), ("took_ms", "reload ms", 0)],
          "p99_us", relay=False, pinned=False, many=True, only=("mizan",)),
    Point("trouble", "one of five backends 10 × slower, one a black hole whose checks pass, from one moment on; open loop, 400 requests/s",
          trouble(400, 200), TROUBLE_COLUMNS, "p99_ms", front="trouble", kind="balance", relay=False),
    *(Point(f"rest-{count}", f"{count:,} backends at rest, checked each {peers.CHECK_INTERVAL_SECONDS} s", at_rest(count), REST_COLUMNS,
            "core_percent", relay=False, many=True, only=CHECKING) for count in (10, 1_000, 10_000)),
]
