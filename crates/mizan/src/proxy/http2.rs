//! HTTP/2 on both sides, as streams that carry HTTP/1.1.
//!
//! The wire form of HTTP/1.1 is the neutral form in which any two protocols meet: a stream of a client is read as the
//! request that a client of HTTP/1.1 would have sent, and takes the answer in the same form; a stream to a backend the
//! other way round. So there is one strict parser, one place where heads are written, one relay and one `forward` for
//! all four pairings, and what is refused in one protocol is refused in the other.
//!
//! ```text
//! frames ─▶ h2 ─▶ head ──convert──▶ HTTP/1.1 ─▶ exchange, forward, relay ─▶ HTTP/1.1 ──convert──▶ h2 ─▶ frames
//!                 data ──inflow───▶  bytes                                   bytes  ──outflow──▶
//! ```
//!
//! Flow control goes through: data are read from the peer's window when they are copied onwards, and written as far as
//! its window allows.

pub(super) mod client;
pub mod convert;
pub mod grpc_web;
mod inflow;
mod io;
mod outflow;
mod ping;
pub(super) mod server;
mod strain;
pub(super) mod unfit;
mod websocket;
