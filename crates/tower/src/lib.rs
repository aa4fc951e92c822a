//! Client-side balancing.

mod backends;
mod balance;
mod classify;
mod clock;
mod driver;
mod error;
mod future;
mod in_flight;
mod key;
mod layer;
mod source;

pub use backends::{Backends, Change};
pub use balance::{Balance, CANDIDATES_MAX};
#[cfg(feature = "http")]
pub use classify::HttpStatus;
pub use classify::{AnyResponse, Classify, Verdict, failure};
pub use clock::{Clock, TokioClock};
pub use error::{BoxError, Error};
pub use future::ResponseFuture;
pub use key::{Key, NoKey};
#[cfg(feature = "http")]
pub use layer::SetAuthority;
pub use layer::{BalanceLayer, Direct, Reach, ToBackend};
pub use mizan_core as core;
pub use source::{Source, Table};
