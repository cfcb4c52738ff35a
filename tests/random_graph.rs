//! Random graphs over all prims and dtypes, with static and symbolic sizes: what every pass and every form of the IR must preserve.
use crate::{
    ops::{Symbolic, round_trips},
    passes::same_results,
    support::{Random, functions, inputs, run},
};
use kiln::{
    dialects::{
        interp::Mode,
        ir::*,
        ops::*,
        rules::{Level, Sizes},
        sym::Dim as Extent,
        value::DType,
    },
    lowering::{RunOptions, run_pipeline},
    passes::Numerics,
};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use std::collections::BTreeSet;

/// The numbers that a graph is made of: proptest makes them smaller and fewer until a failure is minimal.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub symbolic: bool,
    /// Picks the sizes.
    pub sizes: u16,
    steps: Vec<(u16, u64)>,
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let steps = proptest::collection::vec((proptest::num::u16::ANY, proptest::num::u64::ANY), 4..24);
    (proptest::bool::ANY, proptest::num::u16::ANY, steps).prop_map(|(symbolic, sizes, steps)| Recipe { symbolic, sizes, steps })
}

/// What graphs are made of.
pub struct Material {
    /// Kinds of steps.
    pub steps: &'static str,
    /// Dtypes of values.
    pub dtypes: &'static [DType],
    /// Sizes of arguments: a recipe takes three in a row.
    pub sizes: &'static [i64],
    /// Leaves out what makes a small difference a large one: comparing, rounding and ordering only what is exact.
    pub continuous: bool,
}

const EVERYTHING: Material = Material { steps: STEPS, dtypes: &DType::ALL, sizes: &[4, 3, 5], continuous: false };

/// A function `@f` that computes every value of the recipe and returns those that nothing uses.
struct Graph {
    b: Builder,
    values: Vec<Value>,
    random: Random,
    material: &'static Material,
    /// Whether a step takes exact values only.
    exact: bool,
}

/// Kinds of steps; each makes one or more ops.
const STEPS: &str = "unary unary unary unary binary binary compare select clamp convert bitcast splat iota constant broadcast reshape \
    transpose slice pad concat reverse gather scatter dynamic_slice dynamic_update_slice reduce arg cumulative sort dot window random \
    convolution if scan";

type Made = Result<Vec<Value>, String>;

