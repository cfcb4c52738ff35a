//! Index expressions: which element of an operand an element of a result reads, composed through
//! movement ops.
//!
//! An index is affine in the loop dimensions as long as possible, since fused accesses are compared
//! in that form. Quotients and remainders by constants also fit a linalg `affine_map`. Anything
//! else is a small expression tree over SSA sizes and data.
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::tensor_type,
    sym::{Atom, Dim as SymDim},
};

/// A position along one dimension of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ix {
    /// `coef · dims + add`.
    Lin(Lin),
    /// An SSA size.
    Size(Value),
    /// A sum.
    Add(Box<Ix>, Box<Ix>),
    /// A product with a size.
    Mul(Box<Ix>, Box<Ix>),
    /// A quotient rounded down, by a positive size.
    FloorDiv(Box<Ix>, Box<Ix>),
    /// The remainder of that.
    Mod(Box<Ix>, Box<Ix>),
    /// A data-dependent (gather) index: the integer at a position of a tensor, clamped to `[0,
    /// limit]`.
    Data {
        /// The integer tensor.
        tensor: Value,
        /// The position in it.
        at: Vec<Ix>,
        /// The upper bound of the clamp.
        limit: Box<Ix>,
    },
}

/// An affine form over the loop dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lin {
    /// One coefficient per loop dimension.
    pub coef: Vec<i64>,
    /// The constant term.
    pub add: i64,
}

impl Lin {
    fn text(&self) -> String {
        let mut parts: Vec<String> = vec![];
        for (d, c) in self.coef.iter().enumerate().filter(|(_, c)| **c != 0) {
            parts.push(if *c == 1 { format!("d{d}") } else { format!("d{d} * {c}") });
        }
        if self.add != 0 || parts.is_empty() {
            parts.push(self.add.to_string());
        }
        parts.join(" + ")
    }
}

impl Ix {
    /// Loop dimension `d` of `rank`.
    pub fn dim(d: usize, rank: usize) -> Ix {
        let mut coef = vec![0; rank];
        coef[d] = 1;
        Ix::Lin(Lin { coef, add: 0 })
    }
    /// A constant.
    pub fn number(n: i64, rank: usize) -> Ix {
        Ix::Lin(Lin { coef: vec![0; rank], add: n })
    }
    /// A size.
    pub fn size(s: Size, rank: usize) -> Ix {
        match s {
            Size::Static(n) => Ix::number(n, rank),
            Size::Dynamic(v) => Ix::Size(v),
        }
    }
    /// Whether it depends on a loop dimension.
    pub fn uses(&self, d: usize) -> bool {
        match self {
            Ix::Lin(l) => l.coef.get(d).is_some_and(|c| *c != 0),
            Ix::Size(_) => false,
            Ix::Add(a, b) | Ix::Mul(a, b) | Ix::FloorDiv(a, b) | Ix::Mod(a, b) => {
                a.uses(d) || b.uses(d)
            }
            Ix::Data { at, limit, .. } => limit.uses(d) || at.iter().any(|ix| ix.uses(d)),
        }
    }
    fn known(&self) -> Option<i64> {
        if let Ix::Lin(l) = self { l.coef.iter().all(|c| *c == 0).then_some(l.add) } else { None }
    }
    /// The sum.
    pub fn plus(self, other: Ix) -> Ix {
        match (self, other) {
            (Ix::Lin(a), Ix::Lin(b)) => Ix::Lin(Lin {
                coef: a.coef.iter().zip(&b.coef).map(|(x, y)| x + y).collect(),
                add: a.add + b.add,
            }),
            (a, b) if b.known() == Some(0) => a,
            (a, b) if a.known() == Some(0) => b,
            (a, b) => Ix::Add(Box::new(a), Box::new(b)),
        }
    }
    /// The product.
    pub fn times(self, other: Ix) -> Ix {
        match (self.known(), other.known()) {
            (_, Some(n)) => self.scaled(n),
            (Some(n), _) => other.scaled(n),
            _ => Ix::Mul(Box::new(self), Box::new(other)),
        }
    }
    fn scaled(self, n: i64) -> Ix {
        match self {
            Ix::Lin(l) => {
                Ix::Lin(Lin { coef: l.coef.iter().map(|c| c * n).collect(), add: l.add * n })
            }
            other if n == 1 => other,
            other => {
                let rank = other.rank();
                Ix::Mul(Box::new(other), Box::new(Ix::number(n, rank)))
            }
        }
    }
    fn rank(&self) -> usize {
        match self {
            Ix::Lin(l) => l.coef.len(),
            Ix::Size(_) => 0,
            Ix::Add(a, b) | Ix::Mul(a, b) | Ix::FloorDiv(a, b) | Ix::Mod(a, b) => {
                a.rank().max(b.rank())
            }
            Ix::Data { at, limit, .. } => {
                at.iter().map(Ix::rank).max().unwrap_or(0).max(limit.rank())
            }
        }
    }
    fn floordiv(self, other: Ix) -> Ix {
        if other.known() == Some(1) { self } else { Ix::FloorDiv(Box::new(self), Box::new(other)) }
    }
    fn modulo(self, other: Ix) -> Ix {
        if other.known() == Some(1) {
            let rank = self.rank();
            Ix::number(0, rank)
        } else {
            Ix::Mod(Box::new(self), Box::new(other))
        }
    }
    /// The text of an affine expression, if it is one: affine forms, and their quotients and
    /// remainders by constants.
    pub fn affine(&self) -> Option<String> {
        let number = |n: &Ix| n.known().filter(|n| *n > 0);
        Some(match self {
            Ix::Lin(l) => l.text(),
            Ix::Add(a, b) => format!("{} + {}", a.affine()?, b.affine()?),
            Ix::Mul(a, b) => match (number(a), number(b)) {
                (_, Some(n)) => format!("({}) * {n}", a.affine()?),
                (Some(n), _) => format!("({}) * {n}", b.affine()?),
                _ => return None,
            },
            Ix::FloorDiv(a, b) => format!("({}) floordiv {}", a.affine()?, number(b)?),
            Ix::Mod(a, b) => format!("({}) mod {}", a.affine()?, number(b)?),
            Ix::Size(_) | Ix::Data { .. } => return None,
        })
    }
    /// The affine form, if it is one.
    pub fn lin(&self) -> Option<&Lin> {
        if let Ix::Lin(l) = self { Some(l) } else { None }
    }
}

