//! Memory of a program's globals: memory-mapped where the file has the layout that the program
//! reads, else copied.
use crate::{
    capture::{
        pt2,
        weight::{self, Weight},
    },
    runtime::{Bytes, DataError, Package, program::Global},
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Weight files, each opened once.
type Files = HashMap<PathBuf, BTreeMap<String, Weight>>;

/// Where to look for weights.
pub struct Sources<'a> {
    /// The package, which may embed weights.
    pub package: &'a Package,
    /// Base directory of relative paths: the model's, or [`Options::weights`](super::Options).
    pub folder: &'a Path,
    /// In-memory weights, by global name.
    pub in_memory_weights: &'a BTreeMap<String, Weight>,
}

/// Resolves weights.
pub struct Finder<'a> {
    sources: Sources<'a>,
    files: Files,
}

impl<'a> Sources<'a> {
    /// Creates a resolver; dropping it closes the files.
    pub fn finder(&self) -> Finder<'a> {
        Finder { sources: Sources { ..*self }, files: Files::default() }
    }
}

impl Finder<'_> {
    /// The bytes of a weight, without a copy if they can be read in place. Err: the weight is
    /// missing, or its type differs.
    pub fn find(&mut self, g: &Global) -> Result<Bytes, DataError> {
        global(g, &self.sources, &mut self.files)
    }
}

fn global(g: &Global, sources: &Sources, files: &mut Files) -> Result<Bytes, DataError> {
    if let Some(weight) = sources.in_memory_weights.get(&g.name) {
        return elements(g, weight);
    }
    if sources.package.weights.contains_key(&g.name) {
        return sources.package.weight(g);
    }
    let (file, name) = g.source.split_once('#').unwrap_or((&g.source, &g.name));
    let path = sources.folder.join(file);
    if !files.contains_key(&path) {
        let all = if path.extension().is_some_and(|e| e == "pt2") {
            pt2::weights(&path).map_err(DataError::file)
        } else {
            weight::open(&path).map_err(|e| e.map(|e| format!("{}: {e}", path.display())))
        };
        let all = all.map_err(|e| match path.exists() {
            true => e,
            false => DataError::Missing(not_found(file, sources.folder)),
        })?;
        files.insert(path.clone(), all);
    }
    let found = files.get(&path).and_then(|all| all.get(name));
    let weight = found
        .ok_or_else(|| DataError::Missing(format!("{} has no weight '{name}'", path.display())))?;
    elements(g, weight)
}

/// Error message for a missing weight file, with the places searched.
fn not_found(file: &str, folder: &Path) -> String {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
    format!(
        "'{file}' is not in {}; option weights (KILN_WEIGHTS) names the folder to look in",
        folder.display()
    )
}

/// A weight's bytes, without a copy if they can be read in place.
fn elements(g: &Global, weight: &Weight) -> Result<Bytes, DataError> {
    same(g, weight.dtype.name(), &weight.shape)?;
    match weight.elements()? {
        Cow::Borrowed(bytes) if bytes.as_ptr().addr().is_multiple_of(8) => {
            Ok(Bytes::part_of(Arc::new(weight.clone()), bytes))
        }
        bytes => Ok(Bytes::copied(&bytes)?),
    }
}

fn same(g: &Global, dtype: &str, shape: &[usize]) -> Result<(), DataError> {
    let sizes = shape.iter().map(|n| *n as u64);
    if g.dtype == dtype && g.shape.iter().copied().eq(sizes) {
        return Ok(());
    }
    Err(DataError::Mismatch(format!(
        "is {dtype} {shape:?} in its file, the program takes {} {:?}",
        g.dtype, g.shape
    )))
}
