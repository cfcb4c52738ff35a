//! What LLVM may call in code that calls nothing itself.
use std::ffi::{c_int, c_void};

macro_rules! library {
    ($($name:ident($($arg:ty),*) -> $result:ty;)*) => {
        mod c {
            use super::*;
            unsafe extern "C" {
                $(pub fn $name($(_: $arg),*) -> $result;)*
            }
        }
        /// Functions of the C library that code generation may introduce: copies of blocks, remainders, and roundings and math functions for
        /// which the processor has no instruction. A linker that offers these offers nothing else of the process.
        pub fn library_symbols() -> Vec<(&'static str, *const c_void)> {
            vec![$((stringify!($name), c::$name as *const c_void)),*]
        }
    };
}

library! {
    memcpy(*mut c_void, *const c_void, usize) -> *mut c_void;
    memmove(*mut c_void, *const c_void, usize) -> *mut c_void;
    memset(*mut c_void, c_int, usize) -> *mut c_void;
    fmodf(f32, f32) -> f32;
    fmod(f64, f64) -> f64;
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