/// Sizes of a value as indices over `rank` loops: constants, or `sizes(axis)` for dynamic
/// dimensions.
fn sizes(
    v: Value,
    rank: usize,
    size_of: &dyn Fn(Value, usize) -> Option<Value>,
) -> Option<Vec<Ix>> {
    let dims = v.ty().dims().into_iter().enumerate();
    dims.map(|(axis, d)| match d {
        SymDim::Known(n) => Some(Ix::number(n, rank)),
        _ => size_of(v, axis).map(Ix::Size),
    })
    .collect()
}

/// Callback for the SSA size of a dynamic dimension.
pub type SizeOf<'a> = dyn Fn(Value, usize) -> Option<Value> + 'a;

/// Composes an index through a movement op: the operand and the position in it of the element at
/// `at` of the result. `None` for other ops, and where a required size has no SSA value.
pub fn through(op: Op, at: &[Ix], loops: usize, size_of: &SizeOf) -> Option<(Value, Vec<Ix>)> {
    match op.kind()? {
        OpKind::BroadcastInDim => {
            let o = BroadcastInDim::of(op)?;
            let from = o.input.ty().dims();
            let to = op.result(0).ty().dims();
            let one =
                |i: usize| from[i].known() == Some(1) && to[o.dims[i] as usize].known() != Some(1);
            let ix = |i: usize| {
                if one(i) { Ix::number(0, loops) } else { at[o.dims[i] as usize].clone() }
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
                    .times(Ix::number(o.strides[i], loops))
                    .plus(Ix::size(o.offsets[i], loops))
            };
            Some((o.input, (0..at.len()).map(ix).collect()))
        }
        OpKind::Reverse => {
            let o = Reverse::of(op)?;
            let size = sizes(o.input, loops, size_of)?;
            let back = |i: usize| {
                size[i]
                    .clone()
                    .plus(Ix::number(-1, loops))
                    .plus(at[i].clone().times(Ix::number(-1, loops)))
            };
            let ix = |i: usize| if o.dims.contains(&(i as i64)) { back(i) } else { at[i].clone() };
            Some((o.input, (0..at.len()).map(ix).collect()))
        }
        OpKind::Reshape => reshaped(op, at, loops, size_of),
        OpKind::Gather => {
            let o = Gather::of(op)?;
            let size = sizes(o.input, loops, size_of)?;
            let split = tensor_type(o.indices.first()?.ty()).ok()?.dims.len();
            let (inner, mut rest) = (at[..split].to_vec(), at[split..].iter());
            let mut ix = vec![];
            for (axis, size) in size.into_iter().enumerate() {
                ix.push(match o.dims.iter().position(|d| *d == axis as i64) {
                    Some(k) => Ix::Data {
                        tensor: o.indices[k],
                        at: inner.clone(),
                        limit: Box::new(size.plus(Ix::number(-1, loops))),
                    },
                    None => rest.next()?.clone(),
                });
            }
            Some((o.input, ix))
        }
        OpKind::DynamicSlice => {
            let o = DynamicSlice::of(op)?;
            let size = sizes(o.input, loops, size_of)?;
            let start = |i: usize| {
                let limit =
                    size[i].clone().plus(Ix::size(o.sizes[i], loops).times(Ix::number(-1, loops)));
                Ix::Data { tensor: o.starts[i], at: vec![], limit: Box::new(limit) }
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
        groups.push((a..i, b..j));
    }
    groups
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

fn reshaped(op: Op, at: &[Ix], loops: usize, size_of: &SizeOf) -> Option<(Value, Vec<Ix>)> {
    let o = Reshape::of(op)?;
    let (from, to) = (sizes(o.input, loops, size_of)?, sizes(op.result(0), loops, size_of)?);
    // Equal SSA values are equal sizes, so each has one symbol.
    let name = |ix: &Ix| match ix {
        Ix::Size(v) => SymDim::sym(&format!("{v:?}")),
        other => other.known().map_or(SymDim::Unknown, SymDim::Known),
    };
    let names = |all: &[Ix]| all.iter().map(name).collect::<Vec<_>>();
    let mut ix = vec![];
    for (a, b) in reshape_groups(&names(&from), &names(&to)) {
        // Linearises in row-major order, then delinearises along the operand's dimensions.
        let linear =
            b.filter(|j| to[*j].known() != Some(1)).fold(Ix::number(0, loops), |sum, j| {
                if sum.known() == Some(0) {
                    at[j].clone()
                } else {
                    sum.times(to[j].clone()).plus(at[j].clone())
                }
            });
        ix.extend(apart(linear, &from[a], loops));
    }
    Some((o.input, ix))
}

fn apart(linear: Ix, sizes: &[Ix], loops: usize) -> Vec<Ix> {
    let wide: Vec<usize> = (0..sizes.len()).filter(|i| sizes[*i].known() != Some(1)).collect();
    let mut ix = vec![Ix::number(0, loops); sizes.len()];
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
