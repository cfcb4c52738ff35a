//! Bessel functions of real argument, computed in f64: near 0 means over an angle or series, far out
//! Hankel's expansions.
use super::{
    super::{Row, formula::*},
    bessel::{i0e, i1e},
};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_4, PI};

const EULER: f64 = 0.577_215_664_901_532_9;

/// Rows of this family.
pub const ROWS: &[Row] = &[
    of_one!("aten.special_bessel_j0.default", |x| precisely(x, |x| j(0, x.abs()))),
    of_one!("aten.special_bessel_j1.default", |x| precisely(x, |x| sign_of(x, j(1, x.abs())))),
    of_one!("aten.special_bessel_y0.default", |x| precisely(x, |x| above(
        x,
        y(0, x),
        f64::NEG_INFINITY
    ))),
    of_one!("aten.special_bessel_y1.default", |x| precisely(x, |x| above(
        x,
        y(1, x),
        f64::NEG_INFINITY
    ))),
    of_one!("aten.special_modified_bessel_i0.default", |x| precisely(x, |x| i0e(x)
        * x.abs().exp())),
    of_one!("aten.special_modified_bessel_i1.default", |x| precisely(x, |x| i1e(x)
        * x.abs().exp())),
    of_one!("aten.special_modified_bessel_k0.default", |x| precisely(x, |x| {
        above(x, ke(0.0, x) * (-x).exp(), f64::INFINITY)
    })),
    of_one!("aten.special_modified_bessel_k1.default", |x| precisely(x, |x| {
        above(x, ke(1.0, x) * (-x).exp(), f64::INFINITY)
    })),
    of_one!("aten.special_scaled_modified_bessel_k0.default", "x", |x| precisely(x, |x| {
        above(x, ke(0.0, x), f64::INFINITY)
    })),
    of_one!("aten.special_scaled_modified_bessel_k1.default", "x", |x| precisely(x, |x| {
        above(x, ke(1.0, x), f64::INFINITY)
    })),
    of_one!("aten.special_spherical_bessel_j0.default", "x", |x| precisely(x, |x| {
        let inside = x.eq(0.0).select(1.0, x.sin() / x);
        x.abs().eq(f64::INFINITY).select(0.0, inside)
    })),
    of_one!("aten.special_airy_ai.default", "x", |x| precisely(x, airy)),
];

/// A function of positive numbers: its limit at 0, and NaN below.
fn above<'f>(x: Term<'f>, v: Term<'f>, at_zero: f64) -> Term<'f> {
    x.lt(0.0).select(f64::NAN, x.eq(0.0).select(at_zero, v))
}

/// From here on the first 24 terms of the expansions are exact to f64's rounding.
const FAR: f64 = 20.0;

/// Coefficients a_k(nu) of the expansions for large arguments (DLMF 10.17.1).
fn tail(nu: f64, terms: usize) -> Vec<f64> {
    let mut term = 1.0;
    let next = |k: usize| {
        let this = term;
        let odd = (2 * k + 1) as f64;
        term *= (4.0 * nu * nu - odd * odd) / ((k + 1) as f64 * 8.0);
        this
    };
    (0..terms).map(next).collect()
}

/// Every other coefficient from `first` on, with alternating signs.
fn alternate(all: &[f64], first: usize) -> Vec<f64> {
    let each = all.iter().skip(first).step_by(2).enumerate();
    each.map(|(i, a)| if i % 2 == 0 { *a } else { -*a }).collect()
}

/// Amplitude and the two factors of `cos` and `sin` of `x` far out (DLMF 10.17.3).
fn hankel<'f>(nu: f64, x: Term<'f>) -> [Term<'f>; 3] {
    let all = tail(nu, 24);
    let z = 1.0 / x;
    let q = z * z;
    let (even, odd) = (q.polynomial(&alternate(&all, 0)), q.polynomial(&alternate(&all, 1)));
    [(FRAC_2_PI / x).sqrt(), even, odd * z]
}

/// The sines of the middles of `2 count` equal parts of a half turn, of which the second half
/// mirrors the first.
fn middles(count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(move |i| (i as f64 + 0.5) * PI / (2 * count) as f64)
}

/// `sum weight(angle) cos(x sin angle)`, or of `sin angle sin(x sin angle)` for order 1, a mean over
/// the angle (DLMF 10.9.1, by the trapezoidal rule, which is exact to rounding here).
fn mean<'f>(order: usize, x: Term<'f>, count: usize, weight: impl Fn(f64) -> f64) -> Term<'f> {
    middles(count).fold(x * 0.0, |sum, angle| {
        let (s, w) = (angle.sin(), weight(angle) / count as f64);
        sum + if order == 0 { (x * s).cos() * w } else { (x * s).sin() * (s * w) }
    })
}

