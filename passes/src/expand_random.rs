//! `kiln-expand-random`: expands random ops into integer arithmetic on the element index, which
//! fuses as any elementwise op.
//!
//! Why: dropout then reads and writes its tensor once, and no target needs a library for it. Each
//! element computes its own block of the counter-based generator Philox4x32-10, so bits and uniform
//! numbers equal the interpreter's. Normal numbers differ by the rounding of f64 log and cos.
//!
//! Numerics: reassociates (normal numbers); bits and uniform numbers are exact.
//!
//! ```text
//! before:  %0 = kiln.random_bits %key sizes = [6] : i32
//! after:   %i = kiln.iota …   %c = kiln.shr %i, %two   … ten rounds of kiln.mul and kiln.shr on i64, kiln.xor on i32 …   %0 = kiln.convert %w : … to i32
//! ```
use crate::{
    decompose::tools::{Math, replace_ops},
    pass::{Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::{Philox as PhiloxOp, *},
    rules::{GRAPH_LEVELS, Level, tensor_type},
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct ExpandRandom {}
}

impl Pass for ExpandRandom {
    const FLAG: &'static str = "kiln-expand-random";
    const SUMMARY: &'static str = "Expands random ops into Philox integer arithmetic";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        replace_ops(root, |m, op| {
            if let Some(o) = PhiloxOp::of(op) {
                return Some(words(m.b, o).map(Vec::from));
            }
            let philox = |key: Value, sizes: &[Size]| Philox::new(m.b, key, sizes);
            let (v, sizes) = if let Some(o) = RandomBits::of(op) {
                (philox(o.key, &o.sizes).and_then(|p| p.bits(op.result(0))), o.sizes)
            } else if let Some(o) = RandomUniform::of(op) {
                let v =
                    philox(o.key, &o.sizes).and_then(|p| p.uniform(op.result(0), o.low, o.high));
                (v, o.sizes)
            } else {
                let o = RandomNormal::of(op)?;
                let v = philox(o.key, &o.sizes).and_then(|p| p.normal(op.result(0), o.mean, o.std));
                (v, o.sizes)
            };
            // A scalar was drawn as one element.
            let v = if sizes.is_empty() { v.and_then(|v| m.reshape(v, &sizes)) } else { v };
            Some(v.map(|v| vec![v]))
        })
    }
}

/// The words of a `kiln.philox`.
fn words(b: &Builder, o: PhiloxOp) -> Result<[Value; 4]> {
    let m = Math { b };
    let mut philox = Philox { m, position: o.block, seed: [o.seed; 2], offset: [o.stream; 2] };
    philox.seed = philox.split_words(o.seed)?;
    philox.offset = philox.split_words(o.stream)?;
    philox.block(o.block)
}

/// The sizes over which an op draws: its own, but a scalar has one dimension.
fn drawn(sizes: &[Size]) -> Vec<Size> {
    if sizes.is_empty() { vec![Size::Static(1)] } else { sizes.to_vec() }
}

/// Philox output of a key at the element indices 0, 1, …, or at stated counters; words are i32, so
/// that a product of two
/// is one `mul.wide.u32`.
struct Philox<'a> {
    m: Math<'a>,
    position: Value,
    seed: [Value; 2],
    offset: [Value; 2],
}

