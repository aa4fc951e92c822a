//! What operators and probes talk to: the admin API, `/livez`, `/readyz` and `/metrics`.
//!
//! Runs on the control loop's runtime, never on a worker, so that a slow caller costs no request. The API is
//! the only way in: the command line uses nothing else. Who may call it: whoever may open the Unix socket
//! (mode 0600), or on TCP whoever shows the token, under a name that a browser cannot be tricked into
//! (`guard`).
//!
//! | module | what it is |
//! | --- | --- |
//! | `listen` | sockets: opened before anything is served, closed and removed at the end |
//! | `bounded` | what one caller may take of time and places |
//! | `guard` | who may call, and how a write must look |
//! | `api` | paths and what they do |
//! | [`explain`] | what would become of a request: the question, and what is told |
//! | `meant` | what is meant by a name that is none |
//! | [`table`] | the store's table: read, edited, boosted, watched |
//! | `store` | the store itself, for other processes of the machine |
//! | [`view`] | what the API says, in types that the command line reads too |
//! | [`openapi`] | the API's description, made from those types |

mod api;
mod bounded;
pub mod explain;
#[cfg(test)]
pub(crate) mod fixture;
mod guard;
mod listen;
mod meant;
pub mod openapi;
mod store;
pub mod table;
pub mod view;

pub use api::ACCEPT_TABLE;
pub use listen::{AdminListener, BindError, bind};
pub use view::{Account, Phase, Problem, ReloadReport, StoreView};

use crate::config::Source;
use crate::control::editor::Editor;
use crate::snapshot::{AskError, Asked, Current, Explained, Snapshot};
use crate::telemetry::Metrics;
use mizan_store::Store;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the API shows and acts on.
#[derive(Clone)]
pub struct AdminState {
    /// The snapshot in force.
    pub current: Arc<Current>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The process.
    pub control: Arc<dyn Control>,
    /// Edits the store's table; `None`: there is no store.
    pub editor: Option<Arc<Editor>>,
    /// The store itself; `None`: there is none.
    pub store: Option<Arc<dyn Store>>,
}

/// The process, as the API sees it.
pub trait Control: Send + Sync {
    /// Reads the configuration again and puts it into force if it is good.
    /// `accept_table`: what seems doubtful of the store's table is meant.
    fn reload(&self, accept_table: bool) -> Pin<Box<dyn Future<Output = ReloadReport> + Send>>;
    /// The store and its table, but for what other nodes have in force; `None`: there is no store.
    fn store(&self) -> Option<StoreView>;
    /// What all nodes have in force; or why the store does not say.
    fn nodes(&self) -> Pin<Box<dyn Future<Output = Result<Vec<Account>, String>> + Send>>;
    /// What became of the last reload, or of the start.
    fn last_reload(&self) -> ReloadReport;
    /// Where the process stands between start and end.
    fn phase(&self) -> Phase;
    /// The main configuration file.
    fn config_path(&self) -> PathBuf;
    /// The text of the configuration in force.
    fn config_text(&self) -> Vec<Source>;
    /// Worker threads that run.
    fn workers(&self) -> usize;
    /// Client connections that are open.
    fn connections(&self) -> u64;
    /// What would become of a request under `snapshot`, by the functions that decide on real ones.
    ///
    /// # Errors
    /// If it names a listener or pool that is not there, or fits no listener.
    fn explain<'s>(&self, snapshot: &'s Snapshot, asked: &Asked)
    -> Result<Explained<'s>, AskError>;
}

/// Serves on `listeners` until `stop` turns true; then callers have a second to end. The sockets' files
/// are removed when it returns.
pub async fn serve(state: AdminState, listeners: Vec<AdminListener>, stop: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    for listener in listeners {
        tasks.spawn(listener.serve(state.clone(), stop.clone()));
    }
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests;
