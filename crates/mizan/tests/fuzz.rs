//! A short fuzz in every test run: the corpus as it stands, then random mutations of it.
//!
//! The promises are in `fuzz/src`, where libFuzzer finds them too (`make fuzz`). `MIZAN_FUZZ_SEED` and
//! `MIZAN_FUZZ_RUNS` repeat or lengthen a run; a failure prints the seed and the input.

#[expect(
    unreachable_pub,
    reason = "it is a library's root for libFuzzer, and a module here"
)]
#[path = "../../../fuzz/src/lib.rs"]
mod promises;

use promises::Verdict;
use std::path::{Path, PathBuf};

type Check = fn(&[u8]) -> Verdict;

#[test]
fn request_heads_are_read_and_sent_on_as_another_reader_reads_them() {
    fuzz("request_head", promises::request_head::check);
}

#[test]
fn response_heads_are_read_and_sent_on_as_another_reader_reads_them() {
    fuzz("response_head", promises::response_head::check);
}

#[test]
fn chunked_bodies_are_read_as_another_reader_reads_them() {
    fuzz("chunked_body", promises::chunked_body::check);
}

#[test]
fn proxy_headers_end_where_they_end_and_are_written_as_they_were_read() {
    fuzz("proxy_header", promises::proxy_header::check);
}

#[test]
fn first_messages_of_tls_clients_are_read_however_they_are_split() {
    fuzz("client_hello", promises::client_hello::check);
}

#[test]
fn heads_of_http2_become_heads_of_http1_that_say_the_same() {
    fuzz("http2_convert", promises::http2_convert::check);
}

#[test]
fn a_close_is_put_between_two_frames_of_a_websocket() {
    fuzz("websocket", promises::websocket::check);
}

#[test]
fn text_of_grpc_web_is_decoded_however_it_is_cut() {
    fuzz("grpc_web", promises::grpc_web::check);
}

#[test]
fn the_second_reader_refuses_what_must_be_refused() {
    type Refuses = fn(&[u8]) -> bool;
    let head: Refuses = |data| promises::strict::head(head_of(data)).is_err();
    let body: Refuses = |data| promises::strict::chunked(data).is_err();
    for (folder, refuses) in [
        ("request_head", head),
        ("response_head", head),
        ("chunked_body", body),
    ] {
        let taken: Vec<_> = seeds(folder)
            .into_iter()
            .filter(|seed| seed.name.starts_with("ok-") && refuses(&seed.data))
            .collect();
        assert!(
            taken.is_empty(),
            "{folder}: refused by the second reader: {taken:?}"
        );
        let refused = seeds(folder)
            .iter()
            .filter(|seed| refuses(&seed.data))
            .count();
        assert!(
            refused > 5,
            "{folder}: the second reader refused only {refused}: it is no judge"
        );
    }
}

/// Up to and with the first empty line.
fn head_of(data: &[u8]) -> &[u8] {
    let end = data.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(data, |end| &data[..end + 4])
}

#[expect(
    clippy::print_stdout,
    reason = "a failure shows the seed that repeats it"
)]
fn fuzz(folder: &str, check: Check) {
    let seeds = seeds(folder);
    for seed in &seeds {
        let wanted = match seed.name.split('-').next() {
            Some("ok") => Verdict::Accepted,
            Some("bad") => Verdict::Refused,
            Some("part") => Verdict::Incomplete,
            _ => panic!("{}: a seed is named ok-, bad- or part-", seed.name),
        };
        assert_eq!(check(&seed.data), wanted, "{folder}/{}", seed.name);
    }
    let seed = number("MIZAN_FUZZ_SEED").unwrap_or(0x6d69_7a61_6e00_0001);
    let runs = number("MIZAN_FUZZ_RUNS").unwrap_or(30_000);
    println!("MIZAN_FUZZ_SEED={seed} MIZAN_FUZZ_RUNS={runs}");
    let mut random = Random(seed);
    let words = dictionary();
    let mut counts = [0u64; 3];
    for _ in 0..runs {
        let input = mutated(&seeds, &words, &mut random);
        counts[check(&input) as usize] += 1;
    }
    // A fuzzer whose inputs are all refused tests the door, not the house.
    assert!(
        counts.iter().all(|count| *count > runs / 100),
        "accepted, refused, incomplete: {counts:?} of {runs}"
    );
}

/// A file of the corpus.
#[derive(Debug)]
struct Seed {
    name: String,
    data: Vec<u8>,
}

fn seeds(folder: &str) -> Vec<Seed> {
    let folder = root().join("corpus").join(folder);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let seed = |path: PathBuf| Seed {
        name: path
            .file_name()
            .expect("it was listed")
            .to_string_lossy()
            .into_owned(),
        data: std::fs::read(&path).expect("a seed is readable"),
    };
    let mut seeds: Vec<Seed> = entries
        .map(|entry| seed(entry.expect("a folder is readable").path()))
        .collect();
    seeds.sort_by(|a, b| a.name.cmp(&b.name));
    seeds
}

/// The byte strings of `fuzz/http.dict`, in libFuzzer's notation.
fn dictionary() -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(root().join("http.dict")).expect("the dictionary is there");
    let quoted = text
        .lines()
        .filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted.map(unescape).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let (byte, used) = match (first, tail.first()) {
            (b'\\', Some(b'x')) => {
                let digits = std::str::from_utf8(&tail[1..3]).expect("two hex digits");
                (u8::from_str_radix(digits, 16).expect("two hex digits"), 4)
            }
            (b'\\', Some(escaped)) => (*escaped, 2),
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[used..];
    }
    bytes
}

/// A seed with one to four changes.
fn mutated(seeds: &[Seed], words: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut data = random.one_of(seeds).data.clone();
    for _ in 0..=random.below(3) {
        mutate(&mut data, seeds, words, random);
    }
    data.truncate(16 << 10);
    data
}

fn mutate(data: &mut Vec<u8>, seeds: &[Seed], words: &[Vec<u8>], random: &mut Random) {
    let at = random.below(data.len() + 1);
    let to = at + random.below((data.len() - at).min(24) + 1);
    match random.below(9) {
        0 if at < data.len() => data[at] ^= 1 << random.below(8),
        1 if at < data.len() => data[at] = random.below(256) as u8,
        2 if at < data.len() => data[at] = *random.one_of(b"\r\n\0\t :;,\"\\_-+0x\x7f\x80\xff"),
        3 => drop(data.drain(at..to)),
        4 => {
            let piece = data[at..to].to_vec();
            let there = random.below(data.len() + 1);
            data.splice(there..there, piece);
        }
        5 => {
            let other = &random.one_of(seeds).data;
            let from = random.below(other.len() + 1);
            data.splice(at..to, other[from..].iter().copied());
        }
        6 => data.truncate(at),
        7 => {
            let line = data[at..]
                .windows(2)
                .position(|pair| pair == b"\r\n")
                .map_or(at, |line| at + line + 2);
            data.splice(line..line, random.one_of(words).iter().copied());
        }
        _ => drop(data.splice(at..at, random.one_of(words).iter().copied())),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")),
    )
}

/// SplitMix64: all that a repeatable run needs.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_of<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len())]
    }
}
