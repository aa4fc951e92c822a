<?php
/**
 * Reads Mizan's routing table from shared memory: no network, no lock, never half of a table.
 *
 *   $table = new MizanTable('/dev/shm/mizan/routing.snap');
 *   $table->get('settings/ko');            // ['schema' => 1, 'tokenizer' => 'mecab'], or null
 *   $table->factor('kr', 'kpop');          // what the pool's weight is multiplied by now
 *
 * The writer puts a new file in the old one's place, so a file that was opened is whole and never changes. A file that does
 * not hold what its checksums say is not used: what was read before stays, and $table->error says why. The format stands in
 * crates/store/src/image.rs.
 *
 * In a web server keep what was decoded in APCu under the inode and the revision: each request begins anew. Do not include
 * the table as a PHP file: opcache looks at its time in whole seconds, and not more often than every two.
 */
final class MizanTable
{
    public ?string $error = null;
    public int $revision = 0;
    public int $writtenMs = 0;
    private string $seen = '';
    private string $body = '';
    private int $json = 0;
    private array $values = [];

    /** $owner: the number of the user who may write it; by default whoever owns its folder. */
    public function __construct(private string $path, private ?int $owner = null)
    {
        $this->refresh();
    }

    /** Looks whether there is a new file: one stat where there is none. True if the table has become another. */
    public function refresh(): bool
    {
        clearstatcache(true, $this->path);
        $found = @lstat($this->path);
        if ($found === false) {
            $this->error = 'it is not there';
            return false;
        }
        // Whole seconds: the inode is what a new file differs in, and the revision tells those apart that share one.
        $seen = "{$found['ino']} {$found['mtime']} {$found['size']}";
        if ($seen === $this->seen && $this->headRevision() === $this->revision) {
            return false;
        }
        $this->error = $this->read();
        if ($this->error === null) {
            $this->seen = $seen;
        }
        return $this->error === null;
    }

    /** A key's document, or null. */
    public function get(string $key): mixed
    {
        if (!array_key_exists($key, $this->values)) {
            $this->values[$key] = $this->find($key);
        }
        return $this->values[$key];
    }

    /** All keys, sorted. */
    public function keys(): array
    {
        $keys = [];
        for ($at = 0; $at < $this->count(); $at++) {
            $keys[] = $this->span($at, 0);
        }
        return $keys;
    }

    /** The product of the pool's boosts that have not ended, from 0.1 to 10: they end by the clock, whatever the file says. */
    public function factor(string $region, string $pool, ?int $nowMs = null): float
    {
        $nowMs ??= (int) (microtime(true) * 1000);
        $factor = 1.0;
        foreach ($this->keys() as $key) {
            if (str_starts_with($key, "boosts/$region/$pool/")) {
                $boost = $this->get($key);
                $factor *= $boost['expires_at_ms'] > $nowMs ? $boost['factor'] : 1.0;
            }
        }
        return min(max($factor, 0.1), 10.0);
    }

    private function headRevision(): int
    {
        $head = @file_get_contents($this->path, false, null, 16, 8);
        return $head !== false && strlen($head) === 8 ? unpack('P', $head)[1] : -1;
    }

    private function read(): ?string
    {
        $file = is_link($this->path) ? false : @fopen($this->path, 'rb');
        if ($file === false) {
            return 'it cannot be opened';
        }
        $found = fstat($file);
        $owner = $this->owner ?? fileowner(dirname($this->path));
        if ($found['uid'] !== $owner || ($found['mode'] & 0022) !== 0) {
            return sprintf('it belongs to user %d with mode %o: others could have written it', $found['uid'], $found['mode'] & 0777);
        }
        $data = stream_get_contents($file);
        fclose($file);
        if (strlen($data) < 64) {
            return 'it is cut';
        }
        $head = unpack('a8magic/vmajor/vminor/Vstart/Prevision/Pstore/Pwritten/Vlength/Vjson/Vsum/Vflags/Vreserved/Vheadersum', $data);
        if ($head['magic'] !== 'MIZANTAB' || $head['major'] !== 1) {
            return 'it is no table of format 1';
        }
        if (crc32(substr($data, 0, 60)) !== $head['headersum']) {
            return 'its header is damaged';
        }
        $body = substr($data, $head['start'], $head['length']);
        $isWhole = strlen($body) === $head['length'] && crc32($body) === $head['sum'];
        if (!$isWhole || $head['json'] > $head['length'] || ($head['length'] - $head['json']) % 16 !== 0) {
            return 'its body is damaged';
        }
        [$this->body, $this->json, $this->values] = [$body, $head['json'], []];
        [$this->revision, $this->writtenMs] = [$head['revision'], $head['written']];
        return null;
    }

    private function count(): int
    {
        return intdiv(strlen($this->body) - $this->json, 16);
    }

    private function span(int $at, int $which): string
    {
        $place = unpack('Vstart/Vlength', $this->body, $this->json + 16 * $at + 8 * $which);
        return substr($this->body, $place['start'], $place['length']);
    }

    private function find(string $key): mixed
    {
        [$low, $high] = [0, $this->count()];
        while ($low < $high) {
            $middle = intdiv($low + $high, 2);
            $order = strcmp($this->span($middle, 0), $key);
            if ($order === 0) {
                return json_decode($this->span($middle, 1), true, 512, JSON_THROW_ON_ERROR);
            }
            [$low, $high] = $order < 0 ? [$middle + 1, $high] : [$low, $middle];
        }
        return null;
    }
}

/** Keys in order, as every reader prints them. */
function mizan_line(mixed $value): string
{
    $sort = function (&$value) use (&$sort): void {
        if (is_array($value)) {
            array_walk($value, $sort);
            if (!array_is_list($value)) {
                ksort($value, SORT_STRING);
            }
        }
    };
    $sort($value);
    return json_encode($value, JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE);
}

/** Reads so many times while somebody writes; every document of a table holds the table's revision, or it is torn. */
function mizan_torture(MizanTable $table, int $reads): void
{
    [$torn, $changes] = [0, 0];
    for ($count = 0; $count < $reads; $count++) {
        $before = $table->revision;
        $changes += (int) $table->refresh();
        $keys = $table->keys();
        $is = fn(string $key): bool => $table->get($key)['at'] === $table->revision;
        $torn += (int) ($table->error !== null || !$is($keys[0]) || !$is(end($keys)) || $table->revision < $before);
    }
    echo json_encode(['reads' => $reads, 'changes' => $changes, 'torn' => $torn]), "\n";
}

if (PHP_SAPI === 'cli' && realpath($argv[0]) === __FILE__) {
    $keys = array_slice($argv, 2);
    $table = new MizanTable($argv[1]);
    if ($table->error !== null) {
        fwrite(STDERR, "$argv[1]: $table->error\n");
        exit(1);
    }
    if (($keys[0] ?? '') === '--torture') {
        mizan_torture($table, (int) $keys[1]);
    } elseif ($keys === []) {
        echo implode(' ', [$table->revision, ...$table->keys()]), "\n";
    } else {
        foreach ($keys as $key) {
            echo mizan_line($table->get($key)), "\n";
        }
    }
}
