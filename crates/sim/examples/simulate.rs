//! Runs scenarios and prints their tables.
//!
//! `cargo run -p mizan-sim --release --example simulate -- [--seed N] [--seconds N] [--policy NAME]...
//! [--html DIR] [--json DIR] SCENARIO...` where a scenario is a file, or the name (or its beginning)
//! of one that is shipped, or `all`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it prints, that is what it is for"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mizan_core::PolicyKind;
use mizan_sim::{Options, Report, Scenario, run, shipped};

struct Arguments {
    options: Options,
    scenarios: Vec<Scenario>,
    html: Option<PathBuf>,
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(64);
        }
    };
    for scenario in &arguments.scenarios {
        let report = run(scenario, &arguments.options);
        println!("{}", report.to_text());
        if let Err(error) = write(&arguments, &report) {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn arguments() -> Result<Arguments, String> {
    let mut words = std::env::args().skip(1);
    let mut arguments = Arguments {
        options: Options {
            stopwatch: Some(stopwatch),
            ..Options::default()
        },
        scenarios: Vec::new(),
        html: None,
        json: None,
    };
    let mut chosen = Vec::new();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| {
            let parsed = text.parse::<u64>();
            parsed.map_err(|_| format!("`{text}` is no number"))
        };
        match word.as_str() {
            "--seed" => arguments.options.seed = number(value()?)?,
            "--seconds" => arguments.options.seconds = Some(number(value()?)?),
            "--html" => arguments.html = Some(value()?.into()),
            "--json" => arguments.json = Some(value()?.into()),
            "--policy" => {
                let name = value()?;
                let policy = PolicyKind::ALL.into_iter().find(|one| one.name() == name);
                chosen.push(policy.ok_or(format!("there is no policy `{name}`"))?);
            }
            name => arguments.scenarios.extend(scenarios(name)?),
        }
    }
    if !chosen.is_empty() {
        arguments.options.policies = chosen;
    }
    if arguments.scenarios.is_empty() {
        let names: Vec<&str> = shipped().iter().map(|one| one.name).collect();
        return Err(format!(
            "which scenario? a file, `all`, or one of: {}",
            names.join(", ")
        ));
    }
    Ok(arguments)
}

fn scenarios(name: &str) -> Result<Vec<Scenario>, String> {
    if Path::new(name).exists() {
        let text = std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"))?;
        let stem = Path::new(name)
            .file_stem()
            .map_or(name.into(), |stem| stem.to_string_lossy());
        let read = Scenario::parse(name, &text).map_err(|found| {
            let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
            lines.join("\n")
        });
        return read.map(|mut scenario| {
            if scenario.name == name {
                scenario.name = stem.into_owned();
            }
            vec![scenario]
        });
    }
    let found: Vec<Scenario> = shipped()
        .iter()
        .filter(|one| name == "all" || one.name.starts_with(name))
        .map(|one| one.scenario())
        .collect();
    if found.is_empty() {
        return Err(format!("{name}: neither a file nor a shipped scenario"));
    }
    Ok(found)
}

fn write(arguments: &Arguments, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(folder) = &arguments.html {
        std::fs::create_dir_all(folder)?;
        std::fs::write(
            folder.join(format!("{}.html", report.scenario)),
            report.to_html(),
        )?;
    }
    if let Some(folder) = &arguments.json {
        std::fs::create_dir_all(folder)?;
        std::fs::write(
            folder.join(format!("{}.json", report.scenario)),
            report.to_json()?,
        )?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures what a simulation costs; the simulation itself has no clock"
)]
fn stopwatch() -> Duration {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed()
}
