//! The file that the next start begins with, and a writer of it that is killed: the test binary itself, which runs [`child`]
//! alone.

use bytes::Bytes;
use mizan_store::image::{self, About, Durability, Image, Place};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the child writes; it does nothing at all if it is not set.
const FOLDER: &str = "MIZAN_STORE_LAST_GOOD";
const NAME: &str = "mizan.table";
const KEYS: usize = 200;

/// Not a test but what the other starts: writes one table after another, and says of each that it is on the disk.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let place = Place::open(Path::new(&folder)).expect("the folder can be used");
    let before = read(&place).map_or(0, |image| image.about().revision);
    let keys: Vec<String> = (0..KEYS).map(|at| format!("pools/kr/p{at:03}")).collect();
    for revision in before + 1.. {
        // Of another length each time, so that a torn file could not be whole by chance.
        let padding = "x".repeat((revision * 37 % 1_000) as usize);
        let value = format!("{{\"at\":{revision},\"padding\":\"{padding}\",\"schema\":1}}");
        let about = About {
            revision,
            store: 7,
            written_ms: 1_000 + revision,
        };
        let entries = keys.iter().map(|key| (key.as_str(), value.as_str()));
        let file = image::write(&about, entries).expect("it can be written");
        let put = place.put(NAME, &file, Durability::Disk);
        put.expect("it can be put");
        let line = format!("put {revision}\n");
        let said = std::io::stdout().write_all(line.as_bytes());
        said.expect("somebody listens");
    }
}

/// What is there, which is whole; `None`: nothing yet.
fn read(place: &Place) -> Option<Image> {
    let bytes = place.read(NAME).expect("it can be read")?;
    Some(Image::read(&Bytes::from(bytes)).expect("what a kill leaves is whole"))
}

#[test]
fn what_a_killed_writer_had_put_is_there_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("last-good");
    let place = Place::open(&folder).expect("it is made");
    let mut acknowledged = 0;
    for round in 0..20 {
        let mut child = Command::new(std::env::current_exe().expect("it is known"))
            .args(["--exact", "child", "--nocapture"])
            .env(FOLDER, &folder)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut puts = output
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("put ")?.parse::<u64>().ok());
        // Any number will do: when exactly it dies is up to the machine.
        for _ in 0..=round * 7 % 13 {
            acknowledged = puts.next().expect("it goes on until it is killed");
            // A start may come at any time: also what is being written is whole.
            for _ in 0..20 {
                let image = read(&place).expect("it is there");
                assert!(image.about().revision >= acknowledged);
            }
        }
        child.kill().expect("it is ours");
        acknowledged = puts.last().unwrap_or(acknowledged);
        child.wait().expect("it is ours");

        let image = read(&place).expect("it is there");
        let about = image.about();
        assert!(
            (acknowledged..=acknowledged + 1).contains(&about.revision),
            "round {round}: {about:?} of {acknowledged}"
        );
        // Its age is known.
        assert_eq!((about.store, about.written_ms), (7, 1_000 + about.revision));
        let begin = format!("{{\"at\":{},", about.revision);
        assert_eq!(image.len(), KEYS);
        let is_of_it = |(_, value): (Bytes, Bytes)| value.starts_with(begin.as_bytes());
        assert!(image.entries().all(is_of_it), "round {round}");
    }
}
