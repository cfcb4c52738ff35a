//! Random numbers. Draws are functions of the program's generator state, its last input
//! `rng_state`: tensor<2xi64> = (seed, offset). Draw k of a program uses the Philox stream of
//! (seed, offset + k), so that equal states give equal numbers on every target. Where draws follow
//! PyTorch's CUDA generator (`cuda_order.rs`), they move the offset as its kernels do.
use super::{
    Args, Cx, Outcome, Row, Val, cuda_draws,
    formula::{formula, value},
    lookups::count_before,
    tools::*,
};
use crate::capture::unsupported;
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row { name: "aten.rand.default", arguments: "size, dtype=None", build: uniform },
    Row { name: "aten.rand.generator", arguments: "size, dtype=None", build: uniform },
    Row { name: "aten.rand_like.default", arguments: "self, dtype=None", build: uniform },
    Row { name: "aten.uniform.default", arguments: "self, from=0, to=1", build: uniform },
    Row { name: "aten.randn.default", arguments: "size, dtype=None", build: normal },
    Row { name: "aten.randn.generator", arguments: "size, dtype=None", build: normal },
    Row { name: "aten.randn_like.default", arguments: "self, dtype=None", build: normal },
    Row {
        name: "aten.normal.float_float",
        arguments: "mean, std, size, dtype=None",
        build: scaled_normal,
    },
    Row { name: "aten.normal.Tensor_float", arguments: "mean, std=1", build: scaled_normal },
    Row { name: "aten.normal.float_Tensor", arguments: "mean, std", build: scaled_normal },
    Row { name: "aten.normal.Tensor_Tensor", arguments: "mean, std", build: scaled_normal },
    Row { name: "aten.normal.default", arguments: "self, mean=0, std=1", build: normal },
    Row { name: "aten.normal_functional.default", arguments: "self, mean=0, std=1", build: normal },
    Row { name: "aten.log_normal.default", arguments: "self, mean=1, std=2", build: log_normal },
    Row { name: "aten.exponential.default", arguments: "self, lambd=1", build: exponential },
    Row { name: "aten.cauchy.default", arguments: "self, median=0, sigma=1", build: cauchy },
    Row { name: "aten.geometric.default", arguments: "self, p", build: geometric },
    Row { name: "aten.randint.default", arguments: "high, size, dtype=None", build: randint },
    Row { name: "aten.randint.low", arguments: "low, high, size, dtype=None", build: randint },
    Row { name: "aten.randint.generator", arguments: "high, size, dtype=None", build: randint },
    Row {
        name: "aten.randint.low_generator",
        arguments: "low, high, size, dtype=None",
        build: randint,
    },
    Row { name: "aten.randint_like.default", arguments: "self, high, dtype=None", build: randint },
    Row {
        name: "aten.randint_like.low_dtype",
        arguments: "self, low, high, dtype=None",
        build: randint,
    },
    Row {
        name: "aten.random.to",
        arguments: "self, to",
        build: |cx, a| between(cx, a, DType::I64, "from", "to"),
    },
    Row { name: "aten.random.default", arguments: "self", build: random },
    Row { name: "aten.randperm.default", arguments: "n, dtype=None", build: randperm },
    Row { name: "aten.randperm.generator", arguments: "n, dtype=None", build: randperm },
    Row {
        name: "aten.bernoulli.default",
        arguments: "self",
        build: |cx, a| {
            let p = cx.tensor(a, "self")?;
            bernoulli(cx, a, p)
        },
    },
    Row { name: "aten.bernoulli.p", arguments: "self, p", build: bernoulli_of },
    Row { name: "aten.bernoulli.float", arguments: "self, p=0.5", build: bernoulli_of },
    Row { name: "aten.bernoulli.Tensor", arguments: "self, p", build: bernoulli_of },
    Row {
        name: "aten.multinomial.default",
        arguments: "self, num_samples, replacement=False",
        build: multinomial,
    },
];

