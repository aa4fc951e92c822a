use super::*;
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;

const ABOUT: About = About {
    revision: 70_000_000_001,
    store: u64::MAX - 1,
    written_ms: 1_800_000_000_123,
};

fn image_of(entries: &[(&str, &str)]) -> Image {
    let file = write(&ABOUT, entries.iter().copied()).expect("it can be written");
    Image::read(&file.into()).expect("it is whole")
}

#[test]
fn what_was_written_is_read() {
    let image = image_of(&[
        ("chains/kr", "[\"kpop\"]"),
        ("lang/ko", "{\"tokenizer\":\"mecab\"}"),
    ]);
    assert_eq!(image.about(), ABOUT);
    assert_eq!(
        image.json(),
        br#"{"chains/kr":["kpop"],"lang/ko":{"tokenizer":"mecab"}}"#
    );
    assert_eq!(
        image.value(b"chains/kr").as_deref(),
        Some(&b"[\"kpop\"]"[..])
    );
    assert_eq!(image.value(b"chains/jp"), None);
    let keys: Vec<_> = image.entries().map(|(key, _)| key).collect();
    assert_eq!(keys, ["chains/kr", "lang/ko"]);
}

#[test]
fn a_table_without_keys_is_a_table() {
    let image = image_of(&[]);
    assert!(image.is_empty());
    assert_eq!((image.json(), image.value(b"a")), (&b"{}"[..], None));
}

#[test]
fn what_cannot_stand_in_a_file_is_not_written() {
    let refused = |entries: &[(&str, &str)]| {
        let error = write(&ABOUT, entries.iter().copied()).expect_err("it must be refused");
        error.to_string()
    };
    assert!(refused(&[("a\"b", "1")]).contains("escape"));
    assert!(refused(&[("b", "1"), ("a", "1")]).contains("out of order"));
    assert!(refused(&[("a", "1"), ("a", "1")]).contains("out of order"));
}

#[test]
fn a_later_format_is_told_apart_from_damage() {
    let mut file = write(&ABOUT, [("a", "1")]).expect("it can be written");
    file[8] = 2;
    assert_eq!(
        Image::read(&file.clone().into()).err(),
        Some(ImageError::Major(2))
    );
    file[0] = b'X';
    assert_eq!(Image::read(&file.into()).err(), Some(ImageError::Magic));
}

/// Whatever byte is flipped, whatever is cut off: it is seen.
#[test]
fn no_damaged_file_is_read() {
    let file = write(&ABOUT, [("a", "1"), ("b", "[2]"), ("c/d", "{}")]).expect("it can be written");
    for length in 0..file.len() {
        let cut = Bytes::copy_from_slice(&file[..length]);
        assert!(Image::read(&cut).is_err(), "cut to {length} bytes");
    }
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut flipped = file.clone();
            flipped[at] ^= 1 << bit;
            assert!(
                Image::read(&flipped.into()).is_err(),
                "bit {bit} of byte {at}"
            );
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), body in any::<bool>()) {
        if body && bytes.len() > HEADER {
            // Checksums that hold: what is inside is still not to be trusted.
            bytes[..8].copy_from_slice(MAGIC);
            bytes[8..16].copy_from_slice(&[1, 0, 0, 0, 64, 0, 0, 0]);
            let length = (bytes.len() - HEADER) as u32;
            bytes[40..44].copy_from_slice(&length.to_le_bytes());
            bytes[45..48].fill(0);
            let sum = crc32fast::hash(&bytes[HEADER..]);
            bytes[48..52].copy_from_slice(&sum.to_le_bytes());
            let sum = crc32fast::hash(&bytes[..60]);
            bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        }
        if let Ok(image) = Image::read(&bytes.into()) {
            let _ = (image.value(b"a"), image.entries().count());
        }
    }

    #[test]
    fn every_key_is_found(keys in prop::collection::btree_map("[a-z]{1,4}(/[a-z]{1,3})?", "[0-9]{1,5}", 0..40)) {
        let entries = keys.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let image = Image::read(&write(&ABOUT, entries).expect("it can be written").into()).expect("it is whole");
        for (key, value) in &keys {
            let found = image.value(key.as_bytes());
            prop_assert_eq!(found.as_deref(), Some(value.as_bytes()));
        }
        prop_assert_eq!(image.len(), keys.len());
    }
}

