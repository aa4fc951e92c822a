//! The edge laboratory: demonstration backends, the proxy in front of them, and the drill.
//!
//! `mizan lab` starts three [`backend`]s as real processes, so that a `kill -9` of one is real, and `mizan serve`
//! before them, writes the configuration that this runs, and prints what to type. `mizan lab --drill` plays all of
//! it by itself. No child outlives it, not even after a `kill -9` of the laboratory itself.

pub mod backend;
mod children;
mod client;
mod config;
mod drill;
mod guide;
mod ports;
mod stage;

pub use children::{TETHER, tether};
pub use client::Fault;
pub use stage::LabError;

use crate::clock;
use stage::Stage;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often the proxy is looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// What `mizan lab` is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The proxy's port; the next free one is taken if somebody has it.
    pub port: u16,
    /// Demonstration backends, 1 to 100.
    pub backends: usize,
    /// Whether the drill plays itself.
    pub drill: bool,
    /// Whether the drill's report is JSON.
    pub json: bool,
}

/// Runs the laboratory until Ctrl-C, or the drill to its end; what it says goes to `out`. False: a promise was
/// broken, or the proxy ended by itself. Call it on the main thread ([`tether`] says why).
///
/// # Errors
/// What kept it from starting, or from going on.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<bool, LabError> {
    if options.drill {
        play(options, out)
    } else {
        attend(options, out)
    }
}

fn play(options: &Options, out: &mut dyn Write) -> Result<bool, LabError> {
    let started = clock::now();
    let mut stage = Stage::build(options.port, drill::BACKENDS, true)?;
    let played = drill::run(&mut stage, options.json, out);
    if !matches!(played, Ok(true)) {
        tell_log(&stage);
    }
    let took = clock::now().saturating_since(started);
    tracing::debug!(?took, "drill played");
    played
}

/// The end of what the proxy logged: its file goes with the stage.
fn tell_log(stage: &Stage) {
    const LINES: usize = 400;
    let Some(text) = stage
        .log()
        .and_then(|path| std::fs::read_to_string(path).ok())
    else {
        return;
    };
    let lines: Vec<_> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(LINES)..].join("\n");
    // Nobody is told if standard error is closed.
    let _ = writeln!(io::stderr(), "\nThe last lines of the proxy's log:\n{end}");
}

fn attend(options: &Options, out: &mut dyn Write) -> Result<bool, LabError> {
    let runtime = runtime()?;
    let _entered = runtime.enter();
    // Before the first child: from here on a Ctrl-C is ours.
    let mut asked = Asked::new()?;
    let mut stage = Stage::build(options.port, options.backends, false)?;
    stage.serve(config::Policy::RoundRobin)?;
    guide::print(&stage, options.port, out).map_err(LabError::io("print the guide"))?;
    runtime.block_on(until_the_end(&mut stage, &mut asked, out))
}

async fn until_the_end(
    stage: &mut Stage,
    asked: &mut Asked,
    out: &mut dyn Write,
) -> Result<bool, LabError> {
    let mut stopping = false;
    loop {
        if let Some(status) = stage.proxy_ended()? {
            let what = if stopping {
                "drained and stopped"
            } else {
                "ended by itself"
            };
            writeln!(out, "The proxy {what} ({status}).").map_err(LabError::io("print"))?;
            return Ok(stopping && status.success());
        }
        tokio::select! {
            () = asked.next() => {
                // The second one is passed on as well: it ends the drain at once.
                stage.terminate_proxy()?;
                stopping = true;
            }
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
        }
    }
}

/// SIGINT and SIGTERM.
struct Asked {
    interrupt: Signal,
    terminate: Signal,
}

impl Asked {
    fn new() -> Result<Self, LabError> {
        let listen = |kind| signal(kind).map_err(LabError::io("listen to signals"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, LabError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LabError::io("start a runtime"))
}

/// `mizan lab-backend`: one demonstration backend on a port of the loopback address, until SIGTERM or SIGINT.
///
/// # Errors
/// A port that is taken, for the most part.
pub fn run_backend(port: u16, name: String) -> Result<(), LabError> {
    let what = format!("serve as {name} on port {port}");
    runtime()?.block_on(async {
        let mut asked = Asked::new()?;
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(LabError::io(&*what))?;
        backend::serve(name, listener, async move { asked.next().await })
            .await
            .map_err(LabError::io(&*what))
    })
}
