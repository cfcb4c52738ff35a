//! Fourier transforms along the last axis, by rustfft and realfft.
use super::{
    abi::{Call, Operand, Out},
    dtype_code::DtypeCode,
    element::Element,
};
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftNum, FftPlanner, num_complex::Complex};
use std::{
    ops::Range,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

/// Complex numbers that are transformed by one call of the library: rows that are short share one.
const CHUNK: usize = 2048;

/// `kiln.fft`: real and imaginary part, as far as there are such; those of the result. Attributes:
/// kind (0 complex to complex, 1 real to half a spectrum, 2 back), length, inverse. Plans are made
/// once a length and process.
pub fn fft(call: &Call) -> Option<()> {
    match call.tensors.first()?.code {
        DtypeCode::F32 => run::<f32>(call),
        DtypeCode::F64 => run::<f64>(call),
        _ => None,
    }
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

fn run<E: Planned>(call: &Call) -> Option<()> {
    let &[kind, length, inverse] = &call.attributes[..] else { return None };
    let (n, inverse) = (usize::try_from(length).ok().filter(|n| *n > 0)?, inverse != 0);
    let half = n / 2 + 1;
    let (re, others) = call.tensors.split_first()?;
    let outer: usize = re.shape.split_last()?.1.iter().product();
    let rows = call.share(outer);
    // An unused output has no shape.
    let fits = |t: &Operand, last: usize| !t.used() || t.len() == outer * last;
    match (kind, others) {
        (0, [im, to_re, to_im]) if [re, im, to_re, to_im].iter().all(|t| fits(t, n)) => {
            let from = (re.read::<E>()?, im.read::<E>()?);
            let plan = plan::<E, _>(|p| match inverse {
                true => p.complex.plan_fft_inverse(n),
                false => p.complex.plan_fft_forward(n),
            });
            complex(&*plan, from, (to_re.write::<E>()?, to_im.write::<E>()?), rows)
        }
        (1, [to_re, to_im]) if fits(re, n) && fits(to_re, half) && fits(to_im, half) => {
            let plan: Arc<dyn RealToComplex<E>> = plan::<E, _>(|p| p.real.plan_fft_forward(n));
            let to = (to_re.write::<E>()?, to_im.write::<E>()?);
            real_to_half(&*plan, re.read::<E>()?, to, rows, inverse)
        }
        (2, [im, to]) if fits(re, half) && fits(im, half) && fits(to, n) => {
            let plan: Arc<dyn ComplexToReal<E>> = plan::<E, _>(|p| p.real.plan_fft_inverse(n));
            let from = (re.read::<E>()?, im.read::<E>()?);
            half_to_real(&*plan, from, &to.write::<E>()?, rows, inverse)
        }
        _ => None,
    }
}

/// Interleaves parts of complex numbers.
fn interleave<E: Planned>(to: &mut [Complex<E>], re: &[E], im: &[E]) {
    to.iter_mut().zip(re.iter().zip(im)).for_each(|(z, (re, im))| *z = Complex::new(*re, *im));
}

fn complex<E: Planned>(
    plan: &dyn Fft<E>,
    (re, im): (&[E], &[E]),
    (to_re, to_im): (Out<'_, E>, Out<'_, E>),
    rows: Range<usize>,
) -> Option<()> {
    let n = plan.len();
    let together = (CHUNK / n).max(1);
    let mut line = vec![Complex::new(E::zero(), E::zero()); together.min(rows.len()) * n];
    let mut scratch = vec![Complex::new(E::zero(), E::zero()); plan.get_inplace_scratch_len()];
    for first in rows.clone().step_by(together) {
        let from = first * n..(first + together).min(rows.end) * n;
        let line = line.get_mut(..from.len())?;
        interleave(line, re.get(from.clone())?, im.get(from.clone())?);
        plan.process_with_scratch(line, &mut scratch);
        to_re.write(from.start, line, |z| z.re);
        to_im.write(from.start, line, |z| z.im);
    }
    Some(())
}

fn real_to_half<E: Planned>(
    plan: &dyn RealToComplex<E>,
    x: &[E],
    (to_re, to_im): (Out<'_, E>, Out<'_, E>),
    rows: Range<usize>,
    inverse: bool,
) -> Option<()> {
    let (mut line, mut half) = (plan.make_input_vec(), plan.make_output_vec());
    let mut scratch = plan.make_scratch_vec();
    for row in rows {
        let (n, count) = (line.len(), half.len());
        line.copy_from_slice(x.get(row * n..(row + 1) * n)?);
        plan.process_with_scratch(&mut line, &mut half, &mut scratch).ok()?;
        to_re.write(row * count, &half, |z| z.re);
        // Of real numbers, the inverse transform is the conjugate.
        to_im.write(row * count, &half, |z| if inverse { -z.im } else { z.im });
    }
    Some(())
}

fn half_to_real<E: Planned>(
    plan: &dyn ComplexToReal<E>,
    (re, im): (&[E], &[E]),
    to: &Out<'_, E>,
    rows: Range<usize>,
    inverse: bool,
) -> Option<()> {
    let (mut half, mut line) = (plan.make_input_vec(), plan.make_output_vec());
    let mut scratch = plan.make_scratch_vec();
    for row in rows {
        let (n, count) = (line.len(), half.len());
        let from = row * count..(row + 1) * count;
        interleave(&mut half, re.get(from.clone())?, im.get(from)?);
        if !inverse {
            half.iter_mut().for_each(|z| z.im = -z.im);
        }
        // What is its own conjugate is real.
        half.first_mut()?.im = E::zero();
        if n % 2 == 0 {
            half.last_mut()?.im = E::zero();
        }
        plan.process_with_scratch(&mut half, &mut line, &mut scratch).ok()?;
        to.copy(row * n, &line);
    }
    Some(())
}
