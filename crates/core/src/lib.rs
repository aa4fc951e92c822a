//! Load-balancing decisions, with no I/O in them.
//!
//! Four promises: nothing here reads a clock (time is the argument `now`), draws a random number
//! (entropy is the argument `random`), waits for anything outside, or locks and allocates while it picks.
//! One exception to the last: a pick that finds nobody while members or their marks have just been
//! changed takes the pool's lock, which a change holds, takes note of the marks, and looks again; else a
//! request could be turned away for a state that is over.
//!
//! | module | decides |
//! | --- | --- |
//! | [`time`] | what "now" is: a plain number of nanoseconds |
//! | [`backend`] | who a backend is, and its live load |
//! | [`pool`] | the machine that joins the rest: `pick`, `observe`, `probed`, `tick`, `deadline`; `explain` |
//! | [`policy`] | which of the usable backends a request gets |
//! | [`health`] | rise and fall of active checks |
//! | [`ejection`] | what traffic says: failure runs, growing ejection |
//! | [`adaptive`] | healthy or degraded: how much of its weight a backend gets |
//! | [`mod@availability`] | who may be picked; panic |
//! | [`spread`] | which tiers, zones and part of a pool get traffic |
//! | [`retry`] | the retry budget |
//! | [`drain`] | serving → draining → drained |

pub mod adaptive;
pub mod availability;
pub mod backend;
pub mod drain;
pub mod ejection;
pub mod health;
pub(crate) mod measure;
mod padded;
pub mod policy;
pub mod pool;
pub mod retry;
pub mod spread;
pub mod time;

pub use adaptive::{AdaptiveConfig, AdaptiveState};
pub use availability::{Admin, Availability, Mode, availability};
pub use backend::{Address, Backend, Member};
pub use drain::{Drain, DrainConfig, DrainPhase};
pub use ejection::{Ejection, EjectionCause, EjectionConfig};
pub use health::{Health, ProbeResult};
pub use policy::{LoadProbe, LoadReport, LoadSource, PolicyKind, PrequalConfig};
pub use pool::{
    BackendStatus, Claim, EjectionEnd, Event, Explained, Failure, NoPick, Outcome, Pick, Pool,
    PoolConfig, PoolStatus, UnknownBackend,
};
pub use retry::{RetryBudget, RetryBudgetConfig};
pub use spread::{Place, SpreadConfig, Subset};
pub use time::Instant;
