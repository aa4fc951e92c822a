//! `mizan explain`.

mod text;

use super::Instance;
use super::client::ClientError;
use super::output::{self, Exit};
use crate::admin::explain::{self, ExplainRequest, ExplainView};
use crate::app;
use crate::clock;
use crate::config;
use clap::Args;
use std::path::{Path, PathBuf};

/// Says what would become of a request: its route and those that it nearly takes, its pool, whom that picks, and why.
///
/// Asks the running instance, or a file with --config. The very code that serves requests decides, on a copy of what
/// it knows: nothing is sent, counted or changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan explain http://example.org/api/users
  mizan explain http://example.org/ -H 'Cookie: session=42'
  mizan explain https://example.org/ -X POST --client 10.0.0.7
  mizan explain /login -H 'Host: example.org' --config mizan.toml
  mizan explain http://example.org/songs --region kr --language ko
  mizan explain http://example.org/ --json | jq '.pool.passed_over'

What is left to chance is drawn from --seed: the same seed draws the same.
docs/explain.md says how to read what is told.

Exit status:
  0  a backend would get it, or it gets the answer that a route asks for
  1  it would be refused: denied, no route, no backend
  2  usage, the file is refused, or the instance wants another token
  4  no instance answers")]
pub(super) struct Explain {
    /// `http://host/path?query`, `https://...`, or a path alone with a `Host` header.
    /// Default, with --region or --language: `http://localhost/`.
    #[arg(required_unless_present_any = ["region", "language"])]
    url: Option<String>,
    /// The method.
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// A header field, `Name: value`; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// The client's address: the peer, or whom a PROXY header names. Default: 127.0.0.1.
    #[arg(long, value_name = "ADDRESS")]
    client: Option<String>,
    /// The listener that it comes to. Default: one on the URL's port, else the first that speaks its scheme.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// A pool to ask in place of the one that the route gives.
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Stands for all that is left to chance. Default: drawn anew, and told.
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// The region that it is of. Default: what the request, its client and the balancer say.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// The language that it is in, for settings. Default: what the request says.
    #[arg(long, value_name = "TAG")]
    language: Option<String>,
    /// Asks this file in place of a running instance. Its backends are taken to be well.
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// Prints everything as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    instance: Instance,
}

impl Explain {
    pub(super) fn run(&self) -> Result<Exit, ClientError> {
        let request = ExplainRequest {
            url: self
                .url
                .clone()
                .unwrap_or_else(|| "http://localhost/".into()),
            method: Some(self.method.clone()),
            headers: self.headers.clone(),
            client: self.client.clone(),
            listener: self.listener.clone(),
            pool: self.pool.clone(),
            seed: self.seed,
            region: self.region.clone(),
            language: self.language.clone(),
        };
        let view: ExplainView = match &self.config {
            Some(file) => ask_file(file, &request)?,
            None => {
                // Before an instance is looked for: the question is at fault wherever it is asked.
                request
                    .asked(0)
                    .map_err(|wrong| ClientError::Usage(wrong.message))?;
                self.instance.client()?.post_json("/v1/explain", &request)?
            }
        };
        let refused = view.answer.as_ref().is_some_and(|answer| !answer.wanted);
        let exit = if refused { Exit::Violated } else { Exit::Done };
        Ok(match self.json {
            true => output::json(&view, exit),
            false => output::out(&text::describe(&view), exit),
        })
    }
}

/// What a file's configuration says, were it in force.
fn ask_file(file: &Path, request: &ExplainRequest) -> Result<ExplainView, ClientError> {
    let usage = |message: String| ClientError::Usage(message);
    let asked = request
        .asked(clock::random())
        .map_err(|wrong| usage(wrong.message))?;
    let refused = |drawn: Vec<String>| {
        usage(format!(
            "{} is refused\n\n{}",
            file.display(),
            drawn.join("\n\n")
        ))
    };
    let sources = config::load(file).map_err(|problems| {
        refused(problems.iter().map(|problem| problem.render(&[])).collect())
    })?;
    let compiled = config::compile(
        &sources,
        None,
        &app::Discovery::default(),
        clock::now(),
        clock::random(),
    );
    let (snapshot, _) = compiled.map_err(|problems| {
        refused(
            problems
                .iter()
                .map(|problem| problem.render(&sources))
                .collect(),
        )
    })?;
    let explained = app::explain(&snapshot, &asked)
        .map_err(|error| usage(format!("{error}{}", explain::meant(&snapshot, &error))))?;
    Ok(ExplainView::new(&snapshot, &explained))
}