impl<'a> Philox<'a> {
    fn new(b: &'a Builder, key: Value, sizes: &[Size]) -> Result<Philox<'a>> {
        let m = Math { b };
        // The row-major index by Horner's rule: a 1-D tensor that is reshaped would be stored.
        let sizes = drawn(sizes);
        let mut position = m.iota(&sizes, 0)?;
        for (axis, size) in sizes.iter().enumerate().skip(1) {
            let scaled = m.mul(position, m.number_like(*size, position)?)?;
            position = m.add(scaled, m.iota(&sizes, axis)?)?;
        }
        let key_element = |i: i64| -> Result<Value> {
            let one = b.add(&Slice {
                input: key,
                offsets: Size::all(&[i]),
                sizes: Size::all(&[1]),
                strides: vec![1],
            })?;
            m.broadcast_to(m.reshape(one, &[])?, &[], position)
        };
        let (seed, offset) = (key_element(0)?, key_element(1)?);
        let mut philox = Philox { m, position, seed: [seed, seed], offset: [offset, offset] };
        philox.seed = philox.split_words(seed)?;
        philox.offset = philox.split_words(offset)?;
        Ok(philox)
    }
    fn number(&self, n: i64) -> Result<Value> {
        self.m.number_like(Size::Static(n), self.position)
    }
    fn with(&self, kind: BinaryKind, x: Value, n: i64) -> Result<Value> {
        self.m.binary(kind, x, self.number(n)?)
    }
    /// Splits an i64 into its low and high words.
    fn split_words(&self, x: Value) -> Result<[Value; 2]> {
        let high = self.with(BinaryKind::Shr, x, 32)?;
        Ok([self.m.convert(x, DType::I32)?, self.m.convert(high, DType::I32)?])
    }
    /// An unsigned word as i64.
    fn widen(&self, word: Value) -> Result<Value> {
        self.with(BinaryKind::And, self.m.convert(word, DType::I64)?, 0xffff_ffff)
    }
    /// Philox4x32-10 at these counters: four words each.
    fn block(&self, block: Value) -> Result<[Value; 4]> {
        let ([mut c0, mut c1], [mut c2, mut c3]) = (self.split_words(block)?, self.offset);
        let xor = |x: Value, y: Value, z: Value| {
            self.m.binary(BinaryKind::Xor, self.m.binary(BinaryKind::Xor, x, y)?, z)
        };
        for round in 0..10i64 {
            let key = |word: Value, step: i64| match round {
                0 => Ok(word),
                _ => {
                    let sum = i64::from((round * step) as i32);
                    let sum = self.m.number_like(Size::Static(sum), word)?;
                    self.m.binary(BinaryKind::Add, word, sum)
                }
            };
            let (k0, k1) = (key(self.seed[0], 0x9e37_79b9)?, key(self.seed[1], 0xbb67_ae85)?);
            let multiply = |word: Value, by: i64| {
                self.split_words(self.with(BinaryKind::Mul, self.widen(word)?, by)?)
            };
            let [low0, high0] = multiply(c0, 0xd251_1f53)?;
            let [low1, high1] = multiply(c2, 0xcd9e_8d57)?;
            [c0, c1, c2, c3] = [xor(high1, c1, k0)?, low1, xor(high0, c3, k1)?, low0];
        }
        Ok([c0, c1, c2, c3])
    }
    /// Whether a bit of the element index is set.
    fn bit(&self, bit: i64) -> Result<Value> {
        self.m.compare(
            CompareKind::Ne,
            self.with(BinaryKind::And, self.position, bit)?,
            self.number(0)?,
        )
    }
    /// The 32-bit word of each element.
    fn word(&self) -> Result<Value> {
        let [a, b, c, d] = self.block(self.with(BinaryKind::Shr, self.position, 2)?)?;
        let (odd, second) = (self.bit(1)?, self.bit(2)?);
        self.m.select(second, self.m.select(odd, d, c)?, self.m.select(odd, b, a)?)
    }
    /// The low and high words of each element's 64-bit output.
    fn pair(&self) -> Result<[Value; 2]> {
        let [a, b, c, d] = self.block(self.with(BinaryKind::Shr, self.position, 1)?)?;
        let odd = self.bit(1)?;
        Ok([self.m.select(odd, c, a)?, self.m.select(odd, d, b)?])
    }

    fn bits(&self, result: Value) -> Result<Value> {
        if tensor_type(result.ty())?.dtype == DType::I64 {
            let [low, high] = self.wide_pair()?;
            return self.m.binary(BinaryKind::Or, low, self.with(BinaryKind::Shl, high, 32)?);
        }
        self.word()
    }
    /// The words of [`Self::pair`], unsigned in i64.
    fn wide_pair(&self) -> Result<[Value; 2]> {
        let [low, high] = self.pair()?;
        Ok([self.widen(low)?, self.widen(high)?])
    }

    /// An integer of `count` bits, scaled by 2^-count to [0, 1).
    fn unit(&self, bits: Value, count: i32, wide: DType) -> Result<Value> {
        let x = self.m.convert(bits, wide)?;
        self.m.mul(x, self.m.full_like(x, (-f64::from(count)).exp2())?)
    }
    fn uniform(&self, result: Value, low: f64, high: f64) -> Result<Value> {
        let dtype = tensor_type(result.ty())?.dtype;
        let precision = match dtype {
            DType::F64 => 53,
            DType::F32 => 24,
            DType::F16 => 11,
            _ => 8,
        };
        // Scaling to [low, high) rounds, so it is done in f64 as in the interpreter.
        let wide =
            if (low, high) == (0.0, 1.0) && dtype != DType::F64 { DType::F32 } else { DType::F64 };
        let bits = if dtype == DType::F64 {
            let [low, high] = self.wide_pair()?;
            self.m.binary(
                BinaryKind::Or,
                self.with(BinaryKind::Shl, high, 21)?,
                self.with(BinaryKind::Shr, low, 11)?,
            )?
        } else {
            self.with(BinaryKind::Shr, self.widen(self.word()?)?, 32 - i64::from(precision))?
        };
        let mut x = self.unit(bits, precision, wide)?;
        if (low, high) != (0.0, 1.0) {
            x = self
                .m
                .add(self.m.full_like(x, low)?, self.m.mul(self.m.full_like(x, high - low)?, x)?)?;
        }
        self.m.convert(x, dtype)
    }
    /// Box-Muller transform in f64.
    fn normal(&self, result: Value, mean: f64, std: f64) -> Result<Value> {
        let m = &self.m;
        let [first, second] = self.wide_pair()?;
        let u = m.convert(self.with(BinaryKind::Add, first, 1)?, DType::F64)?;
        let full = |n: f64| m.full_like(u, n);
        let logarithm = m.unary(UnaryKind::Log, m.mul(u, full((-32f64).exp2())?)?)?;
        let radius = m.unary(UnaryKind::Sqrt, m.mul(full(-2.0)?, logarithm)?)?;
        let turn = m.mul(full(2.0 * std::f64::consts::PI)?, m.convert(second, DType::F64)?)?;
        let cosine = m.unary(UnaryKind::Cos, m.mul(turn, full((-32f64).exp2())?)?)?;
        let x = m.add(full(mean)?, m.mul(m.mul(full(std)?, radius)?, cosine)?)?;
        m.convert(x, tensor_type(result.ty())?.dtype)
    }
}