impl Cx {
    /// The key of the next draw. Err: a graph that takes no generator state.
    pub(super) fn random_key(&mut self) -> Result<Value> {
        let Some(rng) = &mut self.rng else {
            return Err(unsupported("draws random numbers, for which there is no generator here"));
        };
        let (state, draw) = rng.next()?;
        self.state_after(state, draw)
    }
    /// A state behind a number of draws.
    pub fn state_after(&self, state: Value, draws: i64) -> Result<Value> {
        if draws == 0 {
            return Ok(state);
        }
        let step = self.iota(DType::I64, Size::all(&[2]), 0)?;
        let step = self.binary(BinaryKind::Mul, step, self.integer(DType::I64, draws)?)?;
        self.binary(BinaryKind::Add, state, step)
    }
    /// Uniform numbers in [low, high).
    pub(super) fn random_uniform(
        &mut self,
        dtype: DType,
        sizes: Vec<Size>,
        (low, high): (f64, f64),
    ) -> Result<Value> {
        let key = self.random_key()?;
        let dtype = Type::scalar(self.b.ctx, dtype);
        self.b.add(&RandomUniform { key, sizes, dtype, low, high })
    }
    /// Normal numbers.
    pub(super) fn random_normal(
        &mut self,
        dtype: DType,
        sizes: Vec<Size>,
        (mean, std): (f64, f64),
    ) -> Result<Value> {
        let key = self.random_key()?;
        let dtype = Type::scalar(self.b.ctx, dtype);
        self.b.add(&RandomNormal { key, sizes, dtype, mean, std })
    }
    /// Uniform numbers in [low, high), in the order of the program's draws.
    fn uniform(&mut self, d: DType, sizes: Vec<Size>, bounds: (f64, f64)) -> Result<Value> {
        match self.follows_cuda() {
            true => cuda_draws::uniform(self, d, &sizes, bounds),
            false => self.random_uniform(d, sizes, bounds),
        }
    }
    /// Normal numbers, in the order of the program's draws.
    fn normal(&mut self, d: DType, sizes: Vec<Size>, moments: (f64, f64)) -> Result<Value> {
        match self.follows_cuda() {
            true => cuda_draws::normal(self, d, &sizes, moments),
            false => self.random_normal(d, sizes, moments),
        }
    }
    /// Uniform integers of 0 to 2^63 - 1, of i64.
    fn random_integers(&mut self, sizes: Vec<Size>) -> Result<Value> {
        let key = self.random_key()?;
        let dtype = Type::scalar(self.b.ctx, DType::I64);
        let bits = self.b.add(&RandomBits { key, sizes, dtype })?;
        self.binary(BinaryKind::And, bits, self.integer(DType::I64, i64::MAX)?)
    }
}

/// Shape and dtype of the result: those of `self` unless the node states them.
fn target(cx: &mut Cx, a: &Args<'_>, default: DType) -> Result<(Vec<Size>, DType)> {
    if a.has("self") {
        let x = cx.tensor(a, "self")?;
        return Ok((cx.b.sizes_of(x)?, a.dtype("dtype")?.unwrap_or(dtype_of(x)?)));
    }
    Ok((a.sizes("size")?, a.dtype("dtype")?.unwrap_or(default)))
}

fn wants_float(op: &str, d: DType) -> Result<()> {
    if d.is_float() {
        return Ok(());
    }
    Err(format!("\"{op}\" not implemented for '{d}'").into())
}

/// As [`target`]. Err: the dtype is no float.
fn float_target(cx: &mut Cx, a: &Args<'_>, op: &str) -> Result<(Vec<Size>, DType)> {
    let (sizes, d) = target(cx, a, DType::F32)?;
    wants_float(op, d).map(|()| (sizes, d))
}

fn uniform(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (sizes, d) = float_target(cx, a, "check_uniform_bounds")?;
    let (from, to) = (a.float("from", Some(0.0))?, a.float("to", Some(1.0))?);
    if from > to {
        return Err(format!(
            "uniform_ expects to return a [from, to) range, but found from={from} > to={to}"
        )
        .into());
    }
    let v = cx.uniform(d, sizes, (from, to))?;
    cx.one(v)
}

fn checked_std(std: f64) -> Result<f64> {
    if std >= 0.0 {
        return Ok(std);
    }
    Err(format!("normal expects std >= 0.0, but found std {std}").into())
}

