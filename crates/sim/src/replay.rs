//! Recorded traffic, played again: what would another policy, another number of backends or a slower one have done
//! with it?
//!
//! A log says when each request came, how long it took and at which backend. When it came is taken as it is; how much
//! work it was is what it took without the wait for a slot (`demand`). Then it is simulated like any scenario, by the
//! decision code that ships.
//!
//! | module | has |
//! | --- | --- |
//! | `line`, `calendar` | one line of a log, and the times in it |
//! | `log` | a whole log, read line by line |
//! | `demand` | from recorded latency to work |
//! | `outcome` | the figures, and their writer |

use std::fmt;
use std::time::Duration;

use mizan_core::PolicyKind;

use crate::engine::{Arrival, Engine};
use crate::law::Law;
use crate::report::{Report, measure};
use crate::scenario::{BackendPlan, PoolPlan, Rate, Scenario};

mod calendar;
mod demand;
mod line;
mod log;
mod outcome;

pub use line::LogFormat;
pub use log::{BadLine, LineCounts, LogReader};
pub use outcome::{Figures, ReplayReport};

use outcome::Shares;

/// A log may span no more: idle time costs time, too.
const SPAN_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Nor may a backend work longer on its share, because no request is given up.
const WORK_MAX: Duration = Duration::from_secs(30 * 86_400);
/// A second of virtual time behind the last arrival, so that the plots close.
const TAIL: Duration = Duration::from_secs(1);
/// Most backends of a replay.
const BACKENDS_MAX: usize = 10_000;

/// A request as it was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// When it began, nanoseconds.
    pub(crate) at: u64,
    /// How long it was at its backend, nanoseconds.
    pub(crate) latency: u64,
    /// The part of that in which it was worked on.
    pub(crate) work: u64,
    /// Of its client.
    pub(crate) hash: u64,
    pub(crate) pool: u32,
    /// By number, or [`Self::NOBODY`].
    pub(crate) backend: u32,
    pub(crate) failed: bool,
}

impl Recorded {
    /// The log does not say which backend it was.
    pub(crate) const NOBODY: u32 = u32::MAX;

    fn end(&self) -> u64 {
        self.at + self.latency
    }
}

/// What is changed about what was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Policies to compare; empty: all.
    pub policies: Vec<PolicyKind>,
    /// The pool whose requests are played; `None`: the one with most.
    pub pool: Option<String>,
    /// So many backends; `None`: as many as the log names.
    pub backends: Option<usize>,
    /// Requests that a backend works on at once, `1..`; `None`: the most that the log shows at one.
    pub slots: Option<usize>,
    /// Backends by name in the log or number from 1, and how many times slower each is, above 0.
    pub slow: Vec<(String, f64)>,
    /// Where what is left to chance comes from.
    pub seed: u64,
}

/// Why a log cannot be played.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayError {
    /// It has no usable line. The counts say why.
    NothingUsable(LineCounts),
    /// No requests of that pool; those that there are.
    UnknownPool(String, Vec<String>),
    /// It names no backends, and nobody says how many there are.
    HowManyBackends,
    /// More backends than can be, or none.
    BackendsOutOfRange(usize),
    /// No backend of that name or number; those that there are.
    UnknownBackend(String, Vec<String>),
    /// From the first to the last request it is more than a week.
    TooLong(Duration),
    /// So long would the slowest backend work on an even share, or on one request: more than 30 days.
    TooMuchWork(Duration),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingUsable(counts) if counts.lines == 0 => f.write_str("the log is empty"),
            Self::NothingUsable(counts) => write!(
                f,
                "none of {} lines is a request that a backend answered{}",
                counts.lines,
                outcome::not_used(counts)
            ),
            Self::UnknownPool(name, known) if known.is_empty() => write!(
                f,
                "the log names no pools, so that there is no pool `{name}`: leave --pool out \
                 (a log of nginx or Apache is one of a single pool)"
            ),
            Self::UnknownPool(name, known) => {
                write!(
                    f,
                    "the log has no requests of pool `{name}`; it has {}",
                    known.join(", ")
                )
            }
            Self::HowManyBackends => f.write_str(
                "the log does not say which backend served a request: give --backends N \
                 (nginx: add upstream=$upstream_addr to the format)",
            ),
            Self::BackendsOutOfRange(count) => {
                write!(
                    f,
                    "{count} backends: from 1 to {BACKENDS_MAX} can be played"
                )
            }
            Self::UnknownBackend(name, known) => {
                write!(
                    f,
                    "there is no backend `{name}`; there are {}",
                    known.join(", ")
                )
            }
            Self::TooLong(span) => write!(
                f,
                "the log spans {:.1} days, of 7 that can be played: cut it, or look for a line with a wrong date",
                span.as_secs_f64() / 86_400.0
            ),
            Self::TooMuchWork(time) => write!(
                f,
                "the slowest backend would work on its share for {:.1} days, of 30 that can be played: \
                 give more --backends or --slots, or a smaller factor to --slow",
                time.as_secs_f64() / 86_400.0
            ),
        }
    }
}

