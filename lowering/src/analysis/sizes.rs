//! SSA values of symbolic sizes, in the host function and in kernels.
use kiln_dialects::{
    ir::*,
    ops::{self, OpKind, SymExpr, SymKind},
    sym::{Atom, Dim},
};
use kiln_passes::refine_shapes::Facts;

/// Materialises a symbolic size as IR or as plain data.
pub trait SizeBuilder {
    /// What a size is materialised as.
    type Output: Copy;
    /// Materialises a constant.
    fn number(&mut self, n: i64) -> Result<Self::Output>;
    /// Materialises a symbol, or a size without a name; never an operation.
    fn leaf(&mut self, a: &Atom, whole: &Dim) -> Result<Self::Output>;
    /// Materialises an operation on two sizes.
    fn apply(
        &mut self,
        kind: SymKind,
        lhs: Self::Output,
        rhs: Self::Output,
    ) -> Result<Self::Output>;
    /// The size, if it is already materialised.
    fn cached(&self, d: &Dim) -> Option<Self::Output>;
    /// Caches a materialised size.
    fn cache(&mut self, d: &Dim, made: Self::Output);

    /// Materialises a size: a constant, a cached one, or a sum of products.
    fn build(&mut self, d: &Dim) -> Result<Self::Output> {
        if let Some(n) = d.known() {
            return self.number(n);
        }
        if let Some(made) = self.cached(d) {
            return Ok(made);
        }
        let mut sum = None;
        for (factors, n) in d.terms() {
            let mut product = None;
            for a in &factors {
                let x = self.atom(a, d)?;
                product = Some(self.joined(SymKind::Mul, product, x)?);
            }
            if n != 1 || factors.is_empty() {
                let x = self.number(n)?;
                product = Some(self.joined(SymKind::Mul, product, x)?);
            }
            let term = product.ok_or("has an empty size")?;
            sum = Some(self.joined(SymKind::Add, sum, term)?);
        }
        let made = sum.ok_or_else(|| {
            format!("has a size that depends on data ({d}), which compiled programs do not support")
        })?;
        self.cache(d, made);
        Ok(made)
    }
    /// One factor of a term of `whole`.
    fn atom(&mut self, a: &Atom, whole: &Dim) -> Result<Self::Output> {
        if let Some(made) = self.cached(&Dim::atom(a.clone())) {
            return Ok(made);
        }
        let Atom::Op(kind, args) = a else { return self.leaf(a, whole) };
        let (x, y) = (self.build(&args.0)?, self.build(&args.1)?);
        self.apply(*kind, x, y)
    }
    /// `lhs kind rhs`, or `rhs` if there is no `lhs`.
    fn joined(
        &mut self,
        kind: SymKind,
        lhs: Option<Self::Output>,
        rhs: Self::Output,
    ) -> Result<Self::Output> {
        match lhs {
            Some(lhs) => self.apply(kind, lhs, rhs),
            None => Ok(rhs),
        }
    }
}

/// Builds an op on two sizes.
pub type SizeOp = fn(Builder, Value, Value) -> Result<Value>;

/// The `arith` op on sizes, which are not negative, so that truncating and flooring division agree.
/// There is none for powers.
pub fn arith_op(kind: SymKind) -> Option<SizeOp> {
    Some(match kind {
        SymKind::Add => arith::addi,
        SymKind::Mul => arith::muli,
        SymKind::Floordiv => arith::divui,
        SymKind::Mod => arith::remui,
        SymKind::Min => arith::minsi,
        SymKind::Max => arith::maxsi,
        SymKind::Pow => return None,
    })
}

/// The sizes with an SSA value, and a builder for new ones.
pub struct SizeValues<'a> {
    facts: &'a Facts,
    known: Vec<(Dim, Value)>,
    builder: Builder,
    /// Whether arithmetic is `arith` on index, not `kiln.sym_expr`.
    arith: bool,
}

impl<'a> SizeValues<'a> {
    /// Collects the sizes that a function's block defines before `end`, where `builder` inserts new
    /// ones.
    pub fn of_host(block: Block, facts: &'a Facts, builder: Builder, end: Op) -> SizeValues<'a> {
        let made = |op: &Op| {
            matches!(op.kind(), Some(OpKind::Sym | OpKind::SymExpr)) || asks_argument(*op)
        };
        let known = block
            .ops()
            .into_iter()
            .take_while(|op| *op != end)
            .filter(made)
            .map(|op| (facts.size_value(op.result(0)), op.result(0)));
        SizeValues {
            facts,
            known: known.filter(|(d, _)| *d != Dim::Unknown).collect(),
            builder,
            arith: false,
        }
    }

    /// As [`SizeValues::of_host`], with the sizes of arguments that no symbol names.
    pub fn of_arguments(
        block: Block,
        facts: &'a Facts,
        builder: Builder,
        end: Op,
    ) -> Result<SizeValues<'a>> {
        let mut sizes = SizeValues::of_host(block, facts, builder, end);
        for v in block.args().into_iter().filter(|v| v.ty().is_tensor() && !bound(*v)) {
            for axis in 0..v.ty().dims().len() {
                sizes.size(v, axis).at(end)?;
            }
        }
        Ok(sizes)
    }

