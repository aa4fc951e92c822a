//! How a relation is put together: two sides, how they must compare, and how that came out.

use super::{Found, Relation, Verdict};
use crate::config::text::{Text, Time, show_time};
use crate::config::tree::Step;
use std::time::Duration;

/// What both sides are made of.
pub(super) struct Sides<'f> {
    pub(super) id: &'static str,
    pub(super) subject: String,
    pub(super) steps: Vec<Step<'f>>,
    pub(super) otherwise: Vec<Step<'f>>,
    pub(super) prevents: &'static str,
}

/// A side: its arithmetic and its value, in nanoseconds or in thousandths.
pub(super) struct Side {
    pub(super) text: String,
    pub(super) value: i128,
}

impl Side {
    pub(super) fn time(text: String, value: Duration) -> Self {
        Self {
            text,
            value: i128::try_from(value.as_nanos()).unwrap_or(i128::MAX),
        }
    }
}

/// How the left side must compare to the right one.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Must {
    More,
    Less,
    AtMost,
    AtLeast,
}

impl Must {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::More => "more than",
            Self::Less => "less than",
            Self::AtMost => "at most",
            Self::AtLeast => "at least",
        }
    }

    pub(super) fn holds(self, left: i128, right: i128) -> bool {
        match self {
            Self::More => left > right,
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::AtLeast => left >= right,
        }
    }
}

impl<'f> Sides<'f> {
    pub(super) fn times(self, left: Side, must: Must, right: Side, mend: String) -> Found<'f> {
        let show = |nanos: i128| {
            let sign = if nanos < 0 { "-" } else { "" };
            format!(
                "{sign}{}",
                show_time(Duration::from_nanos(
                    u64::try_from(nanos.abs()).unwrap_or(u64::MAX)
                ))
            )
        };
        self.compare(left, must, right, &show, mend)
    }

    pub(super) fn compare(
        self,
        left: Side,
        must: Must,
        right: Side,
        show: &dyn Fn(i128) -> String,
        mend: String,
    ) -> Found<'f> {
        let holds = must.holds(left.value, right.value);
        let margin = match must {
            Must::More | Must::AtLeast => left.value - right.value,
            Must::Less | Must::AtMost => right.value - left.value,
        };
        let verdict = if holds { Verdict::Pass } else { Verdict::Fail };
        let relation = Relation {
            margin: Some(show(margin)),
            verdict,
            mend: (!holds).then_some(mend),
            ..self.relation(left.text, must, right.text, String::new())
        };
        Found {
            relation,
            steps: self.steps,
            otherwise: self.otherwise,
        }
    }

    pub(super) fn not_checked(
        self,
        left: &str,
        must: Must,
        right: &str,
        reason: String,
    ) -> Found<'f> {
        let relation = self.relation(left.to_owned(), must, right.to_owned(), reason);
        Found {
            relation,
            steps: self.steps,
            otherwise: self.otherwise,
        }
    }

    pub(super) fn relation(
        &self,
        left: String,
        must: Must,
        right: String,
        reason: String,
    ) -> Relation {
        let (id, subject, prevents) = (self.id, self.subject.clone(), self.prevents);
        let path = crate::config::tree::show_steps(&self.steps);
        let (margin, verdict, mend) = (None, Verdict::NotChecked, None);
        Relation {
            id,
            subject,
            path,
            left,
            comparison: must.word(),
            right,
            margin,
            verdict,
            reason,
            prevents,
            mend,
        }
    }
}

pub(super) fn process<'f>(
    id: &'static str,
    keys: [&'f str; 2],
    prevents: &'static str,
) -> Sides<'f> {
    Sides {
        id,
        subject: String::new(),
        steps: keys.into_iter().map(Step::Key).collect(),
        otherwise: Vec::new(),
        prevents,
    }
}

pub(super) fn in_pool<'f>(
    id: &'static str,
    name: &'f str,
    keys: [&'f str; 2],
    prevents: &'static str,
) -> Sides<'f> {
    let steps = ["pool", name]
        .into_iter()
        .chain(keys)
        .map(Step::Key)
        .collect();
    Sides {
        id,
        subject: format!("pool {name}"),
        steps,
        otherwise: Vec::new(),
        prevents,
    }
}

pub(super) fn shown(time: Duration) -> String {
    show_time(time)
}

pub(super) fn unset(what: &str) -> String {
    format!("`{what}` is not set")
}

/// A time-out that is switched on.
pub(super) fn on(time: &Text<Time>) -> Option<Duration> {
    Some(time.value.0).filter(|time| !time.is_zero())
}

/// Whole milliseconds, rounded down.
pub(super) fn shown_floor(time: Duration) -> String {
    shown(Duration::from_millis(
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
    ))
}

/// Rounded, so that 0.1 + 0.2 is 0.3.
pub(super) fn thousandths(value: f64) -> i128 {
    (value * 1000.0).round() as i128
}

pub(super) fn show_thousandths(value: i128) -> String {
    format!("{}", value as f64 / 1000.0)
}
