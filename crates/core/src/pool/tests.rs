//! The pool's promises, in virtual time.

mod adapting;
mod bounded;
mod carried;
mod ejected;
mod explained;
mod fairness;
mod hashing;
mod panicking;
mod peaks;
mod prequal;
mod probing;
mod refusing;
mod simulated;
mod spreading;
mod stress;
mod support;
mod waiting;
