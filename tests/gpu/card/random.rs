//! Random numbers in the order of PyTorch's CUDA kernels, against NumPy's model of these.
use super::*;
use crate::capture::random::all_misaligned;

pub static SUITE: Suite = Suite {
    name: "random",
    count: || 1,
    label: |_| "numbers of PyTorch's CUDA generator".into(),
    check: |_| all_misaligned(&options()).map_or_else(|e| failed(&e), Outcome::of),
    whole: true,
    emulated: 1,
};
