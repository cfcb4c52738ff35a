//! `torch.nn.Embedding`.
use super::{Init, Module, Parameter, Scope};
use crate::tensor::Tensor;
use std::panic::Location;

/// Embedding lookup: rows of a table at integer indices.
#[derive(Debug)]
pub struct Embedding {
    weight: Parameter,
}

impl Embedding {
    /// A table of shape [count, size].
    pub fn new(scope: &Scope, count: usize, size: usize) -> Embedding {
        Embedding { weight: scope.parameter("weight", &[count, size], Init::Normal(1.0)) }
    }
    /// The table, for models that tie it to their output projection.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
}

impl Module for Embedding {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _frame = x.graph().frame(Location::caller());
        self.weight.on(&x.graph()).embedding(x)
    }
    fn parameters(&self) -> Vec<&Parameter> {
        vec![&self.weight]
    }
}
