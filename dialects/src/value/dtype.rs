//! Element types: names, sizes, rounding and wrap-around.

use super::format::{BF16, F8E4M3FN, F8E5M2, F16, Format};

/// The dtype of a tensor's elements. `I1` is a boolean, not an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// 4 exponent bits, 3 mantissa bits, no infinity.
    F8E4M3FN,
    /// 5 exponent bits, 2 mantissa bits.
    F8E5M2,
    /// Signed, 64 bits.
    I64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 16 bits.
    I16,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    UI8,
    /// A boolean.
    I1,
}

impl DType {
    /// Every dtype.
    pub const ALL: [DType; 12] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F8E4M3FN,
        DType::F8E5M2,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::UI8,
        DType::I1,
    ];

    /// MLIR's spelling.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8E4M3FN => "f8E4M3FN",
            DType::F8E5M2 => "f8E5M2",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::UI8 => "ui8",
            DType::I1 => "i1",
        }
    }

    /// The dtype with this MLIR name, if any.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Whether it is a float of any width.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2
        )
    }

    /// Whether it is a float of 8 bits.
    pub fn is_8_bit_float(self) -> bool {
        self.is_float() && self.bits() == 8
    }

    /// The dtype in which tensor cores add products of elements: `f32` of floats, `i32` of int8.
    pub fn accumulator(self) -> DType {
        if self.is_float() { DType::F32 } else { DType::I32 }
    }

    /// Whether it is an integer; `i1` is not.
    pub fn is_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::UI8)
    }

    /// Width in bits; 1 for `i1`.
    pub fn bits(self) -> u32 {
        match self {
            DType::F64 | DType::I64 => 64,
            DType::F32 | DType::I32 => 32,
            DType::F16 | DType::BF16 | DType::I16 => 16,
            DType::F8E4M3FN | DType::F8E5M2 | DType::I8 | DType::UI8 => 8,
            DType::I1 => 1,
        }
    }

    /// Bytes per element in memory; 1 for `i1`.
    pub fn byte_size(self) -> usize {
        self.bits().div_ceil(8) as usize
    }

    /// The format of a float of at most 16 bits.
    pub(super) fn format(self) -> Option<Format> {
        match self {
            DType::F16 => Some(F16),
            DType::BF16 => Some(BF16),
            DType::F8E4M3FN => Some(F8E4M3FN),
            DType::F8E5M2 => Some(F8E5M2),
            _ => None,
        }
    }

    /// Rounds to nearest, ties to even; overflow gives infinity, or NaN for `f8E4M3FN`, which has
    /// no infinities. Other dtypes and `f64` return `x`.
    pub fn round(self, x: f64) -> f64 {
        match (self, self.format()) {
            (DType::F32, _) => f64::from(x as f32),
            (_, Some(format)) => format.decode(format.encode(x)),
            _ => x,
        }
    }

    /// The integer modulo 2^bits, in the dtype's range; for `i1`, x != 0. Floats return `x`.
    pub fn wrap(self, x: i64) -> i64 {
        match self {
            DType::I32 => i64::from(x as i32),
            DType::I16 => i64::from(x as i16),
            DType::I8 => i64::from(x as i8),
            DType::UI8 => i64::from(x as u8),
            DType::I1 => i64::from(x != 0),
            _ => x,
        }
    }

    /// Least and greatest value of an integer dtype or `i1`; the `i64` range for floats.
    pub fn int_range(self) -> (i64, i64) {
        match self {
            DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
            DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
            DType::UI8 => (0, 255),
            DType::I1 => (0, 1),
            _ => (i64::MIN, i64::MAX),
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
