//! Complex numbers in formulas.
use super::super::formula::{Formula, Term};
use super::{Cx, Outcome};
use kiln_dialects::{ir::*, value::DType};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A complex number in a formula.
#[derive(Clone, Copy)]
pub(in super::super) struct Z<'f> {
    /// Real part.
    pub re: Term<'f>,
    /// Imaginary part.
    pub im: Term<'f>,
}

impl<'f> Z<'f> {
    /// A term for two values.
    pub fn of(f: &'f Formula, (re, im): (Value, Value)) -> Z<'f> {
        Z { re: f.of(re), im: f.of(im) }
    }
    /// A constant of this number's dtype.
    pub fn number(self, re: f64, im: f64) -> Z<'f> {
        Z { re: self.re.number(re), im: self.im.number(im) }
    }
    /// The conjugate.
    pub fn conj(self) -> Z<'f> {
        Z { re: self.re, im: -self.im }
    }
    /// i times this.
    pub fn turned(self) -> Z<'f> {
        Z { re: -self.im, im: self.re }
    }
    /// Scaled by a real number.
    pub fn scaled(self, by: f64) -> Z<'f> {
        Z { re: self.re * by, im: self.im * by }
    }
    /// The magnitude, by `m sqrt(1 + (n / m)^2)`, which does not overflow; infinite if a part is.
    pub fn abs(self) -> Term<'f> {
        let (x, y) = (self.re.abs(), self.im.abs());
        let (m, n) = (x.max(y), x.min(y));
        let r = n / m;
        let found = m * (r * r + 1.0).sqrt();
        let inf = m.number(f64::INFINITY);
        let found = m.eq(0.0).select(m, found);
        (x.eq(f64::INFINITY) | y.eq(f64::INFINITY)).select(inf, found)
    }
    /// The angle, from -pi to pi.
    pub fn angle(self) -> Term<'f> {
        self.im.atan2(self.re)
    }
    /// The number of this magnitude and angle.
    pub fn polar(abs: Term<'f>, angle: Term<'f>) -> Z<'f> {
        Z { re: abs * angle.cos(), im: abs * angle.sin() }
    }
    /// Where a condition holds, this, else another.
    pub fn or(self, c: Term<'f>, other: Z<'f>) -> Z<'f> {
        Z { re: c.select(self.re, other.re), im: c.select(self.im, other.im) }
    }
    /// `e^z`; of a real number it is real, also where the magnitude is infinite.
    pub fn exp(self) -> Z<'f> {
        let m = self.re.exp();
        let real = self.im.eq(0.0);
        Z { re: real.select(m, m * self.im.cos()), im: real.select(self.im, m * self.im.sin()) }
    }
    /// The natural logarithm, its magnitude's in f64: it cancels around 1.
    pub fn ln(self) -> Z<'f> {
        let d = self.re.dtype();
        let wide = Z { re: self.re.to(DType::F64), im: self.im.to(DType::F64) };
        Z { re: wide.abs().ln().to(d), im: self.angle() }
    }
    /// The reciprocal; of 0 it is infinity and NaN, as in C++.
    pub fn recip(self) -> Z<'f> {
        let q = self.number(1.0, 0.0) / self;
        let inf = q.re.number(f64::INFINITY);
        Z { re: self.is_zero().select(inf, q.re), im: q.im }
    }
    /// The square root with a real part that is not negative.
    pub fn sqrt(self) -> Z<'f> {
        let big = ((self.abs() * 0.5) + self.re.abs() * 0.5).sqrt();
        let small = self.im.abs() / (big * 2.0);
        let zero = big.eq(0.0);
        let small = zero.select(big, small);
        let left = self.re.lt(0.0);
        let im = left.select(big, small);
        let re = left.select(small, big);
        Z { re, im: super::super::formula::sign_of(self.im, im) }
    }
    /// The hyperbolic sine.
    pub fn sinh(self) -> Z<'f> {
        Z { re: self.re.sinh() * self.im.cos(), im: self.re.cosh() * self.im.sin() }
    }
    /// The hyperbolic cosine.
    pub fn cosh(self) -> Z<'f> {
        Z { re: self.re.cosh() * self.im.cos(), im: self.re.sinh() * self.im.sin() }
    }
    /// The hyperbolic tangent: Kahan, "Branch cuts for complex elementary functions" (1987).
    pub fn tanh(self) -> Z<'f> {
        let large = if self.re.dtype() == DType::F64 { 20.0 } else { 9.0 };
        let t = self.im.sin() / self.im.cos();
        let (s, beta) = (self.re.sinh(), t * t + 1.0);
        let rho = (s * s + 1.0).sqrt();
        let d = beta * s * s + 1.0;
        let near = Z { re: beta * rho * s / d, im: t / d };
        let tail = (self.re.abs() * -2.0).exp() * 4.0 * self.im.sin() * self.im.cos();
        let one = self.re.number(1.0);
        let far = Z { re: super::super::formula::sign_of(self.re, one), im: tail };
        far.or(self.re.abs().gt(large), near)
    }
    /// Whether it equals 0.
    pub fn is_zero(self) -> Term<'f> {
        self.re.eq(0.0) & self.im.eq(0.0)
    }
    /// A power, `e^(y ln x)`; 0 to the power of 0 is 1, and to any other 0.
    pub fn pow(self, y: Z<'f>) -> Z<'f> {
        let of_zero = self.number(1.0, 0.0).or(y.is_zero(), self.number(0.0, 0.0));
        of_zero.or(self.is_zero(), (y * self.ln()).exp())
    }
}

impl<'f> Add for Z<'f> {
    type Output = Z<'f>;
    fn add(self, o: Z<'f>) -> Z<'f> {
        Z { re: self.re + o.re, im: self.im + o.im }
    }
}
impl<'f> Sub for Z<'f> {
    type Output = Z<'f>;
    fn sub(self, o: Z<'f>) -> Z<'f> {
        Z { re: self.re - o.re, im: self.im - o.im }
    }
}
impl<'f> Mul for Z<'f> {
    type Output = Z<'f>;
    fn mul(self, o: Z<'f>) -> Z<'f> {
        Z { re: self.re * o.re - self.im * o.im, im: self.re * o.im + self.im * o.re }
    }
}
impl<'f> Div for Z<'f> {
    type Output = Z<'f>;
    /// Both are scaled by the divisor's larger part, so that its square does not overflow.
    fn div(self, o: Z<'f>) -> Z<'f> {
        let s = o.re.abs().max(o.im.abs());
        let by = |z: Z<'f>| Z { re: z.re / s, im: z.im / s };
        let (x, y) = (by(self), by(o));
        let d = y.re * y.re + y.im * y.im;
        let p = x * y.conj();
        Z { re: p.re / d, im: p.im / d }
    }
}
impl<'f> Neg for Z<'f> {
    type Output = Z<'f>;
    fn neg(self) -> Z<'f> {
        Z { re: -self.re, im: -self.im }
    }
}

/// Emits a formula as the row's only result.
pub(in super::super) fn formula(
    cx: &mut Cx,
    make: impl for<'f> FnOnce(&'f Formula) -> Z<'f>,
) -> Result<Outcome> {
    let (re, im) = {
        let f = Formula::new(&cx.b);
        let z = make(&f);
        (f.end(z.re)?, f.end(z.im)?)
    };
    cx.one_complex(re, im)
}
