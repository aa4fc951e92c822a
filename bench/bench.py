#!/usr/bin/env python3
"""Mizan beside its peers, in one run on one machine.

  bench.py run --quick | --full [--mizan BINARY] [--peers a,b] [--points a,b] [--rounds N] [--seconds S]
  bench.py check [--peers a,b]          each peer starts and answers rightly, in each protocol that it has; measures nothing
  bench.py report [FILE]                the tables again, from the JSON of a run
  bench.py points                       what is measured

Within a round the peers take turns (A, B, C, then A, B, C again), so that a drift of the machine touches all alike. What
counts is the CPU time that the whole process tree of a proxy used for a request, from /proc: it holds also when the load
generator is the limit. Believe a gap when each round shows it. `noise` is what else ran on the machine, in cores.
"""
import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from benchlib import grpc, peers, procfs, report, tls
from benchlib.points import POINTS, Settings
from benchlib.run import BenchError, Running, backends, build_tools, say
from benchlib.verify import verify

# Rounds for each point; a point that is not named has one. The open loop's tails need the most.
FULL_ROUNDS = {
    "small": 5, "rate": 5, "16k": 3, "1m": 3, "workers": 3, "log": 3, "trouble": 3, "idle": 3, "upload": 3, "calls": 3,
    "tls": 3, "handshake": 3, "resumed": 3, "h2tls": 3, "h2c": 3, "grpc": 3, "tcp128": 3, "tcp1m": 3,
}
QUICK_ROUNDS = {"small": 2}
# The quick run has one point of each kind; what it leaves out takes long, or differs little from what it has.
FULL_ONLY = ["trouble", "16k", "resumed", "h2c", "tcp1m", "idletls", "idlews", "log", "rest-10", "rest-1000"]
TRIES = {"quick": 1, "full": 3}


def choose(wanted, known, what):
    """The names in `wanted` (comma-separated), or all."""
    names = wanted.split(",") if wanted else list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BenchError(f"no such {what}: {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def takes_part(point, peer, quick):
    """Whether a peer has figures at a point. The quick run leaves the peers' backends at rest to the full one."""
    if (point.only and peer.name not in point.only) or point.front not in peer.fronts:
        return False
    if point.many and quick and peer.name != "mizan":
        return False
    return peer.kind in ("", point.kind) and (point.relay or peer.is_proxy)


def measure(point, peer, settings, tries):
    """The quietest of at most `tries` measurements."""
    best = None
    for _ in range(tries):
        values = point.measure(peer, settings)
        if best is None or values.get("noise", 0) < best.get("noise", 0):
            best = values
        if best.get("noise", 0) <= report.NOISE_MAX:
            break
    return best


def run_point(point, available, arguments, record):
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else FULL_ROUNDS).get(point.name, 1)
    tries = 1 if point.many else TRIES["quick" if arguments.quick else "full"]
    contenders = [peer for peer in available.values() if takes_part(point, peer, arguments.quick)]
    with grpc.backends(point.pinned) if point.front == "grpc" else backends(point.pinned, point.many) as pids:
        settings = Settings(list(arguments.all_names), arguments.seconds, pids, 10 if arguments.quick else 30)
        for round_ in range(rounds):
            for peer in [*([None] if point.direct else []), *contenders]:
                name = peer.name if peer else "direct"
                try:
                    values = measure(point, peer, settings, tries)
                except (BenchError, OSError, ValueError, subprocess.TimeoutExpired) as error:
                    say(f"{point.name} {name}: FAILED: {error}")
                    record["failures"].append({"point": point.name, "peer": name, "error": str(error)})
                    continue
                record["measurements"].append({"point": point.name, "peer": name, "round": round_, "values": values})
                shown = ", ".join(f"{heading} {values[metric]:,.{digits}f}" for metric, heading, digits in point.columns if metric in values)
                say(f"{time.strftime('%H:%M:%S')} {point.name} {round_ + 1}/{rounds} {name}: {shown}"
                    + (f", noise {values['noise']:.2f}" if values.get("noise", 0) > report.NOISE_MAX else ""))


