//! Reading and writing safetensors files.
use super::OptError;
use crate::capture::weight::{dtype, stored};
use crate::dialects::value::Tensor;
use crate::runtime::{file, package::MAX_BYTES};
use safetensors::{SafeTensors, tensor::TensorView};
use std::{collections::BTreeMap, path::Path};

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// Reads the tensors of a file that satisfy `wanted`.
pub fn read(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Tensors, OptError> {
    let bytes = file::read(path, MAX_BYTES).map_err(|e| OptError::file(path, e))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|e| OptError::file(path, format!("is no safetensors file: {e}")))?;
    let mut all = Tensors::new();
    for (name, view) in file.iter().filter(|(name, _)| wanted(name)) {
        let fail = |e: String| OptError::file(path, format!("tensor '{name}' {e}"));
        let dtype = dtype(view.dtype()).ok_or_else(|| {
            fail(format!("has dtype {:?}, which kiln does not know", view.dtype()))
        })?;
        let tensor = dtype
            .decode(view.shape(), view.data())
            .map_err(|e| fail(format!("is damaged: {e}")))?;
        all.insert(name.to_string(), tensor);
    }
    Ok(all)
}

/// Writes the results as `output_0`, `output_1`, ….
pub fn write(path: &Path, results: &[Tensor]) -> Result<(), OptError> {
    let bytes: Vec<Vec<u8>> = results.iter().map(|t| t.dtype().encode(t)).collect();
    let view = |(i, t): (usize, &Tensor)| {
        let view = TensorView::new(stored(t.dtype()), t.shape().to_vec(), &bytes[i]);
        view.map(|v| (format!("output_{i}"), v)).map_err(|e| OptError::file(path, e))
    };
    let views = results.iter().enumerate().map(view).collect::<Result<Vec<_>, _>>()?;
    safetensors::serialize_to_file(views, None, path).map_err(|e| OptError::file(path, e))
}

/// Tensors named `prefix0`, `prefix1`, … in numeric order.
pub fn numbered<'a>(all: &'a Tensors, prefix: &str) -> Vec<(usize, &'a Tensor)> {
    let number = |name: &str| name.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
    let mut found: Vec<_> =
        all.iter().filter_map(|(name, t)| number(name).map(|n| (n, t))).collect();
    found.sort_by_key(|(n, _)| *n);
    found
}

/// Natural sort key, so that `x10` comes after `x9`.
pub fn natural(name: &str) -> Vec<(u8, u128, String)> {
    let mut key = vec![];
    for part in name.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
        let text = String::from_utf8_lossy(part).into_owned();
        match text.parse::<u128>() {
            Ok(n) => key.push((0, n, text)),
            Err(_) => key.push((1, 0, text)),
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn natural_order() {
        let mut names = ["x10", "x9", "a", "x", "x9b"];
        names.sort_by_key(|n| natural(n));
        assert_eq!(names, ["a", "x", "x9", "x9b", "x10"]);
    }
}
