//! A ring for [consistent hashing](super::hashing) (Karger et al., STOC 1997): a hash is a place on it,
//! and the next point's backend owns it.
//!
//! Each backend has 128 points for each unit of its weight, at places that depend on its key alone.
//! So one that goes takes only its own keys along, and since its points have as many different
//! neighbours, those keys spread over the rest. The ring holds *all* members: one that is out is
//! stepped over, and when it comes back it finds its keys where they were.
//!
//! Memory: 5 bytes a point, 640 a backend of weight 1, 10 MiB at most.

use super::mix;

/// Points of a backend for each unit of weight.
const POINTS: u64 = 128;

/// Most points of one ring. Beyond, everybody's points are halved until they fit (each keeps the
/// first ones, so keys move only once per halving); so the number of a backend's points depends on
/// the others in steps of two only, and only where weights add up to more than 16,384.
const POINTS_MAX: u64 = 1 << 21;

/// Bits of a place on the ring. Two points at one place stand in the order of their full hashes.
const PLACE_BITS: u32 = 36;

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
}

impl Ring {
    /// Over members as their keys' hashes and weights.
    pub(crate) fn new(names: &[u64], weights: &[u64]) -> Self {
        let halvings = halvings(weights);
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
        };
        ring.fill(names, weights, halvings, count);
        ring
    }

    /// Sorts the points by counting: into stretches, then within each.
    fn fill(&mut self, names: &[u64], weights: &[u64], halvings: u32, count: u64) {
        let to_stretch = (u64::BITS - PLACE_BITS) + self.shift;
        let hashes = |index: usize| {
            let name = names[index];
            (0..points_of(weights[index], halvings)).map(move |replica| mix(name ^ mix(replica)))
        };
        let stretches = 1usize << (PLACE_BITS - self.shift);
        let mut starts = vec![0u32; stretches + 1];
        for index in 0..weights.len() {
            for hash in hashes(index) {
                starts[(hash >> to_stretch) as usize + 1] += 1;
            }
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut filled = starts.clone();
        let mut sorted = vec![(0u64, 0u32); count as usize];
        for index in 0..weights.len() {
            for hash in hashes(index) {
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

    /// Visits the owners of the points from `hash` on, at most `steps` of them, until one gives something.
    #[inline]
    pub(crate) fn walk<T>(
        &self,
        hash: u64,
        steps: usize,
        mut visit: impl FnMut(usize) -> Option<T>,
    ) -> Option<T> {
        let (before, from) = self.points.split_at(self.find(hash));
        from.iter()
            .chain(before)
            .take(steps)
            .find_map(|&point| visit(self.index(point)))
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
