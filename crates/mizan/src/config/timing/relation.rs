//! A relation between two numbers, and how it came out.

use serde::Serialize;

/// How a relation came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Pass,
    /// It does not hold.
    Fail,
    /// A number is not known.
    NotChecked,
}

/// A relation between two numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Relation {
    /// Its number, such as `T5`.
    pub id: &'static str,
    /// What it is about: `pool api`, `listener edge`; empty: the whole process.
    pub subject: String,
    /// The key to look at, such as `drain.window`.
    pub path: String,
    /// Left side, with its arithmetic: `window 15s + deadline 30s + 5s = 50s`.
    pub left: String,
    /// `more than`, `less than`, `at least` or `at most`.
    pub comparison: &'static str,
    /// Right side, with its arithmetic.
    pub right: String,
    /// By how much it holds or not, such as `10s`; negative if it does not.
    pub margin: Option<String>,
    /// How it came out.
    pub verdict: Verdict,
    /// Why it could not be checked; else empty.
    pub reason: String,
    /// The outage that it prevents.
    pub prevents: &'static str,
    /// The smallest change that makes it hold.
    pub mend: Option<String>,
}
