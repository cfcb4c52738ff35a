//! Positions of extremes: each element with its position, then a reduction of such pairs.
use crate::linalg::{
    expr::dtype,
    generic::Generic,
    kernel::{Kernel, Nest, id, start},
    scalar::{Scalars, wide},
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// The first position of the extreme, or of the first NaN. Pairs combine in any order, since of
/// equal values the lesser position wins.
pub fn arg(
    k: &Kernel,
    input: Value,
    axis: usize,
    better: CompareKind,
) -> Result<Vec<Value>, String> {
    let (d, sizes) = (dtype(input)?, k.sizes_of(input)?);
    let n = sizes.len();
    let stay: Vec<usize> = (0..n).filter(|i| *i != axis).collect();
    let kept: Vec<Size> = stay.iter().map(|i| sizes[*i]).collect();
    // Nothing to write, or nothing to choose from.
    if sizes[axis].known() == Some(1) || sizes.iter().any(|s| s.known() == Some(0)) {
        return Ok(vec![k.filled(DType::I64, &kept, 0.0)?]);
    }
    // Half as wide where it fits: a GPU takes several instructions to compare 64 bits.
    let p = if sizes[axis].known().is_some_and(|n| n <= i64::from(i32::MAX)) {
        DType::I32
    } else {
        DType::I64
    };
    let (all, at): (Vec<usize>, _) = ((0..n).collect(), id(n));
    let pairs = k.generic(Nest {
        reduction: vec![false; n],
        sizes: sizes.clone(),
        outs: vec![(k.empty(wide(d), &sizes)?, all.clone()), (k.empty(p, &sizes)?, all.clone())],
        reads: vec![(input, at.clone())],
        body: &mut |body, _| {
            let (x, i) = (body.element(input, &at)?, body.dim(axis)?);
            Ok(vec![x, body.s.op("arith.index_cast", &[i], Type::scalar(body.s.b.ctx, p))?])
        },
    })?;
    // Worse than every pair, also than the worst value at any position.
    let worst = start(
        k,
        if better == CompareKind::Gt { ReduceKind::Max } else { ReduceKind::Min },
        d,
        &kept,
    )?;
    let last = Scalars { b: k.b }.constant(Attr::scalar_int(k.b.ctx, p, p.int_range().1))?;
    let nowhere = k.fill(last, k.empty(p, &kept)?)?;
    let made = Generic {
        b: k.b,
        ins: &[(pairs[0], all.clone()), (pairs[1], all)],
        outs: &[(worst, stay.clone()), (nowhere, stay)],
        reduction: &(0..n).map(|i| i == axis).collect::<Vec<_>>(),
        merges: true,
    }
    .make(&mut |s, args| {
        let [x, i, best, at] = args else { return Err("has other than two pairs".into()) };
        let take = beats(&s, better, (*x, *i), (*best, *at), d)?;
        Ok(vec![s.select(take, *x, *best)?, s.select(take, *i, *at)?])
    })?;
    if p == DType::I64 {
        return Ok(vec![made[1]]);
    }
    let own: Vec<usize> = (0..n - 1).collect();
    let (ins, outs) = ([(made[1], own.clone())], [(k.empty(DType::I64, &kept)?, own)]);
    let long = Type::scalar(k.b.ctx, DType::I64);
    Generic { b: k.b, ins: &ins, outs: &outs, reduction: &vec![false; n - 1], merges: false }
        .make(&mut |s, args| Ok(vec![s.op("arith.extsi", &[args[0]], long)?]))
}

/// Whether a value at a position comes before the best so far at its position: it is better, or NaN
/// where that is none, or the same and further in front.
fn beats(
    s: &Scalars,
    better: CompareKind,
    (x, i): (Value, Value),
    (best, at): (Value, Value),
    d: DType,
) -> Result<Value, String> {
    let first = s.cmpi(2, i, at)?;
    let (better, same) = if d.is_float() {
        let unordered = if better == CompareKind::Gt { 9 } else { 11 };
        let above = s.same("arith.andi", &[s.cmpf(unordered, x, best)?, s.cmpf(7, best, best)?])?;
        let both = s.same("arith.andi", &[s.cmpf(14, x, x)?, s.cmpf(14, best, best)?])?;
        (above, s.same("arith.ori", &[s.cmpf(1, x, best)?, both])?)
    } else {
        (s.compare(better, x, best, d)?, s.cmpi(0, x, best)?)
    };
    s.same("arith.ori", &[better, s.same("arith.andi", &[same, first])?])
}
