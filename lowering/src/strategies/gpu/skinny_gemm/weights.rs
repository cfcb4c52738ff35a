//! The weights of a skinny GEMM: 16-bit elements, or 8-bit floats or integers of 8 or 4 bits that
//! each thread dequantises in registers, so that memory is read at a half or a quarter of the
//! bytes.
use crate::{
    emit::code::Code,
    strategies::gpu::{
        common::ptx::Ptx,
        skinny_gemm::{
            dequantization::{Dequantization, Offset},
            stored::{Stored, bias},
        },
    },
};
use kiln_dialects::{ir::*, value::DType};

/// Packed pairs of `element` of the few rows, in the order in which [`pairs`] gives the weights'.
pub fn ordered(c: Code, stored: Stored, pairs: &[Value]) -> Result<Vec<Value>> {
    if stored != Stored::Int4 {
        return Ok(pairs.to_vec());
    }
    let mut all = vec![];
    for four in pairs.chunks(4) {
        let [a, b, d, e] = four else { return Err("has no whole words of weights".into()) };
        for (first, second) in [(*a, *d), (*b, *e)] {
            for selector in ["0x5410", "0x7632"] {
                all.push(Ptx(c).permute_bytes(first, second, selector)?);
            }
        }
    }
    Ok(all)
}

/// Packed pairs of `element` from a thread's words of a row of weights, and from the elements of its
/// tables. Elements of 4 bits are paired with the fourth after them.
pub fn pairs(
    c: Code,
    weights: &Dequantization,
    element: DType,
    words: &[Value],
    tables: &[Value],
) -> Result<Vec<Value>> {
    let number = match weights.offset {
        Offset::Number(n) => n,
        Offset::Input(_) => 0,
    };
    let mut all = vec![];
    for word in words {
        all.extend(match (weights.stored, element) {
            (Stored::Int4, _) => int4(c, element, *word, number)?,
            (Stored::Element(DType::I8), DType::BF16) => int8_to_bf16(c, *word)?,
            (Stored::Element(DType::I8), _) => int8_to_f16(c, *word)?,
            (Stored::Element(DType::F8E4M3FN), _) => f8e4m3fn(c, element, *word)?,
            (Stored::Element(_), _) => vec![*word],
        });
    }
    let [offset, scale, zero] = split(weights, tables);
    let offset = match (weights.offset, offset) {
        (Offset::Number(n), _) if n != 0 && weights.stored != Stored::Int4 => {
            Some(both(c, element, n)?)
        }
        (_, Some(offset)) => {
            let number = arith::sitofp(c, offset, Type::scalar(c.ctx(), DType::F32))?;
            let number = arith::truncf(c, number, Type::scalar(c.ctx(), element))?;
            Some(pair_of(c, table_bits(c, number)?)?)
        }
        _ => None,
    };
    let pair = |v: Option<Value>| v.map(|v| pair_of(c, v)).transpose();
    let (scale, zero) = (pair(scale)?, pair(zero)?);
    all.into_iter().map(|v| affine(c, element, v, [offset, scale, zero])).collect()
}

/// `(v - offset) * scale + zero` of packed pairs.
fn affine(c: Code, element: DType, v: Value, by: [Option<Value>; 3]) -> Result<Value> {
    if by.iter().all(Option::is_none) {
        return Ok(v);
    }
    let (p, pair) = (Ptx(c), Type::vector(Type::scalar(c.ctx(), element), 2));
    let [offset, scale, zero] = by.map(|v| v.map(|v| llvm::bitcast(p, v, pair)).transpose());
    let mut v = llvm::bitcast(p, v, pair)?;
    if let Some(offset) = offset? {
        v = arith::subf(p, v, offset)?;
    }
    v = match (scale?, zero?) {
        (Some(scale), Some(zero)) => math::fma(p, v, scale, zero)?,
        (Some(scale), None) => arith::mulf(p, v, scale)?,
        (None, Some(zero)) => arith::addf(p, v, zero)?,
        (None, None) => v,
    };
    llvm::bitcast(p, v, p.i32())
}

