//! Index arithmetic as `affine.apply` and `affine.min`, whose maps are composed as they are built.
//!
//! An operand that an `affine.apply` of the same block defines becomes part of the map, as in
//! upstream's `makeComposedFoldedAffineApply`. Two kinds of operands stay operands, so that
//! `kiln-lower-affine` gives the arithmetic of the uncomposed ops: those of an outer block, which a
//! loop would compute again, and those whose expression MLIR would reorder. Differences are not
//! composed into a quotient, since MLIR may split it into a sum of quotients of negative numbers.
use kiln_dialects::{algebra::Expr, ir::*, ops::SymKind};
use std::collections::{HashMap, hash_map::Entry};

/// Marks, while a function is emitted, an affine op that is part of another one.
pub const PART: &str = "kiln.part";

/// The constant that a value is, if it is an `arith.constant`.
pub fn constant_value(v: Value) -> Option<i64> {
    v.def_as::<arith::Constant>()?.value()?.as_i64()
}

/// Index constants in one place of a function, one op per value.
pub struct Constants {
    builder: Builder,
    ops: HashMap<i64, Value>,
}

impl Constants {
    /// Constants are inserted where `builder` inserts.
    pub fn at(builder: Builder) -> Constants {
        Constants { builder, ops: HashMap::new() }
    }
    /// The constant of this value.
    pub fn get(&mut self, k: i64) -> Result<Value> {
        Ok(match self.ops.entry(k) {
            Entry::Occupied(op) => *op.get(),
            Entry::Vacant(none) => *none.insert(self.builder.index(k)?),
        })
    }
}

/// An affine expression over values.
#[derive(Clone, Debug, PartialEq)]
struct Composed {
    expr: Affine,
    dims: Vec<Value>,
}

impl Composed {
    /// The value as an operand.
    fn operand(v: Value) -> Composed {
        match constant_value(v) {
            Some(k) => Composed { expr: Expr::Const(k), dims: vec![] },
            None => Composed { expr: Affine::dim(0), dims: vec![v] },
        }
    }
    /// The expression that defines a value.
    fn definition(v: Value) -> Option<Composed> {
        if let Some(apply) = v.def_as::<affine::AffineApply>() {
            let (dims, results) = apply.map()?.as_affine_map()?;
            let operands = apply.map_operands();
            let [expr] = <[Affine; 1]>::try_from(results).ok()?;
            return (dims == operands.len()).then_some(Composed { expr, dims: operands });
        }
        let sum = v.def_as::<arith::AddI>().filter(|_| v.ty().is_index())?;
        let k = constant_value(sum.rhs())?;
        Some(Composed { expr: Affine::dim(0).plus_constant(k), dims: vec![sum.lhs()] })
    }
    /// The expression without its constant term, and that term.
    fn split(self) -> (Composed, i64) {
        let (expr, k) = self.expr.split_constant();
        (Composed { expr, ..self }, k)
    }
    /// Both expressions over the dimensions of both; a value is one dimension.
    fn pair(&self, other: &Composed) -> Option<(Affine, Affine, Vec<Value>)> {
        let mut dims = self.dims.clone();
        let mut places = vec![];
        for v in &other.dims {
            let place = dims.iter().position(|d| d == v);
            places.push(place.unwrap_or(dims.len()));
            if place.is_none() {
                dims.push(*v);
            }
        }
        let moved = |l: &MapInput| match l {
            MapInput::Dim(d) => places.get(*d).map(|p| Affine::dim(*p)),
            MapInput::Symbol(_) => None,
        };
        Some((self.expr.clone(), other.expr.substitute(&moved)?, dims))
    }
}

/// `a kind b`, as it is written.
fn op(kind: SymKind, a: Affine, b: Affine) -> Affine {
    Expr::Apply(kind, Box::new((a, b)))
}

/// `e * k`; constant factors are one.
fn times(e: Affine, k: i64) -> Affine {
    match e {
        Expr::Const(j) => Expr::Const(j * k),
        Expr::Apply(SymKind::Mul, both) if both.1.known().is_some() => {
            let j = both.1.known().unwrap_or(1);
            op(SymKind::Mul, both.0, Expr::Const(j * k))
        }
        e => op(SymKind::Mul, e, Expr::Const(k)),
    }
}

/// Whether an expression over non-negative operands has no term that may be negative.
pub(super) fn nonnegative(e: &Affine) -> bool {
    match e {
        Expr::Const(k) => *k >= 0,
        Expr::Leaf(_) | Expr::Apply(SymKind::Mod, _) => true,
        Expr::Apply(SymKind::Add | SymKind::Mul, both) => {
            nonnegative(&both.0) && nonnegative(&both.1)
        }
        Expr::Apply(SymKind::Floordiv, both) => nonnegative(&both.0),
        Expr::Apply(SymKind::Min | SymKind::Max | SymKind::Pow, _) => false,
    }
}

/// `b - a`, if it is a constant.
pub fn distance(a: Value, b: Value) -> Option<i64> {
    let forms = |v| {
        [Composed::definition(v), Some(Composed::operand(v))]
            .into_iter()
            .flatten()
            .map(Composed::split)
    };
    forms(a).find_map(|(x, i)| forms(b).find(|(y, _)| x == *y).map(|(_, j)| j - i))
}

