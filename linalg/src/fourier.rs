//! Names of Fourier transforms. The runtime computes them: cuFFT on GPUs that have it, else rustfft.

/// A Fourier transform along the last dimension, without normalisation, of f32 or f64. Complex
/// numbers have a last dimension of 2 behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fourier {
    /// n complex numbers to n; the exponent's sign is positive if `inverse`.
    Complex {
        /// Whether the exponent's sign is positive.
        inverse: bool,
    },
    /// n real numbers to the first n / 2 + 1 complex ones; the exponent's sign is negative.
    RealToHalf,
    /// The first n / 2 + 1 complex numbers to n real ones; the exponent's sign is positive. The
    /// imaginary part of the first, and for even n of the last, is ignored.
    HalfToReal,
}

use Fourier::*;

const PREFIX: &str = "kiln.fft.";
const NAMES: [(&str, Fourier); 4] = [
    ("c2c", Complex { inverse: false }),
    ("c2c_inverse", Complex { inverse: true }),
    ("r2c", RealToHalf),
    ("c2r", HalfToReal),
];

impl Fourier {
    /// The transform with a name such as `kiln.fft.r2c`, if there is one.
    pub fn find(name: &str) -> Option<Fourier> {
        let name = name.strip_prefix(PREFIX)?;
        NAMES.iter().find(|(n, _)| *n == name).map(|(_, f)| *f)
    }
    /// The name under which it is found.
    pub fn name(self) -> String {
        let name = NAMES.iter().find(|(_, f)| *f == self).map_or("", |(n, _)| *n);
        format!("{PREFIX}{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transform_is_found_by_its_name() {
        for (_, f) in NAMES {
            assert_eq!(Fourier::find(&f.name()), Some(f));
        }
        assert_eq!(Fourier::find("kiln.fft.none"), None);
        assert_eq!(Fourier::find("c2c"), None);
    }
}
