//! Compiled packages: written of archives, loaded without PyTorch.
use crate::{Program, failure, named};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Compiles an archive of `torch.export.save` to a package that holds its weights; returns how many
/// kernels it has.
#[pyfunction]
pub fn package(
    py: Python<'_>,
    archive: PathBuf,
    output: PathBuf,
    options: Vec<(String, String)>,
) -> PyResult<usize> {
    let options = named(&options)?;
    let write = || -> Result<usize, compiler::Error> {
        let model = compiler::load(archive)?;
        let (mut package, _) = model.build(&options, &|_, _| {})?;
        model.embed_weights(&mut package, &options)?;
        package.save(&output)?;
        Ok(package.program.parts().iter().map(|p| p.kernels.len()).sum())
    };
    py.detach(write).map_err(failure)
}

/// Loads a package, or compiles an archive or IR.
#[pyfunction]
pub fn load(py: Python<'_>, path: PathBuf, options: Vec<(String, String)>) -> PyResult<Program> {
    let options = named(&options)?;
    let exe = py.detach(|| compiler::load(path)?.compile(&options)).map_err(failure)?;
    Ok(Program::new(exe))
}
