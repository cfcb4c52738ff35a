//! Builders that the decompositions share: typed arithmetic, scalars, sizes, broadcasts along an
//! axis, keepdim reductions.
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, sym, value::DType};

/// A builder with arithmetic. The result has the type of the operands, which have one type.
pub(crate) struct Math<'a> {
    pub b: &'a Builder,
}

/// Replaces each op by the values that `make` builds before it, cast to the types of its results.
/// Ops for which `make` returns none stay.
pub(crate) fn replace_ops(
    root: Op,
    mut make: impl FnMut(&Math, Op) -> Option<Result<Vec<Value>>>,
) -> Result<()> {
    for op in walk(root) {
        let Some(b) = Builder::before(op) else { continue };
        let m = Math { b: &b };
        let Some(values) = make(&m, op) else { continue };
        for (old, new) in op.results().into_iter().zip(values.at(op)?) {
            old.replace_uses(m.retype(new, old.ty()).at(op)?);
        }
        op.erase();
    }
    Ok(())
}

impl Math<'_> {
    pub fn unary(&self, kind: UnaryKind, x: Value) -> Result<Value> {
        let op = self.b.generic(kind.op().name(), &[x], &[x.ty()], &[], &mut [])?;
        Ok(op.result(0))
    }
    pub fn binary(&self, kind: BinaryKind, x: Value, y: Value) -> Result<Value> {
        let op = self.b.generic(kind.op().name(), &[x, y], &[x.ty()], &[], &mut [])?;
        Ok(op.result(0))
    }
    pub fn add(&self, x: Value, y: Value) -> Result<Value> {
        self.binary(BinaryKind::Add, x, y)
    }
    pub fn sub(&self, x: Value, y: Value) -> Result<Value> {
        self.binary(BinaryKind::Sub, x, y)
    }
    pub fn mul(&self, x: Value, y: Value) -> Result<Value> {
        self.binary(BinaryKind::Mul, x, y)
    }
    pub fn div(&self, x: Value, y: Value) -> Result<Value> {
        self.binary(BinaryKind::Div, x, y)
    }
    pub fn compare(&self, kind: CompareKind, lhs: Value, rhs: Value) -> Result<Value> {
        self.b.add(&Compare { kind, lhs, rhs })
    }
    pub fn select(&self, condition: Value, on_true: Value, on_false: Value) -> Result<Value> {
        self.b.add(&Select { condition, on_true, on_false })
    }
    /// A splat of a number with the shape and dtype of `like`.
    pub fn full_like(&self, like: Value, value: f64) -> Result<Value> {
        self.b.splat(dtype(like)?, &self.sizes_of(like)?, value)
    }
    pub fn convert(&self, x: Value, to: DType) -> Result<Value> {
        if dtype(x)? == to {
            Ok(x)
        } else {
            self.b.add(&Convert { input: x, dtype: Type::scalar(self.b.ctx, to) })
        }
    }
    /// Broadcasts `x` to the shape of `like`; dimension i of `x` is dimension dims[i] of `like`.
    pub fn broadcast_to(&self, x: Value, dims: &[i64], like: Value) -> Result<Value> {
        self.broadcast(x, dims, &self.sizes_of(like)?)
    }
    /// Broadcasts `x` to `sizes`; dimension i of `x` is dimension dims[i] of the result.
    pub fn broadcast(&self, x: Value, dims: &[i64], sizes: &[Size]) -> Result<Value> {
        self.b.add(&BroadcastInDim { input: x, dims: dims.to_vec(), sizes: sizes.to_vec() })
    }
    /// Reduces `x`. Unless the dims are known to be non-empty, `maybe_empty` makes the maximum of
    /// none -inf.
    pub fn reduce(&self, kind: ReduceKind, x: Value, dims: &[i64]) -> Result<Value> {
        let sizes = x.ty().dims();
        let some = dims.iter().all(|d| sizes[*d as usize].known().is_some_and(|n| n > 0));
        let maybe_empty = matches!(kind, ReduceKind::Max | ReduceKind::Min) && !some;
        self.b.add(&Reduce { kind, input: x, dims: dims.to_vec(), maybe_empty })
    }
    /// Broadcasts `r`, which is `like` reduced along `dims`, to the shape of `like`.
    pub fn broadcast_back(&self, r: Value, dims: &[i64], like: Value) -> Result<Value> {
        self.broadcast_to(r, &complement(rank(like), dims), like)
    }
    /// Reduces `x` along `dims` and broadcasts the result to the shape of `x`.
    pub fn reduce_and_broadcast(&self, kind: ReduceKind, x: Value, dims: &[i64]) -> Result<Value> {
        self.broadcast_back(self.reduce(kind, x, dims)?, dims, x)
    }
    pub fn reshape(&self, x: Value, sizes: &[Size]) -> Result<Value> {
        self.b.add(&Reshape { input: x, sizes: sizes.to_vec() })
    }
    pub fn transpose(&self, x: Value, permutation: &[i64]) -> Result<Value> {
        if permutation.is_sorted() {
            Ok(x)
        } else {
            self.b.add(&Transpose { input: x, permutation: permutation.to_vec() })
        }
    }
    pub fn iota(&self, sizes: &[Size], axis: usize) -> Result<Value> {
        self.b.add(&Iota {
            sizes: sizes.to_vec(),
            axis: axis as i64,
            dtype: Type::scalar(self.b.ctx, DType::I64),
        })
    }
    /// The mean along `dims`.
    pub fn mean(&self, x: Value, dims: &[i64]) -> Result<Value> {
        let sum = self.reduce(ReduceKind::Sum, x, dims)?;
        self.div(sum, self.number_like(self.count(x, dims)?, sum)?)
    }
    /// The number of elements of `x` along `dims`.
    pub fn count(&self, x: Value, dims: &[i64]) -> Result<Size> {
        let sizes =
            dims.iter().map(|d| self.size_of(x, *d as usize)).collect::<Result<Vec<_>, _>>()?;
        self.product(&sizes)
    }
    /// `x / (1 - p)` where the uniform random number of the element is at least `p`, else 0.
    pub fn dropout(&self, x: Value, key: Value, p: f64) -> Result<Value> {
        let draw = Type::scalar(self.b.ctx, DType::F32);
        let u = self.b.add(&RandomUniform {
            key,
            sizes: self.sizes_of(x)?,
            dtype: draw,
            low: 0.0,
            high: 1.0,
        })?;
        let u = self.convert(u, DType::F64)?;
        let kept = self.compare(CompareKind::Ge, u, self.full_like(u, p)?)?;
        let scaled = self.div(x, self.full_like(x, 1.0 - p)?)?;
        self.select(kept, scaled, self.full_like(x, 0.0)?)
    }

    // ---- sizes
    /// All sizes of a value, static or as SSA values.
    pub fn sizes_of(&self, v: Value) -> Result<Vec<Size>> {
        (0..rank(v)).map(|i| self.size_of(v, i)).collect()
    }
    /// One size of a value. Dynamic sizes are traced through shape-preserving ops, so that few
    /// `kiln.dim` are left.
    pub fn size_of(&self, mut v: Value, mut axis: usize) -> Result<Size> {
        loop {
            let stated = |sizes: Vec<Size>| {
                sizes.get(axis).copied().ok_or_else(|| format!("has no dimension {axis}"))
            };
            let Some(op) =
                v.def().filter(|_| v.ty().dims().get(axis).is_some_and(|d| d.known().is_none()))
            else {
                return self.b.size_of(v, axis);
            };
            if let Some(o) = BroadcastInDim::of(op) {
                return Ok(stated(o.sizes)?);
            } else if let Some(o) = Reshape::of(op) {
                return Ok(stated(o.sizes)?);
            } else if let Some(o) = Splat::of(op) {
                return Ok(stated(o.sizes)?);
            } else if let Some(o) = Iota::of(op) {
                return Ok(stated(o.sizes)?);
            } else if let Some(o) = Reduce::of(op) {
                axis = complement(rank(o.input), &o.dims)[axis] as usize;
                v = o.input;
            } else if op.kind().is_some_and(|k| k.is_elementwise()) {
                v = op.operand(0);
            } else {
                return self.b.size_of(v, axis);
            }
        }
    }
    /// A size as an SSA value.
    pub fn index(&self, s: Size) -> Result<Value> {
        match s {
            Size::Static(n) => self.b.index(n),
            Size::Dynamic(v) => Ok(v),
        }
    }
    /// Applies a size operation, folded if both sizes are static.
    pub fn size(&self, kind: SymKind, x: Size, y: Size) -> Result<Size> {
        match (kind, x.known(), y.known()) {
            (_, Some(x), Some(y)) => {
                let n = sym::evaluate(kind, x, y).ok_or_else(|| {
                    format!("has an undefined size: {} of {x} and {y}", kind.keyword())
                })?;
                Ok(Size::Static(n))
            }
            (SymKind::Mul | SymKind::Floordiv, _, Some(1)) | (SymKind::Add, _, Some(0)) => Ok(x),
            (SymKind::Mul, Some(1), _) => Ok(y),
            _ => {
                let (lhs, rhs) = (self.index(x)?, self.index(y)?);
                let op = self.b.create_with(
                    &SymExpr { kind, lhs, rhs },
                    &[Type::index(self.b.ctx)],
                    &mut [],
                )?;
                Ok(Size::Dynamic(op.result(0)))
            }
        }
    }
    /// The product of sizes.
    pub fn product(&self, sizes: &[Size]) -> Result<Size> {
        sizes.iter().try_fold(Size::Static(1), |n, s| self.size(SymKind::Mul, n, *s))
    }
    /// A size as a 0-d tensor of dtype `to`.
    pub fn number(&self, size: Size, to: DType) -> Result<Value> {
        self.b.size_as_tensor(size, to)
    }
    /// A splat of a size with the shape and dtype of `like`.
    pub fn number_like(&self, size: Size, like: Value) -> Result<Value> {
        match size {
            Size::Static(n) => self.b.add(&Splat {
                value: Attr::scalar_int(self.b.ctx, dtype(like)?, n),
                sizes: self.sizes_of(like)?,
            }),
            _ => self.broadcast_to(self.number(size, dtype(like)?)?, &[], like),
        }
    }
    /// Casts `v` to `ty`, which has the same shape with more or fewer static dimensions.
    pub fn retype(&self, v: Value, ty: Type) -> Result<Value> {
        if v.ty() == ty {
            return Ok(v);
        }
        let size = |(i, d): (usize, &sym::Dim)| match (d.known(), self.size_of(v, i)?) {
            (Some(n), _) => Ok(Size::Static(n)),
            (None, s) => self.index(s).map(Size::Dynamic),
        };
        self.reshape(v, &ty.dims().iter().enumerate().map(size).collect::<Result<Vec<_>>>()?)
    }
    /// Casts `v` to the static dimensions of `like`.
    pub fn retype_like(&self, v: Value, like: Value) -> Result<Value> {
        self.retype(v, Type::tensor(self.b.ctx, dtype(v)?, &like.ty().dims()))
    }
}

pub(crate) fn dtype(v: Value) -> Result<DType> {
    tensor_type(v.ty()).map(|t| t.dtype)
}
pub(crate) fn rank(v: Value) -> usize {
    v.ty().dims().len()
}
/// The dimensions below `rank` that are not in `dims`, ascending.
pub(crate) fn complement(rank: usize, dims: &[i64]) -> Vec<i64> {
    (0..rank as i64).filter(|d| !dims.contains(d)).collect()
}
/// The accumulator type of a dtype: f32 for floats of at most 16 bits.
pub(crate) fn accumulator_type(d: DType) -> DType {
    if d.is_float() && d.bits() <= 16 { DType::F32 } else { d }
}
