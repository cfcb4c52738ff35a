//! The backend `cudagraphs`: one kernel per op, without fusion; on a GPU all launches are one CUDA
//! graph.
use super::{Backend, GraphModule, Runnable};
use crate::{
    Error,
    dialects::ir::Attr,
    lowering::kernels::marks::EACH_OP,
    model::{Executable, Model, Options, Times},
    runtime::{DeviceId, Program, View, cuda},
    tensor::{Array, DonatedMemory},
};
use std::sync::Arc;

pub(super) struct UnfusedBackend;

/// An unfused program.
struct Unfused(Executable);

impl Backend for UnfusedBackend {
    fn name(&self) -> &str {
        "cudagraphs"
    }
    fn summary(&self) -> &str {
        "a kernel for each op, replayed as one CUDA graph; on the host, where there are none, one after another"
    }
    fn compile(&self, graph: &GraphModule, options: &Options) -> Result<Arc<dyn Runnable>, Error> {
        let root = graph.module().op();
        // The attribute is part of the module's text, and so of the cache key.
        root.set_attr(EACH_OP, Attr::unit(root.ctx()));
        let model = Model::from_graph(graph.module(), graph.weights().clone());
        root.remove_attr(EACH_OP);
        let mode = if options.device == DeviceId::Host {
            cuda::Mode::Default
        } else {
            cuda::Mode::ReduceOverhead
        };
        Ok(Arc::new(Unfused(model.compile(&Options { mode, ..options.clone() })?)))
    }
}

impl Runnable for Unfused {
    fn run(&self, inputs: &[View]) -> Result<Vec<Array>, Error> {
        Runnable::run(&self.0, inputs)
    }
    fn run_donated(
        &self,
        inputs: &[View],
        donated: &mut [Option<DonatedMemory>],
    ) -> Result<Vec<Array>, Error> {
        self.0.run_donated(inputs, donated)
    }
    fn program(&self) -> Option<&Program> {
        Runnable::program(&self.0)
    }
    fn remarks(&self) -> Vec<String> {
        if self.0.cuda().is_none() {
            return vec!["the program is for the host, which has none: its kernels run one after another, as of backend kiln".into()];
        }
        Runnable::remarks(&self.0)
    }
    fn times(&self) -> Option<&Times> {
        Runnable::times(&self.0)
    }
}
