//! The backend `kiln`: compiles to machine code for the host, or to PTX for a GPU.
use super::{Backend, GraphModule, Runnable};
use crate::{
    Error,
    dialects::value::DType,
    model::{Executable, Model, Options, Times},
    runtime::{
        Buffer, Bytes, CallError, DeviceId, Program, View, ViewMut,
        cuda::{self, DeviceMemory},
    },
    tensor::{Array, DonatedMemory},
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

/// Memory of a result.
enum Memory<M> {
    /// Its own.
    New(M),
    /// That of an argument.
    Donated(DonatedMemory),
}

/// Takes the donated memory of an input, if it is as large as a result and where the program runs.
fn take(
    donated: &mut [Option<DonatedMemory>],
    input: Option<usize>,
    bytes: usize,
    device: DeviceId,
) -> Option<DonatedMemory> {
    donated.get_mut(input?)?.take_if(|m| m.len() == bytes && m.device() == device)
}

impl Executable {
    /// Dtypes, shapes and bytes of the results.
    fn result_types(&self, inputs: &[View]) -> Result<Vec<ResultType>, Error> {
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
        Ok(types)
    }
    /// For each result the input whose memory it may have.
    fn aliased(&self, results: usize) -> Vec<Option<usize>> {
        let mut inputs = vec![None; results];
        for alias in &Executable::program(self).aliases {
            if let Some(input) = inputs.get_mut(alias.output) {
                *input = Some(alias.input);
            }
        }
        inputs
    }

    /// Enqueues the program on the stream of a GPU's tensors. Results stay on the GPU.
    fn run_on_device(
        &self,
        (loaded, index): (&cuda::Loaded, usize),
        inputs: &[View],
        donated: &mut [Option<DonatedMemory>],
    ) -> Result<Vec<Array>, Error> {
        let types = self.result_types(inputs)?;
        let aliased = self.aliased(types.len());
        let mut made = Vec::with_capacity(types.len());
        for ((dtype, shape, bytes), from) in types.into_iter().zip(aliased) {
            let memory = match take(donated, from, bytes, DeviceId::Cuda(index)) {
                Some(memory) => Memory::Donated(memory),
                None => Memory::New(DeviceMemory::allocate(index, bytes).map_err(CallError::from)?),
            };
            made.push((dtype, shape, memory));
        }
        let address = |m: &Memory<DeviceMemory>| match m {
            Memory::New(m) => m.address(),
            Memory::Donated(m) => m.address(),
        };
        // SAFETY: memory of that GPU, freed in the order of the stream, which alone uses it; that of
        // an argument is a result's by the program's aliases.
        let mut outputs: Vec<ViewMut> = made
            .iter()
            .map(|(t, shape, m)| unsafe {
                ViewMut::on_cuda(index, t.name(), shape, None, address(m))
            })
            .collect();
        let stream = cuda::tensor_stream(index).map_err(CallError::from)?;
        // SAFETY: the stream lives as long as the process, and the memory of tensors is used on no
        // other.
        unsafe { loaded.launch(inputs, &mut outputs, stream) }?;
        drop(outputs);
        let array = |(dtype, shape, memory): (DType, Vec<usize>, Memory<DeviceMemory>)| {
            Ok(match memory {
                Memory::New(memory) => Array::on_device(dtype, &shape, memory)?,
                Memory::Donated(memory) => memory.into_array(dtype, &shape)?,
            })
        };
        made.into_iter().map(array).collect()
    }
}

impl Runnable for Executable {
    fn run(&self, inputs: &[View]) -> Result<Vec<Array>, Error> {
        self.run_donated(inputs, &mut [])
    }
    fn run_donated(
        &self,
        inputs: &[View],
        donated: &mut [Option<DonatedMemory>],
    ) -> Result<Vec<Array>, Error> {
        if let Some(loaded) = self.cuda()
            && let Some(index) = inputs.iter().find_map(|v| v.device().gpu())
        {
            return self.run_on_device((loaded, index), inputs, donated);
        }
        let types = self.result_types(inputs)?;
        let aliased = self.aliased(types.len());
        let mut made = Vec::with_capacity(types.len());
        for ((dtype, shape, bytes), from) in types.into_iter().zip(&aliased) {
            let memory = match take(donated, *from, bytes, DeviceId::Host) {
                Some(memory) => Memory::Donated(memory),
                None => Memory::New(self.result_memory(bytes)?),
            };
            made.push((dtype, shape, memory));
        }
        let mut outputs = vec![];
        for (dtype, shape, memory) in &mut made {
            outputs.push(match memory {
                Memory::New(buffer) => {
                    let buffer = Arc::get_mut(buffer)
                        .ok_or_else(|| Error::Weight("memory of a result is somebody's".into()))?;
                    ViewMut::new(dtype.name(), shape, buffer.bytes_mut())?
                }
                // SAFETY: as many bytes as the result has, of an argument that the program pairs
                // with it and that nobody else reads.
                Memory::Donated(m) => unsafe {
                    ViewMut::on_host(dtype.name(), shape, m.address() as *mut u8)
                },
            });
        }
        self.call(inputs, &mut outputs)?;
        drop(outputs);
        let array = |((dtype, shape, memory), from): ((DType, Vec<usize>, _), Option<usize>)| {
            Ok(match memory {
                Memory::New(buffer) => {
                    // The next call finds the memory of others in its arguments.
                    if from.is_none() {
                        self.keep_memory(&buffer);
                    }
                    let bytes = Bytes::part_of(buffer.clone(), Buffer::bytes(&buffer));
                    Array::new(dtype, &shape, bytes)?
                }
                Memory::Donated(memory) => memory.into_array(dtype, &shape)?,
            })
        };
        made.into_iter().zip(aliased).map(array).collect()
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
