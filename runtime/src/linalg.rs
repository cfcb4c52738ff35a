//! Calls of `kiln-linalg` with views.
use crate::{View, ViewMut};
use kiln_linalg::{Factorization, Input, Output, Slice, SliceMut};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Computes the results. Err: views of other types than the factorization takes, or its own error.
pub fn call(f: Factorization, inputs: &[View], outputs: &mut [ViewMut]) -> Result<(), Error> {
    let inputs = inputs.iter().map(input).collect::<Result<Vec<_>, _>>()?;
    let mut outputs = outputs.iter_mut().map(output).collect::<Result<Vec<_>, _>>()?;
    Ok(f.call(&inputs, &mut outputs)?)
}

fn input<'a>(v: &View<'a>) -> Result<Input<'a>, Error> {
    let data = match v.dtype() {
        "f32" => Slice::F32(v.elements()?),
        "f64" => Slice::F64(v.elements()?),
        "i32" => Slice::I32(v.elements()?),
        other => return Err(format!("takes no tensor of {other}").into()),
    };
    Ok(Input { shape: v.shape(), data })
}

fn output<'a>(v: &'a mut ViewMut<'_>) -> Result<Output<'a>, Error> {
    let shape = v.shape;
    let data = match v.dtype() {
        "f32" => SliceMut::F32(v.elements_mut()?),
        "f64" => SliceMut::F64(v.elements_mut()?),
        "i32" => SliceMut::I32(v.elements_mut()?),
        other => return Err(format!("gives no tensor of {other}").into()),
    };
    Ok(Output { shape, data })
}
