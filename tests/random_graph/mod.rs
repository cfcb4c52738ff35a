//! Random graphs over all prims and dtypes, with static and symbolic sizes, which every pass and
//! every form of the IR must preserve.
mod control;
mod convolutions;
mod preserves;
mod steps;
mod values;

use crate::support::Random;
use kiln::dialects::{ir::*, ops::*, sym::Dim as Extent, value::DType};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use steps::STEPS;
use values::Graph;

/// The random numbers of a graph; proptest shrinks them to a minimal failure.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub symbolic: bool,
    /// Selects the sizes.
    pub sizes: u16,
    steps: Vec<(u16, u64)>,
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let steps =
        proptest::collection::vec((proptest::num::u16::ANY, proptest::num::u64::ANY), 4..24);
    (proptest::bool::ANY, proptest::num::u16::ANY, steps)
        .prop_map(|(symbolic, sizes, steps)| Recipe { symbolic, sizes, steps })
}

/// The distribution of graphs.
pub struct Material {
    /// Kinds of steps.
    pub steps: &'static str,
    /// Dtypes of values.
    pub dtypes: &'static [DType],
    /// Argument sizes: a recipe takes three in a row.
    pub sizes: &'static [i64],
    /// Compares, rounds and sorts exact values only, since small errors there become large ones.
    pub continuous: bool,
}

const EVERYTHING: Material =
    Material { steps: STEPS, dtypes: &DType::ALL, sizes: &[4, 3, 5], continuous: false };

pub fn build(c: Ctx, recipe: &Recipe, material: &'static Material) -> Result<Module, String> {
    let module = Module::new(Loc::unknown(c));
    let top = Builder::at_end(c, module.body(), Loc::unknown(c));
    let known = |n: i64| if recipe.symbolic { Extent::Unknown } else { Extent::Known(n) };
    let mut random = Random(recipe.steps.len() as u64);
    let mut argument = |dims: &[Extent]| {
        Type::tensor(c, material.dtypes[random.below(material.dtypes.len())], dims)
    };
    let size = |i: usize| material.sizes[(recipe.sizes as usize * 3 + i) % material.sizes.len()];
    let (m, fixed, n) = (size(0), Extent::Known(size(1)), size(2));
    let types = [
        argument(&[known(m), fixed.clone()]),
        argument(&[known(m)]),
        argument(&[]),
        argument(&[Extent::Known(2), known(n)]),
    ];
    let mut results = vec![];
    let mut body = |b: Builder, args: Vec<Value>| {
        if recipe.symbolic {
            let index = Type::index(c);
            let sym = |name: &str| Sym { name: name.into(), min: 0, max: None, divisor: 1 };
            let s = Size::Dynamic(b.create_with(&sym("s"), &[index], &mut [])?.result(0));
            let t = Size::Dynamic(b.create_with(&sym("t"), &[index], &mut [])?.result(0));
            for (value, sizes) in [
                (args[0], vec![s, Size::Static(size(1))]),
                (args[1], vec![s]),
                (args[3], vec![Size::Static(2), t]),
            ] {
                b.create_with(&BindShape { value, sizes }, &[], &mut [])?;
            }
        }
        let all: Vec<&str> = material.steps.split_whitespace().collect();
        let mut graph = Graph {
            b,
            values: args,
            random: Random(0),
            material,
            exact: false,
            depth: 0,
            regional: vec![],
        };
        for (kind, seed) in &recipe.steps {
            graph.random = Random(*seed);
            let made = graph.any_step(all[*kind as usize % all.len()])?;
            graph.values.extend(made);
        }
        let last: Vec<Value> =
            graph.values.iter().copied().filter(|v| v.uses().is_empty()).collect();
        results = last.iter().map(|v| v.ty()).collect();
        b.ret(&last).map(|_| ())
    };
    let func = top.function("f", &types, &[], &mut body)?;
    func.set_attr("function_type", Attr::ty(Type::function(c, &types, &results)));
    let (ok, diagnostics) = collect(c, || module.op().verify());
    if ok { Ok(module) } else { Err(format!("does not verify: {diagnostics:?}\n{}", module.op())) }
}

/// Checks `count` random graphs and shrinks a failing one.
pub fn each_graph(count: u64, check: impl Fn(&Module) -> Result<(), String>) {
    for number in 0..count {
        one_graph(&EVERYTHING, number, 500, |m, _| check(m)).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Checks the graph of that number, the same in every run. Err: the smallest failing graph within
/// `attempts`, with its IR.
pub fn one_graph(
    material: &'static Material,
    number: u64,
    attempts: usize,
    check: impl Fn(&Module, &Recipe) -> Result<(), String>,
) -> Result<(), String> {
    crate::watchdog::arm();
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner =
        TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, rng);
    let mut tree = recipes().new_tree(&mut runner).expect("a recipe");
    let attempt = |recipe: &Recipe| {
        let context = Context::new();
        build(context.ctx(), recipe, material)
            .and_then(|m| check(&m, recipe).map_err(|e| format!("{e}\n{}", m.op())))
    };
    let Err(mut error) = attempt(&tree.current()) else { return Ok(()) };
    for _ in 0..attempts {
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
