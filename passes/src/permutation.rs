//! Permutations of dimensions.

/// The permutation that undoes one.
pub fn inverse(permutation: &[i64]) -> Vec<i64> {
    let mut all: Vec<i64> = (0..permutation.len() as i64).collect();
    all.sort_by_key(|d| permutation[*d as usize]);
    all
}
