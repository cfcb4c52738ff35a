//! Inputs for programs that nobody has given any.
use super::Data;
use crate::{
    dialects::value::{DType, Tensor},
    runtime::{
        Program,
        program::{Dim, Tensor as Spec},
    },
};

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

/// Values of a program's symbols for made-up inputs: 8, or what is next to that in their ranges.
pub fn made_up_symbols(program: &Program) -> Vec<i64> {
    let middle = |min: i64, max: Option<i64>, divisor: i64| {
        let near = min.max(8).min(max.unwrap_or(i64::MAX));
        (near / divisor.max(1)).max(1) * divisor.max(1)
    };
    program.symbols.iter().map(|s| middle(s.min, s.max, s.divisor)).collect()
}

/// Made-up inputs: floats in [-1, 1), integers 0 or 1 so that they are in range as positions,
/// symbols in the middle of a small range.
pub fn made_up(program: &Program) -> Result<Vec<Data>, String> {
    let symbols = made_up_symbols(program);
    let exprs = program.expr_values(&symbols).map_err(|e| e.to_string())?;
    let mut numbers = Numbers(0);
    let mut one = |t: &Spec| -> Result<Data, String> {
        let size = |d: &Dim| {
            d.value(&symbols, &exprs)
                .map_err(|e| e.to_string())
                .map(|n| usize::try_from(n).unwrap_or(0))
        };
        let shape = t.dims.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        let dtype = DType::from_name(&t.dtype)
            .ok_or_else(|| format!("'{}' is no element type", t.dtype))?;
        let count: usize = shape.iter().product();
        let tensor = if dtype.is_float() {
            let values = (0..count).map(|_| dtype.round(numbers.unit() * 2.0 - 1.0)).collect();
            Tensor::floats(dtype, shape, values)
        } else {
            Tensor::ints(dtype, shape, (0..count).map(|_| (numbers.next() & 1) as i64).collect())
        };
        Ok(Data::of(&tensor?))
    };
    program.inputs.iter().map(&mut one).collect()
}
