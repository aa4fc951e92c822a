#!/usr/bin/env python3
"""How long a program needs to look whether the routing table has changed, and to read one of 100 kB anew: in Rust and PHP.

    bench/readers/run.py --mizan target/release/mizan
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = 100_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mizan", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        store, out = f"embedded:{folder}/store", os.path.join(folder, "out")
        objects = {"pools/kr/kpop": {"schema": 1}}
        while len(json.dumps(objects)) < BYTES:
            number = len(objects)
            address = f"10.0.{number >> 8}.{number & 255}:80"
            objects[f"backends/kr/kpop/b{number}"] = {"schema": 1, "address": address, "weight": 1 + number % 100}
        table = os.path.join(folder, "table.json")
        with open(table, "w") as file:
            json.dump({"schema": 1, "objects": objects}, file)
        subprocess.run([options.mizan, "config", "import", "--store", store, "--in-parts", table], check=True, stdout=subprocess.DEVNULL)
        sidecar = subprocess.Popen([options.mizan, "sidecar", "--store", store, "--out", out], stderr=subprocess.DEVNULL)
        try:
            snap, end = os.path.join(out, "routing.snap"), time.time() + 30
            while not os.path.exists(snap):
                if time.time() > end:
                    raise SystemExit("readers: no table was written within 30 s")
                time.sleep(0.05)
            print(f"a table of {len(objects)} objects, {os.path.getsize(snap)} bytes; median of 2,000")
            measure("Rust", [build(folder), snap])
            if shutil.which("php"):
                measure("PHP", ["php", os.path.join(HERE, "time.php"), snap])
        finally:
            sidecar.terminate()
            sidecar.wait()


def build(folder):
    program = os.path.join(folder, "time")
    subprocess.run(["rustc", "-O", "--edition", "2024", "-o", program, os.path.join(HERE, "time.rs")], check=True)
    return program


def measure(language, command):
    unchanged, whole = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    print(f"  {language}: unchanged {int(unchanged) / 1000:.2f} µs, read anew {int(whole) / 1000:.1f} µs")


if __name__ == "__main__":
    main()
