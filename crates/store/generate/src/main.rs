//! Writes `../src/etcd/generated/` from `proto/`, with no `protoc`: `cargo run --manifest-path crates/store/generate/Cargo.toml`.
//!
//! The result is committed, so that nobody else needs any of this. Services are generated for tests only: they script
//! servers, while the engine calls by path.

use std::error::Error;
use std::path::Path;
use std::{fs, process::Command};

const HEAD: &str = "\
// Generated from `crates/store/generate/proto`; not to be edited. To make it anew:
//     cargo run --manifest-path crates/store/generate/Cargo.toml
";

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("../src/etcd/generated");
    let files = protox::compile(["rpc.proto"], [here.join("proto")])?;
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(true)
        .server_mod_attribute(".", "#[cfg(test)]")
        .bytes(".")
        .out_dir(&folder)
        .compile_fds(files)?;
    for name in ["etcdserverpb.rs", "mvccpb.rs"] {
        let path = folder.join(name);
        fs::write(&path, format!("{HEAD}{}", fs::read_to_string(&path)?))?;
        let formatted = Command::new("rustfmt")
            .args(["--edition", "2024"])
            .arg(&path)
            .status()?;
        if !formatted.success() {
            return Err(format!("rustfmt does not take {}", path.display()).into());
        }
    }
    Ok(())
}
