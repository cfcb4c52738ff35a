//! Dimension arguments of reductions and squeeze.
use std::ops::RangeFull;

/// One dimension, several, or `..` for all; negative ones count from the end.
pub trait Axes {
    /// The dimensions; `None` for all.
    fn axes(self) -> Option<Vec<i64>>;
}

impl Axes for RangeFull {
    fn axes(self) -> Option<Vec<i64>> {
        None
    }
}
macro_rules! axes {
    ($($t:ty),*) => { $(
        impl Axes for $t {
            fn axes(self) -> Option<Vec<i64>> {
                Some(vec![self as i64])
            }
        }
        impl<const N: usize> Axes for [$t; N] {
            fn axes(self) -> Option<Vec<i64>> {
                Some(self.iter().map(|x| *x as i64).collect())
            }
        }
        impl Axes for &[$t] {
            fn axes(self) -> Option<Vec<i64>> {
                Some(self.iter().map(|x| *x as i64).collect())
            }
        }
    )* };
}
axes!(i64, i32, usize);
