//! Helpers of the rows that move elements: sizes, dimensions, positions.
use super::{Cx, index::index_dims_to, tools::*};
use crate::capture::srepr::size_op;
use kiln_dialects::{ir::*, ops::*, value::DType};

impl Cx {
    /// Difference of sizes.
    pub fn size_sub(&self, x: Size, y: Size) -> Result<Size> {
        if x == y {
            return Ok(Size::Static(0));
        }
        self.size_add(x, self.size_mul(y, Size::Static(-1))?)
    }
    /// Remainder of sizes, of the sign of the divisor.
    pub fn size_mod(&self, x: Size, y: Size) -> Result<Size> {
        size_op(&self.b, SymKind::Mod, x, y)
    }
    /// Product of a list of sizes.
    pub fn size_product(&self, all: &[Size]) -> Result<Size> {
        all.iter().try_fold(Size::Static(1), |n, s| self.size_mul(n, *s))
    }
    /// The number of elements.
    pub fn numel(&self, x: Value) -> Result<Size> {
        self.size_product(&self.b.sizes_of(x)?)
    }
    /// The elements as a vector.
    pub fn flat(&self, x: Value) -> Result<Value> {
        if rank_of(x) == 1 { Ok(x) } else { self.reshape(x, vec![self.numel(x)?]) }
    }
    /// A 0-d tensor as a vector of one element; others unchanged.
    pub fn vector(&self, x: Value) -> Result<Value> {
        if rank_of(x) == 0 { self.reshape(x, vec![Size::Static(1)]) } else { Ok(x) }
    }
    /// `v` in the shape of `like`.
    pub fn shaped_as(&self, v: Value, like: Value) -> Result<Value> {
        if v.ty().dims() == like.ty().dims() {
            return Ok(v);
        }
        self.reshape(v, self.b.sizes_of(like)?)
    }
    /// A size as a 0-d i64 tensor.
    pub fn size_value(&self, n: Size) -> Result<Value> {
        self.b.size_as_tensor(n, DType::I64)
    }
    /// The i64 vector 0, 1, …, n - 1.
    pub fn count(&self, n: Size) -> Result<Value> {
        self.iota(DType::I64, vec![n], 0)
    }
    /// Dimension `i` of the input becomes dimension `dims[i]` of a shape.
    pub fn spread(&self, x: Value, dims: &[i64], sizes: &[Size]) -> Result<Value> {
        self.b.add(&BroadcastInDim { input: x, dims: dims.to_vec(), sizes: sizes.to_vec() })
    }
    /// Pads one dimension with zeros before and after.
    pub fn zero_padded(&self, input: Value, axis: usize, low: Size, high: Size) -> Result<Value> {
        let value = self.number(dtype_of(input)?, 0.0)?;
        let only = |n: Size| -> Vec<Size> {
            (0..rank_of(input)).map(|d| if d == axis { n } else { Size::Static(0) }).collect()
        };
        self.b.add(&Pad { input, value, low: only(low), high: only(high) })
    }
    /// Inserts a dimension of size 1.
    pub fn unsqueezed(&self, x: Value, at: usize) -> Result<Value> {
        let mut sizes = self.b.sizes_of(x)?;
        if at > sizes.len() {
            return Err(
                format!("has rank {}, so no dimension {at} can be added", sizes.len()).into()
            );
        }
        sizes.insert(at, Size::Static(1));
        self.reshape(x, sizes)
    }
    /// Drops a dimension of size 1.
    pub fn dropped(&self, x: Value, at: usize) -> Result<Value> {
        let sizes = self.b.sizes_of(x)?;
        let rest = sizes.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, s)| *s);
        self.reshape(x, rest.collect())
    }
    /// Moves a dimension; the others keep their order.
    pub fn moved_axis(&self, x: Value, from: usize, to: usize) -> Result<Value> {
        if from == to {
            return Ok(x);
        }
        let mut order: Vec<i64> = (0..rank_of(x) as i64).filter(|d| *d != from as i64).collect();
        if to > order.len() {
            return Err(format!("has no dimension {to}").into());
        }
        order.insert(to, from as i64);
        self.transpose(x, order)
    }
    /// Elements `start`, …, `start + length - 1` of a dimension.
    pub fn part(&self, x: Value, axis: usize, start: Size, length: Size) -> Result<Value> {
        super::view::cut(self, x, axis, start, length, 1)?.apply(&self.b, x)
    }
    /// A concatenation.
    pub fn joined(&self, inputs: Vec<Value>, axis: usize) -> Result<Value> {
        match inputs.as_slice() {
            [one] => Ok(*one),
            _ => Ok(self.b.add(&Concat { inputs, axis: axis as i64 })?),
        }
    }
    /// Elements along one dimension by non-negative positions, whose dimensions take its place.
    pub fn take_axis(&self, x: Value, index: Value, axis: usize) -> Result<Value> {
        let v = self.b.add(&Gather { input: x, indices: vec![index], dims: vec![axis as i64] })?;
        index_dims_to(self, v, rank_of(index), axis)
    }
    /// Elements along one dimension by non-negative positions of the same rank, as torch.gather.
    pub fn pick(&self, x: Value, index: Value, axis: usize) -> Result<Value> {
        let sizes = self.b.sizes_of(index)?;
        let indices = (0..rank_of(x))
            .map(|i| if i == axis { Ok(index) } else { self.iota(DType::I64, sizes.clone(), i) })
            .collect::<Result<_, _>>()?;
        self.b.add(&Gather { input: x, indices, dims: (0..rank_of(x) as i64).collect() })
    }
    /// A reduction of an axis; `maybe_empty` gives the identity of no elements.
    pub fn reduced(&self, kind: ReduceKind, x: Value, dims: &[i64]) -> Result<Value> {
        self.b.add(&Reduce { kind, input: x, dims: dims.to_vec(), maybe_empty: true })
    }
    /// An inclusive scan.
    pub fn scanned(&self, kind: CumulativeKind, x: Value, axis: usize) -> Result<Value> {
        self.b.add(&Cumulative { kind, input: x, axis: axis as i64 })
    }
    /// Values in ascending order, and their former positions.
    pub fn sorted(&self, x: Value, axis: usize) -> Result<(Value, Value)> {
        let op = self.b.create_node(&Sort { input: x, axis: axis as i64, descending: false })?;
        Ok((op.result(0), op.result(1)))
    }
    /// Adds updates to, or assigns them at, non-negative positions along one dimension. The first
    /// dimension of `index` stands for it in `updates`.
    pub fn scattered(
        &self,
        kind: ScatterKind,
        x: Value,
        updates: Value,
        index: Value,
        axis: usize,
    ) -> Result<Value> {
        let updates = self.moved_axis(updates, axis, 0)?;
        let (indices, dims) = (vec![index], vec![axis as i64]);
        self.b.add(&Scatter { kind, input: x, updates, indices, dims })
    }
    /// A tensor of bools as bytes, on which sums, scans, sorts and scatters are defined.
    pub fn unboxed(&self, x: Value) -> Result<Value> {
        if dtype_of(x)? == DType::I1 { self.convert(x, DType::UI8) } else { Ok(x) }
    }
}

/// The float dtype in which 16-bit floats are computed.
pub(super) fn wide(d: DType) -> DType {
    if d.is_float() && d.bits() < 32 { DType::F32 } else { d }
}
