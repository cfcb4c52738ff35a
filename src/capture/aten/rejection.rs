//! Random numbers of distributions that are sampled by rejection: gamma, Poisson, binomial.
//!
//! Every element has a fixed number of trials, of which the first accepted counts, so that samplers
//! are elementwise on all targets, and draws do not depend on each other. That none is accepted has
//! a probability below 1e-13; the first trial counts then. All of it is f64.
use super::{
    Args, Cx, Outcome, Row,
    class_losses::pick,
    formula::{Formula, Term, value},
    special::gamma::lgamma,
    tools::*,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row { name: "aten.poisson.default", arguments: "self", build: poisson },
    Row { name: "aten.binomial.default", arguments: "count, prob", build: binomial },
    Row {
        name: "aten._standard_gamma.default",
        arguments: "self",
        build: |cx, a| {
            let alpha = floats(cx, a, "self", "sample_gamma")?;
            let v = gamma(cx, alpha)?;
            cx.one(v)
        },
    },
    Row { name: "aten._sample_dirichlet.default", arguments: "self", build: dirichlet },
];

/// Trials of a sampler that accepts at least 70 % of them.
const TRIALS: i64 = 24;
/// Where sampling by inversion ends, as the mean of the distribution.
const LARGE: f64 = 10.0;
/// Values that inversion tells apart: a Poisson variate of mean 10 exceeds them with probability
/// 1e-29.
const VALUES: i64 = 64;

fn floats(cx: &mut Cx, a: &Args<'_>, name: &str, op: &str) -> Result<Value> {
    let x = cx.tensor(a, name)?;
    let d = dtype_of(x)?;
    if d.is_float() { Ok(x) } else { Err(format!("\"{op}\" not implemented for '{d}'").into()) }
}

/// A first dimension of trials, or of values.
struct Stacked {
    sizes: Vec<Size>,
}

impl Stacked {
    fn new(cx: &Cx, like: Value, count: i64) -> Result<Stacked> {
        Ok(Stacked { sizes: [vec![Size::Static(count)], cx.b.sizes_of(like)?].concat() })
    }
    /// The same value in each.
    fn all(&self, cx: &Cx, x: Value) -> Result<Value> {
        let x = cx.convert(x, DType::F64)?;
        cx.spread(x, &(1..self.sizes.len() as i64).collect::<Vec<_>>(), &self.sizes)
    }
    /// Its index in the dimension.
    fn index(&self, cx: &Cx) -> Result<Value> {
        cx.convert(cx.iota(DType::I64, self.sizes.clone(), 0)?, DType::F64)
    }
    fn uniform(&self, cx: &mut Cx) -> Result<Value> {
        cx.random_uniform(DType::F64, self.sizes.clone(), (0.0, 1.0))
    }
}

/// The first accepted candidate.
fn first(cx: &Cx, candidates: Value, accepted: Value) -> Result<Value> {
    let hits = cx.convert(accepted, DType::I32)?;
    let at = cx.b.add(&ArgMax { input: hits, axis: 0 })?;
    pick(cx, candidates, 0, at)
}

/// How many probabilities in front of it a uniform number exceeds: the variate, by inversion.
fn inverted(cx: &mut Cx, like: Value, of: &Stacked, probabilities: Value) -> Result<Value> {
    let sums = cx.scanned(CumulativeKind::Sum, probabilities, 0)?;
    let sizes = cx.b.sizes_of(like)?;
    let u = cx.random_uniform(DType::F64, sizes, (0.0, 1.0))?;
    let u = of.all(cx, u)?;
    let below = cx.compare(CompareKind::Ge, u, sums)?;
    let below = cx.convert(below, DType::F64)?;
    cx.reduced(ReduceKind::Sum, below, &[0])
}

