//! `kiln-fold-indices`: folds values that depend on no input into a splat or an iota, if they are
//! one, and gathers by an arithmetic sequence into slices.
//!
//! Why: exported language models derive from position ids (an iota, its differences, their running
//! sum) whether the input packs several sequences, mask by the answer, which is uniform, and look
//! positions up in a table. As data that is a mask which attention has to load and whose masked
//! blocks it cannot skip. Constant folding in `kiln-simplify` stops at the 4 KiB limit of constants
//! in IR, and upstream does not know kiln's ops. A gather is a kernel of its own that loads its
//! indices; a slice is folded into its readers.
//!
//! A forward analysis tracks two facts: that a value is a uniform scalar, evaluated on one element
//! whatever its size, and a value's elements up to a limit. Values with dynamic dimensions are
//! skipped.
//!
//! Numerics: exact. Elements follow the reference semantics and round as each op would.
//!
//! ```text
//! before:  %0 = kiln.iota [1024] axis = 0 : i64   %1 = kiln.compare lt %0, %zero   %2 = kiln.select %1, %a, %b
//! after:   %1 = kiln.splat [1024], false          %2 = kiln.select %1, %a, %b
//! ```
use crate::pass::{Numerics, Pass};
use kiln_dialects::{
    interp,
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
    value::{DType, Tensor},
};
use std::{collections::HashMap, rc::Rc};

crate::pass_options! {
    /// The pass.
    pub struct FoldIndices {
        /// Most elements of a value that is evaluated
        pub limit: usize = 65536,
    }
}

/// The fact about a value.
#[derive(Clone)]
enum Fact {
    /// A splat of this scalar (rank 0).
    Uniform(Rc<Tensor>),
    /// All elements.
    Elements(Rc<Tensor>),
}

impl Pass for FoldIndices {
    const FLAG: &'static str = "kiln-fold-indices";
    const SUMMARY: &'static str = "Folds values that depend on no input into a splat or an iota, and gathers by an arithmetic sequence into slices";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let mut known: HashMap<Value, Fact> = HashMap::new();
        for op in walk(root) {
            if op.result_count() != 1 || !op.regions().is_empty() {
                continue;
            }
            if let Some(slice) = slice_of(op, &known).at(op)? {
                op.result(0).replace_uses(slice);
                continue;
            }
            let operands: Option<Vec<Fact>> =
                op.operands().iter().map(|v| known.get(v).cloned()).collect();
            let Some(fact) = operands.and_then(|operands| self.fact(op, &operands)) else {
                continue;
            };
            if let Some(folded) = replacement(op, &fact).at(op)? {
                op.result(0).replace_uses(folded);
                known.insert(folded, fact.clone());
            }
            known.insert(op.result(0), fact);
        }
        // Replaced ops are dead now; canonicalize erases them.
        Ok(())
    }
}

impl FoldIndices {
    /// The fact about an op's result.
    fn fact(&self, op: Op, operands: &[Fact]) -> Option<Fact> {
        let kind = op.kind()?;
        let uniform: Option<Vec<&Rc<Tensor>>> = operands
            .iter()
            .map(|k| if let Fact::Uniform(t) = k { Some(t) } else { None })
            .collect();
        match (kind, uniform.as_deref()) {
            (OpKind::Splat, _) => return scalar(op.attr("value")?).map(Fact::Uniform),
            (OpKind::Constant, _) => {
                let value = op.attr("value")?;
                return match value.splat_value() {
                    Some(one) => scalar(one).map(Fact::Uniform),
                    None => value.as_tensor().ok().map(|t| Fact::Elements(Rc::new(t))),
                };
            }
            // All elements are equal, so any index reads the scalar.
            (
                OpKind::BroadcastInDim
                | OpKind::Reshape
                | OpKind::Transpose
                | OpKind::Slice
                | OpKind::Reverse,
                Some([one]),
            ) => {
                return Some(Fact::Uniform(Rc::clone(one)));
            }
            (OpKind::Concat, Some([first, rest @ ..]))
                if rest.iter().all(|t| bitwise_equal(first, t)) =>
            {
                return Some(Fact::Uniform(Rc::clone(first)));
            }
            (kind, Some(scalars)) if kind.is_arithmetic() => {
                let scalars: Vec<_> = scalars.iter().map(|t| Some(Rc::clone(t))).collect();
                return interp::evaluate(op, &scalars)
                    .ok()?
                    .pop()
                    .map(|t| Fact::Uniform(Rc::new(t)));
            }
            _ => {}
        }
        let cheap = kind.is_arithmetic()
            || MOVES.contains(&kind)
            || matches!(kind, OpKind::Iota | OpKind::Cumulative | OpKind::Reduce);
        if !cheap || !self.fits(op.result(0)) {
            return None;
        }
        let elements = |(v, k): (&Value, &Fact)| match k {
            Fact::Elements(t) => Some(Some(Rc::clone(t))),
            Fact::Uniform(t) if self.fits(*v) => {
                Tensor::full(t, sizes(*v)?).ok().map(|t| Some(Rc::new(t)))
            }
            Fact::Uniform(_) => None,
        };
        let values: Vec<_> =
            op.operands().iter().zip(operands).map(elements).collect::<Option<_>>()?;
        // An op that fails on these values stays: the error belongs to run time.
        let result = interp::evaluate(op, &values).ok()?.pop()?;
        Some(match uniform_scalar(&result) {
            Some(scalar) => Fact::Uniform(Rc::new(scalar)),
            None => Fact::Elements(Rc::new(result)),
        })
    }
    fn fits(&self, v: Value) -> bool {
        sizes(v).is_some_and(|s| {
            s.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).is_some_and(|n| n <= self.limit)
        })
    }
}

