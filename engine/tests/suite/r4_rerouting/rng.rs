//! A small seeded generator (SplitMix64), so that a seed is a whole run.

/// The only source of chance in the model.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator whose sequence is fixed by `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; `n` must not be zero.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "an empty range has no element");
        (self.next() % n as u64) as usize
    }

    /// True in `percent` of the calls.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}
