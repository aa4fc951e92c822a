"""A unary call: what a client sends, and servers that answer it.

The servers are nghttpd, with the answer in a file and the status as a trailer: as cheap as a gRPC server can be. Each
says which it is in the last byte of its message.
"""
import contextlib
import os
import subprocess

from . import peers
from .run import LOAD_CPU, place, stop, wait_for_port

PATH = "/bench.Echo/Unary.grpc"
FOLDER = os.path.join(peers.OUT, "grpc")


def message(payload):
    """As gRPC frames it: not compressed, its length, its bytes."""
    return b"\0" + len(payload).to_bytes(4, "big") + payload


REQUEST = message(b"m" * 128)
ANSWERS = [message(b"m" * 127 + str(index).encode()) for index in range(len(peers.GRPC_PORTS))]


def call():
    """Arguments that make h2load or nghttp call."""
    return ["-d", os.path.join(FOLDER, "request"), "-H", "content-type: application/grpc", "-H", "te: trailers"]


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    return path


def installed():
    return os.access(peers.binary("nghttpd"), os.X_OK)


@contextlib.contextmanager
def backends(pinned):
    """The pids of the servers, while they run."""
    write(os.path.join(FOLDER, "request"), REQUEST)
    types = write(os.path.join(FOLDER, "types"), b"application/grpc grpc\n")
    processes = []
    try:
        for port, answer in zip(peers.GRPC_PORTS, ANSWERS):
            root = os.path.join(FOLDER, str(port))
            write(root + PATH, answer)
            argv = [peers.binary("nghttpd"), "--no-tls", "--address=127.0.0.1", f"--htdocs={root}", f"--mime-types-file={types}", "--trailer=grpc-status: 0", str(port)]
            processes.append(subprocess.Popen(argv, preexec_fn=place(LOAD_CPU if pinned else None), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
            wait_for_port(port, processes[-1])
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            stop(process)
