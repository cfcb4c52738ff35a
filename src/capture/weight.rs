//! Weights in place: in a memory-mapped file, or in memory. Reading, writing and validation for all
//! front ends.
use crate::{
    runtime::Bytes,
    tensor::{Array, array},
};
use kiln_dialects::value::{DType, Tensor, count};
use kiln_runtime::{DataError, OutOfMemory, file};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{borrow::Cow, collections::BTreeMap, ops::Range, path::Path, sync::Arc};

/// A weight: shape, strides and offset in elements, over raw little-endian bytes.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Element type.
    pub dtype: DType,
    /// The shape.
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<i64>,
    /// Offset of the first element, in elements.
    pub offset: usize,
    storage: Storage,
}

#[derive(Clone, Debug)]
enum Storage {
    /// A range of a mapped file.
    File(Arc<Mmap>, Range<usize>),
    Memory(Arc<[u8]>),
    /// A tensor's elements.
    Tensor(Bytes),
}

/// Row-major strides.
pub fn contiguous(shape: &[usize]) -> Vec<i64> {
    let mut strides: Vec<i64> = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1) as i64);
    }
    strides
}

impl Weight {
    /// A weight in a range of a mapped file. Err: its elements exceed the range.
    pub fn mapped(
        map: &Arc<Mmap>,
        bytes: Range<usize>,
        dtype: DType,
        shape: Vec<usize>,
        strides: Vec<i64>,
        offset: usize,
    ) -> Result<Weight, DataError> {
        let weight =
            Weight { dtype, shape, strides, offset, storage: Storage::File(map.clone(), bytes) };
        weight.check()?;
        Ok(weight)
    }
    /// A copy of a tensor, rounded to its dtype.
    pub fn from_tensor(tensor: &Tensor) -> Weight {
        let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
        Weight {
            dtype,
            strides: contiguous(&shape),
            shape,
            offset: 0,
            storage: Storage::Memory(dtype.encode(tensor).into()),
        }
    }
    /// A row-major tensor's elements. Err: there are fewer than the shape says.
    pub fn of_bytes(dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Result<Weight, DataError> {
        let (strides, storage) = (contiguous(&shape), Storage::Memory(bytes.into()));
        let weight = Weight { dtype, shape, strides, offset: 0, storage };
        weight.check()?;
        Ok(weight)
    }
    /// Shares a tensor's elements without a copy if they are on the host. Err: as for
    /// [`Array::bytes`].
    pub(crate) fn from_array(array: &Array) -> Result<Weight, DataError> {
        let (dtype, shape) = (array.dtype(), array.shape().to_vec());
        let (strides, storage) = (contiguous(&shape), Storage::Tensor(array.bytes()?));
        Ok(Weight { dtype, shape, strides, offset: 0, storage })
    }
    /// The raw bytes of the storage.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::File(map, range) => map.get(range.clone()).unwrap_or(&[]),
            Storage::Memory(bytes) => bytes,
            Storage::Tensor(bytes) => bytes.bytes(),
        }
    }
    /// Whether the storage is a mapped file, which is immutable.
    pub fn in_file(&self) -> bool {
        matches!(self.storage, Storage::File(..))
    }
    /// Whether all elements are in the storage, and the storage is in the file.
    fn check(&self) -> Result<(), DataError> {
        if self.shape.len() != self.strides.len() {
            return Err(format!(
                "has {} sizes, but {} strides",
                self.shape.len(),
                self.strides.len()
            )
            .into());
        }
        if count(&self.shape).map_err(DataError::malformed)? == 0 {
            return Ok(());
        }
        let (mut low, mut high) = (self.offset as i128, self.offset as i128);
        for (n, s) in self.shape.iter().zip(&self.strides) {
            let reach = (*n as i128 - 1)
                .checked_mul(i128::from(*s))
                .ok_or("has strides beyond any storage")?;
            if reach < 0 { low += reach } else { high += reach }
        }
        let elements = (self.bytes().len() / self.dtype.byte_size().max(1)) as i128;
        if low < 0 || high >= elements { Err("reaches beyond its storage".into()) } else { Ok(()) }
    }
    /// The elements in row-major order: borrowed if the storage is contiguous, else gathered by
    /// strides.
    pub fn elements(&self) -> Result<Cow<'_, [u8]>, DataError> {
        let n = count(&self.shape).map_err(DataError::malformed)?;
        let width = self.dtype.byte_size();
        let length = n.checked_mul(width).ok_or("is too large")?;
        if self.strides == contiguous(&self.shape) {
            let start = self.offset.checked_mul(width).ok_or("is too large")?;
            let whole = start.checked_add(length).and_then(|end| self.bytes().get(start..end));
            return whole
                .map(Cow::Borrowed)
                .ok_or_else(|| "a weight reaches beyond its storage".into());
        }
        let mut raw = vec![];
        raw.try_reserve_exact(length)
            .map_err(|_| OutOfMemory::new(Some(length), "the elements of a weight"))?;
        let mut index = vec![0usize; self.shape.len()];
        for _ in 0..n {
            let at: i64 = index.iter().zip(&self.strides).map(|(i, s)| *i as i64 * s).sum::<i64>()
                + self.offset as i64;
            let at = usize::try_from(at).ok().and_then(|a| a.checked_mul(width));
            let element = at
                .and_then(|a| self.bytes().get(a..a + width))
                .ok_or("a weight reaches beyond its storage")?;
            raw.extend_from_slice(element);
            for (i, n) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < *n {
                    break;
                }
                *i = 0;
            }
        }
        Ok(Cow::Owned(raw))
    }
    /// Decodes the value.
    pub fn read(&self) -> Result<Tensor, DataError> {
        self.dtype.decode(&self.shape, &self.elements()?).map_err(DataError::malformed)
    }
}

