//! The simulation of one policy: events in the order of virtual time.
//!
//! | module | has |
//! | --- | --- |
//! | `arrivals` | when requests come, and what each brings |
//! | `events` | what happens next |
//! | `request` | requests on their way |
//! | `station` | slots and queue of a backend |
//! | `backend`, `faults` | what is wrong with it, and when |
//! | `balancer` | the core's pool, as the product drives it |
//! | `flow` | the life of a request |
//! | `load` | backends are asked how much they have to do |
//! | `control` | ticks, probes, membership, faults |
//! | `weigher` | weights by rules of others, for comparison |

use std::time::Duration;

use crate::contender::Contender;
use crate::random::Random;
use crate::record::Record;
use crate::scenario::Scenario;

mod arrivals;
mod backend;
mod balancer;
mod control;
mod events;
mod faults;
mod flow;
mod load;
mod request;
mod station;
mod weigher;

use arrivals::Arrivals;
use backend::Backend;
use balancer::Balancer;
use events::{Event, Events, Next};
use faults::{Change, time_line};
use request::Requests;

pub(crate) use request::{Arrival, Cause};

/// Between two looks of a balancer at what is due, as in the product.
const TICK: u64 = 20_000_000;

/// A world of balancers and backends under one policy.
pub(crate) struct Engine<'s> {
    scenario: &'s Scenario,
    now: u64,
    /// From balancer to backend, nanoseconds.
    network: u64,
    events: Events,
    requests: Requests,
    arrivals: Box<dyn Iterator<Item = Arrival> + 's>,
    balancers: Vec<Balancer>,
    backends: Vec<Backend>,
    time_line: Vec<Change>,
    /// Whether each fault accounts for an ejection.
    excuses: Vec<bool>,
    /// One draw for each pick.
    picks: Random,
    /// All else: probes, back-offs, news.
    chance: Random,
    record: Record,
}

impl<'s> Engine<'s> {
    pub(crate) fn new(scenario: &'s Scenario, seed: u64, contender: impl Into<Contender>) -> Self {
        let mut arrivals = Arrivals::new(scenario, seed);
        let drawn = std::iter::from_fn(move || arrivals.next());
        Self::of(scenario, seed, contender, Box::new(drawn))
    }

    /// The same with these arrivals, in the order of their times.
    pub(crate) fn of(
        scenario: &'s Scenario,
        seed: u64,
        contender: impl Into<Contender>,
        arrivals: Box<dyn Iterator<Item = Arrival> + 's>,
    ) -> Self {
        let mut chance = Random::new(seed, 4);
        let contender = contender.into();
        let balancers: Vec<Balancer> = (0..scenario.balancers)
            .map(|number| Balancer::new(scenario, contender, number, chance.next()))
            .collect();
        let mut engine = Self {
            scenario,
            now: 0,
            network: scenario.network.as_nanos() as u64,
            events: Events::default(),
            requests: Requests::default(),
            arrivals,
            balancers,
            backends: scenario.backends.iter().map(Backend::new).collect(),
            time_line: time_line(scenario),
            excuses: excuses(scenario),
            picks: Random::new(seed, 3),
            chance,
            record: Record::new(scenario),
        };
        engine.begin();
        engine
    }

    /// Runs until the last request has ended; gives what was recorded.
    pub(crate) fn run(mut self) -> (Record, PoolAtEnd) {
        let mut arrival = self.arrivals.next();
        loop {
            let event_at = self.events.next_at();
            match arrival {
                Some(next) if next.at <= event_at => {
                    self.pass_to(next.at);
                    self.arrive(next);
                    arrival = self.arrivals.next();
                }
                None if self.requests.under_way() == 0 => break,
                _ => {
                    self.pass_to(event_at);
                    let Some(next) = self.events.pop() else {
                        break;
                    };
                    self.happen(next);
                }
            }
        }
        self.record.close(self.requests.arrived());
        let balancer = self.balancers.swap_remove(0);
        (
            self.record,
            PoolAtEnd {
                balancer,
                now: self.now,
            },
        )
    }

    /// First events of all that recurs.
    fn begin(&mut self) {
        for balancer in 0..self.balancers.len() as u32 {
            let at = self.chance.below(TICK);
            self.events.push(at, Event::Tick { balancer });
            self.begin_weighing(balancer);
            for backend in 0..self.backends.len() as u32 {
                self.begin_probing(balancer, backend, self.backends.len());
            }
        }
        if self.balancers.iter().any(Balancer::goes_by_load_reports) {
            self.begin_asking();
        }
        self.push_change(0);
    }

    fn pass_to(&mut self, at: u64) {
        self.now = at;
        self.record.pass_to(at);
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Reached(id) => self.reached(id),
            Next::Answered(id, answer) => self.answered(id, answer),
            Next::TryTimeout(id) => self.try_timed_out(id),
            Next::ClientTimeout(slot, number) => self.client_timed_out(slot, number),
            Next::Event(event) => self.event(event),
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Served { backend } => self.served(backend),
            Event::Reply { id, answer } => {
                let at = self.now + self.network;
                self.events.push_answered(at, id, answer);
            }
            Event::Retry { slot, number } => {
                if self.requests.is_under_way(slot, number) {
                    self.begin_try(slot);
                }
            }
            Event::Tick { balancer } => self.tick(balancer),
            Event::Weigh { balancer } => self.weigh(balancer),
            Event::Members { balancer } => self.hear_members(balancer),
            Event::Probe {
                balancer,
                backend,
                is_first,
            } => self.probe(balancer, backend, is_first),
            Event::Probed {
                balancer,
                backend,
                verdict,
            } => self.balancers[balancer as usize].probed(self.now, backend, verdict),
            Event::Ask { balancer } => self.ask(balancer),
            Event::Asked {
                balancer,
                backend,
                workers,
            } => self.asked(balancer, backend, workers),
            Event::Told {
                balancer,
                backend,
                workers,
                load,
            } => self.balancers[balancer as usize].told(self.now, backend, (workers, load)),
            Event::Fault { change } => self.change(change),
            Event::Drift { backend } => {
                self.backends[backend as usize].is_drifting = false;
                self.adjust(backend);
            }
        }
    }
}

/// A balancer as a simulation left it, to measure what its picks cost.
#[derive(Debug)]
pub(crate) struct PoolAtEnd {
    balancer: Balancer,
    now: u64,
}

impl PoolAtEnd {
    /// Real time of a pick and the return of its claim, by `stopwatch`.
    pub(crate) fn time_of_pick(&self, stopwatch: fn() -> Duration) -> Duration {
        const PICKS: u32 = 100_000;
        let mut random = Random::new(0, 5);
        let begin = stopwatch();
        for _ in 0..PICKS {
            let (number, hash) = (random.next(), random.next());
            drop(self.balancer.pick(self.now, number, (hash, &[])));
        }
        stopwatch().saturating_sub(begin) / PICKS
    }
}

/// Whether each fault accounts for an ejection. What only slows all backends alike does not: nobody
/// else would be faster.
fn excuses(scenario: &Scenario) -> Vec<bool> {
    let all = scenario.backends.len();
    let faults = scenario.faults.iter();
    faults
        .map(|fault| {
            let hits_all = fault.backends.len() == all && fault.step.is_zero();
            fault.kind.loses_requests() || !hits_all
        })
        .collect()
}
