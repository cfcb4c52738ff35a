//! Reductions of segments, which are runs of an axis, and their derivatives.
use super::{
    Args, Cx, Outcome, Row,
    formula::{Term, value},
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.segment_reduce.default",
        arguments: "data, reduce, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None",
        build: segment_reduce,
    },
    Row {
        name: "aten._segment_reduce_backward.default",
        arguments: "grad, output, data, reduce, lengths=None, offsets=None, axis=0, initial=None",
        build: segment_reduce_backward,
    },
];

/// Segments of an axis of `data`, by lengths or by limits.
struct Segments {
    data: Value,
    /// The first element of each segment, and the one behind its last.
    starts: Value,
    ends: Value,
    axis: usize,
    reduce: String,
    initial: Option<f64>,
}

impl Segments {
    fn new(cx: &mut Cx, a: &Args<'_>) -> Result<Segments> {
        let data = cx.tensor(a, "data")?;
        let (starts, ends) = match (cx.optional(a, "lengths")?, cx.optional(a, "offsets")?) {
            (Some(lengths), _) => {
                let lengths = cx.convert(lengths, DType::I64)?;
                let ends = cx.scanned(CumulativeKind::Sum, lengths, rank_of(lengths) - 1)?;
                (cx.binary(BinaryKind::Sub, ends, lengths)?, ends)
            }
            (None, Some(offsets)) => {
                let offsets = cx.convert(offsets, DType::I64)?;
                let last = rank_of(offsets) - 1;
                let n = cx.size_add(cx.b.size_of(offsets, last)?, Size::Static(-1))?;
                (
                    cx.part(offsets, last, Size::Static(0), n)?,
                    cx.part(offsets, last, Size::Static(1), n)?,
                )
            }
            _ => return Err("segment_reduce(): Either lengths or offsets must be defined.".into()),
        };
        let axis = wrap(a.int("axis", Some(0))?, rank_of(data))?;
        if rank_of(starts) != axis + 1 {
            let reason = "segment_reduce(): Expected axis to be the last dimension of lengths.";
            return Err(reason.into());
        }
        let reduce = a.text("reduce", "")?;
        if !["sum", "mean", "prod", "max", "min"].contains(&reduce.as_str()) {
            return Err(format!("unsupported reduction given! {reduce}").into());
        }
        let initial = if a.has("initial") { Some(a.float("initial", None)?) } else { None };
        Ok(Segments { data, starts, ends, axis, reduce, initial })
    }
    /// Sizes of (lead, segments, n, rest): each segment's view of its axis.
    fn sizes(&self, cx: &Cx) -> Result<Vec<Size>> {
        let mut sizes = cx.b.sizes_of(self.data)?;
        sizes.insert(self.axis, cx.b.size_of(self.starts, self.axis)?);
        Ok(sizes)
    }
    /// In these sizes: the data, and whether an element is one of the segment's.
    fn elements(&self, cx: &Cx, sizes: &[Size]) -> Result<(Value, Value)> {
        let at = self.axis as i64;
        let dims: Vec<i64> = (0..sizes.len() as i64).filter(|d| *d != at).collect();
        let wide = cx.spread(self.data, &dims, sizes)?;
        let lead: Vec<i64> = (0..=at).collect();
        let low = cx.spread(self.starts, &lead, sizes)?;
        let high = cx.spread(self.ends, &lead, sizes)?;
        let i = cx.iota(DType::I64, sizes.to_vec(), self.axis + 1)?;
        let within = value(cx, |f| f.of(i).ge(f.of(low)) & f.of(i).lt(f.of(high)))?;
        Ok((wide, within))
    }
    /// The lengths in these sizes.
    fn lengths(&self, cx: &Cx, sizes: &[Size]) -> Result<Value> {
        let lengths = cx.binary(BinaryKind::Sub, self.ends, self.starts)?;
        cx.spread(lengths, &(0..=self.axis as i64).collect::<Vec<_>>(), sizes)
    }
}

