//! The compiled half of `kiln_torch`: compiles graphs and calls them on tensors by pointer.
use compiler::{Error, Exit, Model, Options, capture::CaptureError, capture::aten};
use kiln_runtime::{View, ViewMut, view::byte_size};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::PyBytes,
};

pyo3::create_exception!(_kiln, CompileError, PyRuntimeError, "A graph that kiln cannot compile.");
pyo3::create_exception!(
    _kiln,
    UnsupportedError,
    CompileError,
    "A graph with ops or arguments that kiln does not support: (message, overloads)."
);

/// A compiled graph.
#[pyclass(frozen)]
struct Program {
    exe: compiler::Executable,
}

/// A tensor as PyTorch describes it: address, sizes, strides in elements.
type Tensor = (usize, Vec<usize>, Vec<isize>);

fn failure(e: Error) -> PyErr {
    let message = e.to_string();
    match &e {
        Error::Capture(CaptureError::Unsupported(all)) => {
            let names: Vec<String> = all.iter().map(|u| u.target.clone()).collect();
            UnsupportedError::new_err((message, names))
        }
        Error::Capture(CaptureError::Op { target, .. }) => {
            UnsupportedError::new_err((message, vec![target.clone()]))
        }
        _ if e.exit() == Exit::Unsupported => {
            UnsupportedError::new_err((message, Vec::<String>::new()))
        }
        _ => CompileError::new_err(message),
    }
}

#[pymethods]
impl Program {
    /// Compiles a graph, given as JSON. `options`: names of `kiln options` with their values.
    #[staticmethod]
    fn compile(
        py: Python<'_>,
        json: &Bound<'_, PyBytes>,
        options: Vec<(String, String)>,
    ) -> PyResult<Program> {
        let named = options.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let options = Options::named(named).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let json = json.as_bytes().to_vec();
        let exe = py.detach(move || Model::from_fx(json).compile(&options)).map_err(failure)?;
        Ok(Program { exe })
    }
    /// The element types of the results, in MLIR's names, and their sizes where all are static.
    fn outputs(&self) -> Vec<(String, Option<Vec<usize>>)> {
        let fixed = self.exe.fixed_outputs();
        let size = |i: usize| fixed.and_then(|all| all.get(i)).map(|(shape, _)| shape.clone());
        let all = self.exe.program().outputs.iter().enumerate();
        all.map(|(i, t)| (t.dtype.clone(), size(i))).collect()
    }
    /// The sizes of the results for inputs of these sizes.
    fn output_sizes(&self, inputs: Vec<Vec<usize>>) -> PyResult<Vec<Vec<usize>>> {
        let inputs: Vec<&[usize]> = inputs.iter().map(Vec::as_slice).collect();
        self.exe.output_shapes(&inputs).map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }
    /// Number of kernels.
    fn kernels(&self) -> usize {
        self.exe.program().kernels.len()
    }
    /// Runs the program on host tensors. Outputs are row-major.
    fn call(&self, py: Python<'_>, inputs: Vec<Tensor>, outputs: Vec<Tensor>) -> PyResult<()> {
        let program = self.exe.program();
        let wrong = |what: &str, given: usize, wanted: usize| {
            Err(PyRuntimeError::new_err(format!("the graph takes {wanted} {what}, given {given}")))
        };
        if inputs.len() != program.inputs.len() {
            return wrong("inputs", inputs.len(), program.inputs.len());
        }
        if outputs.len() != program.outputs.len() {
            return wrong("outputs", outputs.len(), program.outputs.len());
        }
        let done = py.detach(|| {
            let read: Vec<View> = inputs
                .iter()
                .zip(&program.inputs)
                // SAFETY: kiln_torch passes live tensors of the dtypes that the graph states.
                .map(|((data, shape, strides), t)| unsafe {
                    View::strided(&t.dtype, shape, strides, *data as *const u8)
                })
                .collect();
            let mut written = vec![];
            for ((data, shape, _), t) in outputs.iter().zip(&program.outputs) {
                let len = shape.iter().product::<usize>() * byte_size(&t.dtype).unwrap_or(0);
                let data = if len == 0 { std::ptr::dangling_mut() } else { *data as *mut u8 };
                // SAFETY: as above; they were allocated for this call, row-major.
                let bytes = unsafe { std::slice::from_raw_parts_mut(data, len) };
                written.push(ViewMut::new(&t.dtype, shape, bytes)?);
            }
            self.exe.call(&read, &mut written)
        });
        done.map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }
}

/// Whether the ATen table has an overload, such as `aten.add.Tensor`.
#[pyfunction]
fn supports(target: &str) -> bool {
    aten::find(target).is_some()
}

#[pymodule]
fn _kiln(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Program>()?;
    m.add_function(wrap_pyfunction!(supports, m)?)?;
    m.add("CompileError", m.py().get_type::<CompileError>())?;
    m.add("UnsupportedError", m.py().get_type::<UnsupportedError>())?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}