/// The elements of a fragment's tables: of offset, scale, and zero point.
fn split(weights: &Dequantization, tables: &[Value]) -> [Option<Value>; 3] {
    let mut tables = tables.iter();
    let offset = matches!(weights.offset, Offset::Input(_));
    [offset, weights.scale.is_some(), weights.zero.is_some()]
        .map(|there| there.then(|| tables.next().copied()).flatten())
}

/// An element of a table as it is carried until it is used: a number is extended, a float's bits
/// are the lower half. Nothing else, which would wait for the load.
pub fn table_bits(c: Code, v: Value) -> Result<Value> {
    let p = Ptx(c);
    if !v.ty().dtype()?.is_float() {
        return arith::extsi(p, v, p.i32());
    }
    arith::extui(p, llvm::bitcast(p, v, Type::scalar(c.ctx(), DType::I16))?, p.i32())
}

/// A pair of a float, from its bits.
fn pair_of(c: Code, bits: Value) -> Result<Value> {
    Ptx(c).permute_bytes(bits, bits, "0x1010")
}

/// A float of a table in f32.
fn table_float(c: Code, element: DType, bits: Value) -> Result<Value> {
    let p = Ptx(c);
    let bits = arith::trunci(p, bits, Type::scalar(c.ctx(), DType::I16))?;
    let v = llvm::bitcast(p, bits, Type::scalar(c.ctx(), element))?;
    arith::extf(p, v, Type::scalar(c.ctx(), DType::F32))
}

/// Four pairs of 4-bit elements less a number, exact: of a word's elements i and i + 4.
fn int4(c: Code, element: DType, word: Value, number: i64) -> Result<Vec<Value>> {
    let less = both(c, element, bias(element) + number)?;
    let pairs = biased(c, element, &[word])?;
    pairs.into_iter().map(|v| subtract(c, element, v, less)).collect()
}

/// Pairs of 4-bit elements plus [`bias`]: they are the lower mantissas of numbers from it on.
pub fn biased(c: Code, element: DType, words: &[Value]) -> Result<Vec<Value>> {
    let p = Ptx(c);
    let exponents = if element == DType::BF16 { 0x4300_4300 } else { 0x6400_6400 };
    let (exponents, mask) = (c.integer(exponents, p.i32())?, c.integer(0x000f_000f, p.i32())?);
    let mut all = vec![];
    for word in words {
        for i in 0..4 {
            let shifted =
                if i == 0 { *word } else { arith::shrui(p, *word, c.integer(4 * i, p.i32())?)? };
            all.push(p.and_or(shifted, mask, exponents)?);
        }
    }
    Ok(all)
}

/// In f32, what the sum of products of [`biased`] elements is multiplied by, and what the sum of the
/// other factors is, from the elements of the tables: `scale` and `zero - scale * (bias + offset)`.
pub fn scale_and_bias(
    c: Code,
    weights: &Dequantization,
    element: DType,
    tables: &[Value],
) -> Result<[Value; 2]> {
    let f32 = Type::scalar(c.ctx(), DType::F32);
    let [offset, scale, zero] = split(weights, tables);
    let number = match (weights.offset, offset) {
        (Offset::Number(n), _) => c.number((bias(element) + n) as f64, f32)?,
        (Offset::Input(_), offset) => {
            let offset = arith::sitofp(c, offset.ok_or("has too few tables")?, f32)?;
            arith::addf(c, offset, c.number(bias(element) as f64, f32)?)?
        }
    };
    let float = |v: Option<Value>| v.map(|v| table_float(c, element, v)).transpose();
    let (scale, zero) = (float(scale)?, float(zero)?);
    let less = arith::negf(c, number)?;
    let zero = match zero {
        Some(zero) => zero,
        None => c.number(0.0, f32)?,
    };
    match scale {
        Some(scale) => Ok([scale, math::fma(c, scale, less, zero)?]),
        None => Ok([c.number(1.0, f32)?, arith::addf(c, zero, less)?]),
    }
}

/// A pair of the same number.
pub fn both(c: Code, element: DType, number: i64) -> Result<Value> {
    let pair = Type::vector(Type::scalar(c.ctx(), element), 2);
    llvm::bitcast(Ptx(c), c.number(number as f64, pair)?, Ptx(c).i32())
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
