//! Backends: the trait that compiles captured graphs, and the registry.
mod conformance;
mod interpreter;
mod kiln_backend;
mod unfused;

pub use conformance::{CaseResult, conformance, conformance_on};

use crate::{
    Error,
    capture::{Captured, weight::Weight},
    dialects::ir::{Module, PrintOptions},
    model::{Options, Times},
    passes::names::hint,
    runtime::{Program, View},
    tensor::{Array, DonatedMemory},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

/// A captured graph: IR at level `graph`, with its weights and input names.
pub struct GraphModule<'a> {
    name: &'a str,
    captured: &'a Captured,
}

impl<'a> GraphModule<'a> {
    pub(crate) fn new(name: &'a str, captured: &'a Captured) -> GraphModule<'a> {
        GraphModule { name, captured }
    }
    /// The display name.
    pub fn name(&self) -> &str {
        self.name
    }
    /// The module; its entry function is `main`.
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
    /// Input names, in order.
    pub fn inputs(&self) -> &[String] {
        &self.captured.inputs
    }
}

/// Compiles graphs. [Register](register) a custom backend and select it by name; for a complete one
/// see `examples/custom_backend.rs`.
pub trait Backend: Send + Sync {
    /// The name that selects it.
    fn name(&self) -> &str;
    /// A one-line description.
    fn summary(&self) -> &str;
    /// Compiles a graph for every size in its symbols' ranges. Err: the graph is not supported.
    fn compile(&self, graph: &GraphModule, options: &Options) -> Result<Arc<dyn Runnable>, Error>;
}

/// A compiled graph.
pub trait Runnable: Send + Sync {
    /// Runs the graph. Results are in order, in newly allocated memory. Must be thread-safe.
    fn run(&self, inputs: &[View]) -> Result<Vec<Array>, Error>;
    /// As [`Runnable::run`]; results may be in the memory of inputs, of which `donated` has that of
    /// each, or `None`. An input whose memory was taken out of `donated` is overwritten. kiln's own
    /// programs take it; a backend that wraps one passes it on.
    fn run_donated(
        &self,
        inputs: &[View],
        donated: &mut [Option<DonatedMemory>],
    ) -> Result<Vec<Array>, Error> {
        let _ = donated;
        self.run(inputs)
    }
    /// The compiled program, if kiln compiled it.
    fn program(&self) -> Option<&Program> {
        None
    }
    /// Remarks of earlier calls: what prevents CUDA graphs, and which arguments are copied.
    fn remarks(&self) -> Vec<String> {
        vec![]
    }
    /// Time breakdown of the compilation, if known.
    fn times(&self) -> Option<&Times> {
        None
    }
}

/// An entry of [`list_backends`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInfo {
    /// The name that selects it.
    pub name: String,
    /// A one-line description.
    pub summary: String,
}

/// The backend that captures nothing.
const EAGER: (&str, &str) =
    ("eager", "captures nothing: every op runs at once, as a program of its own");

type Backends = Vec<Arc<dyn Backend>>;
static KILN: LazyLock<Arc<dyn Backend>> = LazyLock::new(|| Arc::new(kiln_backend::KilnBackend));
static ALL: LazyLock<RwLock<Backends>> = LazyLock::new(|| {
    RwLock::new(vec![
        KILN.clone(),
        Arc::new(interpreter::InterpreterBackend),
        Arc::new(unfused::UnfusedBackend),
    ])
});

fn all() -> Backends {
    ALL.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The backends: `kiln`, `eager`, `interpreter`, `cudagraphs`, and the registered ones.
pub fn list_backends() -> Vec<BackendInfo> {
    let info =
        |(name, summary): (&str, &str)| BackendInfo { name: name.into(), summary: summary.into() };
    let mut found: Vec<BackendInfo> = all().iter().map(|b| info((b.name(), b.summary()))).collect();
    found.insert(1, info(EAGER));
    found
}

/// Registers a backend. Err: the name is taken.
pub fn register(backend: Arc<dyn Backend>) -> Result<(), Error> {
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    if backend.name() == EAGER.0 || all.iter().any(|b| b.name() == backend.name()) {
        return Err(Error::Backend(format!("there is already a backend '{}'", backend.name())));
    }
    all.push(backend);
    Ok(())
}

/// The default backend.
pub(crate) fn kiln() -> Arc<dyn Backend> {
    KILN.clone()
}

/// Looks up a backend; `None` for `eager`, which captures nothing. Err: no such backend.
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
