//! What makes a captured graph run: a trait, and the backends by name.
mod conformance;
mod interpreter;
mod machine;
mod one_op;

pub use conformance::{Outcome, conformance, conformance_on};

use crate::{
    Error,
    capture::{Captured, weight::Weight},
    dialects::ir::{Module, PrintOptions},
    model::{Options, Times},
    passes::names::hint,
    runtime::{Program, View},
    tensor::Array,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

/// A captured graph: IR at level `graph`, and what it needs beside it.
pub struct GraphModule<'a> {
    name: &'a str,
    captured: &'a Captured,
}

impl<'a> GraphModule<'a> {
    pub(crate) fn new(name: &'a str, captured: &'a Captured) -> GraphModule<'a> {
        GraphModule { name, captured }
    }
    /// What people call it.
    pub fn name(&self) -> &str {
        self.name
    }
    /// The module, with the function `main`.
    pub fn module(&self) -> &Module {
        &self.captured.module
    }
    /// The module as text.
    pub fn text(&self) -> String {
        self.captured
            .module
            .print(PrintOptions { names_from_locations: true, ..Default::default() })
    }
    /// Values of the globals, by name.
    pub fn weights(&self) -> &BTreeMap<String, Weight> {
        &self.captured.weights
    }
    /// Names of the inputs, in order.
    pub fn inputs(&self) -> &[String] {
        &self.captured.inputs
    }
}

/// Makes graphs run. One's own is [registered](register) and chosen by its name.
pub trait Backend: Send + Sync {
    /// What it is chosen by.
    fn name(&self) -> &str;
    /// One line about it.
    fn summary(&self) -> &str;
    /// Makes a graph run, at every size that its symbols may have. Err: it cannot.
    fn compile(&self, graph: &GraphModule, options: &Options) -> Result<Arc<dyn Runnable>, Error>;
}

/// A graph that runs.
pub trait Runnable: Send + Sync {
    /// The results, in order, in memory of their own. May be called from many threads at once.
    fn run(&self, inputs: &[View]) -> Result<Vec<Array>, Error>;
    /// What was compiled, if it is a program of kiln's.
    fn program(&self) -> Option<&Program> {
        None
    }
    /// What hinders CUDA graphs or makes calls copy, as far as calls have shown.
    fn remarks(&self) -> Vec<String> {
        vec![]
    }
    /// Where the time of compiling went, if that is known.
    fn times(&self) -> Option<&Times> {
        None
    }
}

/// A line of [`list_backends`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInfo {
    /// What it is chosen by.
    pub name: String,
    /// One line about it.
    pub summary: String,
}

/// The name of the backend that captures nothing.
const EAGER: (&str, &str) =
    ("eager", "captures nothing: every op runs at once, as a program of its own");

type Backends = Vec<Arc<dyn Backend>>;
static KILN: LazyLock<Arc<dyn Backend>> = LazyLock::new(|| Arc::new(machine::Machine));
static ALL: LazyLock<RwLock<Backends>> = LazyLock::new(|| {
    RwLock::new(vec![KILN.clone(), Arc::new(interpreter::Oracle), Arc::new(one_op::OneOp)])
});

fn all() -> Backends {
    ALL.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The backends: `kiln`, `eager`, `interpreter`, `cudagraphs`, and those that were registered.
pub fn list_backends() -> Vec<BackendInfo> {
    let info =
        |(name, summary): (&str, &str)| BackendInfo { name: name.into(), summary: summary.into() };
    let mut found: Vec<BackendInfo> = all().iter().map(|b| info((b.name(), b.summary()))).collect();
    found.insert(1, info(EAGER));
    found
}

/// Adds a backend. Err: there is one of that name.
pub fn register(backend: Arc<dyn Backend>) -> Result<(), Error> {
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    if backend.name() == EAGER.0 || all.iter().any(|b| b.name() == backend.name()) {
        return Err(Error::Backend(format!("there is already a backend '{}'", backend.name())));
    }
    all.push(backend);
    Ok(())
}

/// kiln's own.
pub(crate) fn kiln() -> Arc<dyn Backend> {
    KILN.clone()
}

/// The backend of that name; none for `eager`, which captures nothing. Err: there is none of that
/// name.
pub fn find(name: &str) -> Result<Option<Arc<dyn Backend>>, Error> {
    if name == EAGER.0 {
        return Ok(None);
    }
    let all = all();
    let names = || all.iter().map(|b| b.name()).chain([EAGER.0]);
    let found = all.iter().find(|b| b.name() == name).cloned();
    found.map(Some).ok_or_else(|| {
        let all = names().collect::<Vec<_>>().join(", ");
        Error::Backend(format!("there is no backend '{name}' among {all}{}", hint(name, names())))
    })
}
