//! Index expressions: which element of an operand an element of a result reads, composed through
//! movement ops.
//!
//! An index is affine in the loop dimensions as long as possible, since fused accesses are compared
//! in that form. Quotients and remainders by constants also fit a linalg `affine_map`. Anything
//! else is a small expression tree over SSA sizes and data.
use crate::analysis::{LinearExpr, Poly};
use kiln_dialects::{
    algebra::Expr,
    ir::*,
    ops::*,
    rules::tensor_type,
    sym::{Atom, Dim as SymDim},
};

/// A position along one dimension of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexExpr(pub Expr<IndexLeaf>);

/// What a position is computed from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IndexLeaf {
    /// A linear form of the loop dimensions with constant coefficients; never a constant.
    LinearExpr(LinearExpr),
    /// An SSA size.
    Size(Value),
    /// A data-dependent (gather) index: the integer at a position of a tensor, clamped to `[0,
    /// limit]`.
    Data {
        /// The integer tensor.
        tensor: Value,
        /// The position in it.
        at: Vec<IndexExpr>,
        /// The upper bound of the clamp.
        limit: Box<IndexExpr>,
    },
}

impl IndexExpr {
    /// Loop dimension `d`.
    pub fn dim(d: usize) -> IndexExpr {
        IndexExpr(Expr::Leaf(IndexLeaf::LinearExpr(LinearExpr::dim(d))))
    }
    /// A constant.
    pub fn number(n: i64) -> IndexExpr {
        IndexExpr(Expr::Const(n))
    }
    /// A size.
    pub fn size(s: Size) -> IndexExpr {
        match s {
            Size::Static(n) => IndexExpr::number(n),
            Size::Dynamic(v) => IndexExpr(Expr::Leaf(IndexLeaf::Size(v))),
        }
    }
    /// What its leaves are computed from.
    pub fn leaves(&self) -> Vec<&IndexLeaf> {
        self.0.leaves()
    }
    /// Whether it depends on a loop dimension.
    pub fn uses(&self, d: usize) -> bool {
        self.leaves().iter().any(|p| match p {
            IndexLeaf::LinearExpr(l) => l.uses(d),
            IndexLeaf::Size(_) => false,
            IndexLeaf::Data { at, limit, .. } => limit.uses(d) || at.iter().any(|ix| ix.uses(d)),
        })
    }
    /// The constant, if it is one.
    pub fn known(&self) -> Option<i64> {
        self.0.known()
    }
    /// The linear form of the loop dimensions, if it is one.
    pub fn linear(&self) -> Option<LinearExpr> {
        match &self.0 {
            Expr::Const(n) => Some(LinearExpr::fixed(Poly::number(*n))),
            Expr::Leaf(IndexLeaf::LinearExpr(l)) => Some(l.clone()),
            _ => None,
        }
    }
    fn of(l: LinearExpr) -> IndexExpr {
        IndexExpr(l.known().map_or_else(|| Expr::Leaf(IndexLeaf::LinearExpr(l)), Expr::Const))
    }
    fn apply(self, kind: SymKind, other: IndexExpr) -> IndexExpr {
        IndexExpr(Expr::apply(kind, self.0, other.0))
    }
    /// The sum.
    pub fn plus(self, other: IndexExpr) -> IndexExpr {
        match (self.linear(), other.linear()) {
            (Some(a), Some(b)) => IndexExpr::of(a.plus(&b)),
            _ => self.apply(SymKind::Add, other),
        }
    }
    /// The product.
    pub fn times(self, other: IndexExpr) -> IndexExpr {
        match (self.linear(), self.known(), other.linear(), other.known()) {
            (Some(l), _, _, Some(n)) | (_, Some(n), Some(l), _) => {
                IndexExpr::of(l.times(&Poly::number(n)))
            }
            // A constant is the right factor.
            (_, Some(_), _, _) => other.apply(SymKind::Mul, self),
            _ => self.apply(SymKind::Mul, other),
        }
    }
    /// The quotient, rounded down, by a positive size.
    pub fn floordiv(self, other: IndexExpr) -> IndexExpr {
        self.apply(SymKind::Floordiv, other)
    }
    /// The remainder of [`IndexExpr::floordiv`].
    pub fn modulo(self, other: IndexExpr) -> IndexExpr {
        self.apply(SymKind::Mod, other)
    }
    /// The affine expression, if it is one: linear forms, and their quotients and remainders by
    /// positive constants.
    pub fn affine(&self) -> Option<Affine> {
        affine(&self.0)
    }
}

fn affine(e: &Expr<IndexLeaf>) -> Option<Affine> {
    let positive = |e: &Expr<IndexLeaf>| e.known().is_some_and(|n| n > 0);
    match e {
        Expr::Const(n) => Some(Expr::Const(*n)),
        Expr::Leaf(IndexLeaf::LinearExpr(l)) => l.affine(),
        Expr::Leaf(_) => None,
        Expr::Apply(kind, both) => {
            let fits = match kind {
                SymKind::Add => true,
                SymKind::Mul => positive(&both.0) || positive(&both.1),
                SymKind::Floordiv | SymKind::Mod => positive(&both.1),
                SymKind::Min | SymKind::Max | SymKind::Pow => false,
            };
            let (a, b) = fits.then_some((&both.0, &both.1))?;
            Some(Expr::apply(*kind, affine(a)?, affine(b)?))
        }
    }
}

