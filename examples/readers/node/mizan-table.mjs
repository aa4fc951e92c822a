// Reads Mizan's routing table from shared memory: no network, no lock, never half of a table.
//
//   const table = new Table('/dev/shm/mizan/routing.snap');
//   table.get('settings/ko');            // { schema: 1, tokenizer: 'mecab' }, or undefined
//   table.factor('kr', 'kpop');          // what the pool's weight is multiplied by now
//
// The writer puts a new file in the old one's place, so a file that was opened is whole and never changes. A file that does
// not hold what its checksums say is not used: what was read before stays, and `table.error` says why. The format stands in
// crates/store/src/image.rs.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const HEADER = 64;
const CRC = new Uint32Array(256).map((_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n >>> 0;
});

function crc32(bytes) {
  let sum = 0xffffffff;
  for (let at = 0; at < bytes.length; at++) sum = CRC[(sum ^ bytes[at]) & 0xff] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}

export class Table {
  // `owner`: the number of the user who may write it; by default whoever owns its folder.
  constructor(file, owner) {
    Object.assign(this, { file, owner, error: null, revision: 0n, writtenMs: 0n });
    Object.assign(this, { seen: '', body: Buffer.alloc(0), json: 0, values: new Map() });
    this.refresh();
  }

  // Looks whether there is a new file: one `stat` where there is none. True if the table has become another.
  refresh() {
    try {
      const found = fs.statSync(this.file, { bigint: true });
      const seen = `${found.ino} ${found.mtimeNs} ${found.size}`;
      if (seen === this.seen) return false;
      this.#read();
      Object.assign(this, { seen, error: null });
      return true;
    } catch (error) {
      this.error = error;
      return false;
    }
  }

  // A key's document, or undefined.
  get(key) {
    if (!this.values.has(key)) this.values.set(key, this.#find(Buffer.from(key)));
    return this.values.get(key);
  }

  // All keys, sorted.
  keys() {
    return Array.from({ length: this.#count() }, (_, at) => this.#span(at, 0).toString());
  }

  // The product of the pool's boosts that have not ended, from 0.1 to 10: they end by the clock, whatever the file says.
  factor(region, pool, nowMs = Date.now()) {
    const boosts = this.keys().filter((key) => key.startsWith(`boosts/${region}/${pool}/`)).map((key) => this.get(key));
    const alive = boosts.filter((boost) => boost.expires_at_ms > nowMs);
    return Math.min(Math.max(alive.reduce((product, boost) => product * boost.factor, 1), 0.1), 10);
  }

  #read() {
    const file = fs.openSync(this.file, fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW);
    let data;
    try {
      const found = fs.fstatSync(file);
      const owner = this.owner ?? fs.statSync(path.dirname(this.file)).uid;
      if (found.uid !== owner || found.mode & 0o022) {
        throw new Error(`it belongs to user ${found.uid} with mode ${(found.mode & 0o777).toString(8)}: others could have written it`);
      }
      data = fs.readFileSync(file);
    } finally {
      fs.closeSync(file);
    }
    if (data.length < HEADER) throw new Error('it is cut');
    if (data.toString('latin1', 0, 8) !== 'MIZANTAB' || data.readUInt16LE(8) !== 1) throw new Error('it is no table of format 1');
    if (crc32(data.subarray(0, 60)) !== data.readUInt32LE(60)) throw new Error('its header is damaged');
    const [start, length, json] = [data.readUInt32LE(12), data.readUInt32LE(40), data.readUInt32LE(44)];
    const body = data.subarray(start, start + length);
    if (body.length !== length || crc32(body) !== data.readUInt32LE(48) || json > length || (length - json) % 16) {
      throw new Error('its body is damaged');
    }
    Object.assign(this, { body, json, values: new Map(), revision: data.readBigUInt64LE(16), writtenMs: data.readBigUInt64LE(32) });
  }

  #count() {
    return (this.body.length - this.json) / 16;
  }

  #span(at, which) {
    const start = this.body.readUInt32LE(this.json + 16 * at + 8 * which);
    return this.body.subarray(start, start + this.body.readUInt32LE(this.json + 16 * at + 8 * which + 4));
  }

  #find(key) {
    let [low, high] = [0, this.#count()];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const order = Buffer.compare(this.#span(middle, 0), key);
      if (order === 0) return JSON.parse(this.#span(middle, 1).toString());
      if (order < 0) low = middle + 1;
      else high = middle;
    }
    return undefined;
  }
}

// Keys in order, as every reader prints them.
function line(value) {
  const sorted = (_, inner) =>
    inner && typeof inner === 'object' && !Array.isArray(inner) ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner;
  return JSON.stringify(value ?? null, sorted);
}

// Reads `reads` times while somebody writes; every document of a table holds the table's revision, or it is torn.
function torture(table, reads) {
  let [torn, changes] = [0, 0];
  for (let count = 0; count < reads; count++) {
    const before = table.revision;
    changes += table.refresh();
    const keys = table.keys();
    const is = (key) => BigInt(table.get(key).at) === table.revision;
    torn += table.error !== null || !is(keys[0]) || !is(keys[keys.length - 1]) || table.revision < before;
  }
  console.log(JSON.stringify({ reads, changes, torn }));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [file, ...keys] = process.argv.slice(2);
  const table = new Table(file);
  if (table.error) {
    console.error(`${file}: ${table.error.message}`);
    process.exit(1);
  }
  if (keys[0] === '--torture') torture(table, Number(keys[1]));
  else if (keys.length === 0) console.log(String(table.revision), ...table.keys());
  else keys.forEach((key) => console.log(line(table.get(key))));
}
