//! `torch.nn.Sequential`.
use super::{Module, Parameter, Scope};
use crate::tensor::Tensor;
use std::panic::Location;

type Function = dyn Fn(&Tensor) -> Tensor + Send + Sync;

enum Layer {
    Module(Box<dyn Module + Send + Sync>),
    Function(Box<Function>),
}

/// A chain of layers, numbered from 0 as in PyTorch; functions count too.
pub struct Sequential {
    scope: Scope,
    layers: Vec<(&'static Location<'static>, Layer)>,
}

impl Sequential {
    /// An empty chain.
    pub fn new(scope: &Scope) -> Sequential {
        Sequential { scope: scope.clone(), layers: vec![] }
    }
    /// Appends a layer, built under its own scope. Its ops get this call's source location.
    #[track_caller]
    pub fn layer<M: Module + Send + Sync + 'static>(
        mut self,
        make: impl FnOnce(&Scope) -> M,
    ) -> Sequential {
        let made = make(&self.scope.child(self.layers.len()));
        self.layers.push((Location::caller(), Layer::Module(Box::new(made))));
        self
    }
    /// Appends a function without weights, such as `|x| x.relu()`.
    #[track_caller]
    pub fn apply(mut self, f: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static) -> Sequential {
        self.layers.push((Location::caller(), Layer::Function(Box::new(f))));
        self
    }
}

impl std::fmt::Debug for Sequential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> =
            self.parameters().iter().map(|p| format!("{}: {}", p.name(), p.type_name())).collect();
        f.debug_struct("Sequential")
            .field("layers", &self.layers.len())
            .field("parameters", &names)
            .finish()
    }
}

impl Module for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.layers.iter().fold(x.clone(), |x, (site, layer)| {
            // A call through a trait object has no caller location.
            let _frame = x.graph().inner_frame(site);
            match layer {
                Layer::Module(m) => m.forward(&x),
                Layer::Function(f) => f(&x),
            }
        })
    }
    fn parameters(&self) -> Vec<&Parameter> {
        let mut all = vec![];
        for (_, layer) in &self.layers {
            if let Layer::Module(m) = layer {
                all.extend(m.parameters());
            }
        }
        all
    }
}
