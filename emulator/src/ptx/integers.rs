//! Integer and bitwise operations.
use super::code::{Binary, Ternary, Unary};

/// An integer held in a register; upper bits are 0.
pub trait Lane: Copy {
    /// From register bits.
    fn of(bits: u64) -> Self;
    /// To register bits.
    fn bits(self) -> u64;
    /// Whether it is below 0.
    fn negative(self) -> bool;
}

macro_rules! lanes {
    ($($signed:ident $unsigned:ident)*) => {$(
        impl Lane for $unsigned {
            fn of(bits: u64) -> Self { bits as $unsigned }
            fn bits(self) -> u64 { self as u64 }
            fn negative(self) -> bool { false }
        }
        impl Lane for $signed {
            fn of(bits: u64) -> Self { bits as $signed }
            fn bits(self) -> u64 { self as $unsigned as u64 }
            fn negative(self) -> bool { self < 0 }
        }
    )*};
}
lanes!(i8 u8 i16 u16 i32 u32 i64 u64);

/// Selects the integer type of a suffix such as `u32`; untyped bits are unsigned.
macro_rules! by_type {
    ($kind:expr, $t:ident => $body:expr) => {
        match $kind {
            "u8" | "b8" => {
                type $t = u8;
                $body
            }
            "s8" => {
                type $t = i8;
                $body
            }
            "u16" | "b16" => {
                type $t = u16;
                $body
            }
            "s16" => {
                type $t = i16;
                $body
            }
            "u32" | "b32" => {
                type $t = u32;
                $body
            }
            "s32" => {
                type $t = i32;
                $body
            }
            "u64" | "b64" => {
                type $t = u64;
                $body
            }
            "s64" => {
                type $t = i64;
                $body
            }
            _ => None,
        }
    };
}

fn operand<T: Lane>(a: u64) -> T {
    T::of(a)
}

/// Unary integer operations.
pub fn unary(name: &str, kind: &str) -> Option<Unary> {
    if kind == "pred" {
        return match name {
            "not" => Some(|a| a ^ 1),
            "mov" => Some(|a| a),
            _ => None,
        };
    }
    by_type!(kind, T => Some(match name {
        "neg" => |a| operand::<T>(a).wrapping_neg().bits(),
        "not" | "cnot" if name == "not" => |a| (!operand::<T>(a)).bits(),
        "cnot" => |a| T::of(u64::from(operand::<T>(a) == 0)).bits(),
        "abs" => |a| if operand::<T>(a).negative() { operand::<T>(a).wrapping_neg().bits() } else { operand::<T>(a).bits() },
        "popc" => |a| u64::from(operand::<T>(a).count_ones()),
        "clz" => |a| u64::from(operand::<T>(a).leading_zeros()),
        "brev" => |a| operand::<T>(a).reverse_bits().bits(),
        "mov" => |a| operand::<T>(a).bits(),
        _ => return None,
    } as Unary))
}

/// `bfind`: the position of the most significant non-sign bit, or the shift amount to it.
pub fn bfind(kind: &str, shift: bool) -> Option<Unary> {
    Some(match (kind, shift) {
        ("u32", false) => |a| u64::from(31u32.wrapping_sub((a as u32).leading_zeros())),
        ("u64", false) => |a| u64::from(63u32.wrapping_sub(a.leading_zeros())),
        ("u32", true) => {
            |a| u64::from(if a as u32 == 0 { u32::MAX } else { (a as u32).leading_zeros() })
        }
        ("u64", true) => |a| u64::from(if a == 0 { u32::MAX } else { a.leading_zeros() }),
        _ => return None,
    })
}