    /// Collects the sizes that kernel arguments state, with their current values.
    pub fn of_kernel(
        facts: &'a Facts,
        args: impl Iterator<Item = (Value, Value)>,
        builder: Builder,
    ) -> SizeValues<'a> {
        SizeValues {
            facts,
            known: args.map(|(old, new)| (facts.size_value(old), new)).collect(),
            builder,
            arith: true,
        }
    }

    /// The same with one value for the sizes of each pair.
    pub fn equated(mut self, pairs: &[(Dim, Dim)]) -> SizeValues<'a> {
        let at = |all: &[(Dim, Value)], d: &Dim| all.iter().find(|(k, _)| k == d).map(|(_, v)| *v);
        for (one, other) in pairs {
            let (Some(kept), Some(gone)) = (at(&self.known, one), at(&self.known, other)) else {
                continue;
            };
            self.known.iter_mut().filter(|(_, v)| *v == gone).for_each(|(_, v)| *v = kept);
        }
        self
    }

    /// A dimension of a value, as a constant or an SSA size.
    pub fn size(&mut self, v: Value, axis: usize) -> Result<Size> {
        if let Some(n) = v.ty().dims().get(axis).and_then(Dim::known) {
            return Ok(Size::Static(n));
        }
        let dim = self.facts.dims(v).get(axis).cloned().unwrap_or(Dim::Unknown);
        match self.value(&dim) {
            // The type leaves open what the facts know, so an op that makes it wants an operand.
            Ok(Size::Static(n)) => self.constant(n).map(Size::Dynamic),
            Ok(size) => Ok(size),
            // A free symbol: the size of an argument can be read by `kiln.dim`.
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

    /// A constant as an SSA value.
    fn constant(&mut self, n: i64) -> Result<Value> {
        let dim = Dim::Known(n);
        if let Some(made) = self.cached(&dim) {
            return Ok(made);
        }
        let made = self.builder.index(n)?;
        self.cache(&dim, made);
        Ok(made)
    }

    /// A size as a constant or an SSA value; materialised from symbols if it has none yet.
    pub fn value(&mut self, dim: &Dim) -> Result<Size> {
        if let Some(n) = dim.known() {
            return Ok(Size::Static(n));
        }
        self.build(dim).map(Size::Dynamic)
    }
}

/// Whether all sizes of an argument are static or bound to symbols.
fn bound(v: Value) -> bool {
    v.ty().dims().iter().all(|d| d.known().is_some())
        || v.uses().iter().any(|(user, _)| ops::BindShape::of(*user).is_some())
}

impl SizeBuilder for SizeValues<'_> {
    type Output = Value;
    fn number(&mut self, n: i64) -> Result<Value> {
        self.builder.index(n)
    }
    fn leaf(&mut self, _: &Atom, whole: &Dim) -> Result<Value> {
        Err(format!(
            "has a size that no input states ({whole}); kiln.bind_shape on an argument would"
        )
        .into())
    }
    fn apply(&mut self, kind: SymKind, lhs: Value, rhs: Value) -> Result<Value> {
        let index = Type::index(self.builder.ctx);
        if !self.arith {
            return Ok(self
                .builder
                .create_with(&SymExpr { kind, lhs, rhs }, &[index], &mut [])?
                .result(0));
        }
        let op =
            arith_op(kind).ok_or("has a size that is a power, which a kernel does not compute")?;
        op(self.builder, lhs, rhs)
    }
    fn cached(&self, d: &Dim) -> Option<Value> {
        self.known.iter().find(|(k, _)| k == d).map(|(_, v)| *v)
    }
    fn cache(&mut self, d: &Dim, made: Value) {
        self.known.push((d.clone(), made));
    }
}

fn asks_argument(op: Op) -> bool {
    ops::Dim::of(op).is_some_and(|d| d.input.block_arg().is_some())
}

/// Rewrites sizes read from computed values as arithmetic on sizes of arguments, since the computed
/// values move into kernels. Returns whether there were any.
pub fn ask_arguments_only(block: Block, facts: &Facts) -> Result<bool> {
    let asked: Vec<Op> = block
        .ops()
        .into_iter()
        .filter(|o| o.kind() == Some(OpKind::Dim) && !asks_argument(*o))
        .collect();
    let mut made: Vec<(Dim, Value)> = vec![];
    for op in &asked {
        let dim = facts.size_value(op.result(0));
        let known = made.iter().find(|(d, _)| *d == dim && dim != Dim::Unknown).map(|(_, v)| *v);
        let value = match known {
            Some(v) => v,
            None => {
                let b = Builder::before(*op).ok_or_at(*op, "is in no block")?;
                match SizeValues::of_host(block, facts, b, *op).value(&dim).at(*op)? {
                    Size::Static(n) => b.index(n).at(*op)?,
                    Size::Dynamic(v) => v,
                }
            }
        };
        made.push((dim, value));
        op.result(0).replace_uses(value);
    }
    // Not before: facts are kept by address, which a new op would take over from an erased one.
    asked.iter().for_each(|op| op.erase());
    Ok(!asked.is_empty())
}

/// The sizes that an op takes as SSA operands.
pub fn index_operands(op: Op) -> Vec<Value> {
    op.operands().into_iter().filter(|v| v.ty().is_index()).collect()
}

/// Whether the op states or computes sizes, so that it stays in the host function.
pub fn makes_sizes(op: Op) -> bool {
    op.isa::<arith::Constant>() && op.result(0).ty().is_index()
        || matches!(
            op.kind(),
            Some(
                OpKind::Sym
                    | OpKind::SymExpr
                    | OpKind::Dim
                    | OpKind::BindShape
                    | OpKind::Require
                    | OpKind::AdvanceRng
                    | OpKind::RequireIndex
            )
        )
}
