//! `.pt2` archives of `torch.export.save`: a zip with the graph as JSON and the weights as raw bytes, which are memory-mapped.
use super::{CaptureError, Captured, graph, schema::*};
use kiln_dialects::{
    ir::Ctx,
    value::{DType, Tensor},
};
use memmap2::Mmap;
use std::{collections::BTreeMap, fs::File, io::Read, path::Path, sync::Arc};

/// A weight in the archive: sizes, strides and offset in elements, over raw little-endian bytes.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<i64>,
    /// First element.
    pub offset: usize,
    map: Arc<Mmap>,
    start: usize,
    len: usize,
}

impl Weight {
    /// The raw bytes of the storage.
    pub fn bytes(&self) -> &[u8] {
        self.start.checked_add(self.len).and_then(|end| self.map.get(self.start..end)).unwrap_or(&[])
    }
    /// The bytes of the elements, if they lie in row-major order without gaps.
    pub fn contiguous(&self) -> Option<&[u8]> {
        let mut want = 1i64;
        for (n, s) in self.shape.iter().zip(&self.strides).rev() {
            if *n != 1 && *s != want {
                return None;
            }
            want = want.checked_mul(i64::try_from(*n).ok()?)?;
        }
        let width = self.dtype.byte_size();
        let start = self.offset.checked_mul(width)?;
        let len = usize::try_from(want).ok()?.checked_mul(width)?;
        self.bytes().get(start..start.checked_add(len)?)
    }
    /// The file in memory.
    pub fn mapping(&self) -> Arc<Mmap> {
        self.map.clone()
    }
    /// Whether all elements lie in the storage, and the storage in the file.
    fn check(&self) -> Result<(), String> {
        if self.shape.len() != self.strides.len() {
            return Err(format!("has {} sizes, but {} strides", self.shape.len(), self.strides.len()));
        }
        if kiln_dialects::value::count(&self.shape)? == 0 {
            return Ok(());
        }
        let (mut low, mut high) = (self.offset as i128, self.offset as i128);
        for (n, s) in self.shape.iter().zip(&self.strides) {
            let reach = (*n as i128 - 1).checked_mul(i128::from(*s)).ok_or("has strides beyond any storage")?;
            if reach < 0 { low += reach } else { high += reach }
        }
        let elements = (self.bytes().len() / self.dtype.byte_size().max(1)) as i128;
        if low < 0 || high >= elements { Err("reaches beyond its storage".into()) } else { Ok(()) }
    }
    /// The value, gathered by the strides.
    pub fn read(&self) -> Result<Tensor, String> {
        let width = self.dtype.byte_size();
        let count = kiln_dialects::value::count(&self.shape)?;
        let mut raw = vec![];
        raw.try_reserve_exact(count.checked_mul(width).ok_or("is too large")?).map_err(|e| e.to_string())?;
        let mut index = vec![0usize; self.shape.len()];
        for _ in 0..count {
            let at: i64 = index.iter().zip(&self.strides).map(|(i, s)| *i as i64 * s).sum::<i64>() + self.offset as i64;
            let at = usize::try_from(at).ok().and_then(|a| a.checked_mul(width));
            let element = at.and_then(|a| self.bytes().get(a..a + width)).ok_or("a weight reaches beyond its storage")?;
            raw.extend_from_slice(element);
            for (i, n) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < *n {
                    break;
                }
                *i = 0;
            }
        }
        self.dtype.decode(&self.shape, &raw)
    }
}

/// What a zip file starts with.
pub const MAGIC: &[u8] = b"PK\x03\x04";

/// Reads an archive and emits its graph into a new module of `ctx`.
pub fn import(ctx: Ctx, path: &Path) -> Result<Captured, CaptureError> {
    let (program, weights) = open(path)?;
    graph::emit(ctx, path, program, weights)
}

/// The bytes of the archive's graph, which say what its program computes: all but the values of weights.
pub fn graph_bytes(path: &Path) -> Result<Vec<u8>, CaptureError> {
    let fail = |reason: String| CaptureError::File { file: path.display().to_string(), reason };
    let file = File::open(path).map_err(|e| fail(e.to_string()))?;
    let mut zip = zip::ZipArchive::new(std::io::BufReader::new(file)).map_err(|e| fail(format!("is no .pt2 archive: {e}")))?;
    let json = zip.file_names().find(|n| n.ends_with("models/model.json")).map(str::to_string);
    let json = json.ok_or_else(|| fail("has no models/model.json: is it from torch.export.save?".into()))?;
    let mut out = vec![];
    zip.by_name(&json).map_err(|e| fail(e.to_string()))?.read_to_end(&mut out).map_err(|e| fail(e.to_string()))?;
    Ok(out)
}

