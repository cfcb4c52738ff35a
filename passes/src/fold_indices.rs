//! `kiln-fold-indices`: what depends on no input and turns out to be one number everywhere, or to
//! count along an axis, becomes a splat or an iota.
//!
//! Why: exported language models work out from positions (an iota, its differences, their running
//! sum) whether their input holds several sequences, and hide tokens by the answer, which is one
//! number; they look positions up in a table of positions. As data, that is a mask that attention
//! has to read, and whose hidden blocks it cannot skip. Constant folding in `kiln-simplify` ends at
//! the 4 KiB that IR may hold, and upstream has nothing for kiln's ops.
//!
//! Two facts are followed through the text: that a value is one scalar everywhere, for which one
//! element is computed whatever its size, and what a value's elements are, up to a limit. Values of
//! dynamic size are left alone.
//!
//! Numerics: exact. Elements are computed by the reference semantics and rounded as each op would.
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
        /// Most elements of a value that are computed
        pub limit: usize = 65536,
    }
}

/// What is known of a value.
#[derive(Clone)]
enum Known {
    /// One scalar, of rank 0, everywhere.
    Uniform(Rc<Tensor>),
    /// All elements.
    Elements(Rc<Tensor>),
}

impl Pass for FoldIndices {
    const FLAG: &'static str = "kiln-fold-indices";
    const SUMMARY: &'static str =
        "Turns what depends on no input into a splat or an iota, where it is one";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let mut known: HashMap<Value, Known> = HashMap::new();
        for op in walk(root) {
            if op.result_count() != 1 || !op.regions().is_empty() {
                continue;
            }
            let operands: Option<Vec<Known>> =
                op.operands().iter().map(|v| known.get(v).cloned()).collect();
            let Some(fact) = operands.and_then(|operands| self.fact(op, &operands)) else {
                continue;
            };
            if let Some(made) = simpler(op, &fact).at(op)? {
                op.result(0).replace_uses(made);
                known.insert(made, fact.clone());
            }
            known.insert(op.result(0), fact);
        }
        // What was replaced has no readers any more; canonicalize drops it.
        Ok(())
    }
}

impl FoldIndices {
    /// What follows for an op's result.
    fn fact(&self, op: Op, operands: &[Known]) -> Option<Known> {
        let kind = op.kind()?;
        let uniform: Option<Vec<&Rc<Tensor>>> = operands
            .iter()
            .map(|k| if let Known::Uniform(t) = k { Some(t) } else { None })
            .collect();
        match (kind, uniform.as_deref()) {
            (OpKind::Splat, _) => return scalar(op.attr("value")?).map(Known::Uniform),
            (OpKind::Constant, _) => {
                let value = op.attr("value")?;
                return match value.splat_value() {
                    Some(one) => scalar(one).map(Known::Uniform),
                    None => value.as_tensor().ok().map(|t| Known::Elements(Rc::new(t))),
                };
            }
            // Wherever an element comes from, it is the scalar.
            (
                OpKind::BroadcastInDim
                | OpKind::Reshape
                | OpKind::Transpose
                | OpKind::Slice
                | OpKind::Reverse,
                Some([one]),
            ) => {
                return Some(Known::Uniform(Rc::clone(one)));
            }
            (OpKind::Concat, Some([first, rest @ ..])) if rest.iter().all(|t| same(first, t)) => {
                return Some(Known::Uniform(Rc::clone(first)));
            }
            (kind, Some(scalars)) if kind.is_arithmetic() => {
                let scalars: Vec<_> = scalars.iter().map(|t| Some(Rc::clone(t))).collect();
                return interp::evaluate(op, &scalars)
                    .ok()?
                    .pop()
                    .map(|t| Known::Uniform(Rc::new(t)));
            }
            _ => {}
        }
        let cheap = kind.is_arithmetic()
            || MOVES.contains(&kind)
            || matches!(kind, OpKind::Iota | OpKind::Cumulative | OpKind::Reduce);
        if !cheap || !self.fits(op.result(0)) {
            return None;
        }
        let elements = |(v, k): (&Value, &Known)| match k {
            Known::Elements(t) => Some(Some(Rc::clone(t))),
            Known::Uniform(t) if self.fits(*v) => {
                Tensor::full(t, sizes(*v)?).ok().map(|t| Some(Rc::new(t)))
            }
            Known::Uniform(_) => None,
        };
        let values: Vec<_> =
            op.operands().iter().zip(operands).map(elements).collect::<Option<_>>()?;
        // An op that is an error on these values stays, and is an error when it runs.
        let result = interp::evaluate(op, &values).ok()?.pop()?;
        Some(match one_of(&result) {
            Some(scalar) => Known::Uniform(Rc::new(scalar)),
            None => Known::Elements(Rc::new(result)),
        })
    }
    fn fits(&self, v: Value) -> bool {
        sizes(v).is_some_and(|s| {
            s.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).is_some_and(|n| n <= self.limit)
        })
    }
}

/// Ops whose elements are elements of operands, other than those of one operand that always are.
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

/// Sizes, where all are static.
fn sizes(v: Value) -> Option<Vec<usize>> {
    let t = tensor_type(v.ty()).ok()?;
    t.dims.iter().map(|d| usize::try_from(d.known()?).ok()).collect()
}

/// A literal number as a tensor of rank 0.
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

/// Whether two tensors have the same bits.
fn same(a: &Tensor, b: &Tensor) -> bool {
    a.dtype() == b.dtype() && a.dtype().encode(a) == b.dtype().encode(b)
}

/// The scalar that a tensor holds everywhere, to the bit.
fn one_of(t: &Tensor) -> Option<Tensor> {
    let bytes = t.dtype().encode(t);
    let first = bytes.get(..t.dtype().byte_size())?;
    let all = bytes.chunks(first.len()).all(|x| x == first);
    if all { t.dtype().decode(&[], first).ok() } else { None }
}

/// An op without operands that gives the same, where there is one and the op is not as simple
/// itself.
fn simpler(op: Op, fact: &Known) -> Result<Option<Value>> {
    let Some(sizes) = sizes(op.result(0)) else { return Ok(None) };
    let b = Builder::before(op).ok_or("is in no block")?;
    let all = || sizes.iter().map(|n| Size::Static(*n as i64)).collect();
    match (fact, op.kind()) {
        (_, Some(OpKind::Splat | OpKind::Iota)) => Ok(None),
        (Known::Uniform(scalar), _) => {
            let value = Attr::dense(op.ctx(), scalar)?.splat_value().ok_or("is no splat")?;
            b.add(&Splat { value, sizes: all() }).map(Some)
        }
        // These only say where an element is read, and later passes look for them.
        (_, Some(OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Constant)) => Ok(None),
        (Known::Elements(t), _) => {
            let Some(axis) = (0..sizes.len()).find(|axis| counts(t, *axis)) else {
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

/// Whether each element is its index along an axis; a truth value counts nothing.
fn counts(t: &Tensor, axis: usize) -> bool {
    if t.dtype() == DType::I1 {
        return false;
    }
    let (Ok(elements), Some(size)) = (t.as_i(), t.shape().get(axis)) else { return false };
    let step = t.strides()[axis].max(1);
    elements.iter().enumerate().all(|(n, x)| (n / step % size.max(&1)) as i64 == *x)
}
