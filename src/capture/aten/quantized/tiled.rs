//! int4 weights, eight in an int32, in the layout of PyTorch's CUDA kernels.
//!
//! Source: ATen, `native/cuda/int4mm.cu`. An int32 holds what a lane of a warp feeds to two
//! `mma.m16n8k16`: of row `8·tile + lane / 4`, the columns `2·(lane % 4) + {0, 1, 8, 9}` of two
//! neighbouring K tiles.
use super::{
    super::{Args, Cx, Outcome, Row},
    packed::{rows, shaped, weights_product},
    *,
};
use crate::capture::unsupported;

/// Rows of this family.
pub(in super::super) const ROWS: &[Row] = &[
    Row {
        name: "aten._convert_weight_to_int4pack.default",
        arguments: "self, innerKTiles",
        build: pack,
    },
    Row {
        name: "aten._weight_int4pack_mm.default",
        arguments: "self, mat2, qGroupSize, qScaleAndZeros",
        build: weight_int4pack_mm,
    },
];

/// Weights of an int32, along the dimensions (parity of the column, K tile, half of the K tile),
/// as the bits hold them from the lowest on.
const IN_A_WORD: i64 = 8;

/// Weights [N, K / 2] with two neighbouring columns a byte, the even one in its high half, as int32
/// [N / 8, K / (16 · innerKTiles), 32, innerKTiles / 2].
fn pack(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let weight = cx.tensor(a, "self")?;
    let [n, k] = match sizes(weight)[..] {
        [Some(n), Some(half_k)] => [n, half_k * 2],
        _ => return Err(unsupported("_convert_weight_to_int4pack: wants a static matrix")),
    };
    let inner = a.int("innerKTiles", None)?;
    if !matches!(inner, 2 | 4 | 8) {
        return Err(format!("expects innerKTiles of 2, 4 or 8, got {inner}").into());
    }
    if n % 8 != 0 || k % (inner * 16) != 0 {
        let by = inner * 16;
        return Err(format!("expects N divisible by 8 and K by {by}, got {n} and {k}").into());
    }
    let weight = cx.convert(weight, DType::I32)?;
    let even = cx.binary(BinaryKind::Shr, weight, cx.number(DType::I32, 4.0)?)?;
    let odd = cx.binary(BinaryKind::And, weight, cx.number(DType::I32, 15.0)?)?;
    let flat = |v: Value| shaped(cx, v, &[1, n / 8, 8, k / (inner * 16), inner / 2, 2, 2, 4]);
    let all = cx.joined(vec![flat(even)?, flat(odd)?], 0)?;
    // (parity, tile, row, K, word, K tile, half, pair) to (the word's weights, what it belongs to).
    let all = cx.transpose(all, vec![0, 5, 6, 1, 3, 2, 7, 4])?;
    let words = [n / 8, k / (inner * 16), 32, inner / 2];
    let all = shaped(cx, all, &[&[IN_A_WORD][..], &words].concat())?;
    let mut word = None;
    for i in 0..IN_A_WORD {
        let one = shaped(cx, rows(cx, all, i, 1)?, &words)?;
        let bits = cx.number(DType::I32, (4 * i) as f64)?;
        let one = cx.binary(BinaryKind::Shl, one, bits)?;
        word = Some(match word {
            Some(others) => cx.binary(BinaryKind::Or, others, one)?,
            None => one,
        });
    }
    cx.one(word.ok_or("has no weights")?)
}

fn sizes(v: Value) -> Vec<Option<i64>> {
    v.ty().dims().iter().map(|d| d.known()).collect()
}

/// int32 as weights [N, K] of 0 to 15.
fn unpack(cx: &Cx, words: Value) -> Result<Value> {
    let wanted = "_weight_int4pack_mm: wants int32 weights of static sizes [N / 8, K / (16 · innerKTiles), 32, innerKTiles / 2], as CUDA's kernels do";
    let [n, k, inner] = match sizes(words)[..] {
        [Some(n), Some(k), Some(32), Some(half)] if matches!(half, 1 | 2 | 4) => [n, k, half],
        _ => return Err(unsupported(wanted)),
    };
    let mut all = vec![];
    for i in 0..IN_A_WORD {
        let one = cx.binary(BinaryKind::Shr, words, cx.number(DType::I32, (4 * i) as f64)?)?;
        let one = cx.binary(BinaryKind::And, one, cx.number(DType::I32, 15.0)?)?;
        all.push(shaped(cx, one, &[1, n, k, 8, 4, inner])?);
    }
    let all = shaped(cx, cx.joined(all, 0)?, &[2, 2, 2, n, k, 8, 4, inner])?;
    // To (tile, row, K, word, K tile, half, pair, parity).
    let all = cx.transpose(all, vec![3, 5, 4, 7, 1, 2, 6, 0])?;
    shaped(cx, all, &[n * 8, k * inner * 32])
}

fn weight_int4pack_mm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let words = cx.tensor(a, "mat2")?;
    weights_product(cx, a, unpack(cx, words)?)
}