/// Marsaglia and Tsang, A Simple Method for Generating Gamma Variables, 2000. Shapes below 1 are
/// those above, times `u^(1/alpha)`. At least 95 % of trials are accepted.
fn gamma(cx: &mut Cx, alpha: Value) -> Result<Value> {
    let (d, sizes) = (dtype_of(alpha)?, cx.b.sizes_of(alpha)?);
    let trials = Stacked::new(cx, alpha, TRIALS / 2)?;
    let boosted = value(cx, |f| {
        let a = f.of(alpha).to(DType::F64);
        a.lt(1.0).select(a + 1.0, a) - 1.0 / 3.0
    })?;
    let x = cx.random_normal(DType::F64, trials.sizes.clone(), (0.0, 1.0))?;
    let (u, wide) = (trials.uniform(cx)?, trials.all(cx, boosted)?);
    let cube = value(cx, |f| {
        let root = f.of(x) / (f.of(wide) * 9.0).sqrt() + 1.0;
        root * root * root
    })?;
    let accepted = value(cx, |f| {
        let (x, v, d) = (f.of(x), f.of(cube), f.of(wide));
        let safe = v.max(f64::MIN_POSITIVE);
        let bound = x * x * 0.5 + d - d * v + d * safe.ln();
        // 1 - u is not 0.
        v.gt(0.0).select((-f.of(u)).ln_1p(), v.number(f64::INFINITY)).lt(bound)
    })?;
    let v = first(cx, cube, accepted)?;
    let boost = cx.random_uniform(DType::F64, sizes, (0.0, 1.0))?;
    value(cx, |f| {
        let (a, made) = (f.of(alpha).to(DType::F64), f.of(boosted) * f.of(v));
        let less = made * ((-f.of(boost)).ln_1p() / a).exp();
        let made = a.lt(1.0).select(less, made);
        // PyTorch's least result is the least normal number of the dtype.
        let least = if d == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
        a.eq(0.0).select(a, made.max(least)).to(d)
    })
}

fn dirichlet(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let alpha = floats(cx, a, "self", "dirichlet")?;
    let d = dtype_of(alpha)?;
    let wide = cx.convert(alpha, DType::F64)?;
    let v = gamma(cx, wide)?;
    let last = rank_of(v) as i64 - 1;
    let v = value(cx, |f| {
        let v = f.of(v);
        (v / v.reduce(ReduceKind::Sum, &[last], true)).to(d)
    })?;
    cx.one(v)
}

/// The constants a and b of PTRS.
fn ptrs(rate: Term<'_>) -> (Term<'_>, Term<'_>) {
    let b = rate.sqrt() * 2.53 + 0.931;
    (b * 0.024_83 - 0.059, b)
}

/// Hörmann's transformed rejection (The Transformed Rejection Method for Generating Poisson Random
/// Variables, 1993, PTRS) for rates from 10 on, which accepts at least 75 %, else inversion.
fn poisson(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let rate = floats(cx, a, "self", "poisson_cpu")?;
    let d = dtype_of(rate)?;
    let trials = Stacked::new(cx, rate, TRIALS)?;
    let (u, v, wide) = (trials.uniform(cx)?, trials.uniform(cx)?, trials.all(cx, rate)?);
    let count = value(cx, |f| {
        let rate = f.of(wide).max(LARGE);
        let ((a, b), u) = (ptrs(rate), f.of(u) - 0.5);
        ((a * 2.0 / (-u.abs() + 0.5) + b) * u + rate + 0.43).floor()
    })?;
    let accepted = value(cx, |f| {
        let (rate, k, v) = (f.of(wide).max(LARGE), f.of(count), f.of(v));
        let ((a, b), side) = (ptrs(rate), -(f.of(u) - 0.5).abs() + 0.5);
        let inverse = (b - 3.4).number(1.1328) / (b - 3.4) + 1.1239;
        let safe = k.max(0.0);
        let left = v.ln() + inverse.ln() - (a / (side * side) + b).ln();
        let exact = left.le(-rate + safe * rate.ln() - lgamma(safe + 1.0));
        k.ge(0.0).select(exact, k.ne(k))
    })?;
    let large = first(cx, count, accepted)?;
    let values = Stacked::new(cx, rate, VALUES)?;
    let (k, wide) = (values.index(cx)?, values.all(cx, rate)?);
    let p = value(cx, |f| {
        let (k, rate) = (f.of(k), f.of(wide).min(LARGE));
        // 0 ln 0 is 0.
        let power = k.eq(0.0).select(k, k * rate.ln());
        (power - rate - lgamma(k + 1.0)).exp()
    })?;
    let small = inverted(cx, rate, &values, p)?;
    let v =
        value(cx, |f| f.of(rate).to(DType::F64).ge(LARGE).select(f.of(large), f.of(small)).to(d))?;
    cx.one(v)
}

