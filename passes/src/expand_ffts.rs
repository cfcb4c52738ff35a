//! `kiln-expand-ffts`: marks Fourier transforms that one kernel computes for loop code generation,
//! and expands the others into products with matrices.
//!
//! Why: GPU kernels cannot call the runtime. A kernel holds a row in shared memory, so its length
//! must fit there and have small prime factors. Other lengths are products with the matrices of
//! their factors, and a length with a large prime factor is a cyclic convolution; transforms that
//! these need are kernels again where they fit.
//!
//! Numerics: reassociates.
//!
//! ```text
//! before:  %0:2 = kiln.fft r2c %x length = 1000 : tensor<8x1000xf32>
//! after:   %0:2 = kiln.fft r2c %x length = 1000 {kiln.loops} : tensor<8x1000xf32>
//! ```
mod cooley_tukey;
mod lengths;
pub mod roots;

pub use lengths::{Radices, radices};

use crate::{
    decompose::tools::{Math, dtype, replace_ops},
    expand_scans::LOOPS,
    interleave_ffts::{joined, planar},
    pass::{Numerics, Pass},
};
use cooley_tukey::{Dft, Parts};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level},
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct ExpandFfts {
        /// Most bytes of shared memory that a row of a kernel takes
        pub max_row: i64 = 65536,
    }
}

impl Pass for ExpandFfts {
    const FLAG: &'static str = "kiln-expand-ffts";
    const SUMMARY: &'static str =
        "Marks Fourier transforms of one kernel for loops, and expands others into products";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        let fits = |n: i64, d: DType| self.fits(n, d);
        replace_ops(root, |m, op| {
            let o = Fft::of(op).filter(|_| op.attr(LOOPS).is_none())?;
            let one = dtype(o.re).is_ok_and(|d| fits(o.length, d));
            if !o.interleaved_input && !o.interleaved_result && one {
                op.set_attr(LOOPS, Attr::unit(m.b.ctx));
                return None;
            }
            Some(of_parts(m, &o, one, &fits))
        })
    }
}

impl ExpandFfts {
    /// Whether a kernel computes transforms of `n` complex numbers.
    fn fits(&self, n: i64, d: DType) -> bool {
        n.saturating_mul(2 * d.byte_size() as i64) <= self.max_row && radices(n).is_some()
    }
}

/// The transform of real and imaginary parts, by a kernel or by what it expands to.
fn of_parts(
    m: &Math,
    o: &Fft,
    kernel: bool,
    fits: &dyn Fn(i64, DType) -> bool,
) -> Result<Vec<Value>> {
    let parts = planar(m, o)?;
    let made = if kernel {
        let op = m.b.create_node(&parts)?;
        op.set_attr(LOOPS, Attr::unit(m.b.ctx));
        op.results()
    } else {
        expanded(m, &parts, fits)?
    };
    if o.interleaved_result { Ok(vec![joined(m, &made)?]) } else { Ok(made) }
}

/// The transform of a length that no kernel computes.
fn expanded(m: &Math, o: &Fft, fits: &dyn Fn(i64, DType) -> bool) -> Result<Vec<Value>> {
    let mut sizes = m.sizes_of(o.re)?;
    let takes = sizes.pop().ok_or("has no dimension to transform")?;
    let batch = m.product(&sizes)?;
    let line = |v: Value| m.reshape(v, &[batch, takes]);
    let x = Parts { re: line(o.re)?, im: o.im.map(line).transpose()? };
    let dft = Dft { m, n: o.length, inverse: o.inverse, fits };
    let made = match o.kind {
        FftKind::C2c => dft.emit(x)?,
        FftKind::R2c => dft.of_real(x.re)?,
        FftKind::C2r => Parts { re: dft.to_real(x)?, im: None },
    };
    let own = |v: Value| {
        let last = m.size_of(v, 1)?;
        m.reshape(v, &[&sizes[..], &[last]].concat())
    };
    [Some(made.re), made.im].into_iter().flatten().map(own).collect()
}