impl Graph {
    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len())]
    }
    /// A value that `fits`, else one made of a number.
    fn value(&mut self, fits: impl Fn(&[Extent], DType) -> bool) -> Option<Value> {
        let ok = |v: &&Value| fits(&v.ty().dims(), dtype(**v)) && (!self.exact || is_exact(**v));
        let all: Vec<Value> = self.values.iter().filter(ok).copied().collect();
        if all.is_empty() { None } else { Some(self.pick(&all)) }
    }
    fn any(&mut self) -> Value {
        self.value(|_, _| true).expect("arguments")
    }
    fn shaped(&mut self) -> Option<(Value, i64)> {
        let v = self.value(|d, _| !d.is_empty())?;
        let axis = self.random.below(v.ty().dims().len());
        Some((v, axis as i64))
    }
    /// A value of the same type and sizes as `x`: one that there is, or a number everywhere.
    fn like(&mut self, x: Value) -> Result<Value, String> {
        let block = self.values.iter().find_map(|v| v.block_arg()).ok_or("has no arguments")?.0;
        let sizes = Symbolic::of(block)?;
        let (ty, wanted) = (x.ty(), sizes.tensor(x)?);
        let known = wanted.dims.iter().all(|d| *d != Extent::Unknown);
        let fits = |v: Value| known && v.ty() == ty && (!self.exact || is_exact(v)) && sizes.tensor(v).is_ok_and(|t| t == wanted);
        let same = |v: &&Value| **v == x || fits(**v);
        let all: Vec<Value> = self.values.iter().filter(same).copied().collect();
        if self.random.below(3) > 0 {
            return Ok(self.pick(&all));
        }
        let number = self.pick(&[1.0, 2.0, 0.5, 3.0]);
        self.b.splat(dtype(x), &self.b.sizes_of(x)?, number)
    }
    fn scalar(&self, dtype: DType, value: f64) -> Result<Value, String> {
        self.b.splat(dtype, &[], value)
    }
    fn permutation(&mut self, n: usize) -> Vec<i64> {
        let mut p: Vec<i64> = (0..n as i64).collect();
        (1..n).for_each(|i| p.swap(i, self.random.below(i + 1)));
        p
    }
    fn subset(&mut self, n: usize) -> Vec<i64> {
        (0..n as i64).filter(|_| self.random.below(2) == 0).collect()
    }

    /// One step; nothing where no value fits.
    fn step(&mut self, kind: &str) -> Made {
        let b = self.b;
        let none = Ok(vec![]);
        let one = |v: Result<Value, String>| v.map(|v| vec![v]);
        match kind {
            "unary" => {
                let kind = self.pick(UnaryKind::ALL);
                self.exact |= self.material.continuous && !SMOOTH.contains(&kind);
                let x = self.any();
                let made = b.generic(kind.op().name(), &[x], &[x.ty()], &[], &mut []);
                self.checked(made?, matches!(kind, UnaryKind::IsFinite | UnaryKind::IsNan))
            }
            "binary" => {
                let kind = self.pick(BinaryKind::ALL);
                let jumps = matches!(kind, BinaryKind::Rem | BinaryKind::FloorDiv | BinaryKind::Div | BinaryKind::Pow | BinaryKind::Atan2);
                self.exact |= self.material.continuous && jumps;
                let x = self.any();
                let divides = matches!(kind, BinaryKind::Div | BinaryKind::Rem | BinaryKind::FloorDiv);
                // An integer divisor of 0 is an error.
                let y = if divides && dtype(x).is_int() { b.splat(dtype(x), &b.sizes_of(x)?, 3.0)? } else { self.like(x)? };
                let made = b.generic(kind.op().name(), &[x, y], &[x.ty()], &[], &mut []);
                self.checked(made?, false)
            }
            "compare" => {
                let lhs = self.any();
                let (rhs, kind) = (self.like(lhs)?, self.pick(CompareKind::ALL));
                one(b.add(&Compare { kind, lhs, rhs }))
            }
            "select" => {
                let on_true = self.any();
                let (on_false, other) = (self.like(on_true)?, self.like(on_true)?);
                let condition = b.add(&Compare { kind: CompareKind::Ge, lhs: on_true, rhs: other })?;
                one(b.add(&Select { condition, on_true, on_false }))
            }
            "clamp" => {
                let Some(input) = self.value(|_, d| d != DType::I1) else { return none };
                let (low, high) = (self.like(input)?, self.like(input)?);
                one(b.add(&Clamp { input, low, high }))
            }
            "convert" => {
                let (input, to) = (self.any(), self.pick(self.material.dtypes));
                one(b.add(&Convert { input, dtype: Type::scalar(b.ctx, to) }))
            }
            "bitcast" => {
                let input = self.any();
                let same: Vec<DType> = self.material.dtypes.iter().copied().filter(|d| d.bits() == dtype(input).bits()).collect();
                let to = self.pick(&same);
                one(b.add(&Bitcast { input, dtype: Type::scalar(b.ctx, to) }))
            }
            "splat" => {
                let (like, to) = (self.any(), self.pick(self.material.dtypes));
                one(b.splat(to, &b.sizes_of(like)?, 2.0))
            }
            "iota" => {
                let Some((like, axis)) = self.shaped() else { return none };
                let to = self.pick(&self.material.dtypes[..self.material.dtypes.len() - 1]);
                one(b.add(&Iota { sizes: b.sizes_of(like)?, axis, dtype: Type::scalar(b.ctx, to) }))
            }
            "constant" => {
                let (to, n) = (self.pick(self.material.dtypes), 1 + self.random.below(3));
                let value = Attr::dense(b.ctx, &self.random.tensor(to, &[n, 2]))?;
                Ok(b.create_with(&Constant { value }, &[value.type_of()], &mut [])?.results())
            }
            "broadcast" => {
                let Some(input) = self.value(|d, _| d.len() < 3) else { return none };
                let (at, n) = (self.random.below(input.ty().dims().len() + 1), self.pick(&[1, 2, 3]));
                let mut sizes = b.sizes_of(input)?;
                let dims = (0..sizes.len()).map(|i| (i + usize::from(i >= at)) as i64).collect();
                sizes.insert(at, Size::Static(n));
                one(b.add(&BroadcastInDim { input, dims, sizes }))
            }
            "reshape" => {
                let Some(input) = self.value(|d, _| d.len() < 4) else { return none };
                let mut sizes = b.sizes_of(input)?;
                match sizes.iter().position(|s| *s == Size::Static(1)) {
                    Some(i) => drop(sizes.remove(i)),
                    None => sizes.insert(self.random.below(sizes.len() + 1), Size::Static(1)),
                }
                one(b.add(&Reshape { input, sizes }))
            }
            "transpose" => {
                let input = self.any();
                let permutation = self.permutation(input.ty().dims().len());
                one(b.add(&Transpose { input, permutation }))
            }
            "slice" => {
                let Some((input, axis)) = self.shaped() else { return none };
                let (mut sizes, axis) = (b.sizes_of(input)?, axis as usize);
                let mut offsets = Size::all(&vec![0; sizes.len()]);
                let Some(n) = sizes[axis].known().filter(|n| *n > 0) else { return none };
                let from = self.random.below(n as usize) as i64;
                (offsets[axis], sizes[axis]) = (Size::Static(from), Size::Static(1 + self.random.below((n - from) as usize) as i64));
                let strides = vec![1; sizes.len()];
                one(b.add(&Slice { input, offsets, sizes, strides }))
            }
            "pad" => {
                let Some((input, axis)) = self.shaped() else { return none };
                let counts = |n: i64| (0..input.ty().dims().len()).map(|i| Size::Static(if i == axis as usize { n } else { 0 })).collect();
                let value = self.scalar(dtype(input), 1.0)?;
                one(b.add(&Pad { input, value, low: counts(self.pick(&[0, 1])), high: counts(self.pick(&[0, 1])) }))
            }
            "concat" => {
                let Some((x, axis)) = self.shaped() else { return none };
                let y = self.like(x)?;
                one(b.add(&Concat { inputs: vec![x, y], axis }))
            }
            "reverse" => {
                let input = self.any();
                let dims = self.subset(input.ty().dims().len());
                one(b.add(&Reverse { input, dims }))
            }
            "gather" | "scatter" => {
                let Some((input, axis)) = self.shaped() else { return none };
                if input.ty().dims()[axis as usize].known() == Some(0) {
                    return none;
                }
                let index = b.splat(DType::I64, &Size::all(&[2]), 0.0)?;
                let taken = b.add(&Gather { input, indices: vec![index], dims: vec![axis] })?;
                if kind == "gather" {
                    return Ok(vec![taken]);
                }
                let integer = !dtype(input).is_float();
                let kind = if integer && dtype(input) != DType::I1 { self.pick(ScatterKind::ALL) } else { ScatterKind::Assign };
                one(b.add(&Scatter { kind, input, updates: taken, indices: vec![index], dims: vec![axis] }))
            }
            "dynamic_slice" | "dynamic_update_slice" => {
                let Some(input) = self.value(|d, _| d.iter().all(|d| d.known().is_none_or(|n| n > 0))) else { return none };
                let start = self.scalar(DType::I32, 1.0)?;
                let starts = vec![start; input.ty().dims().len()];
                let sizes = b.sizes_of(input)?.into_iter().map(|s| if s.known().is_some() { Size::Static(1) } else { s }).collect();
                let part = b.add(&DynamicSlice { input, starts: starts.clone(), sizes })?;
                if kind == "dynamic_slice" {
                    return Ok(vec![part]);
                }
                one(b.add(&DynamicUpdateSlice { input, update: part, starts }))
            }
            "reduce" => {
                let input = self.any();
                let dims = self.subset(input.ty().dims().len());
                let all: &[ReduceKind] = match dtype(input) {
                    DType::I1 => &[ReduceKind::Any, ReduceKind::All],
                    _ if input.ty().dims().iter().any(|d| d.known() == Some(0)) => &[ReduceKind::Sum],
                    _ => &[ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min],
                };
                let kind = self.pick(all);
                one(b.add(&Reduce { kind, input, dims }))
            }
            "arg" => {
                let Some((input, axis)) = self.shaped() else { return none };
                if input.ty().dims()[axis as usize].known() == Some(0) {
                    return none;
                }
                one(if self.random.below(2) == 0 { b.add(&ArgMax { input, axis }) } else { b.add(&ArgMin { input, axis }) })
            }
            "cumulative" => {
                let Some((input, axis)) = self.shaped().filter(|(v, _)| dtype(*v) != DType::I1) else { return none };
                let kind = self.pick(CumulativeKind::ALL);
                one(b.add(&Cumulative { kind, input, axis }))
            }
            "sort" => {
                let Some((input, axis)) = self.shaped() else { return none };
                if self.random.below(2) == 0 {
                    return Ok(b.create_node(&Sort { input, axis, descending: true })?.results());
                }
                let k = input.ty().dims()[axis as usize].known().unwrap_or(1).min(2);
                Ok(b.create_node(&TopK { input, axis, k, smallest: false })?.results())
            }
            "dot" => {
                let Some((lhs, axis)) = self.shaped().filter(|(v, _)| dtype(*v) != DType::I1 && v.ty().dims().len() < 3) else {
                    return none;
                };
                let rhs = self.like(lhs)?;
                let (lhs_contract, rhs_contract, lhs_batch, rhs_batch) = (vec![axis], vec![axis], vec![], vec![]);
                one(b.add(&DotGeneral { lhs, rhs, lhs_batch, rhs_batch, lhs_contract, rhs_contract, element_type: None }))
            }
            "random" => {
                let (like, to) = (self.any(), self.pick(&[DType::F64, DType::F32, DType::F16, DType::BF16]));
                let key = b.splat(DType::I64, &Size::all(&[2]), 5.0)?;
                let (sizes, dtype) = (b.sizes_of(like)?, Type::scalar(b.ctx, to));
                one(match self.random.below(3) {
                    0 => b.add(&RandomBits { key, sizes, dtype: Type::scalar(b.ctx, DType::I32) }),
                    1 => b.add(&RandomUniform { key, sizes, dtype, low: -1.0, high: 1.0 }),
                    _ => b.add(&RandomNormal { key, sizes, dtype, mean: 0.0, std: 1.0 }),
                })
            }
            "convolution" => {
                let Some(x) = self.value(|d, t| t != DType::I1 && d.len() == 2 && d.iter().all(|d| d.known() != Some(0))) else {
                    return none;
                };
                // One channel, and a weight of one tap less than a window of two.
                let sizes = b.sizes_of(x)?;
                let input = b.add(&Reshape { input: x, sizes: vec![sizes[0], Size::Static(1), sizes[1]] })?;
                let weight = b.splat(dtype(x), &Size::all(&[2, 1, 2]), 2.0)?;
                let (strides, pad_low, pad_high, dilation) = (vec![1], vec![1], vec![0], vec![1]);
                let groups = 1;
                let (transposed, output_padding) = (false, None);
                one(b.add(&Convolution { input, weight, strides, pad_low, pad_high, dilation, groups, transposed, output_padding }))
            }
            "if" => {
                let x = self.any();
                let (y, on) = (self.like(x)?, self.random.below(2));
                let condition = self.scalar(DType::I1, on as f64)?;
                let yields =
                    |v: Value| move |b: Builder, _: Vec<Value>| b.create_with(&Yield { values: vec![v] }, &[], &mut []).map(|_| ());
                let (mut left, mut right) = (yields(x), yields(y));
                let made = b.create_with(&If { condition }, &[x.ty()], &mut [(&[], &mut left), (&[], &mut right)])?;
                Ok(made.results())
            }
            "scan" => {
                let Some(x) = self.value(|d, t| !d.is_empty() && t != DType::I1 && d[1..].iter().all(|d| d.known().is_some())) else {
                    return none;
                };
                let row = Type::tensor(b.ctx, dtype(x), &x.ty().dims()[1..]);
                let init = b.splat(dtype(x), &b.sizes_of(x)?[1..], 1.0)?;
                let mut body = |b: Builder, args: Vec<Value>| {
                    let sum = b.add(&Add { lhs: args[0], rhs: args[1] })?;
                    b.create_with(&Yield { values: vec![sum, args[0]] }, &[], &mut []).map(|_| ())
                };
                let scan = Scan { inits: vec![init], inputs: vec![x], reverse: self.random.below(2) == 0 };
                Ok(b.create_with(&scan, &[row, x.ty()], &mut [(&[row, row], &mut body)])?.results())
            }
            _ => {
                let Some(input) = self.value(|d, t| t != DType::I1 && d.iter().all(|d| d.known() != Some(0))) else { return none };
                let n = input.ty().dims().len();
                let (kind, ones) = (self.pick(CumulativeKind::ALL), vec![1; n]);
                let (window, pad_high) = (vec![2; n], ones.clone());
                one(b.add(&ReduceWindow { kind, input, window, strides: ones.clone(), pad_low: vec![0; n], pad_high, dilation: ones }))
            }
        }
    }

    /// The result of an op that was made without asking the rule; nothing if the rule has no such op.
    fn checked(&self, op: Op, to_i1: bool) -> Made {
        let view = View::of(op).ok_or("has no view")?;
        match kiln::dialects::rules::infer_types(&view) {
            Ok(types) => {
                if to_i1 {
                    op.result(0).set_ty(types[0]);
                }
                Ok(op.results())
            }
            Err(_) => {
                op.erase();
                Ok(vec![])
            }
        }
    }
}