impl Array {
    /// The elements of a weight, without a copy if it is contiguous. Err: the weight is malformed.
    pub fn from_weight(w: &Weight) -> Result<Array, DataError> {
        let bytes = match w.elements()? {
            Cow::Borrowed(bytes) if bytes.as_ptr().addr().is_multiple_of(8) => {
                Bytes::part_of(Arc::new(w.clone()), bytes)
            }
            bytes => array::copied(&bytes)?,
        };
        Array::new(w.dtype, &w.shape, bytes)
    }
}

/// The dtype of a safetensors tensor; `None` if unsupported.
pub fn dtype(d: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|own| stored(*own) == d)
}

/// The safetensors name of a dtype.
pub fn stored(d: DType) -> Dtype {
    match d {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F8E4M3FN => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::I16 => Dtype::I16,
        DType::I8 => Dtype::I8,
        DType::UI8 => Dtype::U8,
        DType::I1 => Dtype::BOOL,
    }
}

/// All tensors of a safetensors file by name, memory-mapped. Err: a message without the file name.
pub fn open(path: &Path) -> Result<BTreeMap<String, Weight>, DataError> {
    let file = file::open(path).map_err(DataError::file)?;
    // SAFETY: as for every mapped file, it must not be modified while mapped.
    let map = Arc::new(unsafe { Mmap::map(&file) }.map_err(DataError::file)?);
    let all = SafeTensors::deserialize(&map).map_err(|e| format!("is no safetensors file: {e}"))?;
    let mut out = BTreeMap::new();
    for (name, view) in all.iter() {
        let known = dtype(view.dtype()).ok_or_else(|| {
            format!("tensor '{name}' has dtype {:?}, which kiln does not know", view.dtype())
        })?;
        let start = (view.data().as_ptr() as usize).saturating_sub(map.as_ptr() as usize);
        let shape = view.shape().to_vec();
        let strides = contiguous(&shape);
        let weight =
            Weight::mapped(&map, start..start + view.data().len(), known, shape, strides, 0);
        out.insert(
            name.to_string(),
            weight.map_err(|e| e.map(|e| format!("tensor '{name}' {e}")))?,
        );
    }
    Ok(out)
}

/// Writes a safetensors file. Err: a message without the file name.
pub fn write(path: &Path, all: &[(String, Weight)]) -> Result<(), DataError> {
    let bytes = all
        .iter()
        .map(|(name, w)| w.elements().map_err(|e| e.map(|e| format!("tensor '{name}' {e}"))))
        .collect::<Result<Vec<_>, _>>()?;
    let mut views = vec![];
    for ((name, w), bytes) in all.iter().zip(&bytes) {
        views.push((
            name.clone(),
            TensorView::new(stored(w.dtype), w.shape.clone(), bytes)
                .map_err(|e| format!("tensor '{name}': {e}"))?,
        ));
    }
    // Writes to a new file and renames it, since weights may be mapped from the old one.
    let temporary = path.with_extension("safetensors.part");
    safetensors::serialize_to_file(views, None, &temporary).map_err(DataError::file)?;
    std::fs::rename(&temporary, path).map_err(DataError::file)
}
