//! Emits the values of a body for single elements: each value at most once for what it depends on,
//! and affine values as a register with a step per column.
use crate::{
    emit::code::Code,
    strategies::gpu::common::{
        ptx::Ptx,
        score::{COLUMN, ELEMENT, Graph, ROW, integer, number, small},
    },
};
use kiln_dialects::{ir::*, value::DType};
use std::collections::HashMap;

/// A symbolic value at an element.
#[derive(Clone, Copy)]
pub enum Sym {
    /// An i32 affine in the column: a register, and its step per column.
    AffineInt(Value, i64),
    /// An f32 affine in the column: value, and step per column.
    AffineFloat(Value, Value),
    /// Any other value.
    Value(Value),
}

/// Values computed so far, by row and column where they depend on these.
pub type Known = HashMap<(Value, Option<usize>, Option<usize>), Sym>;

/// What a body takes.
pub trait Leaves {
    /// A leaf in a thread's row `row`, `column` columns after its first one; `None` if an op of the
    /// body computes it.
    fn leaf(&self, c: Code, v: Value, row: usize, column: usize) -> Result<Option<Sym>>;
    /// An element of a tensor that the body reads.
    fn extract(&self, _c: Code, op: Op, _indices: &[Value]) -> Result<Value> {
        Err(format!("has a {} in its body", op.name()).into())
    }
    /// The value that stands for another one.
    fn stands_for(&self, v: Value) -> Value {
        v
    }
}

/// Evaluates a body.
pub struct Elements<'a> {
    /// The body.
    pub graph: &'a Graph,
    /// What it takes.
    pub leaves: &'a dyn Leaves,
    /// Whether columns may be clamped, so that none is affine.
    pub clamped: bool,
    /// Whether float sums and products may contract and reassociate.
    pub fast: bool,
}

/// Fast-math flags: products with sums may contract to FMAs, and products with constants may be
/// reassociated.
fn exactness(product: bool) -> FastMathFlags {
    match product {
        true => FastMathFlags::REASSOC | FastMathFlags::CONTRACT,
        false => FastMathFlags::CONTRACT,
    }
}

