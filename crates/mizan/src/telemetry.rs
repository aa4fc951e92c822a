//! What Mizan says about itself: metrics, the access log, and its own log.
//!
//! Made for the hot path. A counter has one writer (its worker), so counting is a load, an add and a
//! store, with no locked instruction and no cache line that two workers write. Label values become
//! positions once for each snapshot ([`Metrics::register`]), not once for each request. Log lines are
//! formatted into the worker's own buffer, and full buffers go to a thread that may wait for a disk.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`metrics`] | counters by worker, their labels, and the hot path's entry points |
//! | [`cause`] | why a request reached nothing, and why one was tried again |
//! | [`histogram`] | latencies in log-linear buckets |
//! | [`exposition`] | the text that Prometheus reads, and the committed list of metrics |
//! | [`access_log`] | one JSON line for each request |
//! | [`json`] | strings and times as JSON, without serde |
//! | [`logging`] | everything else that is logged |

pub mod access_log;
pub mod cause;
pub mod exposition;
#[cfg(test)]
pub(crate) mod fixture;
pub mod histogram;
pub mod json;
pub mod logging;
pub mod metrics;

pub use access_log::{AccessLog, AccessLogger, AccessRecord};
pub use cause::{Cause, ConnectionRefusal, ReloadResult, RetryCause};
pub use histogram::Histogram;
pub use logging::{
    LogFormat, LogLevel, LogQueue, LoggingError, OncePerSecond, chain, init_logging,
};
pub use metrics::{
    BackendCounter, Counter, Finished, Metrics, OpenConnection, Place, Series, StoreFigures,
    WorkerSeries,
};
