//! Counter-based random numbers (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC
//! 2011).

use crate::{
    error::Result,
    reference::shape::{has_dtype, has_shape, sizes as to_sizes},
    value::{DType, Data, Tensor, count},
};

/// Philox4x32-10: the output block of a counter under a key.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let multiply = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        ((product >> 32) as u32, product as u32)
    };
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let (high0, low0) = multiply(0xd251_1f53, c0);
        let (high1, low1) = multiply(0xcd9e_8d57, c2);
        [c0, c1, c2, c3] = [high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0];
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
    }
    [c0, c1, c2, c3]
}

/// The output block of a counter (block, stream) under a seed; each is split into low word, high
/// word.
fn block_of(seed: u64, block: u64, stream: u64) -> [u32; 4] {
    let words = |x: u64| [x as u32, (x >> 32) as u32];
    let ([c0, c1], [c2, c3]) = (words(block), words(stream));
    philox4x32_10([c0, c1, c2, c3], words(seed))
}

/// The four words of philox4x32-10 as i32, elementwise: the key is the seed, the counter (block,
/// stream). Err: an operand is not i64, shapes differ.
pub fn philox(seed: &Tensor, block: &Tensor, stream: &Tensor) -> Result<[Tensor; 4]> {
    for (name, t) in [("the seed", seed), ("the block", block), ("the stream", stream)] {
        has_dtype(name, t, DType::I64)?;
        has_shape(name, t, seed.shape())?;
    }
    let mut words = [const { vec![] }; 4];
    for ((seed, block), stream) in seed.as_i()?.iter().zip(block.as_i()?).zip(stream.as_i()?) {
        for (all, word) in
            words.iter_mut().zip(block_of(*seed as u64, *block as u64, *stream as u64))
        {
            all.push(i64::from(word as i32));
        }
    }
    let [a, b, c, d] =
        words.map(|all| Tensor::new(DType::I32, seed.shape().to_vec(), Data::I(all)));
    Ok([a?, b?, c?, d?])
}

/// The Philox stream of a key, tensor<2xi64> = (seed, offset).
#[derive(Clone, Copy)]
pub struct Draws {
    seed: u64,
    offset: u64,
}

impl Draws {
    /// Err: the key is not tensor<2xi64>.
    pub fn new(key: &Tensor) -> Result<Draws> {
        has_shape("the key", key, &[2])?;
        has_dtype("the key", key, DType::I64)?;
        match key.as_i()? {
            &[seed, offset] => Ok(Draws { seed: seed as u64, offset: offset as u64 }),
            other => Err(format!("the key has {} elements", other.len()).into()),
        }
    }

    /// The four words of a block.
    fn block(self, block: u64) -> [u32; 4] {
        block_of(self.seed, block, self.offset)
    }

    /// The 32-bit word of element i: word i mod 4 of block i / 4.
    pub fn word(self, i: usize) -> u32 {
        self.block(i as u64 / 4)[i % 4]
    }

    /// The 64-bit output of element i as (low, high): words 2(i mod 2) and 2(i mod 2) + 1 of block
    /// i / 2.
    pub fn pair(self, i: usize) -> (u32, u32) {
        let [a, b, c, d] = self.block(i as u64 / 2);
        if i.is_multiple_of(2) { (a, b) } else { (c, d) }
    }

    /// The uniform f32 of element i in [0, 1), with 24 random bits.
    pub fn uniform_f32(self, i: usize) -> f64 {
        f64::from(self.word(i) >> 8) / f64::from(1 << 24)
    }
}

/// Uniform bits as i32 or i64: r\[i\] = philox(seed, (i / 4, offset))\[i mod 4\], i the row-major
/// index; see Reduce.td for i64. Err: the key is not tensor<2xi64>, a negative size, another dtype.
pub fn random_bits(key: &Tensor, sizes: &[i64], dtype: DType) -> Result<Tensor> {
    let (draws, shape) = (Draws::new(key)?, to_sizes(sizes)?);
    let n = count(&shape)?;
    let bits = match dtype {
        DType::I32 => (0..n).map(|i| i64::from(draws.word(i) as i32)).collect(),
        DType::I64 => (0..n)
            .map(|i| draws.pair(i))
            .map(|(low, high)| i64::from(low) | i64::from(high) << 32)
            .collect(),
        _ => return Err(format!("random bits have dtype i32 or i64, not {dtype}").into()),
    };
    Tensor::new(dtype, shape, Data::I(bits))
}

/// Uniform in [low, high): r = low + (high - low) * (bits >> (width - p)) * 2^-p, with p = 53 of 64
/// bits for f64, and of 32 bits 24 for f32, 11 for f16, 8 for bf16. Err: as [`random_bits`],
/// another dtype.
pub fn random_uniform(
    key: &Tensor,
    sizes: &[i64],
    dtype: DType,
    low: f64,
    high: f64,
) -> Result<Tensor> {
    let (draws, shape) = (Draws::new(key)?, to_sizes(sizes)?);
    let precision = match dtype {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 => 11,
        DType::BF16 => 8,
        _ => return Err(format!("random_uniform has no dtype {dtype}").into()),
    };
    let unit = |i: usize| {
        if dtype == DType::F64 {
            let (low, high) = draws.pair(i);
            let bits = u64::from(low) | u64::from(high) << 32;
            (bits >> (64 - precision)) as f64 / (1u64 << precision) as f64
        } else {
            f64::from(draws.word(i) >> (32 - precision)) / (1u64 << precision) as f64
        }
    };
    let values = (0..count(&shape)?).map(|i| low + (high - low) * unit(i)).collect();
    Tensor::floats(dtype, shape, values)
}

/// Normal by Box-Muller: r = mean + std * sqrt(-2 ln((u1 + 1) * 2^-32)) * cos(2 pi u2 * 2^-32),
/// where u1 and u2 are the low and high word of the element's 64-bit output. Err: as
/// [`random_bits`], not a float dtype.
pub fn random_normal(
    key: &Tensor,
    sizes: &[i64],
    dtype: DType,
    mean: f64,
    std: f64,
) -> Result<Tensor> {
    let (draws, shape) = (Draws::new(key)?, to_sizes(sizes)?);
    let scale = 1.0 / (1u64 << 32) as f64;
    let normal = |i: usize| {
        let (u1, u2) = draws.pair(i);
        let radius = (-2.0 * libm::log((f64::from(u1) + 1.0) * scale)).sqrt();
        mean + std * radius * libm::cos(2.0 * std::f64::consts::PI * f64::from(u2) * scale)
    };
    let values = (0..count(&shape)?).map(normal).collect();
    Tensor::floats(dtype, shape, values)
}