impl Elements<'_> {
    /// A value of the body with its own type.
    pub fn element(
        &self,
        c: Code,
        known: &mut Known,
        v: Value,
        row: usize,
        column: usize,
    ) -> Result<Value> {
        let s = self.value(c, known, v, row, column)?;
        self.materialise(c, s, column, v.ty())
    }

    pub(super) fn value(
        &self,
        c: Code,
        known: &mut Known,
        v: Value,
        row: usize,
        column: usize,
    ) -> Result<Sym> {
        let v = self.leaves.stands_for(v);
        if let Some(n) = small(v) {
            return Ok(Sym::AffineInt(Ptx(c).constant(n)?, 0));
        }
        let affine = self.graph.is_affine(v);
        let bits = self.graph.depends(v);
        let each = bits & ELEMENT != 0 || (bits & COLUMN != 0 && (self.clamped || !affine));
        let key = (v, (bits & (ROW | ELEMENT) != 0).then_some(row), each.then_some(column));
        if let Some(found) = known.get(&key) {
            return Ok(*found);
        }
        let made = match self.leaves.leaf(c, v, row, column)? {
            Some(leaf) => leaf,
            None => {
                let op = v.def().ok_or("reads what is no operand")?;
                self.result(c, known, op, row, column)?
            }
        };
        known.insert(key, made);
        Ok(made)
    }

    /// Materialises a symbolic value with this type.
    pub(super) fn materialise(&self, c: Code, s: Sym, column: usize, ty: Type) -> Result<Value> {
        let (base, step) = match s {
            Sym::Value(v) => return Ok(v),
            Sym::AffineInt(base, step) => (base, step),
            Sym::AffineFloat(base, step) if column == 0 || number(step) == Some(0.0) => {
                return Ok(base);
            }
            Sym::AffineFloat(base, step) => {
                return math::fma(c, step, c.number(column as f64, ty)?, base);
            }
        };
        let v = Ptx(c).add_signed(base, step * column as i64)?;
        match ty {
            t if t == v.ty() => Ok(v),
            t if t.is_index() => arith::index_cast(c, v, t),
            t => arith::extsi(c, v, t),
        }
    }

    fn result(&self, c: Code, known: &mut Known, op: Op, row: usize, column: usize) -> Result<Sym> {
        let (c, p) = (Code(c.0.at(op.loc())), Ptx(Code(c.0.at(op.loc()))));
        let (name, ty) = (op.name(), op.result(0).ty());
        // `tensor.extract` reads from a tensor, which is no scalar operand.
        let inputs = op.operands().split_off(usize::from(op.isa::<tensor::Extract>()));
        // Memory is no element.
        let all = inputs
            .iter()
            .map(|v| match v.ty().is_memref() {
                true => Ok(Sym::Value(*v)),
                false => self.value(c, known, *v, row, column),
            })
            .collect::<Result<Vec<Sym>>>()?;
        let steps = |n: i64| if n == 1 { Ok(None) } else { p.constant(n).map(Some) };
        let affine_int = self.graph.affine_ints.contains(&op.result(0));
        match (name.as_str(), all.as_slice()) {
            (arith::AddI::NAME, [Sym::AffineInt(a, x), Sym::AffineInt(b, y)]) => {
                return Ok(Sym::AffineInt(p.add(*a, *b)?, x + y));
            }
            (arith::SubI::NAME, [Sym::AffineInt(a, x), Sym::AffineInt(b, y)]) => {
                return Ok(Sym::AffineInt(p.sub(*a, *b)?, x - y));
            }
            (arith::MinSI::NAME, [Sym::AffineInt(a, 0), Sym::AffineInt(b, 0)]) if affine_int => {
                return Ok(Sym::AffineInt(p.min(*a, *b)?, 0));
            }
            (arith::MulI::NAME, [Sym::AffineInt(a, x), Sym::AffineInt(b, y)]) if affine_int => {
                let (value, step, n) = match (integer(op.operand(1)), integer(op.operand(0))) {
                    (Some(n), _) => (*a, *x, n),
                    (_, Some(n)) => (*b, *y, n),
                    _ => return Err("multiplies positions".into()),
                };
                let value = match steps(n)? {
                    Some(n) => arith::muli(c, value, n)?,
                    None => value,
                };
                return Ok(Sym::AffineInt(value, step * n));
            }
            (
                arith::IndexCast::NAME | arith::ExtSI::NAME | arith::TruncI::NAME,
                [Sym::AffineInt(a, x)],
            ) if affine_int => {
                return Ok(Sym::AffineInt(*a, *x));
            }
            (arith::SIToFP::NAME, [Sym::AffineInt(a, x)]) if ty.dtype() == Ok(DType::F32) => {
                // Exact below 2^24, the largest range in which f32 represents every integer.
                return Ok(Sym::AffineFloat(arith::sitofp(c, *a, ty)?, c.number(*x as f64, ty)?));
            }
            (arith::AddF::NAME | arith::SubF::NAME, [a, b])
                if self.graph.affine_floats.contains(&op.result(0)) =>
            {
                let nothing = c.number(0.0, ty)?;
                let parts = |s: &Sym| match s {
                    Sym::AffineFloat(base, step) => Ok([*base, *step]),
                    Sym::Value(v) => Ok([*v, nothing]),
                    Sym::AffineInt(..) => Err("adds an integer to a float".to_string()),
                };
                let [a, b] = [parts(a)?, parts(b)?];
                let both = |x: Value, y: Value| match op.isa::<arith::AddF>() {
                    true => arith::addf(c, x, y),
                    false => arith::subf(c, x, y),
                };
                return Ok(Sym::AffineFloat(both(a[0], b[0])?, both(a[1], b[1])?));
            }
            (
                arith::MulF::NAME,
                [Sym::AffineFloat(base, step), Sym::Value(v)]
                | [Sym::Value(v), Sym::AffineFloat(base, step)],
            ) if self.graph.affine_floats.contains(&op.result(0)) => {
                let by = |x: Value| arith::mulf(c, x, *v);
                return Ok(Sym::AffineFloat(by(*base)?, by(*step)?));
            }
            (arith::CmpI::NAME, [Sym::AffineInt(a, x), Sym::AffineInt(b, y)]) => {
                use CmpIPredicate as P;
                let predicate = op.dyn_cast::<arith::CmpI>().and_then(|op| op.predicate());
                if let Some(signed @ (P::Eq | P::Ne | P::Slt | P::Sle | P::Sgt | P::Sge)) =
                    predicate
                {
                    let number = p.constant((y - x) * column as i64)?;
                    return Ok(Sym::Value(c.compare(signed, p.sub(*a, *b)?, number)?));
                }
            }
            _ => {}
        }
        let pairs = all.iter().zip(&inputs);
        let operands = pairs
            .map(|(s, v)| self.materialise(c, *s, column, v.ty()))
            .collect::<Result<Vec<Value>>>()?;
        if op.isa::<tensor::Extract>() {
            return self.leaves.extract(c, op, &operands).map(Sym::Value);
        }
        if op.result_count() != 1 || !op.regions().is_empty() {
            return Err(format!("has a {name} in its body").into());
        }
        scalar_op(c, op, &operands, self.fast).map(Sym::Value)
    }
}

/// An op of arith, math or memory on these scalars. `fast`: as of [`Elements::fast`].
pub fn scalar_op(c: Code, op: Op, operands: &[Value], fast: bool) -> Result<Value> {
    let (p, name, ty) = (Ptx(c), op.name(), op.result(0).ty());
    let ty = ty.element().unwrap_or(ty);
    let narrow = ty.dtype() == Ok(DType::F32);
    let attrs = op.attrs();
    let mut attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
    match (name.as_str(), operands) {
        (math::Exp2::NAME, [x]) if narrow && is_approximate(op) => return p.exp2(*x),
        (math::Tanh::NAME, [x]) if narrow && fast => return p.tanh(*x),
        (arith::DivF::NAME, [x, _]) if narrow && fast => {
            if let Some(n) = op.operands().last().copied().and_then(number) {
                // Division by a constant becomes a product with its reciprocal, at the cost of
                // one rounding more.
                let part = c.number((1.0 / n as f32).into(), ty)?;
                return arith::MulF::new(c, *x, part).fastmath(exactness(true)).result();
            }
        }
        _ => {}
    }
    let sum = [arith::AddF::NAME, arith::SubF::NAME, arith::MulF::NAME];
    if fast && sum.contains(&name.as_str()) {
        attrs.retain(|(n, _)| *n != "fastmath");
        attrs.push(("fastmath", exactness(op.isa::<arith::MulF>()).attr(c.ctx())?));
    }
    c.op(&name, operands, ty, &attrs)
}

/// Whether an op is marked to be approximated (`afn`).
fn is_approximate(op: Op) -> bool {
    op.attr("fastmath").is_some_and(|a| a.to_string().contains("afn"))
}
