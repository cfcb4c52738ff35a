//! `kiln-lower-affine`: lowers the affine ops of kernels to arith and scf.
//!
//! Why: upstream's `lower-affine` marks products and sums as free of signed overflow, and expands
//! quotients and remainders for negative operands, by selects. Operands of affine ops in kernels are
//! not negative, so a quotient of an expression without negative terms is one unsigned op instead
//! of six.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %0 = affine.apply affine_map<(d0, d1) -> (d0 * 64 + d1 floordiv 8)>(%i, %j)
//! after:   %1 = arith.muli %i, %c64   %2 = arith.divui %j, %c8   %0 = arith.addi %1, %2
//!
//! before:  affine.for %i = 0 to min affine_map<(d0)[s0] -> (d0 + 64, s0)>(%lo)[%n] {…}
//! after:   %1 = arith.addi %lo, %c64   %2 = arith.minsi %1, %n   scf.for %i = %c0 to %2 step %c1 {…}
//! ```
use crate::emit::{
    affine_loops::stand_in,
    index::{Constants, nonnegative},
};
use kiln_dialects::{
    algebra::Expr,
    ir::*,
    ops::SymKind,
    rules::{LEVELS, Level},
};
use kiln_passes::{Numerics, Pass};
use std::collections::HashMap;

kiln_passes::pass_options! {
    /// The pass.
    pub struct LowerAffine {}
}

impl Pass for LowerAffine {
    const FLAG: &'static str = "kiln-lower-affine";
    const SUMMARY: &'static str =
        "Lowers affine loops to scf, and affine ops on non-negative values to unsigned arithmetic";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;
    const REQUIRED: bool = true;
    const DIALECTS: &'static [&'static str] = &["arith", "scf"];

    fn run(&self, root: Op) -> Result<()> {
        let all = functions_in(root);
        for func in all {
            let Some(top) = blocks(func).first().and_then(|b| b.first()) else { continue };
            let start = Builder::before(top).ok_or_at(func, "is in no block")?.at(func.loc());
            let mut lowering =
                Lowering { constants: Constants::at(start), computed: HashMap::new() };
            let mut replaced = vec![];
            // From the outside in: a loop moves its body, and its bounds are computed in front of it.
            for op in walk(func) {
                if let Some(old) = op.dyn_cast::<affine::AffineFor>() {
                    let last = lowering.lower_loop(old).at(op)?;
                    replaced.extend([last, op]);
                } else if let Some(new) = lowering.lowered(op).at(op)? {
                    op.result(0).replace_uses(new);
                    replaced.push(op);
                }
            }
            // At the end, since constants go in front of the first op.
            replaced.into_iter().for_each(Op::erase);
        }
        Ok(())
    }
}

/// The remainder of what may be negative: `remsi` alone would be negative, too.
fn remainder(b: Builder, x: Value, by: Value) -> Result<Value> {
    arith::remsi(b, arith::addi(b, arith::remsi(b, x, by)?, by)?, by)
}

type BinaryBuilder = fn(Builder, Value, Value) -> Result<Value>;

