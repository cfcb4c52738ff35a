//! Builder of loops and index arithmetic that folds constants, so that the IR reads as one would
//! write it.
use crate::emit::index::{self, AffineOp};
pub use crate::emit::index::{constant_value, distance};
use kiln_dialects::ir::*;

/// Emits ops at an insertion point.
#[derive(Clone, Copy)]
pub struct Code(pub Builder);

impl From<Code> for Builder {
    fn from(c: Code) -> Builder {
        c.0
    }
}

/// Body of a loop: maps builder, induction variable and loop-carried values to the carried values
/// of the next iteration.
pub type LoopBody<'a> = dyn FnMut(Code, Value, &[Value]) -> Result<Vec<Value>> + 'a;

/// Body of a branch.
pub type BranchBody<'a> = dyn FnMut(Code) -> Result<()> + 'a;

/// How LLVM treats a loop.
pub(super) const LOOP_ANNOTATION: &str = "loop_annotation";

/// Forbids LLVM to unroll a loop, given by its results.
pub fn rolled(results: &[Value]) -> Result<()> {
    let op = results
        .first()
        .and_then(|v| v.def())
        .filter(|o| o.isa::<scf::For>())
        .ok_or("is no loop")?;
    let text = "#llvm.loop_annotation<unroll = <disable = true>>";
    op.set_attr(
        LOOP_ANNOTATION,
        Attr::parse(op.ctx(), text).ok_or("has no form for LLVM's loops")?,
    );
    Ok(())
}

/// Lets LLVM unroll a loop, given by its results, as another one.
pub fn unroll_like(old: Op, results: &[Value]) {
    let new = results.first().and_then(|v| v.def());
    if let Some((new, annotation)) = new.zip(old.attr(LOOP_ANNOTATION)) {
        new.set_attr(LOOP_ANNOTATION, annotation);
    }
}

