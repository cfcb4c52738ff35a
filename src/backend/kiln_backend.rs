//! The backend `kiln`: compiles to machine code for the host, or to PTX for a GPU.
use super::{Backend, GraphModule, Runnable};
use crate::{
    Error,
    dialects::value::DType,
    model::{Executable, Model, Options, Times},
    runtime::{Buffer, Bytes, Program, View, ViewMut},
    tensor::Array,
};
use std::sync::Arc;

pub(super) struct KilnBackend;

impl Backend for KilnBackend {
    fn name(&self) -> &str {
        "kiln"
    }
    fn summary(&self) -> &str {
        "machine code for this machine's processors, or PTX for an NVIDIA GPU"
    }
    fn compile(&self, graph: &GraphModule, options: &Options) -> Result<Arc<dyn Runnable>, Error> {
        Ok(Arc::new(Model::from_graph(graph.module(), graph.weights().clone()).compile(options)?))
    }
}

impl Runnable for Executable {
    fn run(&self, inputs: &[View]) -> Result<Vec<Array>, Error> {
        let shapes = match self.fixed_outputs() {
            Some(made) => made.iter().map(|(shape, _)| shape.clone()).collect(),
            None => self.output_shapes(&inputs.iter().map(View::shape).collect::<Vec<_>>())?,
        };
        let mut made = Vec::with_capacity(shapes.len());
        for (shape, t) in shapes.into_iter().zip(&Executable::program(self).outputs) {
            let dtype = DType::from_name(&t.dtype)
                .ok_or_else(|| Error::Weight(format!("'{}' is no element type", t.dtype)))?;
            let bytes = shape.iter().try_fold(dtype.byte_size(), |n, d| n.checked_mul(*d));
            let bytes = bytes.ok_or_else(|| {
                Error::Weight(format!("a result of sizes {shape:?} is too large"))
            })?;
            made.push((dtype, shape, self.result_memory(bytes)?));
        }
        let mut outputs = vec![];
        for (dtype, shape, buffer) in &mut made {
            let buffer = Arc::get_mut(buffer)
                .ok_or_else(|| Error::Weight("memory of a result is somebody's".into()))?;
            outputs.push(ViewMut::new(dtype.name(), shape, buffer.bytes_mut())?);
        }
        self.call(inputs, &mut outputs)?;
        drop(outputs);
        let array = |(dtype, shape, buffer): (DType, Vec<usize>, Arc<Buffer>)| {
            self.keep_memory(&buffer);
            Ok(Array::new(dtype, &shape, Bytes::part_of(buffer.clone(), buffer.bytes()))?)
        };
        made.into_iter().map(array).collect()
    }
    fn program(&self) -> Option<&Program> {
        Some(Executable::program(self))
    }
    fn remarks(&self) -> Vec<String> {
        self.cuda().map(|l| l.remarks()).unwrap_or_default()
    }
    fn times(&self) -> Option<&Times> {
        Some(Executable::times(self))
    }
}
