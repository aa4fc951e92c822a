//! When a request may be sent again, and where.

use super::error::Reason;
use super::forward::{Failed, Request};
use super::upload::Upload;
use crate::clock;
use crate::snapshot::Pool;
use crate::telemetry::cause::Cause;

/// Why a pool's tries are over without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopped {
    pub(super) reason: Reason,
    /// Another pool may stand in for it: this one has nobody to give, or lost what it was given and may not have it again.
    pub(super) may_go_on: bool,
}

impl Stopped {
    /// That it is over for the request, too.
    pub(super) fn for_good(reason: Reason) -> Self {
        Self {
            reason,
            may_go_on: false,
        }
    }
}

/// Whether a pool had nobody to give.
pub(super) fn is_nobody_there(reason: Reason) -> bool {
    matches!(
        reason.unreached(),
        Some(Cause::NoBackend | Cause::ConnectRefused | Cause::ConnectTimeout | Cause::TlsFailed)
    )
}

/// Whether sending it again cannot do anything twice that must be done once.
pub(super) fn is_safe(failed: &Failed, request: &Request<'_>, upload: &Upload) -> bool {
    if !upload.is_replayable() {
        return false;
    }
    if failed.undelivered {
        return true;
    }
    let on = &request.pool.retry.on;
    request.plan.idempotent
        && match failed.reason {
            Reason::Reset
            | Reason::PoolReuse
            | Reason::BadResponse(_)
            | Reason::WrongProtocol
            | Reason::BadResponseChunk(_)
            | Reason::BadInterim => on.reset,
            Reason::ResponseTimeout => on.timeout,
            Reason::RetryStatus(_) => true,
            _ => false,
        }
}

/// Whether the connection went with the request, so that nobody will answer it.
pub(super) fn is_lost(reason: Reason) -> bool {
    matches!(reason, Reason::Reset | Reason::PoolReuse)
}

/// What provably reached nothing costs no backend anything: it draws on no budget. A status has paid already.
pub(super) fn has_budget(failed: &Failed, pool: &Pool) -> bool {
    failed.undelivered
        || matches!(failed.reason, Reason::RetryStatus(_))
        || pool.core.retry_budget().withdraw(clock::now())
}

/// The first further try goes to another backend at once; later ones wait, with full jitter.
pub(super) async fn back_off(pool: &Pool, tries: u32) {
    if tries < 2 || pool.retry.backoff.is_zero() {
        return;
    }
    let most = (pool.retry.backoff * 2u32.saturating_pow(tries - 2)).min(pool.retry.backoff_max);
    let part = (clock::random() >> 11) as f64 / (1u64 << 53) as f64;
    tokio::time::sleep(most.mul_f64(part)).await;
}