/// Movement ops: each result element is some operand's element.
const MOVES: [OpKind; 8] = [
    OpKind::BroadcastInDim,
    OpKind::Reshape,
    OpKind::Transpose,
    OpKind::Slice,
    OpKind::Reverse,
    OpKind::Concat,
    OpKind::Pad,
    OpKind::Gather,
];

/// The sizes, if all are static.
fn sizes(v: Value) -> Option<Vec<usize>> {
    let t = tensor_type(v.ty()).ok()?;
    t.dims.iter().map(|d| usize::try_from(d.known()?).ok()).collect()
}

/// A literal scalar as a tensor of rank 0.
fn scalar(number: Attr) -> Option<Rc<Tensor>> {
    let dtype = number.type_of().dtype().ok()?;
    let value = match (number.as_f64(), number.as_bool(), number.as_i64()) {
        (Some(x), ..) => Tensor::scalar_f(dtype, x),
        (_, Some(b), _) => Tensor::scalar_i(dtype, i64::from(b)),
        (.., Some(i)) => Tensor::scalar_i(dtype, i),
        _ => return None,
    };
    value.ok().map(Rc::new)
}

/// Bitwise equality.
fn bitwise_equal(a: &Tensor, b: &Tensor) -> bool {
    a.dtype() == b.dtype() && a.dtype().encode(a) == b.dtype().encode(b)
}

/// The scalar of a uniform tensor, compared bitwise.
fn uniform_scalar(t: &Tensor) -> Option<Tensor> {
    let bytes = t.dtype().encode(t);
    let first = bytes.get(..t.dtype().byte_size())?;
    let all = bytes.chunks(first.len()).all(|x| x == first);
    if all { t.dtype().decode(&[], first).ok() } else { None }
}

/// The splat, iota or constant that replaces the op; none if the op is as simple.
fn replacement(op: Op, fact: &Fact) -> Result<Option<Value>> {
    let Some(sizes) = sizes(op.result(0)) else { return Ok(None) };
    let b = Builder::before(op).ok_or("is in no block")?;
    let all = || sizes.iter().map(|n| Size::Static(*n as i64)).collect();
    match (fact, op.kind()) {
        (_, Some(OpKind::Splat | OpKind::Iota)) => Ok(None),
        (Fact::Uniform(scalar), _) => {
            let value = Attr::dense(op.ctx(), scalar)?.splat_value().ok_or("is not a splat")?;
            b.add(&Splat { value, sizes: all() }).map(Some)
        }
        // Views stay: later passes match on them.
        (_, Some(OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Constant)) => Ok(None),
        (Fact::Elements(t), _) => {
            let Some(axis) = (0..sizes.len()).find(|axis| is_iota(t, *axis)) else {
                return Ok(None);
            };
            b.add(&Iota {
                sizes: all(),
                axis: axis as i64,
                dtype: Type::scalar(op.ctx(), t.dtype()),
            })
            .map(Some)
        }
    }
}

/// The slice that a gather along one dimension takes, with that dimension in front, if its indices
/// are an increasing arithmetic sequence within the dimension.
fn slice_of(op: Op, known: &HashMap<Value, Fact>) -> Result<Option<Value>> {
    let Some(g) = Gather::of(op) else { return Ok(None) };
    let ([index], [dim]) = (g.indices.as_slice(), g.dims.as_slice()) else { return Ok(None) };
    let dims = g.input.ty().dims();
    let size = usize::try_from(*dim).ok().and_then(|d| dims.get(d)?.known());
    let (Some(Fact::Elements(t)), Some(size)) = (known.get(index), size) else { return Ok(None) };
    let Some((first, step)) = sequence(t).filter(|(first, _)| *first >= 0) else {
        return Ok(None);
    };
    let count = t.shape().first().map_or(0, |n| *n as i64);
    let last = step.checked_mul(count - 1).and_then(|n| n.checked_add(first));
    if last.is_none_or(|n| n >= size) {
        return Ok(None);
    }
    let b = Builder::before(op).ok_or("is in no block")?;
    let mut sizes = b.sizes_of(g.input)?;
    let (mut offsets, mut strides) = (vec![0; sizes.len()], vec![1; sizes.len()]);
    let d = *dim as usize;
    (offsets[d], sizes[d], strides[d]) = (first, Size::Static(count), step);
    let offsets = Size::all(&offsets);
    let slice = b.add(&Slice { input: g.input, offsets, sizes, strides })?;
    let others = (0..dims.len() as i64).filter(|i| i != dim);
    let permutation: Vec<i64> = std::iter::once(*dim).chain(others).collect();
    match permutation.is_sorted() {
        true => Ok(Some(slice)),
        false => b.add(&Transpose { input: slice, permutation }).map(Some),
    }
}

/// First element and step of an increasing arithmetic sequence of at least two integers.
fn sequence(t: &Tensor) -> Option<(i64, i64)> {
    let ([_], [first, second, ..]) = (t.shape(), t.as_i().ok()?) else { return None };
    let step = second.checked_sub(*first).filter(|n| *n > 0)?;
    let steps = t.as_i().ok()?.windows(2).all(|w| w[0].checked_add(step) == Some(w[1]));
    steps.then_some((*first, step))
}

/// Whether each element is its index along an axis; never for i1.
fn is_iota(t: &Tensor, axis: usize) -> bool {
    if t.dtype() == DType::I1 {
        return false;
    }
    let (Ok(elements), Some(size)) = (t.as_i(), t.shape().get(axis)) else { return false };
    let step = t.strides()[axis].max(1);
    elements.iter().enumerate().all(|(n, x)| (n / step % size.max(&1)) as i64 == *x)
}
