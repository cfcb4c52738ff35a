//! What is known of a size's value from the operations that compute it, and positions that may count
//! from the end of a dimension.
use super::tools::*;
use kiln_dialects::{ir::*, ops::*};

/// The least and the greatest value, where they are known.
type Range = (Option<i64>, Option<i64>);

/// Operations looked through, so that long chains cost no more.
const DEPTH: usize = 16;

impl Cx {
    /// Whether a size is at least 0 by the operations that compute it.
    pub(super) fn is_not_negative(&self, n: Size) -> bool {
        range(n, DEPTH).0.is_some_and(|n| n >= 0)
    }
    /// A position in a dimension of this size, from its start: negative ones count from the end.
    fn counted_from_start(&self, at: Size, size: Size) -> Result<Size> {
        let (low, high) = range(at, DEPTH);
        if low.is_some_and(|n| n >= 0) {
            return Ok(at);
        }
        if high.is_some_and(|n| n < 0) {
            return self.size_add(at, size);
        }
        let negative = self.indicator(CompareKind::Lt, at, Size::Static(0))?;
        self.size_add(at, self.size_mul(negative, size)?)
    }
    /// As [`Cx::counted_from_start`], in a dimension of a tensor.
    pub(super) fn place_in(&self, x: Value, dim: usize, at: Size) -> Result<Size> {
        if range(at, DEPTH).0.is_some_and(|n| n >= 0) {
            return Ok(at);
        }
        self.counted_from_start(at, self.b.size_of(x, dim)?)
    }
    /// As [`Cx::counted_from_start`], clamped to the dimension as in Python's slices.
    pub(super) fn clamped(&self, at: Size, size: Size) -> Result<Size> {
        match (at.known(), size.known()) {
            (Some(at), Some(n)) => {
                return Ok(Size::Static(if at < 0 { (at + n).max(0) } else { at.min(n) }));
            }
            (Some(0), _) => return Ok(at),
            (Some(i64::MAX), _) => return Ok(size),
            _ if at == size => return Ok(size),
            _ => {}
        }
        let (low, high) = range(at, DEPTH);
        if low.is_some_and(|n| n >= 0) {
            return self.size_min(at, size);
        }
        if high.is_some_and(|n| n < 0) {
            return self.size_max(self.size_add(size, at)?, Size::Static(0));
        }
        let from = self.size_max(self.counted_from_start(at, size)?, Size::Static(0))?;
        self.size_min(from, size)
    }
}

fn range(n: Size, depth: usize) -> Range {
    let Size::Dynamic(v) = n else { return (n.known(), n.known()) };
    let Some(op) = v.def().filter(|_| depth > 0) else { return (None, None) };
    if let Some(s) = Sym::of(op) {
        return (Some(s.min), s.max);
    }
    if let Some(e) = SymExpr::of(op) {
        let of = |v: Value| range(Size::Dynamic(v), depth - 1);
        return combined(e.kind, of(e.lhs), of(e.rhs));
    }
    if op.isa::<arith::Constant>() {
        let n = op.attr("value").and_then(Attr::as_i64);
        return (n, n);
    }
    if op.is("kiln.dim") {
        let axis = op.attr("axis").and_then(Attr::as_i64).and_then(|n| usize::try_from(n).ok());
        let bound = axis.and_then(|axis| stated(op.operand(0), axis));
        let (low, high) = bound.map_or((None, None), |n| range(n, depth - 1));
        return (Some(low.unwrap_or(0).max(0)), high);
    }
    (None, None)
}

/// The size that `kiln.bind_shape` states.
fn stated(v: Value, axis: usize) -> Option<Size> {
    let binds = v.uses().into_iter().find_map(|(user, _)| BindShape::of(user))?;
    binds.sizes.get(axis).copied()
}

fn combined(kind: SymKind, x: Range, y: Range) -> Range {
    let both = |f: fn(i64, i64) -> Option<i64>, x: Option<i64>, y: Option<i64>| f(x?, y?);
    let positive = |r: Range| r.0.is_some_and(|n| n >= 0);
    match kind {
        SymKind::Add => (both(i64::checked_add, x.0, y.0), both(i64::checked_add, x.1, y.1)),
        SymKind::Mul if positive(x) && positive(y) => {
            (both(i64::checked_mul, x.0, y.0), both(i64::checked_mul, x.1, y.1))
        }
        SymKind::Mul => match (x, y) {
            (r, (Some(k), Some(same))) | ((Some(k), Some(same)), r) if k == same && k < 0 => {
                (both(i64::checked_mul, r.1, Some(k)), both(i64::checked_mul, r.0, Some(k)))
            }
            _ => (None, None),
        },
        SymKind::Floordiv if positive(x) => (Some(0), x.1),
        SymKind::Floordiv => (None, x.1.filter(|n| *n < 0).map(|_| -1)),
        SymKind::Mod => (Some(0), y.1.and_then(|n| n.checked_sub(1))),
        SymKind::Min => {
            (both(|a, b| Some(a.min(b)), x.0, y.0), [x.1, y.1].into_iter().flatten().min())
        }
        SymKind::Max => {
            ([x.0, y.0].into_iter().flatten().max(), both(|a, b| Some(a.max(b)), x.1, y.1))
        }
        SymKind::Pow if positive(x) => (Some(0), None),
        SymKind::Pow => (None, None),
    }
}
