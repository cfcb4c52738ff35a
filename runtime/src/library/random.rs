//! Counter-based random numbers: Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as
//! 1, 2, 3, SC 2011).
use super::{
    abi::{Call, Operand},
    dtype_code::DtypeCode,
    element::Element,
};

/// The output block of a counter under a key.
fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let multiply = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        ((product >> 32) as u32, product as u32)
    };
    let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let ((high0, low0), (high1, low1)) = (multiply(0xd251_1f53, c0), multiply(0xcd9e_8d57, c2));
        [c0, c1, c2, c3] = [high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0];
        (k0, k1) = (k0.wrapping_add(0x9e37_79b9), k1.wrapping_add(0xbb67_ae85));
    }
    [c0, c1, c2, c3]
}

/// The random stream of a key.
struct RandomStream {
    seed: u64,
    offset: u64,
}

impl RandomStream {
    fn of(key: &Operand) -> Option<RandomStream> {
        let [seed, offset] = key.read::<i64>()? else { return None };
        Some(RandomStream { seed: *seed as u64, offset: *offset as u64 })
    }
    fn block(&self, block: u64) -> [u32; 4] {
        let words = |x: u64| (x as u32, (x >> 32) as u32);
        let ((k0, k1), (c0, c1), (c2, c3)) = (words(self.seed), words(block), words(self.offset));
        philox([c0, c1, c2, c3], [k0, k1])
    }
    fn word(&self, i: usize) -> u32 {
        self.block(i as u64 / 4)[i % 4]
    }
    /// The low and the high word of a 64-bit draw.
    fn pair(&self, i: usize) -> (u32, u32) {
        let [a, b, c, d] = self.block(i as u64 / 2);
        if i.is_multiple_of(2) { (a, b) } else { (c, d) }
    }
    fn long(&self, i: usize) -> u64 {
        let (low, high) = self.pair(i);
        u64::from(low) | u64::from(high) << 32
    }
}

fn fill<E: Element>(call: &Call, result: &Operand, value: impl Fn(usize) -> E::Wide) -> Option<()> {
    let out = result.write::<E>()?;
    call.share(result.len()).for_each(|i| out.set(i, E::narrow(value(i))));
    Some(())
}

/// `kiln.random_bits`: key; result of i32 or i64.
pub fn bits(call: &Call) -> Option<()> {
    let [key, result] = &call.tensors[..] else { return None };
    let draws = RandomStream::of(key)?;
    match result.code {
        DtypeCode::I32 => fill::<i32>(call, result, |i| i64::from(draws.word(i))),
        DtypeCode::I64 => fill::<i64>(call, result, |i| draws.long(i) as i64),
        _ => None,
    }
}

fn floats(call: &Call, result: &Operand, value: impl Fn(usize) -> f64) -> Option<()> {
    match result.code {
        DtypeCode::F64 => fill::<f64>(call, result, value),
        DtypeCode::F32 => fill::<f32>(call, result, value),
        DtypeCode::F16 => fill::<half::f16>(call, result, value),
        DtypeCode::Bf16 => fill::<half::bf16>(call, result, value),
        _ => None,
    }
}

/// Two attributes that are the bits of f64.
fn numbers(call: &Call) -> Option<(f64, f64)> {
    let [a, b] = call.attributes[..] else { return None };
    Some((f64::from_bits(a as u64), f64::from_bits(b as u64)))
}

/// `kiln.random_uniform`: key; result. Attributes: bits of low and high.
pub fn uniform(call: &Call) -> Option<()> {
    let [key, result] = &call.tensors[..] else { return None };
    let (draws, (low, high)) = (RandomStream::of(key)?, numbers(call)?);
    let precision = match result.code {
        DtypeCode::F64 => 53,
        DtypeCode::F32 => 24,
        DtypeCode::F16 => 11,
        _ => 8,
    };
    let scale = 1.0 / (1u64 << precision) as f64;
    let unit = |i: usize| match precision {
        53 => (draws.long(i) >> 11) as f64 * scale,
        _ => f64::from(draws.word(i) >> (32 - precision)) * scale,
    };
    floats(call, result, |i| low + (high - low) * unit(i))
}

/// `kiln.random_normal`: key; result. Attributes: bits of mean and standard deviation.
pub fn normal(call: &Call) -> Option<()> {
    let [key, result] = &call.tensors[..] else { return None };
    let (draws, (mean, std)) = (RandomStream::of(key)?, numbers(call)?);
    let scale = 1.0 / (1u64 << 32) as f64;
    floats(call, result, |i| {
        let (u1, u2) = draws.pair(i);
        let radius = (-2.0 * libm::log((f64::from(u1) + 1.0) * scale)).sqrt();
        mean + std * radius * libm::cos(2.0 * std::f64::consts::PI * f64::from(u2) * scale)
    })
}
