//! Debugging a wrong or slow compilation: which pass, kernel or op is wrong ([`bisect()`]), a
//! minimal test case ([`reduce()`]), and the benefit of each pass ([`ablate()`]).
mod ablate;
mod bisect;
mod reduce;

pub use ablate::{Ablation, Row, ablate};
pub use bisect::{Bisection, bisect};
pub use reduce::{mismatch, reduce};

use crate::{
    Error, Model, Options,
    dialects::{
        interp::{GlobalSource, Interpreter, Mode, OwnError},
        ir::{Module, Node, walk},
        ops::Global,
        rules::tensor_type,
        value::{DType, Tensor},
    },
    lowering::{
        UserPasses,
        driver::{pipeline::PIPELINE, table, user_passes::At},
    },
    model::{Finder, target},
    runtime::{Package, program},
    tolerance,
};
use std::{cell::RefCell, collections::HashMap};

/// The weights of a model, as interpreter values.
struct Weights<'a> {
    finder: RefCell<Finder<'a>>,
    types: HashMap<String, (DType, Vec<usize>)>,
}

impl<'a> Weights<'a> {
    fn of(
        model: &'a Model,
        options: &'a Options,
        none: &'a Package,
        module: &Module,
    ) -> Weights<'a> {
        let mut types = HashMap::new();
        for op in walk(module.op()) {
            let Some(g) = Global::of(op) else { continue };
            let Ok(t) = tensor_type(g.r#type) else { continue };
            let shape = t
                .dims
                .iter()
                .map(|d| d.known().and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
                .collect();
            types.insert(g.sym_name, (t.dtype, shape));
        }
        Weights { finder: RefCell::new(model.finder(none, options)), types }
    }
    fn read(&self, name: &str, source: &str) -> Result<Tensor, OwnError> {
        let (dtype, shape) =
            self.types.get(name).ok_or_else(|| format!("has no weight @{name}"))?;
        let global = program::Global {
            name: name.into(),
            dtype: dtype.name().into(),
            shape: shape.iter().map(|n| *n as u64).collect(),
            source: source.into(),
            data: None,
            role: Default::default(),
        };
        Ok(dtype.decode(shape, self.finder.borrow_mut().find(&global)?.bytes())?)
    }
}

/// Runs a module's function in the interpreter.
fn interpreted(
    module: &Module,
    function: &str,
    inputs: &[Tensor],
    mode: Mode,
    weights: &GlobalSource<'_>,
) -> Result<Vec<Tensor>, Error> {
    let interpreter = Interpreter { globals: weights, ..Interpreter::new(mode) };
    interpreter.run(module.op(), function, inputs).map_err(|e| Error::Backend(e.to_string()))
}

/// The first result whose error exceeds the tolerance.
fn first_wrong(found: &[Tensor], rounded: &[Tensor], exact: &[Tensor]) -> Option<String> {
    if found.len() != exact.len() {
        return Some(format!("there are {} results, not {}", found.len(), exact.len()));
    }
    let all = found.iter().zip(rounded).zip(exact).enumerate();
    all.filter_map(|(i, ((f, r), e))| {
        tolerance::check_error_bound(f, r, e).err().map(|why| format!("result {i} {why}"))
    })
    .next()
}

/// Flags of the optional passes in a target's pipeline, in the order of their first run, user
/// passes included.
fn optional(options: &Options) -> Result<Vec<String>, Error> {
    let target = target(options)?;
    // Upstream's cleanup passes; its conversions are mandatory.
    const UPSTREAM: [&str; 3] = ["canonicalize", "cse", "symbol-dce"];
    let mut all: Vec<String> = vec![];
    let mut add = |flag: &str| {
        if !all.iter().any(|f| f == flag) {
            all.push(flag.into());
        }
    };
    let own = |here: &dyn Fn(&At) -> bool, add: &mut dyn FnMut(&str)| {
        options.passes.iter().filter(|o| here(&o.at)).flat_map(UserPasses::flags).for_each(add);
    };
    for step in PIPELINE.iter().filter(|s| s.target.has(target.chip())) {
        let flag = step.pass.split('{').next().unwrap_or_default();
        own(&|at| matches!(at, At::Level(l) if *l <= step.from), &mut add);
        if UPSTREAM.contains(&flag) || table::find(flag).is_some_and(|p| !p.required) {
            add(flag);
        }
        own(&|at| matches!(at, At::After(f) | At::Instead(f) if f == flag), &mut add);
    }
    Ok(all)
}
