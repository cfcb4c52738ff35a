//! Tensor handles.
use super::{
    Array, Dim, Graph, OpError, TraceError, arg::Arg, emit, is_autocast, lazy_node::LazyNode, modes,
};
use crate::capture::storage::Alias;
use kiln_dialects::{
    sym,
    value::{self, DType},
};
use std::{panic::Location, sync::Arc};

/// A tensor: concrete data, or a value of the graph being traced; see the [module](super). A cheap,
/// thread-safe handle. A traced tensor is only valid in its trace.
#[derive(Clone)]
pub struct Tensor(pub(crate) Repr);

#[derive(Clone)]
pub(crate) enum Repr {
    /// A traced value.
    Node(Arc<Node>),
    /// Concrete data.
    Array(Arc<Array>),
    /// A lazy value, computed when it is read.
    Lazy(Arc<LazyNode>),
    /// A failed eager op.
    Failed(Arc<OpError>),
}

/// A traced value of a graph.
pub(crate) struct Node {
    pub graph: u64,
    /// `None`: poisoned.
    pub alias: Option<Alias>,
}

impl From<&Tensor> for Tensor {
    fn from(t: &Tensor) -> Tensor {
        t.clone()
    }
}
impl From<Array> for Tensor {
    fn from(array: Array) -> Tensor {
        Tensor(Repr::Array(Arc::new(array)))
    }
}
impl From<Arc<Array>> for Tensor {
    fn from(array: Arc<Array>) -> Tensor {
        Tensor(Repr::Array(array))
    }
}
/// Copies the value, rounded to its dtype.
impl From<&value::Tensor> for Tensor {
    fn from(t: &value::Tensor) -> Tensor {
        Tensor::from(Array::from_value(t))
    }
}