/// `mean + std * z`, where either may be a tensor.
fn scaled_normal(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let mut shapes = vec![];
    for name in ["mean", "std"] {
        if matches!(a.values.get(name), Some(Val::Tensor(_))) {
            shapes.push(cx.tensor(a, name)?);
        }
    }
    let (sizes, d) = match shapes.first() {
        Some(first) => (cx.common(&shapes)?, dtype_of(*first)?),
        None => target(cx, a, DType::F32)?,
    };
    wants_float("normal", d)?;
    if !matches!(a.values.get("std"), Some(Val::Tensor(_))) {
        checked_std(a.float("std", Some(1.0))?)?;
    }
    let tensor = |name: &str| matches!(a.values.get(name), Some(Val::Tensor(_)));
    // PyTorch's CUDA kernel scales by a number itself, before it rounds.
    if cx.follows_cuda() && !tensor("std") {
        let std = a.float("std", Some(1.0))?;
        if !tensor("mean") {
            let v = cx.normal(d, sizes, (a.float("mean", Some(0.0))?, std))?;
            return cx.one(v);
        }
        let (z, mean) = (cx.normal(d, sizes, (0.0, std))?, cx.tensor(a, "mean")?);
        let v = cx.binary(BinaryKind::Add, z, mean)?;
        return cx.one(v);
    }
    let z = cx.normal(d, sizes, (0.0, 1.0))?;
    let std = if a.has("std") { cx.operand(a, "std", d)? } else { cx.number(d, 1.0)? };
    let mean = cx.operand(a, "mean", d)?;
    let v = cx.binary(BinaryKind::Mul, z, std)?;
    let v = cx.binary(BinaryKind::Add, v, mean)?;
    cx.one(v)
}

fn normal(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (sizes, d) = float_target(cx, a, "normal_kernel_cpu")?;
    let (mean, std) = (a.float("mean", Some(0.0))?, checked_std(a.float("std", Some(1.0))?)?);
    let v = cx.normal(d, sizes, (mean, std))?;
    cx.one(v)
}

fn log_normal(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (sizes, d) = float_target(cx, a, "log_normal")?;
    let (mean, std) = (a.float("mean", Some(1.0))?, a.float("std", Some(2.0))?);
    if std <= 0.0 {
        return Err(format!("log_normal_ expects std > 0.0, but found std={std}").into());
    }
    if cx.follows_cuda() {
        let v = cuda_draws::log_normal(cx, d, &sizes, (mean, std))?;
        return cx.one(v);
    }
    let z = cx.random_normal(statistics_dtype(d), sizes, (mean, std))?;
    formula(cx, |f| f.of(z).exp().to(d))
}

/// By inversion: `-ln(1 - u) / lambda`.
fn exponential(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (sizes, d) = float_target(cx, a, "exponential")?;
    let rate = a.float("lambd", Some(1.0))?;
    if rate <= 0.0 {
        return Err(format!("exponential_ expects lambda > 0.0, but found lambda={rate}").into());
    }
    if cx.follows_cuda() {
        let v = cuda_draws::exponential(cx, d, &sizes, rate)?;
        return cx.one(v);
    }
    let u = cx.random_uniform(statistics_dtype(d), sizes, (0.0, 1.0))?;
    formula(cx, |f| ((-f.of(u)).ln_1p() * (-1.0 / rate)).to(d))
}

/// By inversion: `median + sigma * tan(pi * (u - 1/2))`.
fn cauchy(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (sizes, d) = float_target(cx, a, "cauchy")?;
    let (median, sigma) = (a.float("median", Some(0.0))?, a.float("sigma", Some(1.0))?);
    if sigma <= 0.0 {
        return Err(format!("cauchy_ expects sigma > 0.0, but found sigma={sigma}").into());
    }
    if cx.follows_cuda() {
        let v = cuda_draws::cauchy(cx, d, &sizes, (median, sigma))?;
        return cx.one(v);
    }
    let u = cx.random_uniform(statistics_dtype(d), sizes, (0.0, 1.0))?;
    formula(cx, |f| {
        let turn = (f.of(u) - 0.5) * std::f64::consts::PI;
        (turn.sin() / turn.cos() * sigma + median).to(d)
    })
}

