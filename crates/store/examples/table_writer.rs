//! Writes a table a thousand times a second until it is killed: what readers are tried against.
//!
//!     table_writer FOLDER
//!
//! Every document of a table holds its revision; it goes on behind the revision that it finds there.

use mizan_store::image::{self, About, Durability, Image, Place};
use std::path::Path;
use std::time::Duration;

const KEYS: usize = 40;

fn main() {
    let folder = std::env::args().nth(1).expect("usage: table_writer FOLDER");
    let place = Place::open(Path::new(&folder)).expect("the folder can be used");
    let before = place.read("routing.snap").expect("it can be read");
    let before = before.and_then(|bytes| Image::read(&bytes.into()).ok());
    let mut revision = before.map_or(0, |image| image.about().revision);
    let keys: Vec<String> = (0..KEYS).map(|at| format!("pools/kr/p{at:02}")).collect();
    loop {
        revision += 1;
        // Of another length each time, so that a torn file could not be whole by chance.
        let padding = "x".repeat((revision * 37 % 1000) as usize);
        let value = format!("{{\"at\":{revision},\"padding\":\"{padding}\",\"schema\":1}}");
        let about = About {
            revision,
            store: 7,
            written_ms: revision,
        };
        let entries = keys.iter().map(|key| (key.as_str(), value.as_str()));
        let file = image::write(&about, entries).expect("it can be written");
        place
            .put("routing.snap", &file, Durability::Memory)
            .expect("it can be put");
        std::thread::sleep(Duration::from_millis(1));
    }
}