/// What an `affine.apply` does with one or two operands.
#[derive(Clone, Copy)]
pub enum AffineOp {
    /// The sum.
    Add,
    /// The difference.
    Sub,
    /// The product with a constant.
    Mul(i64),
    /// The quotient by a positive constant, rounded down.
    FloorDiv(i64),
    /// The quotient by a positive constant, rounded up.
    CeilDiv(i64),
    /// The remainder by a positive constant.
    Mod(i64),
}

impl AffineOp {
    fn divides(self) -> bool {
        matches!(self, AffineOp::FloorDiv(_) | AffineOp::CeilDiv(_) | AffineOp::Mod(_))
    }
    fn expr(self, a: Affine, b: Affine) -> Affine {
        match (self, b) {
            (AffineOp::Add, Expr::Const(k)) => a.plus_constant(k),
            (AffineOp::Sub, Expr::Const(k)) => a.plus_constant(-k),
            (AffineOp::Add, b) => op(SymKind::Add, a, b),
            (AffineOp::Sub, b) => op(SymKind::Add, a, times(b, -1)),
            (AffineOp::Mul(k), _) => times(a, k),
            (AffineOp::FloorDiv(k), _) => op(SymKind::Floordiv, a, Expr::Const(k)),
            (AffineOp::CeilDiv(k), _) => {
                op(SymKind::Floordiv, a.plus_constant(k - 1), Expr::Const(k))
            }
            (AffineOp::Mod(k), _) => op(SymKind::Mod, a, Expr::Const(k)),
        }
    }
}

/// The expressions that may stand for an operand, best first.
fn operand_exprs(at: Builder, v: Value) -> Vec<Composed> {
    let here = v.def().and_then(Op::block) == Some(at.block());
    let inner = Composed::definition(v).filter(|_| here && v.def_as::<arith::AddI>().is_none());
    inner.into_iter().chain([Composed::operand(v)]).collect()
}
/// Whether MLIR leaves an expression as it is.
fn is_canonical(at: Builder, e: &Affine) -> bool {
    e.folded(at.ctx).as_ref() == Some(e)
}
/// Emits an expression, unless it is a constant or an operand.
fn emitted(at: Builder, e: Affine, dims: &[Value]) -> Result<Value> {
    match e {
        Expr::Const(k) => at.index(k),
        Expr::Leaf(MapInput::Dim(d)) => Ok(*dims.get(d).ok_or("has a map without its operand")?),
        e => affine::apply(at, Attr::affine_map(at.ctx, dims.len(), &[e])?, dims),
    }
}
/// Marks what defines a value, if it has become part of another op.
fn mark_part(v: Value, part: bool) {
    if let Some(op) = v.def().filter(|_| part) {
        op.set_attr(PART, Attr::unit(op.ctx()));
    }
}
/// `affine.apply` of one or two index values.
pub fn apply(at: Builder, op: AffineOp, a: Value, b: Option<Value>) -> Result<Value> {
    let none = vec![Composed { expr: Expr::Const(0), dims: vec![] }];
    let (left, right) = (operand_exprs(at, a), b.map_or(none, |b| operand_exprs(at, b)));
    for (i, x) in left.iter().enumerate() {
        for (j, y) in right.iter().enumerate() {
            let Some((l, r, dims)) = x.pair(y) else { continue };
            let fits = !op.divides() || nonnegative(&l);
            let e = op.expr(l, r);
            if fits && is_canonical(at, &e) {
                mark_part(a, i + 1 < left.len());
                b.into_iter().for_each(|b| mark_part(b, j + 1 < right.len()));
                return emitted(at, e, &dims);
            }
        }
    }
    // Of one value twice.
    emitted(at, op.expr(Affine::dim(0), Affine::dim(1)), &[a, b.unwrap_or(a)])
}
/// `a + k`; the constant terms of both are one, even where `a` is of an outer block.
pub fn shifted(at: Builder, a: Value, k: i64) -> Result<Value> {
    if let Some((e, j)) = Composed::definition(a).map(Composed::split).filter(|(_, j)| *j != 0) {
        return emitted(at, e.expr.plus_constant(j + k), &e.dims);
    }
    let k = Composed { expr: Expr::Const(k), dims: vec![] };
    let all = operand_exprs(at, a);
    let ops = all.iter().enumerate().find_map(|(i, x)| {
        let (l, r, dims) = x.pair(&k)?;
        let e = AffineOp::Add.expr(l, r);
        is_canonical(at, &e).then_some((i, e, dims))
    });
    let (i, e, dims) = ops.ok_or("has no sum")?;
    mark_part(a, i + 1 < all.len());
    emitted(at, e, &dims)
}
/// `affine.min` of two index values.
pub fn min(at: Builder, a: Value, b: Value) -> Result<Value> {
    let (left, right) = (operand_exprs(at, a), operand_exprs(at, b));
    let (x, y) = (left.first().ok_or("is no value")?, right.first().ok_or("is no value")?);
    let (l, r, dims) = x.pair(y).ok_or("has a map with symbols")?;
    if l == r {
        return Ok(a);
    }
    mark_part(a, left.len() > 1);
    mark_part(b, right.len() > 1);
    affine::min(at, Attr::affine_map(at.ctx, dims.len(), &[l, r])?, &dims)
}