#[test]
fn a_new_file_takes_the_place_of_the_old_one() {
    let parent = tempfile::tempdir().expect("a folder");
    let place = Place::open(&parent.path().join("table")).expect("it is made");
    assert_eq!(place.read("routing.snap").expect("it is read"), None);
    for (bytes, durability) in [
        (&b"one"[..], Durability::Memory),
        (b"two", Durability::Disk),
    ] {
        place
            .put("routing.snap", bytes, durability)
            .expect("it is put");
        let found = place.read("routing.snap").expect("it is read");
        assert_eq!(found.as_deref(), Some(bytes));
    }
    let left: Vec<_> = std::fs::read_dir(place.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "nothing is left behind: {left:?}");
    let mode = std::fs::metadata(place.path().join("routing.snap")).expect("a file");
    assert_eq!(mode.permissions().mode() & 0o777, 0o644);
}

/// `/dev/shm` is everybody's: somebody else's folder, or a link to one, is none of ours.
#[test]
fn a_folder_that_others_could_write_to_is_refused() {
    let parent = tempfile::tempdir().expect("a folder");
    let open = parent.path().join("open");
    std::fs::create_dir(&open).expect("a folder");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).expect("a mode");
    let refused = Place::open(&open).expect_err("others may write to it");
    assert!(
        refused.to_string().contains("writable for others"),
        "{refused}"
    );
    let link = parent.path().join("link");
    let ours = parent.path().join("ours");
    Place::open(&ours).expect("it is made");
    std::os::unix::fs::symlink(&ours, &link).expect("a link");
    assert!(
        Place::open(&link).is_err(),
        "a link could be turned elsewhere"
    );
}

#[test]
fn a_link_in_the_place_of_a_file_is_not_followed() {
    let parent = tempfile::tempdir().expect("a folder");
    let place = Place::open(&parent.path().join("table")).expect("it is made");
    let victim = parent.path().join("victim");
    std::fs::write(&victim, "precious").expect("a file");
    std::os::unix::fs::symlink(&victim, place.path().join("routing.snap")).expect("a link");
    assert!(
        place.read("routing.snap").is_err(),
        "what it reads could be anything"
    );
    place
        .put("routing.snap", b"one", Durability::Memory)
        .expect("it is put");
    assert_eq!(std::fs::read(&victim).expect("a file"), b"precious");
    assert_eq!(
        place.read("routing.snap").expect("it is read").as_deref(),
        Some(&b"one"[..])
    );
}

/// Two writers of one file, in one process or in two: neither renames what the other has half written.
#[test]
fn two_who_write_one_file_do_not_mix_it() {
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("table");
    let place = Place::open(&path).expect("it is made");
    let texts: Vec<String> = (0..4).map(|at| at.to_string().repeat(100_000)).collect();
    std::thread::scope(|scope| {
        for text in &texts {
            scope.spawn(|| {
                for _ in 0..50 {
                    let put = place.put("routing.snap", text.as_bytes(), Durability::Memory);
                    put.expect("it is put");
                    let found = place.read("routing.snap").expect("it is read");
                    let found = String::from_utf8(found.expect("it is there")).expect("text");
                    assert!(texts.contains(&found), "{} bytes", found.len());
                }
            });
        }
    });
}

#[test]
fn what_a_killed_writer_left_behind_is_swept_away_and_what_is_at_work_is_not() {
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("table");
    Place::open(&path).expect("it is made");
    let (old, new) = (
        path.join(".routing.snap.1.2.3.tmp"),
        path.join(".routing.snap.1.3.3.tmp"),
    );
    for file in [&old, &new] {
        std::fs::write(file, "half").expect("a file");
    }
    let hour_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let file = std::fs::File::options()
        .write(true)
        .open(&old)
        .expect("a file");
    file.set_modified(hour_ago).expect("a time");
    Place::open(&path).expect("it is there");
    assert_eq!((old.exists(), new.exists()), (false, true));
}
