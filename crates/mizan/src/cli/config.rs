//! `mizan config`: the store's table.

mod edit;
mod file;
mod history;

use super::client::ClientError;
use super::output::{self, Exit};
use super::table::{Place, failed, not_in_force};
use crate::admin::table::{ChangeRequest, EditRequest};
use crate::control::editor::{Edited, ObjectView, TableView, is_below};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Reads and edits the routing table that balancers share: pools, backends, chains, routes, settings.
#[derive(Debug, Args)]
#[command(after_help = "\
An object is a JSON document under a key:
  pools/REGION/POOL         {\"schema\": 1, \"policy\": \"power_of_two\"}
  backends/REGION/POOL/ID   {\"schema\": 1, \"address\": \"10.0.0.1:8080\"}
  chains/REGION/CHAIN       {\"schema\": 1, \"pools\": [\"kpop\", \"pop\"]}
  routes/ID                 {\"schema\": 1, \"prefix\": \"/\", \"chain\": \"trending\"}
  settings/LANGUAGE         {\"schema\": 1, \"tokenizer\": \"mecab\"}

Examples:
  mizan config get
  mizan config edit pools/kr/kpop
  mizan config put backends/kr/kpop/a --why \"a third one\" < a.json
  mizan config history
  mizan config export table.json
  mizan config --store etcd://10.0.0.1:2379 get

Exit status:
  0  done
  2  usage, or the edit or the file is refused
  3  it has changed since you looked: both versions and the difference are shown
  4  no instance answers, or the store cannot be reached
  10 the store did not say whether it was done")]
pub(super) struct Config {
    #[command(flatten)]
    place: Place,
    /// Prints JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows an object, or what stands below a part of a key; without one, the keys.
    Get {
        /// Such as pools/kr/kpop, or pools/kr.
        key: Option<String>,
        /// As it stood at this revision.
        #[arg(long, value_name = "REVISION")]
        at: Option<u64>,
    },
    /// Puts an object: what it says is a file, or standard input.
    Put {
        /// Its key.
        key: String,
        /// Its document.
        file: Option<PathBuf>,
        /// Only if it stands at this revision; 0: only if it is not there.
        #[arg(long, value_name = "REVISION")]
        if_rev: Option<u64>,
        /// Why, for the history.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Takes an object away.
    Delete {
        /// Its key.
        key: String,
        /// Only if it stands at this revision.
        #[arg(long, value_name = "REVISION")]
        if_rev: Option<u64>,
        /// That it is most of the table is meant.
        #[arg(long)]
        force: bool,
        /// Why, for the history.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Opens an object in $VISUAL or $EDITOR, and puts what you leave.
    Edit {
        /// Its key.
        key: String,
        /// Why, for the history.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Shows what a file would change (see export).
    Diff {
        /// The file.
        file: PathBuf,
        /// What the file does not have counts as gone.
        #[arg(long)]
        prune: bool,
    },
    /// Shows the last edits: who, when, why and what.
    History {
        /// Of this object, or what stands below a part of a key.
        key: Option<String>,
        /// How many.
        #[arg(short = 'n', long, default_value_t = 20)]
        count: usize,
    },
    /// Takes an edit back, by its name or the revision that it made: a new edit.
    Rollback {
        /// Which.
        edit: String,
        /// Overwrites what was changed since.
        #[arg(long)]
        force: bool,
        /// Why, for the history.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Shows changes as they happen, until Ctrl-C.
    Watch,
    /// Writes the table as one file.
    Export {
        /// Where; without it, standard output.
        file: Option<PathBuf>,
    },
    /// Puts what a file says (see export), as one edit.
    Import {
        /// The file.
        file: PathBuf,
        /// Takes away what the file does not have.
        #[arg(long)]
        prune: bool,
        /// That most of the table goes is meant.
        #[arg(long)]
        force: bool,
        /// Makes several edits of what is too much for one, each whole.
        #[arg(long)]
        in_parts: bool,
        /// Why, for the history.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Checks a file (see export), or one object, by itself: without a store.
    Validate {
        /// The file.
        file: PathBuf,
        /// The file is the document of this one object.
        #[arg(long)]
        key: Option<String>,
    },
}

impl Config {
    pub(super) fn run(&self) -> Exit {
        self.outcome().unwrap_or_else(|error| failed(&error))
    }

    fn outcome(&self) -> Result<Exit, ClientError> {
        match &self.command {
            Command::Get { key, at } => self.get(key.as_deref(), *at),
            Command::Put {
                key,
                file,
                if_rev,
                why,
            } => {
                let document = read_json(file.as_deref())?;
                self.change((key, Some(document), *if_rev), (why, false))
            }
            Command::Delete {
                key,
                if_rev,
                force,
                why,
            } => self.change((key, None, *if_rev), (why, *force)),
            Command::Edit { key, why } => self.edit(key, why),
            Command::Diff { file, prune } => self.diff(file, *prune),
            Command::History { key, count } => self.history(key.as_deref(), *count),
            Command::Rollback { edit, force, why } => self.rollback(edit, why, *force),
            Command::Watch => self.watch(),
            Command::Export { file } => self.export(file.as_deref()),
            Command::Import {
                file,
                prune,
                force,
                in_parts,
                why,
            } => self.import(file, (*prune, *force, *in_parts), why),
            Command::Validate { file, key } => file::validate(file, key.as_deref()),
        }
    }

    fn table(&self, at: Option<u64>) -> Result<TableView, ClientError> {
        let query = at.map_or_else(String::new, |at| format!("?at={at}"));
        self.place.client()?.get(&format!("/v1/objects{query}"))
    }

    fn get(&self, key: Option<&str>, at: Option<u64>) -> Result<Exit, ClientError> {
        let mut view = self.table(at)?;
        let Some(key) = key else {
            return Ok(match self.json {
                true => output::json(&view, Exit::Done),
                false => output::out(&keys(&view), Exit::Done),
            });
        };
        view.objects.retain(|it| is_below(&it.key, key));
        let exit = if view.objects.is_empty() {
            Exit::Usage
        } else {
            Exit::Done
        };
        if view.objects.is_empty() {
            let all = self.table(at)?;
            let meant = crate::config::nearest(key, all.objects.iter().map(|it| &*it.key));
            let meant = meant.map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
            output::err(&format!("mizan: there is no object `{key}`{meant}"));
        }
        Ok(match (self.json, &view.objects[..]) {
            (true, _) => output::json(&view, exit),
            (false, []) => exit,
            (false, [one]) if one.key == key => output::out(&pretty(&one.document), exit),
            (false, many) => {
                let shown: Vec<_> = many
                    .iter()
                    .map(|it| {
                        format!(
                            "{} (revision {})\n{}",
                            it.key,
                            it.revision,
                            pretty(&it.document)
                        )
                    })
                    .collect();
                output::out(&shown.join("\n"), exit)
            }
        })
    }

    fn change(
        &self,
        (key, document, seen): (&str, Option<Value>, Option<u64>),
        (why, force): (&str, bool),
    ) -> Result<Exit, ClientError> {
        let request = EditRequest {
            changes: vec![ChangeRequest {
                key: key.to_owned(),
                document,
                seen,
            }],
            why: why.to_owned(),
            force,
        };
        self.make(&request)
    }

    fn make(&self, request: &EditRequest) -> Result<Exit, ClientError> {
        let edited: Edited = self.place.client()?.post_json("/v1/edits", request)?;
        Ok(self.told(&edited))
    }

    fn told(&self, edited: &Edited) -> Exit {
        for replaced in &edited.replaced {
            output::err(&format!("mizan: it has replaced {replaced}"));
        }
        not_in_force(edited);
        match self.json {
            true => output::json(edited, Exit::Done),
            false => {
                let text = format!("edit {}: revision {}", edited.edit, edited.revision);
                output::out(&text, Exit::Done)
            }
        }
    }
}

fn keys(view: &TableView) -> String {
    let mut lines = vec![format!("revision {}", view.revision)];
    lines.extend(
        view.objects
            .iter()
            .map(|ObjectView { key, .. }| key.clone()),
    );
    lines.join("\n")
}

fn pretty(document: &Value) -> String {
    serde_json::to_string_pretty(document).unwrap_or_else(|_| document.to_string())
}

/// The JSON of a file, or of standard input.
fn read_json(file: Option<&Path>) -> Result<Value, ClientError> {
    let (name, text) = match file {
        Some(path) if path != Path::new("-") => {
            let text = std::fs::read_to_string(path);
            (path.display().to_string(), text)
        }
        _ => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            ("standard input".to_owned(), read.map(|_| text))
        }
    };
    let text =
        text.map_err(|error| ClientError::Usage(format!("{name} cannot be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        ClientError::Usage(format!("{name}:{line}:{column}: this is no JSON: {error}"))
    })
}
