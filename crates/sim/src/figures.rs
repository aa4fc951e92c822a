//! Our default beside baselines with the same requests, and what is asked of it.
//!
//! Which bars a scenario has goes by its name; one of somebody's own has those that every scenario has. A bar is on a
//! figure of the report, or on the ratio of two.

use std::fmt;

use mizan_core::PolicyKind;
use serde::Serialize;

use crate::contender::Contender;
use crate::report::{Delay, Latency, PolicyReport, Report};
use crate::scenario::Scenario;
use crate::{Options, run_one, with_time};

/// A scenario's outcome beside the baselines', with what is asked of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// Rows of the default policy, then of others that a bar is on, then of [`Contender::BASELINES`].
    pub report: Report,
    /// What is asked, and how it is.
    pub judged: Vec<Judged>,
}

/// A figure and its bar.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The scenario's name.
    pub scenario: String,
    /// Where all random numbers came from.
    pub seed: u64,
    /// What was measured, and in which unit.
    pub what: String,
    /// How it is. Infinite (in JSON null) where it could not be measured: then the bar is missed.
    pub value: f64,
    /// How it may be.
    pub bar: Bar,
}

/// What a figure may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Judged {
    /// Whether the figure is within its bar.
    pub fn is_kept(&self) -> bool {
        match self.bar {
            Bar::AtMost(most) => self.value <= most,
            Bar::AtLeast(least) => self.value.is_finite() && self.value >= least,
        }
    }
}

impl fmt::Display for Judged {
    /// One line: kept or missed, the figure, its bar, and what it is of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_kept() { "kept" } else { "MISSED" };
        let (sign, bar) = match self.bar {
            Bar::AtMost(most) => ("<=", most),
            Bar::AtLeast(least) => (">=", least),
        };
        let (value, scenario, what) = (self.value, &self.scenario, &self.what);
        write!(
            f,
            "{verdict:<6}  {value:>8.4} {sign} {bar:<7.4}  {scenario}: {what}"
        )
    }
}

/// Plays a scenario with the default policy and with all baselines, and judges the default.
///
/// The policies and the stopwatch of `options` are not used.
pub fn judge(scenario: &Scenario, options: &Options) -> Judgement {
    let default = PolicyKind::default().into();
    judge_of(scenario, default, &Contender::BASELINES, options)
}

/// The same of somebody else in the default's place, beside some of the baselines.
pub(crate) fn judge_of(
    scenario: &Scenario,
    judged: Contender,
    baselines: &[Contender],
    options: &Options,
) -> Judgement {
    let scenario = &with_time(scenario, options.seconds);
    let options = &Options {
        stopwatch: None,
        ..options.clone()
    };
    let is_for_every_policy = scenario.name.starts_with("s24-");
    let others = PolicyKind::ALL
        .into_iter()
        .filter(|&policy| is_for_every_policy && policy != PolicyKind::default());
    let contenders = std::iter::once(judged)
        .chain(others.map(Contender::from))
        .chain(baselines.iter().copied());
    let rows = contenders.map(|contender| run_one(scenario, contender, options));
    let report = Report::new(scenario, options.seed, rows.collect());
    let bench = Bench {
        scenario,
        options,
        contender: judged,
        report: &report,
    };
    let judged = bench.judged();
    Judgement { report, judged }
}

/// What bars are judged by.
struct Bench<'a> {
    scenario: &'a Scenario,
    options: &'a Options,
    contender: Contender,
    report: &'a Report,
}

