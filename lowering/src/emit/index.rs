//! Index arithmetic as `affine.apply` and `affine.min`, whose maps are composed as they are built.
//!
//! An operand that an `affine.apply` of the same block defines becomes part of the map, as in
//! upstream's `makeComposedFoldedAffineApply`. Two kinds of operands stay operands, so that
//! `kiln-lower-affine` gives the arithmetic of the uncomposed ops: those of an outer block, which a
//! loop would compute again, and those whose expression MLIR would reorder. Differences are not
//! composed into a quotient, since MLIR may split it into a sum of quotients of negative numbers.
use kiln_dialects::ir::*;

/// Marks, while a function is emitted, an affine op that is part of another one.
pub const PART: &str = "kiln.part";

/// The constant that a value is, if it is an `arith.constant`.
pub fn known(v: Value) -> Option<i64> {
    v.def_as::<arith::Constant>()?.value()?.as_i64()
}

/// An affine expression over values.
#[derive(Clone, Debug, PartialEq)]
struct Expr {
    expr: Affine,
    dims: Vec<Value>,
}

impl Expr {
    /// The value as an operand.
    fn operand(v: Value) -> Expr {
        match known(v) {
            Some(k) => Expr { expr: Affine::Const(k), dims: vec![] },
            None => Expr { expr: Affine::Dim(0), dims: vec![v] },
        }
    }
    /// The expression that defines a value.
    fn definition(v: Value) -> Option<Expr> {
        if let Some(apply) = v.def_as::<affine::AffineApply>() {
            let (dims, results) = apply.map()?.as_affine_map()?;
            let operands = apply.map_operands();
            let [expr] = <[Affine; 1]>::try_from(results).ok()?;
            return (dims == operands.len()).then_some(Expr { expr, dims: operands });
        }
        let sum = v.def_as::<arith::AddI>().filter(|_| v.ty().is_index())?;
        let k = known(sum.rhs())?;
        Some(Expr { expr: plus(Affine::Dim(0), k), dims: vec![sum.lhs()] })
    }
    /// The expression without its constant term, and that term.
    fn split(self) -> (Expr, i64) {
        match self.expr {
            Affine::Const(k) => (Expr { expr: Affine::Const(0), ..self }, k),
            Affine::Add(e, k) if matches!(*k, Affine::Const(_)) => {
                let Affine::Const(k) = *k else { return (Expr { expr: *e, ..self }, 0) };
                (Expr { expr: *e, ..self }, k)
            }
            _ => (self, 0),
        }
    }
    /// Both expressions over the dimensions of both; a value is one dimension.
    fn pair(&self, other: &Expr) -> (Affine, Affine, Vec<Value>) {
        let mut dims = self.dims.clone();
        let mut places = vec![];
        for v in &other.dims {
            let place = dims.iter().position(|d| d == v);
            places.push(place.unwrap_or(dims.len()));
            if place.is_none() {
                dims.push(*v);
            }
        }
        let second = other.expr.with_dims(&|d| Affine::Dim(places.get(d).copied().unwrap_or(d)));
        (self.expr.clone(), second, dims)
    }
}

/// `e + k`.
fn plus(e: Affine, k: i64) -> Affine {
    match e {
        Affine::Const(j) => Affine::Const(j + k),
        e if k == 0 => e,
        Affine::Add(e, j) => match *j {
            Affine::Const(j) => plus(*e, j + k),
            j => Affine::Add(Box::new(Affine::Add(e, Box::new(j))), Box::new(Affine::Const(k))),
        },
        e => Affine::Add(Box::new(e), Box::new(Affine::Const(k))),
    }
}

/// `e * k`.
fn times(e: Affine, k: i64) -> Affine {
    match e {
        Affine::Const(j) => Affine::Const(j * k),
        Affine::Mul(e, j) => match *j {
            Affine::Const(j) => Affine::Mul(e, Box::new(Affine::Const(j * k))),
            j => Affine::Mul(Box::new(Affine::Mul(e, Box::new(j))), Box::new(Affine::Const(k))),
        },
        e => Affine::Mul(Box::new(e), Box::new(Affine::Const(k))),
    }
}

/// Whether an expression over non-negative operands has no term that may be negative.
pub(super) fn nonnegative(e: &Affine) -> bool {
    match e {
        Affine::Dim(_) | Affine::Symbol(_) | Affine::Mod(..) => true,
        Affine::Const(k) => *k >= 0,
        Affine::Add(l, r) | Affine::Mul(l, r) => nonnegative(l) && nonnegative(r),
        Affine::FloorDiv(l, _) | Affine::CeilDiv(l, _) => nonnegative(l),
    }
}

/// `b - a`, if it is a constant.
pub fn distance(a: Value, b: Value) -> Option<i64> {
    let forms =
        |v| [Expr::definition(v), Some(Expr::operand(v))].into_iter().flatten().map(Expr::split);
    forms(a).find_map(|(x, i)| forms(b).find(|(y, _)| x == *y).map(|(_, j)| j - i))
}

