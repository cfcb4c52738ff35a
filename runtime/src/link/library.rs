//! The symbols that LLVM's code generation may refer to on its own.
use std::ffi::{c_int, c_void};

macro_rules! library {
    ($($name:ident($($arg:ty),*) -> $result:ty;)*) => {
        mod c {
            use super::*;
            unsafe extern "C" {
                $(pub fn $name($(_: $arg),*) -> $result;)*
            }
        }
        /// C library functions that code generation may emit calls to: memory copies, and rounding
        /// and math functions without an instruction. A linker given these exposes nothing else of
        /// the process.
        pub fn library_symbols() -> Vec<(&'static str, *const c_void)> {
            let own = [("__truncsfbf2", f32_to_bf16 as *const c_void), ("__truncdfbf2", f64_to_bf16 as *const c_void), ("__truncdfhf2", f64_to_f16 as *const c_void)];
            own.into_iter().chain([$((stringify!($name), c::$name as *const c_void)),*]).collect()
        }
    };
}

library! {
    memcpy(*mut c_void, *const c_void, usize) -> *mut c_void;
    memmove(*mut c_void, *const c_void, usize) -> *mut c_void;
    memset(*mut c_void, c_int, usize) -> *mut c_void;
    fmaf(f32, f32, f32) -> f32;
    fma(f64, f64, f64) -> f64;
    floorf(f32) -> f32;
    floor(f64) -> f64;
    ceilf(f32) -> f32;
    ceil(f64) -> f64;
    truncf(f32) -> f32;
    trunc(f64) -> f64;
    roundf(f32) -> f32;
    round(f64) -> f64;
    roundevenf(f32) -> f32;
    roundeven(f64) -> f64;
    rintf(f32) -> f32;
    rint(f64) -> f64;
    nearbyintf(f32) -> f32;
    nearbyint(f64) -> f64;
    sqrtf(f32) -> f32;
    sqrt(f64) -> f64;
    expf(f32) -> f32;
    exp(f64) -> f64;
    exp2f(f32) -> f32;
    exp2(f64) -> f64;
    expm1f(f32) -> f32;
    expm1(f64) -> f64;
    logf(f32) -> f32;
    log(f64) -> f64;
    log1pf(f32) -> f32;
    log1p(f64) -> f64;
    log2f(f32) -> f32;
    log2(f64) -> f64;
    log10f(f32) -> f32;
    log10(f64) -> f64;
    powf(f32, f32) -> f32;
    pow(f64, f64) -> f64;
    cbrtf(f32) -> f32;
    cbrt(f64) -> f64;
    sinf(f32) -> f32;
    sin(f64) -> f64;
    cosf(f32) -> f32;
    cos(f64) -> f64;
    tanf(f32) -> f32;
    tan(f64) -> f64;
    asinf(f32) -> f32;
    asin(f64) -> f64;
    acosf(f32) -> f32;
    acos(f64) -> f64;
    atanf(f32) -> f32;
    atan(f64) -> f64;
    atan2f(f32, f32) -> f32;
    atan2(f64, f64) -> f64;
    sinhf(f32) -> f32;
    sinh(f64) -> f64;
    coshf(f32) -> f32;
    cosh(f64) -> f64;
    tanhf(f32) -> f32;
    tanh(f64) -> f64;
    erff(f32) -> f32;
    erf(f64) -> f64;
}

/// f32 to bf16, round to nearest even (`__truncsfbf2`). LLVM calls it for single elements under
/// masks if the CPU lacks the instruction; older compiler runtimes lack it. A bf16 is returned in
/// the low 16 bits of a vector register.
extern "C" fn f32_to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let even = bits >> 16 & 1;
    f32::from_bits(if x.is_nan() {
        bits >> 16 | 0x40
    } else {
        bits.wrapping_add(0x7fff + even) >> 16
    })
}

/// f64 to bf16, rounded once (`__truncdfbf2`).
extern "C" fn f64_to_bf16(x: f64) -> f32 {
    f32_to_bf16(round_to_odd(x))
}

/// f64 to f16, round to nearest even (`__truncdfhf2`). LLVM calls it for single elements. Returned
/// like a bf16.
extern "C" fn f64_to_f16(x: f64) -> f32 {
    f32::from_bits(u32::from(half::f16::from_f32(round_to_odd(x)).to_bits()))
}

/// f64 to f32, rounded to odd. Rounding the result again, to less than 22 bits, then equals
/// rounding once (Boldo and Melquiond, "When double rounding is odd", 2005).
fn round_to_odd(x: f64) -> f32 {
    let near = x as f32;
    if x.is_nan() || f64::from(near) == x {
        return near;
    }
    let below = near.to_bits() - u32::from(f64::from(near).abs() > x.abs());
    f32::from_bits(below | 1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn f64_rounds_once() {
        let half = |x: f64| super::f64_to_f16(x).to_bits();
        // A tie of f16 with a bit set below f32's precision: double rounding through f32 would get
        // it wrong.
        let tie = 1.0 + 2f64.powi(-11);
        let cases = [
            (1.0, 0x3c00),
            (tie, 0x3c00),
            (tie + 2f64.powi(-40), 0x3c01),
            (-tie - 2f64.powi(-40), 0xbc01),
            (65520.0, 0x7c00),
            (1e300, 0x7c00),
        ];
        assert!(cases.iter().all(|(x, y)| half(*x) == *y), "{:x?}", cases.map(|(x, _)| half(x)));
        assert_eq!(
            (half(65519.99), half(2f64.powi(-24)), half(2f64.powi(-25)), half(0.0)),
            (0x7bff, 1, 0, 0)
        );
        assert!(half::f16::from_bits(half(f64::NAN) as u16).is_nan());
        let tie = 1.0 + 2f64.powi(-8);
        let wide = |x: f64| super::f64_to_bf16(x).to_bits();
        assert_eq!(
            (wide(tie), wide(tie + 2f64.powi(-40)), wide(f64::INFINITY)),
            (0x3f80, 0x3f81, 0x7f80)
        );
    }

    #[test]
    fn f32_rounds_to_the_nearest_bf16() {
        let of = |bits: u32| super::f32_to_bf16(f32::from_bits(bits)).to_bits();
        let cases = [
            (0x3f80_0000, 0x3f80),
            (0x3f80_8000, 0x3f80),
            (0x3f81_8000, 0x3f82),
            (0x3f80_8001, 0x3f81),
            (0xff80_0000, 0xff80),
        ];
        assert!(cases.iter().all(|(x, y)| of(*x) == *y), "{:?}", cases.map(|(x, _)| of(x)));
        assert_eq!((of(0x7f7f_ffff), of(0x7f80_0001)), (0x7f80, 0x7fc0));
    }
}
