//! Mizan: a load balancer and reverse proxy.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`cli`] | one file a command; talks to a running instance through the admin API only |
//! | [`app`] | composition root: starts and stops the parts in order |
//! | [`config`] | file → schema → compile → [`snapshot::Snapshot`], or all diagnostics |
//! | [`snapshot`] | the compiled configuration: the only place where `config` and `proxy` meet |
//! | [`proxy`] | the data path |
//! | [`prober`] | active health checks |
//! | [`admin`] | API, `/metrics`, `/livez`, `/readyz` |
//! | [`lab`] | the edge laboratory: demonstration backends and the drill |
//! | [`certificate`], [`clock`], [`telemetry`] | leaves that any module may use |

pub mod admin;
pub mod app;
pub mod certificate;
pub mod cli;
pub mod client_hello;
pub mod clock;
pub mod config;
pub mod control;
pub mod h1;
pub mod lab;
pub mod lack;
pub mod orca;
pub mod prober;
pub mod proxy;
pub mod proxy_protocol;
pub mod snapshot;
pub mod telemetry;
pub mod websocket;
