"""Backends with a service time, of which some go bad while they are watched.

  troubled.py CONTROL_PORT PORT...

Each answers any path after its service time: lognormal around a median, 10 ms at first. `/healthz` is always answered
with 200 at once: what the others learn of the trouble, they learn from traffic. On CONTROL_PORT,

  GET /?port=PORT&median_ms=100&status=500

changes one. A backend is asyncio's: what is measured here are milliseconds, not microseconds.
"""
import asyncio
import contextlib
import math
import random
import subprocess
import sys
import urllib.parse
import urllib.request

SIGMA = 0.3
MEDIAN_MS = 10.0


class Backend:
    """What a port answers, and when."""

    def __init__(self, port):
        self.port, self.median_ms, self.status, self.requests = port, MEDIAN_MS, 200, 0

    async def serve(self, reader, writer):
        # A client that hangs up is no fault of ours.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                is_probe = head.startswith(b"GET /healthz ")
                if not is_probe:
                    self.requests += 1
                    await asyncio.sleep(self.median_ms / 1e3 * math.exp(random.gauss(0, SIGMA)))
                status = 200 if is_probe else self.status
                writer.write(b"HTTP/1.1 %d Answer\r\nX-Backend: %d\r\nContent-Length: 2\r\n\r\nok" % (status, self.port))
                await writer.drain()
        writer.close()


async def control(backends, reader, writer):
    """One change, or a look at how many requests each has had."""
    try:
        target = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
    except asyncio.IncompleteReadError:     # somebody who waited for the port
        return writer.close()
    wanted = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))
    if wanted:
        backend = backends[int(wanted["port"])]
        backend.median_ms, backend.status = float(wanted["median_ms"]), int(wanted["status"])
    text = " ".join(str(backend.requests) for backend in backends.values()).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
    await writer.drain()
    writer.close()


async def main(control_port, ports):
    backends = {port: Backend(port) for port in ports}
    servers = [await asyncio.start_server(backend.serve, "127.0.0.1", port, backlog=1024) for port, backend in backends.items()]
    servers.append(await asyncio.start_server(lambda r, w: control(backends, r, w), "127.0.0.1", control_port))
    await asyncio.gather(*(server.serve_forever() for server in servers))


class Troubled:
    """The backends as a process of their own, from the outside."""

    def __init__(self, control_port, ports):
        self.control_port, self.ports = control_port, ports

    def __enter__(self):
        from .run import LOAD_CPU, place, wait_for_port
        self.process = subprocess.Popen([sys.executable, __file__, str(self.control_port), *map(str, self.ports)], preexec_fn=place(LOAD_CPU))
        wait_for_port(self.control_port, self.process)
        return self

    def __exit__(self, *_):
        from .run import stop
        stop(self.process)

    def requests(self, **change):
        """How many requests each has had; `change` is made before."""
        query = urllib.parse.urlencode(change)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.control_port}/?{query}", timeout=10) as answer:
            return list(map(int, answer.read().split()))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), list(map(int, sys.argv[2:]))))