/// Binary integer operations. Shifts past the width give 0 or the sign; division by 0 gives all
/// ones.
pub fn binary(name: &str, how: &str, kind: &str) -> Option<Binary> {
    if kind == "pred" {
        return match name {
            "and" => Some(|a, b| a & b),
            "or" => Some(|a, b| a | b),
            "xor" => Some(|a, b| a ^ b),
            _ => None,
        };
    }
    match (name, how, kind) {
        (.., "u16x2" | "s16x2") => return packed_binary(name, kind),
        ("mul", "wide", "u16") => return Some(|a, b| (a as u16 as u64) * (b as u16 as u64)),
        ("mul", "wide", "s16") => {
            return Some(|a, b| ((a as i16 as i32) * (b as i16 as i32)) as u32 as u64);
        }
        ("mul", "wide", "u32") => return Some(|a, b| (a as u32 as u64) * (b as u32 as u64)),
        ("mul", "wide", "s32") => {
            return Some(|a, b| ((a as i32 as i64) * (b as i32 as i64)) as u64);
        }
        ("mul", "hi", "u16") => {
            return Some(|a, b| ((a as u16 as u32 * b as u16 as u32) >> 16) as u64);
        }
        ("mul", "hi", "s16") => {
            return Some(|a, b| (((a as i16 as i32) * (b as i16 as i32)) >> 16) as u16 as u64);
        }
        ("mul", "hi", "u32") => return Some(|a, b| ((a as u32 as u64) * (b as u32 as u64)) >> 32),
        ("mul", "hi", "s32") => {
            return Some(|a, b| (((a as i32 as i64) * (b as i32 as i64)) >> 32) as u32 as u64);
        }
        ("mul", "hi", "u64") => return Some(|a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        ("mul", "hi", "s64") => {
            return Some(|a, b| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64);
        }
        _ => {}
    }
    by_type!(kind, T => Some(match name {
        "add" if how == "sat" => |a, b| operand::<T>(a).saturating_add(operand::<T>(b)).bits(),
        "sub" if how == "sat" => |a, b| operand::<T>(a).saturating_sub(operand::<T>(b)).bits(),
        "add" => |a, b| operand::<T>(a).wrapping_add(operand::<T>(b)).bits(),
        "sub" => |a, b| operand::<T>(a).wrapping_sub(operand::<T>(b)).bits(),
        "mul" if how == "lo" => |a, b| operand::<T>(a).wrapping_mul(operand::<T>(b)).bits(),
        "div" => |a, b| if operand::<T>(b) == 0 { (!T::of(0)).bits() } else { operand::<T>(a).wrapping_div(operand::<T>(b)).bits() },
        "rem" => |a, b| if operand::<T>(b) == 0 { operand::<T>(a).bits() } else { operand::<T>(a).wrapping_rem(operand::<T>(b)).bits() },
        "min" => |a, b| operand::<T>(a).min(operand::<T>(b)).bits(),
        "max" => |a, b| operand::<T>(a).max(operand::<T>(b)).bits(),
        "and" => |a, b| (operand::<T>(a) & operand::<T>(b)).bits(),
        "or" => |a, b| (operand::<T>(a) | operand::<T>(b)).bits(),
        "xor" => |a, b| (operand::<T>(a) ^ operand::<T>(b)).bits(),
        "exch" => |_, b| operand::<T>(b).bits(),
        "shl" if how.is_empty() => |a, b| operand::<T>(a).checked_shl(b as u32).unwrap_or(0).bits(),
        "shr" => |a, b| operand::<T>(a).checked_shr(b as u32).unwrap_or(if operand::<T>(a).negative() { !T::of(0) } else { 0 }).bits(),
        "inc" => |a, b| if a >= b { 0 } else { a + 1 },
        "dec" => |a, b| if a == 0 || a > b { b } else { a - 1 },
        _ => return None,
    } as Binary))
}

fn packed<T: Lane>(a: u64, b: u64, of: impl Fn(T, T) -> T) -> u64 {
    of(T::of(a), T::of(b)).bits() | of(T::of(a >> 16), T::of(b >> 16)).bits() << 16
}

/// Packed operations on two 16-bit integers.
fn packed_binary(name: &str, kind: &str) -> Option<Binary> {
    Some(match (name, kind) {
        ("add", _) => |a, b| packed::<u16>(a, b, u16::wrapping_add),
        ("sub", _) => |a, b| packed::<u16>(a, b, u16::wrapping_sub),
        ("min", "u16x2") => |a, b| packed::<u16>(a, b, Ord::min),
        ("max", "u16x2") => |a, b| packed::<u16>(a, b, Ord::max),
        ("min", _) => |a, b| packed::<i16>(a, b, Ord::min),
        ("max", _) => |a, b| packed::<i16>(a, b, Ord::max),
        _ => return None,
    })
}

/// Integer comparisons.
pub fn compare(name: &str, kind: &str) -> Option<Binary> {
    by_type!(kind, T => Some(match name {
        "eq" => |a, b| u64::from(operand::<T>(a) == operand::<T>(b)),
        "ne" => |a, b| u64::from(operand::<T>(a) != operand::<T>(b)),
        "lt" | "lo" => |a, b| u64::from(operand::<T>(a) < operand::<T>(b)),
        "le" | "ls" => |a, b| u64::from(operand::<T>(a) <= operand::<T>(b)),
        "gt" | "hi" => |a, b| u64::from(operand::<T>(a) > operand::<T>(b)),
        "ge" | "hs" => |a, b| u64::from(operand::<T>(a) >= operand::<T>(b)),
        _ => return None,
    } as Binary))
}

/// `prmt`: each selector nibble of `c` picks a byte of the two registers, or replicates its sign.
fn permute(a: u64, b: u64, c: u64) -> u64 {
    let bytes = (a as u32 as u64) | (b << 32);
    (0..4).fold(0, |out, i| {
        let pick = c >> (4 * i) & 0xf;
        let byte = (bytes >> (8 * (pick & 7)) & 0xff) as u8;
        let byte = if pick & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 };
        out | u64::from(byte) << (8 * i)
    })
}

