//! `torch.nn.Embedding`.
use super::{Init, Module, Parameter, Scope};
use crate::tensor::Tensor;
use std::panic::Location;

/// Rows of a table at integer positions.
#[derive(Debug)]
pub struct Embedding {
    weight: Parameter,
}

impl Embedding {
    /// A table of `count` rows of `size` numbers.
    pub fn new(scope: &Scope, count: usize, size: usize) -> Embedding {
        Embedding { weight: scope.parameter("weight", &[count, size], Init::Normal) }
    }
    /// The table, for a model that uses it again in its last layer.
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
