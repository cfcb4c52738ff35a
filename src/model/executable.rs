//! A compiled and loaded model.
use super::{Error, Options, OwnedTensor, Times, engine::Engine, weights};
use crate::{
    capture::weight::Weight,
    dialects::value::{DType, Tensor},
    runtime::{
        Buffer, CallError, Package, Program, View, ViewMut,
        buffer::vec_of,
        cuda,
        profile::Profile,
        program::Tensor as Spec,
        view::{purpose, tensor_bytes},
    },
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A compiled and loaded model, callable from any thread.
pub struct Executable {
    engine: Engine,
    package: Package,
    threads: usize,
    pub(super) times: Times,
    /// Result buffers kept for reuse; `None` if results are not reused.
    results: Option<Mutex<Vec<Arc<Buffer>>>>,
}

fn views<'a>(
    inputs: &'a [OwnedTensor],
    outputs: &'a mut [OwnedTensor],
) -> Result<(Vec<View<'a>>, Vec<ViewMut<'a>>), CallError> {
    let read = inputs
        .iter()
        .map(|d| View::new(d.dtype.name(), &d.shape, &d.bytes))
        .collect::<Result<_, _>>()?;
    let written = outputs
        .iter_mut()
        .map(|d| ViewMut::new(d.dtype.name(), &d.shape, &mut d.bytes))
        .collect::<Result<_, _>>()?;
    Ok((read, written))
}

/// Maximum number of result buffers kept for reuse.
const RESULTS_KEPT: usize = 64;

