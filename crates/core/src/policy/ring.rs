//! Consistent hashing: the request's hash is a place on a ring, and the next point's backend owns it.
//!
//! Each backend has 128 points for each unit of its weight, at places that depend on its key alone.
//! So one that goes takes only its own keys along, and since its points have as many different
//! neighbours, those keys spread over the rest. The ring holds *all* members: one that is out is
//! stepped over, and when it comes back it finds its keys where they were.

use crate::pool::Claim;

use super::{Membership, Policy, View, mix};

/// Points of a backend for each unit of weight.
const POINTS: u64 = 128;

/// Most points of one ring. Beyond, everybody's points are halved until they fit (each keeps the
/// first ones, so keys move only once per halving); so the number of a backend's points depends on
/// the others in steps of two only, and only where weights add up to more than 16,384.
const POINTS_MAX: u64 = 1 << 21;

/// Points walked over before the owner is sought among the candidates instead: with one in two out,
/// a pick walks over two.
const WALK_MAX: usize = 48;

/// Bits of a place; the rest of a point's word is the backend's index.
const PLACE_BITS: u32 = 40;
const INDEX_BITS: u32 = 64 - PLACE_BITS;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// FNV-1a, finished by SplitMix64. The same for ever, on every machine: keys would move if it
/// changed. Also meant for hashing what [`crate::Pick::hash`] is made of.
pub const fn stable_hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash ^= bytes[at] as u64;
        hash = hash.wrapping_mul(0x0000_0100_0000_01B3);
        at += 1;
    }
    mix(hash)
}

pub(crate) struct Ring {
    /// Points by place: `place << INDEX_BITS | index`.
    points: Vec<u64>,
    /// For each value of a place's top bits, the first point at or after it.
    starts: Vec<u32>,
    /// How far a place is shifted to give those bits.
    shift: u32,
    /// Each member's hash.
    names: Vec<u64>,
}

impl Ring {
    pub(crate) fn new(membership: &Membership) -> Self {
        let backends = &membership.backends;
        let names: Vec<u64> = backends
            .iter()
            .map(|backend| stable_hash(backend.key().as_bytes()))
            .collect();
        let weights: Vec<u64> = backends
            .iter()
            .map(|backend| u64::from(backend.weight()))
            .collect();
        let halvings = halvings(&weights);
        let mut points = Vec::new();
        for ((&name, &weight), index) in names.iter().zip(&weights).zip(0u64..) {
            for replica in 0..points_of(weight, halvings) {
                points.push(place(name, replica) << INDEX_BITS | index);
            }
        }
        points.sort_unstable();
        // About four points for each start: the table stays small, and the walk in it short.
        let bits = (points.len() as u64 / 4).max(1).ilog2();
        let shift = PLACE_BITS - bits;
        let starts = starts(&points, bits, shift);
        Self {
            points,
            starts,
            shift,
            names,
        }
    }

    /// The first point at or after `place`, which may be one past the last.
    fn find(&self, place: u64) -> usize {
        let mut at = self.starts[(place >> self.shift) as usize] as usize;
        while at < self.points.len() && self.points[at] >> INDEX_BITS < place {
            at += 1;
        }
        at
    }

    /// Where nearly all are out: the candidate that scores highest for this hash, in proportion to
    /// weight (rendezvous hashing). Few candidates are left then, so that looking at all is cheap.
    fn highest(&self, view: &View<'_>, hash: u64) -> Option<Claim> {
        let score = |index: usize| {
            // In (0, 1].
            let uniform = ((mix(hash ^ self.names[index]) >> 11) + 1) as f64 / (1u64 << 53) as f64;
            f64::from(view.backend(index).live().weight()) / -uniform.ln()
        };
        view.candidates
            .iter()
            .map(|&index| index as usize)
            .filter(|&index| view.is_eligible(index))
            .max_by(|&a, &b| score(a).total_cmp(&score(b)))
            .and_then(|index| view.claim(index))
    }
}

impl Policy for Ring {
    fn pick(&self, view: &View<'_>) -> Option<Claim> {
        let hash = mix(view.pick.hash.unwrap_or(view.pick.random));
        let start = self.find(hash >> INDEX_BITS);
        let (before, from) = self.points.split_at(start);
        from.iter()
            .chain(before)
            .take(WALK_MAX)
            .find_map(|point| view.claim((point & INDEX_MASK) as usize))
            .or_else(|| self.highest(view, hash))
    }
}

fn halvings(weights: &[u64]) -> u32 {
    (0..u64::BITS)
        .find(|&halvings| {
            let total: u64 = weights
                .iter()
                .map(|&weight| points_of(weight, halvings))
                .sum();
            // With none to give up any more it is as it is: one point each.
            total <= POINTS_MAX || total <= weights.len() as u64
        })
        .unwrap_or(0)
}

fn points_of(weight: u64, halvings: u32) -> u64 {
    if weight == 0 {
        0
    } else {
        ((weight * POINTS) >> halvings).max(1)
    }
}

/// Where a backend's point lies.
fn place(name: u64, replica: u64) -> u64 {
    mix(name ^ mix(replica)) >> INDEX_BITS
}

fn starts(points: &[u64], bits: u32, shift: u32) -> Vec<u32> {
    let mut starts = Vec::with_capacity(1 << bits);
    let mut at = 0;
    for top in 0..1u64 << bits {
        while at < points.len() && points[at] >> INDEX_BITS < top << shift {
            at += 1;
        }
        starts.push(at as u32);
    }
    starts
}
