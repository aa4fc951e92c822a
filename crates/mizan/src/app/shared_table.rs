//! The store's table in the running process: what is known of it, what is in force, and what is told of both.

use super::{AppError, Options};
use crate::clock;
use crate::config::{InForce, TicketKeys};
use crate::control::clocks::{Ahead, Clocks};
use crate::control::editor::Editor;
use crate::control::last_good::{CONFIRM, LastGood, Restored};
use crate::control::nodes::{self, Account};
use crate::control::table::{EVENTS, Following, HeldBack, Known, judge};
use crate::control::ticket_keys::FollowingKeys;
use crate::control::{self, Layout};
use crate::snapshot::{AdminBind, Settings, Snapshot, StoreAddress, StoreSettings};
use crate::telemetry::StoreFigures;
use mizan_routing::table::Rejected;
use mizan_routing::{Document, Object, Table};
use mizan_store::Store;
use mizan_store::follower::{Doubt, Standing, View};
use mizan_store::image::About;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a start waits for a store that it knows nothing of yet.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// How long a start waits for a store when it knows what the last run left.
const RESTORED_WAIT: Duration = Duration::from_millis(500);

/// The store of a process.
pub(super) struct SharedTable {
    pub(super) following: Following,
    settings: StoreSettings,
    region: Arc<str>,
    node: String,
    /// The table in force, before files were put beside it.
    pub(super) in_force: TableInForce,
    /// What was known of the table when it was looked at last.
    looked_at: Option<(u64, Standing, Option<Doubt>, TicketKeys)>,
    /// What seemed doubtful, and was accepted by somebody.
    accepted: Option<Doubt>,
    last_good: Option<Arc<LastGood>>,
    /// When it was last noted that the store confirms what is in force, since 1970.
    confirmed: Duration,
    account: watch::Sender<Option<Account>>,
    publishing: JoinHandle<()>,
    clocks: Clocks,
    /// Followed while a listener wants them.
    ticket_keys: Option<FollowingKeys>,
    pub(super) store: Arc<dyn Store>,
    pub(super) layout: Layout,
}

impl Drop for SharedTable {
    fn drop(&mut self) {
        self.publishing.abort();
    }
}

/// What of a table is in force.
#[derive(Clone, Debug, Default)]
pub(super) struct TableInForce {
    pub(super) table: Option<Arc<Table>>,
    pub(super) objects: InForce,
    pub(super) rejected: Vec<Rejected>,
    /// What waits for a new pool to be warm.
    pub(super) waiting: Vec<Rejected>,
    pub(super) held_back: Option<HeldBack>,
    /// Which store it is of.
    pub(super) store: Option<u64>,
    /// When it came into force, since 1970.
    pub(super) applied: Duration,
    /// When the next boost ends, in ms since 1970.
    pub(super) next_end: Option<u64>,
}

impl TableInForce {
    /// Tells what is in force here from what is in force elsewhere.
    pub(super) fn digest(&self) -> u64 {
        let Some(table) = &self.table else { return 0 };
        // What the configuration's rules refuse is in force here as it was, or not at all; and so is what waits.
        let others = self.rejected.iter().chain(&self.waiting);
        others.fold(table.digest(), |sum, rejected| {
            let object: Option<Object> = rejected.key.parse().ok();
            let held = object.and_then(|object| self.objects.held(&object).cloned());
            let json = held.map_or_else(Box::default, |held| held.json.clone());
            json.iter()
                .chain(rejected.key.as_bytes())
                .fold(sum, |sum, byte| {
                    (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
                })
        })
    }
}

/// What a configuration is compiled with beside the files.
#[derive(Clone)]
pub(super) struct TableInput {
    view: View,
    prefix_length: usize,
    pub(super) ticket_keys: TicketKeys,
    before: TableInForce,
    is_accepted: bool,
}

impl TableInput {
    /// The table to be in force. Blocks: called where a configuration is read.
    pub(super) fn judge(&self) -> (Arc<Table>, Option<HeldBack>) {
        let before = self.before.table.as_ref();
        let judged = judge(&self.view, self.prefix_length, before, self.is_accepted);
        (judged.table, judged.held_back)
    }

    pub(super) fn last(&self) -> &InForce {
        &self.before.objects
    }

    pub(super) fn store(&self) -> Option<u64> {
        self.view.store
    }