fn segment_reduce(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let s = Segments::new(cx, a)?;
    let (kind, none) = match s.reduce.as_str() {
        "sum" | "mean" => (ReduceKind::Sum, 0.0),
        "prod" => (ReduceKind::Prod, 1.0),
        "max" => (ReduceKind::Max, f64::NEG_INFINITY),
        _ => (ReduceKind::Min, f64::INFINITY),
    };
    let (d, axis) = (dtype_of(s.data)?, s.axis as i64 + 1);
    let mut sizes = s.sizes(cx)?;
    let (wide, within) = s.elements(cx, &sizes)?;
    sizes.remove(s.axis + 1);
    let lengths = s.lengths(cx, &sizes)?;
    let v = value(cx, |f| {
        let mut v = f.of(within).select(f.of(wide), none).reduce(kind, &[axis], false);
        if let Some(start) = s.initial {
            v = match kind {
                ReduceKind::Sum => v + start,
                ReduceKind::Prod => v * start,
                ReduceKind::Max => v.max(start),
                _ => v.min(start),
            };
        }
        if s.reduce == "mean" {
            let count = f.of(lengths);
            let mean = v / count.max(1.0).to(d);
            return match s.initial {
                None => count.eq(0.0).select(f64::NAN, mean),
                Some(_) => mean,
            };
        }
        v
    })?;
    cx.one(v)
}

/// How often a condition holds along an axis, which stays.
fn count<'f>(holds: Term<'f>, d: DType, axis: i64) -> Term<'f> {
    holds.to(d).reduce(ReduceKind::Sum, &[axis], true)
}

/// Each element has its segment's gradient: by its length for means; for extrema where the element
/// is the result, a positive one shared by all such elements, as PyTorch has it; for products times
/// those of the other elements.
fn segment_reduce_backward(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let s = Segments::new(cx, a)?;
    let (g, y) = (cx.tensor(a, "grad")?, cx.tensor(a, "output")?);
    let (at, d) = (s.axis as i64, dtype_of(s.data)?);
    let sizes = s.sizes(cx)?;
    let (wide, within) = s.elements(cx, &sizes)?;
    let lengths = s.lengths(cx, &sizes)?;
    let others: Vec<i64> = (0..sizes.len() as i64).filter(|d| *d != at + 1).collect();
    let (g, y) = (cx.spread(g, &others, &sizes)?, cx.spread(y, &others, &sizes)?);
    let v = value(cx, |f| {
        let (g, y, x, within) = (f.of(g), f.of(y), f.of(wide), f.of(within));
        let count = |what| count(what, d, at + 1);
        let each = match s.reduce.as_str() {
            "sum" => g,
            "mean" => g / f.of(lengths).max(1.0).to(d),
            "prod" => {
                let (zero, nan) = (x.eq(0.0), x.is_nan());
                let (zeros, nans) = (count(within & zero), count(within & nan));
                let plain = within & x.ne(0.0) & x.eq(x);
                let product = plain.select(x, 1.0).reduce(ReduceKind::Prod, &[at + 1], true);
                let product = product * s.initial.unwrap_or(1.0);
                // Without the element itself.
                let of_zero = zeros.gt(1.0).select(0.0, product);
                let of_zero = nans.gt(0.0).select(f64::NAN, of_zero);
                let of_nan = zeros.gt(0.0).select(0.0, product);
                let of_nan = nans.gt(1.0).select(f64::NAN, of_nan);
                zero.select(g * of_zero, nan.select(g * of_nan, g * y / x))
            }
            _ => {
                let hit = x.eq(y) | x.is_nan();
                let hits = count(within & hit);
                let share = (hits.ge(2.0) & g.gt(0.0)).select(g / hits, g);
                hit.select(share, 0.0)
            }
        };
        within.select(each, 0.0).reduce(ReduceKind::Sum, &[at], false)
    })?;
    cx.one(v)
}
