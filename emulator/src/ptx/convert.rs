//! `cvt`: conversions between types.
use super::code::{NumberType, Round};
use half::{bf16, f16};

/// The type of a suffix such as `s32`.
pub fn number_type(name: &str) -> Option<NumberType> {
    Some(match name {
        "u8" | "b8" => NumberType::Unsigned(8),
        "u16" | "b16" => NumberType::Unsigned(16),
        "u32" | "b32" => NumberType::Unsigned(32),
        "u64" | "b64" => NumberType::Unsigned(64),
        "s8" => NumberType::Signed(8),
        "s16" => NumberType::Signed(16),
        "s32" => NumberType::Signed(32),
        "s64" => NumberType::Signed(64),
        "f16" => NumberType::Float(16),
        "f32" => NumberType::Float(32),
        "f64" => NumberType::Float(64),
        "bf16" => NumberType::Bf16,
        "tf32" => NumberType::Tf32,
        _ => return None,
    })
}

fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// A float as f64, which represents all others exactly.
pub fn wide(from: NumberType, bits: u64) -> f64 {
    match from {
        NumberType::Float(16) => f16::from_bits(bits as u16).to_f64(),
        NumberType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        NumberType::Float(64) => f64::from_bits(bits),
        _ => f32::from_bits(bits as u32).into(),
    }
}

/// An f64 rounded to nearest in another float type.
fn nearest(to: NumberType, v: f64) -> u64 {
    match to {
        NumberType::Float(16) => f16::from_f64(v).to_bits().into(),
        NumberType::Bf16 => bf16::from_f64(v).to_bits().into(),
        NumberType::Float(64) => v.to_bits(),
        _ => (v as f32).to_bits().into(),
    }
}

/// An f64 rounded to another float type.
pub fn narrow(to: NumberType, v: f64, round: Round) -> u64 {
    if to == NumberType::Tf32 {
        let bits = (v as f32).to_bits();
        if !v.is_finite() {
            return bits.into();
        }
        let up = match round {
            Round::Away => 0x1000,
            Round::Even => 0xfff + (bits >> 13 & 1),
            _ => 0,
        };
        return u64::from(bits.wrapping_add(up) & !0x1fff);
    }
    let near = nearest(to, v);
    let got = wide(to, near);
    let (toward, away) = (got.abs() > v.abs(), got.abs() < v.abs());
    // All formats are sign-magnitude, so decrementing the bits is one step towards 0.
    match round {
        Round::Zero if toward => near - 1,
        Round::Down if toward && v > 0.0 => near - 1,
        Round::Down if away && v < 0.0 => near + 1,
        Round::Up if toward && v < 0.0 => near - 1,
        Round::Up if away && v > 0.0 => near + 1,
        _ => near,
    }
}

/// An integer sign-extended to a register.
fn sign_extended(to: NumberType, value: i128) -> u64 {
    match to {
        NumberType::Signed(n) => ((value as i64) << (64 - n) >> (64 - n)) as u64,
        NumberType::Unsigned(n) => value as u64 & mask(n),
        _ => value as u64,
    }
}

fn round_to_integer(v: f64, round: Round) -> f64 {
    match round {
        Round::Even => v.round_ties_even(),
        Round::Away => v.round(),
        Round::Zero => v.trunc(),
        Round::Down => v.floor(),
        Round::Up => v.ceil(),
    }
}

fn limits(number_type: NumberType) -> (i128, i128) {
    match number_type {
        NumberType::Signed(n) => (-(1 << (n - 1)), (1 << (n - 1)) - 1),
        NumberType::Unsigned(n) => (0, (1 << n) - 1),
        _ => (0, 0),
    }
}

/// Converts `bits` between types. Floats to integers clamp, NaN gives 0; `saturate` clamps integers
/// to their range and floats to [0, 1].
pub fn convert(
    to: NumberType,
    from: NumberType,
    round: Option<Round>,
    saturate: bool,
    relu: bool,
    bits: u64,
) -> u64 {
    let integral = |k| matches!(k, NumberType::Signed(_) | NumberType::Unsigned(_));
    if integral(from) {
        let value = match from {
            NumberType::Signed(n) => i128::from((bits << (64 - n)) as i64 >> (64 - n)),
            NumberType::Unsigned(n) => i128::from(bits & mask(n)),
            _ => 0,
        };
        return match to {
            NumberType::Float(32) if round.is_none_or(|r| r == Round::Even) => {
                (value as f32).to_bits().into()
            }
            _ if integral(to) => {
                let (low, high) = limits(to);
                sign_extended(to, if saturate { value.clamp(low, high) } else { value })
            }
            _ => narrow(to, value as f64, round.unwrap_or(Round::Even)),
        };
    }
    let v = wide(from, bits);
    if integral(to) {
        let (low, high) = limits(to);
        let v = round_to_integer(v, round.unwrap_or(Round::Zero));
        return if v.is_nan() { 0 } else { sign_extended(to, (v as i128).clamp(low, high)) };
    }
    // To the same or a wider float type, the rounding mode rounds to an integer.
    let size = |k| match k {
        NumberType::Float(n) => n,
        NumberType::Tf32 => 19,
        _ => 16,
    };
    let wider = size(to) >= size(from) && (to != NumberType::Bf16 || from == NumberType::Bf16);
    let v = if round.is_some() && wider {
        round_to_integer(v, round.unwrap_or(Round::Even))
    } else {
        v
    };
    let v = match (saturate, relu) {
        (true, _) => {
            if v.is_nan() {
                0.0
            } else {
                v.clamp(0.0, 1.0)
            }
        }
        (_, true) if v < 0.0 => 0.0,
        _ => v,
    };
    narrow(to, v, round.unwrap_or(Round::Even))
}
