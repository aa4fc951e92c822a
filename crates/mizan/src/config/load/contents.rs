//! Files that the configuration names and that are read with it: certificates, keys, roots, ticket keys.

use super::{FILE_BYTES_MAX, Fnv};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file that the configuration names, as it was read.
#[derive(Clone, PartialEq, Eq)]
pub(in super::super) struct Content {
    pub(in super::super) path: PathBuf,
    pub(in super::super) bytes: Vec<u8>,
    /// Its mode: who may read it.
    pub(in super::super) mode: u32,
}

impl Content {
    pub(super) fn read(path: PathBuf) -> Result<Self, String> {
        let read = || {
            let file = fs::File::open(&path)?;
            let mode = file.metadata()?.permissions().mode();
            let mut bytes = Vec::new();
            file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > FILE_BYTES_MAX {
                return Err(io::Error::other("it is larger than 8 MiB"));
            }
            Ok((bytes, mode))
        };
        match read() {
            Ok((bytes, mode)) => Ok(Self { path, bytes, mode }),
            Err(error) => Err(format!("`{}` cannot be read: {error}", path.display())),
        }
    }

    /// What tells it apart from another. Its mode belongs to it: a mend of it is a change.
    pub(in super::super) fn digest_into(&self, hash: &mut Fnv) {
        hash.bytes(&self.bytes.len().to_le_bytes());
        hash.bytes(&self.bytes);
        hash.bytes(&self.mode.to_le_bytes());
    }
}

/// Keys are secret: their bytes are never shown.
impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Content({}, {} bytes)",
            self.path.display(),
            self.bytes.len()
        )
    }
}

/// The file that `value` names, if `keys` lead to a string that names one.
pub(super) fn named_file<'v>(keys: &[String], value: &'v str) -> Option<&'v Path> {
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let is_file = match keys.as_slice() {
        ["listener", "tls", "certificates", key] => ["cert", "key", "ocsp"].contains(key),
        ["listener", "tls", "client_auth", key] => ["roots", "crl"].contains(key),
        ["listener", "tls", "tickets", key] => *key == "file",
        ["pool", _, "tls", "client_certificate", key] => ["cert", "key"].contains(key),
        ["pool", _, "tls", "roots"] => value != "system",
        _ => false,
    };
    is_file.then_some(Path::new(value))
}
