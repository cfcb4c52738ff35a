//! The functions of `kiln-linalg` as custom functions.
use crate::{
    View, ViewMut,
    custom::{CustomFn, UserError},
};
use kiln_linalg::{Factorization, Input, Output, Slice, SliceMut};
use std::sync::Arc;

/// The factorization of a name such as `kiln.linalg.lu`.
pub fn find(name: &str) -> Option<Arc<CustomFn>> {
    let f = Factorization::find(name)?;
    Some(Arc::new(move |inputs: &[View], outputs: &mut [ViewMut]| {
        let inputs = inputs.iter().map(input).collect::<Result<Vec<_>, _>>()?;
        let mut outputs = outputs.iter_mut().map(output).collect::<Result<Vec<_>, _>>()?;
        Ok(f.call(&inputs, &mut outputs)?)
    }))
}

fn input<'a>(v: &View<'a>) -> Result<Input<'a>, UserError> {
    let data = match v.dtype() {
        "f32" => Slice::F32(v.elements()?),
        "f64" => Slice::F64(v.elements()?),
        "i32" => Slice::I32(v.elements()?),
        other => return Err(format!("takes no tensor of {other}").into()),
    };
    Ok(Input { shape: v.shape(), data })
}

fn output<'a>(v: &'a mut ViewMut<'_>) -> Result<Output<'a>, UserError> {
    let shape = v.shape;
    let data = match v.dtype() {
        "f32" => SliceMut::F32(v.elements_mut()?),
        "f64" => SliceMut::F64(v.elements_mut()?),
        "i32" => SliceMut::I32(v.elements_mut()?),
        "i64" => SliceMut::I64(v.elements_mut()?),
        other => return Err(format!("gives no tensor of {other}").into()),
    };
    Ok(Output { shape, data })
}
