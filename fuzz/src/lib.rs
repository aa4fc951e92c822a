//! What must hold for every input of the parsers, whoever makes the inputs up.
//!
//! Each module has a `check` that panics when a promise is broken. Two drivers call them: `cargo test` with random
//! mutations of the corpus (`crates/mizan/tests/fuzz.rs`, a few seconds, repeatable from its seed), and libFuzzer,
//! guided by coverage (`fuzz/run.sh`). Both run on the pinned stable toolchain.
//!
//! The heart of HTTP/1 is differential: [`strict`] is a second reader, written from the RFC and sharing no code with the
//! product. What Mizan takes, and what it then sends on, the second reader must take too, and read the same.

pub mod chunked_body;
pub mod client_hello;
pub mod grpc_web;
pub mod http2_convert;
pub mod proxy_header;
pub mod request_head;
pub mod response_head;
pub mod strict;
pub mod websocket;

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Taken.
    Accepted,
    /// Found faulty.
    Refused,
    /// Not whole.
    Incomplete,
}

/// Where to cut `length` bytes into pieces, a different way for each input but always the same for one.
pub(crate) fn cuts(data: &[u8]) -> Vec<usize> {
    let mut state = data.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < data.len() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        at += 1 + (state >> 33) as usize % 17;
        cuts.push(at.min(data.len()));
    }
    cuts
}

/// Bytes as they would stand in a Rust byte string.
pub(crate) fn show(data: &[u8]) -> String {
    data.escape_ascii().to_string()
}
