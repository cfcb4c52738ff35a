//! `torch.autocast` at capture: the arguments of an op are converted before it is emitted.
use super::{
    aten::{Cx, Val},
    autocast::Policy,
    unsupported,
};
use kiln_dialects::{Result, value::DType};
use std::collections::HashMap;

/// Converts the arguments of a node by the context around it.
pub fn convert(cx: &mut Cx, target: &str, values: &mut HashMap<&str, Val>) -> Result<()> {
    let Some((context, policy)) = cx.autocast.and_then(|c| Some((c, c.policy(target)?))) else {
        return Ok(());
    };
    let to = match policy {
        Policy::Lower => context.dtype,
        Policy::Single => DType::F32,
        Policy::SingleByDefault => {
            if let Some(Val::DType(_)) = values.get("dtype") {
                return Ok(());
            }
            DType::F32
        }
        Policy::Promote => {
            let mut widest = context.dtype;
            for v in values.values() {
                widest = widened(cx, v, widest)?;
            }
            widest
        }
    };
    values.values_mut().try_for_each(|v| cast(cx, v, to))
}

/// The dtype of a tensor that autocast converts: a float, f64 aside.
fn eligible(cx: &mut Cx, v: &Val) -> Result<Option<DType>> {
    let Val::Tensor(alias) = v else { return Ok(None) };
    let value = cx.get(*alias)?;
    let d = kiln_dialects::rules::tensor_type(value.ty())?.dtype;
    Ok((d.is_float() && d != DType::F64).then_some(d))
}

fn widened(cx: &mut Cx, v: &Val, widest: DType) -> Result<DType> {
    match v {
        Val::List(all) => all.iter().try_fold(widest, |w, v| widened(cx, v, w)),
        one => match eligible(cx, one)? {
            Some(d) if d == widest => Ok(widest),
            Some(DType::F32) => Ok(DType::F32),
            Some(DType::BF16 | DType::F16) if widest == DType::F32 => Ok(widest),
            Some(d) => Err(unsupported(format!(
                "promotes {} and {} in an autocast region",
                d.name(),
                widest.name()
            ))),
            None => Ok(widest),
        },
    }
}

fn cast(cx: &mut Cx, v: &mut Val, to: DType) -> Result<()> {
    if let Val::List(all) = v {
        return all.iter_mut().try_for_each(|v| cast(cx, v, to));
    }
    let from = eligible(cx, v)?;
    if let Val::Tensor(alias) = v
        && from.is_some_and(|d| d != to)
    {
        let value = cx.get(*alias)?;
        let value = cx.convert(value, to)?;
        *alias = cx.store.fresh(value);
    }
    Ok(())
}

/// Err: a result in an autocast region has another dtype than the export gives.
pub fn check(cx: &mut Cx, results: &[Val]) -> Result<()> {
    if cx.autocast.is_none() {
        return Ok(());
    }
    for (v, declared) in results.iter().zip(cx.declared.clone()) {
        let (Val::Tensor(alias), Some(want)) = (v, declared.dtype) else { continue };
        let value = cx.get(*alias)?;
        let have = kiln_dialects::rules::tensor_type(value.ty())?.dtype;
        if have != want {
            return Err(unsupported(format!(
                "gives {} in an autocast region, where PyTorch gives {}; run_decompositions() states the conversions",
                have.name(),
                want.name()
            )));
        }
    }
    Ok(())
}