/// Hörmann's transformed rejection (The Generation of Binomial Random Variates, 1993, BTRS) for means
/// from 10 on, else inversion; of the rarer outcome.
fn binomial(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (count, p) = (floats(cx, a, "count", "binomial_cpu")?, cx.tensor(a, "prob")?);
    let d = dtype_of(count)?;
    if dtype_of(p)? != d {
        return Err("expected tensors of one dtype".into());
    }
    let sizes = cx.common(&[count, p])?;
    let (count, p) = (cx.broadcast_to(count, &sizes)?, cx.broadcast_to(p, &sizes)?);
    let n = value(cx, |f| f.of(count).to(DType::F64).max(0.0))?;
    let rare = value(cx, |f| {
        let p = f.of(p).to(DType::F64);
        p.gt(0.5).select(-p + 1.0, p).max(0.0)
    })?;
    let trials = Stacked::new(cx, n, TRIALS)?;
    let (u, v) = (trials.uniform(cx)?, trials.uniform(cx)?);
    let (many, odds) = (trials.all(cx, n)?, trials.all(cx, rare)?);
    let k = value(cx, |f| {
        let (t, u) = (Btrs::of(f, many, odds), f.of(u) - 0.5);
        ((t.a * 2.0 / (-u.abs() + 0.5) + t.b) * u + t.n * t.p + 0.5).floor()
    })?;
    let accepted = value(cx, |f| {
        let (t, k, v) = (Btrs::of(f, many, odds), f.of(k), f.of(v));
        let side = -(f.of(u) - 0.5).abs() + 0.5;
        let inside = k.ge(0.0).select(k.le(t.n), k.ne(k));
        let safe = k.max(0.0).min(t.n);
        let mode = ((t.n + 1.0) * t.p).floor();
        let ratio =
            choices(t.n, safe) - choices(t.n, mode) + (safe - mode) * (t.p / (-t.p + 1.0)).ln();
        let alpha = (t.b.number(5.1) / t.b + 2.83) * t.deviation;
        let exact = (v * alpha / (t.a / (side * side) + t.b)).ln().le(ratio);
        inside.select(exact, k.ne(k))
    })?;
    let large = first(cx, k, accepted)?;
    let values = Stacked::new(cx, n, VALUES)?;
    let (k, many, odds) = (values.index(cx)?, values.all(cx, n)?, values.all(cx, rare)?);
    let probabilities = value(cx, |f| {
        let (k, n, p) = (f.of(k), f.of(many), f.of(odds));
        let safe = k.min(n);
        let all = lgamma(n + 1.0) + choices(n, safe);
        let power = k.eq(0.0).select(k, k * p.ln());
        k.le(n).select((all + power + (n - safe) * (-p).ln_1p()).exp(), k.number(0.0))
    })?;
    let small = inverted(cx, n, &values, probabilities)?;
    let v = value(cx, |f| {
        let (n, p) = (f.of(n), f.of(p).to(DType::F64));
        let made = (n * f.of(rare)).ge(LARGE).select(f.of(large), f.of(small).min(n));
        p.gt(0.5).select(n - made, made).to(d)
    })?;
    cx.one(v)
}

/// The logarithm of a binomial coefficient, but for n!.
fn choices<'f>(n: Term<'f>, k: Term<'f>) -> Term<'f> {
    -lgamma(k + 1.0) - lgamma(n - k + 1.0)
}

/// Constants of BTRS; of another distribution where the mean is below 10, so that all is finite.
struct Btrs<'f> {
    n: Term<'f>,
    p: Term<'f>,
    a: Term<'f>,
    b: Term<'f>,
    deviation: Term<'f>,
}

impl<'f> Btrs<'f> {
    fn of(f: &'f Formula, n: Value, p: Value) -> Btrs<'f> {
        let (n, p) = (f.of(n), f.of(p));
        let large = (n * p).ge(LARGE);
        let (n, p) = (large.select(n, n.number(40.0)), large.select(p, p.number(0.25)));
        let deviation = (n * p * (-p + 1.0)).sqrt();
        let b = deviation * 2.53 + 1.15;
        Btrs { n, p, a: b * 0.0248 + p * 0.01 - 0.0873, b, deviation }
    }
}
