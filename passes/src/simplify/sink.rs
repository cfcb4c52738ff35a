//! Sinks movement ops below elementwise ops, where they cancel or leave elementwise ops adjacent
//! for fusion.
use super::splats::*;
use kiln_dialects::{ir::*, ops::*};

/// Patterns by root op: every elementwise op with one or two operands.
pub(super) const PATTERNS: &[Pattern] = &patterns();

const fn patterns() -> [Pattern; UnaryKind::ALL.len() + BinaryKind::ALL.len() + 1] {
    let mut all = [Pattern { name: "sink", root: OpKind::Convert, apply: sink };
        UnaryKind::ALL.len() + BinaryKind::ALL.len() + 1];
    let mut i = 0;
    while i < UnaryKind::ALL.len() {
        all[i].root = UnaryKind::ALL[i].op();
        i += 1;
    }
    let mut j = 0;
    while j < BinaryKind::ALL.len() {
        all[i + j].root = BinaryKind::ALL[j].op();
        j += 1;
    }
    all
}

/// A movement op without its input, for comparison.
#[derive(PartialEq)]
enum Movement {
    Transpose(Vec<i64>),
    Reshape(Vec<Size>),
    Broadcast(Vec<i64>, Vec<Size>),
}

impl Movement {
    fn of(op: Op) -> Option<(Movement, Value)> {
        match op.kind()? {
            OpKind::Transpose => {
                Transpose::of(op).map(|o| (Movement::Transpose(o.permutation), o.input))
            }
            OpKind::Reshape => Reshape::of(op).map(|o| (Movement::Reshape(o.sizes), o.input)),
            OpKind::BroadcastInDim => {
                BroadcastInDim::of(op).map(|o| (Movement::Broadcast(o.dims, o.sizes), o.input))
            }
            _ => None,
        }
    }
    fn apply(self, b: &Builder, input: Value) -> Result<Value> {
        match self {
            Movement::Transpose(permutation) => b.add(&Transpose { input, permutation }),
            Movement::Reshape(sizes) => b.add(&Reshape { input, sizes }),
            Movement::Broadcast(dims, sizes) => b.add(&BroadcastInDim { input, dims, sizes }),
        }
    }
}

/// A scalar that an operand holds everywhere.
enum Scalar {
    Known(Attr),
    /// A tensor of rank 0.
    Tensor(Value),
}

impl Scalar {
    fn of(v: Value) -> Option<Scalar> {
        let tensor = || {
            let o = BroadcastInDim::of(v.def()?)?;
            o.input.ty().dims().is_empty().then_some(Scalar::Tensor(o.input))
        };
        scalar_of(v).map(Scalar::Known).or_else(tensor)
    }
    fn over(self, b: &Builder, sizes: Vec<Size>) -> Result<Value> {
        match self {
            Scalar::Known(value) => splat(b, value, sizes),
            Scalar::Tensor(input) => b.add(&BroadcastInDim { input, dims: vec![], sizes }),
        }
    }
}

/// f(move x, move y) = move f(x, y); an operand that is one scalar commutes with any movement.
fn sink(op: Op, r: &Rewriter) -> Result<bool> {
    let operands = op.operands();
    let moved = |v: &Value| v.def().filter(|_| scalar_of(*v).is_none()).and_then(Movement::of);
    // A movement with other users would be duplicated; both operands may be the same value.
    let only_here = |v: &Value| v.uses().iter().all(|(user, _)| *user == op);
    let here = || operands.iter().filter(|v| only_here(v));
    // Of two movements that of a scalar's broadcast commutes with the other.
    let first = here().filter(|v| Scalar::of(**v).is_none()).find_map(moved);
    let Some((movement, source)) = first.or_else(|| here().find_map(moved)) else {
        return Ok(false);
    };
    let mut inputs = vec![];
    for v in &operands {
        inputs.push(match moved(v) {
            Some((m, x)) if m == movement && x.ty() == source.ty() && only_here(v) => Ok(x),
            _ => Err(Scalar::of(*v)),
        });
    }
    if inputs.iter().any(|i| matches!(i, Err(None))) {
        return Ok(false);
    }
    let b = r.before(op)?;
    let inputs = inputs.into_iter().map(|i| match i {
        Ok(x) => Ok(x),
        Err(Some(scalar)) => scalar.over(&b, b.sizes_of(source)?),
        Err(None) => Err("is not a scalar".into()),
    });
    let inputs: Vec<Value> = inputs.collect::<Result<_, _>>()?;
    let element = op.result(0).ty().element().ok_or("has no element type")?.dtype()?;
    let ty = Type::tensor(op.ctx(), element, &source.ty().dims());
    let attrs = op.attrs();
    let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
    let inner = b.generic(&op.name(), &inputs, &[ty], &attrs, &mut [])?.result(0);
    let result = movement.apply(&b, inner)?;
    r.replace(op, &[result]);
    Ok(true)
}