impl Code {
    /// The MLIR context.
    pub fn ctx(self) -> Ctx {
        self.0.ctx
    }
    /// Emits an op with one result.
    pub fn op(
        self,
        name: &str,
        operands: &[Value],
        ty: Type,
        attrs: &[(&str, Attr)],
    ) -> Result<Value> {
        Ok(self.0.generic(name, operands, &[ty], attrs, &mut [])?.result(0))
    }
    /// Emits an op without results.
    pub fn effect(self, name: &str, operands: &[Value], attrs: &[(&str, Attr)]) -> Result<()> {
        self.0.generic(name, operands, &[], attrs, &mut []).map(drop)
    }
    /// A constant of index type.
    pub fn index(self, k: i64) -> Result<Value> {
        self.0.index(k)
    }
    /// A constant of a scalar type, or of a vector type with this number in every lane.
    pub fn number(self, n: f64, ty: Type) -> Result<Value> {
        arith::constant(self, Attr::number(ty, n)?)
    }
    /// As [`Code::number`], exact beyond 2^53.
    pub fn integer(self, n: i64, ty: Type) -> Result<Value> {
        arith::constant(self, Attr::integer(ty, n)?)
    }
    /// `a + b` on index.
    pub fn add(self, a: Value, b: Value) -> Result<Value> {
        match (constant_value(a), constant_value(b)) {
            (Some(x), Some(y)) => self.index(x + y),
            (Some(0), _) => Ok(b),
            (_, Some(0)) => Ok(a),
            (Some(k), None) => index::shifted(self.0, b, k),
            (None, Some(k)) => index::shifted(self.0, a, k),
            _ => index::apply(self.0, AffineOp::Add, a, Some(b)),
        }
    }
    /// `a - b` on index.
    pub fn sub(self, a: Value, b: Value) -> Result<Value> {
        match (distance(b, a), constant_value(b)) {
            (Some(k), _) => self.index(k),
            (_, Some(0)) => Ok(a),
            (_, Some(k)) => index::shifted(self.0, a, -k),
            _ => index::apply(self.0, AffineOp::Sub, a, Some(b)),
        }
    }
    /// `a * b` on index; affine by a constant.
    pub fn mul(self, a: Value, b: Value) -> Result<Value> {
        match (constant_value(a), constant_value(b)) {
            (Some(x), Some(y)) => self.index(x * y),
            (Some(1), _) => Ok(b),
            (_, Some(1)) => Ok(a),
            (Some(0), _) => Ok(a),
            (_, Some(0)) => Ok(b),
            (Some(k), None) => index::apply(self.0, AffineOp::Mul(k), b, None),
            (None, Some(k)) => index::apply(self.0, AffineOp::Mul(k), a, None),
            _ => arith::muli(self, a, b),
        }
    }
    /// `a / b` on non-negative index values; affine by a constant.
    pub fn div(self, a: Value, b: Value) -> Result<Value> {
        match (constant_value(a), constant_value(b)) {
            (Some(x), Some(y)) if y > 0 => self.index(x / y),
            (_, Some(1)) => Ok(a),
            (_, Some(k)) if k > 0 => index::apply(self.0, AffineOp::FloorDiv(k), a, None),
            _ => arith::divui(self, a, b),
        }
    }
    /// `a % b` on non-negative index values; affine by a constant.
    pub fn rem(self, a: Value, b: Value) -> Result<Value> {
        match (constant_value(a), constant_value(b)) {
            (Some(x), Some(y)) if y > 0 => self.index(x % y),
            (_, Some(1)) => self.index(0),
            (_, Some(k)) if k > 0 => index::apply(self.0, AffineOp::Mod(k), a, None),
            _ => arith::remui(self, a, b),
        }
    }
    /// `a / b` on non-negative index values, rounded up; affine by a constant.
    pub fn ceil_div(self, a: Value, b: Value) -> Result<Value> {
        match (constant_value(a), constant_value(b)) {
            (None, Some(k)) if k > 1 => index::apply(self.0, AffineOp::CeilDiv(k), a, None),
            _ => self.div(self.add(a, self.sub(b, self.index(1)?)?)?, b),
        }
    }
    /// Minimum.
    pub fn min(self, a: Value, b: Value) -> Result<Value> {
        match (constant_value(a), constant_value(b)) {
            (Some(x), Some(y)) => self.index(x.min(y)),
            _ => index::min(self.0, a, b),
        }
    }
    /// End of the block of `size` that starts at `lo`; all blocks but the last have `block`
    /// elements.
    pub fn block_end(self, lo: Value, block: Value, size: Value) -> Result<Value> {
        let next = self.add(lo, block)?;
        match (constant_value(block), constant_value(size)) {
            (Some(b), Some(n)) if b > 0 && n % b == 0 => Ok(next),
            (Some(b), Some(n)) if b > n && constant_value(lo) == Some(0) => Ok(size),
            _ => self.min(next, size),
        }
    }
    /// `scf.for` from `lo` to `hi`; folded away if it statically has no iterations.
    pub fn for_loop(
        self,
        lo: Value,
        hi: Value,
        step: i64,
        carried: &[Value],
        body: &mut LoopBody<'_>,
    ) -> Result<Vec<Value>> {
        match distance(lo, hi) {
            Some(n) if n <= 0 => return Ok(carried.to_vec()),
            Some(n) if n <= step => return body(self, lo, carried),
            _ => {}
        }
        self.for_dynamic_step(lo, hi, self.index(step)?, carried, body)
    }
    /// `scf.for` from `lo` to `hi` with a dynamic step.
    pub fn for_dynamic_step(
        self,
        lo: Value,
        hi: Value,
        step: Value,
        carried: &[Value],
        body: &mut LoopBody<'_>,
    ) -> Result<Vec<Value>> {
        let types: Vec<Type> = carried.iter().map(|v| v.ty()).collect();
        let args: Vec<Type> =
            std::iter::once(Type::index(self.ctx())).chain(types.iter().copied()).collect();
        let mut fill = |b: Builder, args: Vec<Value>| -> Result<()> {
            let (iv, rest) = args.split_first().ok_or("has no induction variable")?;
            let next = body(Code(b), *iv, rest)?;
            scf::yield_(b, &next)
        };
        Ok(scf::for_(self, lo, hi, step, carried, &types, (&args, &mut fill))?.results())
    }
    /// As [`Code::for_dynamic_step`], unrolled by `count` with a remainder loop, so that the loads
    /// of `count` iterations are in flight together.
    pub fn for_unrolled(
        self,
        lo: Value,
        hi: Value,
        step: Value,
        count: usize,
        carried: &[Value],
        body: &mut LoopBody<'_>,
    ) -> Result<Vec<Value>> {
        if count < 2 {
            return self.for_dynamic_step(lo, hi, step, carried, body);
        }
        // The remainder loop starts where the last of `count` iterations would be out of bounds.
        let end = self.sub(hi, self.mul(step, self.index(count as i64 - 1)?)?)?;
        let all = self.mul(step, self.index(count as i64)?)?;
        let mut both = self.for_dynamic_step(
            lo,
            end,
            all,
            &[&[lo], carried].concat(),
            &mut |c, i, carried| {
                let (mut i, mut values) = (i, carried.get(1..).unwrap_or_default().to_vec());
                for _ in 0..count {
                    values = body(c, i, &values)?;
                    i = c.add(i, step)?;
                }
                Ok([vec![i], values].concat())
            },
        )?;
        let next = both.remove(0);
        self.for_dynamic_step(next, hi, step, &both, body)
    }
    /// Indices from `lo` to `hi`, unrolled by `count`, with a remainder loop.
    pub fn for_unrolled_indices(
        self,
        lo: Value,
        hi: Value,
        step: Value,
        count: usize,
        body: &mut dyn FnMut(Code, &[Value]) -> Result<()>,
    ) -> Result<()> {
        let mut next = lo;
        if count > 1 {
            let end = self.sub(hi, self.mul(step, self.index(count as i64 - 1)?)?)?;
            let all = self.mul(step, self.index(count as i64)?)?;
            let done = self.for_dynamic_step(lo, end, all, &[lo], &mut |c, i, _| {
                let mut indices = vec![i];
                while indices.len() < count {
                    indices.push(c.add(indices[indices.len() - 1], step)?);
                }
                body(c, &indices)?;
                Ok(vec![c.add(indices[count - 1], step)?])
            })?;
            next = done.first().copied().ok_or("has no index")?;
        }
        self.for_dynamic_step(next, hi, step, &[], &mut |c, i, _| body(c, &[i]).map(|()| vec![]))
            .map(drop)
    }
    /// `scf.if` without results; the else branch is optional.
    pub fn if_else(
        self,
        condition: Value,
        then: &mut BranchBody<'_>,
        otherwise: Option<&mut BranchBody<'_>>,
    ) -> Result<()> {
        let mut fill = |b: Builder, _: Vec<Value>| -> Result<()> {
            then(Code(b))?;
            scf::yield_(b, &[])
        };
        let branch = scf::If::new(self, condition, &[]).then_region((&[], &mut fill));
        let Some(otherwise) = otherwise else { return branch.build().map(drop) };
        let mut other = |b: Builder, _: Vec<Value>| -> Result<()> {
            otherwise(Code(b))?;
            scf::yield_(b, &[])
        };
        branch.else_region((&[], &mut other)).build().map(drop)
    }
    /// What `then` computes if the condition holds, else what `otherwise` does.
    pub fn if_values(
        self,
        condition: Value,
        types: &[Type],
        then: &mut dyn FnMut(Code) -> Result<Vec<Value>>,
        otherwise: &mut dyn FnMut(Code) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let mut fill = |b: Builder, _: Vec<Value>| scf::yield_(b, &then(Code(b))?);
        let mut other = |b: Builder, _: Vec<Value>| scf::yield_(b, &otherwise(Code(b))?);
        let branch = scf::If::new(self, condition, types).then_region((&[], &mut fill));
        branch.else_region((&[], &mut other)).build().map(|op| op.results())
    }
    /// `arith.cmpi`.
    pub fn compare(self, predicate: CmpIPredicate, a: Value, b: Value) -> Result<Value> {
        arith::cmpi(self, predicate, a, b)
    }
    /// `a < b` on non-negative values.
    pub fn less_than(self, a: Value, b: Value) -> Result<Value> {
        self.compare(CmpIPredicate::Ult, a, b)
    }
    /// Conjunction of all; `None` for none.
    pub fn all_of(self, all: &[Value]) -> Result<Option<Value>> {
        let mut all = all.iter();
        let Some(first) = all.next().copied() else { return Ok(None) };
        all.try_fold(first, |a, b| arith::andi(self, a, *b)).map(Some)
    }
    /// `arith.select`: `condition ? a : b`.
    pub fn select(self, condition: Value, a: Value, b: Value) -> Result<Value> {
        arith::select(self, condition, a, b)
    }
}
