//! Tensors of a call: from files, or made up.
use super::Stop;
use crate::{
    dialects::value::{DType, Tensor},
    model::Executable,
    opt::tensors::{self, Tensors},
    runtime::{
        Program, View, ViewMut,
        program::{Dim, Tensor as Spec},
    },
};
use std::path::Path;

/// A tensor as bytes.
pub struct Data {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Elements in row-major order.
    pub bytes: Vec<u8>,
}

impl Data {
    fn of(t: &Tensor) -> Data {
        Data { dtype: t.dtype(), shape: t.shape().to_vec(), bytes: t.dtype().encode(t) }
    }
    /// The value.
    pub fn tensor(&self) -> Result<Tensor, String> {
        self.dtype.decode(&self.shape, &self.bytes)
    }
}

/// `input_0`, `input_1`, … of a file.
pub fn read(path: &Path) -> Result<(Vec<Data>, Tensors), Stop> {
    let all = tensors::read(path, |_| true).map_err(|e| Stop { exit: e.exit, message: e.message })?;
    let inputs = tensors::numbered(&all, "input_").into_iter().map(|(_, t)| Data::of(t)).collect();
    Ok((inputs, all))
}

/// A generator that gives the same numbers every time: splitmix64 (Steele et al., OOPSLA 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Made-up inputs: floats in [-1, 1), integers 0 or 1 so that they are in range as positions, symbols in the middle of a small range.
pub fn random(program: &Program) -> Result<Vec<Data>, Stop> {
    let middle = |min: i64, max: Option<i64>, divisor: i64| {
        let near = min.max(8).min(max.unwrap_or(i64::MAX));
        (near / divisor.max(1)).max(1) * divisor.max(1)
    };
    let symbols: Vec<i64> = program.symbols.iter().map(|s| middle(s.min, s.max, s.divisor)).collect();
    let exprs = program.expr_values(&symbols).map_err(|e| Stop::usage(e.to_string()))?;
    let mut numbers = Numbers(0);
    let mut one = |t: &Spec| -> Result<Data, Stop> {
        let size = |d: &Dim| d.value(&symbols, &exprs).map_err(|e| Stop::usage(e.to_string())).map(|n| usize::try_from(n).unwrap_or(0));
        let shape = t.dims.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        let dtype = dtype(&t.dtype)?;
        let count: usize = shape.iter().product();
        let tensor = if dtype.is_float() {
            let values = (0..count).map(|_| dtype.round(numbers.unit() * 2.0 - 1.0)).collect();
            Tensor::floats(dtype, shape, values)
        } else {
            Tensor::ints(dtype, shape, (0..count).map(|_| (numbers.next() & 1) as i64).collect())
        };
        Ok(Data::of(&tensor.map_err(Stop::usage)?))
    };
    program.inputs.iter().map(&mut one).collect()
}

fn dtype(name: &str) -> Result<DType, Stop> {
    DType::ALL.iter().copied().find(|d| d.name() == name).ok_or_else(|| Stop::usage(format!("'{name}' is no element type")))
}

/// Memory for the results, full of bytes that no result has, so that what is not written shows.
pub fn outputs(exe: &Executable, inputs: &[Data]) -> Result<Vec<Data>, Stop> {
    let shapes: Vec<&[usize]> = inputs.iter().map(|d| d.shape.as_slice()).collect();
    let shapes = exe.output_shapes(&shapes)?;
    let make = |(shape, t): (Vec<usize>, &Spec)| -> Result<Data, Stop> {
        let dtype = dtype(&t.dtype)?;
        let bytes = vec![0xa5; shape.iter().product::<usize>() * dtype.byte_size()];
        Ok(Data { dtype, shape, bytes })
    };
    shapes.into_iter().zip(&exe.program().outputs).map(make).collect()
}

/// One call.
pub fn call(exe: &Executable, inputs: &[Data], outputs: &mut [Data]) -> Result<(), Stop> {
    let views = inputs.iter().map(|d| View::new(d.dtype.name(), &d.shape, &d.bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut out = outputs.iter_mut().map(|d| ViewMut::new(d.dtype.name(), &d.shape, &mut d.bytes)).collect::<Result<Vec<_>, _>>()?;
    Ok(exe.call(&views, &mut out)?)
}
