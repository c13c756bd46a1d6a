//! Chance that is an argument: a small generator whose numbers never change between
//! versions, since a decision must be the same for the same seed wherever it is made.

/// A stream of numbers from a seed (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, evenly spread over all of them.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 where `bound` is 0.
    fn below(&mut self, bound: u128) -> u128 {
        let wide = (u128::from(self.next()) << 64) | u128::from(self.next());
        wide.checked_rem(bound).unwrap_or(0)
    }

    /// Up to `count` different indexes, each drawn with its weight among those that are left.
    pub fn without_replacement(&mut self, weights: &[u128], count: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..weights.len()).filter(|index| weights[*index] > 0).collect();
        let mut drawn = Vec::new();
        while drawn.len() < count && !left.is_empty() {
            let total = left.iter().fold(0_u128, |sum, index| sum.saturating_add(weights[*index]));
            let mut point = self.below(total);
            let at = left.iter().position(|index| {
                let weight = weights[*index];
                let here = point < weight;
                point = point.saturating_sub(weight);
                here
            });
            drawn.push(left.remove(at.unwrap_or(0)));
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut draw = Draw::new(0);
        assert_eq!([draw.next(), draw.next()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
    }

    #[test]
    fn each_index_is_drawn_once_and_weight_nothing_never() {
        let drawn = Draw::new(7).without_replacement(&[5, 0, 1, u128::MAX], 9);
        let mut sorted = drawn.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 2, 3]);
    }

    #[test]
    fn twice_the_weight_is_drawn_about_twice_as_often() {
        let first = |seed| Draw::new(seed).without_replacement(&[100, 200], 1)[0];
        let heavy = (0..3_000).map(first).filter(|index| *index == 1).count();
        assert!((1_900..2_100).contains(&heavy), "{heavy} of 3000");
    }
}
