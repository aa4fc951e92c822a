"""The load: generators as processes, each with its result as a dictionary: requests, microseconds, p50, p99, bad."""
import json
import os
import re
import subprocess

from . import grpc, peers
from .run import BenchError, LOAD_CPU, place, tool


def load(argv, pinned, timeout):
    """Runs a load generator and returns what it printed."""
    done = subprocess.run(argv, preexec_fn=place(LOAD_CPU if pinned else None), stdin=subprocess.DEVNULL,
                          env={**os.environ, "OPENSSL_CONF": peers.tls_file("client")},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
    if done.returncode != 0:
        raise BenchError(f"{argv[0]} ended with {done.returncode}: {done.stdout[-500:]}")
    return done.stdout


def wrk(port, path, connections, seconds, pinned, threads=1, tls=False):
    """HTTP/1.1 with keep-alive."""
    text = load(["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", os.path.join(peers.BENCH, "wrk.lua"),
                 f"http{'s' if tls else ''}://127.0.0.1:{port}{path}"], pinned, seconds + 30)
    result = next((line for line in text.splitlines() if line.startswith("RESULT ")), None)
    if not result:
        raise BenchError(f"wrk said nothing: {text[-500:]}")
    return json.loads(result.removeprefix("RESULT "))


def h2load(port, connections, streams, seconds, pinned, tls=False, calls=False):
    """HTTP/2: `streams` requests in flight on each connection."""
    log = os.path.join(peers.OUT, "run", "h2load.log")
    if os.path.exists(log):
        os.unlink(log)
    text = load(["h2load", "-t1", f"-c{connections}", f"-m{streams}", "-D", str(seconds), f"--log-file={log}", *(grpc.call() if calls else []),
                 f"http{'s' if tls else ''}://127.0.0.1:{port}{grpc.PATH if calls else '/128'}"], pinned, seconds + 30)
    counts = re.search(r"^requests: .* (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text, re.M)
    protocol = re.search(r"^Application protocol: (\S+)", text, re.M)
    if not counts or not protocol or protocol[1] not in ("h2", "h2c"):
        raise BenchError(f"h2load spoke {protocol[1] if protocol else 'nothing'}: {text[-500:]}")
    done, succeeded, *_ = map(int, counts.groups())
    with open(log) as file:
        latencies = sorted(int(line.rsplit("\t", 1)[1]) for line in file)
    last = len(latencies) - 1
    at = lambda share: latencies[int(last * share)] if latencies else 0
    return {"requests": succeeded, "microseconds": seconds * 1e6, "p50": at(0.5), "p99": at(0.99), "bad": done - succeeded}


def handshakes(port, connections, seconds, kind):
    """A connection for each request; `kind` is "full" or "resumed", and each handshake must be of that kind."""
    result = json.loads(load([tool("handshake"), str(port), "/128", str(connections), str(seconds), kind], True, seconds + 30))
    if not result["requests"]:
        raise BenchError(f"no handshake led to an answer: {result}")
    expected = result["requests"] if kind == "resumed" else 0
    # A place's first connection has no ticket to spend.
    if result["resumed"] != expected or (kind == "resumed" and result["connections"] - result["requests"] - result["bad"] > connections):
        raise BenchError(f"of {result['connections']} handshakes, {result['resumed']} were resumed, {result['requests']} counted; all should be {kind}")
    return result
