//! The backend `kiln`: compiles to machine code for the host, or to PTX for a GPU.
use super::{Backend, GraphModule, Runnable};
use crate::{
    Error,
    dialects::value::DType,
    model::{Executable, Model, Options, Times},
    runtime::{
        Buffer, Bytes, CallError, Program, View, ViewMut,
        cuda::{self, DeviceMemory},
    },
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

/// A result's dtype, shape and bytes.
type ResultType = (DType, Vec<usize>, usize);

/// Enqueues a program on the stream of a GPU's tensors. Results stay on the GPU.
fn on_device(
    loaded: &cuda::Loaded,
    index: usize,
    inputs: &[View],
    types: Vec<ResultType>,
) -> Result<Vec<Array>, Error> {
    let mut made = Vec::with_capacity(types.len());
    for (dtype, shape, bytes) in types {
        let memory = DeviceMemory::allocate(index, bytes).map_err(CallError::from)?;
        made.push((dtype, shape, memory));
    }
    // SAFETY: memory of that GPU, freed in the order of the stream, which alone uses it.
    let mut outputs: Vec<ViewMut> = made
        .iter()
        .map(|(t, shape, m)| unsafe { ViewMut::on_cuda(index, t.name(), shape, None, m.address()) })
        .collect();
    let stream = cuda::tensor_stream(index).map_err(CallError::from)?;
    // SAFETY: the stream lives as long as the process, and the memory of tensors is used on no other.
    unsafe { loaded.launch(inputs, &mut outputs, stream) }?;
    drop(outputs);
    let array = |(dtype, shape, memory): (DType, Vec<usize>, DeviceMemory)| {
        Ok(Array::on_device(dtype, &shape, memory)?)
    };
    made.into_iter().map(array).collect()
}

impl Runnable for Executable {
    fn run(&self, inputs: &[View]) -> Result<Vec<Array>, Error> {
        let shapes = match self.fixed_outputs() {
            Some(made) => made.iter().map(|(shape, _)| shape.clone()).collect(),
            None => self.output_shapes(&inputs.iter().map(View::shape).collect::<Vec<_>>())?,
        };
        let mut types: Vec<ResultType> = Vec::with_capacity(shapes.len());
        for (shape, t) in shapes.into_iter().zip(&Executable::program(self).outputs) {
            let dtype = DType::from_name(&t.dtype)
                .ok_or_else(|| Error::Weight(format!("'{}' is no element type", t.dtype)))?;
            let bytes = shape.iter().try_fold(dtype.byte_size(), |n, d| n.checked_mul(*d));
            let bytes = bytes.ok_or_else(|| {
                Error::Weight(format!("a result of sizes {shape:?} is too large"))
            })?;
            types.push((dtype, shape, bytes));
        }
        if let Some(loaded) = self.cuda()
            && let Some(index) = inputs.iter().find_map(|v| v.device().gpu())
        {
            return on_device(loaded, index, inputs, types);
        }
        let mut made = Vec::with_capacity(types.len());
        for (dtype, shape, bytes) in types {
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