impl Tensor {
    /// Its graph; for a concrete tensor, the thread's current graph.
    pub fn graph(&self) -> Graph {
        match &self.0 {
            Repr::Node(node) => Graph::by_id(node.graph).unwrap_or_else(Graph::current),
            Repr::Lazy(node) if node.value.get().is_none() => {
                Graph::by_id(node.graph).unwrap_or_else(Graph::current)
            }
            _ => Graph::current(),
        }
    }
    /// The graph and the value, if this thread is tracing it.
    pub(super) fn traced(&self) -> Option<(Graph, Alias)> {
        let Repr::Node(node) = &self.0 else { return None };
        Graph::by_id(node.graph).zip(node.alias)
    }
    /// Whether it is poisoned.
    pub(crate) fn is_poisoned(&self) -> bool {
        match &self.0 {
            Repr::Node(node) => node.alias.is_none(),
            Repr::Array(_) | Repr::Lazy(_) => false,
            Repr::Failed(_) => true,
        }
    }
    /// Whether this thread is tracing it.
    pub(crate) fn is_traced(&self) -> bool {
        match &self.0 {
            Repr::Node(node) => Graph::by_id(node.graph).is_some(),
            Repr::Lazy(node) => node.value.get().is_none() && Graph::by_id(node.graph).is_some(),
            Repr::Array(_) | Repr::Failed(_) => false,
        }
    }
    /// The error that poisoned it.
    pub(super) fn failure(&self) -> Option<Arc<OpError>> {
        if let Repr::Failed(e) = &self.0 { Some(e.clone()) } else { None }
    }
    fn type_of(&self) -> Option<(DType, Vec<sym::Dim>)> {
        let known = |shape: &[usize]| shape.iter().map(|n| sym::Dim::Known(*n as i64)).collect();
        match &self.0 {
            Repr::Array(a) => Some((a.dtype(), known(a.shape()))),
            Repr::Lazy(node) => Some((node.dtype(), known(node.shape()))),
            _ => self.traced().and_then(|(graph, alias)| graph.type_of(alias)),
        }
    }
    /// Why it has no type or no data.
    pub(crate) fn error(&self) -> TraceError {
        match &self.0 {
            Repr::Failed(e) => TraceError::Ops(vec![OpError::clone(e)]),
            Repr::Node(node) => match Graph::by_id(node.graph) {
                Some(graph) => graph.failure(),
                None => TraceError::Module(
                    "a tensor of a trace that is over, or of another thread's".into(),
                ),
            },
            Repr::Lazy(_) => {
                TraceError::Module("a tensor of a function that is over, which nobody read".into())
            }
            Repr::Array(_) => TraceError::Module("a tensor with elements has no error".into()),
        }
    }
    /// Its dtype. Err: the error that poisoned it.
    pub fn dtype(&self) -> Result<DType, TraceError> {
        self.type_of().map(|(dtype, _)| dtype).ok_or_else(|| self.error())
    }
    /// Its shape. Err: it is poisoned.
    pub fn dims(&self) -> Result<Vec<Dim>, TraceError> {
        let (_, dims) = self.type_of().ok_or_else(|| self.error())?;
        Ok((0..dims.len()).map(|i| self.at(i, &dims)).collect())
    }
    fn at(&self, axis: usize, dims: &[sym::Dim]) -> Dim {
        match (self.traced(), dims.get(axis)) {
            (_, Some(sym::Dim::Known(n))) => Dim::from(*n),
            (Some((graph, alias)), _) => graph.size_of(alias, axis),
            (None, _) => Dim::POISON,
        }
    }
    /// Its number of dimensions. Err: it is poisoned.
    pub fn rank(&self) -> Result<usize, TraceError> {
        self.type_of().map(|(_, dims)| dims.len()).ok_or_else(|| self.error())
    }
    /// The size of a dimension; negative ones count from the end. No such dimension is an error of
    /// the trace.
    #[track_caller]
    pub fn size(&self, dim: i64) -> Dim {
        let Some((_, dims)) = self.type_of() else { return Dim::POISON };
        let at = if dim < 0 { dim + dims.len() as i64 } else { dim };
        match usize::try_from(at).ok().filter(|at| *at < dims.len()) {
            Some(at) => self.at(at, &dims),
            None => {
                let reason = format!("dimension {dim} is outside of rank {}", dims.len());
                self.graph().refuse(Location::caller(), "size", reason, std::slice::from_ref(self));
                Dim::POISON
            }
        }
    }
    /// Itself, or the errors of the trace if it is poisoned.
    pub fn check(&self) -> Result<Tensor, TraceError> {
        if self.is_poisoned() { Err(self.error()) } else { Ok(self.clone()) }
    }
    /// Names its SSA value, and for a result also the output. A number is appended to a name that
    /// is taken; inputs keep their names.
    #[track_caller]
    pub fn named(self, name: &str) -> Tensor {
        if let Some((graph, alias)) = self.traced() {
            graph.rename(alias, name, Location::caller());
        }
        self
    }

    /// Dispatches a row on this tensor, as argument `self`, and others.
    #[track_caller]
    pub(super) fn call<const N: usize>(
        &self,
        op: &'static str,
        target: &'static str,
        args: [(&'static str, Arg); N],
    ) -> Tensor {
        let [r] = self.call_many(op, target, args);
        r
    }
    /// As `row`, with several results.
    #[track_caller]
    pub(super) fn call_many<const N: usize, const R: usize>(
        &self,
        op: &'static str,
        target: &'static str,
        args: [(&'static str, Arg); N],
    ) -> [Tensor; R] {
        let site = Location::caller();
        // Under autocast, the op's own arguments are known after conversion only.
        if !is_autocast()
            && let Some(made) = modes::replay(Some(self), target, &args)
        {
            return made;
        }
        let mut all = Vec::with_capacity(N + 1);
        all.push(("self", Arg::from(self)));
        all.extend(args);
        emit::exactly(site, op, target, all)
    }
    /// Records an error found before dispatch.
    #[track_caller]
    pub(super) fn refuse(&self, op: &'static str, reason: String) -> Tensor {
        self.graph().refuse(Location::caller(), op, reason, std::slice::from_ref(self))
    }
    /// Type as text, such as `f32[batch, 64]`.
    pub fn type_name(&self) -> String {
        let Some((dtype, dims)) = self.type_of() else { return "an error".into() };
        let dims: Vec<String> = dims.iter().map(|d| d.to_string()).collect();
        format!("{dtype}[{}]", dims.join(", "))
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.type_name())
    }
}
