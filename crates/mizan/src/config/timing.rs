//! Relations between time-outs, ours and those of the other side.
//!
//! Each prevents one kind of outage that no single number shows. A relation with an unset number is
//! "not checked", never passed: silence must not look like safety.

mod pools;
mod relation;
mod rules;
mod sides;
mod traffic;

pub use relation::{Relation, Verdict};

use super::diagnostic::Severity;
use super::report::Cx;
use super::schema::File;
use super::tree::Step;

/// A relation and the key that its mend is about.
pub(super) struct Found<'f> {
    pub(super) relation: Relation,
    pub(super) steps: Vec<Step<'f>>,
    /// What to mark where that key is not in the file.
    pub(super) otherwise: Vec<Step<'f>>,
}

/// All relations of a configuration, in the order of their numbers.
pub(super) fn relations(file: &File) -> Vec<Found<'_>> {
    rules::all(file)
}

/// Tells the relations that do not hold. Probes that overlap are an error; the rest are warnings, since
/// the numbers of the other side may be wrong.
pub(super) fn warn(cx: &mut Cx<'_>, file: &File) {
    for Found {
        relation,
        steps,
        otherwise,
    } in relations(file)
    {
        if relation.verdict != Verdict::Fail {
            continue;
        }
        let (severity, code) = match relation.id {
            "T3" => (Severity::Error, "contradiction"),
            _ => (Severity::Warning, "timing"),
        };
        let message = format!(
            "{}: {} must be {} {}",
            relation.id, relation.left, relation.comparison, relation.right
        );
        let mend = relation
            .mend
            .map(|mend| format!("; {mend}"))
            .unwrap_or_default();
        let steps = if cx.tree.find(&steps).is_none() && !otherwise.is_empty() {
            otherwise
        } else {
            steps
        };
        cx.tell(
            &steps,
            severity,
            code,
            message,
            Some(format!("it prevents: {}{mend}", relation.prevents)),
        );
    }
}

#[cfg(test)]
mod tests;
