//! Inputs of a call: from a file, or random.
use super::CliError;
use crate::{
    capture::weight,
    model::{OwnedTensor, random_inputs},
    runtime::{DataError, Program},
};
use std::path::Path;

/// Reads `input_0`, `input_1`, … of a file, with their stored dtypes and shapes.
pub fn read(path: &Path) -> Result<Vec<OwnedTensor>, CliError> {
    let fail = |e: DataError| CliError::usage(format!("{}: {e}", path.display()));
    let mut found: Vec<(usize, OwnedTensor)> = vec![];
    for (name, w) in weight::open(path).map_err(fail)? {
        let Some(n) = name.strip_prefix("input_").and_then(|n| n.parse().ok()) else { continue };
        found.push((
            n,
            OwnedTensor {
                bytes: w.elements().map_err(fail)?.into_owned(),
                dtype: w.dtype,
                shape: w.shape,
            },
        ));
    }
    found.sort_by_key(|(n, _)| *n);
    Ok(found.into_iter().map(|(_, d)| d).collect())
}

/// Random inputs.
pub fn random(program: &Program) -> Result<Vec<OwnedTensor>, CliError> {
    Ok(random_inputs(program)?)
}
