//! Loading and saving weights as safetensors files.
use super::{Parameter, WeightsError};
use crate::{capture::weight, runtime::DataError};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Err: a name comes twice.
pub(crate) fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), WeightsError> {
    let mut seen = BTreeSet::new();
    let twice: Vec<String> = names.filter(|n| !seen.insert(*n)).map(str::to_string).collect();
    if twice.is_empty() { Ok(()) } else { Err(WeightsError::Names(twice)) }
}

/// Loads weights by name from a safetensors file, which is memory-mapped. Err: all mismatches at
/// once; no weight is changed then.
pub fn load(parameters: &[&Parameter], path: impl AsRef<Path>) -> Result<(), WeightsError> {
    let path = path.as_ref();
    distinct(parameters.iter().map(|p| p.name()))?;
    let file = path.display().to_string();
    let mut all: BTreeMap<_, _> = weight::open(path).map_err(|e| WeightsError::file(&file, e))?;
    let (mut missing, mut misshapen, mut found) = (vec![], vec![], vec![]);
    for p in parameters {
        match all.remove(p.name()) {
            None => missing.push(p.name().to_string()),
            Some(w) => match p.check_type(w.dtype, &w.shape) {
                Err(e) => misshapen.push(e.to_string()),
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
            .map_err(|e| WeightsError::file(&name, e))?;
    }
    Ok(())
}

/// Saves weights by name to a safetensors file. Err: two weights share a name, or the file cannot
/// be written.
pub fn save(parameters: &[&Parameter], path: impl AsRef<Path>) -> Result<(), WeightsError> {
    let path = path.as_ref();
    distinct(parameters.iter().map(|p| p.name()))?;
    let file = path.display().to_string();
    let fail = |e: DataError| WeightsError::file(&file, e);
    let value = |p: &&Parameter| {
        let named = |e: DataError| fail(e.map(|e| format!("{} {e}", p.name())));
        p.value().map(|v| (p.name().to_string(), v)).map_err(named)
    };
    let all = parameters.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    weight::write(path, &all).map_err(fail)
}