impl Bench<'_> {
    fn judged(&self) -> Vec<Judged> {
        let mut judged = self.own();
        judged.extend(self.beside_two_choices());
        judged
    }

    /// The bars of this scenario alone.
    fn own(&self) -> Vec<Judged> {
        let ours = self.ours();
        let name = self.scenario.name.split('-').next().unwrap_or_default();
        match (name, self.scenario.balancers) {
            ("s01", _) => self.slow(),
            ("s04", _) => vec![self.of(
                "% failed, later than 5 s after the fault's begin",
                ours.failed_share_settled.map(percent),
                Bar::AtMost(0.5),
            )],
            ("s07", 1) => vec![self.even()],
            ("s07", _) => vec![self.even(), self.herd()],
            ("s08", _) => vec![
                self.of("ejections", Some(ours.ejections as f64), Bar::AtMost(0.0)),
                self.of(
                    "times degraded",
                    Some(ours.degraded as f64),
                    Bar::AtMost(0.0),
                ),
            ],
            ("s09", _) => vec![self.of(
                "changes of state a minute and balancer",
                Some(ours.changes_per_minute),
                Bar::AtMost(2.0),
            )],
            ("s10", _) if self.scenario.name.ends_with("-busy") => self.by_capacity(),
            ("s12", _) => vec![self.recovers()],
            ("s24", _) => self.black_hole(),
            _ => Vec::new(),
        }
    }

    fn slow(&self) -> Vec<Judged> {
        let during = p99(self.ours().latency_during);
        let peak_ewma = self.baseline(Contender::PEAK_EWMA);
        let healed = Scenario {
            faults: Vec::new(),
            ..self.scenario.clone()
        };
        let healed = run_one(&healed, self.contender, self.options);
        vec![
            self.of(
                "p99 in the fault, of that without a fault",
                ratio(during, p99(healed.latency)),
                Bar::AtMost(1.3),
            ),
            self.of(
                "p99 in the fault, of plain peak_ewma's",
                ratio(during, peak_ewma.and_then(|one| p99(one.latency_during))),
                Bar::AtMost(EQUAL),
            ),
        ]
    }

    /// Many balancers beside one that has all of the traffic.
    fn herd(&self) -> Judged {
        let one = Scenario {
            balancers: 1,
            ..self.scenario.clone()
        };
        let one = run_one(&one, self.contender, self.options);
        self.of(
            &format!("p99 of {} balancers, of one's", self.scenario.balancers),
            ratio(p99(self.ours().latency), p99(one.latency)),
            Bar::AtMost(1.1),
        )
    }

    fn even(&self) -> Judged {
        self.of("Jain's index", self.ours().jain, Bar::AtLeast(0.99))
    }

    fn by_capacity(&self) -> Vec<Judged> {
        let shares = self.ours().capacity_shares;
        vec![
            self.of(
                "the smallest share of a backend, of its part of capacity",
                shares.map(|(least, _)| least),
                Bar::AtLeast(0.9),
            ),
            self.of(
                "the largest share of a backend, of its part of capacity",
                shares.map(|(_, most)| most),
                Bar::AtMost(1.1),
            ),
        ]
    }

    /// With a request every two seconds a single run shows chance: twenty picks make a window. So it is the median of
    /// several.
    fn recovers(&self) -> Judged {
        let seeds = self.options.seed..self.options.seed.saturating_add(RECOVERIES);
        let recoveries = seeds.map(|seed| {
            let options = Options {
                seed,
                ..self.options.clone()
            };
            match run_one(self.scenario, self.contender, &options).recovery {
                Delay::Seconds(seconds) => seconds,
                Delay::NotAsked | Delay::Never => f64::INFINITY,
            }
        });
        let mut recoveries: Vec<f64> = recoveries.collect();
        recoveries.sort_unstable_by(f64::total_cmp);
        self.of(
            "seconds from the fault's end to four fifths of a fair share, median of this and 8 further seeds",
            recoveries.get(recoveries.len() / 2).copied(),
            Bar::AtMost(35.0),
        )
    }

    /// With every policy what fails fast must lose its share.
    fn black_hole(&self) -> Vec<Judged> {
        let rows = self.report.policies.iter().take(PolicyKind::ALL.len());
        let judged = rows.flat_map(|row| {
            let policy = &row.policy;
            [
                self.of(
                    &format!(
                        "{policy}: share of a fair one, later than 1 s after the fault's begin"
                    ),
                    row.share_at_fault,
                    Bar::AtMost(1.0),
                ),
                self.of(
                    &format!("{policy}: share of a fair one, later than 5 s after"),
                    row.share_at_fault_settled,
                    Bar::AtMost(0.2),
                ),
            ]
        });
        judged.collect()
    }

    /// No scenario may be worse than with two choices by requests in flight.
    fn beside_two_choices(&self) -> Vec<Judged> {
        let (ours, theirs) = (self.ours(), self.baseline(Contender::TWO_CHOICES));
        let theirs_failed = theirs.map_or(0.0, |theirs| percent(theirs.failed_share));
        vec![
            self.of(
                "p99, of plain two choices'",
                ratio(
                    p99(ours.latency),
                    theirs.and_then(|theirs| p99(theirs.latency)),
                ),
                Bar::AtMost(WORSE),
            ),
            self.of(
                &format!("% failed, where with plain two choices {theirs_failed:.4} do"),
                Some(percent(ours.failed_share)),
                Bar::AtMost(theirs_failed * WORSE),
            ),
        ]
    }

    fn ours(&self) -> &PolicyReport {
        &self.report.policies[0]
    }

    fn baseline(&self, contender: Contender) -> Option<&PolicyReport> {
        self.report.policy(&contender.name())
    }

    fn of(&self, what: &str, value: Option<f64>, bar: Bar) -> Judged {
        Judged {
            scenario: self.scenario.name.clone(),
            seed: self.options.seed,
            what: what.to_owned(),
            value: value.unwrap_or(f64::INFINITY),
            bar,
        }
    }
}

/// Quantiles are exact to 0.8 % each, so that a ratio of two that are the same may be this.
const EQUAL: f64 = 1.016;
/// Runs whose median says how long recovery takes.
const RECOVERIES: u64 = 9;
/// How much of another's figure is not worse.
const WORSE: f64 = 1.05;

fn p99(latency: Option<Latency>) -> Option<f64> {
    latency.map(|latency| latency.p99_ms)
}

fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}

fn percent(share: f64) -> f64 {
    share * 100.0
}
