//! Products of groups of rows or columns with matrices of their own, as in mixtures of experts.
//! Group g ends at `offs[g]`, and begins where the one before ends.
use super::{
    super::{Args, Cx, Outcome, Row, tools::*},
    *,
};
use crate::capture::unsupported;

/// Rows of this family.
pub(in super::super) const ROWS: &[Row] = &[
    Row {
        name: "aten._grouped_mm.default",
        arguments: "self, mat2, offs=None, bias=None, out_dtype=None",
        build: grouped_mm,
    },
    Row {
        name: "transformers.grouped_mm_fallback.default",
        arguments: "input, weight, offs",
        build: |cx, a| {
            let (x, w) = (cx.tensor(a, "input")?, cx.tensor(a, "weight")?);
            let offsets = cx.tensor(a, "offs")?;
            let v = rows_of_groups(cx, x, w, offsets, dtype_of(x)?)?;
            cx.one(v)
        },
    },
];

/// By the ranks of x and y: 3 and 3 a batch; 2 and 3 rows of x in groups; 3 and 2 columns of y in
/// groups; 2 and 2 the contracted dimension in groups. Every group is multiplied with all rows or
/// columns, of which the others' products are dropped; what no group has is 0.
fn grouped_mm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    if a.has("bias") {
        return Err(unsupported("Bias not supported yet"));
    }
    let (x, mut y) = (cx.tensor(a, "self")?, cx.tensor(a, "mat2")?);
    let d = a.dtype("out_dtype")?.unwrap_or(dtype_of(x)?);
    let ranks = (rank_of(x), rank_of(y));
    let offsets = cx.optional(a, "offs")?;
    if (ranks == (3, 3)) != offsets.is_none() {
        return Err(
            "Have to provide offsets if there is a 2d matrix, or no offsets if both are 3d".into(),
        );
    }
    let Some(offsets) = offsets else {
        let v = batch(cx, x, y, d)?;
        return cx.one(v);
    };
    let groups = cx.b.size_of(offsets, 0)?;
    let v = match ranks {
        (2, 3) => rows_of_groups(cx, x, y, offsets, d)?,
        (3, 2) => {
            let columns = cx.b.size_of(y, 1)?;
            y = repeated(cx, y, groups)?;
            let member = members(cx, offsets, columns)?;
            let v = batch(cx, x, y, d)?;
            only(cx, v, cx.unsqueezed(member, 1)?)?
        }
        (2, 2) => {
            let inner = cx.b.size_of(x, 1)?;
            let member = members(cx, offsets, inner)?;
            let left = cx.unsqueezed(member, 1)?;
            let right = cx.unsqueezed(member, 2)?;
            let x = masked(cx, repeated(cx, x, groups)?, left)?;
            let y = masked(cx, repeated(cx, y, groups)?, right)?;
            batch(cx, x, y, d)?
        }
        (m, n) => return Err(format!("matrices of {m} and {n} dimensions").into()),
    };
    cx.one(v)
}

/// Groups of rows of x, each times its matrix of y.
fn rows_of_groups(cx: &Cx, x: Value, y: Value, offsets: Value, d: DType) -> Result<Value> {
    if (rank_of(x), rank_of(y), rank_of(offsets)) != (2, 3, 1) {
        return Err("wants a matrix, a batch of matrices and a vector of ends".into());
    }
    let (rows, groups) = (cx.b.size_of(x, 0)?, cx.b.size_of(offsets, 0)?);
    let member = members(cx, offsets, rows)?;
    let v = batch(cx, repeated(cx, x, groups)?, y, d)?;
    only(cx, v, cx.unsqueezed(member, 2)?)
}

/// A matrix, once a group: [groups, ..].
fn repeated(cx: &Cx, v: Value, groups: Size) -> Result<Value> {
    let sizes = [vec![groups], cx.b.sizes_of(v)?].concat();
    cx.spread(v, &[1, 2], &sizes)
}

/// [groups, size]: which positions are in which group.
fn members(cx: &Cx, offsets: Value, size: Size) -> Result<Value> {
    let groups = cx.b.size_of(offsets, 0)?;
    let offsets = cx.convert(offsets, DType::I64)?;
    let shape = [groups, size];
    let (at, ends) = (cx.iota(DType::I64, shape.to_vec(), 1)?, cx.spread(offsets, &[0], &shape)?);
    let before = cx.compare(CompareKind::Lt, at, ends)?;
    // Where fewer ends lie at or before a position than there are groups before, it is in an
    // earlier one.
    let ended = cx.convert(cx.unary(UnaryKind::Not, before)?, DType::I64)?;
    let ended = cx.reduced(ReduceKind::Sum, ended, &[0])?;
    let ended = cx.spread(ended, &[1], &shape)?;
    cx.compare(CompareKind::Eq, ended, cx.iota(DType::I64, shape.to_vec(), 0)?)
}

/// The elements of a mask, else 0.
fn masked(cx: &Cx, v: Value, mask: Value) -> Result<Value> {
    cx.select(mask, v, cx.full_like(v, 0.0)?)
}

/// Of results [groups, ..] each element of the group that has it.
fn only(cx: &Cx, v: Value, mask: Value) -> Result<Value> {
    cx.reduced(ReduceKind::Sum, masked(cx, v, mask)?, &[0])
}

/// A batch of products with sums of f32, of f64 for f64.
fn batch(cx: &Cx, lhs: Value, rhs: Value, d: DType) -> Result<Value> {
    let v = cx.b.add(&DotGeneral {
        lhs,
        rhs,
        lhs_batch: vec![0],
        rhs_batch: vec![0],
        lhs_contract: vec![2],
        rhs_contract: vec![1],
        element_type: Some(Type::scalar(cx.b.ctx, statistics_dtype(dtype_of(lhs)?))),
    })?;
    cx.convert(v, d)
}
