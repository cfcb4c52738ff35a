//! Permutations of dimensions.

/// The permutation that undoes one.
pub fn inverse(permutation: &[i64]) -> Vec<i64> {
    let mut all: Vec<i64> = (0..permutation.len() as i64).collect();
    all.sort_by_key(|d| permutation[*d as usize]);
    all
}

/// The permutation from NCHW to NHWC, or the like of other ranks.
pub fn channels_last(rank: usize) -> Vec<i64> {
    let spatial = 2..rank as i64;
    [0].into_iter().chain(spatial).chain([1]).take(rank).collect()
}

/// The permutation from NHWC to NCHW, or the like of other ranks.
pub fn channels_first(rank: usize) -> Vec<i64> {
    let last = rank as i64 - 1;
    [0, last].into_iter().chain(1..last).take(rank).collect()
}