fn extract(value: u64, from: u64, len: u64, bits: u64, signed: bool) -> u64 {
    let (from, len) = (from & 0xff, len & 0xff);
    if len == 0 {
        return 0;
    }
    let top = (from + len - 1).min(bits - 1);
    let sign = signed && value >> top & 1 == 1;
    let part = if from >= bits { 0 } else { value >> from };
    let kept = if from >= bits { 0 } else { (bits - from).min(len) };
    let mask = if kept >= 64 { u64::MAX } else { (1 << kept) - 1 };
    let filled = if sign { !mask } else { 0 };
    let all = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    (part & mask | filled) & all
}

/// `lop3`: for each bit, the bit of the table whose number the three operands' bits are.
pub fn logic(operands: [u64; 3], table: u64) -> u64 {
    (0..32).fold(0, |out, i| {
        let number = operands.iter().fold(0, |n, v| n << 1 | v >> i & 1);
        out | (table >> number & 1) << i
    })
}

/// `bfi`: `b` with the low bits of `a` inserted.
pub fn insert(a: u64, b: u64, from: u64, count: u64, bits: u32) -> u64 {
    let (from, count) = ((from & 0xff) as u32, (count & 0xff) as u32);
    let kept = bits.saturating_sub(from).min(count);
    let mask = match kept {
        0 => 0,
        _ => (u64::MAX >> (64 - kept)) << from,
    };
    b & !mask | a.checked_shl(from).unwrap_or(0) & mask
}

/// Ternary integer operations.
pub fn ternary(name: &str, how: &str, kind: &str) -> Option<Ternary> {
    match (name, how, kind) {
        ("mad", "wide", "u16") => {
            return Some(|a, b, c| {
                ((a as u16 as u32) * (b as u16 as u32)).wrapping_add(c as u32) as u64
            });
        }
        ("mad", "wide", "s16") => {
            return Some(|a, b, c| {
                ((a as i16 as i32) * (b as i16 as i32)).wrapping_add(c as i32) as u32 as u64
            });
        }
        ("mad", "wide", "u32") => {
            return Some(|a, b, c| ((a as u32 as u64) * (b as u32 as u64)).wrapping_add(c));
        }
        ("mad", "wide", "s32") => {
            return Some(|a, b, c| {
                ((a as i32 as i64) * (b as i32 as i64)).wrapping_add(c as i64) as u64
            });
        }
        ("mad", "hi", "u32") => {
            return Some(|a, b, c| {
                ((((a as u32 as u64) * (b as u32 as u64)) >> 32) as u32).wrapping_add(c as u32)
                    as u64
            });
        }
        ("mad", "hi", "u64") => {
            return Some(|a, b, c| {
                (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c)
            });
        }
        ("prmt", ..) => return Some(permute),
        ("bfe", _, "u32") => return Some(|a, b, c| extract(a, b, c, 32, false)),
        ("bfe", _, "s32") => return Some(|a, b, c| extract(a, b, c, 32, true)),
        ("bfe", _, "u64") => return Some(|a, b, c| extract(a, b, c, 64, false)),
        ("bfe", _, "s64") => return Some(|a, b, c| extract(a, b, c, 64, true)),
        ("shf", "l.wrap", _) => {
            return Some(|a, b, c| (((b << 32 | a & 0xffff_ffff) << (c & 31)) >> 32) & 0xffff_ffff);
        }
        ("shf", "r.wrap", _) => {
            return Some(|a, b, c| ((b << 32 | a & 0xffff_ffff) >> (c & 31)) & 0xffff_ffff);
        }
        ("shf", "l.clamp", _) => {
            return Some(|a, b, c| {
                (((b << 32 | a & 0xffff_ffff) << c.min(32)) >> 32) & 0xffff_ffff
            });
        }
        ("shf", "r.clamp", _) => {
            return Some(|a, b, c| ((b << 32 | a & 0xffff_ffff) >> c.min(32)) & 0xffff_ffff);
        }
        _ => {}
    }
    match name {
        "mad" if how == "lo" => {
            by_type!(kind, T => Some((|a, b, c| operand::<T>(a).wrapping_mul(operand::<T>(b)).wrapping_add(operand::<T>(c)).bits()) as Ternary))
        }
        "add" => {
            by_type!(kind, T => Some((|a, b, c| operand::<T>(a).wrapping_add(operand::<T>(b)).wrapping_add(operand::<T>(c)).bits()) as Ternary))
        }
        _ => None,
    }
}