/// The phase `x - order pi / 2 - pi / 4`.
fn phase(order: usize, x: Term<'_>) -> Term<'_> {
    x - (2 * order + 1) as f64 * FRAC_PI_4
}

/// The Bessel function of the first kind of order 0 or 1, for x >= 0.
fn j(order: usize, x: Term<'_>) -> Term<'_> {
    let near = mean(order, x.min(FAR), 16, |_| 1.0);
    let [amplitude, even, odd] = hankel(order as f64, x.max(FAR));
    let angle = phase(order, x);
    x.gt(FAR).select(amplitude * (even * angle.cos() - odd * angle.sin()), near)
}

/// The Bessel function of the second kind of order 0 or 1, for x > 0: Neumann's series of Bessel
/// functions (DLMF 10.8.3 and A&S 9.1.89), summed inside of the mean.
fn y(order: usize, x: Term<'_>) -> Term<'_> {
    const TERMS: usize = 28;
    let near = x.min(FAR);
    let weight = |angle: f64| -> f64 {
        let term = |k: usize| (2.0 * k as f64 * angle).cos() / k as f64;
        (1..=TERMS).map(|k| if k % 2 == 0 { term(k) } else { -term(k) }).sum()
    };
    let series = mean(order, near, TERMS, weight) * (2.0 * FRAC_2_PI);
    let log = ((near * 0.5).ln() + EULER) * FRAC_2_PI;
    let zeroth = mean(0, near, 16, |_| 1.0);
    let near = match order {
        0 => log * zeroth - series,
        _ => log * mean(1, near, 16, |_| 1.0) - zeroth / near * FRAC_2_PI - series,
    };
    let [amplitude, even, odd] = hankel(order as f64, x.max(FAR));
    let angle = phase(order, x);
    x.gt(FAR).select(amplitude * (even * angle.sin() + odd * angle.cos()), near)
}

/// `e^x K_nu(x)` for x from 1.8 on: the integral over cosh (DLMF 10.32.9) by the trapezoidal rule,
/// and the expansion (DLMF 10.40.2).
fn ke_far(nu: f64, x: Term<'_>) -> Term<'_> {
    const STEP: f64 = 0.125;
    let near = x.min(FAR);
    let sum = (1..32).fold(near.number(0.5), |sum, i| {
        let t = f64::from(i) * STEP;
        sum + (near * (1.0 - t.cosh())).exp() * (nu * t).cosh()
    });
    let far = x.max(FAR);
    let expansion = (1.0 / far).polynomial(&tail(nu, 24)) * (PI * 0.5 / far).sqrt();
    x.gt(FAR).select(expansion, sum * STEP)
}

/// `e^x K_n(x)` of order 0 or 1 for x > 0; up to 2 the power series (DLMF 10.31.2 and its
/// derivative).
fn ke(order: f64, x: Term<'_>) -> Term<'_> {
    let near = x.min(2.0);
    let q = near * near * 0.25;
    let (mut harmonic, mut factor) = (0.0, 1.0);
    let terms: Vec<f64> = (0..16)
        .map(|k| {
            let this = harmonic * factor;
            harmonic += 1.0 / f64::from(k + 1);
            factor /= f64::from((k + 1) * (k + 1));
            this
        })
        .collect();
    let log = (near * 0.5).ln() + EULER;
    let (i0, i1) = (i0e(near) * near.exp(), i1e(near) * near.exp());
    let series = if order == 0.0 {
        q.polynomial(&terms) - log * i0
    } else {
        let slopes: Vec<f64> =
            terms.iter().enumerate().skip(1).map(|(k, t)| k as f64 * t).collect();
        i0 / near + log * i1 - q.polynomial(&slopes) * near * 0.5
    };
    x.gt(2.0).select(ke_far(order, x.max(2.0)), series * near.exp())
}

/// Airy's function: Taylor series around even numbers up to 2 (DLMF 9.2.1), a Bessel function above
/// (DLMF 9.6.2), the oscillating expansion below -11 (DLMF 9.7.9).
fn airy(x: Term<'_>) -> Term<'_> {
    // Ai and Ai' at 0, -2, .. -10.
    const CENTRES: [(f64, f64); 6] = [
        (0.355_028_053_887_817_2, -0.258_819_403_792_806_8),
        (0.227_407_428_201_685_58, 0.618_259_020_741_691),
        (-0.070_265_532_949_289_52, -0.790_628_575_368_581_4),
        (-0.329_145_173_629_823_1, 0.345_935_487_281_342_9),
        (-0.052_705_050_356_386_2, 0.935_560_938_198_306_6),
        (0.040_241_238_486_443_19, 0.996_265_044_132_79),
    ];
    let near = x.max(-11.0).min(2.0);
    let centre = ((near * 0.5).round() * 2.0).min(0.0).max(-10.0);
    let pick = |of: fn(&(f64, f64)) -> f64| {
        let all = CENTRES.iter().enumerate().skip(1);
        all.fold(near.number(of(&CENTRES[0])), |v, (i, c)| {
            centre.eq(-2.0 * i as f64).select(of(c), v)
        })
    };
    let h = near - centre;
    let (mut before, mut this, mut after) = (near * 0.0, pick(|c| c.0), pick(|c| c.1));
    let (mut sum, mut power) = (this, h);
    for k in 0..34 {
        sum = sum + after * power;
        let next = (centre * this + before) / f64::from((k + 2) * (k + 1));
        (before, this, after) = (this, after, next);
        power = power * h;
    }
    let high = x.max(2.0);
    let zeta = high * high.sqrt() * (2.0 / 3.0);
    let above = (high / 3.0).sqrt() * ke_far(1.0 / 3.0, zeta) * (-zeta).exp() / PI;
    let low = (-x).max(11.0);
    let zeta = low * low.sqrt() * (2.0 / 3.0);
    let [_, even, odd] = hankel(1.0 / 3.0, zeta);
    let angle = zeta - FRAC_PI_4;
    let below = (even * angle.cos() - odd * angle.sin()) / (low.sqrt() * PI).sqrt();
    let far = x.gt(2.0).select(above, x.lt(-11.0).select(below, sum));
    x.abs().eq(f64::INFINITY).select(f64::NAN, x.is_nan().select(x, far))
}