/// Number of trials to the first success, by inversion: `ceil(ln(1 - u) / ln(1 - p))`, at least 1.
fn geometric(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (sizes, d) = target(cx, a, DType::F32)?;
    let p = a.float("p", None)?;
    if !(p > 0.0 && p < 1.0) {
        return Err(format!("geometric_ expects p to be in (0, 1), but got p={p}").into());
    }
    if cx.follows_cuda() {
        let v = cuda_draws::geometric(cx, d, &sizes, p)?;
        return cx.one(v);
    }
    let u = cx.random_uniform(statistics_dtype(d), sizes, (0.0, 1.0))?;
    let rate = 1.0 / (-p).ln_1p();
    formula(cx, |f| ((-f.of(u)).ln_1p() * rate).ceil().max(1.0).to(d))
}

/// Integers of low to high - 1: 63 bits modulo the range, whose bias is at most range / 2^63.
fn integers(
    cx: &mut Cx,
    sizes: Vec<Size>,
    d: DType,
    low: Option<Value>,
    high: Value,
) -> Result<Outcome> {
    let bits = cx.random_integers(sizes)?;
    let range = match low {
        Some(low) => cx.binary(BinaryKind::Sub, high, low)?,
        None => high,
    };
    let v = cx.binary(BinaryKind::Rem, bits, range)?;
    let v = match low {
        Some(low) => cx.binary(BinaryKind::Add, v, low)?,
        None => v,
    };
    let v = cx.convert(v, d)?;
    cx.one(v)
}

/// [`integers`] between two arguments, of which the lower may be missing. Err: both bounds are known
/// and the range is empty.
fn between(cx: &mut Cx, a: &Args<'_>, default: DType, low: &str, high: &str) -> Result<Outcome> {
    let (sizes, d) = target(cx, a, default)?;
    let known = |name: &str| match a.values.get(name) {
        Some(Val::Int(Size::Static(n))) => Some(*n),
        _ => None,
    };
    let from = if a.has(low) { known(low) } else { Some(0) };
    if let Some((from, to)) = from.zip(known(high)).filter(|(from, to)| from >= to) {
        return Err(format!(
            "random_ expects 'from' to be less than 'to', but got from={from} >= to={to}"
        )
        .into());
    }
    if cx.follows_cuda() {
        let bounds = from.zip(known(high));
        let (from, to) =
            bounds.ok_or_else(|| unsupported("draws integers between symbolic bounds"))?;
        let v = cuda_draws::integers(cx, d, &sizes, from, to)?;
        return cx.one(v);
    }
    let low = if a.has(low) { Some(cx.operand(a, low, DType::I64)?) } else { None };
    let high = cx.operand(a, high, DType::I64)?;
    integers(cx, sizes, d, low, high)
}

fn randint(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    between(cx, a, DType::I64, "low", "high")
}

/// Without bounds: 0 to the greatest integer of the dtype, of floats to 2^(bits of its mantissa).
fn random(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let (sizes, d) = target(cx, a, DType::I64)?;
    if cx.follows_cuda() {
        let v = cuda_draws::random(cx, d, &sizes)?;
        return cx.one(v);
    }
    let bits: u32 = match d {
        DType::I1 => 1,
        DType::UI8 => 8,
        DType::I64 => return cx.random_integers(sizes).and_then(|v| cx.one(v)),
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 => 11,
        DType::BF16 => 8,
        other if other.is_float() => return Err(unsupported(format!("random_ of {other}"))),
        other => other.bits() - 1,
    };
    // Floats include 2^bits itself.
    let count = (1i64 << bits) + i64::from(d.is_float());
    let high = cx.integer(DType::I64, count)?;
    integers(cx, sizes, d, None, high)
}

/// The order that sorts 63 random bits an element.
fn randperm(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let d = a.dtype("dtype")?.unwrap_or(DType::I64);
    let bits = cx.random_integers(vec![a.size("n")?])?;
    let (_, order) = cx.sorted(bits, 0)?;
    let v = cx.convert(order, d)?;
    cx.one(v)
}

fn checked_probability(op: &str, p: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&p) {
        return Ok(p);
    }
    Err(format!("{op} expects p to be in [0, 1], but got p={p}").into())
}

