//! `torch.nn.Dropout`.
use super::{Module, Parameter, mode};
use crate::tensor::Tensor;
use std::panic::Location;

/// Zeroes elements of any shape with probability `p` and scales the others by 1 / (1 - p), in
/// [training mode](super::train); else the identity. Without a key an error of the trace.
#[derive(Clone, Debug)]
pub struct Dropout {
    p: f64,
}

impl Dropout {
    /// Elements are zeroed with probability `p`, from 0 to 1.
    pub fn new(p: f64) -> Dropout {
        Dropout { p }
    }
}

impl Module for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let graph = x.graph();
        let _frame = graph.frame(Location::caller());
        match mode::is_training("dropout", &graph) {
            Ok(training) if !training || self.p == 0.0 => return x.dropout(self.p),
            Ok(_) => {}
            Err(failed) => return failed,
        }
        match mode::next_key() {
            Some(key) => x.dropout_by(key, self.p),
            None => graph.failed("dropout", "has no key: nn::train takes one for it"),
        }
    }
    fn parameters(&self) -> Vec<&Parameter> {
        vec![]
    }
}
