"""A proxy that answers wrongly has no figures: the right bytes in the right protocol, and every backend used."""
import http.client
import ssl
import subprocess

from . import grpc, peers
from .run import BenchError, tool


def http1(running):
    """Returns the backends that were seen. A client that checks the certificate, where there is one."""
    seen = set()
    for _ in range(6):
        if running.front == "tls":
            context = ssl.create_default_context(cafile=peers.tls_file("cert"))
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            connection = http.client.HTTPSConnection("127.0.0.1", running.port, timeout=10, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
        for size in (128, 16384):
            connection.request("GET", f"/{size}")
            response = connection.getresponse()
            body = response.read()
            if response.status != 200 or body != b"m" * size:
                raise BenchError(f"{running.peer.name}: /{size} gave {response.status} and {len(body)} bytes")
            seen.add(response.headers["X-Backend"])
        connection.close()
    return seen


def nghttp(running, path, *arguments):
    """One request over HTTP/2: its body, and the header and trailer fields as text. Fails if HTTP/2 is not what was agreed on."""
    url = f"http{'s' if running.front == 'tls' else ''}://127.0.0.1:{running.port}{path}"
    run = lambda *more: subprocess.run(["nghttp", "--timeout=10", *more, *arguments, url], capture_output=True, timeout=30)
    body, frames = run(), run("-v", "-n")
    if body.returncode != 0 or frames.returncode != 0 or b"HTTP/2 protocol was not selected" in body.stderr:
        raise BenchError(f"{running.peer.name}: no HTTP/2: {(body.stderr or frames.stderr)[-300:].decode(errors='replace')}")
    fields = [line.split(b") ", 1)[1].decode() for line in frames.stdout.splitlines() if b"recv (stream_id=" in line and b") " in line]
    return body.stdout, fields


def http2(running):
    seen = set()
    for _ in range(6):
        for size in (128, 16384):
            body, fields = nghttp(running, f"/{size}")
            if ":status: 200" not in fields or body != b"m" * size:
                raise BenchError(f"{running.peer.name}: /{size} over HTTP/2 gave {len(body)} bytes and {fields}")
            seen.update(field for field in fields if field.startswith("x-backend"))
    return seen


def call(running):
    """A call: the message of a backend, and the status in the trailers."""
    seen = set()
    for _ in range(9):
        body, fields = nghttp(running, grpc.PATH, *grpc.call())
        in_order = [field for field in fields if field in (":status: 200", "content-type: application/grpc", "grpc-status: 0")]
        if body not in grpc.ANSWERS or in_order != [":status: 200", "content-type: application/grpc", "grpc-status: 0"]:
            raise BenchError(f"{running.peer.name}: the call gave {len(body)} bytes and {fields}")
        seen.add(body)
    return seen


def websocket(running):
    text = subprocess.run([tool("hold"), str(running.port), "/128", "9", "websocket"], input="", capture_output=True, text=True, timeout=30).stdout
    if text.split() != ["held", "9", "failed", "0", "alive", "9"]:
        raise BenchError(f"{running.peer.name}: WebSockets: {text}")


def verify(running):
    """Raises if the proxy does not do what its front promises."""
    fronts = {"http": [http1], "ws": [http1], "tcp": [http1], "tls": [http1, http2], "h2c": [http2], "grpc": [call]}
    for look in fronts[running.front]:
        seen = look(running)
        if len(seen) != len(peers.BACKEND_PORTS):
            raise BenchError(f"{running.peer.name}: only backends {sorted(seen)} were used")
    if running.front == "ws":
        websocket(running)
