//! Times the Rust reader: a look whether the file has changed, and a whole new reading, in ns.

#[allow(dead_code)]
#[path = "../../examples/readers/rust/mizan_table.rs"]
mod mizan_table;

use std::path::Path;
use std::time::Instant;

fn median(mut run: impl FnMut()) -> u128 {
    let mut times: Vec<u128> = (0..2_000)
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let path = std::env::args().nth(1).expect("FILE");
    let path = Path::new(&path);
    let mut table = mizan_table::Table::open(path, None).expect("a table");
    let unchanged = median(|| assert!(!table.refresh().expect("it is there")));
    let whole = median(|| assert!(mizan_table::Table::open(path, None).expect("a table").len() > 0));
    println!("{unchanged} {whole}");
}