    /// Whether routes wait for new pools. With the first table there is nothing that could serve meanwhile; and what was accepted
    /// is meant.
    pub(super) fn waits(&self) -> bool {
        !self.is_accepted && self.before.store.is_some()
    }
}

impl SharedTable {
    /// Opens the store that the files, or the command line, name; `None`: they name none. A store that is away is no error.
    pub(super) async fn open(
        options: &Options,
        settings: &Settings,
    ) -> Result<Option<Self>, AppError> {
        let Some(store_settings) = store_settings(options, settings) else {
            return Ok(None);
        };
        if let StoreAddress::Instance(socket) = &store_settings.address
            && is_own(socket, options, settings)
        {
            return Err(AppError::OwnStore(socket.clone()));
        }
        let layout = Layout::new(&store_settings.namespace);
        let store = control::open(&store_settings)?;
        let last_good = last_good(&store_settings);
        let restored = last_good.as_ref().and_then(|it| restored(it, &layout));
        let following = Following::start(Arc::clone(&store), layout.table(), restored);
        let (account, accounts) = watch::channel(None);
        let publishing = nodes::publish(Arc::clone(&store), layout.clone(), accounts);
        let node = node_name(settings);
        Ok(Some(Self {
            following,
            clocks: Clocks::start(Arc::clone(&store), &layout, node.clone()),
            ticket_keys: None,
            region: Arc::clone(&settings.region),
            node,
            settings: store_settings,
            in_force: TableInForce::default(),
            looked_at: None,
            accepted: None,
            last_good: last_good.map(Arc::new),
            confirmed: Duration::ZERO,
            account,
            publishing: tokio::spawn(publishing),
            store,
            layout,
        }))
    }

    /// Waits until the table is known. What the last run left is known at once, but a store that is at hand knows better.
    pub(super) async fn first(&mut self) {
        let is_restored = self.is_known();
        if is_restored {
            // What the store says now is judged beside it, as it would be if the process had gone on: a store that was lost
            // and set up anew while nobody ran is no reason to serve nothing.
            let (table, _) = self.input(false).judge();
            self.in_force.table = Some(table);
        }
        let heard = async {
            loop {
                let known = self.following.known();
                let is_away = is_restored && known.trouble.is_some();
                let keys = self.ticket_keys.as_ref();
                let has_keys = keys.is_none_or(FollowingKeys::is_heard);
                if known.view.standing == Standing::Live && has_keys || is_away {
                    return;
                }
                self.changed().await;
            }
        };
        let wait = if is_restored {
            RESTORED_WAIT
        } else {
            FIRST_WAIT
        };
        if tokio::time::timeout(wait, heard).await.is_err() && !is_restored {
            tracing::error!(
                store = %self.settings.address,
                "the store does not answer, and no table is known from before: what only it has is answered 503 until it is reached"
            );
        }
    }

    /// Whether a table is known at all.
    pub(super) fn is_known(&self) -> bool {
        self.following.known().view.standing != Standing::Unknown
    }

    /// What seems doubtful now is meant.
    pub(super) fn accept(&mut self) {
        self.accepted = self.following.known().view.doubt;
    }

    pub(super) fn input(&self, is_accepted: bool) -> TableInput {
        let view = self.following.known().view;
        let is_looked_into = view.doubt.is_some() && view.doubt == self.accepted;
        TableInput {
            view,
            prefix_length: self.following.prefix_length(),
            ticket_keys: self.ticket_keys(),
            before: self.in_force.clone(),
            is_accepted: is_accepted || is_looked_into,
        }
    }

    /// Waits until something else is known of the table, the store or the other nodes. Drop-safe.
    pub(super) async fn changed(&mut self) {
        tokio::select! {
            () = self.following.changed() => {}
            () = self.clocks.changed() => {}
            () = keys_changed(&mut self.ticket_keys) => {}
        }
    }

    /// Follows ticket keys from now on if `snapshot` wants them, or no longer.
    pub(super) fn follow_ticket_keys(&mut self, snapshot: &Snapshot) {
        match (snapshot.wants_ticket_keys(), &self.ticket_keys) {
            (true, None) => {
                let store = Arc::clone(&self.store);
                self.ticket_keys = Some(FollowingKeys::start(store, &self.layout));
            }
            (false, Some(_)) => self.ticket_keys = None,
            _ => {}
        }
    }