fn dtype(v: Value) -> DType {
    kiln::dialects::rules::tensor_type(v.ty()).unwrap().dtype
}

/// Functions under which errors do not grow by much.
const SMOOTH: &[UnaryKind] =
    &[UnaryKind::Neg, UnaryKind::Abs, UnaryKind::Sin, UnaryKind::Cos, UnaryKind::Atan, UnaryKind::Tanh, UnaryKind::Erf, UnaryKind::Not];

/// Whether a value is the same in every precision, as far as its ops show.
fn is_exact(v: Value) -> bool {
    let Some(op) = v.def() else { return true };
    use OpKind::*;
    let copies = matches!(op.kind().map(|k| k.family()), Some(Family::Movement | Family::Create))
        || matches!(
            op.kind(),
            Some(Gather | DynamicSlice | DynamicUpdateSlice | Sort | TopK | Select | Clamp | Neg | Abs | Sign | Max | Min)
        );
    let whole = !dtype(v).is_float() && op.kind() != Some(RandomBits);
    (copies || whole || op.kind() == Some(RandomBits)) && op.operands().into_iter().filter(|o| o.ty().is_tensor()).all(is_exact)
}

pub fn build(c: Ctx, recipe: &Recipe, material: &'static Material) -> Result<Module, String> {
    let module = Module::new(Loc::unknown(c));
    let top = Builder::at_end(c, module.body(), Loc::unknown(c));
    let known = |n: i64| if recipe.symbolic { Extent::Unknown } else { Extent::Known(n) };
    let mut random = Random(recipe.steps.len() as u64);
    let mut argument = |dims: &[Extent]| Type::tensor(c, material.dtypes[random.below(material.dtypes.len())], dims);
    let size = |i: usize| material.sizes[(recipe.sizes as usize * 3 + i) % material.sizes.len()];
    let (m, fixed, n) = (size(0), Extent::Known(size(1)), size(2));
    let types = [argument(&[known(m), fixed.clone()]), argument(&[known(m)]), argument(&[]), argument(&[Extent::Known(2), known(n)])];
    let mut results = vec![];
    let mut body = |b: Builder, args: Vec<Value>| {
        if recipe.symbolic {
            let index = Type::index(c);
            let sym = |name: &str| Sym { name: name.into(), min: 0, max: None, divisor: 1 };
            let s = Size::Dynamic(b.create_with(&sym("s"), &[index], &mut [])?.result(0));
            let t = Size::Dynamic(b.create_with(&sym("t"), &[index], &mut [])?.result(0));
            for (value, sizes) in [(args[0], vec![s, Size::Static(size(1))]), (args[1], vec![s]), (args[3], vec![Size::Static(2), t])] {
                b.create_with(&BindShape { value, sizes }, &[], &mut [])?;
            }
        }
        let all: Vec<&str> = material.steps.split_whitespace().collect();
        let mut graph = Graph { b, values: args, random: Random(0), material, exact: false };
        for (kind, seed) in &recipe.steps {
            graph.random = Random(*seed);
            let kind = all[*kind as usize % all.len()];
            let jumps = ["compare", "select", "convert", "bitcast", "arg", "sort"];
            graph.exact = material.continuous && jumps.contains(&kind);
            let made = graph.step(kind)?;
            graph.values.extend(made);
        }
        let last: Vec<Value> = graph.values.iter().copied().filter(|v| v.uses().is_empty()).collect();
        results = last.iter().map(|v| v.ty()).collect();
        b.ret(&last).map(|_| ())
    };
    let func = top.function("f", &types, &[], &mut body)?;
    func.set_attr("function_type", Attr::ty(Type::function(c, &types, &results)));
    let (ok, diagnostics) = collect(c, || module.op().verify());
    if ok { Ok(module) } else { Err(format!("does not verify: {diagnostics:?}\n{}", module.op())) }
}

