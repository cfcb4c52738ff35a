//! Loading and saving weights as safetensors files.
use super::Parameter;
use crate::{capture::weight, passes::names::nearest};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Why weights could not be loaded or saved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WeightsError {
    /// The file is malformed.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// The file's tensors do not match the module's weights.
    #[error("{file} does not fit: {}", summary(.missing, .unexpected, .misshapen))]
    Mismatch {
        /// The file.
        file: String,
        /// Weights of the module that the file lacks, in the module's order.
        missing: Vec<String>,
        /// Tensors of the file that the module lacks.
        unexpected: Vec<String>,
        /// Messages about tensors of another dtype or shape.
        misshapen: Vec<String>,
    },
    /// Two weights of the module share a name.
    #[error("two weights are called {}", .0.join(", "))]
    Names(Vec<String>),
}

fn summary(missing: &[String], unexpected: &[String], misshapen: &[String]) -> String {
    let hint = |name: &String| match nearest(name, unexpected.iter().map(String::as_str)) {
        Some(near) => format!("{name} (there is {near})"),
        None => name.clone(),
    };
    let mut parts = vec![];
    if !missing.is_empty() {
        parts.push(format!("it lacks {}", missing.iter().map(hint).collect::<Vec<_>>().join(", ")));
    }
    if !unexpected.is_empty() {
        parts.push(format!("nothing takes {}", unexpected.join(", ")));
    }
    parts.extend(misshapen.iter().cloned());
    parts.join("; ")
}

fn distinct(parameters: &[&Parameter]) -> Result<(), WeightsError> {
    let mut seen = BTreeSet::new();
    let twice: Vec<String> = parameters
        .iter()
        .map(|p| p.name())
        .filter(|n| !seen.insert(*n))
        .map(str::to_string)
        .collect();
    if twice.is_empty() { Ok(()) } else { Err(WeightsError::Names(twice)) }
}

/// Loads weights by name from a safetensors file, which is memory-mapped. Err: all mismatches at
/// once; no weight is changed then.
pub fn load(parameters: &[&Parameter], path: impl AsRef<Path>) -> Result<(), WeightsError> {
    let path = path.as_ref();
    distinct(parameters)?;
    let file = path.display().to_string();
    let mut all: BTreeMap<_, _> =
        weight::open(path).map_err(|reason| WeightsError::File { file: file.clone(), reason })?;
    let (mut missing, mut misshapen, mut found) = (vec![], vec![], vec![]);
    for p in parameters {
        match all.remove(p.name()) {
            None => missing.push(p.name().to_string()),
            Some(w) => match p.fits(&w) {
                Err(e) => misshapen.push(e),
                Ok(()) => found.push((p, w)),
            },
        }
    }
    let unexpected: Vec<String> = all.into_keys().collect();
    if !(missing.is_empty() && unexpected.is_empty() && misshapen.is_empty()) {
        return Err(WeightsError::Mismatch { file, missing, unexpected, misshapen });
    }
    let name = path.file_name().map_or(file, |f| f.to_string_lossy().into_owned());
    for (p, w) in found {
        p.store(w, Some(format!("{name}#{}", p.name())))
            .map_err(|reason| WeightsError::File { file: name.clone(), reason })?;
    }
    Ok(())
}

/// Saves weights by name to a safetensors file. Err: two weights share a name, or the file cannot
/// be written.
pub fn save(parameters: &[&Parameter], path: impl AsRef<Path>) -> Result<(), WeightsError> {
    let path = path.as_ref();
    distinct(parameters)?;
    let fail = |reason: String| WeightsError::File { file: path.display().to_string(), reason };
    let value = |p: &&Parameter| {
        p.value().map(|v| (p.name().to_string(), v)).map_err(|e| fail(format!("{} {e}", p.name())))
    };
    let all = parameters.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    weight::write(path, &all).map_err(fail)
}