    fn ticket_keys(&self) -> TicketKeys {
        let keys = self.ticket_keys.as_ref().map(FollowingKeys::known);
        keys.unwrap_or_default()
    }

    /// Whether what is known of the table is something else than what was looked at last.
    pub(super) fn has_news(&mut self) -> bool {
        let View {
            revision,
            standing,
            doubt,
            ..
        } = self.following.known().view;
        let now = Some((revision, standing, doubt, self.ticket_keys()));
        let is_new = self.looked_at != now;
        self.looked_at = now;
        is_new
    }

    /// Whether a boost has ended since the table came into force, or a new pool has become warm in `snapshot`.
    pub(super) fn is_due(&self, snapshot: &Snapshot) -> bool {
        let now = clock::wall().as_millis() as u64;
        let in_force = &self.in_force;
        in_force.next_end.is_some_and(|end| end <= now)
            || in_force.objects.has_warmed(snapshot, clock::now())
    }

    /// `table` is in force: it is told to the other nodes, and kept for the next start.
    pub(super) fn applied(&mut self, mut table: TableInForce) {
        let is_new = table.digest() != self.in_force.digest();
        if !is_new && self.in_force.applied > Duration::ZERO {
            table.applied = self.in_force.applied;
        }
        for rejected in table
            .rejected
            .iter()
            .filter(|it| !self.in_force.rejected.contains(it))
        {
            tracing::error!("an object of the table is not in force: {rejected}");
        }
        for waiting in table
            .waiting
            .iter()
            .filter(|it| !self.in_force.waiting.contains(it))
        {
            tracing::info!("an object of the table waits: {waiting}");
        }
        if let Some(held_back) = &table.held_back
            && self.in_force.held_back.as_ref() != Some(held_back)
        {
            tracing::error!("{held_back}");
        }
        self.in_force = table;
        let known = self.is_known();
        self.account.send_replace(known.then(|| self.account()));
        if is_new && known && self.in_force.held_back.is_none() {
            self.keep();
        }
    }

    /// Writes what is in force for the next start, on a thread that may block.
    fn keep(&self) {
        let (Some(last_good), Some(table), Some(store)) = (
            self.last_good.clone(),
            self.in_force.table.clone(),
            self.in_force.store,
        ) else {
            return;
        };
        let objects = self.in_force.objects.clone();
        let turn = last_good.turn();
        tokio::task::spawn_blocking(move || {
            super::reload::stand_back();
            let about = About {
                revision: table.revision(),
                store,
                written_ms: clock::wall().as_millis() as u64,
            };
            let entries: Vec<(String, String)> = objects
                .iter()
                .map(|(object, held)| {
                    let json = String::from_utf8_lossy(&held.json).into_owned();
                    (object.to_string(), json)
                })
                .collect();
            let entries = entries.iter().map(|(key, json)| (&**key, &**json));
            if let Err(error) = last_good.write(turn, &about, entries) {
                tracing::error!("{}", crate::telemetry::logging::chain(&error));
            }
        });
    }

    /// Notes now and then, and when the store is lost, up to when it has confirmed what is in force: a start without it says
    /// how old that is.
    pub(super) fn confirm(&mut self) {
        let Some(last_good) = self.last_good.clone() else {
            return;
        };
        let known = self.following.known();
        let confirmed = match known.view.standing {
            Standing::Live => clock::wall(),
            Standing::Stale => known.since,
            Standing::Restored | Standing::Unknown => return,
        };
        let since = confirmed.saturating_sub(self.confirmed);
        let is_due =
            since >= CONFIRM || (known.view.standing == Standing::Stale && !since.is_zero());
        // What is held back is not what the store says.
        if !is_due || self.in_force.held_back.is_some() {
            return;
        }
        self.confirmed = confirmed;
        tokio::task::spawn_blocking(move || {
            if let Err(error) = last_good.confirm(confirmed) {
                tracing::debug!("{}", crate::telemetry::logging::chain(&error));
            }
        });
    }

    fn account(&self) -> Account {
        let in_force = &self.in_force;
        Account {
            node: self.node.clone(),
            region: self.region.to_string(),
            revision: in_force.table.as_ref().map_or(0, |table| table.revision()),
            digest: format!("{:016x}", in_force.digest()),
            rejected: in_force.rejected.len(),
            waiting: in_force.waiting.len(),
            held_back: in_force
                .held_back
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            applied_ms: in_force.applied.as_millis() as u64,
            // It is said when it is told.
            told_ms: 0,
        }
    }

