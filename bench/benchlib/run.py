"""Processes of the bench: backends, a proxy, the load; pinned or free, and always stopped."""
import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

from . import peers, procfs

PROXY_CPU, LOAD_CPU = 0, 1
OPENSSL = ["-lssl", "-lcrypto"]
TOOLS = {"backend": [], "relay": [], "rate": [], "hold": OPENSSL, "handshake": OPENSSL}


class BenchError(Exception):
    """The bench cannot go on; the text says why."""


def tool(name):
    return os.path.join(peers.OUT, "bin", name)


def build_tools():
    """Compiles tools/*.c where they are newer than their programs."""
    os.makedirs(os.path.join(peers.OUT, "bin"), exist_ok=True)
    folder = os.path.join(peers.BENCH, "tools")
    headers = max(os.path.getmtime(os.path.join(folder, name)) for name in os.listdir(folder) if name.endswith(".h"))
    for name, libraries in TOOLS.items():
        source = os.path.join(folder, name + ".c")
        newest = max(headers, os.path.getmtime(source))
        if not os.path.exists(tool(name)) or os.path.getmtime(tool(name)) < newest:
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wno-unused-function", "-o", tool(name), source, *libraries], check=True)


def place(cpu):
    """For a child: its own process group, all descriptors, and the CPU if there is one to keep to."""
    def prepare():
        os.setpgid(0, 0)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
    return prepare


def wait_for_port(port, process, log=None, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            text = procfs.read(log)[-2000:] if log else ""
            raise BenchError(f"it ended with {process.returncode} before it listened on {port}\n{text}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise BenchError(f"nothing listens on {port} after {seconds} s")


def stop(process):
    """SIGTERM, five seconds, then SIGKILL for the whole tree."""
    members = procfs.tree(process.pid)
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    for member in members if process.poll() is None else members[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def backends(pinned, many=False):
    """The HTTP/1.1 backends; the processes that they are."""
    ports = [f"any:{peers.MANY_PORT}"] if many else [str(port) for port in peers.BACKEND_PORTS]
    process = subprocess.Popen([tool("backend"), str(peers.COUNT_PORT), *ports], preexec_fn=place(LOAD_CPU if pinned else None))
    try:
        wait_for_port(peers.COUNT_PORT, process)
        yield [process.pid]
    finally:
        stop(process)


class Running:
    """A started proxy."""

    def __init__(self, peer, names, pinned=True, workers=1, log=False, checks=False, addresses=None, front="http"):
        self.peer, self.pinned, self.front = peer, pinned, front
        self.port = peers.port_of(peer.name, names)
        self.folder = os.path.join(peers.OUT, "run", peer.name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        os.chmod(self.folder, 0o777)     # nginx's workers drop their rights
        addresses = addresses or [f"127.0.0.1:{port}" for port in (peers.GRPC_PORTS if front == "grpc" else peers.BACKEND_PORTS)]
        argv, environment = peers.render(peer, self.folder, self.port, workers, addresses, log, checks, front)
        self.log = os.path.join(self.folder, "log")
        output = open(self.log, "w")
        cpu = PROXY_CPU if pinned else None
        self.started = time.monotonic()
        self.process = subprocess.Popen(argv, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                                        stdout=output, stderr=output, preexec_fn=place(cpu))
        output.close()
        try:
            wait_for_port(self.port, self.process, self.log)
        except BenchError as error:
            stop(self.process)
            raise BenchError(f"{peer.name}: {error}") from None
        self.ready_seconds = time.monotonic() - self.started

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        stop(self.process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def backend_requests():
    """Requests that the backends have answered so far."""
    connection = http.client.HTTPConnection("127.0.0.1", peers.COUNT_PORT, timeout=10)
    connection.request("GET", "/")
    return sum(json.loads(connection.getresponse().read())["requests"])


def say(*words):
    print(*words, file=sys.stderr, flush=True)
