//! How hashes are split between groups of members.
//!
//! Weighted rendezvous hashing (Thaler and Ravishankar 1998) over the groups, of which there are few: when
//! shares change, hashes move from groups whose share shrinks to those whose share grows, and no others.

use super::mix;

/// Who is in which group, and how much each gets.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Name and share of each that gets something, with its number.
    shares: Vec<(u64, f64, u16)>,
    /// By index in the membership; `ANY` belongs to each.
    of: Vec<u16>,
}

const ANY: u16 = u16::MAX;

impl Groups {
    /// Of groups as names and shares, and the group of each member; `None` belongs to each.
    pub(crate) fn new(
        groups: impl Iterator<Item = (u64, f64)>,
        of: impl Iterator<Item = Option<usize>>,
    ) -> Self {
        let numbered = groups.zip(0..ANY);
        let shares = numbered.filter(|((_, share), _)| *share > 0.0);
        let number = |group: Option<usize>| {
            let number = group.and_then(|group| u16::try_from(group).ok());
            number.unwrap_or(ANY)
        };
        Self {
            shares: shares
                .map(|((name, share), at)| (name, share, at))
                .collect(),
            of: of.map(number).collect(),
        }
    }

    /// The numbers of those that get something.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u16> + '_ {
        self.shares.iter().map(|&(_, _, number)| number)
    }

    /// The group that a hash goes to.
    pub(crate) fn of_hash(&self, hash: u64) -> u16 {
        let score = |&(name, share, number): &(u64, f64, u16)| {
            // In (0, 1].
            let uniform = ((mix(hash ^ mix(name)) >> 11) + 1) as f64 / (1u64 << 53) as f64;
            (share / -uniform.ln(), number)
        };
        let best = self.shares.iter().map(score);
        let best = best.max_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or(ANY, |(_, number)| number)
    }

    /// Whether the member at `index` is of `group`.
    pub(crate) fn has(&self, group: u16, index: usize) -> bool {
        let own = self.of[index];
        own == group || own == ANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(shares: &[f64]) -> Groups {
        let names = (0..).map(|name| name * 7);
        Groups::new(names.zip(shares.iter().copied()), std::iter::empty())
    }

    fn placed(groups: &Groups) -> Vec<u16> {
        (0..20_000).map(|hash| groups.of_hash(mix(hash))).collect()
    }

    #[test]
    fn hashes_move_from_groups_that_shrink_to_those_that_grow_and_no_others() {
        let before = placed(&groups(&[0.7, 0.2, 0.1]));
        for (number, share) in [0.7, 0.2, 0.1].into_iter().enumerate() {
            let own = before
                .iter()
                .filter(|&&at| usize::from(at) == number)
                .count();
            assert!((own as f64 / 20_000.0 - share).abs() < 0.015, "{own}");
        }
        let after = placed(&groups(&[0.4, 0.4, 0.2]));
        let moved: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
        assert!(
            moved.iter().all(|(from, _)| **from == 0),
            "all of the first"
        );
        assert!((moved.len() as f64 / 20_000.0 - 0.3).abs() < 0.015);
    }
}
