//! Binary floating-point formats of at most 16 bits, converted to and from f64 with one rounding.

/// A sign bit, an exponent and `mantissa` stored bits; `max` is the magnitude of the largest finite
/// value.
#[derive(Clone, Copy)]
pub struct Format {
    mantissa: u32,
    /// Exponent of the least normal number and of subnormals.
    min_exponent: i32,
    max: u32,
    /// Magnitude bits on overflow: infinity, or NaN in a format without infinities.
    overflow: u32,
    sign: u32,
}

pub const F16: Format =
    Format { mantissa: 10, min_exponent: -14, max: 0x7bff, overflow: 0x7c00, sign: 0x8000 };
pub const BF16: Format =
    Format { mantissa: 7, min_exponent: -126, max: 0x7f7f, overflow: 0x7f80, sign: 0x8000 };
pub const F8E5M2: Format =
    Format { mantissa: 2, min_exponent: -14, max: 0x7b, overflow: 0x7c, sign: 0x80 };
pub const F8E4M3FN: Format =
    Format { mantissa: 3, min_exponent: -6, max: 0x7e, overflow: 0x7f, sign: 0x80 };

/// 2^k for a normal result.
fn power_of_two(k: i32) -> f64 {
    f64::from_bits(((1023 + k) as u64) << 52)
}

impl Format {
    /// Rounds to nearest even. NaN keeps its sign and leading payload bits; in 8 bits all are set,
    /// as in PyTorch.
    pub fn encode(self, x: f64) -> u32 {
        let sign = if x.is_sign_negative() { self.sign } else { 0 };
        if x.is_nan() {
            let all = (1 << self.mantissa) - 1;
            let payload = if self.sign == 0x80 {
                all
            } else {
                (x.to_bits() >> (52 - self.mantissa)) as u32 & all
            };
            let quiet = 1 << (self.mantissa - 1);
            return sign | self.overflow | payload | quiet;
        }
        let magnitude = x.abs();
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(self.min_exponent);
        if magnitude.is_infinite() || exponent > 200 {
            return sign | self.overflow;
        }
        // The only rounding, since scaling by a power of two is exact. The hidden bit and a carry
        // each increment the exponent.
        let steps =
            (magnitude / power_of_two(exponent - self.mantissa as i32)).round_ties_even() as u32;
        let bits = (((exponent - self.min_exponent) as u32) << self.mantissa) + steps;
        sign | if bits > self.max { self.overflow } else { bits }
    }

    /// The value of the given bits.
    pub fn decode(self, bits: u32) -> f64 {
        let magnitude = bits & (self.sign - 1);
        let mantissa = magnitude & ((1 << self.mantissa) - 1);
        let value = if magnitude <= self.max {
            let field = (magnitude >> self.mantissa) as i32;
            let hidden = if field == 0 { 0 } else { 1 << self.mantissa };
            let exponent = self.min_exponent + (field - 1).max(0) - self.mantissa as i32;
            f64::from(hidden + mantissa) * power_of_two(exponent)
        } else if mantissa == 0 {
            f64::INFINITY
        } else {
            f64::from_bits(f64::NAN.to_bits() | u64::from(mantissa) << (52 - self.mantissa))
        };
        if bits & self.sign == 0 { value } else { -value }
    }
}
