//! Random inputs for programs that were given none.
use super::OwnedTensor;
use crate::{
    dialects::value::{DType, Tensor},
    runtime::{
        CallError, Program,
        buffer::vec_of,
        program::Tensor as Spec,
        view::{purpose, tensor_bytes},
    },
};

/// Deterministic random numbers: splitmix64 (Steele et al., OOPSLA 2014).
struct SplitMix64(u64);

impl SplitMix64 {
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

/// Symbol values for random inputs: 8, or the nearest value in the symbol's range.
pub fn random_input_symbols(program: &Program) -> Vec<i64> {
    let middle = |min: i64, max: Option<i64>, divisor: i64| {
        let near = min.max(8).min(max.unwrap_or(i64::MAX));
        (near / divisor.max(1)).max(1) * divisor.max(1)
    };
    program.symbols.iter().map(|s| middle(s.min, s.max, s.divisor)).collect()
}

/// Elements generated per chunk, to bound temporary memory.
const CHUNK: usize = 1 << 16;

/// Random inputs: floats in [-1, 1); integers 0 or 1, so that they are valid indices; sizes from
/// [`random_input_symbols`]. Err: a size has no value, or out of memory.
pub fn random_inputs(program: &Program) -> Result<Vec<OwnedTensor>, CallError> {
    let symbols = random_input_symbols(program);
    let exprs = program.expr_values(&symbols)?;
    let mut numbers = SplitMix64(0);
    let mut one = |t: &Spec| -> Result<OwnedTensor, CallError> {
        let wrong = |reason| CallError::Tensor { what: "input", name: t.name.clone(), reason };
        let sizes = t.dims.iter().map(|d| d.size(&symbols, &exprs));
        let shape = sizes.collect::<Result<Vec<_>, _>>()?;
        let dtype = DType::from_name(&t.dtype)
            .ok_or_else(|| wrong(format!("'{}' is no element type", t.dtype)))?;
        let len = tensor_bytes("made-up input", &t.name, &t.dtype, &shape)?;
        let mut bytes = vec_of(len, || purpose("made-up input", &t.name, &t.dtype, &shape))?;
        let count = len / dtype.byte_size();
        for start in (0..count).step_by(CHUNK) {
            let n = CHUNK.min(count - start);
            let part = if dtype.is_float() {
                let values = (0..n).map(|_| dtype.round(numbers.unit() * 2.0 - 1.0)).collect();
                Tensor::floats(dtype, vec![n], values)
            } else {
                Tensor::ints(dtype, vec![n], (0..n).map(|_| (numbers.next() & 1) as i64).collect())
            };
            bytes.extend(dtype.encode(&part.map_err(|e| wrong(e.to_string()))?));
        }
        Ok(OwnedTensor { dtype, shape, bytes })
    };
    program.inputs.iter().map(&mut one).collect()
}
