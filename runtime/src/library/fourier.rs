//! Fourier transforms along the last axis, by rustfft and realfft.
use super::{
    abi::{Call, Operand, Out},
    dtype_code::DtypeCode,
    element::Element,
};
use crate::{View, ViewMut};
use kiln_linalg::Fourier;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftNum, FftPlanner, num_complex::Complex};
use std::{
    ops::Range,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

/// Complex numbers that are transformed by one call of the library: rows that are short share one.
const CHUNK: usize = 2048;

/// `kiln.fft`: real and imaginary part, as far as there are such, or pairs of them; those of the
/// result. Attributes: kind (0 complex to complex, 1 real to half a spectrum, 2 back), length,
/// inverse, whether the operand is pairs, whether the result is. Plans are made once a length and
/// process.
pub fn fft(call: &Call) -> Option<()> {
    match call.tensors.first()?.code {
        DtypeCode::F32 => run::<f32>(call),
        DtypeCode::F64 => run::<f64>(call),
        _ => None,
    }
}

/// A transform that a program calls by name, on this thread. Err: tensors that it does not take.
pub fn transform(f: Fourier, inputs: &[View], outputs: &mut [ViewMut]) -> Result<(), &'static str> {
    let wrong = "takes and gives f32 or f64, complex numbers with a last dimension of 2";
    let last = |shape: &[usize], behind: usize| shape.iter().rev().nth(behind).copied();
    let (input, output) = (inputs.first().ok_or(wrong)?, outputs.first().ok_or(wrong)?);
    let (kind, length, inverse) = match f {
        Fourier::Complex { inverse } => (0, last(input.shape, 1), inverse),
        Fourier::RealToHalf => (1, last(input.shape, 0), false),
        Fourier::HalfToReal => (2, last(output.shape, 0), true),
    };
    let flags = [inverse, kind != 1, kind != 2].map(i64::from);
    let attributes = [&[kind, length.ok_or(wrong)? as i64], &flags[..]].concat();
    let call = Call::of_views(inputs, outputs, attributes);
    call.and_then(|call| fft(&call)).ok_or(wrong)
}

/// Plans of an element type, by length and direction.
struct Plans<E: FftNum> {
    complex: FftPlanner<E>,
    real: RealFftPlanner<E>,
}

/// An element type with its plans.
trait Planned: FftNum + Element {
    fn plans() -> &'static LazyLock<Mutex<Plans<Self>>>;
}

macro_rules! planned {
    ($($t:ty),*) => {
        $(impl Planned for $t {
            fn plans() -> &'static LazyLock<Mutex<Plans<$t>>> {
                static PLANS: LazyLock<Mutex<Plans<$t>>> = LazyLock::new(|| {
                    Mutex::new(Plans { complex: FftPlanner::new(), real: RealFftPlanner::new() })
                });
                &PLANS
            }
        })*
    };
}
planned!(f32, f64);

/// Asks for a plan. One that a thread panicked over is as good as any other.
fn plan<E: Planned, P>(make: impl FnOnce(&mut Plans<E>) -> P) -> P {
    make(&mut E::plans().lock().unwrap_or_else(PoisonError::into_inner))
}

/// Complex numbers of a call, as parts or as pairs in memory.
enum Source<'a, E> {
    Parts(&'a [E], &'a [E]),
    Pairs(&'a [E]),
}

impl<E: Planned> Source<'_, E> {
    fn load(&self, range: Range<usize>, to: &mut [Complex<E>]) -> Option<()> {
        match self {
            Source::Parts(re, im) => {
                let parts = re.get(range.clone())?.iter().zip(im.get(range)?);
                to.iter_mut().zip(parts).for_each(|(z, (re, im))| *z = Complex::new(*re, *im));
            }
            Source::Pairs(z) => {
                let pairs = z.get(2 * range.start..2 * range.end)?.chunks_exact(2);
                to.iter_mut().zip(pairs).for_each(|(z, p)| *z = Complex::new(p[0], p[1]));
            }
        }
        Some(())
    }
}

/// Where complex numbers of a call go.
enum Target<'a, E> {
    Parts(Out<'a, E>, Out<'a, E>),
    Pairs(Out<'a, E>),
}

impl<E: Planned> Target<'_, E> {
    fn store(&self, at: usize, from: &[Complex<E>], conjugate: bool) {
        let im = |z: &Complex<E>| if conjugate { -z.im } else { z.im };
        match self {
            Target::Parts(to_re, to_im) => {
                to_re.write(at, from, |z| z.re);
                to_im.write(at, from, im);
            }
            Target::Pairs(to) => to.write_pairs(2 * at, from, |z| [z.re, im(z)]),
        }
    }
}

