//! Small builders that every decomposition uses: typed arithmetic, scalars, broadcasts along an axis, reductions that keep their dims.
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, value::DType};

/// A builder with arithmetic.
pub(super) struct Math<'a> {
    pub b: &'a Builder,
}

impl Math<'_> {
    pub fn unary(&self, kind: UnaryKind, x: Value) -> Result<Value, String> {
        let op = self.b.generic(kind.op().name(), &[x], &[x.ty()], &[], &mut [])?;
        Ok(op.result(0))
    }
    pub fn binary(&self, kind: BinaryKind, x: Value, y: Value) -> Result<Value, String> {
        let op = self.b.generic(kind.op().name(), &[x, y], &[x.ty()], &[], &mut [])?;
        Ok(op.result(0))
    }
    pub fn add(&self, x: Value, y: Value) -> Result<Value, String> {
        self.binary(BinaryKind::Add, x, y)
    }
    pub fn sub(&self, x: Value, y: Value) -> Result<Value, String> {
        self.binary(BinaryKind::Sub, x, y)
    }
    pub fn mul(&self, x: Value, y: Value) -> Result<Value, String> {
        self.binary(BinaryKind::Mul, x, y)
    }
    pub fn div(&self, x: Value, y: Value) -> Result<Value, String> {
        self.binary(BinaryKind::Div, x, y)
    }
    /// A number everywhere in the shape and dtype of `like`.
    pub fn full_like(&self, like: Value, value: f64) -> Result<Value, String> {
        self.b.splat(dtype(like)?, &self.b.sizes_of(like)?, value)
    }
    pub fn convert(&self, x: Value, to: DType) -> Result<Value, String> {
        if dtype(x)? == to { Ok(x) } else { self.b.add(&Convert { input: x, dtype: Type::scalar(self.b.ctx, to) }) }
    }
    /// `x`, whose dimension i is dimension dims[i] of `like`, repeated to the shape of `like`.
    pub fn broadcast_to(&self, x: Value, dims: &[i64], like: Value) -> Result<Value, String> {
        self.b.add(&BroadcastInDim { input: x, dims: dims.to_vec(), sizes: self.b.sizes_of(like)? })
    }
    /// Reduces `x` along `dims` and repeats the result to the shape of `x` again.
    pub fn reduce_and_spread(&self, kind: ReduceKind, x: Value, dims: &[i64]) -> Result<Value, String> {
        let r = self.b.add(&Reduce { kind, input: x, dims: dims.to_vec() })?;
        self.broadcast_to(r, &others(rank(x), dims), x)
    }
}

pub(super) fn dtype(v: Value) -> Result<DType, String> {
    tensor_type(v.ty()).map(|t| t.dtype)
}
pub(super) fn rank(v: Value) -> usize {
    v.ty().dims().len()
}
/// The dims of a rank that are not in `dims`, ascending.
pub(super) fn others(rank: usize, dims: &[i64]) -> Vec<i64> {
    (0..rank as i64).filter(|d| !dims.contains(d)).collect()
}
/// What statistics and exponentials of a dtype are computed in: f32 for floats of 16 bits and less.
pub(super) fn wide(d: DType) -> DType {
    if d.is_float() && d.bits() <= 16 { DType::F32 } else { d }
}
