//! Float operations. `.approx` operations are computed exactly and rounded once, so results are not
//! bitwise those of a GPU.
use super::code::{Binary, Ternary, Unary};
use half::{bf16, f16};

/// A float held in a register.
trait Lane: Copy {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
    fn wide(self) -> f64;
    /// Rounds to nearest.
    fn narrow(v: f64) -> Self;
    fn fma(self, b: Self, c: Self) -> Self {
        Self::narrow(self.wide().mul_add(b.wide(), c.wide()))
    }
}

impl Lane for f32 {
    fn of(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
    fn wide(self) -> f64 {
        self.into()
    }
    fn narrow(v: f64) -> f32 {
        v as f32
    }
    fn fma(self, b: f32, c: f32) -> f32 {
        self.mul_add(b, c)
    }
}
impl Lane for f64 {
    fn of(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
    fn bits(self) -> u64 {
        self.to_bits()
    }
    fn wide(self) -> f64 {
        self
    }
    fn narrow(v: f64) -> f64 {
        v
    }
}
macro_rules! halves {
    ($($t:ident)*) => {$(
        impl Lane for $t {
            fn of(bits: u64) -> $t { $t::from_bits(bits as u16) }
            fn bits(self) -> u64 { u64::from(self.to_bits()) }
            fn wide(self) -> f64 { self.to_f64() }
            fn narrow(v: f64) -> $t { $t::from_f64(v) }
        }
    )*};
}
halves!(f16 bf16);

macro_rules! by_type {
    ($kind:expr, $t:ident => $body:expr) => {
        match $kind {
            "f16" => {
                type $t = f16;
                $body
            }
            "bf16" => {
                type $t = bf16;
                $body
            }
            "f32" => {
                type $t = f32;
                $body
            }
            "f64" => {
                type $t = f64;
                $body
            }
            _ => None,
        }
    };
}

/// min or max; without `NaN` in the name, prefers the operand that is a number.
fn min_max(a: f64, b: f64, most: bool, strict: bool) -> f64 {
    let sign = if most { -1.0 } else { 1.0 };
    match (a.is_nan(), b.is_nan()) {
        (true, _) | (_, true) if strict => f64::NAN,
        (true, _) => b,
        (_, true) => a,
        // -0 is less than 0.
        _ if a == 0.0 && b == 0.0 => {
            if a.is_sign_negative() != most {
                a
            } else {
                b
            }
        }
        _ => {
            if sign * a < sign * b {
                a
            } else {
                b
            }
        }
    }
}

/// Unary float operations.
pub fn unary(name: &str, kind: &str) -> Option<Unary> {
    // Sign operations act on the bits, also of NaN.
    match (name, kind) {
        ("neg", "f32") => return Some(|a| a ^ 0x8000_0000),
        ("abs", "f32") => return Some(|a| a & 0x7fff_ffff),
        ("neg", "f64") => return Some(|a| a ^ 1 << 63),
        ("abs", "f64") => return Some(|a| a & !(1 << 63)),
        ("neg", "f16" | "bf16") => return Some(|a| a ^ 0x8000),
        ("abs", "f16" | "bf16") => return Some(|a| a & 0x7fff),
        ("neg", "f16x2" | "bf16x2") => return Some(|a| a ^ 0x8000_8000),
        ("abs", "f16x2" | "bf16x2") => return Some(|a| a & 0x7fff_7fff),
        _ => {}
    }
    by_type!(kind, T => Some(match name {
        "mov" => |a| T::of(a).bits(),
        "sqrt" => |a| T::narrow(T::of(a).wide().sqrt()).bits(),
        "rsqrt" => |a| T::narrow(1.0 / T::of(a).wide().sqrt()).bits(),
        "rcp" => |a| T::narrow(1.0 / T::of(a).wide()).bits(),
        "ex2" => |a| T::narrow(T::of(a).wide().exp2()).bits(),
        "lg2" => |a| T::narrow(T::of(a).wide().log2()).bits(),
        "sin" => |a| T::narrow(T::of(a).wide().sin()).bits(),
        "cos" => |a| T::narrow(T::of(a).wide().cos()).bits(),
        "tanh" => |a| T::narrow(T::of(a).wide().tanh()).bits(),
        _ => return None,
    } as Unary))
}

/// Binary float operations; `how` has the modifiers between name and type.
pub fn binary(name: &str, how: &str, kind: &str) -> Option<Binary> {
    let strict = how.contains("NaN");
    let narrow = match kind {
        "f16x2" => return packed_binary::<f16>(name, strict),
        "bf16x2" => return packed_binary::<bf16>(name, strict),
        other => other,
    };
    if name == "copysign" {
        // `copysign` takes the first operand's sign.
        return Some(match kind {
            "f32" => |a, b| a & 0x8000_0000 | b & 0x7fff_ffff,
            "f64" => |a, b| a & 1 << 63 | b & !(1 << 63),
            _ => return None,
        });
    }
    by_type!(narrow, T => Some(match (name, strict) {
        ("add", _) => |a, b| T::narrow(T::of(a).wide() + T::of(b).wide()).bits(),
        ("sub", _) => |a, b| T::narrow(T::of(a).wide() - T::of(b).wide()).bits(),
        ("mul", _) => |a, b| T::narrow(T::of(a).wide() * T::of(b).wide()).bits(),
        ("div", _) => |a, b| T::narrow(T::of(a).wide() / T::of(b).wide()).bits(),
        ("min", false) => |a, b| T::narrow(min_max(T::of(a).wide(), T::of(b).wide(), false, false)).bits(),
        ("max", false) => |a, b| T::narrow(min_max(T::of(a).wide(), T::of(b).wide(), true, false)).bits(),
        ("min", true) => |a, b| T::narrow(min_max(T::of(a).wide(), T::of(b).wide(), false, true)).bits(),
        ("max", true) => |a, b| T::narrow(min_max(T::of(a).wide(), T::of(b).wide(), true, true)).bits(),
        ("exch", _) => |_, b| b,
        _ => return None,
    } as Binary))
}

fn packed<T: Lane>(a: u64, b: u64, of: impl Fn(f64, f64) -> f64) -> u64 {
    let half =
        |s: u32| T::narrow(of(T::of(a >> s & 0xffff).wide(), T::of(b >> s & 0xffff).wide())).bits();
    half(0) | half(16) << 16
}

fn packed_binary<T: Lane>(name: &str, strict: bool) -> Option<Binary> {
    Some(match (name, strict) {
        ("add", _) => |a, b| packed::<T>(a, b, |x, y| x + y),
        ("sub", _) => |a, b| packed::<T>(a, b, |x, y| x - y),
        ("mul", _) => |a, b| packed::<T>(a, b, |x, y| x * y),
        ("min", false) => |a, b| packed::<T>(a, b, |x, y| min_max(x, y, false, false)),
        ("max", false) => |a, b| packed::<T>(a, b, |x, y| min_max(x, y, true, false)),
        ("min", true) => |a, b| packed::<T>(a, b, |x, y| min_max(x, y, false, true)),
        ("max", true) => |a, b| packed::<T>(a, b, |x, y| min_max(x, y, true, true)),
        _ => return None,
    })
}

/// `fma`.
pub fn ternary(name: &str, kind: &str) -> Option<Ternary> {
    fn halves<T: Lane>(a: u64, b: u64, c: u64) -> u64 {
        let half = |s: u32| {
            T::of(a >> s & 0xffff).fma(T::of(b >> s & 0xffff), T::of(c >> s & 0xffff)).bits()
        };
        half(0) | half(16) << 16
    }
    match (name, kind) {
        ("fma" | "mad", "f16x2") => Some(halves::<f16>),
        ("fma" | "mad", "bf16x2") => Some(halves::<bf16>),
        ("fma" | "mad", _) => {
            by_type!(kind, T => Some((|a, b, c| T::of(a).fma(T::of(b), T::of(c)).bits()) as Ternary))
        }
        _ => None,
    }
}

/// Float comparisons.
pub fn compare(name: &str, kind: &str) -> Option<Binary> {
    by_type!(kind, T => Some(match name {
        "eq" => |a, b| u64::from(T::of(a).wide() == T::of(b).wide()),
        "ne" => |a, b| u64::from(T::of(a).wide().partial_cmp(&T::of(b).wide()).is_some_and(|o| o.is_ne())),
        "lt" => |a, b| u64::from(T::of(a).wide() < T::of(b).wide()),
        "le" => |a, b| u64::from(T::of(a).wide() <= T::of(b).wide()),
        "gt" => |a, b| u64::from(T::of(a).wide() > T::of(b).wide()),
        "ge" => |a, b| u64::from(T::of(a).wide() >= T::of(b).wide()),
        "equ" => |a, b| u64::from(T::of(a).wide().partial_cmp(&T::of(b).wide()).is_none_or(|o| o.is_eq())),
        "neu" => |a, b| u64::from(T::of(a).wide() != T::of(b).wide()),
        "ltu" => |a, b| u64::from(T::of(a).wide().partial_cmp(&T::of(b).wide()).is_none_or(|o| o.is_lt())),
        "leu" => |a, b| u64::from(T::of(a).wide().partial_cmp(&T::of(b).wide()).is_none_or(|o| o.is_le())),
        "gtu" => |a, b| u64::from(T::of(a).wide().partial_cmp(&T::of(b).wide()).is_none_or(|o| o.is_gt())),
        "geu" => |a, b| u64::from(T::of(a).wide().partial_cmp(&T::of(b).wide()).is_none_or(|o| o.is_ge())),
        "num" => |a, b| u64::from(!T::of(a).wide().is_nan() && !T::of(b).wide().is_nan()),
        "nan" => |a, b| u64::from(T::of(a).wide().is_nan() || T::of(b).wide().is_nan()),
        _ => return None,
    } as Binary))
}

/// `testp`.
pub fn test(name: &str, kind: &str) -> Option<Unary> {
    by_type!(kind, T => Some(match name {
        "finite" => |a| u64::from(T::of(a).wide().is_finite()),
        "infinite" => |a| u64::from(T::of(a).wide().is_infinite()),
        "number" => |a| u64::from(!T::of(a).wide().is_nan()),
        "notanumber" => |a| u64::from(T::of(a).wide().is_nan()),
        _ => return None,
    } as Unary))
}
