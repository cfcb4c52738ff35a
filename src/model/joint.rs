//! Forward and backward programs of a model: its joint graph, partitioned.
use super::{Error, Model};
use crate::{
    dialects::{
        ir::{Attr, Context, Module, Op, Value, set_returned},
        rules::tensor_type,
        sym::Dim,
        value::DType,
    },
    lowering::{RunOptions, driver::compile::CompileError, pass_remarks, run_pipeline},
    passes::{autocast::Lower, options::OptionValue},
};

/// What to differentiate, and what to save for it.
#[derive(Clone, Debug)]
pub struct JointOptions {
    /// Arguments of `main` to differentiate by, by index; of floats.
    pub wrt: Vec<usize>,
    /// Results of `main` that have a cotangent, by index; of floats.
    pub results: Vec<usize>,
    /// As option `budget` of `kiln-partition`: 1 saves what is expensive to recompute, 0 as few
    /// bytes as can be.
    pub budget: f64,
    /// As option `autocast`, so that what is saved has 16 bits.
    pub autocast: Lower,
}

/// A value that the forward program saves for the backward program.
#[derive(Clone, Debug, PartialEq)]
pub enum Saved {
    /// An argument of the forward program, by index.
    Argument(usize),
    /// A result of the model, by index.
    Result(usize),
    /// A further result of the forward program: dtype and shape, `None` for a dynamic dimension.
    Value(DType, Vec<Option<usize>>),
}

/// A model as two programs.
pub struct Joint {
    /// `main`: the model's arguments to its results, and each [`Saved::Value`] in order. Remarks of
    /// the joint graph's passes are this program's.
    pub forward: Model,
    /// `main`: all saved values and the cotangents to the gradients.
    pub backward: Model,
    /// What the backward program takes before the cotangents.
    pub saved: Vec<Saved>,
    /// Bytes of saved values that are no arguments.
    pub bytes: u64,
}

const FUNCTIONS: [&str; 2] = ["main_forward", "main_backward"];

impl Model {
    /// Differentiates `main` (`kiln-differentiate`) and splits it into a forward and a backward
    /// program (`kiln-partition`). Err: an op without a derivative, with its location; an index
    /// of no argument or result, or of one that is not of floats.
    pub fn joint(&self, options: &JointOptions) -> Result<Joint, Error> {
        let context = Context::new();
        let (module, _) = self.module(&context)?;
        let main = function(&module, "main")?;
        let count = returned(main)?.len();
        let list = |all: &[usize]| all.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let pipeline = format!(
            "builtin.module(kiln-refine-shapes,\
             kiln-differentiate{{wrt={} results={} cotangents=true}},\
             kiln-autocast{{dtype={}}},kiln-simplify,canonicalize,cse,\
             kiln-partition{{results={count} cotangents={} budget={} channels-last=true}})",
            list(&options.wrt),
            list(&options.results),
            options.autocast.print(),
            options.results.len(),
            options.budget
        );
        let done = run_pipeline(&module, &pipeline, &RunOptions::default(), &|_, _, _| ())
            .map_err(|e| Error::of_compilation(e.into()))?;
        let saved = merge_saved(function(&module, FUNCTIONS[0])?, count)?;
        let report = function(&module, FUNCTIONS[1])?.attr("kiln.partition");
        let entries = report.and_then(Attr::entries).unwrap_or_default();
        let bytes = entries.iter().find(|(name, _)| name == "bytes").and_then(|(_, n)| n.as_i64());
        let part = |name: &str| -> Result<Model, Error> {
            let module = module.duplicate();
            let other = FUNCTIONS.into_iter().find(|n| *n != name).unwrap_or_default();
            function(&module, other)?.erase();
            function(&module, name)?.set_attr("sym_name", Attr::string(context.ctx(), "main"));
            Ok(Model::from_graph(&module, self.in_memory_weights.clone()))
        };
        let mut forward = part(FUNCTIONS[0])?;
        forward.remarks = pass_remarks(&done.diagnostics);
        Ok(Joint {
            forward,
            backward: part(FUNCTIONS[1])?,
            saved,
            bytes: bytes.map_or(0, i64::cast_unsigned),
        })
    }
}

fn function(module: &Module, name: &str) -> Result<Op, Error> {
    let found = module.body().ops().into_iter().find(|o| o.symbol().as_deref() == Some(name));
    found.ok_or_else(|| CompileError::Module(format!("has no function @{name}")).into())
}

/// The values that a function returns.
fn returned(func: Op) -> Result<Vec<Value>, Error> {
    let block = func.regions().first().and_then(|r| r.first());
    let end = block.and_then(|b| b.terminator());
    let end = end.ok_or_else(|| CompileError::Module("has a function without a body".into()))?;
    Ok(end.operands())
}

/// Drops results of a forward function that are arguments or earlier results, which a program
/// would copy. Returns what its results from `count` on are.
fn merge_saved(func: Op, count: usize) -> Result<Vec<Saved>, Error> {
    let all = returned(func)?;
    let (results, values) = all.split_at(count);
    let (mut kept, mut saved) = (results.to_vec(), vec![]);
    for v in values {
        if let Some((_, k)) = v.block_arg() {
            saved.push(Saved::Argument(k));
        } else if let Some(k) = results.iter().position(|r| r == v) {
            saved.push(Saved::Result(k));
        } else {
            let ty = tensor_type(v.ty())?;
            let size = |n: &Dim| n.known().and_then(|n| usize::try_from(n).ok());
            saved.push(Saved::Value(ty.dtype, ty.dims.iter().map(size).collect()));
            kept.push(*v);
        }
    }
    set_returned(func, &kept)?;
    Ok(saved)
}