/// With the probability `p`, a number or a tensor.
fn bernoulli_of(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    if let Some(Val::Tensor(_)) = a.values.get("p") {
        let p = cx.tensor(a, "p")?;
        return bernoulli(cx, a, p);
    }
    let p = checked_probability("bernoulli_", a.float("p", Some(0.5))?)?;
    if cx.follows_cuda() {
        let (sizes, d) = target(cx, a, DType::F32)?;
        let hit = cuda_draws::bernoulli(cx, d, &sizes, p)?;
        let v = cx.convert(hit, d)?;
        return cx.one(v);
    }
    let p = cx.number(DType::F32, p)?;
    bernoulli(cx, a, p)
}

/// 1 where `u < p`, else 0.
fn bernoulli(cx: &mut Cx, a: &Args<'_>, p: Value) -> Result<Outcome> {
    let (sizes, d) = target(cx, a, DType::F32)?;
    if cx.follows_cuda() {
        let hit = cuda_draws::bernoulli_of(cx, d, &sizes, p)?;
        let v = cx.convert(hit, d)?;
        return cx.one(v);
    }
    let c = statistics_dtype(dtype_of(p)?);
    let p = cx.convert(p, c)?;
    let u = cx.random_uniform(c, sizes, (0.0, 1.0))?;
    let hit = cx.compare(CompareKind::Lt, u, p)?;
    let v = cx.convert(hit, d)?;
    cx.one(v)
}

/// With replacement: the number of partial sums at most u times the total. Without: the indices of
/// the greatest `p / e`, e exponential (Efraimidis and Spirakis, Weighted Random Sampling, 2006).
fn multinomial(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    let (d, rank) = (dtype_of(x)?, rank_of(x));
    if !d.is_float() {
        return Err(format!("multinomial only supports floating-point dtypes, got {d}").into());
    }
    if !(1..=2).contains(&rank) {
        return Err("prob_dist must be 1 or 2 dim".into());
    }
    let count = a.int("num_samples", None)?;
    if count <= 0 {
        return Err("cannot sample n_sample <= 0 samples".into());
    }
    let (sizes, last) = (cx.b.sizes_of(x)?, rank - 1);
    let classes = cx.b.size_of(x, last)?;
    let replacement = a.flag("replacement", false)?;
    if !replacement && classes.known().is_some_and(|n| n < count) {
        let why = "cannot sample n_sample > prob_dist.size(-1) samples without replacement";
        return Err(why.into());
    }
    let c = statistics_dtype(d);
    let p = cx.convert(x, c)?;
    if !replacement || count == 1 {
        if cx.follows_cuda() {
            let e = cuda_draws::exponential(cx, d, &sizes, 1.0)?;
            let score = cx.binary(BinaryKind::Div, x, e)?;
            let v = greatest(cx, score, last, count)?;
            return cx.one(v);
        }
        let u = cx.random_uniform(c, sizes.clone(), (0.0, 1.0))?;
        // 1 - u is in (0, 1], and its logarithm may be 0.
        let least = f64::from(f32::MIN_POSITIVE);
        let score = value(cx, |f| f.of(p) / (-(-f.of(u)).ln_1p()).max(least))?;
        let v = greatest(cx, score, last, count)?;
        return cx.one(v);
    }
    let drawn = [&sizes[..last], &[Size::Static(count)]].concat();
    let u = cx.random_uniform(c, drawn.clone(), (0.0, 1.0))?;
    let sums = cx.scanned(CumulativeKind::Sum, p, last)?;
    let total = cx.reduced(ReduceKind::Sum, p, &[last as i64])?;
    let total = cx.spread(total, &(0..last as i64).collect::<Vec<_>>(), &drawn)?;
    let n = count_before(cx, sums, cx.binary(BinaryKind::Mul, u, total)?, true)?;
    // Rounding may put u times the total behind the last sum.
    let top = cx.b.size_as_tensor(cx.size_add(classes, Size::Static(-1))?, DType::I64)?;
    let v = cx.binary(BinaryKind::Min, n, top)?;
    cx.one(v)
}

/// The positions of the greatest elements along a dimension, the greatest first.
fn greatest(cx: &Cx, input: Value, axis: usize, count: i64) -> Result<Value> {
    let sort = Sort { input, axis: axis as i64, descending: true };
    let order = cx.b.create_node(&sort)?.result(1);
    cx.part(order, axis, Size::Static(0), Size::Static(count))
}