    /// Edits it.
    pub(super) fn editor(&self) -> Editor {
        let (store, layout) = (Arc::clone(&self.store), self.layout.clone());
        Editor::new(store, layout, crate::config::judge)
    }

    /// What `mizan status` and the metrics tell.
    pub(super) fn told(&self) -> Told {
        Told {
            address: self.settings.address.to_string(),
            namespace: self.settings.namespace.to_string(),
            known: self.following.known(),
            ahead: self.clocks.furthest(),
            account: self.account(),
            rejected: self.in_force.rejected.clone(),
            waiting: self.in_force.waiting.clone(),
            objects: self.in_force.objects.len(),
        }
    }
}

/// What is told of a store and its table.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) address: String,
    pub(super) namespace: String,
    pub(super) known: Known,
    /// Another node whose clock is ahead.
    pub(super) ahead: Option<Ahead>,
    pub(super) account: Account,
    pub(super) rejected: Vec<Rejected>,
    pub(super) waiting: Vec<Rejected>,
    pub(super) objects: usize,
}

impl Told {
    /// The same in figures.
    pub(super) fn figures(&self) -> StoreFigures {
        let counts = EVENTS.into_iter().zip(self.known.events);
        StoreFigures {
            standing: self.known.view.standing.name(),
            since: self.known.since,
            revision: self.known.view.revision,
            revision_in_force: self.account.revision,
            objects: self.objects,
            rejected: self.rejected.len(),
            waiting: self.waiting.len(),
            is_held_back: !self.account.held_back.is_empty(),
            events: counts.collect(),
            clock_ahead: self.ahead.as_ref().map(|ahead| ahead.by),
        }
    }
}

async fn keys_changed(keys: &mut Option<FollowingKeys>) {
    match keys {
        Some(keys) => keys.changed().await,
        None => std::future::pending().await,
    }
}

/// When the next boost that is in force ends.
pub(super) fn next_end(objects: &InForce) -> Option<u64> {
    let ends = objects.iter().filter_map(|(_, held)| match &held.document {
        Document::Boost(boost) => Some(boost.expires_at_ms),
        _ => None,
    });
    ends.min()
}

/// The store of the files, at the address that the command line gives, if it gives one.
fn store_settings(options: &Options, settings: &Settings) -> Option<StoreSettings> {
    let Some(address) = &options.store else {
        return settings.store.clone();
    };
    let from_files = settings
        .store
        .clone()
        .unwrap_or_else(|| StoreSettings::at(address.clone()));
    Some(StoreSettings {
        address: address.clone(),
        ..from_files
    })
}

/// Whether it is this process that would answer there.
fn is_own(socket: &Path, options: &Options, settings: &Settings) -> bool {
    if let Some(admin) = &options.admin {
        return admin == socket;
    }
    let mut binds = settings.admin.iter();
    binds.any(|bind| matches!(bind, AdminBind::Unix(own) if own == socket))
}

fn node_name(settings: &Settings) -> String {
    match &settings.node {
        Some(name) => name.to_string(),
        None => rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
    }
}

/// Without one a store is used all the same: only a restart while it is away is worse off.
fn last_good(settings: &StoreSettings) -> Option<LastGood> {
    let folder = settings
        .last_good
        .clone()
        .or_else(|| std::env::var_os("STATE_DIRECTORY").map(PathBuf::from));
    let Some(folder) = folder else {
        tracing::warn!(
            "`[store] last_good` names no folder: a restart while the store is away would serve nothing that only the store has"
        );
        return None;
    };
    LastGood::open(&folder, &settings.namespace)
        .map_err(|error| tracing::error!("{}", crate::telemetry::logging::chain(&error)))
        .ok()
}

fn restored(last_good: &LastGood, layout: &Layout) -> Option<Restored> {
    let read = last_good.read(&layout.table());
    let restored = read
        .map_err(|error| tracing::error!("{}", crate::telemetry::logging::chain(&error)))
        .ok()
        .flatten()?;
    let age = clock::wall().saturating_sub(restored.confirmed);
    tracing::info!(
        revision = restored.memory.revision(),
        age_seconds = age.as_secs(),
        "the last good table is in force until the store is heard"
    );
    Some(restored)
}