def versions(available):
    """What each peer says that it is."""
    flags = {"nginx": "-v", "haproxy": "-v", "envoy": "--version", "caddy": "version", "mizan": "--version"}
    found = {}
    for name, peer in available.items():
        if name in flags:
            done = subprocess.run([peer.program, flags[name]], capture_output=True, text=True)
            found[name] = next((line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()), "")
    return found


def find_peers(arguments):
    """The chosen peers that are installed; says which are not."""
    build_tools()
    tls.make_files()
    known = peers.all_peers(os.path.abspath(arguments.mizan))
    arguments.all_names = list(known)
    available = {}
    for name in choose(arguments.peers, known, "peer"):
        if known[name].installed():
            available[name] = known[name]
        else:
            say(f"{name} is not here ({known[name].program}): left out")
    if not available:
        raise BenchError("no peer is installed: run bench/setup.sh")
    return available


def can_call(front):
    """Whether the backends of a front are here; says if not."""
    if front != "grpc" or grpc.installed():
        return True
    say("nghttpd is not here: no calls of gRPC")
    return False


def command_run(arguments):
    arguments.seconds = arguments.seconds or (2 if arguments.quick else 7)
    available = find_peers(arguments)
    names = choose(arguments.points, [point.name for point in POINTS], "point")
    skipped = FULL_ONLY if arguments.quick and not arguments.points else []
    points = [point for point in POINTS if point.name in names and point.name not in skipped and can_call(point.front)]
    started = time.time()
    record = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)), "machine": procfs.machine(), "seconds": arguments.seconds,
        "quick": arguments.quick, "peers": list(available), "versions": versions(available), "measurements": [], "failures": [],
    }
    if record["machine"]["load_before"] > 0.5:
        say(f"the machine is busy (load {record['machine']['load_before']}): look at `noise` before you believe a figure")
    for point in points:
        run_point(point, available, arguments, record)
    record["took_seconds"] = round(time.time() - started)
    path = os.path.join(peers.OUT, f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started))}.json")
    for target in (path, os.path.join(peers.OUT, "latest.json")):
        with open(target, "w") as file:
            json.dump(record, file, indent=1)
    print(report.text(record, points))
    print(f"\n{record['took_seconds']} s; JSON in {os.path.relpath(path)}")
    return 1 if record["failures"] else 0


def command_check(arguments):
    available = find_peers(arguments)
    failed = 0
    with backends(True), grpc.backends(True) if can_call("grpc") else contextlib.nullcontext():
        for name, peer in available.items():
            for front in filter(can_call, peer.fronts):
                try:
                    with Running(peer, list(arguments.all_names), front=front) as running:
                        if peer.is_proxy or front == "tcp":
                            verify(running)
                    print(f"{name} {front}: ok", flush=True)
                except (BenchError, OSError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"{name} {front}: FAILED: {error}", flush=True)
    return 1 if failed else 0


def command_points(_):
    for point in POINTS:
        print(f"{point.name:<11} {point.title}{' (full run)' if point.name in FULL_ONLY else ''}")
    return 0


def command_report(arguments):
    with open(arguments.file) as file:
        print(report.text(json.load(file), POINTS))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, act in (("run", command_run), ("check", command_check)):
        command = commands.add_parser(name)
        command.set_defaults(act=act)
        command.add_argument("--mizan", default=os.path.join(peers.BENCH, "..", "target", "release", "mizan"), help="our binary")
        command.add_argument("--peers", help="comma-separated; all by default")
        if name == "run":
            length = command.add_mutually_exclusive_group(required=True)
            length.add_argument("--quick", action="store_true", help="under five minutes")
            length.add_argument("--full", action="store_true", help="about an hour")
            command.add_argument("--points", help="comma-separated; all by default: " + ", ".join(point.name for point in POINTS))
            command.add_argument("--rounds", type=int, help="for every point")
            command.add_argument("--seconds", type=int, help="of each measurement")
    command = commands.add_parser("report")
    command.set_defaults(act=command_report)
    command.add_argument("file", nargs="?", default=os.path.join(peers.OUT, "latest.json"))
    commands.add_parser("points").set_defaults(act=command_points)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return arguments.act(arguments)
    except BenchError as error:
        say(error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
