//! `cvt`: between number types.
use super::code::{Kind, Round};
use half::{bf16, f16};

/// A kind of a name such as `s32`.
pub fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "u8" | "b8" => Kind::Unsigned(8),
        "u16" | "b16" => Kind::Unsigned(16),
        "u32" | "b32" => Kind::Unsigned(32),
        "u64" | "b64" => Kind::Unsigned(64),
        "s8" => Kind::Signed(8),
        "s16" => Kind::Signed(16),
        "s32" => Kind::Signed(32),
        "s64" => Kind::Signed(64),
        "f16" => Kind::Float(16),
        "f32" => Kind::Float(32),
        "f64" => Kind::Float(64),
        "bf16" => Kind::Bf16,
        "tf32" => Kind::Tf32,
        _ => return None,
    })
}

fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// A float as f64, which holds all others.
pub fn wide(from: Kind, bits: u64) -> f64 {
    match from {
        Kind::Float(16) => f16::from_bits(bits as u16).to_f64(),
        Kind::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        Kind::Float(64) => f64::from_bits(bits),
        _ => f32::from_bits(bits as u32).into(),
    }
}

/// An f64 as another float, rounded to the nearest.
fn nearest(to: Kind, v: f64) -> u64 {
    match to {
        Kind::Float(16) => f16::from_f64(v).to_bits().into(),
        Kind::Bf16 => bf16::from_f64(v).to_bits().into(),
        Kind::Float(64) => v.to_bits(),
        _ => (v as f32).to_bits().into(),
    }
}

/// An f64 as another float.
pub fn narrow(to: Kind, v: f64, round: Round) -> u64 {
    if to == Kind::Tf32 {
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
    // Sign and size are apart in all formats, so that one less in bits is one step towards 0.
    match round {
        Round::Zero if toward => near - 1,
        Round::Down if toward && v > 0.0 => near - 1,
        Round::Down if away && v < 0.0 => near + 1,
        Round::Up if toward && v < 0.0 => near - 1,
        Round::Up if away && v > 0.0 => near + 1,
        _ => near,
    }
}

/// An integer as a register has it, which is wider: signs are carried on.
fn held(to: Kind, value: i128) -> u64 {
    match to {
        Kind::Signed(n) => ((value as i64) << (64 - n) >> (64 - n)) as u64,
        Kind::Unsigned(n) => value as u64 & mask(n),
        _ => value as u64,
    }
}

fn whole(v: f64, round: Round) -> f64 {
    match round {
        Round::Even => v.round_ties_even(),
        Round::Away => v.round(),
        Round::Zero => v.trunc(),
        Round::Down => v.floor(),
        Round::Up => v.ceil(),
    }
}

fn limits(kind: Kind) -> (i128, i128) {
    match kind {
        Kind::Signed(n) => (-(1 << (n - 1)), (1 << (n - 1)) - 1),
        Kind::Unsigned(n) => (0, (1 << n) - 1),
        _ => (0, 0),
    }
}

/// `bits` of one type as another. Floats that become integers are held to the integer's range, NaN
/// is 0; `saturate` holds integers to their range and floats to 0 and 1.
pub fn convert(
    to: Kind,
    from: Kind,
    round: Option<Round>,
    saturate: bool,
    relu: bool,
    bits: u64,
) -> u64 {
    let integral = |k| matches!(k, Kind::Signed(_) | Kind::Unsigned(_));
    if integral(from) {
        let value = match from {
            Kind::Signed(n) => i128::from((bits << (64 - n)) as i64 >> (64 - n)),
            Kind::Unsigned(n) => i128::from(bits & mask(n)),
            _ => 0,
        };
        return match to {
            Kind::Float(32) if round.is_none_or(|r| r == Round::Even) => {
                (value as f32).to_bits().into()
            }
            _ if integral(to) => {
                let (low, high) = limits(to);
                held(to, if saturate { value.clamp(low, high) } else { value })
            }
            _ => narrow(to, value as f64, round.unwrap_or(Round::Even)),
        };
    }
    let v = wide(from, bits);
    if integral(to) {
        let (low, high) = limits(to);
        let v = whole(v, round.unwrap_or(Round::Zero));
        return if v.is_nan() { 0 } else { held(to, (v as i128).clamp(low, high)) };
    }
    // From a type to itself, or to a wider one, rounding is to whole numbers.
    let size = |k| match k {
        Kind::Float(n) => n,
        Kind::Tf32 => 19,
        _ => 16,
    };
    let wider = size(to) >= size(from) && (to != Kind::Bf16 || from == Kind::Bf16);
    let v = if round.is_some() && wider { whole(v, round.unwrap_or(Round::Even)) } else { v };
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
