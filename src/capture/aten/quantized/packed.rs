//! int4 weights, two in a byte, in the layout of PyTorch's processor kernels.
//!
//! The layout depends on the processor that packs (`int4mm_kernel.cpp`): with AVX-512, 64 rows a
//! block, else 32. An archive does not say which. Only weights that the program packs itself are
//! taken; it packs as with AVX-512.
use super::{
    super::{Args, Cx, Outcome, Row, tools::*},
    products::product,
    *,
};
use crate::capture::unsupported;

/// Rows of this family.
pub(in super::super) const ROWS: &[Row] = &[
    Row {
        name: "aten._convert_weight_to_int4pack_for_cpu.default",
        arguments: "self, innerKTiles",
        build: pack,
    },
    Row {
        name: "aten._weight_int4pack_mm_for_cpu.default",
        arguments: "self, mat2, qGroupSize, qScaleAndZeros",
        build: weight_int4pack_mm,
    },
];

/// Rows of a full block.
const BLOCK: i64 = 64;

/// The static sizes of a matrix.
fn sizes(v: Value, what: &str) -> Result<[i64; 2]> {
    match v.ty().dims().iter().map(|d| d.known()).collect::<Vec<_>>()[..] {
        [Some(n), Some(k)] => Ok([n, k]),
        _ => Err(unsupported(format!("{what}: wants a matrix of static sizes"))),
    }
}

/// Rows from `start` on, `count` of them.
pub(super) fn rows(cx: &Cx, v: Value, start: i64, count: i64) -> Result<Value> {
    cx.part(v, 0, Size::Static(start), Size::Static(count))
}

pub(super) fn shaped(cx: &Cx, v: Value, sizes: &[i64]) -> Result<Value> {
    cx.reshape(v, sizes.iter().map(|n| Size::Static(*n)).collect())
}

/// Full blocks, and the rows after them: of each the first row, the number of blocks, the rows of
/// a block, and whether a byte holds neighbouring rows rather than rows of two halves.
fn parts(n: i64) -> impl Iterator<Item = (i64, i64, i64, bool)> {
    let full = n / BLOCK;
    let all = [(0, full, BLOCK, false), (full * BLOCK, 1, n % BLOCK, true)];
    all.into_iter().filter(|(_, count, size, _)| count * size > 0)
}

/// Weights [N, K] of 0 to 15 as bytes [N, K / 2]. A block holds, for each of K, the bytes of its
/// rows: row r in the low and row r + 32 in the high half; in the last block, of fewer rows, rows
/// 2r and 2r + 1.
fn pack(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let weight = cx.tensor(a, "self")?;
    let [n, k] = sizes(weight, "_convert_weight_to_int4pack")?;
    if n % 16 != 0 || k % 2 != 0 {
        return Err(format!("expects N divisible by 16 and K by 2, got {n} and {k}").into());
    }
    let weight = cx.convert(weight, DType::UI8)?;
    let mut all = vec![];
    for (first, count, size, neighbours) in parts(n) {
        let half = size / 2;
        let block = rows(cx, weight, first, count * size)?;
        // The two rows of a byte come first.
        let block = if neighbours {
            cx.transpose(shaped(cx, block, &[count, half, 2, k])?, vec![2, 0, 3, 1])?
        } else {
            cx.transpose(shaped(cx, block, &[count, 2, half, k])?, vec![1, 0, 3, 2])?
        };
        let low = shaped(cx, rows(cx, block, 0, 1)?, &[count * size, k / 2])?;
        let high = shaped(cx, rows(cx, block, 1, 1)?, &[count * size, k / 2])?;
        let high = cx.binary(BinaryKind::Shl, high, cx.number(DType::UI8, 4.0)?)?;
        all.push(cx.binary(BinaryKind::Or, low, high)?);
    }
    let v = cx.joined(all, 0)?;
    cx.packed.push(v);
    cx.one(v)
}

/// Bytes as weights [N, K] of 0 to 15.
fn unpack(cx: &Cx, bytes: Value) -> Result<Value> {
    let [n, half_k] = sizes(bytes, "_weight_int4pack_mm_for_cpu")?;
    let k = half_k * 2;
    let low = cx.binary(BinaryKind::And, bytes, cx.number(DType::UI8, 15.0)?)?;
    let high = cx.binary(BinaryKind::Shr, bytes, cx.number(DType::UI8, 4.0)?)?;
    let mut all = vec![];
    for (first, count, size, neighbours) in parts(n) {
        let half = size / 2;
        let part = |v: Value| shaped(cx, rows(cx, v, first, count * size)?, &[1, count, k, half]);
        let block = cx.joined(vec![part(low)?, part(high)?], 0)?;
        let order = if neighbours { vec![1, 3, 0, 2] } else { vec![1, 0, 3, 2] };
        all.push(shaped(cx, cx.transpose(block, order)?, &[count * size, k])?);
    }
    cx.joined(all, 0)
}

fn weight_int4pack_mm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let bytes = cx.tensor(a, "mat2")?;
    if !cx.packed.contains(&bytes) {
        return Err(unsupported(
            "int4 weights that were packed before the export are not supported: their layout depends on the processor that packed them; pack in the model, or quantise by IntxWeightOnlyConfig",
        ));
    }
    weights_product(cx, a, unpack(cx, bytes)?)
}

/// x [M, K] with weights [N, K] of 0 to 15 in groups of K, with scales and zeros [K / group, N, 2]:
/// a weight is `(q - 8) * scale + zero`, computed in f32 and rounded to the dtype of x.
pub(super) fn weights_product(cx: &mut Cx, a: &Args<'_>, weight: Value) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let d = dtype_of(x)?;
    let group = a.int("qGroupSize", None)?;
    let [n, k] = sizes(weight, "_weight_int4pack_mm")?;
    if group < 1 || k % group != 0 {
        return Err(format!("groups of {group} do not divide K, {k}").into());
    }
    let pairs = cx.tensor(a, "qScaleAndZeros")?;
    let pairs = cx.convert(shaped(cx, pairs, &[k / group, n, 2])?, DType::F32)?;
    // [2, N, groups, 1]: the scales, then the zeros.
    let pairs = shaped(cx, cx.transpose(pairs, vec![2, 1, 0])?, &[2, n, k / group, 1])?;
    let of = |at: i64| shaped(cx, rows(cx, pairs, at, 1)?, &[n, k / group, 1]);
    let q = cx.convert(shaped(cx, weight, &[n, k / group, group])?, DType::F32)?;
    let q = cx.binary(BinaryKind::Sub, q, cx.number(DType::F32, 8.0)?)?;
    let q = cx.binary(BinaryKind::Mul, q, of(0)?)?;
    let q = cx.convert(cx.binary(BinaryKind::Add, q, of(1)?)?, d)?;
    let v = product(cx, x, shaped(cx, q, &[n, k])?, (1, 1), DType::F32)?;
    let v = cx.convert(v, d)?;
    cx.one(v)
}
