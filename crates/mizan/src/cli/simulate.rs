//! `mizan simulate`.

mod figures;
mod replay;

use super::output::{self, Exit};
use crate::clock;
use crate::config;
use clap::Args;
use mizan_core::PolicyKind;
use mizan_core::time::Instant;
use mizan_sim::{Options, Report, Scenario, ShippedScenario, judge, run, shipped};
use replay::Replay;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Scenarios that are listed where a name is none, or that of several.
const NAMES_SHOWN: usize = 8;

/// Plays a scenario in virtual time with the decisions that `mizan serve` makes, once for each policy.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mizan simulate                      the scenarios that come along
  mizan simulate s01                  one of ten backends is ten times slower
  mizan simulate all --html report/   every scenario, a page with plots each
  mizan simulate mine.toml --policy power_of_two --policy least_connections
  mizan simulate all --figures        the default beside baselines, bar by bar
  mizan simulate s04 --seed 7 --json  the same figures for a program
  mizan simulate --replay access.log  recorded traffic, played again
  mizan simulate --replay access.log --backends 5 --slow 10.0.0.1:80=3

The same scenario, seed and policies give the same figures.
What may stand in a scenario is in docs/scenarios.md; what a replay can tell,
and what not, in docs/replay.md.

Exit status:
  0  played; with --figures: every bar is kept
  1  with --figures: a bar is missed
  2  usage, a scenario is refused, a log has nothing to play, or the output
     cannot be written")]
pub(super) struct Simulate {
    /// A file, the name of a scenario that comes along or so much of it that it is the only one, or
    /// `all`. None: lists them.
    scenarios: Vec<String>,
    /// Only these policies. Default: all.
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
    /// Where all random numbers come from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Simulated seconds, in place of the scenario's own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Writes a page with plots of each scenario into this folder.
    #[arg(long, value_name = "FOLDER")]
    html: Option<PathBuf>,
    /// Prints the reports as JSON: a list, one for each scenario.
    #[arg(long)]
    json: bool,
    /// The default beside baselines, and whether it keeps what is asked of it.
    #[arg(long, conflicts_with_all = ["policy", "seconds", "log"])]
    figures: bool,
    #[command(flatten)]
    replay: Replay,
}

impl Simulate {
    pub(super) fn run(&self) -> Exit {
        if self.scenarios.is_empty() && self.figures {
            output::err("mizan: --figures judges scenarios: name some, or `all`");
            return Exit::Usage;
        }
        if self.scenarios.is_empty() && !self.replay.is_asked() {
            return output::out(&list(), Exit::Done);
        }
        match self.play() {
            Ok(exit) => exit,
            Err(problem) => {
                output::err(&format!("mizan: {problem}"));
                Exit::Usage
            }
        }
    }

    fn play(&self) -> Result<Exit, String> {
        if self.replay.is_asked() {
            return self.play_log();
        }
        let options = Options {
            seed: self.seed,
            policies: self.policies()?,
            seconds: self.seconds,
            // What a run costs differs from one to the next: a report for programs does not have it.
            stopwatch: (!self.json).then_some(stopwatch),
        };
        // All are read before the first is played, which may take its time.
        let scenarios = self.scenarios.iter().map(|name| found(name));
        let scenarios: Vec<_> = scenarios.collect::<Result<Vec<_>, _>>()?.concat();
        if self.figures {
            return self.judge(&scenarios, &options);
        }
        let mut reports = Vec::new();
        for scenario in &scenarios {
            let report = run(scenario, &options);
            self.write_page(&report)?;
            if self.json {
                reports.push(report);
            } else if output::out(&report.to_text(), Exit::Done) != Exit::Done {
                return Ok(Exit::Usage);
            }
        }
        Ok(match self.json {
            true => output::json(&reports, Exit::Done),
            false => Exit::Done,
        })
    }

    fn judge(&self, scenarios: &[Scenario], options: &Options) -> Result<Exit, String> {
        let mut judgements = Vec::new();
        for scenario in scenarios {
            let judgement = judge(scenario, options);
            self.write_page(&judgement.report)?;
            judgements.push(judgement);
        }
        let exit = match figures::all_kept(&judgements) {
            true => Exit::Done,
            false => Exit::Violated,
        };
        Ok(match self.json {
            true => output::json(&judgements, exit),
            false => output::out(&figures::text(&judgements), exit),
        })
    }

