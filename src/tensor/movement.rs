//! Methods that reshape, reorder, slice or concatenate.
use super::{Axes, Dim, Graph, Operand, Shape, Tensor, arg::Arg};
use std::panic::Location;

impl Tensor {
    /// Reshapes; one size may be -1 and is inferred. Error: another number of elements.
    #[track_caller]
    pub fn reshape(&self, shape: impl Shape) -> Tensor {
        self.call("reshape", "aten.reshape.default", [("shape", shape.dims().into())])
    }
    /// As [`Tensor::reshape`]: traced values have no strides.
    #[track_caller]
    pub fn view(&self, shape: impl Shape) -> Tensor {
        self.call("view", "aten.view.default", [("size", shape.dims().into())])
    }
    /// Flattens dimensions `start` to `end`, inclusive, into one.
    #[track_caller]
    pub fn flatten(&self, start: i64, end: i64) -> Tensor {
        self.call(
            "flatten",
            "aten.flatten.using_ints",
            [("start_dim", start.into()), ("end_dim", end.into())],
        )
    }
    /// Splits one dimension into several; one of the sizes may be -1.
    #[track_caller]
    pub fn unflatten(&self, dim: i64, shape: impl Shape) -> Tensor {
        self.call(
            "unflatten",
            "aten.unflatten.int",
            [("dim", dim.into()), ("sizes", shape.dims().into())],
        )
    }
    /// Swaps two dimensions.
    #[track_caller]
    pub fn transpose(&self, a: i64, b: i64) -> Tensor {
        self.call("transpose", "aten.transpose.int", [("dim0", a.into()), ("dim1", b.into())])
    }
    /// Permutes the dimensions.
    #[track_caller]
    pub fn permute(&self, dims: impl Axes) -> Tensor {
        self.call("permute", "aten.permute.default", [("dims", dims.axes().into())])
    }
    /// Transposes a matrix; a vector is unchanged. Error: more than two dimensions.
    #[track_caller]
    pub fn t(&self) -> Tensor {
        match self.rank() {
            Ok(n) if n > 2 => self.refuse("t", format!("wants at most 2 dimensions, has {n}")),
            _ => self.call("t", "aten.t.default", []),
        }
    }
    /// Removes those of the dimensions that have size 1; `..` for all of them.
    #[track_caller]
    pub fn squeeze(&self, dims: impl Axes) -> Tensor {
        match dims.axes() {
            Some(dims) => {
                self.call("squeeze", "aten.squeeze.dims", [("dim", dims.as_slice().into())])
            }
            None => self.call("squeeze", "aten.squeeze.default", []),
        }
    }
    /// Inserts a dimension of size 1.
    #[track_caller]
    pub fn unsqueeze(&self, dim: i64) -> Tensor {
        self.call("unsqueeze", "aten.unsqueeze.default", [("dim", dim.into())])
    }
    /// Broadcasts dimensions of size 1 and new leading ones; -1 keeps a size.
    #[track_caller]
    pub fn expand(&self, shape: impl Shape) -> Tensor {
        self.call("expand", "aten.expand.default", [("size", shape.dims().into())])
    }
    /// As [`Tensor::expand`].
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Shape) -> Tensor {
        self.call("broadcast_to", "aten.expand.default", [("size", shape.dims().into())])
    }
    /// A slice of `length` elements along a dimension, from `start`.
    #[track_caller]
    pub fn narrow(&self, dim: i64, start: impl Into<Dim>, length: impl Into<Dim>) -> Tensor {
        let (start, length) = (start.into(), length.into());
        if length.known().is_some_and(|n| n < 0) {
            return self.refuse("narrow", format!("has length {length}, which is negative"));
        }
        self.call(
            "narrow",
            "aten.narrow.default",
            [("dim", dim.into()), ("start", start.into()), ("length", length.into())],
        )
    }
    /// Python's `x[..., start:end]` along a dimension: negative bounds count from the end, and both
    /// are clamped. [`END`](super::END) is the end.
    #[track_caller]
    pub fn slice(&self, dim: i64, start: impl Into<Dim>, end: impl Into<Dim>) -> Tensor {
        self.slice_step(dim, start, end, 1)
    }
    /// As [`Tensor::slice`], with a stride of `step`. Error: a step below 1.
    #[track_caller]
    pub fn slice_step(
        &self,
        dim: i64,
        start: impl Into<Dim>,
        end: impl Into<Dim>,
        step: i64,
    ) -> Tensor {
        let (start, end) = (start.into(), end.into());
        self.call(
            "slice",
            "aten.slice.Tensor",
            [
                ("dim", dim.into()),
                ("start", start.into()),
                ("end", end.into()),
                ("step", step.into()),
            ],
        )
    }
    /// Selects one index along a dimension, and removes the dimension.
    #[track_caller]
    pub fn select(&self, dim: i64, index: impl Into<Dim>) -> Tensor {
        self.call(
            "select",
            "aten.select.int",
            [("dim", dim.into()), ("index", index.into().into())],
        )
    }
    /// Splits a dimension into parts of `size` elements; the last one may be smaller. Error: a size
    /// below 1, or a symbolic dimension.
    #[track_caller]
    pub fn split(&self, size: i64, dim: i64) -> Vec<Tensor> {
        if size < 1 {
            return vec![self.refuse("split", format!("has parts of size {size}"))];
        }
        let args =
            vec![("self", Arg::tensor(self)), ("split_size", size.into()), ("dim", dim.into())];
        self.counted(
            dim,
            size,
            super::emit::row(Location::caller(), "split", "aten.split.Tensor", args),
        )
    }
    /// Splits a dimension into parts of these sizes. Error: their sum is not the dimension's size.
    #[track_caller]
    pub fn split_with_sizes<const N: usize>(&self, sizes: [i64; N], dim: i64) -> [Tensor; N] {
        let total = sizes.iter().try_fold(0i64, |n, s| n.checked_add(*s));
        let size = self.rank().ok().filter(|n| {
            usize::try_from(if dim < 0 { dim + *n as i64 } else { dim }).is_ok_and(|d| d < *n)
        });
        if let Some(n) = size.and_then(|_| self.size(dim).known()).filter(|n| Some(*n) != total) {
            let poisoned = self
                .refuse("split_with_sizes", format!("has sizes {sizes:?} for a dimension of {n}"));
            return std::array::from_fn(|_| poisoned.clone());
        }
        self.call_many(
            "split_with_sizes",
            "aten.split_with_sizes.default",
            [("split_sizes", sizes.as_slice().into()), ("dim", dim.into())],
        )
    }
    /// Splits a dimension into `N` parts of equal size; the last one may be smaller. Error:
    /// `torch.chunk` would give fewer.
    #[track_caller]
    pub fn chunk<const N: usize>(&self, dim: i64) -> [Tensor; N] {
        self.call_many(
            "chunk",
            "aten.chunk.default",
            [("chunks", (N as i64).into()), ("dim", dim.into())],
        )
    }
    /// Splits a dimension into single indices, and removes it.
    #[track_caller]
    pub fn unbind(&self, dim: i64) -> Vec<Tensor> {
        self.counted(
            dim,
            1,
            super::emit::row(
                Location::caller(),
                "unbind",
                "aten.unbind.int",
                vec![("self", Arg::tensor(self)), ("dim", dim.into())],
            ),
        )
    }
    /// On failure, returns as many poisoned parts as this call's sizes imply, so that the function
    /// can go on indexing them.
    fn counted(&self, dim: i64, size: i64, parts: Vec<Tensor>) -> Vec<Tensor> {
        let dims = self.dims().unwrap_or_default();
        let at = usize::try_from(if dim < 0 { dim + dims.len() as i64 } else { dim }).ok();
        let hint =
            at.and_then(|at| dims.get(at)).filter(|d| d.known().is_none()).and_then(|d| d.hint());
        match (parts.as_slice(), hint) {
            ([one], Some(n)) if one.is_poisoned() => {
                vec![
                    one.clone();
                    usize::try_from(n.div_euclid(size) + i64::from(n % size != 0)).unwrap_or(1)
                ]
            }
            _ => parts,
        }
    }
    /// Reverses dimensions.
    #[track_caller]
    pub fn flip(&self, dims: impl Axes) -> Tensor {
        let dims = dims.axes().unwrap_or_else(|| (0..self.rank().unwrap_or(0) as i64).collect());
        self.call("flip", "aten.flip.default", [("dims", dims.as_slice().into())])
    }
    /// Rotates elements along dimensions, with wrap-around.
    #[track_caller]
    pub fn roll(&self, shifts: &[i64], dims: &[i64]) -> Tensor {
        if !dims.is_empty() && dims.len() != shifts.len() {
            return self.refuse(
                "roll",
                format!("has {} shifts for {} dimensions", shifts.len(), dims.len()),
            );
        }
        self.call("roll", "aten.roll.default", [("shifts", shifts.into()), ("dims", dims.into())])
    }
    /// Tiles along each dimension, and along new leading ones.
    #[track_caller]
    pub fn repeat(&self, repeats: impl Shape) -> Tensor {
        self.call("repeat", "aten.repeat.default", [("repeats", repeats.dims().into())])
    }
    /// Pads with `value`: pairs (before, after) from the last dimension on; negative counts crop.
    #[track_caller]
    pub fn pad(&self, pairs: impl Shape, value: impl Into<Operand>) -> Tensor {
        self.call(
            "pad",
            "aten.pad.default",
            [("pad", pairs.dims().into()), ("value", Arg::Operand(value.into()))],
        )
    }
}

impl Graph {
    /// Concatenates along a dimension, with type promotion. Error: an empty list, or other sizes
    /// differ.
    #[track_caller]
    pub fn cat(&self, tensors: &[Tensor], dim: i64) -> Tensor {
        self.join("cat", "aten.cat.default", tensors, dim, Location::caller())
    }
    /// Stacks tensors of one shape along a new dimension.
    #[track_caller]
    pub fn stack(&self, tensors: &[Tensor], dim: i64) -> Tensor {
        self.join("stack", "aten.stack.default", tensors, dim, Location::caller())
    }
    fn join(
        &self,
        op: &'static str,
        target: &'static str,
        tensors: &[Tensor],
        dim: i64,
        site: &'static Location<'static>,
    ) -> Tensor {
        if tensors.is_empty() {
            return self.refuse(site, op, "joins no tensors", &[]);
        }
        let [r] =
            self.exactly(site, op, target, vec![("tensors", tensors.into()), ("dim", dim.into())]);
        r
    }
}
