<?php
// Times the PHP reader: a look whether the file has changed, and a whole new reading, in ns.
require __DIR__ . '/../../examples/readers/php/mizan_table.php';

function median(callable $run): int
{
    $times = [];
    for ($count = 0; $count < 2000; $count++) {
        $begun = hrtime(true);
        $run();
        $times[] = hrtime(true) - $begun;
    }
    sort($times);
    return $times[intdiv(count($times), 2)];
}

$table = new MizanTable($argv[1]);
if ($table->error !== null) {
    fwrite(STDERR, "$table->error\n");
    exit(1);
}
$unchanged = median(fn() => $table->refresh());
$whole = median(fn() => new MizanTable($argv[1]));
echo "$unchanged $whole\n";
