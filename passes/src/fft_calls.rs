//! `kiln-fft-calls`: gives Fourier transforms to a library of the GPU, as calls between programs.
//!
//! Why: kiln's own kernel holds a row in shared memory, and reads and writes parts of complex
//! numbers that neighbours fuse with. cuFFT has any length, in one call of interleaved numbers. It is
//! asked for by the target's feature `+cufft`; a host function computes the same where it is missing.
//!
//! Numerics: reassociates.
//!
//! ```text
//! before:  %0:2 = kiln.fft r2c %x length = 6 : tensor<8x6xf32>
//! after:   %0 = kiln.custom_call "kiln.fft.r2c"(%x) : (tensor<8x6xf32>) -> tensor<8x4x2xf32>
//!          %a = kiln.slice %0 …, 0   %re = kiln.reshape %a …   %b = kiln.slice %0 …, 1   …
//! ```
use crate::{
    decompose::tools::{Math, dtype, replace_ops},
    interleave_ffts::{InterleaveFfts, joined, parts},
    pass::{Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, half_spectrum},
    sym::Dim as SymDim,
};
use kiln_linalg::Fourier;
use std::collections::HashMap;

crate::pass_options! {
    /// The pass.
    pub struct FftCalls {
        /// Whether cuFFT computes transforms; if not, nothing changes
        pub cufft: bool = false,
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

impl Pass for FftCalls {
    const FLAG: &'static str = "kiln-fft-calls";
    const SUMMARY: &'static str = "Gives Fourier transforms to cuFFT, as calls between programs";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if !self.cufft {
            return Ok(());
        }
        InterleaveFfts { rounds: self.rounds }.run(root)?;
        // Calls stand between programs, which would compute what is dead.
        erase_dead(root);
        let mut known = Pairs::new();
        replace_ops(root, |m, op| Fft::of(op).map(|o| called(m, &o, &mut known)))?;
        erase_dead(root);
        Ok(())
    }
}

/// Erases transforms, and ops that only move their numbers, whose results nothing reads.
fn erase_dead(root: Op) {
    use OpKind::{Concat, Fft, Reshape, Slice, Transpose};
    // Users come after what they use.
    for op in walk(root).into_iter().rev() {
        let moves = matches!(op.kind(), Some(Concat | Fft | Reshape | Slice | Transpose));
        if moves && op.results().iter().all(|v| v.uses().is_empty()) {
            op.erase();
        }
    }
}

/// Complex numbers that a call gives, by their parts.
type Pairs = HashMap<[Value; 2], Value>;

/// Parts as complex numbers with a last dimension of 2. Those of another transform are what its call
/// gives, or are transposed as such.
fn paired(m: &Math, parts: [Value; 2], known: &Pairs) -> Result<Value> {
    if let Some(z) = known.get(&parts) {
        return Ok(*z);
    }
    let [re, im] = parts.map(|v| v.def().and_then(Transpose::of));
    if let (Some(re), Some(im)) = (re, im)
        && re.permutation == im.permutation
        && let Some(z) = known.get(&[re.input, im.input])
    {
        let last = re.permutation.len() as i64;
        return m.transpose(*z, &[&re.permutation[..], &[last]].concat());
    }
    joined(m, &parts)
}

/// The transform, of kind and direction as the library has them.
fn called(m: &Math, o: &Fft, known: &mut Pairs) -> Result<Vec<Value>> {
    // The library's r2c is a forward transform and its c2r an inverse one. Those of the other sign
    // are of conjugate numbers.
    let (f, conjugated) = match o.kind {
        FftKind::C2c => (Fourier::Complex { inverse: o.inverse }, false),
        FftKind::R2c => (Fourier::RealToHalf, o.inverse),
        FftKind::C2r => (Fourier::HalfToReal, !o.inverse),
    };
    let conjugate = |[re, im]: [Value; 2]| -> Result<[Value; 2]> {
        Ok([re, if conjugated { m.unary(UnaryKind::Neg, im)? } else { im }])
    };
    let input = match (o.kind, o.im) {
        (FftKind::R2c, _) => o.re,
        (FftKind::C2r, None) if conjugated => joined(m, &conjugate(parts(m, o.re)?)?)?,
        (_, Some(im)) if conjugated => joined(m, &conjugate([o.re, im])?)?,
        (_, Some(im)) => paired(m, [o.re, im], known)?,
        (_, None) => o.re,
    };
    let made = call(m, f, input, o.length)?;
    match o.kind {
        FftKind::C2r => Ok(vec![made]),
        _ if o.interleaved_result && !conjugated => Ok(vec![made]),
        _ => {
            let [re, im] = parts(m, made)?;
            if !conjugated {
                known.insert([re, im], made);
            }
            let parts = conjugate([re, im])?;
            if o.interleaved_result { Ok(vec![joined(m, &parts)?]) } else { Ok(parts.to_vec()) }
        }
    }
}

/// The call; its result has known sizes, or ones that it is told.
fn call(m: &Math, f: Fourier, input: Value, length: i64) -> Result<Value> {
    let mut sizes = m.sizes_of(input)?;
    if f != Fourier::RealToHalf {
        sizes.pop();
    }
    let gives = if f == Fourier::RealToHalf { half_spectrum(length) } else { length };
    *sizes.last_mut().ok_or("has no dimension to transform")? = Size::Static(gives);
    if f != Fourier::HalfToReal {
        sizes.push(Size::Static(2));
    }
    let dims: Vec<SymDim> =
        sizes.iter().map(|s| s.known().map_or(SymDim::Unknown, SymDim::Known)).collect();
    let ty = Type::tensor(m.b.ctx, dtype(input)?, &dims);
    let node = CustomCall { callee: f.name(), inputs: vec![input], effect: false, config: None };
    let made = m.b.create_with(&node, &[ty], &mut [])?.result(0);
    if dims.contains(&SymDim::Unknown) {
        m.b.create_with(&BindShape { value: made, sizes }, &[], &mut [])?;
    }
    Ok(made)
}
