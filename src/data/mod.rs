//! Batches of examples for training: [datasets](Dataset), and a [loader](Loader) that shuffles them
//! and has the next batches ready, on a GPU as well.
//!
//! ```
//! use kiln::{Tensor, data::{Loader, Rows}};
//! let x = Tensor::from_slice(&[5, 2], &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])?;
//! let t = Tensor::from_slice(&[5], &[0i64, 1, 2, 3, 4])?;
//! let loader = Loader::new(Rows::new((x, t))?, 2).shuffle(1);
//! let mut seen = vec![];
//! for batch in loader.epoch(0)? {
//!     let (x, t) = batch?;
//!     assert_eq!(x.rank()?, 2);
//!     seen.extend(t.to_vec::<i64>()?);
//! }
//! seen.sort();
//! assert_eq!(seen, [0, 1, 2, 3, 4]);
//! # Ok::<(), kiln::Error>(())
//! ```
mod loader;
mod queue;
mod rows;

pub use loader::{Epoch, Loader};
pub use rows::{Rows, stack};

use crate::{compile::Tree, tensor::TraceError};

/// Examples by number. [`Rows`] has them in tensors; others compute or read them, on the threads of
/// a [`Loader`].
pub trait Dataset: Send + Sync {
    /// A batch: tensors, and tuples and lists of them. Examples are along the first dimension.
    type Batch: Tree;
    /// The number of examples.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The batch of these examples, in host memory; [`stack`] joins examples. Err: one cannot be
    /// had.
    fn batch(&self, examples: &[usize]) -> Result<Self::Batch, TraceError>;
}
