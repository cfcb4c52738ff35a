//! The compiled half of `kiln_torch`: compiles graphs and calls them on tensors by pointer.
mod joint;
mod package;
mod tensors;

use compiler::{
    Error, Model, Options,
    capture::{CaptureError, aten, weight::Weight},
    dialects::value::DType,
    model::Donation,
};
use joint::Part;
use kiln_runtime::{
    CallError, Pool, View, ViewMut,
    cuda::Stream,
    pool::{OpenMp, Parallel},
    program::{Dim, PassRemark},
    view::byte_size,
};
use pyo3::{
    exceptions::{PyIndexError, PyRuntimeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyList},
};
use std::{collections::BTreeMap, ffi::c_void};
use tensors::{Tensor, arrays, objects, tensors};

pyo3::create_exception!(_kiln, CompileError, PyRuntimeError, "A graph that kiln cannot compile.");
pyo3::create_exception!(
    _kiln,
    UnsupportedError,
    CompileError,
    "A graph with ops or arguments that kiln does not support: (message, overloads or nodes, reason)."
);

/// A compiled graph.
#[pyclass(frozen, weakref)]
struct Program {
    exe: compiler::Executable,
    /// Bits of an element of each input, if they are known.
    bits: Vec<Option<usize>>,
}

/// A launch's kernel: its name, its strategy, its ops.
type Launch = (String, String, Vec<String>);

/// The shapes of a program's results, and the bytes of its workspace.
type Allocation = (Vec<Vec<usize>>, usize);

fn failure(e: Error) -> PyErr {
    let message = e.to_string();
    match &e {
        Error::Capture(CaptureError::Unsupported(all)) => {
            let names: Vec<String> = all.iter().map(|u| u.target.clone()).collect();
            UnsupportedError::new_err((message, names, "is not in the ATen table"))
        }
        Error::Capture(CaptureError::Op { node, reason, .. }) => {
            // Of several results the name has a number.
            let node = node.split('#').next().unwrap_or_default().to_string();
            UnsupportedError::new_err((message, vec![node], reason.clone()))
        }
        _ => CompileError::new_err(message),
    }
}

fn failed(e: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(e.to_string())
}

