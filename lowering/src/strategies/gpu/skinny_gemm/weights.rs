//! The weights of a skinny GEMM: 16-bit elements, or 8-bit integers or floats that each thread
//! converts in registers, so that memory is read at half the bytes.
use crate::{
    analysis::Stage,
    emit::code::Code,
    strategies::gpu::{
        common::{ptx::Ptx, roles::factors},
        prologue::Prologue,
    },
};
use kiln_dialects::{ir::*, value::DType};

/// Bytes of a vector access.
pub const VECTOR_BYTES: usize = 16;

/// The factors of a contraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// The element type that tensor cores multiply: bf16 or f16.
    pub element: DType,
    /// The inputs of the first and of the second factor.
    pub inputs: [usize; 2],
    /// The element type in memory of the first factor, if it is converted.
    pub converted: Option<DType>,
}

impl Factors {
    /// Those of a stage that contracts bf16 or f16 with an f32 accumulator.
    pub fn of(stage: &Stage) -> Option<Factors> {
        let narrow = |d: &DType| matches!(d, DType::BF16 | DType::F16);
        if let Some(element) = factors(stage) {
            let plain = Factors { element, inputs: [0, 1], converted: None };
            return Some(plain).filter(|f| narrow(&f.element));
        }
        let prologue = Prologue::of(stage).filter(|p| narrow(&p.element))?;
        let ([convert], [raw]) = (prologue.ops.as_slice(), prologue.inputs.as_slice()) else {
            return None;
        };
        let stored = convert.operand(0).ty().dtype().ok()?;
        let is_read = match stored {
            DType::I8 => convert.isa::<arith::SIToFP>(),
            DType::F8E4M3FN => convert.isa::<arith::ExtF>(),
            _ => false,
        };
        is_read.then_some(Factors {
            element: prologue.element,
            inputs: [*raw, prologue.right],
            converted: Some(stored),
        })
    }
}

/// Elements of a thread's 16 bytes of weights.
pub fn vector(stored: DType) -> usize {
    VECTOR_BYTES / stored.byte_size()
}

/// Packed pairs of `element` from a thread's words of weights, in the same order.
pub fn pairs(c: Code, stored: DType, element: DType, words: &[Value]) -> Result<Vec<Value>> {
    if stored == element {
        return Ok(words.to_vec());
    }
    let convert = |w: &Value| match (stored, element) {
        (DType::F8E4M3FN, _) => f8e4m3fn(c, element, *w),
        (_, DType::BF16) => int8_to_bf16(c, *w),
        _ => int8_to_f16(c, *w),
    };
    Ok(words.iter().map(convert).collect::<Result<Vec<_>>>()?.concat())
}

/// Four int8 as two pairs of bf16, exact: the lower 7 bits are the mantissa of a number from 128 to
/// 255, and the sign bit that of 128 or 256, which is subtracted.
fn int8_to_bf16(c: Code, word: Value) -> Result<Vec<Value>> {
    let p = Ptx(c);
    let bits = |v: Value, mask: i64| arith::andi(p, v, c.integer(mask, p.i32())?);
    let exponents = c.integer(0x4343_4343, p.i32())?;
    let one = |selector: &str| {
        let both = p.permute_bytes(word, exponents, selector)?;
        subtract(c, DType::BF16, bits(both, 0xff7f_ff7f)?, bits(both, 0xff80_ff80)?)
    };
    Ok(vec![one("0x4140")?, one("0x4342")?])
}

/// Four int8 as two pairs of f16, exact: the byte plus 128 is the lower mantissa of a number from
/// 1024 to 1279, from which 1152 is subtracted.
fn int8_to_f16(c: Code, word: Value) -> Result<Vec<Value>> {
    let p = Ptx(c);
    let unsigned = arith::xori(p, word, c.integer(0x8080_8080, p.i32())?)?;
    let (exponents, offset) = (c.integer(0x6464_6464, p.i32())?, c.integer(0x6480_6480, p.i32())?);
    let one = |selector: &str| {
        subtract(c, DType::F16, p.permute_bytes(unsigned, exponents, selector)?, offset)
    };
    Ok(vec![one("0x4140")?, one("0x4342")?])
}

/// The difference of packed pairs.
fn subtract(c: Code, element: DType, a: Value, b: Value) -> Result<Value> {
    let (p, pair) = (Ptx(c), Type::vector(Type::scalar(c.ctx(), element), 2));
    let [a, b] = [llvm::bitcast(p, a, pair)?, llvm::bitcast(p, b, pair)?];
    llvm::bitcast(p, arith::subf(p, a, b)?, p.i32())
}

/// Four f8E4M3FN as two pairs of bf16 or f16, exact: the exponent and the mantissa are moved to
/// their places in the wider type, and a power of two makes up for the other bias, also of
/// subnormals. NaN then reads as 480; it alone overflows if its multiple is taken, and 0 times
/// infinity is NaN.
fn f8e4m3fn(c: Code, element: DType, word: Value) -> Result<Vec<Value>> {
    let (shift, bias, greatest) = match element {
        DType::BF16 => (4, 120, 127),
        _ => (7, 8, 15),
    };
    let p = Ptx(c);
    let bytes = |mask: i64| c.integer(mask * 0x0101_0101, p.i32());
    let sign = arith::andi(p, word, bytes(0x80)?)?;
    let upper = arith::shrui(p, word, p.constant(8 - shift)?)?;
    let upper = arith::ori(p, sign, arith::andi(p, upper, bytes(0x7f >> (8 - shift))?)?)?;
    let lower = arith::shli(p, word, p.constant(shift)?)?;
    let lower = arith::andi(p, lower, bytes(0xff << shift & 0xff)?)?;
    let pair = Type::vector(Type::scalar(c.ctx(), element), 2);
    let scale = c.number(f64::powi(2.0, bias), pair)?;
    let overflow = c.number(1.125 * f64::powi(2.0, greatest - 8), pair)?;
    let zero = c.number(0.0, pair)?;
    let one = |selector: &str| {
        let bits = p.permute_bytes(lower, upper, selector)?;
        let value = arith::mulf(p, llvm::bitcast(p, bits, pair)?, scale)?;
        let multiple = arith::mulf(p, value, overflow)?;
        llvm::bitcast(p, math::fma(p, multiple, zero, value)?, p.i32())
    };
    Ok(vec![one("0x5140")?, one("0x7362")?])
}
