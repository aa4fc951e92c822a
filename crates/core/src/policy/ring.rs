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

/// Bits of a place on the ring. Two points at one place stand in the order of their full hashes.
const PLACE_BITS: u32 = 36;

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

/// The points lie in one array by place, cut into *stretches* of about four: a stretch is found by
/// the top bits of a place, so a point needs to hold the rest of its place only, and fits 32 bits
/// with its backend's index. Half the memory is half the cache misses, which is what a pick costs.
pub(crate) struct Ring {
    /// `rest of place << index_bits | index`.
    points: Vec<u32>,
    index_bits: u32,
    /// Where each stretch starts in `points`; one more at the end.
    starts: Vec<u32>,
    /// How far a place is shifted to give its stretch.
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
        let count: u64 = weights
            .iter()
            .map(|&weight| points_of(weight, halvings))
            .sum();

        let index_bits = (names.len().max(2) - 1).ilog2() + 1;
        // So many that the rest of a place leaves room for the index.
        let stretch_bits = (count / 4)
            .max(1)
            .ilog2()
            .max(PLACE_BITS + index_bits - u32::BITS);
        let shift = PLACE_BITS - stretch_bits;
        let mut ring = Self {
            points: Vec::new(),
            index_bits,
            starts: Vec::new(),
            shift,
            names,
        };
        ring.fill(&weights, halvings, count);
        ring
    }

    /// Sorts the points by counting: into stretches, then within each.
    fn fill(&mut self, weights: &[u64], halvings: u32, count: u64) {
        let to_stretch = (u64::BITS - PLACE_BITS) + self.shift;
        let hashes = |names: &[u64], index: usize| {
            let name = names[index];
            (0..points_of(weights[index], halvings)).map(move |replica| mix(name ^ mix(replica)))
        };
        let stretches = 1usize << (PLACE_BITS - self.shift);
        let mut starts = vec![0u32; stretches + 1];
        for index in 0..weights.len() {
            for hash in hashes(&self.names, index) {
                starts[(hash >> to_stretch) as usize + 1] += 1;
            }
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut filled = starts.clone();
        let mut sorted = vec![(0u64, 0u32); count as usize];
        for index in 0..weights.len() {
            for hash in hashes(&self.names, index) {
                let place = &mut filled[(hash >> to_stretch) as usize];
                sorted[*place as usize] = (hash, index as u32);
                *place += 1;
            }
        }
        for bounds in starts.windows(2) {
            sorted[bounds[0] as usize..bounds[1] as usize].sort_unstable();
        }
        self.points = sorted
            .iter()
            .map(|&(hash, index)| self.rest(hash) << self.index_bits | index)
            .collect();
        self.starts = starts;
    }

    /// The part of a hash's place that its stretch does not tell.
    fn rest(&self, hash: u64) -> u32 {
        let place = hash >> (u64::BITS - PLACE_BITS);
        (place & ((1 << self.shift) - 1)) as u32
    }

    /// The first point at or after a hash's place, which may be one past the last.
    fn find(&self, hash: u64) -> usize {
        let stretch = (hash >> (u64::BITS - PLACE_BITS) >> self.shift) as usize;
        let (start, end) = (
            self.starts[stretch] as usize,
            self.starts[stretch + 1] as usize,
        );
        let rest = self.rest(hash);
        let before = |&&point: &&u32| point >> self.index_bits < rest;
        start + self.points[start..end].iter().take_while(before).count()
    }

    fn index(&self, point: u32) -> usize {
        (point & ((1 << self.index_bits) - 1)) as usize
    }

    /// Where nearly all are out: the candidate that scores highest for this hash, in proportion to
    /// weight (rendezvous hashing). Few candidates are left then, so that looking at all is cheap.
    fn highest(&self, view: &View<'_>, hash: u64) -> Option<Claim> {
        let score = |index: usize| {
            // In (0, 1].
            let uniform = ((mix(hash ^ self.names[index]) >> 11) + 1) as f64 / (1u64 << 53) as f64;
            f64::from(view.backend(index).weight()) / -uniform.ln()
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
        let (before, from) = self.points.split_at(self.find(hash));
        from.iter()
            .chain(before)
            .take(WALK_MAX)
            .find_map(|&point| view.claim(self.index(point)))
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
