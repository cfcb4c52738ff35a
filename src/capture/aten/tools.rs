//! Helpers of all builders: arguments, broadcasting, conversion, arithmetic.
use super::{Args, Outcome, Val, generator::Rng, unbacked::Unbacked};
use crate::capture::{
    autocast::Autocast,
    memory::Memory,
    srepr::size_op,
    storage::{Alias, Store, ViewOp},
};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, value::DType};
use kiln_passes::broadcasting;
use std::collections::HashMap;

/// Emission state of a graph.
pub struct Cx {
    /// The insertion point.
    pub b: Builder,
    /// Tensors and their views.
    pub store: Store,
    /// Program inputs, by name.
    pub inputs: HashMap<String, Alias>,
    /// Values by graph name.
    pub names: HashMap<String, Val>,
    /// Complex tensors whose parts are the elements of one tensor of parts, by the two aliases.
    pub wholes: HashMap<(Alias, Alias), Alias>,
    /// The user's source location of the current node.
    pub location: String,
    /// The generator of random numbers, of graphs that can take its state.
    pub rng: Option<Rng>,
    /// Sizes that depend on data.
    pub unbacked: Unbacked,
    /// int4 weights that the program packs.
    pub packed: Vec<Value>,
    /// What the graph gives for the current node's results.
    pub declared: Vec<Declared>,
    /// The autocast context around the current node.
    pub autocast: Option<Autocast>,
    /// The value that the graph gives for a stride or an offset, which the current node reads.
    pub stated: Option<Size>,
    /// Where the elements lie of the tensor whose storage the current node addresses.
    pub memory: Option<Memory>,
}

/// What an export gives for a result: its dtype, and its sizes, as far as they are static.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// The dtype, of a tensor.
    pub dtype: Option<DType>,
    /// The sizes; symbolic ones are `None`.
    pub sizes: Vec<Option<i64>>,
}

pub(super) fn dtype_of(v: Value) -> Result<DType> {
    tensor_type(v.ty()).map(|t| t.dtype)
}
pub(super) fn rank_of(v: Value) -> usize {
    v.ty().dims().len()
}
/// Normalises a dimension; negative ones count from the end.
pub(super) fn wrap(dim: i64, rank: usize) -> Result<usize> {
    let n = rank.max(1) as i64;
    let at = if dim < 0 { dim + n } else { dim };
    usize::try_from(at).ok().filter(|d| (*d as i64) < n).ok_or_else(|| {
        format!(
            "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
            -n,
            n - 1
        )
        .into()
    })
}
/// Normalises and sorts dimensions; all if absent.
pub(super) fn wrap_all(dims: Option<Vec<i64>>, rank: usize) -> Result<Vec<i64>> {
    let mut out = match dims {
        Some(dims) if !dims.is_empty() => {
            dims.iter().map(|d| wrap(*d, rank).map(|d| d as i64)).collect::<Result<Vec<_>, _>>()?
        }
        _ => (0..rank as i64).collect(),
    };
    out.sort();
    if let Some(twice) = out.windows(2).find(|w| w[0] == w[1]) {
        return Err(format!("dim {} appears multiple times in the list of dims", twice[0]).into());
    }
    out.retain(|d| (*d as usize) < rank);
    Ok(out)
}

impl Cx {
    /// A tensor's current value.
    pub fn get(&mut self, alias: Alias) -> Result<Value> {
        self.store.get(&self.b, alias)
    }
    /// A tensor argument.
    pub fn tensor(&mut self, a: &Args<'_>, name: &str) -> Result<Value> {
        self.get(a.alias(name)?)
    }
    /// A tensor argument that may be absent.
    pub fn optional(&mut self, a: &Args<'_>, name: &str) -> Result<Option<Value>> {
        if a.has(name) { self.tensor(a, name).map(Some) } else { Ok(None) }
    }
    /// A list of tensors.
    pub fn tensors(&mut self, a: &Args<'_>, name: &str) -> Result<Vec<Value>> {
        a.aliases(name)?.into_iter().map(|x| self.get(x)).collect()
    }
    /// One result with a storage of its own.
    pub fn one(&mut self, v: Value) -> Result<Outcome> {
        Ok(Outcome::One(Val::Tensor(self.store.fresh(v))))
    }
    /// Clones tensor results, so that they alias nothing.
    pub fn copied(&mut self, outcome: Outcome) -> Result<Outcome> {
        let mut copy = |v: Val| match v {
            Val::Tensor(alias) => {
                let value = self.get(alias)?;
                Ok(Val::Tensor(self.store.fresh(value)))
            }
            Val::Complex(re, im) => {
                let (re, im) = (self.get(re)?, self.get(im)?);
                Ok(Val::Complex(self.store.fresh(re), self.store.fresh(im)))
            }
            other => Ok::<_, Error>(other),
        };
        Ok(match outcome {
            Outcome::One(v) => Outcome::One(copy(v)?),
            Outcome::Many(all) => {
                Outcome::Many(all.into_iter().map(copy).collect::<Result<_, _>>()?)
            }
        })
    }
    /// Several results with storages of their own.
    pub fn many(&mut self, values: &[Value]) -> Result<Outcome> {
        Ok(Outcome::Many(values.iter().map(|v| Val::Tensor(self.store.fresh(*v))).collect()))
    }
    /// A result that aliases an argument.
    pub fn view(&mut self, of: Alias, view_ops: &[ViewOp]) -> Result<Alias> {
        view_ops.iter().try_fold(of, |at, m| self.store.view(&self.b, at, m.clone()))
    }

