//! What is compared: a policy, and how much the pool around it makes of how requests end.
//!
//! Baselines are the code that ships with parts of it switched off, so that a figure tells what those parts are worth.
//! The two rules that weigh backends from outside are others' (`engine::weigher`); what they set the shipping policy
//! `random` follows.

use mizan_core::PolicyKind;

/// How much a balancer makes of how requests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// All that the product does: penalties, ejection, adaptive weights, and the scenario's probes.
    Full,
    /// The policy itself hears of it, nobody else does: no probes, no ejection, and weights stay as configured.
    Policy,
    /// Nobody hears of it. What is left is what is in flight.
    None,
    /// As `Policy`, and weights are set from outside by a rule.
    Weights(WeightRule),
}

/// Rules by others that turn latency and failures into a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightRule {
    /// Each second: 1 − (latency − 100 ms) ÷ 100 ms, if that is slower, − 10 × share of failures; 0.1 at least. The
    /// formula as a document had it that this product began with; its fixed 100 ms are its own.
    FixedBaseline,
    /// LinkedIn D2's relative strategy, each 5 s: a score falls by 0.2 where latency is 1.3 times the mean of all or
    /// failures are a tenth, and rises by 0.05 where it is 1.2 times or less; it begins at 1, and is 0.01 at least.
    Relative,
}

/// A policy in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Who gets a request.
    pub policy: PolicyKind,
    /// What the rest of the pool does.
    pub care: Care,
}

impl From<PolicyKind> for Contender {
    /// The policy as it ships.
    fn from(policy: PolicyKind) -> Self {
        Self {
            policy,
            care: Care::Full,
        }
    }
}

impl Contender {
    /// Two choices by requests in flight and nothing else, against which no default may be worse.
    pub const TWO_CHOICES: Self = Self::plain(PolicyKind::PowerOfTwo);
    /// Two choices by latency at its worst, without health.
    pub const PEAK_EWMA: Self = Self {
        policy: PolicyKind::PeakEwma,
        care: Care::Policy,
    };
    /// All that the default is compared with.
    pub const BASELINES: [Self; 7] = [
        Self::TWO_CHOICES,
        Self::PEAK_EWMA,
        Self::plain(PolicyKind::LeastConnections),
        Self::plain(PolicyKind::RoundRobin),
        Self::plain(PolicyKind::Random),
        Self::weighted(WeightRule::FixedBaseline),
        Self::weighted(WeightRule::Relative),
    ];

    const fn plain(policy: PolicyKind) -> Self {
        Self {
            policy,
            care: Care::None,
        }
    }

    const fn weighted(rule: WeightRule) -> Self {
        Self {
            policy: PolicyKind::Random,
            care: Care::Weights(rule),
        }
    }

    /// Its name in tables: the policy's where all is as it ships.
    pub fn name(self) -> String {
        let policy = self.policy.name();
        match self.care {
            Care::Full => policy.to_owned(),
            Care::Policy | Care::None => format!("plain {policy}"),
            Care::Weights(WeightRule::FixedBaseline) => "fixed baseline".to_owned(),
            Care::Weights(WeightRule::Relative) => "D2 relative".to_owned(),
        }
    }
}