impl std::error::Error for ReplayError {}

/// Plays a log again.
///
/// # Errors
/// If it has nothing to play, or `changes` speak of what is not in it.
pub fn replay(log: LogReader, changes: &Changes) -> Result<ReplayReport, ReplayError> {
    let read = log.finish(changes.pool.as_deref());
    if read.counts.requests == 0 {
        return Err(ReplayError::NothingUsable(read.counts));
    }
    let Some(pool) = read.pool.clone() else {
        let known = read
            .pools
            .into_keys()
            .filter(|name| !name.is_empty())
            .collect();
        return Err(ReplayError::UnknownPool(
            changes.pool.clone().unwrap_or_default(),
            known,
        ));
    };
    let mut world = World::new(&read, changes)?;
    let mut requests = read.requests;
    let fit = world.fit(&mut requests, read.whole_seconds);
    let first = requests.first().map_or(0, |request| request.at);
    let last = requests.last().map_or(0, |request| request.at);
    let span = Duration::from_nanos(last - first);
    if span > SPAN_MAX {
        return Err(ReplayError::TooLong(span));
    }
    let longest = world.longest(&requests);
    if longest > WORK_MAX {
        return Err(ReplayError::TooMuchWork(longest));
    }
    let scenario = world.scenario(&requests, span, &pool);
    let policies = match changes.policies.is_empty() {
        true => &PolicyKind::ALL[..],
        false => &changes.policies,
    };
    let mut played = Vec::new();
    for policy in policies {
        let arrivals = requests.iter().map(|request| Arrival {
            at: request.at - first,
            balancer: 0,
            hash: request.hash,
            work: request.work as f64,
        });
        let (record, _) = Engine::of(&scenario, changes.seed, *policy, Box::new(arrivals)).run();
        let figures = Figures::played(policy.name(), &record);
        played.push((figures, measure(&scenario, *policy, &record)));
    }
    let (figures, policies) = played.into_iter().unzip();
    Ok(ReplayReport {
        pool,
        pools: read.pools,
        format: read.format.map_or("", LogFormat::name),
        whole_seconds: read.whole_seconds,
        counts: read.counts,
        seconds: span.as_secs_f64(),
        backends: world.names.clone(),
        recorded_backends: world.recorded,
        slots: world.slots,
        slots_given: changes.slots.is_some(),
        too_early: fit.too_early,
        slow: changes.slow.clone(),
        seed: changes.seed,
        recorded: Figures::recorded(&requests, &Shares::of(&requests, world.recorded)),
        played: figures,
        page: Report::new(&scenario, changes.seed, policies),
    })
}

/// The backends of a replay.
#[derive(Debug)]
struct World {
    /// By number: as the log has it, or `new-N`.
    names: Vec<String>,
    /// By number of the log's own, the number here; `None` of one that has no requests of this pool.
    place: Vec<Option<usize>>,
    /// Backends that the log names.
    recorded: usize,
    slots: usize,
    slots_given: Option<usize>,
    /// Times slower, by number.
    slow: Vec<f64>,
}