/// Checks `count` random graphs; a failing one is made as small as it can be.
fn each_graph(count: u64, check: impl Fn(&Module) -> Result<(), String>) {
    crate::watchdog::arm();
    for number in 0..count {
        one_graph(&EVERYTHING, number, |m, _| check(m)).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Checks the graph of that number, which is the same in every run. Err: of the smallest graph that fails, with its IR.
pub fn one_graph(material: &'static Material, number: u64, check: impl Fn(&Module, &Recipe) -> Result<(), String>) -> Result<(), String> {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, rng);
    let mut tree = recipes().new_tree(&mut runner).expect("a recipe");
    let attempt = |recipe: &Recipe| {
        let context = Context::new();
        build(context.ctx(), recipe, material).and_then(|m| check(&m, recipe).map_err(|e| format!("{e}\n{}", m.op())))
    };
    let Err(mut error) = attempt(&tree.current()) else { return Ok(()) };
    for _ in 0..500 {
        match attempt(&tree.current()) {
            Err(e) => {
                error = e;
                if !tree.simplify() {
                    break;
                }
            }
            Ok(()) if !tree.complicate() => break,
            Ok(()) => {}
        }
    }
    Err(format!("graph {number}: {error}"))
}

#[test]
fn random_graphs_survive_printing() {
    let seen = std::cell::RefCell::new(BTreeSet::new());
    each_graph(260, |m| {
        seen.borrow_mut().extend(walk(m.op()).into_iter().filter_map(Op::kind));
        round_trips(m)
    });
    // The steps cover what they name.
    let prims = |k: &&OpKind| {
        matches!(
            k.family(),
            Family::Unary
                | Family::Binary
                | Family::Elementwise
                | Family::Movement
                | Family::Indexed
                | Family::Reduction
                | Family::Contraction
                | Family::Random
        )
    };
    let missing: Vec<_> = OpKind::ALL.iter().filter(prims).filter(|k| !seen.borrow().contains(*k)).map(|k| k.name()).collect();
    assert!(missing.is_empty(), "no graph has {missing:?}");
}

#[test]
fn random_graphs_run() {
    each_graph(150, |m| {
        let func = functions(m)[0];
        for mode in [Mode::Exact, Mode::Rounded] {
            run(m, func, mode, &inputs(func, 3)).map_err(|e| e.to_string())?;
        }
        Ok(())
    });
}

/// A pipeline gives the same results on random graphs.
fn preserves(pipeline: &str, numerics: Numerics) {
    each_graph(100, |m| {
        let after = m.duplicate();
        run_pipeline(&after, &format!("builtin.module({pipeline})"), &RunOptions::default(), &|_, _, _| ()).map_err(|e| e.to_string())?;
        same_results(m, &after, numerics)
    });
}

#[test]
fn decompose_preserves() {
    preserves("kiln-decompose", Numerics::Reassociates);
}

#[test]
fn simplify_preserves() {
    preserves("kiln-simplify", Numerics::Exact);
}

#[test]
fn canonicalize_and_cse_preserve() {
    preserves("canonicalize,cse", Numerics::Exact);
}

#[test]
fn refine_shapes_preserves() {
    preserves("kiln-refine-shapes", Numerics::Exact);
}

#[test]
fn the_pipeline_preserves() {
    let text = kiln::lowering::pipeline_text(Level::Graph, Level::Prims, None).unwrap();
    let inner = text.trim_start_matches("builtin.module(").trim_end_matches(')').to_string();
    // There are only prims in these graphs, so that nothing is decomposed and every step is exact.
    preserves(&inner, Numerics::Exact);
}
