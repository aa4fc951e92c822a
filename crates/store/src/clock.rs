//! The one place of this crate that reads time and entropy.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What time it is: the system's, or in tests whatever they say.
pub trait Clock: Debug + Send + Sync {
    /// Time that only goes on, since some moment of this process.
    fn monotonic(&self) -> Duration;

    /// Time since the Unix epoch, as the machine's clock has it: it can be set, also back.
    fn wall(&self) -> Duration;
}

/// The system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one that may read the clock"
)]
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for System {
    #[expect(
        clippy::disallowed_methods,
        reason = "this module is the one that may read the clock"
    )]
    fn monotonic(&self) -> Duration {
        let origin = *ORIGIN;
        Instant::now().duration_since(origin)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this module is the one that may read the clock"
    )]
    fn wall(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }
}

/// 64 random bits, not for secrets: from the keys of the standard library's hash maps, which are the system's entropy.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(System.wall())
}
