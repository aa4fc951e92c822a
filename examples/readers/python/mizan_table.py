"""Reads Mizan's routing table from shared memory: no network, no lock, never half of a table.

    table = Table("/dev/shm/mizan/routing.snap")
    table.get("settings/ko")            # {'schema': 1, 'tokenizer': 'mecab'}, or None
    table.factor("kr", "kpop")          # what the pool's weight is multiplied by now

The writer puts a new file in the old one's place, so a file that was opened is whole and never changes. A file that does
not hold what its checksums say is not used: what was read before stays, and `table.error` says why. The format stands in
crates/store/src/image.rs.
"""
import json
import os
import stat
import struct
import sys
import time
import zlib

HEADER = struct.Struct("<8sHHIQQQIIIIII")


class Damaged(Exception):
    """The file is not what it should be."""


class Table:
    """The table in a file, as it was when it was last looked at."""

    def __init__(self, path, owner=None):
        """`owner`: the number of the user who may write it; by default whoever owns its folder."""
        self.path, self.owner = path, owner
        self.error, self.revision, self.written_ms = None, 0, 0
        self._seen, self._body, self._json, self._values = None, b"", 0, {}
        self.refresh()

    def refresh(self):
        """Looks whether there is a new file: one `stat` where there is none. True if the table has become another."""
        try:
            found = os.stat(self.path)
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen:
                return False
            self._read()
            self._seen, self.error = seen, None
            return True
        except (OSError, Damaged) as error:
            self.error = error
            return False

    def get(self, key):
        """A key's document, or None."""
        if key not in self._values:
            self._values[key] = self._find(key.encode())
        return self._values[key]

    def keys(self):
        """All keys, sorted."""
        return [self._span(at, 0).decode() for at in range(self._count())]

    def factor(self, region, pool, now_ms=None):
        """The product of the pool's boosts that have not ended, from 0.1 to 10: they end by the clock, whatever the file says."""
        now_ms = time.time() * 1000 if now_ms is None else now_ms
        factor = 1.0
        for key in self.keys():
            if key.startswith(f"boosts/{region}/{pool}/"):
                boost = self.get(key)
                if boost["expires_at_ms"] > now_ms:
                    factor *= boost["factor"]
        return min(max(factor, 0.1), 10.0)

    def _read(self):
        file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            owner = os.stat(os.path.dirname(self.path) or ".").st_uid if self.owner is None else self.owner
            if found.st_uid != owner or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise Damaged(f"it belongs to user {found.st_uid} with mode {found.st_mode & 0o777:o}: others could have written it")
            data = b""
            while piece := os.read(file, 1 << 20):
                data += piece
        finally:
            os.close(file)
        if len(data) < HEADER.size:
            raise Damaged("it is cut")
        magic, major, _, start, revision, _, written, length, end, body_sum, _, _, header_sum = HEADER.unpack_from(data)
        if magic != b"MIZANTAB" or major != 1:
            raise Damaged(f"it is no table of format 1: {magic!r} {major}")
        if zlib.crc32(data[:60]) != header_sum:
            raise Damaged("its header is damaged")
        body = data[start:start + length]
        if len(body) != length or zlib.crc32(body) != body_sum or end > length or (length - end) % 16:
            raise Damaged("its body is damaged")
        self._body, self._json, self._values = body, end, {}
        self.revision, self.written_ms = revision, written

    def _count(self):
        return (len(self._body) - self._json) // 16

    def _span(self, at, which):
        start, length = struct.unpack_from("<II", self._body, self._json + 16 * at + 8 * which)
        return self._body[start:start + length]

    def _find(self, key):
        low, high = 0, self._count()
        while low < high:
            middle = (low + high) // 2
            name = self._span(middle, 0)
            if name == key:
                return json.loads(self._span(middle, 1))
            low, high = (middle + 1, high) if name < key else (low, middle)
        return None


def main(path, *keys):
    """Prints each key's document, a line each; without keys, the revision and all keys."""
    table = Table(path)
    if table.error:
        sys.exit(f"{path}: {table.error}")
    if keys[:1] == ("--torture",):
        return torture(table, int(keys[1]))
    if not keys:
        print(table.revision, *table.keys())
    for key in keys:
        print(json.dumps(table.get(key), sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def torture(table, reads):
    """Reads `reads` times while somebody writes; every document of a table holds the table's revision, or it is torn."""
    torn = changes = 0
    for _ in range(reads):
        before = table.revision
        changes += table.refresh()
        if table.error:
            torn += 1
        keys = table.keys()
        torn += table.get(keys[0])["at"] != table.revision or table.get(keys[-1])["at"] != table.revision or table.revision < before
    print(json.dumps({"reads": reads, "changes": changes, "torn": torn}))


if __name__ == "__main__":
    main(*sys.argv[1:])
