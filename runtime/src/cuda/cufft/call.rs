//! A transform with its sizes, as cuFFT names it.
use crate::{View, ViewMut, cuda::flow_memory::WORKSPACE_ALIGNMENT};
use kiln_linalg::Fourier;

/// `CUFFT_R2C`, `CUFFT_C2R` and `CUFFT_C2C`; those of f64 are 64 above.
const TYPES: [i32; 3] = [0x2a, 0x2c, 0x29];
const WIDE: i32 = 0x40;

/// A transform of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub f: Fourier,
    pub wide: bool,
    /// Length of a row, in numbers of the longer side.
    pub n: usize,
    pub rows: usize,
}

impl Call {
    /// `None`: tensors that the transform does not take.
    pub fn new(f: Fourier, inputs: &[View], outputs: &[ViewMut]) -> Option<Call> {
        let ([x], [y]) = (inputs, outputs) else { return None };
        let wide = match (x.dtype(), y.dtype()) {
            ("f32", "f32") => false,
            ("f64", "f64") => true,
            _ => return None,
        };
        let (complex_in, complex_out) = (f != Fourier::RealToHalf, f != Fourier::HalfToReal);
        let (outer, takes) = rows(x.shape, complex_in)?;
        let (same, gives) = rows(y.shape, complex_out)?;
        let (n, fits) = match f {
            Fourier::Complex { .. } => (takes, gives == takes),
            Fourier::RealToHalf => (takes, gives == takes / 2 + 1),
            Fourier::HalfToReal => (gives, takes == gives / 2 + 1),
        };
        let fits = fits && outer == same && n > 0;
        fits.then(|| Call { f, wide, n, rows: outer.iter().product() })
    }
    /// cuFFT's name of operand and result.
    pub fn kind(&self) -> i32 {
        let kind = match self.f {
            Fourier::RealToHalf => TYPES[0],
            Fourier::HalfToReal => TYPES[1],
            Fourier::Complex { .. } => TYPES[2],
        };
        kind + if self.wide { WIDE } else { 0 }
    }
    /// Bytes of a real number.
    pub fn width(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }
    /// Complex numbers of half a spectrum.
    pub fn half(&self) -> usize {
        self.n / 2 + 1
    }
    /// Bytes of a copy of the operand, which cuFFT overwrites; 0 if it does not.
    pub fn copied(&self) -> usize {
        match self.f {
            Fourier::HalfToReal => self.rows * self.half() * 2 * self.width(),
            _ => 0,
        }
    }
    /// Bytes of scratch memory: the library's workspace, then the copy. Returns the copy's offset
    /// too. `None`: too large.
    pub fn layout(&self, workspace: usize) -> Option<(usize, usize)> {
        let copy = workspace.checked_next_multiple_of(WORKSPACE_ALIGNMENT)?;
        Some((copy, copy.checked_add(self.copied())?))
    }
}

/// The dimensions around rows, and the numbers of a row.
fn rows(shape: &[usize], complex: bool) -> Option<(&[usize], usize)> {
    let shape = match shape.split_last() {
        Some((2, rest)) if complex => rest,
        _ if complex => return None,
        _ => shape,
    };
    shape.split_last().map(|(n, outer)| (outer, *n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(f: Fourier, from: &[usize], to: &[usize]) -> Option<Call> {
        let bytes = |shape: &[usize]| vec![0u8; shape.iter().product::<usize>() * 4];
        let (x, mut y) = (bytes(from), bytes(to));
        let x = View::new("f32", from, &x).expect("a view");
        let y = ViewMut::new("f32", to, &mut y).expect("a view");
        Call::new(f, &[x], &[y])
    }

    #[test]
    fn sizes_follow_from_operand_and_result() {
        let complex = Fourier::Complex { inverse: true };
        let found = call(complex, &[3, 5, 8, 2], &[3, 5, 8, 2]).expect("a call");
        assert_eq!((found.n, found.rows, found.kind(), found.copied()), (8, 15, 0x29, 0));
        let found = call(Fourier::RealToHalf, &[7], &[4, 2]).expect("a call");
        assert_eq!((found.n, found.rows, found.kind()), (7, 1, 0x2a));
        // Both 6 and 7 numbers have half a spectrum of 4.
        for n in [6, 7] {
            let found = call(Fourier::HalfToReal, &[2, 4, 2], &[2, n]).expect("a call");
            assert_eq!((found.n, found.rows, found.copied()), (n, 2, 64));
            assert_eq!(found.layout(100), Some((256, 320)));
        }
    }

    #[test]
    fn other_sizes_are_refused() {
        let complex = Fourier::Complex { inverse: false };
        assert_eq!(call(complex, &[8, 3], &[8, 3]), None);
        assert_eq!(call(complex, &[3, 8, 2], &[4, 8, 2]), None);
        assert_eq!(call(Fourier::RealToHalf, &[8], &[4, 2]), None);
        assert_eq!(call(Fourier::HalfToReal, &[4, 2], &[8]), None);
    }
}
