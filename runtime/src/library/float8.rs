//! 8-bit floats.
use half::f16;

/// A sign, 7 - M exponent bits, M mantissa bits. M = 2 is `f8E5M2`, the upper half of an f16; M = 3
/// is `f8E4M3FN`, which has no infinities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Float8<const M: u32>(pub u8);

impl<const M: u32> Float8<M> {
    const BIAS: u32 = (1 << (6 - M)) - 1;
    /// The encoding of overflow: NaN for `f8E4M3FN`, infinity for `f8E5M2`.
    const OVERFLOW: u32 = if M == 3 { 0x7f } else { 0x7c };

    /// The value.
    pub fn to_f64(self) -> f64 {
        if M == 3 && self.0 & 0x7f == 0x7f {
            return f64::NAN.copysign(f64::from(self.0 as i8));
        }
        let (sign, magnitude) =
            (u16::from(self.0 & 0x80) << 8, u16::from(self.0 & 0x7f) << (10 - M));
        // Corrects the exponent bias, which is smaller than f16's.
        f16::from_bits(sign | magnitude).to_f64() * f64::from(1u32 << (15 - Self::BIAS))
    }

    /// Rounds to nearest even. A NaN gets all exponent and mantissa bits, and keeps its sign.
    pub fn from_f32(x: f32) -> Self {
        let (bits, dropped) = (x.abs().to_bits(), 23 - M);
        let code = if x.is_nan() {
            0x7f
        } else if bits < (128 - Self::BIAS) << 23 {
            // Subnormal: adding this constant rounds to its steps in the last place.
            let shift = f32::from_bits((151 - Self::BIAS - M) << 23);
            (x.abs() + shift).to_bits() - shift.to_bits()
        } else {
            let even = (bits >> dropped) & 1;
            let rounded = (bits + (1 << (dropped - 1)) - 1 + even) >> dropped;
            (rounded - ((127 - Self::BIAS) << M)).min(Self::OVERFLOW)
        };
        Float8(code as u8 | if x.is_sign_negative() { 0x80 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const M: u32>(greatest: f64, least: f64) {
        let finite = |b: u8| Float8::<M>(b).to_f64().is_finite();
        let top = (0..0x7f).rev().find(|b| finite(*b)).expect("a number");
        assert_eq!((Float8::<M>(top).to_f64(), Float8::<M>(1).to_f64()), (greatest, least));
        for bits in 0..=255u8 {
            let x = Float8::<M>(bits).to_f64();
            let back = Float8::<M>::from_f32(x as f32);
            assert_eq!(back.0, if x.is_nan() { bits | 0x7f } else { bits });
        }
        for bits in 0..top {
            let (x, next) = (Float8::<M>(bits).to_f64(), Float8::<M>(bits + 1).to_f64());
            let middle = ((x + next) / 2.0) as f32;
            assert_eq!(Float8::<M>::from_f32(middle).0, bits + bits % 2);
            assert_eq!(Float8::<M>::from_f32(middle.next_up()).0, bits + 1);
            assert_eq!(Float8::<M>::from_f32(-middle.next_down()).0, bits | 0x80);
        }
        assert_eq!(Float8::<M>::from_f32(f32::INFINITY).0, Float8::<M>::OVERFLOW as u8);
        assert_eq!(Float8::<M>::from_f32(f32::MAX).0, Float8::<M>::OVERFLOW as u8);
    }

    #[test]
    fn every_byte_is_rounded_to() {
        check::<3>(448.0, f64::powi(2.0, -9));
        check::<2>(57344.0, f64::powi(2.0, -16));
    }
}
