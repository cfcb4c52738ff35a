//! Indexing with tensors of i64 or i32 indices.
use super::{Tensor, arg::Arg};
use std::panic::Location;

impl Tensor {
    /// Gather: `r[i][j] = x[index[i][j]][j]` for dimension 0, and so on. Error: the ranks differ.
    #[track_caller]
    pub fn gather(&self, dim: i64, index: impl Into<Tensor>) -> Tensor {
        let index = index.into();
        match (self.rank(), index.rank()) {
            (Ok(a), Ok(b)) if a != b => {
                self.refuse("gather", format!("has an index of rank {b} for a tensor of rank {a}"))
            }
            _ => self.call(
                "gather",
                "aten.gather.default",
                [("dim", dim.into()), ("index", index.into())],
            ),
        }
    }
    /// Selects slices along a dimension by a 1-d index. Error: an index of more than one dimension.
    #[track_caller]
    pub fn index_select(&self, dim: i64, index: impl Into<Tensor>) -> Tensor {
        let index = index.into();
        match index.rank() {
            Ok(n) if n > 1 => {
                self.refuse("index_select", format!("wants an index of one dimension, has {n}"))
            }
            _ => self.call(
                "index_select",
                "aten.index_select.default",
                [("dim", dim.into()), ("index", index.into())],
            ),
        }
    }
    /// Embedding lookup: rows of this table [V, D] by index.
    #[track_caller]
    pub fn embedding(&self, indices: impl Into<Tensor>) -> Tensor {
        let args = vec![("weight", Arg::tensor(self)), ("indices", Arg::tensor(indices))];
        let [r] =
            super::emit::exactly(Location::caller(), "embedding", "aten.embedding.default", args);
        r
    }
}
