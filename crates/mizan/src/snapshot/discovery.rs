//! Where members of a pool are learned from while it runs, and what is known of that.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Something that is looked up again and again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The addresses that `host:port` stands for.
    Name {
        /// Who is asked; empty: the system's servers.
        servers: Arc<[SocketAddr]>,
        /// `host:port`.
        name: Arc<str>,
    },
    /// What serves a service (RFC 2782).
    Srv {
        /// Who is asked; empty: the system's servers.
        servers: Arc<[SocketAddr]>,
        /// Its name, such as `_http._tcp.app.internal`.
        name: Arc<str>,
    },
    /// The backends that a file lists.
    File(PathBuf),
    /// Those that say of themselves in the store that they are instances of this.
    Instances(Arc<str>),
}

impl Origin {
    /// What kind of place it is, in a word: `dns`, `srv`, `file` or `instances`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Name { .. } => "dns",
            Self::Srv { .. } => "srv",
            Self::File(_) => "file",
            Self::Instances(_) => "instances",
        }
    }

    /// What it is called there.
    pub fn name(&self) -> String {
        match self {
            Self::Name { name, .. } | Self::Srv { name, .. } | Self::Instances(name) => {
                name.to_string()
            }
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// What is known of the places that a pool's members are learned from; carried over reloads by the pool's name.
#[derive(Debug, Default)]
pub struct Discovery {
    failures: AtomicU64,
    told: Mutex<Vec<OriginState>>,
}

/// What is known of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginState {
    /// Which.
    pub origin: Origin,
    /// When it was last heard, since 1970; zero: never.
    pub heard: Duration,
    /// Why it could not be heard, or is not gone by, since then; empty if all is well.
    pub error: String,
    /// Instances that are kept though their lease has ended, because they serve.
    pub kept: Vec<String>,
    /// Failures since it was first asked.
    pub failures: u64,
}

impl Discovery {
    /// What is known now.
    pub fn states(&self) -> Vec<OriginState> {
        self.lock().clone()
    }

    /// How often a place could not be heard since the start.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// This is known now. Failures that are new are counted.
    pub fn tell(&self, states: Vec<OriginState>) {
        let mut told = self.lock();
        for state in &states {
            let before = told.iter().find(|it| it.origin == state.origin);
            let counted = before.map_or(0, |it| it.failures);
            // One that was not asked for a while begins anew.
            let new = state
                .failures
                .checked_sub(counted)
                .unwrap_or(state.failures);
            self.failures.fetch_add(new, Ordering::Relaxed);
        }
        *told = states;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OriginState>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
