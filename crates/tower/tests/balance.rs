//! What a client sees of its backends, in virtual time.

#[path = "balance/readiness.rs"]
mod readiness;
#[path = "balance/shares.rs"]
mod shares;
#[path = "balance/support.rs"]
mod support;
