//! Melior at the boundary: a graph built with melior is compiled and run by kiln, and a pass written
//! against melior's `OperationRef` runs in kiln's pipeline like any other.
//!
//!   cargo run --example melior
use kiln::{
    Model, Options,
    dialects::{ir, rules::Level},
    lowering::driver::user_passes::UserPasses,
    passes::{Numerics, Pass, pass},
    runtime::{View, ViewMut},
};
use melior::{
    dialect::func,
    ir::{
        Block, BlockLike, Identifier, Location, Module, Region, RegionLike, Type, Value, ValueLike,
        attribute::{StringAttribute, TypeAttribute},
        operation::{
            OperationBuilder, OperationLike, OperationRef, OperationResult, WalkOrder, WalkResult,
        },
        r#type::{FunctionType, RankedTensorType},
    },
};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().map(|text| println!("{text}"))
}

kiln::passes::pass_options! {
    /// The pass.
    pub struct TwoNegations {}
}

impl Pass for TwoNegations {
    const FLAG: &'static str = "mine-two-negations";
    const SUMMARY: &'static str = "Drops two negations in a row";
    const LEVELS: &'static [Level] = &[Level::Graph, Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: ir::Op) -> ir::Result<()> {
        // The result of two negations in a row, and what the first one takes. Handles of kiln's have
        // no lifetime, so the walk may let them out.
        let mut pairs: Vec<(ir::Value, ir::Value)> = vec![];
        root.with_melior(|root| {
            root.walk(WalkOrder::PreOrder, |op| {
                if let Some((operand, outer)) = negation(op)
                    && let Ok(inner) = OperationResult::try_from(operand)
                    && let Some((source, _)) = negation(inner.owner())
                {
                    pairs.push((outer.into(), source.into()));
                }
                WalkResult::Advance
            });
        });
        pairs.into_iter().for_each(|(outer, source)| outer.replace_uses(source));
        Ok(())
    }
}

/// What a `kiln.neg` takes and gives; `None` for other ops.
fn negation<'c, 'a>(op: OperationRef<'c, 'a>) -> Option<(Value<'c, 'a>, Value<'c, 'a>)> {
    let negates = op.name().as_string_ref().as_str() == Ok("kiln.neg");
    if negates { Some((op.operand(0).ok()?, op.result(0).ok()?.into())) } else { None }
}

/// Appends an op whose result has its operands' type.
fn append<'c, 'a>(
    block: &'a Block<'c>,
    name: &str,
    operands: &[Value<'c, 'a>],
    at: Location<'c>,
) -> Result<Value<'c, 'a>, melior::Error> {
    let ty = operands.first().map(|v| v.r#type());
    let op = OperationBuilder::new(name, at).add_operands(operands).add_results(ty.as_slice());
    block.append_operation(op.build()?).result(0).map(Value::from)
}

/// `-(-(x + y))` of four numbers, as a module of `func` and `kiln` ops.
fn graph(context: &melior::Context) -> Result<Module<'_>, melior::Error> {
    let at = |line: usize| Location::new(context, "framework.graph", line, 1);
    let tensor: Type = RankedTensorType::new(&[4], Type::float32(context), None).into();
    let module = Module::new(at(1));
    let block = Block::new(&[(tensor, at(1)), (tensor, at(1))]);
    let (x, y) = (block.argument(0)?.into(), block.argument(1)?.into());
    let sum = append(&block, "kiln.add", &[x, y], at(2))?;
    let once = append(&block, "kiln.neg", &[sum], at(3))?;
    let twice = append(&block, "kiln.neg", &[once], at(4))?;
    block.append_operation(func::r#return(&[twice], at(5)));
    let region = Region::new();
    region.append_block(block);
    let ty = FunctionType::new(context, &[tensor, tensor], &[tensor]);
    module.body().append_operation(func::func(
        context,
        StringAttribute::new(context, "main"),
        TypeAttribute::new(ty.into()),
        region,
        &[(
            Identifier::new(context, "sym_visibility"),
            StringAttribute::new(context, "public").into(),
        )],
        at(1),
    ));
    Ok(module)
}

/// The text to print: the result, and the negations that are left with the pass and without it.
pub fn run() -> Result<String, Box<dyn std::error::Error>> {
    pass::register::<TwoNegations>()?;
    let context = ir::Context::new();
    // kiln owns the module; it lives in the context that melior borrowed.
    let module = ir::Module::from(graph(context.as_melior())?);
    if !module.op().verify() {
        return Err("the graph does not verify".into());
    }
    let mut lines = vec![];
    for passes in ["", "graph: mine-two-negations"] {
        // A cache hit would run no passes.
        let options = Options {
            threads: 1,
            cache: kiln::model::CachePolicy::Off,
            passes: UserPasses::parse(passes)?,
            ..Options::default()
        };
        let program = Model::from_module(&module, Path::new("")).compile(&options)?;
        let (x, y, mut z) = ([1.0f32, 2.0, 3.0, 4.0], [0.5f32, -2.0, 0.25, 1.0], [0.0f32; 4]);
        program.call(
            &[View::from_slice(&[4], &x)?, View::from_slice(&[4], &y)?],
            &mut [ViewMut::from_slice(&[4], &mut z)?],
        )?;
        let all = program.times().compile.iter().flat_map(|report| &report.passes);
        let runs: usize = all.filter(|p| p.pass == TwoNegations::FLAG).map(|p| p.runs).sum();
        lines.push(format!("{z:?}, {runs} runs"));
    }
    // What the pass does, on a copy: the function returns the sum itself.
    let copy = module.duplicate();
    TwoNegations::default().run(copy.op())?;
    let returned = ir::walk(copy.op()).into_iter().find(|op| op.isa::<ir::func::Return>());
    let returned = returned.and_then(|op| op.operand(0).def()).ok_or("returns nothing")?;
    lines.push(format!("returns the result of {}", returned.name()));
    // And back: melior reads the same module.
    let module = module.into_melior(&context);
    lines.push(format!("{} function", module.body().first_operation().iter().count()));
    Ok(lines.join("\n"))
}
