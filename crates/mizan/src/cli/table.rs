//! What commands on the store's table have in common: whom they ask, and how they say what came of it.

use super::client::{Client, ClientError};
use super::output::Exit;
use crate::admin::table::{Author, routes};
use crate::config;
use crate::control::author::this_user;
use crate::control::editor::{Edited, Editor};
use crate::control::{self, Layout};
use crate::snapshot::{StoreAddress, StoreSettings, StoreTls};
use axum::{Extension, Router};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

/// The table of a store that names none.
const NAMESPACE: &str = "default";

/// Whom a command on the table asks.
#[derive(Clone, Debug, Args)]
pub(super) struct Place {
    /// The store itself: `etcd://HOST:2379,HOST:2379`, `embedded:/FOLDER` while
    /// no instance runs on it, or `instance:/SOCKET` through one that does.
    #[arg(long, global = true, value_name = "STORE")]
    store: Option<String>,
    /// Which of the tables in it (with --store).
    #[arg(long, global = true, value_name = "NAME", default_value = NAMESPACE)]
    namespace: String,
    /// The user of etcd (with --store).
    #[arg(long, global = true, value_name = "USER")]
    user: Option<String>,
    /// The file whose first line is the password.
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The authorities that etcd's certificates are trusted by (PEM).
    #[arg(long, global = true, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// Our certificate for etcd (PEM).
    #[arg(long, global = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    #[arg(long, global = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// The instance's admin API, as for `mizan status`.
    #[arg(long, global = true, value_name = "SOCKET")]
    admin: Option<String>,
}

impl Place {
    /// What belongs together: the parser does not look at it where options may stand behind a subcommand.
    fn check(&self) -> Result<(), ClientError> {
        let usage = |text: &str| Err(ClientError::Usage(text.to_owned()));
        if self.user.is_some() != self.password_file.is_some() {
            return usage("--user and --password-file belong together");
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return usage("--tls-cert and --tls-key belong together");
        }
        let of_store = [&self.tls_roots, &self.tls_cert, &self.password_file];
        match (&self.store, &self.admin) {
            (Some(_), Some(_)) => {
                usage("--store asks the store itself, --admin an instance: one of them")
            }
            (None, _) if of_store.into_iter().any(Option::is_some) => {
                usage("--user and --tls-… are for --store: an instance has its own")
            }
            (None, _) if self.namespace != NAMESPACE => {
                usage("--namespace is for --store: an instance has its own")
            }
            _ => Ok(()),
        }
    }

    /// The store that was named, with what was said of it.
    pub(super) fn settings(&self, store: &str) -> Result<StoreSettings, ClientError> {
        self.check()?;
        let address = store_address(store)?;
        let wants_tls = self.tls_roots.is_some() || self.tls_cert.is_some();
        Ok(StoreSettings {
            namespace: Arc::from(self.namespace.as_str()),
            tls: wants_tls.then(|| StoreTls {
                roots: self.tls_roots.clone(),
                cert: self.tls_cert.clone(),
                key: self.tls_key.clone(),
                server_name: None,
            }),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            ..StoreSettings::at(address)
        })
    }

    /// The store, if one was named.
    pub(super) fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }

    /// Who answers: a running instance, or this process with the store that was named.
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        let Some(store) = &self.store else {
            self.check()?;
            let instance = super::Instance {
                admin: self.admin.clone(),
            };
            return instance.client();
        };
        let settings = self.settings(store)?;
        // Who is known to etcd by a name is known by it here.
        let author = match (&self.user, &settings.address) {
            (Some(user), StoreAddress::Etcd(_)) => user.clone(),
            _ => this_user(),
        };
        Client::local(&settings.address.to_string(), || {
            let store = control::open(&settings)?;
            let layout = Layout::new(&settings.namespace);
            let editor = Editor::new(store, layout, config::judge);
            let router: Router = routes(Some(Arc::new(editor)), Arc::new(String::new));
            Ok(router.layer(Extension(Author(author))))
        })
    }
}

/// Read here and not by the parser, which would show a password that somebody put into it.
pub(super) fn store_address(text: &str) -> Result<StoreAddress, ClientError> {
    config::store_address(text).map_err(|error| ClientError::Usage(format!("--store: {error}")))
}

/// What a command that was refused says beside its one sentence.
pub(super) fn explained(error: &ClientError) -> Option<String> {
    let ClientError::Refused { error, .. } = error else {
        return None;
    };
    let mut lines: Vec<String> = Vec::new();
    for conflict in &error.edit.conflicts {
        let by = conflict.by.as_ref().map_or_else(String::new, |edit| {
            format!(
                " by {} (edit {}: {})",
                edit.author,
                edit.edit,
                why(&edit.why)
            )
        });
        lines.push(format!(
            "{}: you saw revision {}, and revision {} stands there{by}",
            conflict.key, conflict.seen, conflict.found
        ));
        for field in &conflict.fields {
            let show = |value: &Option<serde_json::Value>| match value {
                Some(value) => value.to_string(),
                None => "nothing".to_owned(),
            };
            let mark = if field.is_conflict { "!" } else { " " };
            let name = if field.field.is_empty() {
                "all of it"
            } else {
                &field.field
            };
            lines.push(format!(
                "  {mark} {name}: it was {}, theirs is {}, yours is {}",
                show(&field.base),
                show(&field.theirs),
                show(&field.ours)
            ));
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// A reason for people, or that there is none.
pub(super) fn why(text: &str) -> &str {
    match text {
        "" => "no reason given",
        text => text,
    }
}

/// Says of an edit that the store's table is not in force where it was made.
pub(super) fn not_in_force(edited: &Edited) {
    if !edited.held_back.is_empty() {
        super::output::err(&format!(
            "mizan: the edit is in the store, whose table this instance holds back: {}; `mizan status` tells whether it does so still",
            edited.held_back
        ));
    }
}

/// The exit of a command that failed, with all that was said.
pub(super) fn failed(error: &ClientError) -> Exit {
    super::output::err(&format!("mizan: {}", crate::telemetry::chain(error)));
    if let Some(more) = explained(error) {
        super::output::err(&more);
    }
    error.exit()
}