/// What an `affine.apply` does with one or two operands.
#[derive(Clone, Copy)]
pub enum Form {
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

impl Form {
    fn divides(self) -> bool {
        matches!(self, Form::FloorDiv(_) | Form::CeilDiv(_) | Form::Mod(_))
    }
    fn of(self, a: Affine, b: Affine) -> Affine {
        match (self, b) {
            (Form::Add, Affine::Const(k)) => plus(a, k),
            (Form::Sub, Affine::Const(k)) => plus(a, -k),
            (Form::Add, b) => Affine::Add(Box::new(a), Box::new(b)),
            (Form::Sub, b) => Affine::Add(Box::new(a), Box::new(times(b, -1))),
            (Form::Mul(k), _) => times(a, k),
            (Form::FloorDiv(k), _) => Affine::FloorDiv(Box::new(a), Box::new(Affine::Const(k))),
            (Form::CeilDiv(k), _) => Affine::CeilDiv(Box::new(a), Box::new(Affine::Const(k))),
            (Form::Mod(k), _) => Affine::Mod(Box::new(a), Box::new(Affine::Const(k))),
        }
    }
}

/// The expressions that may stand for an operand, best first.
fn choices(at: Builder, v: Value) -> Vec<Expr> {
    let here = v.def().and_then(Op::block) == Some(at.block());
    let inner = Expr::definition(v).filter(|_| here && v.def_as::<arith::AddI>().is_none());
    inner.into_iter().chain([Expr::operand(v)]).collect()
}
/// Whether MLIR leaves an expression as it is.
fn stays(at: Builder, e: &Affine) -> bool {
    e.folded(at.ctx).as_ref() == Some(e)
}
/// Emits an expression, unless it is a constant or an operand.
fn emitted(at: Builder, e: Affine, dims: &[Value]) -> Result<Value> {
    match e {
        Affine::Const(k) => at.index(k),
        Affine::Dim(d) => Ok(*dims.get(d).ok_or("has a map without its operand")?),
        e => affine::apply(at, Attr::affine_map(at.ctx, dims.len(), &[e]), dims),
    }
}
/// Marks what defines a value, if it has become part of another op.
fn mark(v: Value, part: bool) {
    if let Some(op) = v.def().filter(|_| part) {
        op.set_attr(PART, Attr::unit(op.ctx()));
    }
}
/// `affine.apply` of one or two index values.
pub fn apply(at: Builder, form: Form, a: Value, b: Option<Value>) -> Result<Value> {
    let none = vec![Expr { expr: Affine::Const(0), dims: vec![] }];
    let (left, right) = (choices(at, a), b.map_or(none, |b| choices(at, b)));
    for (i, x) in left.iter().enumerate() {
        for (j, y) in right.iter().enumerate() {
            let (l, r, dims) = x.pair(y);
            let fits = !form.divides() || nonnegative(&l);
            let e = form.of(l, r);
            if fits && stays(at, &e) {
                mark(a, i + 1 < left.len());
                b.into_iter().for_each(|b| mark(b, j + 1 < right.len()));
                return emitted(at, e, &dims);
            }
        }
    }
    // Of one value twice.
    emitted(at, form.of(Affine::Dim(0), Affine::Dim(1)), &[a, b.unwrap_or(a)])
}
/// `a + k`; the constant terms of both are one, even where `a` is of an outer block.
pub fn shifted(at: Builder, a: Value, k: i64) -> Result<Value> {
    if let Some((e, j)) = Expr::definition(a).map(Expr::split).filter(|(_, j)| *j != 0) {
        return emitted(at, plus(e.expr, j + k), &e.dims);
    }
    let k = Expr { expr: Affine::Const(k), dims: vec![] };
    let all = choices(at, a);
    let made = all.iter().enumerate().find_map(|(i, x)| {
        let (l, r, dims) = x.pair(&k);
        let e = Form::Add.of(l, r);
        stays(at, &e).then_some((i, e, dims))
    });
    let (i, e, dims) = made.ok_or("has no sum")?;
    mark(a, i + 1 < all.len());
    emitted(at, e, &dims)
}
/// `affine.min` of two index values.
pub fn min(at: Builder, a: Value, b: Value) -> Result<Value> {
    let (left, right) = (choices(at, a), choices(at, b));
    let (x, y) = (left.first().ok_or("is no value")?, right.first().ok_or("is no value")?);
    let (l, r, dims) = x.pair(y);
    if l == r {
        return Ok(a);
    }
    mark(a, left.len() > 1);
    mark(b, right.len() > 1);
    affine::min(at, Attr::affine_map(at.ctx, dims.len(), &[l, r]), &dims)
}