    fn play_log(&self) -> Result<Exit, String> {
        if !self.scenarios.is_empty() || self.seconds.is_some() {
            return Err("--replay plays a log: it takes no scenario and no --seconds".into());
        }
        let report = self.replay.play(self.policies()?, self.seed)?;
        if let Some(folder) = &self.html {
            write_page(folder, "replay", &report.to_html())?;
        }
        Ok(match self.json {
            true => output::json(&report, Exit::Done),
            false => output::out(&report.to_text(), Exit::Done),
        })
    }

    fn policies(&self) -> Result<Vec<PolicyKind>, String> {
        if self.policy.is_empty() {
            return Ok(PolicyKind::ALL.to_vec());
        }
        let named = |name: &String| {
            let all = PolicyKind::ALL.into_iter();
            all.clone()
                .find(|policy| policy.name() == name)
                .ok_or_else(|| {
                    let names: Vec<_> = all.map(PolicyKind::name).collect();
                    format!("there is no policy `{name}`: one of {}", names.join(", "))
                })
        };
        self.policy.iter().map(named).collect()
    }

    fn write_page(&self, report: &Report) -> Result<(), String> {
        match &self.html {
            Some(folder) => write_page(folder, &report.scenario, &report.to_html()),
            None => Ok(()),
        }
    }
}

fn write_page(folder: &Path, name: &str, page: &str) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let path = folder.join(format!("{name}.html"));
    std::fs::write(&path, page)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    output::err(&format!("wrote {}", path.display()));
    Ok(())
}

/// The scenarios that come along, with what each is about.
fn list() -> String {
    let rows: Vec<_> = shipped()
        .iter()
        .map(|one| vec![one.name.to_owned(), one.scenario().about])
        .collect();
    format!(
        "{}\n\nmizan simulate NAME plays one, `all` every one.",
        output::table("", &rows)
    )
}

/// What `name` stands for: a file before a scenario that comes along.
fn found(name: &str) -> Result<Vec<Scenario>, String> {
    if Path::new(name).is_file() {
        return read(name).map(|scenario| vec![scenario]);
    }
    let all = shipped();
    if name == "all" {
        return Ok(all.iter().map(ShippedScenario::scenario).collect());
    }
    let begun: Vec<_> = all
        .iter()
        .filter(|one| one.name.starts_with(name))
        .collect();
    let named = begun.iter().find(|one| one.name == name);
    let names = |found: &[&ShippedScenario]| {
        let names = found.iter().take(NAMES_SHOWN).map(|one| one.name);
        let more = found.len().saturating_sub(NAMES_SHOWN);
        let more = (more > 0).then(|| format!("{more} more"));
        names
            .map(str::to_owned)
            .chain(more)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (named, &begun[..]) {
        (Some(one), _) | (None, [one]) => Ok(vec![one.scenario()]),
        (None, []) => {
            let all: Vec<_> = all.iter().collect();
            let near = match near(name, &all) {
                near if near.is_empty() => "`mizan simulate` lists those".to_owned(),
                near => format!("did you mean {}?", names(&near)),
            };
            Err(format!(
                "`{name}` is neither a file nor a scenario that comes along: {near}"
            ))
        }
        (None, several) => Err(format!(
            "`{name}` is the beginning of {} scenarios: {}; say which, or `all`",
            several.len(),
            names(several)
        )),
    }
}

/// The scenarios that `name` may be a slip of: of their whole names, or of one without its number, or a part of one.
fn near<'s>(name: &str, all: &[&'s ShippedScenario]) -> Vec<&'s ShippedScenario> {
    let is_near = |one: &&&ShippedScenario| {
        let (_, about) = one.name.split_once('-').unwrap_or(("", one.name));
        let is_part = name.len() > 2 && one.name.contains(name);
        is_part || config::nearest(name, [one.name, about]).is_some()
    };
    all.iter().filter(is_near).copied().collect()
}

fn read(name: &str) -> Result<Scenario, String> {
    let text =
        std::fs::read_to_string(name).map_err(|error| format!("cannot read {name}: {error}"))?;
    let mut scenario = Scenario::parse(name, &text).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        format!("the scenario is refused\n{}", lines.join("\n"))
    })?;
    if scenario.name == name {
        let stem = Path::new(name).file_stem().unwrap_or_default();
        scenario.name = stem.to_string_lossy().into_owned();
    }
    Ok(scenario)
}

/// Real time, to tell what a run cost.
fn stopwatch() -> Duration {
    clock::now().saturating_since(Instant::default())
}
