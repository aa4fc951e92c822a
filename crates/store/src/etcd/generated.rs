//! Messages of etcd's protocol, made by `crates/store/generate`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated code is as its generator writes it"
)]

pub(super) mod etcdserverpb;
pub(super) mod mvccpb;
