//! The shape of a scenario file. Ranges and relations are `check`'s.

use serde::Deserialize;
use toml::Spanned;

use super::text::{Time, Which};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Option<Spanned<String>>,
    pub(super) about: String,
    pub(super) time: Spanned<Time>,
    pub(super) warmup: Option<Spanned<Time>>,
    pub(super) balancers: Option<Spanned<usize>>,
    pub(super) zones: Option<Spanned<u32>>,
    pub(super) keys: Option<Spanned<u64>>,
    pub(super) network: Option<Time>,
    pub(super) client_timeout: Option<Spanned<Time>>,
    pub(super) response_timeout: Option<Spanned<Time>>,
    pub(super) propagation: Option<Time>,
    pub(super) ejection: Option<bool>,
    pub(super) panic_threshold: Option<Spanned<f64>>,
    pub(super) service: Spanned<Service>,
    pub(super) backends: Spanned<Vec<Group>>,
    pub(super) arrivals: Spanned<Arrivals>,
    pub(super) retry: Option<Retry>,
    pub(super) probes: Option<Spanned<Probes>>,
    #[serde(default)]
    pub(super) faults: Vec<Spanned<Fault>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    pub(super) law: LawName,
    pub(super) mean: Option<Spanned<Time>>,
    pub(super) sigma: Option<Spanned<f64>>,
    pub(super) fast: Option<Spanned<Time>>,
    pub(super) slow: Option<Spanned<Time>>,
    pub(super) slow_share: Option<Spanned<f64>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LawName {
    Fixed,
    Exponential,
    Lognormal,
    Bimodal,
}

/// Backends that are alike.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) count: Spanned<usize>,
    pub(super) slots: Option<Spanned<usize>>,
    pub(super) queue_max: Option<usize>,
    pub(super) speed: Option<Spanned<f64>>,
    pub(super) weight: Option<Spanned<u32>>,
    pub(super) priority: Option<Spanned<u32>>,
    pub(super) zone: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arrivals {
    pub(super) load: Option<Spanned<f64>>,
    pub(super) rate: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) steps: Vec<Spanned<Step>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) at: Spanned<Time>,
    #[serde(rename = "for")]
    pub(super) length: Option<Spanned<Time>>,
    pub(super) load: Option<Spanned<f64>>,
    pub(super) rate: Option<Spanned<f64>>,
    pub(super) factor: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Retry {
    pub(super) tries_max: Option<Spanned<u32>>,
    pub(super) reset: Option<bool>,
    pub(super) timeout: Option<bool>,
    #[serde(default)]
    pub(super) statuses: Vec<Spanned<u16>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Probes {
    pub(super) interval: Option<Spanned<Time>>,
    pub(super) timeout: Option<Time>,
    pub(super) rise: Option<u32>,
    pub(super) fall: Option<u32>,
}

/// All keys of all kinds: which of them a kind has, `check` knows. (An enum with a tag would lose the
/// places of its values.)
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    pub(super) kind: Spanned<Kind>,
    pub(super) backends: Spanned<Which>,
    pub(super) from: Spanned<Time>,
    pub(super) to: Option<Spanned<Time>>,
    pub(super) step: Option<Time>,
    pub(super) factor: Option<Spanned<f64>>,
    pub(super) period: Option<Spanned<Time>>,
    pub(super) length: Option<Spanned<Time>>,
    pub(super) steal: Option<Spanned<f64>>,
    pub(super) on: Option<Spanned<Time>>,
    pub(super) off: Option<Spanned<Time>>,
    pub(super) floor: Option<Spanned<f64>>,
    pub(super) status: Option<Spanned<u16>>,
    pub(super) after: Option<Spanned<Time>>,
    pub(super) share: Option<Spanned<f64>>,
    pub(super) probes_pass: Option<Spanned<bool>>,
    pub(super) up: Option<Spanned<Time>>,
    pub(super) down: Option<Spanned<Time>>,
    pub(super) grace: Option<Spanned<Time>>,
    pub(super) cold_speed: Option<Spanned<f64>>,
    pub(super) warm_requests: Option<Spanned<u64>>,
    pub(super) warm_time: Option<Spanned<Time>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Slow,
    GcPause,
    Antagonist,
    BrownOut,
    BlackHole,
    Hang,
    SlowFail,
    ColdStart,
    Flap,
    Kill,
    Leave,
}