fn run<E: Planned>(call: &Call) -> Option<()> {
    let &[kind, length, inverse, pairs, to_pairs] = &call.attributes[..] else { return None };
    let [inverse, pairs, to_pairs] = [inverse, pairs, to_pairs].map(|flag| flag != 0);
    let n = usize::try_from(length).ok().filter(|n| *n > 0)?;
    let half = n / 2 + 1;
    let (takes, gives) = match kind {
        0 => (n, n),
        1 if !pairs => (n, half),
        2 if !to_pairs => (half, n),
        _ => return None,
    };
    let (inputs, outputs) =
        call.tensors.split_at_checked(if kind == 1 || pairs { 1 } else { 2 })?;
    let each = |pairs: bool, count: usize| if pairs { 2 * count } else { count };
    let outer = inputs.first()?.len() / each(pairs, takes);
    // An unused output has no shape.
    let fit = |all: &[Operand], n: usize| all.iter().all(|t| !t.used() || t.len() == outer * n);
    if !fit(inputs, each(pairs, takes)) || !fit(outputs, each(to_pairs, gives)) {
        return None;
    }
    let source = || match inputs {
        [z] if pairs => Some(Source::Pairs(z.read::<E>()?)),
        [re, im] => Some(Source::Parts(re.read::<E>()?, im.read::<E>()?)),
        _ => None,
    };
    let target = || match outputs {
        [z] if to_pairs => Some(Target::Pairs(z.write::<E>()?)),
        [re, im] => Some(Target::Parts(re.write::<E>()?, im.write::<E>()?)),
        _ => None,
    };
    let rows = call.share(outer);
    match kind {
        0 => {
            let plan = plan::<E, _>(|p| match inverse {
                true => p.complex.plan_fft_inverse(n),
                false => p.complex.plan_fft_forward(n),
            });
            complex(&*plan, &source()?, &target()?, rows)
        }
        1 => {
            let plan: Arc<dyn RealToComplex<E>> = plan::<E, _>(|p| p.real.plan_fft_forward(n));
            real_to_half(&*plan, inputs.first()?.read()?, &target()?, rows, inverse)
        }
        _ => {
            let plan: Arc<dyn ComplexToReal<E>> = plan::<E, _>(|p| p.real.plan_fft_inverse(n));
            let [to] = outputs else { return None };
            half_to_real(&*plan, &source()?, &to.write()?, rows, inverse)
        }
    }
}

fn complex<E: Planned>(
    plan: &dyn Fft<E>,
    from: &Source<'_, E>,
    to: &Target<'_, E>,
    rows: Range<usize>,
) -> Option<()> {
    let n = plan.len();
    let together = (CHUNK / n).max(1);
    let mut line = vec![Complex::new(E::zero(), E::zero()); together.min(rows.len()) * n];
    let mut scratch = vec![Complex::new(E::zero(), E::zero()); plan.get_inplace_scratch_len()];
    for first in rows.clone().step_by(together) {
        let range = first * n..(first + together).min(rows.end) * n;
        let line = line.get_mut(..range.len())?;
        from.load(range.clone(), line)?;
        plan.process_with_scratch(line, &mut scratch);
        to.store(range.start, line, false);
    }
    Some(())
}

fn real_to_half<E: Planned>(
    plan: &dyn RealToComplex<E>,
    x: &[E],
    to: &Target<'_, E>,
    rows: Range<usize>,
    inverse: bool,
) -> Option<()> {
    let (mut line, mut half) = (plan.make_input_vec(), plan.make_output_vec());
    let mut scratch = plan.make_scratch_vec();
    for row in rows {
        let (n, count) = (line.len(), half.len());
        line.copy_from_slice(x.get(row * n..(row + 1) * n)?);
        plan.process_with_scratch(&mut line, &mut half, &mut scratch).ok()?;
        // Of real numbers, the inverse transform is the conjugate.
        to.store(row * count, &half, inverse);
    }
    Some(())
}

fn half_to_real<E: Planned>(
    plan: &dyn ComplexToReal<E>,
    from: &Source<'_, E>,
    to: &Out<'_, E>,
    rows: Range<usize>,
    inverse: bool,
) -> Option<()> {
    let (mut half, mut line) = (plan.make_input_vec(), plan.make_output_vec());
    let mut scratch = plan.make_scratch_vec();
    for row in rows {
        let (n, count) = (line.len(), half.len());
        from.load(row * count..(row + 1) * count, &mut half)?;
        if !inverse {
            half.iter_mut().for_each(|z| z.im = -z.im);
        }
        // What is its own conjugate is real.
        half.first_mut()?.im = E::zero();
        if n.is_multiple_of(2) {
            half.last_mut()?.im = E::zero();
        }
        plan.process_with_scratch(&mut half, &mut line, &mut scratch).ok()?;
        to.copy(row * n, &line);
    }
    Some(())
}