/// The lowering of one function.
struct Lowering {
    /// At the start of the function.
    constants: Constants,
    /// What a block computes, so that maps which share a part compute it once, where it is first.
    computed: HashMap<(Value, Value, &'static str), Value>,
}

impl Lowering {
    /// The value of an affine op.
    fn lowered(&mut self, op: Op) -> Result<Option<Value>> {
        let choose: BinaryBuilder = match () {
            _ if op.isa::<affine::AffineApply>() => |_, a, _| Ok(a),
            _ if op.isa::<affine::AffineMin>() => arith::minsi,
            _ if op.isa::<affine::AffineMax>() => arith::maxsi,
            _ => return Ok(None),
        };
        let b = Builder::before(op).ok_or("is in no block")?;
        self.mapped(b, op.attr("map"), &op.operands(), choose).map(Some)
    }
    /// The results of a map, combined by `choose`.
    fn mapped(
        &mut self,
        b: Builder,
        map: Option<Attr>,
        operands: &[Value],
        choose: BinaryBuilder,
    ) -> Result<Value> {
        let (dims, results) =
            map.and_then(Attr::as_affine_map).ok_or("has a map of another form")?;
        let mut all = vec![];
        for e in &results {
            all.push(self.value(b, e, operands, dims)?);
        }
        let mut all = all.into_iter();
        let first = all.next().ok_or("has an empty map")?;
        all.try_fold(first, |a, v| choose(b, a, v))
    }
    /// Puts an `scf.for` in front of a loop, with its body. Returns the `affine.yield` in it.
    fn lower_loop(&mut self, old: TypedOp<affine::AffineFor>) -> Result<Op> {
        let b = Builder::before(*old).ok_or("is in no block")?;
        let lower =
            self.mapped(b, old.lower_bound_map(), &old.lower_bound_operands(), arith::maxsi)?;
        let upper =
            self.mapped(b, old.upper_bound_map(), &old.upper_bound_operands(), arith::minsi)?;
        let step = self.constants.get(old.step().ok_or("has no step")?)?;
        let from = old.region().and_then(Region::first).ok_or("has no body")?;
        let types: Vec<Type> = from.args().iter().map(|v| v.ty()).collect();
        let results: Vec<Type> = old.results().iter().map(|v| v.ty()).collect();
        let last = from.terminator().ok_or("has no terminator")?;
        let mut fill = |b: Builder, args: Vec<Value>| {
            b.block().take_body(from, &args);
            scf::yield_(b, &last.operands())
        };
        let new = scf::for_(b, lower, upper, step, &old.inits(), &results, (&types, &mut fill))?;
        stand_in(*old, *new);
        Ok(last)
    }
    /// `make` of both operands, or what the block has of it.
    fn compute_once<T: OpType>(
        &mut self,
        b: Builder,
        l: Value,
        r: Value,
        make: fn(Builder, Value, Value) -> Result<Value>,
    ) -> Result<Value> {
        let known = self.computed.get(&(l, r, T::NAME)).copied();
        match known.filter(|v| v.def().and_then(Op::block) == Some(b.block())) {
            Some(v) => Ok(v),
            None => {
                let v = make(b, l, r)?;
                self.computed.insert((l, r, T::NAME), v);
                Ok(v)
            }
        }
    }
    /// An expression, left operands first.
    fn value(&mut self, b: Builder, e: &Affine, operands: &[Value], dims: usize) -> Result<Value> {
        let operand = |i: usize| operands.get(i).copied().ok_or("has too few operands".into());
        let two = |s: &mut Self, l: &Affine, r: &Affine| -> Result<(Value, Value)> {
            Ok((s.value(b, l, operands, dims)?, s.value(b, r, operands, dims)?))
        };
        let (kind, both) = match e {
            Expr::Leaf(MapInput::Dim(i)) => return operand(*i),
            Expr::Leaf(MapInput::Symbol(i)) => return operand(dims + i),
            Expr::Const(k) => return self.constants.get(*k),
            Expr::Apply(kind, both) => (kind, both),
        };
        let (x, y) = (&both.0, &both.1);
        if let (SymKind::Add, Expr::Apply(SymKind::Mul, negated)) = (kind, y)
            && let Some(k) = negated.1.known().filter(|k| *k < 0).and_then(i64::checked_neg)
        {
            // As it was before MLIR folded the difference, so that `lo * k` is computed once.
            let product = Expr::apply(SymKind::Mul, negated.0.clone(), Expr::Const(k));
            let (l, r) = two(self, x, &product)?;
            return self.compute_once::<arith::SubI>(b, l, r, arith::subi);
        }
        let (l, r) = two(self, x, y)?;
        match kind {
            SymKind::Add => self.compute_once::<arith::AddI>(b, l, r, arith::addi),
            SymKind::Mul => self.compute_once::<arith::MulI>(b, l, r, arith::muli),
            SymKind::Floordiv if nonnegative(x) => {
                self.compute_once::<arith::DivUI>(b, l, r, arith::divui)
            }
            SymKind::Floordiv => {
                let rest = remainder(b, l, r)?;
                arith::divsi(b, arith::subi(b, l, rest)?, r)
            }
            SymKind::Mod if nonnegative(x) => {
                self.compute_once::<arith::RemUI>(b, l, r, arith::remui)
            }
            SymKind::Mod => remainder(b, l, r),
            SymKind::Min | SymKind::Max | SymKind::Pow => {
                Err("has a map that is not affine".into())
            }
        }
    }
}