    /// An elementwise op of one operand.
    pub fn unary(&self, kind: UnaryKind, x: Value) -> Result<Value> {
        broadcasting::unary(&self.b, kind, x)
    }
    /// A broadcasting elementwise op; the operands have one dtype. A product of bools is their
    /// conjunction, as in PyTorch.
    pub fn binary(&self, kind: BinaryKind, x: Value, y: Value) -> Result<Value> {
        broadcasting::binary(&self.b, kind, x, y)
    }
    /// A broadcasting comparison; the operands have one dtype.
    pub fn compare(&self, kind: CompareKind, x: Value, y: Value) -> Result<Value> {
        broadcasting::compare(&self.b, kind, x, y)
    }
    /// `x` where `c`, else `y`; broadcasts.
    pub fn select(&self, c: Value, x: Value, y: Value) -> Result<Value> {
        broadcasting::select(&self.b, c, x, y)
    }
    /// Converts to a dtype. Float to narrow integer goes through a wider integer and wraps, as in
    /// PyTorch; kiln's own conversion saturates.
    pub fn convert(&self, x: Value, to: DType) -> Result<Value> {
        broadcasting::convert(&self.b, x, to)
    }
    /// A 0-d constant.
    pub fn number(&self, dtype: DType, value: f64) -> Result<Value> {
        self.b.splat(dtype, &[], value)
    }
    /// A 0-d integer constant, exact to 64 bits.
    pub fn integer(&self, dtype: DType, value: i64) -> Result<Value> {
        self.b.add(&Splat { value: Attr::scalar_int(self.b.ctx, dtype, value), sizes: vec![] })
    }
    /// A constant in the shape and dtype of `like`.
    pub fn full_like(&self, like: Value, value: f64) -> Result<Value> {
        self.b.splat(dtype_of(like)?, &self.b.sizes_of(like)?, value)
    }

    /// Broadcasts both to their common shape, by NumPy's rule. A symbolic size is never 1: exports
    /// specialise on 1.
    pub fn broadcast(&self, x: Value, y: Value) -> Result<(Value, Value)> {
        broadcasting::broadcast(&self.b, x, y)
    }
    /// The broadcast shape of values.
    pub fn common(&self, values: &[Value]) -> Result<Vec<Size>> {
        broadcasting::common(&self.b, values)
    }
    /// Broadcasts to a shape, with dimensions aligned at the end.
    pub fn broadcast_to(&self, x: Value, sizes: &[Size]) -> Result<Value> {
        broadcasting::broadcast_to(&self.b, x, sizes)
    }

    /// Sum of sizes.
    pub fn size_add(&self, x: Size, y: Size) -> Result<Size> {
        size_op(&self.b, SymKind::Add, x, y)
    }
    /// Product of sizes.
    pub fn size_mul(&self, x: Size, y: Size) -> Result<Size> {
        size_op(&self.b, SymKind::Mul, x, y)
    }
    /// Quotient of sizes, rounded down.
    pub fn size_div(&self, x: Size, y: Size) -> Result<Size> {
        size_op(&self.b, SymKind::Floordiv, x, y)
    }
    /// Minimum of sizes.
    pub fn size_min(&self, x: Size, y: Size) -> Result<Size> {
        size_op(&self.b, SymKind::Min, x, y)
    }
    /// Maximum of sizes.
    pub fn size_max(&self, x: Size, y: Size) -> Result<Size> {
        size_op(&self.b, SymKind::Max, x, y)
    }
    /// The same elements in another shape.
    pub fn reshape(&self, x: Value, sizes: Vec<Size>) -> Result<Value> {
        self.b.add(&Reshape { input: x, sizes })
    }
    /// Permuted dimensions.
    pub fn transpose(&self, x: Value, permutation: Vec<i64>) -> Result<Value> {
        self.b.add(&Transpose { input: x, permutation })
    }
    /// The integers 0, 1, … along one axis of a shape.
    pub fn iota(&self, dtype: DType, sizes: Vec<Size>, axis: usize) -> Result<Value> {
        self.b.add(&Iota { sizes, axis: axis as i64, dtype: Type::scalar(self.b.ctx, dtype) })
    }
}

/// The dtype in which statistics are computed.
pub fn statistics_dtype(d: DType) -> DType {
    if d == DType::F64 { d } else { DType::F32 }
}

/// Broadcasts along new dimensions.
pub fn along(cx: &Cx, input: Value, dims: Vec<i64>, sizes: &[Size]) -> Result<Value> {
    cx.b.add(&BroadcastInDim { input, dims, sizes: sizes.to_vec() })
}

/// Gathers `x` with index tensors `at` of one shape along the dimensions from `first` on. The index
/// dimensions take their place.
pub fn gather_at(cx: &Cx, x: Value, at: Vec<Value>, first: usize) -> Result<Value> {
    let indices = at.first().map_or(0, |v| rank_of(*v));
    let (n, used) = (rank_of(x), at.len());
    let dims = (first as i64..(first + used) as i64).collect();
    let r = cx.b.add(&Gather { input: x, indices: at, dims })?;
    let lead = indices..indices + first;
    let rest = indices + first..indices + n - used;
    cx.transpose(r, lead.chain(0..indices).chain(rest).map(|d| d as i64).collect())
}

/// The least value of a dtype.
pub(super) fn min_value(cx: &Cx, d: DType) -> Result<Value> {
    match d {
        _ if d.is_float() => cx.number(d, f64::NEG_INFINITY),
        DType::UI8 | DType::I1 => cx.integer(d, 0),
        _ => cx.integer(d, i64::MIN >> (64 - d.bits())),
    }
}
