//! The data path, from a client's socket to a backend's and back.
//!
//! ```text
//! listen ─▶ connection ─▶ exchange ─▶ plan ─▶ forward ─▶ response_head ─▶ relay ─▶ record
//!           (idle)        (burst)     route    pick       upload     splice
//!            ├─▶ http2        │       │         connect
//!            │   (each stream │       └──▶ answer (Mizan's own)
//!            │   an exchange) └── h1: the codec, bytes in and bytes out
//!            ├─▶ upgrade ─▶ tunnel ─▶ record    (what an exchange that ended with a 101 leaves behind)
//!            └─▶ tcp ─▶ tunnel ─▶ record        (what is handed through unread)
//! udp ─▶ record                                  (datagrams, from the socket on)
//!
//! transport: a socket, TLS over it, or a stream of HTTP/2; the same to all above
//! ```
//!
//! Everything here runs on a worker's thread. It cannot name `config`, `store`, `control` or `admin`: traffic
//! survives a dead store and a bad file by construction.

mod again;
mod answer;
mod body;
mod buffer;
mod connect;
mod connection;
pub mod cut;
mod error;
mod exchange;
pub mod explain;
mod forward;
mod grpc;
pub mod headers;
pub mod http2;
pub mod listen;
mod meter;
mod patience;
mod plan;
mod proxy_header;
mod queue;
mod record;
mod relay;
mod response_head;
mod retry_after;
mod socket;
mod splice;
mod sys;
mod tcp;
mod timer;
mod tls;
mod transport;
mod trust;
mod tunnel;
mod udp;
mod upgrade;
mod upload;
mod upstream;
mod watch;
pub mod worker;
