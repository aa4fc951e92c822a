//! The whole way from text to snapshot.

mod accepted;
mod mutated;
mod reload;
mod told;

use super::*;
use std::io;
use std::net::SocketAddr;

const MINIMAL: &str = r#"
[[listener]]
bind = "0.0.0.0:8000"

[[route]]
pool = "api"

[pool.api]
backends = ["10.0.0.1:8080", "10.0.0.2:8080"]
"#;

fn no_names(_: &str) -> io::Result<Vec<SocketAddr>> {
    Err(io::Error::other("there are no names here"))
}

fn compile_text(text: &str) -> Result<(Snapshot, Vec<Diagnostic>), Vec<Diagnostic>> {
    compile(
        &[Source::new("lb.toml", text)],
        None,
        &no_names,
        Instant::default(),
        1,
    )
}

/// The snapshot of a text that has nothing wrong with it.
fn clean(text: &str) -> Snapshot {
    match compile_text(text) {
        Ok((snapshot, warnings)) if warnings.is_empty() => snapshot,
        Ok((_, found)) | Err(found) => panic!("{}", lines(&found).join("\n")),
    }
}

fn lines(found: &[Diagnostic]) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}
