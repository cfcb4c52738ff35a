//! Argmax and argmin: pairs each element with its index, then reduces the pairs.
use crate::linalg::{
    common::{id, start},
    expr::dtype,
    generic::Generic,
    kernel::{Kernel, Nest},
    scalar::{Scalars, wide},
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Lowers argmax (`better` is `Gt`) or argmin along `axis`: the i64 index of the first extreme, or
/// of the first NaN. The pair reduction is commutative, since ties go to the smaller index.
pub fn arg(k: &Kernel, input: Value, axis: usize, better: CompareKind) -> Result<Vec<Value>> {
    let (d, sizes) = (dtype(input)?, k.sizes_of(input)?);
    let n = sizes.len();
    let stay: Vec<usize> = (0..n).filter(|i| *i != axis).collect();
    let kept: Vec<Size> = stay.iter().map(|i| sizes[*i]).collect();
    // Either no result elements, or only index 0 to choose from.
    if sizes[axis].known() == Some(1) || sizes.iter().any(|s| s.known() == Some(0)) {
        return Ok(vec![k.filled(DType::I64, &kept, 0.0)?]);
    }
    // 32-bit indices where they fit: a GPU takes several instructions to compare 64 bits.
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
            Ok(vec![x, arith::index_cast(body.s, i, Type::scalar(body.s.b.ctx, p))?])
        },
    })?;
    // The identity of the pair reduction: it loses even against the worst value at any index.
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
    .build(&mut |s, args| {
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
        .build(&mut |s, args| Ok(vec![arith::extsi(s, args[0], long)?]))
}

/// Whether a pair beats the best pair so far: its value is better, or NaN where the best is not, or
/// equal with a smaller index.
fn beats(
    s: &Scalars,
    better: CompareKind,
    (x, i): (Value, Value),
    (best, at): (Value, Value),
    d: DType,
) -> Result<Value> {
    let first = s.cmpi(CmpIPredicate::Slt, i, at)?;
    let (better, same) = if d.is_float() {
        let unordered = match better {
            CompareKind::Gt => CmpFPredicate::Ugt,
            _ => CmpFPredicate::Ult,
        };
        let above =
            arith::andi(s, s.cmpf(unordered, x, best)?, s.cmpf(CmpFPredicate::Ord, best, best)?)?;
        let both = arith::andi(
            s,
            s.cmpf(CmpFPredicate::Uno, x, x)?,
            s.cmpf(CmpFPredicate::Uno, best, best)?,
        )?;
        (above, arith::ori(s, s.cmpf(CmpFPredicate::Oeq, x, best)?, both)?)
    } else {
        (s.compare(better, x, best, d)?, s.cmpi(CmpIPredicate::Eq, x, best)?)
    };
    arith::ori(s, better, arith::andi(s, same, first)?)
}