/// Sizes of a value as indices: constants, or `size_of(axis)` for dynamic dimensions.
fn sizes(v: Value, size_of: &SizeOf) -> Option<Vec<IndexExpr>> {
    let dims = v.ty().dims().into_iter().enumerate();
    dims.map(|(axis, d)| match d {
        SymDim::Known(n) => Some(IndexExpr::number(n)),
        _ => size_of(v, axis).map(|v| IndexExpr::size(Size::Dynamic(v))),
    })
    .collect()
}

/// Callback for the SSA size of a dynamic dimension.
pub type SizeOf<'a> = dyn Fn(Value, usize) -> Option<Value> + 'a;

/// Composes an index through a movement op: the operand and the position in it of the element at
/// `at` of the result. `None` for other ops, and where a required size has no SSA value.
pub fn through(op: Op, at: &[IndexExpr], size_of: &SizeOf) -> Option<(Value, Vec<IndexExpr>)> {
    match op.kind()? {
        OpKind::BroadcastInDim => {
            let o = BroadcastInDim::of(op)?;
            let from = o.input.ty().dims();
            let to = op.result(0).ty().dims();
            let one =
                |i: usize| from[i].known() == Some(1) && to[o.dims[i] as usize].known() != Some(1);
            let ix = |i: usize| {
                if one(i) { IndexExpr::number(0) } else { at[o.dims[i] as usize].clone() }
            };
            Some((o.input, (0..from.len()).map(ix).collect()))
        }
        OpKind::Transpose => {
            let o = Transpose::of(op)?;
            let mut ix = at.to_vec();
            for (k, p) in o.permutation.iter().enumerate() {
                ix[*p as usize] = at[k].clone();
            }
            Some((o.input, ix))
        }
        OpKind::Slice => {
            let o = Slice::of(op)?;
            let ix = |i: usize| {
                at[i]
                    .clone()
                    .times(IndexExpr::number(o.strides[i]))
                    .plus(IndexExpr::size(o.offsets[i]))
            };
            Some((o.input, (0..at.len()).map(ix).collect()))
        }
        OpKind::Reverse => {
            let o = Reverse::of(op)?;
            let size = sizes(o.input, size_of)?;
            let back = |i: usize| {
                size[i]
                    .clone()
                    .plus(IndexExpr::number(-1))
                    .plus(at[i].clone().times(IndexExpr::number(-1)))
            };
            let ix = |i: usize| if o.dims.contains(&(i as i64)) { back(i) } else { at[i].clone() };
            Some((o.input, (0..at.len()).map(ix).collect()))
        }
        OpKind::Reshape => reshaped(op, at, size_of),
        OpKind::Gather => {
            let o = Gather::of(op)?;
            let size = sizes(o.input, size_of)?;
            let split = tensor_type(o.indices.first()?.ty()).ok()?.dims.len();
            let (inner, mut rest) = (at[..split].to_vec(), at[split..].iter());
            let mut ix = vec![];
            for (axis, size) in size.into_iter().enumerate() {
                ix.push(match o.dims.iter().position(|d| *d == axis as i64) {
                    Some(k) => IndexExpr(Expr::Leaf(IndexLeaf::Data {
                        tensor: o.indices[k],
                        at: inner.clone(),
                        limit: Box::new(size.plus(IndexExpr::number(-1))),
                    })),
                    None => rest.next()?.clone(),
                });
            }
            Some((o.input, ix))
        }
        OpKind::DynamicSlice => {
            let o = DynamicSlice::of(op)?;
            let size = sizes(o.input, size_of)?;
            let start = |i: usize| {
                let limit =
                    size[i].clone().plus(IndexExpr::size(o.sizes[i]).times(IndexExpr::number(-1)));
                let limit = Box::new(limit);
                IndexExpr(Expr::Leaf(IndexLeaf::Data { tensor: o.starts[i], at: vec![], limit }))
            };
            Some((o.input, (0..at.len()).map(|i| start(i).plus(at[i].clone())).collect()))
        }
        _ => None,
    }
}

