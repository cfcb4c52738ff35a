//! SSA values of symbolic sizes, in the host function and inside of kernels.
use kiln_dialects::{
    ir::*,
    ops::{self, OpKind, SymExpr, SymKind},
    sym::{Atom, Dim},
};
use kiln_passes::{Failure, refine_shapes::Facts};

/// The sizes that have an SSA value, and a builder for those that get one.
pub struct SizeValues<'a> {
    facts: &'a Facts,
    known: Vec<(Dim, Value)>,
    builder: Builder,
    /// Whether arithmetic is `arith` on index rather than `kiln.sym_expr`.
    arith: bool,
}

impl<'a> SizeValues<'a> {
    /// Reads the sizes of a function's block that are there before `end`, where `builder` inserts new ones.
    pub fn of_host(block: Block, facts: &'a Facts, builder: Builder, end: Op) -> SizeValues<'a> {
        let made = |op: &Op| matches!(op.kind(), Some(OpKind::Sym | OpKind::SymExpr)) || asks_argument(*op);
        let known =
            block.ops().into_iter().take_while(|op| *op != end).filter(made).map(|op| (facts.size_value(op.result(0)), op.result(0)));
        SizeValues { facts, known: known.filter(|(d, _)| *d != Dim::Unknown).collect(), builder, arith: false }
    }

    /// Sizes that kernel arguments state, with the values that stand for them now.
    pub fn of_kernel(facts: &'a Facts, args: impl Iterator<Item = (Value, Value)>, builder: Builder) -> SizeValues<'a> {
        SizeValues { facts, known: args.map(|(old, new)| (facts.size_value(old), new)).collect(), builder, arith: true }
    }

    /// One dimension of a value, as a number or an SSA size.
    pub fn size(&mut self, v: Value, axis: usize) -> Result<Size, String> {
        if let Some(n) = v.ty().dims().get(axis).and_then(Dim::known) {
            return Ok(Size::Static(n));
        }
        let dim = self.facts.dims(v).get(axis).cloned().unwrap_or(Dim::Unknown);
        match self.value(&dim) {
            Ok(size) => Ok(size),
            // Nothing names it: an argument's size can be asked for.
            Err(_) if v.block_arg().is_some() => {
                let size = self.builder.size_of(v, axis)?;
                if let Size::Dynamic(s) = size {
                    self.known.push((dim, s));
                }
                Ok(size)
            }
            Err(e) => Err(e),
        }
    }

    /// A size as a number or an SSA value, computed from symbols if it has none yet.
    pub fn value(&mut self, dim: &Dim) -> Result<Size, String> {
        if let Some(n) = dim.known() {
            return Ok(Size::Static(n));
        }
        if let Some((_, v)) = self.known.iter().find(|(d, _)| d == dim) {
            return Ok(Size::Dynamic(*v));
        }
        let mut sum: Option<Value> = None;
        for (factors, n) in dim.terms() {
            let mut product: Option<Value> = None;
            for a in &factors {
                let v = self.atom(a, dim)?;
                product = Some(self.apply(SymKind::Mul, product, v)?);
            }
            if n != 1 || factors.is_empty() {
                let number = self.builder.index(n)?;
                product = Some(self.apply(SymKind::Mul, product, number)?);
            }
            let term = product.ok_or("has an empty size")?;
            sum = Some(self.apply(SymKind::Add, sum, term)?);
        }
        let v = sum.ok_or_else(|| format!("has a size that depends on data ({dim}), which compiled programs do not support"))?;
        self.known.push((dim.clone(), v));
        Ok(Size::Dynamic(v))
    }

    fn atom(&mut self, a: &Atom, whole: &Dim) -> Result<Value, String> {
        let one = Dim::atom(a.clone());
        if let Some((_, v)) = self.known.iter().find(|(d, _)| *d == one) {
            return Ok(*v);
        }
        let Atom::Op(kind, args) = a else {
            return Err(format!("has a size that no input states ({whole}); kiln.bind_shape on an argument would"));
        };
        let (x, y) = (self.value(&args.0)?, self.value(&args.1)?);
        let (x, y) = (self.ssa(x)?, self.ssa(y)?);
        self.apply(*kind, Some(x), y)
    }

    fn ssa(&self, s: Size) -> Result<Value, String> {
        match s {
            Size::Static(n) => self.builder.index(n),
            Size::Dynamic(v) => Ok(v),
        }
    }

    fn apply(&self, kind: SymKind, lhs: Option<Value>, rhs: Value) -> Result<Value, String> {
        let Some(lhs) = lhs else { return Ok(rhs) };
        let index = Type::index(self.builder.ctx);
        if !self.arith {
            return Ok(self.builder.create_with(&SymExpr { kind, lhs, rhs }, &[index], &mut [])?.result(0));
        }
        // Sizes are not negative, so truncating and flooring agree.
        let name = match kind {
            SymKind::Add => "arith.addi",
            SymKind::Mul => "arith.muli",
            SymKind::Floordiv => "arith.divui",
            SymKind::Mod => "arith.remui",
            SymKind::Min => "arith.minsi",
            SymKind::Max => "arith.maxsi",
            SymKind::Pow => return Err("has a size that is a power, which a kernel does not compute".into()),
        };
        Ok(self.builder.generic(name, &[lhs, rhs], &[index], &[], &mut [])?.result(0))
    }
}

fn asks_argument(op: Op) -> bool {
    ops::Dim::of(op).is_some_and(|d| d.input.block_arg().is_some())
}

/// Writes sizes that are asked of computed values as arithmetic on those of arguments: the values go into kernels. Says whether there were any.
pub fn ask_arguments_only(block: Block, facts: &Facts) -> Result<bool, Failure> {
    let asked: Vec<Op> = block.ops().into_iter().filter(|o| o.kind() == Some(OpKind::Dim) && !asks_argument(*o)).collect();
    for op in &asked {
        let b = Builder::before(*op).ok_or_else(|| Failure::at(*op, "is in no block"))?;
        let size = SizeValues::of_host(block, facts, b, *op).value(&facts.size_value(op.result(0)));
        let value = size.and_then(|s| match s {
            Size::Static(n) => b.index(n),
            Size::Dynamic(v) => Ok(v),
        });
        op.result(0).replace_uses(value.map_err(|e| Failure::at(*op, e))?);
        op.erase();
    }
    Ok(!asked.is_empty())
}

/// The sizes that an op takes as SSA operands.
pub fn index_operands(op: Op) -> Vec<Value> {
    op.operands().into_iter().filter(|v| v.ty().is_index()).collect()
}

/// Whether the op states or makes sizes, so that it stays in the host function.
pub fn makes_sizes(op: Op) -> bool {
    op.is("arith.constant") && op.result(0).ty().is_index()
        || matches!(op.kind(), Some(OpKind::Sym | OpKind::SymExpr | OpKind::Dim | OpKind::BindShape))
        || ops::Global::of(op).is_some()
}