/// The weights of an archive, by name; only their places are read.
pub fn weights(path: &Path) -> Result<BTreeMap<String, Weight>, CaptureError> {
    open(path).map(|(_, weights)| weights)
}

fn open(path: &Path) -> Result<(Program, BTreeMap<String, Weight>), CaptureError> {
    let fail = |reason: String| CaptureError::File { file: path.display().to_string(), reason };
    let file = File::open(path).map_err(|e| fail(e.to_string()))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(fail("is a directory".into()));
    }
    // SAFETY: as for every mapped file, nobody may change it meanwhile.
    let map = Arc::new(unsafe { Mmap::map(&file) }.map_err(|e| fail(e.to_string()))?);
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(&map[..])).map_err(|e| fail(format!("is no .pt2 archive: {e}")))?;
    let find = |zip: &zip::ZipArchive<_>, suffix: &str| zip.file_names().find(|n| n.ends_with(suffix)).map(str::to_string);
    let json = find(&zip, "models/model.json").ok_or_else(|| fail("has no models/model.json: is it from torch.export.save?".into()))?;
    let text = read(&mut zip, &json).map_err(fail)?;
    let program: Program = serde_json::from_slice(&text).map_err(|e| fail(format!("{json}: {e}")))?;
    if program.schema_version.major != 8 {
        return Err(fail(format!("has schema version {}; 8 is supported (PyTorch 2.7 and later)", program.schema_version.major)));
    }
    let mut weights = BTreeMap::new();
    for (folder, config) in
        [("data/weights/", "data/weights/model_weights_config.json"), ("data/constants/", "data/constants/model_constants_config.json")]
    {
        let Some(config) = find(&zip, config) else { continue };
        let text = read(&mut zip, &config).map_err(fail)?;
        let entries: WeightsConfig = serde_json::from_slice(&text).map_err(|e| fail(format!("{config}: {e}")))?;
        let base = config.rsplit_once(folder).map_or("", |(b, _)| b).to_string();
        for (name, entry) in entries.config {
            let weight = weight(&mut zip, &map, &format!("{base}{folder}{}", entry.path_name), &entry)
                .map_err(|e| fail(format!("weight {name}: {e}")))?;
            weights.insert(name, weight);
        }
    }
    Ok((program, weights))
}

fn read(zip: &mut zip::ZipArchive<std::io::Cursor<&[u8]>>, name: &str) -> Result<Vec<u8>, String> {
    let mut out = vec![];
    let mut entry = zip.by_name(name).map_err(|e| format!("{name}: {e}"))?;
    entry.read_to_end(&mut out).map_err(|e| format!("{name}: {e}"))?;
    Ok(out)
}

fn weight(zip: &mut zip::ZipArchive<std::io::Cursor<&[u8]>>, map: &Arc<Mmap>, path: &str, entry: &WeightEntry) -> Result<Weight, String> {
    if entry.use_pickle {
        return Err("is pickled, which only Python can read".into());
    }
    let meta = entry.tensor_meta.as_ref().ok_or("has no tensor_meta")?;
    let file = zip.by_name(path).map_err(|e| format!("{path}: {e}"))?;
    if file.compression() != zip::CompressionMethod::Stored {
        return Err(format!("{path} is compressed; torch.export.save stores weights as they are"));
    }
    let start = file.data_start() as usize;
    let len = file.size() as usize;
    let ints =
        |all: &[serde_json::Value]| all.iter().map(|j| j["as_int"].as_i64()).collect::<Option<Vec<i64>>>().ok_or("has symbolic sizes");
    let shape = ints(&meta.sizes)?.into_iter().map(|n| usize::try_from(n).map_err(|_| "has a negative size")).collect::<Result<_, _>>()?;
    let offset = meta.storage_offset["as_int"].as_u64().ok_or("has a symbolic offset")? as usize;
    let weight = Weight { dtype: dtype(meta.dtype)?, shape, strides: ints(&meta.strides)?, offset, map: map.clone(), start, len };
    weight.check()?;
    Ok(weight)
}