impl World {
    fn new(read: &log::Read, changes: &Changes) -> Result<Self, ReplayError> {
        let mut is_used = vec![false; read.backends.len()];
        for request in &read.requests {
            if let Some(used) = is_used.get_mut(request.backend as usize) {
                *used = true;
            }
        }
        let mut used: Vec<usize> = (0..is_used.len()).filter(|at| is_used[*at]).collect();
        used.sort_by_key(|at| &read.backends[*at]);
        let recorded = used.len();
        let count = match changes.backends {
            Some(count) => count,
            None if recorded == 0 => return Err(ReplayError::HowManyBackends),
            None => recorded,
        };
        if !(1..=BACKENDS_MAX).contains(&count) {
            return Err(ReplayError::BackendsOutOfRange(count));
        }
        let known = used.iter().map(|at| read.backends[*at].clone());
        let new = (recorded + 1..=count).map(|number| format!("new-{number}"));
        let names: Vec<String> = known.chain(new).take(count).collect();
        let mut place = vec![None; read.backends.len()];
        for (number, at) in used.iter().enumerate() {
            place[*at] = Some(number);
        }
        let mut slow = vec![1.0; count];
        for (name, factor) in &changes.slow {
            let by_name = names.iter().position(|known| known == name);
            let by_number = || {
                name.parse::<usize>()
                    .ok()?
                    .checked_sub(1)
                    .filter(|at| *at < count)
            };
            let Some(at) = by_name.or_else(by_number) else {
                let known = names.iter().take(8).cloned().collect();
                return Err(ReplayError::UnknownBackend(name.clone(), known));
            };
            slow[at] = factor.max(1e-3);
        }
        Ok(Self {
            names,
            place,
            recorded,
            slots: 1,
            slots_given: changes.slots,
            slow,
        })
    }

    /// Finds how many slots there are, and what work the requests are. Where times are known to the second only,
    /// waits are not: what a request took is its work.
    fn fit(&mut self, requests: &mut [Recorded], whole_seconds: bool) -> demand::Fit {
        let place = &self.place;
        // Where the log names nobody, requests are served by all together.
        let is_named = self.recorded > 0;
        let shared = if is_named { 1 } else { self.names.len() };
        let station = |request: &Recorded| match is_named {
            true => place.get(request.backend as usize).copied().flatten(),
            false => Some(0),
        };
        let stations = self.recorded.max(1);
        let at = requests
            .iter()
            .filter_map(|request| Some((station(request)?, request)));
        let most = demand::in_flight_max(at, stations).div_ceil(shared).max(1);
        self.slots = self.slots_given.unwrap_or(most).max(1);
        if self.slots_given.is_none() || whole_seconds {
            return demand::Fit::default();
        }
        let at = requests
            .iter_mut()
            .filter_map(|request| Some((station(request)?, request)));
        demand::take_out_waits(at, stations, self.slots * shared)
    }

    /// How long the slowest backend would work on an even share of all, or on the longest request.
    fn longest(&self, requests: &[Recorded]) -> Duration {
        let slowest = self.slow.iter().copied().fold(0.0, f64::max);
        let sum: f64 = requests.iter().map(|request| request.work as f64).sum();
        let most = requests.iter().map(|request| request.work).max();
        let share = sum / (self.slots as f64 * self.names.len() as f64);
        let nanos = share.max(most.unwrap_or(0) as f64) * slowest;
        // The cast saturates.
        Duration::from_nanos(nanos as u64)
    }

    fn scenario(&self, requests: &[Recorded], span: Duration, pool: &str) -> Scenario {
        let sum: f64 = requests.iter().map(|request| request.work as f64).sum();
        let mean = Duration::from_nanos((sum / requests.len().max(1) as f64) as u64);
        let time = span + TAIL;
        Scenario {
            zones: 1,
            name: "replay".to_owned(),
            about: format!("Recorded traffic of pool `{pool}`, played again."),
            time,
            warmup: Duration::ZERO,
            balancers: 1,
            keys: 1,
            backends: self
                .slow
                .iter()
                .map(|slow| BackendPlan {
                    priority: 0,
                    zone: 0,
                    slots: self.slots,
                    queue_max: usize::MAX,
                    speed: 1.0 / slow,
                    weight: 1,
                })
                .collect(),
            service: Law::Fixed {
                mean: mean.max(Duration::from_nanos(1)),
            },
            network: Duration::ZERO,
            arrivals: vec![Rate {
                from: Duration::ZERO,
                per_second: requests.len() as f64 / time.as_secs_f64(),
            }],
            client_timeout: None,
            pool: PoolPlan {
                // What was answered in the end is answered here, however long it has to wait.
                response_timeout: None,
                ..PoolPlan::default()
            },
            faults: Vec::new(),
        }
    }
}
