//! Promises of the built binary, over real sockets.
//!
//! Each test starts a `mizan` of its own with a configuration of its own, on ports of its own, between
//! backends and clients that are scripted to the byte (`support`). Nothing here waits for a fixed time:
//! a test waits until what it is about has happened, up to a deadline that only a failure reaches.

mod adaptive;
mod blame;
mod certificates;
mod client_auth;
mod commands;
mod cut;
mod discovery;
mod drain;
mod edges;
mod explain;
mod failover;
mod fallback;
mod faults;
mod grpc;
mod http;
mod http2;
mod http2_abuse;
mod http2_backend;
mod http2_flow;
mod http2_life;
mod http2_smuggling;
mod instances;
mod lab;
mod limits;
mod prequal;
mod proxy_protocol;
mod reload;
mod replay;
mod responses;
mod retry;
mod store;
mod strict;
mod support;
mod table_commands;
mod tcp;
mod tls;
mod tls_upstream;
mod told;
mod tools;
mod udp;
mod waiting;
mod websocket;
mod websocket_drain;
mod websocket_life;
