//! `.pt2` archives of `torch.export.save`: a zip with the graph as JSON and the weights as raw
//! bytes, which are memory-mapped.
pub use super::weight::Weight;
use super::{CaptureError, Captured, RandomOrder, graph, schema::*};
use kiln_dialects::ir::Ctx;
use kiln_runtime::{DataError, file};
use memmap2::Mmap;
use std::{collections::BTreeMap, io::Read, path::Path, sync::Arc};

/// Magic bytes of a zip file.
pub const MAGIC: &[u8] = b"PK\x03\x04";

/// Imports an archive as a new module of `ctx`.
pub fn import(ctx: Ctx, path: &Path) -> Result<Captured, CaptureError> {
    import_in(ctx, path, RandomOrder::default())
}

/// As [`import`], with random numbers in an order.
pub fn import_in(ctx: Ctx, path: &Path, order: RandomOrder) -> Result<Captured, CaptureError> {
    let (program, weights) = open(path)?;
    graph::emit(ctx, path, program, weights, order)
}

/// The archive's graph as bytes: everything that determines the program, except for weight values.
pub fn graph_bytes(path: &Path) -> Result<Vec<u8>, CaptureError> {
    let name = path.display().to_string();
    let fail = |e: DataError| CaptureError::file(&name, e);
    let file = file::open(path).map_err(|e| fail(DataError::file(e)))?;
    let mut zip = zip::ZipArchive::new(std::io::BufReader::new(file))
        .map_err(|e| fail(format!("is no .pt2 archive: {e}").into()))?;
    let json = zip.file_names().find(|n| n.ends_with("models/model.json")).map(str::to_string);
    let json =
        json.ok_or_else(|| fail("has no models/model.json: is it from torch.export.save?".into()))?;
    unpacked(zip.by_name(&json).map_err(|e| fail(DataError::file(e)))?, MAX_JSON).map_err(fail)
}

/// The weights of an archive, by name; memory-mapped, not read.
pub fn weights(path: &Path) -> Result<BTreeMap<String, Weight>, CaptureError> {
    open(path).map(|(_, weights)| weights)
}

fn open(path: &Path) -> Result<(Program, BTreeMap<String, Weight>), CaptureError> {
    let name = path.display().to_string();
    let fail = |e: DataError| CaptureError::file(&name, e);
    let file = file::open(path).map_err(|e| fail(DataError::file(e)))?;
    // SAFETY: as for every mapped file, it must not be modified while mapped.
    let map = Arc::new(unsafe { Mmap::map(&file) }.map_err(|e| fail(DataError::file(e)))?);
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(&map[..]))
        .map_err(|e| fail(format!("is no .pt2 archive: {e}").into()))?;
    let find = |zip: &zip::ZipArchive<_>, suffix: &str| {
        zip.file_names().find(|n| n.ends_with(suffix)).map(str::to_string)
    };
    let json = find(&zip, "models/model.json")
        .ok_or_else(|| fail("has no models/model.json: is it from torch.export.save?".into()))?;
    let text = read(&mut zip, &json).map_err(fail)?;
    let program: Program =
        serde_json::from_slice(&text).map_err(|e| fail(format!("{json}: {e}").into()))?;
    if program.schema_version.major != 8 {
        return Err(fail(
            format!(
                "has schema version {}; 8 is supported (PyTorch 2.7 and later)",
                program.schema_version.major
            )
            .into(),
        ));
    }
    let mut weights = BTreeMap::new();
    for (folder, config) in [
        ("data/weights/", "data/weights/model_weights_config.json"),
        ("data/constants/", "data/constants/model_constants_config.json"),
    ] {
        let Some(config) = find(&zip, config) else { continue };
        let text = read(&mut zip, &config).map_err(fail)?;
        let entries: WeightsConfig =
            serde_json::from_slice(&text).map_err(|e| fail(format!("{config}: {e}").into()))?;
        let base = config.rsplit_once(folder).map_or("", |(b, _)| b).to_string();
        for (name, entry) in entries.config {
            let weight =
                weight(&mut zip, &map, &format!("{base}{folder}{}", entry.path_name), &entry)
                    .map_err(|e| fail(e.map(|e| format!("weight {name}: {e}"))))?;
            weights.insert(name, weight);
        }
    }
    Ok((program, weights))
}

fn read(
    zip: &mut zip::ZipArchive<std::io::Cursor<&[u8]>>,
    name: &str,
) -> Result<Vec<u8>, DataError> {
    unpacked(zip.by_name(name).map_err(|e| format!("{name}: {e}"))?, MAX_JSON)
        .map_err(|e| e.map(|e| format!("{name}: {e}")))
}

/// Size limit of the decompressed graph: a hundred times the largest one seen, against zip bombs.
const MAX_JSON: u64 = 256 << 20;

/// Decompresses an entry; the size in its header is not trusted.
fn unpacked(entry: impl Read, limit: u64) -> Result<Vec<u8>, DataError> {
    let mut out = vec![];
    entry.take(limit + 1).read_to_end(&mut out).map_err(DataError::file)?;
    if out.len() as u64 > limit {
        Err(format!("unpacks to more than {limit} bytes").into())
    } else {
        Ok(out)
    }
}

fn weight(
    zip: &mut zip::ZipArchive<std::io::Cursor<&[u8]>>,
    map: &Arc<Mmap>,
    path: &str,
    entry: &WeightEntry,
) -> Result<Weight, DataError> {
    if entry.use_pickle {
        return Err(
            "is pickled, as tensor subclasses are, and only Python can read it: torchao.utils.unwrap_tensor_subclass(model) before torch.export, or run_decompositions() after it, leave the tensors that it holds".into(),
        );
    }
    let meta = entry.tensor_meta.as_ref().ok_or("has no tensor_meta")?;
    let file = zip.by_name(path).map_err(|e| format!("{path}: {e}"))?;
    if file.compression() != zip::CompressionMethod::Stored {
        return Err(
            format!("{path} is compressed; torch.export.save stores weights as they are").into()
        );
    }
    let start = file.data_start() as usize;
    let len = file.size() as usize;
    let ints = |all: &[serde_json::Value]| {
        all.iter()
            .map(|j| j["as_int"].as_i64())
            .collect::<Option<Vec<i64>>>()
            .ok_or("has symbolic sizes")
    };
    let mut shape = ints(&meta.sizes)?
        .into_iter()
        .map(|n| usize::try_from(n).map_err(|_| "has a negative size"))
        .collect::<Result<Vec<_>, _>>()?;
    let mut offset =
        meta.storage_offset["as_int"].as_u64().ok_or("has a symbolic offset")? as usize;
    let mut strides = ints(&meta.strides)?;
    let (dtype, complex) = element(meta.dtype).map_err(DataError::malformed)?;
    if complex {
        // As torch.view_as_real.
        shape.push(2);
        strides.iter_mut().for_each(|s| *s = s.saturating_mul(2));
        strides.push(1);
        offset = offset.saturating_mul(2);
    }
    Weight::mapped(map, start..start.saturating_add(len), dtype, shape, strides, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unpacks_without_end_is_refused() {
        assert_eq!(unpacked(&b"graph"[..], 5), Ok(b"graph".to_vec()));
        assert_eq!(
            unpacked(std::io::repeat(0), 1000),
            Err("unpacks to more than 1000 bytes".into())
        );
    }
}
