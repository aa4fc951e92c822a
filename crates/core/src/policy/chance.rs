//! Random numbers out of one.

/// SplitMix64's finaliser: turns one random number into an independent other.
pub(crate) const fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number below `bound` from the top 32 bits of `random`. `bound` is at most 2³².
pub(crate) const fn below(random: u64, bound: usize) -> usize {
    (((random >> 32) * bound as u64) >> 32) as usize
}
