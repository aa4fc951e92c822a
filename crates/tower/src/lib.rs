//! Client-side load balancing for [tower](https://docs.rs/tower) services: a Rust client picks among its backends by
//! itself, with the policies, health and ejection of `mizan-core`, and no proxy between.
//!
//! ```
//! use mizan_tower::core::{Address, Member, PoolConfig};
//! use mizan_tower::{Backends, BoxError};
//! use tower::{ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let backends = Backends::new(PoolConfig::default());
//! for port in [9001, 9002] {
//!     let member = Member {
//!         key: format!("b{port}").into(),
//!         address: Address::Ip(([127, 0, 0, 1], port).into()),
//!         weight: 1,
//!         version: "".into(),
//!         in_flight_max: Some(100),
//!         place: Default::default(),
//!     };
//!     let service = service_fn(move |name: &'static str| async move {
//!         Ok::<_, BoxError>(format!("{name}, says {port}"))
//!     });
//!     backends.insert(member, service);
//! }
//! let client = backends.balance();
//! let answer = client.clone().oneshot("hello").await?;
//! assert!(answer.starts_with("hello, says 900"));
//! for backend in backends.status().backends {
//!     println!("{} {} {}", backend.key, backend.state, backend.reason);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`Backends`] owns the pool: members come and go by [`Backends::set`], [`insert`](Backends::insert) and
//!   [`remove`](Backends::remove), or from a discovery's stream ([`Backends::follow`]); configuration is core's own
//!   [`PoolConfig`](core::PoolConfig); [`Backends::status`] tells state and reason of each.
//! - [`Balance`] is the service, with one service for each backend. [`BalanceLayer`] makes one over a single service that
//!   reaches all of them, such as an HTTP client.
//! - [`Classify`] says what a result means for its backend, [`Key`] what policies that hash go by, [`Clock`] what
//!   time it is.
//!
//! There is no task to spawn. What is due (the end of an ejection, the look at the traffic of the last second) is done by the
//! next call or the next look at the status, before anything is decided; who waits for a place has a timer. Only such
//! waiting needs a Tokio runtime, with its timers on.
//!
//! A request is in flight until its response future ends: with HTTP, until the head is there. It does not retry: see
//! `docs/library.md` on how a retry, a time limit and a limit of concurrency stand around it.

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
