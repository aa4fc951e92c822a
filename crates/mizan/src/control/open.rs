//! Opens a store by its address.

use crate::snapshot::{StoreAddress, StoreSettings, StoreTls};
use bytes::Bytes;
use mizan_store::embedded::{self, Embedded};
use mizan_store::etcd::{self, Etcd};
use mizan_store::remote::Remote;
use mizan_store::{Error, Store};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a store cannot be used. A store that is not reached is none of these: it may come.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder of an embedded store: another process has it, it is damaged, or the file system is in the way.
    #[error("the store in {}: {error}", folder.display())]
    Embedded {
        /// Which.
        folder: PathBuf,
        /// Why.
        error: Error,
    },
    /// A file of TLS cannot be read.
    #[error("`[store.tls] {key}`: {} cannot be read", path.display())]
    File {
        /// Which key names it.
        key: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What was said of etcd makes no sense.
    #[error(transparent)]
    Etcd(#[from] etcd::InvalidOptions),
}

/// Opens the store of `settings`. An embedded one is read whole, which blocks; with etcd nothing is asked yet.
///
/// # Errors
/// See [`OpenError`].
pub fn open(settings: &StoreSettings) -> Result<Arc<dyn Store>, OpenError> {
    match &settings.address {
        StoreAddress::Embedded(folder) => Embedded::open(folder, embedded::Options::default())
            .map(|store| Arc::new(store) as Arc<dyn Store>)
            .map_err(|error| OpenError::Embedded {
                folder: folder.clone(),
                error,
            }),
        StoreAddress::Instance(socket) => Ok(Arc::new(Remote::new(socket))),
        StoreAddress::Etcd(address) => {
            let mut etcd = etcd::Options::parse(address)?;
            if let Some(from) = &settings.tls {
                etcd.tls = Some(tls(from)?);
            }
            let credentials = settings.user.as_ref().zip(settings.password_file.as_ref());
            etcd.credentials = credentials.map(|(user, file)| etcd::Credentials {
                user: user.clone(),
                password: etcd::Password::File(file.clone()),
            });
            Ok(Arc::new(Etcd::new(&etcd)?))
        }
    }
}

fn tls(from: &StoreTls) -> Result<etcd::Tls, OpenError> {
    let read = |key: &'static str, path: &Path| match std::fs::read(path) {
        Ok(bytes) => Ok(Bytes::from(bytes)),
        Err(source) => Err(OpenError::File {
            key,
            path: path.to_owned(),
            source,
        }),
    };
    let roots = from.roots.as_deref().map(|path| read("roots", path));
    let client = match (&from.cert, &from.key) {
        (Some(cert), Some(key)) => Some(etcd::ClientCertificate {
            chain: read("cert", cert)?,
            key: read("key", key)?,
        }),
        _ => None,
    };
    Ok(etcd::Tls {
        roots: roots.transpose()?,
        client,
        server_name: from.server_name.clone(),
    })
}
