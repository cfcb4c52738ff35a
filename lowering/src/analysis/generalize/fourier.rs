//! `kiln.structured.fft` as `linalg.generic`: each number of the result is a sum over the operand.
//! Strategy `stockham` takes O(n log n) steps.
use crate::analysis::{
    generalize::{Body, Generic, region_of},
    structure::{FourierTransform, Structure, loops_of},
};
use kiln_dialects::{
    ir::*,
    ops::{FftKind, StructuredFft},
    value::DType,
};
use std::f64::consts::TAU;

/// Writes the generic before the op; returns it with what it is.
pub fn fft(op: Op) -> Result<(Op, Structure)> {
    let o = StructuredFft::of(op).ok_or_malformed(op)?;
    let b = Builder::before(op).ok_or("is in no block")?;
    let (_, reduction) = loops_of(op)?;
    let over = reduction.len().checked_sub(1).ok_or("has no loops")?;
    let maps = o.indexing_maps.as_array().ok_or("has no indexing maps")?;
    let ty = o.init.ty().element().ok_or("is no tensor")?;
    let region = region_of(op, 0)?;
    let outs: Vec<Value> = [Some(o.init), o.im_init].into_iter().flatten().collect();
    let mut parts = None;
    let generic = Generic { b, ins: &o.inputs, outs: &outs, maps, reduction: &reduction };
    let made = generic.build(&mut |body| {
        let given = body.ins().to_vec();
        let own = body.inline(region, &given, &|d| d)?;
        let (re, im) = (*own.first().ok_or("yields nothing")?, own.get(1).copied());
        parts = Some((re, im));
        let (cos, sin) = root(body, &o, over, ty)?;
        let mul = |x, y| body.op(arith::MulF::NAME, &[x, y], ty);
        let terms = match (o.kind, im) {
            (FftKind::C2r, Some(im)) => {
                let difference = [mul(re, cos)?, mul(im, sin)?];
                vec![counted(body, &o, over, difference, ty)?]
            }
            (_, Some(im)) => vec![
                body.op(arith::SubF::NAME, &[mul(re, cos)?, mul(im, sin)?], ty)?,
                body.op(arith::AddF::NAME, &[mul(re, sin)?, mul(im, cos)?], ty)?,
            ],
            (_, None) => vec![mul(re, cos)?, mul(re, sin)?],
        };
        let sums = body.outs().iter().zip(terms);
        sums.map(|(sum, term)| body.op(arith::AddF::NAME, &[*sum, term], ty)).collect()
    })?;
    let (re, im) = parts.ok_or("yields nothing")?;
    let (kind, length, inverse) = (o.kind, o.length, o.inverse);
    Ok((made, Structure::Fft(FourierTransform { kind, length, inverse, re, im })))
}

/// The root of unity of a term, real and imaginary part, computed in f64.
fn root(body: &mut Body, o: &StructuredFft, over: usize, ty: Type) -> Result<(Value, Value)> {
    let (j, k) = (body.index(over)?, body.index(over - 1)?);
    let (index, c) = (Type::index(body.b.ctx), body.b.ctx);
    let (i64, wide) = (Type::scalar(c, DType::I64), Type::scalar(c, DType::F64));
    let n = constant(body, Attr::integer(index, o.length)?, index)?;
    let product = body.op(arith::MulI::NAME, &[j, k], index)?;
    let rest = body.op(arith::RemUI::NAME, &[product, n], index)?;
    let rest = body.op(arith::IndexCast::NAME, &[rest], i64)?;
    let rest = body.op(arith::SIToFP::NAME, &[rest], wide)?;
    let step = if o.inverse { TAU } else { -TAU } / o.length as f64;
    let step = constant(body, Attr::number(wide, step)?, wide)?;
    let angle = body.op(arith::MulF::NAME, &[rest, step], wide)?;
    let narrow = |name| -> Result<Value> {
        let v = body.op(name, &[angle], wide)?;
        if ty == wide { Ok(v) } else { body.op(arith::TruncF::NAME, &[v], ty) }
    };
    Ok((narrow(math::Cos::NAME)?, narrow(math::Sin::NAME)?))
}

/// The term of a real result: numbers of half a spectrum stand for their conjugates too, but for
/// the first and, of an even length, the last, whose imaginary part does not count.
fn counted(
    body: &mut Body,
    o: &StructuredFft,
    over: usize,
    [re, im]: [Value; 2],
    ty: Type,
) -> Result<Value> {
    let (j, index) = (body.index(over)?, Type::index(body.b.ctx));
    let i1 = Type::scalar(body.b.ctx, DType::I1);
    let at = |n: i64| -> Result<Value> {
        let n = constant(body, Attr::integer(index, n)?, index)?;
        let attrs = [("predicate", Attr::i64(body.b.ctx, 0))];
        Ok(body.b.generic(arith::CmpI::NAME, &[j, n], &[i1], &attrs, &mut [])?.result(0))
    };
    let mut end = at(0)?;
    if o.length % 2 == 0 {
        end = body.op(arith::OrI::NAME, &[end, at(o.length / 2)?], i1)?;
    }
    let both = body.op(arith::SubF::NAME, &[re, im], ty)?;
    let both = body.op(arith::AddF::NAME, &[both, both], ty)?;
    body.op(arith::Select::NAME, &[end, re, both], ty)
}

fn constant(body: &Body, value: Attr, ty: Type) -> Result<Value> {
    let attrs = [("value", value)];
    Ok(body.b.generic(arith::Constant::NAME, &[], &[ty], &attrs, &mut [])?.result(0))
}