/// Options by name, as text.
fn named(options: &[(String, String)]) -> PyResult<Options> {
    let named = options.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Options::named(named).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// What the memory of donated inputs may be used for: intermediate values, or one result.
fn donations(donated: BTreeMap<usize, Option<usize>>) -> BTreeMap<usize, Donation> {
    let of = |result: Option<usize>| result.map_or(Donation::Intermediates, Donation::Update);
    donated.into_iter().map(|(input, result)| (input, of(result))).collect()
}

/// A copy of a row-major tensor of the host.
fn weight(dtype: &str, tensor: &Bound<'_, PyAny>) -> PyResult<Weight> {
    let dtype = DType::from_name(dtype).ok_or_else(|| failed("no element type"))?;
    let t = Tensor::of(tensor)?;
    let len = t.shape().iter().product::<usize>() * dtype.byte_size();
    let data = if len == 0 { std::ptr::dangling() } else { t.data as *const u8 };
    // SAFETY: a live tensor of this dtype, row-major.
    let bytes = unsafe { std::slice::from_raw_parts(data, len) };
    Weight::of_bytes(dtype, t.shape().to_vec(), bytes).map_err(failed)
}

impl Program {
    fn of(model: &Model, options: &Options) -> PyResult<Program> {
        let exe = model.compile(options).map_err(failure)?;
        if let Some(why) = exe.cuda().and_then(|loaded| loaded.needs_own_memory()) {
            return Err(CompileError::new_err(format!("the program {why}")));
        }
        Ok(Program::new(exe))
    }
    fn new(exe: compiler::Executable) -> Program {
        let inputs = exe.program().inputs.iter();
        let bits = inputs.map(|t| Some(8 * byte_size(&t.dtype)?)).collect();
        Program { exe, bits }
    }
    /// Whether tensors have elements as wide as the program's inputs. Others would be read beyond
    /// their end: what an op states may differ from what it gives.
    fn check_widths(&self, inputs: &[Tensor]) -> PyResult<()> {
        let wrong =
            |(t, bits): (&Tensor, &Option<usize>)| t.bits.zip(*bits).is_some_and(|(a, b)| a != b);
        let Some(i) = inputs.iter().zip(&self.bits).position(wrong) else { return Ok(()) };
        let (bits, dtype) = (inputs[i].bits.unwrap_or(0), &self.exe.program().inputs[i].dtype);
        Err(failed(format!("input {i} has elements of {bits} bits, the graph takes {dtype}")))
    }
    fn cuda(&self) -> PyResult<&kiln_runtime::cuda::Loaded> {
        self.exe.cuda().ok_or_else(|| PyRuntimeError::new_err("the program is for a processor"))
    }
}

#[pymethods]
impl Program {
    /// Compiles a graph, given as JSON. `options`: names of `kiln options` with their values.
    /// `orders`: the inputs that are not row-major, with their dimensions, outermost in memory
    /// first. `weights`: the frozen parameters by name, as row-major tensors of the host with their
    /// dtypes. `donated`: the inputs that a call may overwrite, each with the result that is its new
    /// value, if one is.
    #[staticmethod]
    fn compile(
        py: Python<'_>,
        json: &Bound<'_, PyBytes>,
        options: Vec<(String, String)>,
        orders: BTreeMap<usize, Vec<usize>>,
        weights: Vec<(String, String, Bound<'_, PyAny>)>,
        donated: BTreeMap<usize, Option<usize>>,
    ) -> PyResult<Program> {
        let donated = donations(donated);
        let options = Options { orders, donated, ..named(&options)? };
        let json = json.as_bytes().to_vec();
        let held = weights.iter().map(|(name, dtype, t)| Ok((name.clone(), weight(dtype, t)?)));
        let held = held.collect::<PyResult<BTreeMap<String, Weight>>>()?;
        py.detach(move || Program::of(&Model::from_fx(json, held), &options))
    }
    /// Compiles a part of a joint graph; as [`Program::compile`].
    #[staticmethod]
    fn compile_part(
        py: Python<'_>,
        part: &Part,
        options: Vec<(String, String)>,
        orders: BTreeMap<usize, Vec<usize>>,
        donated: BTreeMap<usize, Option<usize>>,
    ) -> PyResult<Program> {
        let donated = donations(donated);
        let options = Options { orders, donated, ..named(&options)? };
        py.detach(|| Program::of(&part.model, &options))
    }
    /// The element types of the results, in MLIR's names, and their sizes where all are static.
    fn outputs(&self) -> Vec<(String, Option<Vec<usize>>)> {
        let fixed = self.exe.fixed_outputs();
        let size = |i: usize| fixed.and_then(|all| all.get(i)).map(|(shape, _)| shape.clone());
        let all = self.exe.program().outputs.iter().enumerate();
        all.map(|(i, t)| (t.dtype.clone(), size(i))).collect()
    }
    /// The sizes of the results for these inputs.
    fn output_sizes(&self, inputs: &Bound<'_, PyList>) -> PyResult<Vec<Vec<usize>>> {
        let held = objects(inputs);
        let inputs = tensors(&held)?;
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        self.exe.output_shapes(&shapes).map_err(failed)
    }
    /// What a call on a GPU allocates for inputs of these shapes.
    fn allocation(&self, shapes: Vec<Vec<usize>>) -> PyResult<Allocation> {
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let made = self.cuda()?.allocation(&shapes).map_err(failed)?;
        Ok((made.outputs, made.workspace))
    }
    /// Enqueues the program on a stream of its GPU, and returns nothing; or returns the inputs that
    /// must be copied first, since kernels cannot read them in place.
    ///
    /// A program with functions of the host waits for the GPU. Other threads run meanwhile.
    fn launch(
        &self,
        py: Python<'_>,
        inputs: &Bound<'_, PyList>,
        outputs: &Bound<'_, PyList>,
        workspace: u64,
        stream: usize,
    ) -> PyResult<Vec<usize>> {
        let loaded = self.cuda()?;
        let (gpu, program) = (loaded.device().info().index, loaded.program());
        let (held, made) = (objects(inputs), objects(outputs));
        let (inputs, outputs) = (tensors(&held)?, tensors(&made)?);
        self.check_widths(&inputs)?;
        if inputs.len() == program.inputs.len() {
            let all = inputs.iter().zip(&program.inputs).enumerate();
            let misplaced: Vec<usize> = all
                .filter(|(_, (t, want))| !t.is_placed(gpu, &want.order))
                .map(|(i, _)| i)
                .collect();
            if !misplaced.is_empty() {
                return Ok(misplaced);
            }
        }
        let addresses = |all: &[Tensor]| all.iter().map(|t| t.data as u64).collect::<Vec<u64>>();
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let (read, written) = (addresses(&inputs), addresses(&outputs));
        // SAFETY: live tensors of the dtypes that the graph states and of the shapes that were
        // asked for, and PyTorch's stream, which orders their uses.
        let launch = || unsafe {
            let stream = Stream::from_raw(stream as *mut c_void);
            loaded.launch_in(&shapes, &read, &written, workspace, stream)
        };
        let launched = if loaded.calls_host() { py.detach(launch) } else { launch() };
        launched.map_err(failed)?;
        Ok(vec![])
    }
    /// Whether a call on a GPU waits for functions of the host, which no CUDA graph can hold.
    fn calls_host(&self) -> bool {
        self.exe.cuda().is_some_and(|loaded| loaded.calls_host())
    }
    /// Whether a call on a GPU was launched as a CUDA graph of kiln's own.
    fn used_graphs(&self) -> bool {
        self.exe.cuda().is_some_and(|loaded| loaded.used_graphs())
    }
    /// What passes did or missed, and what does not run on the GPU as planned, and why.
    fn remarks(&self) -> Vec<String> {
        let placed = |r: &PassRemark| match r.source.is_empty() {
            true => r.text.clone(),
            false => format!("{} ({})", r.text, r.source),
        };
        let passes = self.exe.program().remarks.iter().map(placed);
        passes.chain(self.exe.cuda().map(|loaded| loaded.remarks()).unwrap_or_default()).collect()
    }
    /// The inputs that are not taken row-major, with the order of their dimensions, outermost in
    /// memory first.
    fn orders(&self) -> BTreeMap<usize, Vec<usize>> {
        let all = self.exe.program().inputs.iter().enumerate();
        all.filter(|(_, t)| !t.order.is_empty()).map(|(i, t)| (i, t.order.clone())).collect()
    }
    /// The inputs that a call overwrites.
    fn overwrites(&self) -> Vec<usize> {
        self.exe.program().overwrites.clone()
    }
    /// The results that a call may write to the memory of an input, each with that input.
    fn aliases(&self) -> BTreeMap<usize, usize> {
        self.exe.program().aliases.iter().map(|a| (a.output, a.input)).collect()
    }
    /// Number of inputs: the graph's, and the generator state if the program draws random numbers.
    fn inputs(&self) -> usize {
        self.exe.program().inputs.len()
    }
    /// By how much a call with inputs of these shapes moves the offset of PyTorch's CUDA generator,
    /// if draws follow it.
    fn rng_increment(&self, shapes: Vec<Vec<usize>>) -> PyResult<u64> {
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        self.exe.rng_increment(&shapes).map_err(failed)
    }
    /// Whether draws follow PyTorch's CUDA generator, also those that nothing reads.
    fn moves_generator(&self) -> bool {
        self.exe.program().rng_increment != Dim::Known(0)
    }
    /// Number of kernels.
    fn kernels(&self) -> usize {
        self.exe.program().kernels.len()
    }
    /// The launches in order, with those of programs that control flow calls.
    fn launches(&self) -> Vec<Launch> {
        let all = self.exe.program().parts().into_iter().flat_map(|p| &p.kernels);
        all.map(|k| (k.name.clone(), k.kind.clone(), k.ops.clone())).collect()
    }
    /// The launches and the data flow between them, as SVG.
    fn svg(&self) -> String {
        compiler::dump::svg(self.exe.program(), &[])
    }
    /// Runs the program on host tensors. Outputs are row-major.
    fn call(
        &self,
        py: Python<'_>,
        inputs: &Bound<'_, PyList>,
        outputs: &Bound<'_, PyList>,
    ) -> PyResult<()> {
        let (held, made) = (objects(inputs), objects(outputs));
        self.run(py, &tensors(&held)?, &tensors(&made)?)
    }
    /// The same on NumPy's arrays, which are row-major.
    fn call_arrays(
        &self,
        py: Python<'_>,
        inputs: &Bound<'_, PyList>,
        outputs: &Bound<'_, PyList>,
    ) -> PyResult<()> {
        let (held, made) = (objects(inputs), objects(outputs));
        self.run(py, &arrays(&held)?, &arrays(&made)?)
    }
    /// The names, element types and sizes of the inputs; None where a size is dynamic.
    fn signature(&self) -> Vec<(String, String, Vec<Option<usize>>)> {
        let size = |n: &Dim| match n {
            Dim::Known(n) => usize::try_from(*n).ok(),
            _ => None,
        };
        let all = self.exe.program().inputs.iter();
        all.map(|t| (t.name.clone(), t.dtype.clone(), t.dims.iter().map(size).collect())).collect()
    }
    /// The sizes of the results for inputs of these shapes.
    fn shapes(&self, inputs: Vec<Vec<usize>>) -> PyResult<Vec<Vec<usize>>> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
        self.exe.output_shapes(&shapes).map_err(failed)
    }
    /// Whether it is for a GPU.
    fn on_gpu(&self) -> bool {
        self.exe.cuda().is_some()
    }
}

impl Program {
    /// Runs the program on live host tensors of the dtypes that it states. Outputs are row-major.
    fn run(&self, py: Python<'_>, inputs: &[Tensor], outputs: &[Tensor]) -> PyResult<()> {
        let program = self.exe.program();
        for (what, given, wanted) in [
            ("inputs", inputs.len(), program.inputs.len()),
            ("outputs", outputs.len(), program.outputs.len()),
        ] {
            if given != wanted {
                return Err(failed(format!("the graph takes {wanted} {what}, given {given}")));
            }
        }
        self.check_widths(inputs)?;
        if inputs.iter().chain(outputs).any(|t| t.gpu.is_some()) {
            return Err(failed("the program is for a processor, a tensor is on a GPU"));
        }
        let done = py.detach(|| {
            let read: Vec<View> = inputs
                .iter()
                .zip(&program.inputs)
                // SAFETY: live tensors of the dtype that the graph states.
                .map(|(v, t)| unsafe {
                    View::strided(&t.dtype, v.shape(), v.strides(), v.data as *const u8)
                })
                .collect();
            let all = outputs.iter().zip(&program.outputs);
            let data = |v: &Tensor| match v.data == 0 {
                true => std::ptr::dangling_mut(),
                false => v.data as *mut u8,
            };
            // SAFETY: as above; they were allocated for this call, row-major, or are inputs by the
            // program's aliases.
            let mut written: Vec<ViewMut> = all
                .map(|(v, t)| unsafe { ViewMut::on_host(&t.dtype, v.shape(), data(v)) })
                .collect();
            self.exe.call(&read, &mut written)
        });
        done.map_err(|e| match e {
            CallError::Index { .. } => PyIndexError::new_err(e.to_string()),
            other => failed(other),
        })
    }
}

/// Whether the ATen table has an overload, such as `aten.add.Tensor`.
#[pyfunction]
fn supports(target: &str) -> bool {
    aten::find(target).is_some()
}

/// Runs parallel regions on the threads of an OpenMP runtime, of which these are `GOMP_parallel`,
/// `omp_get_thread_num` and `omp_get_num_threads`; 0: on kiln's own. Returns whether on the
/// runtime's.
#[pyfunction]
fn share_openmp(parallel: usize, thread_num: usize, num_threads: usize) -> bool {
    let all = [parallel, thread_num, num_threads];
    // SAFETY: `threads.py` takes the three from one loaded library, which PyTorch keeps.
    unsafe {
        Pool::share((!all.contains(&0)).then(|| OpenMp {
            parallel: std::mem::transmute::<usize, Parallel>(parallel),
            thread_num: std::mem::transmute::<usize, extern "C" fn() -> i32>(thread_num),
            num_threads: std::mem::transmute::<usize, extern "C" fn() -> i32>(num_threads),
        }))
    }
}

#[pymodule]
fn _kiln(m: &Bound<'_, PyModule>) -> PyResult<()> {
    // Children that are forked before the first region have no threads of their parent's either.
    Pool::expect_forks();
    m.add_class::<Program>()?;
    m.add_class::<joint::Part>()?;
    m.add_function(wrap_pyfunction!(joint::joint, m)?)?;
    m.add_function(wrap_pyfunction!(supports, m)?)?;
    m.add_function(wrap_pyfunction!(share_openmp, m)?)?;
    m.add_function(wrap_pyfunction!(package::package, m)?)?;
    m.add_function(wrap_pyfunction!(package::load, m)?)?;
    m.add("CompileError", m.py().get_type::<CompileError>())?;
    m.add("UnsupportedError", m.py().get_type::<UnsupportedError>())?;
    m.add("__build__", compiler::model::BUILD)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}
