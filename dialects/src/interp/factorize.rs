//! Calls of `kiln-linalg`, and of Fourier transforms. Like other ops they compute in f64, whatever
//! the dtype.
use crate::{
    error::Result,
    ops::FftKind,
    reference as r,
    value::{DType, Data, Tensor},
};
use kiln_linalg::{Element, Factorization, Fourier, Input, Output, Slice, SliceMut};
use std::rc::Rc;

enum Floats {
    F(Vec<f64>),
    I(Vec<i32>),
}

/// Results of a result's type, before they are tensors.
enum Made {
    F(Vec<f64>),
    I32(Vec<i32>),
}

/// The results of a factorization.
pub(super) fn factorize(f: Factorization, inputs: &[Rc<Tensor>]) -> Result<Vec<Tensor>> {
    let float = inputs.iter().map(|t| t.dtype()).find(|d| d.is_float()).unwrap_or(DType::F64);
    let data: Vec<Floats> = inputs
        .iter()
        .map(|t| match t.data() {
            Data::F(all) => Floats::F(all.clone()),
            Data::I(all) => Floats::I(all.iter().map(|i| *i as i32).collect()),
        })
        .collect();
    let operands: Vec<Input> = inputs
        .iter()
        .zip(&data)
        .map(|(t, data)| {
            let data = match data {
                Floats::F(all) => Slice::F64(all),
                Floats::I(all) => Slice::I32(all),
            };
            Input { shape: t.shape(), data }
        })
        .collect();
    let said = |e: kiln_linalg::Error| e.to_string();
    let types = operands.iter().map(Input::ty).collect::<Vec<_>>();
    let types = f.results(&types).map_err(said)?;
    let mut made = vec![];
    for (element, shape) in &types {
        let n = crate::value::count(shape)?;
        made.push(match element {
            Element::I32 => Made::I32(vec![0; n]),
            _ => Made::F(vec![0.0; n]),
        });
    }
    let mut outputs: Vec<Output> = types
        .iter()
        .zip(&mut made)
        .map(|((_, shape), made)| {
            let data = match made {
                Made::F(all) => SliceMut::F64(all),
                Made::I32(all) => SliceMut::I32(all),
            };
            Output { shape, data }
        })
        .collect();
    f.call(&operands, &mut outputs).map_err(said)?;
    drop(outputs);
    let tensor = |((_, shape), made)| match made {
        Made::F(all) => Tensor::floats(float, shape, all),
        Made::I32(all) => Tensor::ints(DType::I32, shape, all.into_iter().map(i64::from).collect()),
    };
    types.into_iter().zip(made).map(tensor).collect()
}

/// The result of a Fourier transform. `last` is the size of its last dimension, if that is known.
pub(super) fn transform(
    f: Fourier,
    inputs: &[Rc<Tensor>],
    last: Option<i64>,
) -> Result<Vec<Tensor>> {
    let x = inputs.first().ok_or("has no operand")?;
    let of = |t: &Tensor| t.shape().last().map_or(0, |n| *n as i64);
    let made = match f {
        Fourier::RealToHalf => r::fft(FftKind::R2c, x, None, of(x), false)?,
        Fourier::Complex { inverse } => {
            let (re, im) = r::deinterleave(x)?;
            r::fft(FftKind::C2c, &re, Some(&im), of(&re), inverse)?
        }
        Fourier::HalfToReal => {
            let (re, im) = r::deinterleave(x)?;
            let length = last.ok_or("has a result of unknown length")?;
            r::fft(FftKind::C2r, &re, Some(&im), length, true)?
        }
    };
    match &made[..] {
        [re, im] => Ok(vec![r::interleave(re, im)?]),
        _ => Ok(made),
    }
}