/// Reassociation groups of a reshape: runs of dimensions of both sides with the same product, as
/// small as static and dynamic sizes prove.
pub fn reshape_groups(
    from: &[SymDim],
    to: &[SymDim],
) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (mut groups, mut i, mut j) = (vec![], 0, 0);
    let unknown = |d: &SymDim| matches!(d, SymDim::Unknown);
    while i < from.len() || j < to.len() {
        let (a, b) = (i, j);
        // Unknown sizes match only as the last dynamic pair of the two sides.
        let (mut p, mut q) = (SymDim::Known(1), SymDim::Known(1));
        loop {
            if i < from.len() && (i == a || smaller(&p, &q)) {
                p = p.mul(&from[i]);
                i += 1;
            } else if j < to.len() {
                q = q.mul(&to[j]);
                j += 1;
            } else if i < from.len() {
                p = p.mul(&from[i]);
                i += 1;
            }
            let done = i == from.len() && j == to.len();
            if done || (p == q && !unknown(&p) && i > a && j > b) {
                break;
            }
        }
        let matched = common_suffix(&from[a..i], &to[b..j]);
        groups.push((a..i - matched, b..j - matched));
        groups.extend((1..=matched).rev().map(|n| (i - n..i - n + 1, j - n..j - n + 1)));
    }
    groups
}

/// How many dimensions at the end of two groups are the same. The products of what precedes them are
/// equal too, even where nothing else states it, and at least one dimension precedes them.
fn common_suffix(from: &[SymDim], to: &[SymDim]) -> usize {
    let most = from.len().min(to.len()).saturating_sub(1);
    let same = |n: &usize| {
        let (x, y) = (&from[from.len() - 1 - n], &to[to.len() - 1 - n]);
        x == y && !matches!(x, SymDim::Unknown)
    };
    (0..most).take_while(same).count()
}

/// Whether the first product has to grow to match the second.
fn smaller(p: &SymDim, q: &SymDim) -> bool {
    match (p.known(), q.known()) {
        (Some(p), Some(q)) => p < q,
        (Some(_), None) => true,
        (None, Some(_)) => false,
        // The divisor of the other has factors to come.
        (None, None) => p != q && !divides(q, p),
    }
}

/// Whether `q / p` is exact for all values of the symbols, as far as the terms prove it.
fn divides(p: &SymDim, q: &SymDim) -> bool {
    let quotient = q.floordiv(p);
    quotient != SymDim::Unknown
        && quotient.atoms().iter().all(|a| !matches!(a, Atom::Op(SymKind::Floordiv, _)))
}

fn reshaped(op: Op, at: &[IndexExpr], size_of: &SizeOf) -> Option<(Value, Vec<IndexExpr>)> {
    let o = Reshape::of(op)?;
    let (from, to) = (sizes(o.input, size_of)?, sizes(op.result(0), size_of)?);
    // Equal SSA values are equal sizes, so each has one symbol.
    let name = |ix: &IndexExpr| match ix {
        IndexExpr(Expr::Leaf(IndexLeaf::Size(v))) => SymDim::sym(&format!("{v:?}")),
        other => other.known().map_or(SymDim::Unknown, SymDim::Known),
    };
    let names = |all: &[IndexExpr]| all.iter().map(name).collect::<Vec<_>>();
    let mut ix = vec![];
    for (a, b) in reshape_groups(&names(&from), &names(&to)) {
        // Linearises in row-major order, then delinearises along the operand's dimensions.
        let linear =
            b.filter(|j| to[*j].known() != Some(1)).fold(IndexExpr::number(0), |sum, j| {
                if sum.known() == Some(0) {
                    at[j].clone()
                } else {
                    sum.times(to[j].clone()).plus(at[j].clone())
                }
            });
        ix.extend(delinearize(linear, &from[a]));
    }
    Some((o.input, ix))
}

fn delinearize(linear: IndexExpr, sizes: &[IndexExpr]) -> Vec<IndexExpr> {
    let wide: Vec<usize> = (0..sizes.len()).filter(|i| sizes[*i].known() != Some(1)).collect();
    let mut ix = vec![IndexExpr::number(0); sizes.len()];
    let mut rest = linear;
    for (n, i) in wide.iter().enumerate().rev() {
        if n == 0 {
            ix[*i] = rest.clone();
        } else {
            ix[*i] = rest.clone().modulo(sizes[*i].clone());
            rest = rest.floordiv(sizes[*i].clone());
        }
    }
    ix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshape_groups_match_equal_trailing_sizes() {
        let (batch, keys, product) = (SymDim::sym("b"), SymDim::sym("k"), SymDim::sym("p"));
        let n = SymDim::Known;
        // Heads split off a product of sizes that has a name of its own.
        let from = [product.clone(), keys.clone(), n(8)];
        let to = [batch.clone(), n(4), keys.clone(), n(8)];
        assert_eq!(reshape_groups(&from, &to), [(0..1, 0..2), (1..2, 2..3), (2..3, 3..4)]);
        // Proven products stay in the smallest groups, and an unknown size matches nothing.
        let (from, to) = ([n(6), n(4), n(5)], [n(3), n(2), n(20)]);
        assert_eq!(reshape_groups(&from, &to), [(0..1, 0..2), (1..3, 2..3)]);
        let unknown = SymDim::Unknown;
        let from = [product, unknown.clone()];
        assert_eq!(reshape_groups(&from, &[batch, keys, unknown]), [(0..2, 0..3)]);
    }
}
