//! `kiln.structured.contract` as `linalg.generic`.
use crate::analysis::{
    generalize::{Body, Generic, region_of},
    structure::{Contraction, Structure, loops_of},
};
use kiln_dialects::{ir::*, ops::StructuredContract};

/// Writes the generic before the op; returns it with what it is.
pub fn contract(op: Op) -> Result<(Op, Structure)> {
    let o = StructuredContract::of(op).ok_or_malformed(op)?;
    let b = Builder::before(op).ok_or("is in no block")?;
    let (_, reduction) = loops_of(op)?;
    let sum = o.init.ty().element().ok_or("is no tensor")?;
    let maps = o.indexing_maps.as_array().ok_or("has no indexing maps")?;
    let region = region_of(op, 0)?;
    let mut factors = None;
    let generic = Generic { b, ins: &o.inputs, outs: &[o.init], maps, reduction: &reduction };
    let made = generic.build(&mut |body| {
        let given = body.ins().to_vec();
        let own = body.inline(region, &given, &|d| d)?;
        let [x, y] = own[..] else { return Err("yields no two factors".into()) };
        factors = Some([x, y]);
        Ok(vec![accumulate(body, [x, y], sum)?])
    })?;
    let factors = factors.ok_or("yields no factors")?;
    Ok((made, Structure::Contraction(Contraction::new(factors, sum)?)))
}

/// The sum of the output's element and the product of two factors.
pub(super) fn accumulate(body: &Body, [x, y]: [Value; 2], sum: Type) -> Result<Value> {
    let (times, plus) = match x.ty().dtype()?.is_float() {
        true => (arith::MulF::NAME, arith::AddF::NAME),
        false => (arith::MulI::NAME, arith::AddI::NAME),
    };
    let mut product = body.op(times, &[x, y], x.ty())?;
    if product.ty() != sum {
        product = body.op(arith::ExtF::NAME, &[product], sum)?;
    }
    body.op(plus, &[body.outs()[0], product], sum)
}