impl Executable {
    pub(super) fn link(
        package: Package,
        folder: &Path,
        in_memory_weights: &BTreeMap<String, Weight>,
        options: &Options,
        linker: &cuda::Linker,
        mut times: Times,
        start: Instant,
    ) -> Result<Executable, Error> {
        let sources = weights::Sources { package: &package, folder, in_memory_weights };
        let engine = Engine::link(&sources, options, linker, &mut times)?;
        times.total = start.elapsed();
        Ok(Executable {
            engine,
            package,
            threads: options.threads,
            times,
            results: options.reuse.then(Mutex::default),
        })
    }
    /// The compiled program.
    pub fn program(&self) -> &Program {
        self.engine.program()
    }
    /// The program with its object code, ready to be saved.
    pub fn package(&self) -> &Package {
        &self.package
    }
    /// Time breakdown of the compilation.
    pub fn times(&self) -> &Times {
        &self.times
    }
    /// Bytes of the arena for intermediate buffers, held between calls.
    pub fn arena_bytes(&self) -> usize {
        self.engine.arena_bytes()
    }
    /// Infers the result shapes for these input shapes.
    pub fn output_shapes(&self, inputs: &[&[usize]]) -> Result<Vec<Vec<usize>>, CallError> {
        self.program().output_shapes(inputs)
    }
    /// By how much a call with inputs of these shapes moves the offset of PyTorch's CUDA generator,
    /// whose order the draws have with [`Options::align_random_eager`]; 0 without.
    pub fn rng_increment(&self, inputs: &[&[usize]]) -> Result<u64, CallError> {
        self.program().rng_increment_of(inputs)
    }
    /// Shapes and byte sizes of the results, if all of them are static.
    pub fn fixed_outputs(&self) -> Option<&[(Vec<usize>, usize)]> {
        self.engine.fixed_outputs()
    }
    /// A buffer for a result: a kept buffer of the same size that no caller holds any more, else a
    /// new one.
    pub(crate) fn result_memory(&self, bytes: usize) -> Result<Arc<Buffer>, CallError> {
        if let Some(kept) = &self.results {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(i) =
                kept.iter_mut().position(|b| b.len() == bytes && Arc::get_mut(b).is_some())
            {
                return Ok(kept.swap_remove(i));
            }
        }
        Ok(Arc::new(Buffer::zeroed(bytes).map_err(|e| e.of("a result"))?))
    }
    /// Keeps a result's buffer for reuse.
    pub(crate) fn keep_memory(&self, buffer: &Arc<Buffer>) {
        if let Some(kept) = &self.results {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < RESULTS_KEPT {
                kept.push(buffer.clone());
            }
        }
    }
    /// Allocates result buffers for these inputs, filled with a poison pattern, so that unwritten
    /// elements show.
    pub fn memory(&self, inputs: &[OwnedTensor]) -> Result<Vec<OwnedTensor>, Error> {
        let shapes =
            self.output_shapes(&inputs.iter().map(|d| d.shape.as_slice()).collect::<Vec<_>>())?;
        let make = |(shape, t): (Vec<usize>, &Spec)| {
            let dtype = DType::from_name(&t.dtype)
                .ok_or_else(|| Error::Weight(format!("'{}' is no element type", t.dtype)))?;
            let len = tensor_bytes("output", &t.name, &t.dtype, &shape)?;
            let mut bytes = vec_of(len, || purpose("output", &t.name, &t.dtype, &shape))
                .map_err(CallError::from)?;
            bytes.resize(len, 0xa5);
            Ok(OwnedTensor { bytes, dtype, shape })
        };
        shapes.into_iter().zip(&self.program().outputs).map(make).collect()
    }
    /// Gives results whose sizes depend on data their shapes; [`Executable::memory`] has room for the
    /// largest. The results are those of a call with these inputs.
    pub fn trim(
        &self,
        inputs: &[OwnedTensor],
        outputs: &mut [OwnedTensor],
    ) -> Result<(), CallError> {
        let this = self.program();
        if this.unbacked.is_empty() {
            return Ok(());
        }
        let value = |u: &crate::runtime::program::Unbacked| {
            let bytes = outputs.get(u.output?)?.bytes.get(..8)?;
            bytes.try_into().ok().map(i64::from_ne_bytes)
        };
        let values: Vec<Option<i64>> = this.unbacked.iter().map(value).collect();
        let given: Vec<&[usize]> = inputs.iter().map(|d| d.shape.as_slice()).collect();
        let shapes = this.output_shapes_of(&given, &values)?;
        for ((output, shape), t) in outputs.iter_mut().zip(shapes).zip(&this.outputs) {
            output.bytes.truncate(tensor_bytes("output", &t.name, &t.dtype, &shape)?);
            output.shape = shape;
        }
        Ok(())
    }
    /// As [`Executable::call`], with the time of each launch of [`Program::kernels`], including the
    /// barrier after it.
    pub fn profile(
        &self,
        inputs: &[OwnedTensor],
        outputs: &mut [OwnedTensor],
    ) -> Result<Profile, CallError> {
        let (inputs, mut outputs) = views(inputs, outputs)?;
        self.engine.profile(&inputs, &mut outputs, self.threads)
    }
    /// As [`Executable::call`], on owned tensors.
    pub fn call_data(
        &self,
        inputs: &[OwnedTensor],
        outputs: &mut [OwnedTensor],
    ) -> Result<(), CallError> {
        let (inputs, mut outputs) = views(inputs, outputs)?;
        self.call(&inputs, &mut outputs)
    }
    /// As [`Executable::call_data`], for `rounds` rounds; returns the time of each. On a GPU a
    /// round is the mean of `calls` runs, timed by device events without host overhead. On the host
    /// a round is one whole call.
    pub fn measure(
        &self,
        inputs: &[OwnedTensor],
        outputs: &mut [OwnedTensor],
        rounds: usize,
        calls: usize,
    ) -> Result<Vec<Duration>, CallError> {
        let (inputs, mut outputs) = views(inputs, outputs)?;
        self.engine.measure(&inputs, &mut outputs, self.threads, (rounds, calls))
    }
    /// The GPU that it runs on; `None` on the host.
    pub fn device_info(&self) -> Option<&cuda::DeviceInfo> {
        self.cuda().map(|l| l.device().info())
    }
    /// The program on a GPU, for calls on a caller's stream; none if it runs on the host.
    pub fn cuda(&self) -> Option<&cuda::Loaded> {
        self.engine.cuda()
    }
    /// Runs the program on values; for tests and tools, since values are copied both ways.
    pub fn call_values(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>, Error> {
        let inputs: Vec<OwnedTensor> = inputs.iter().map(|t| OwnedTensor::from_tensor(t)).collect();
        let mut outputs = self.memory(&inputs)?;
        self.call_data(&inputs, &mut outputs)?;
        self.trim(&inputs, &mut outputs)?;
        outputs.iter().map(|d| Ok(d.tensor()?)).collect()
    }
    /// Indices of the inputs that a call copies first, since their strides do not match the
    /// compiled layout. [`Options::orders`] changes that layout.
    pub fn copied(&self, inputs: &[View]) -> Vec<usize> {
        self.program().copied(inputs)
    }
    /// Runs the program and writes the results to `outputs`. Err: dtypes, shapes or strides do not
    /// match, a runtime check fails, or the device fails.
    pub fn call(&self, inputs: &[View], outputs: &mut [ViewMut]) -> Result<(), CallError> {
        self.engine.call(inputs, outputs, self.threads)
    }
}
