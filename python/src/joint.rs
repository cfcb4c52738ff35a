//! Forward and backward programs of a graph without gradients.
use crate::failure;
use compiler::{
    Model,
    model::{JointOptions, Saved},
    passes::{autocast::Lower, options::OptionValue},
};
use kiln_runtime::program::PassRemark;
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict},
};
use std::collections::BTreeMap;

/// A forward or a backward graph.
#[pyclass(frozen, module = "kiln_torch._kiln")]
pub struct Part {
    pub model: Model,
}

/// A remark of a pass: its text, and the source location of the op.
type Remark = (String, String);

/// Makes a part again: IR and remarks.
type Remake<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, Vec<Remark>));

#[pymethods]
impl Part {
    /// A part of what `__reduce__` gives.
    #[staticmethod]
    fn of(ir: Vec<u8>, remarks: Vec<Remark>) -> Part {
        let remarks = remarks.into_iter().map(|(text, source)| PassRemark { text, source });
        Part { model: Model::from_ir(ir, remarks.collect()) }
    }
    /// For pickle. Err: the model has weights in memory.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Remake<'py>> {
        let no_ir = || PyValueError::new_err("the model has weights in memory");
        let (ir, remarks) = self.model.ir().ok_or_else(no_ir)?;
        let remarks = remarks.iter().map(|r| (r.text.clone(), r.source.clone())).collect();
        let of = py.get_type::<Part>().getattr("of")?;
        Ok((of, (PyBytes::new(py, ir), remarks)))
    }
}

/// A saved value: `("argument", index)`, `("result", index)` or `("value", dtype, shape)`.
fn described<'py>(py: Python<'py>, saved: &Saved) -> PyResult<Bound<'py, PyAny>> {
    let tuple = match saved {
        Saved::Argument(k) => ("argument", *k).into_pyobject(py)?,
        Saved::Result(k) => ("result", *k).into_pyobject(py)?,
        Saved::Value(dtype, shape) => ("value", dtype.name(), shape.clone()).into_pyobject(py)?,
    };
    Ok(tuple.into_any())
}

/// Differentiates a graph, given as JSON, by arguments `wrt`, with cotangents of `results`, and
/// partitions it at a budget from 0 to 1. `autocast`: as the option of that name.
///
/// Returns a dict: `forward` and `backward`, each a [`Part`]; `saved`, what the second takes before
/// the cotangents; and `bytes`, of saved values.
#[pyfunction]
pub fn joint<'py>(
    py: Python<'py>,
    json: &Bound<'_, PyBytes>,
    wrt: Vec<usize>,
    results: Vec<usize>,
    budget: f64,
    autocast: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let json = json.as_bytes().to_vec();
    let autocast = Lower::parse(autocast).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let options = JointOptions { wrt, results, budget, autocast };
    let made = py
        .detach(move || Model::from_fx(json, BTreeMap::new()).joint(&options))
        .map_err(failure)?;
    let out = PyDict::new(py);
    let saved = made.saved.iter().map(|s| described(py, s)).collect::<PyResult<Vec<_>>>()?;
    out.set_item("saved", saved)?;
    out.set_item("bytes", made.bytes)?;
    out.set_item("forward", Part { model: made.forward }.into_pyobject(py)?)?;
    out.set_item("backward", Part { model: made.backward }.into_pyobject(py)?)?;
    Ok(out)
}
