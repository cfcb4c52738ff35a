//! The handle of a traced value.
use super::{Dim, Graph, TraceError, arg::Arg};
use crate::capture::storage::Alias;
use kiln_dialects::value::DType;
use std::panic::Location;

/// A value in the arena.
pub(super) struct Node {
    /// `None`: poisoned.
    pub alias: Option<Alias>,
}

/// A value of the program that is being traced; see the [module's](super) documentation.
#[derive(Clone, Copy)]
pub struct Tensor<'t> {
    pub(super) graph: &'t Graph,
    pub(super) node: &'t Node,
}

impl<'t> Tensor<'t> {
    /// The graph that it belongs to.
    pub fn graph(self) -> &'t Graph {
        self.graph
    }
    /// Its dtype. Err: it is poisoned; the error says why.
    pub fn dtype(self) -> Result<DType, TraceError> {
        self.graph.type_of(self).map(|(dtype, _)| dtype).ok_or_else(|| self.graph.failure())
    }
    /// Its sizes, outermost first. Err: it is poisoned.
    pub fn dims(self) -> Result<Vec<Dim<'t>>, TraceError> {
        let (_, dims) = self.graph.type_of(self).ok_or_else(|| self.graph.failure())?;
        Ok((0..dims.len()).map(|i| self.graph.size_of(self, i)).collect())
    }
    /// How many dimensions it has. Err: it is poisoned.
    pub fn rank(self) -> Result<usize, TraceError> {
        self.graph.type_of(self).map(|(_, dims)| dims.len()).ok_or_else(|| self.graph.failure())
    }
    /// One of its sizes; negative dimensions count from the end. A dimension that it does not have is an error of the trace.
    #[track_caller]
    pub fn size(self, dim: i64) -> Dim<'t> {
        let Some((_, dims)) = self.graph.type_of(self) else { return Dim::POISON };
        let at = if dim < 0 { dim + dims.len() as i64 } else { dim };
        match usize::try_from(at).ok().filter(|at| *at < dims.len()) {
            Some(at) => self.graph.size_of(self, at),
            None => {
                self.graph.refuse(Location::caller(), "size", format!("dimension {dim} is outside of rank {}", dims.len()), &[self]);
                Dim::POISON
            }
        }
    }
    /// Itself, or the errors of the trace if it is poisoned.
    pub fn check(self) -> Result<Tensor<'t>, TraceError> {
        if self.node.alias.is_some() { Ok(self) } else { Err(self.graph.failure()) }
    }
    /// Gives it a name, which becomes its SSA name and, for a result, the name of the output; a number is added to a name that is taken.
    /// An input keeps its own.
    #[track_caller]
    pub fn named(self, name: &str) -> Tensor<'t> {
        self.graph.rename(self, name, Location::caller());
        self
    }

    /// An ATen row on this tensor, as argument `self`, and others.
    #[track_caller]
    pub(super) fn call<const N: usize>(self, op: &'static str, target: &'static str, args: [(&'static str, Arg<'t>); N]) -> Tensor<'t> {
        let [r] = self.call_many(op, target, args);
        r
    }
    /// A row with several results.
    #[track_caller]
    pub(super) fn call_many<const N: usize, const R: usize>(
        self,
        op: &'static str,
        target: &'static str,
        args: [(&'static str, Arg<'t>); N],
    ) -> [Tensor<'t>; R] {
        let place = Location::caller();
        let mut all = vec![("self", Arg::from(self))];
        all.extend(args);
        self.graph.exactly(place, op, target, all)
    }
    /// An error of an op that has no row for what is wrong.
    #[track_caller]
    pub(super) fn refuse(self, op: &'static str, reason: String) -> Tensor<'t> {
        self.graph.refuse(Location::caller(), op, reason, &[self])
    }
}

/// As `f32[batch, 64]`.
impl std::fmt::Display for Tensor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some((dtype, dims)) = self.graph.type_of(*self) else { return f.write_str("an error") };
        let dims: Vec<String> = dims.iter().map(|d| d.to_string()).collect();
        write!(f, "{dtype}[{}]", dims.join(", "))
    }
}
impl std::fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
