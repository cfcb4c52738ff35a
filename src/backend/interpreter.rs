//! The backend `interpreter`: the reference for compiled results. It rounds each op's result to its
//! dtype.
use super::{Backend, GraphModule, Runnable};
use crate::{
    Error,
    capture::weight::Weight,
    dialects::{
        interp::{Interpreter, Mode},
        ir::{Context, Module},
        value::Tensor,
    },
    model::Options,
    runtime::View,
    tensor::{Array, register_in},
};
use std::{collections::BTreeMap, sync::Arc};

pub(super) struct InterpreterBackend;

/// A graph as bytecode, since a context is single-threaded.
struct Interpreted {
    bytecode: Vec<u8>,
    weights: BTreeMap<String, Weight>,
}

impl Backend for InterpreterBackend {
    fn name(&self) -> &str {
        "interpreter"
    }
    fn summary(&self) -> &str {
        "plain loops in f64, each op's result rounded to its dtype: slow, and what everything is compared with"
    }
    fn compile(&self, graph: &GraphModule, _: &Options) -> Result<Arc<dyn Runnable>, Error> {
        Ok(Arc::new(Interpreted {
            bytecode: graph.module().bytecode(),
            weights: graph.weights().clone(),
        }))
    }
}

impl Runnable for Interpreted {
    fn run(&self, inputs: &[View]) -> Result<Vec<Array>, Error> {
        let context = Context::new();
        let (module, _) = Module::parse(context.ctx(), &self.bytecode, "graph")?;
        let weights = |name: &str, _: &str| {
            let found = self.weights.get(name).ok_or_else(|| format!("has no weight @{name}"))?;
            Ok(found.read()?)
        };
        let mut interpreter = Interpreter { globals: &weights, ..Interpreter::new(Mode::Rounded) };
        register_in(module.op(), &mut interpreter);
        let values = inputs.iter().map(value).collect::<Result<Vec<_>, _>>()?;
        let results = interpreter
            .run(module.op(), "main", &values)
            .map_err(|e| Error::Backend(e.to_string()))?;
        Ok(results.iter().map(Array::from_value).collect())
    }
}

fn value(view: &View) -> Result<Tensor, Error> {
    let dtype = crate::dialects::value::DType::from_name(view.dtype());
    let dtype =
        dtype.ok_or_else(|| Error::Backend(format!("'{}' is no element type", view.dtype())))?;
    let bytes = view.copied()?;
    dtype.decode(view.shape(), bytes.bytes()).map_err(|e| Error::Backend(e.into()))
}
