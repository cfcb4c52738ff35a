//! PyTorch's tensors, read by DLPack's exchange API without calls of Python (PyTorch 2.10 and
//! later), else by their attributes.
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLPackExchangeAPI, DLTensor,
};
use pyo3::{
    ffi, intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyCapsule, PyList},
};
use std::{ffi::c_void, ptr::null_mut, slice::from_raw_parts};

/// Addresses that a GPU's kernels take in place are multiples of this many bytes.
const ALIGNMENT: usize = 16;

/// The exchange API of `torch.Tensor`; none before PyTorch 2.10. It lives as long as the process.
struct Exchange(Option<&'static DLPackExchangeAPI>);
// SAFETY: a table of functions.
unsafe impl Send for Exchange {}
unsafe impl Sync for Exchange {}

fn exchange(py: Python<'_>) -> Option<&'static DLPackExchangeAPI> {
    static API: PyOnceLock<Exchange> = PyOnceLock::new();
    let found = || -> PyResult<&'static DLPackExchangeAPI> {
        let class = py.import("torch")?.getattr("Tensor")?;
        let capsule = class.getattr("__dlpack_c_exchange_api__")?.cast_into::<PyCapsule>()?;
        // SAFETY: DLPack's name of the capsule, which holds this structure.
        let api = unsafe {
            let at = ffi::PyCapsule_GetPointer(capsule.as_ptr(), c"dlpack_exchange_api".as_ptr());
            at.cast::<DLPackExchangeAPI>().as_ref()
        };
        api.filter(|a| a.header.version.major == 1 && a.dltensor_from_py_object_no_sync.is_some())
            .ok_or_else(|| PyErr::fetch(py))
    };
    API.get_or_init(py, || Exchange(found().ok())).0
}

/// A tensor: address, device, sizes, strides in elements.
pub struct Tensor<'t> {
    pub data: usize,
    /// The ordinal of its GPU; none on the host.
    pub gpu: Option<usize>,
    /// Bits of an element, where DLPack states them.
    pub bits: Option<usize>,
    sizes: Sizes<'t>,
    strides: Sizes<'t>,
}

enum Sizes<'t> {
    Borrowed(&'t [i64]),
    Owned(Vec<i64>),
}

impl Sizes<'_> {
    fn get(&self) -> &[i64] {
        match self {
            Sizes::Borrowed(all) => all,
            Sizes::Owned(all) => all,
        }
    }
}

impl<'t> Tensor<'t> {
    /// Reads a tensor, which must outlive the result and keep its shape.
    pub fn of(object: &'t Bound<'_, PyAny>) -> PyResult<Tensor<'t>> {
        match exchange(object.py()).and_then(|api| api.dltensor_from_py_object_no_sync) {
            None => Tensor::of_attributes(object),
            Some(read) => {
                let mut t = DLTensor {
                    data: null_mut(),
                    device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
                    ndim: 0,
                    dtype: DLDataType { code: DLDataTypeCode::FLOAT, bits: 32, lanes: 1 },
                    shape: null_mut(),
                    strides: null_mut(),
                    byte_offset: 0,
                };
                // SAFETY: fills the structure with pointers into the tensor.
                if unsafe { read(object.as_ptr().cast::<c_void>(), &mut t) } != 0 {
                    return Err(PyErr::fetch(object.py()));
                }
                let rank = usize::try_from(t.ndim).unwrap_or(0);
                // SAFETY: `rank` numbers each, which live as long as the tensor.
                let all = |at: *mut i64| unsafe {
                    Sizes::Borrowed(if rank == 0 { &[] } else { from_raw_parts(at, rank) })
                };
                Ok(Tensor {
                    data: t.data as usize + t.byte_offset as usize,
                    gpu: (t.device.device_type == DLDeviceType::CUDA)
                        .then(|| usize::try_from(t.device.device_id).unwrap_or(0)),
                    bits: Some(t.dtype.bits as usize * t.dtype.lanes as usize),
                    sizes: all(t.shape),
                    strides: all(t.strides),
                })
            }
        }
    }

    fn of_attributes(object: &Bound<'_, PyAny>) -> PyResult<Tensor<'t>> {
        let py = object.py();
        let gpu = match object.getattr(intern!(py, "is_cuda"))?.extract()? {
            true => Some(object.call_method0(intern!(py, "get_device"))?.extract()?),
            false => None,
        };
        Ok(Tensor {
            data: object.call_method0(intern!(py, "data_ptr"))?.extract()?,
            gpu,
            bits: None,
            sizes: Sizes::Owned(object.getattr(intern!(py, "shape"))?.extract()?),
            strides: Sizes::Owned(object.call_method0(intern!(py, "stride"))?.extract()?),
        })
    }

    /// Reads a row-major array of NumPy's, which must outlive the result and keep its shape.
    fn of_array(object: &Bound<'_, PyAny>) -> PyResult<Tensor<'t>> {
        let py = object.py();
        let ctypes = object.getattr(intern!(py, "ctypes"))?;
        let sizes: Vec<i64> = object.getattr(intern!(py, "shape"))?.extract()?;
        let mut strides = vec![1; sizes.len()];
        for i in (1..sizes.len()).rev() {
            strides[i - 1] = strides[i] * sizes[i].max(1);
        }
        Ok(Tensor {
            data: ctypes.getattr(intern!(py, "data"))?.extract()?,
            gpu: None,
            bits: None,
            sizes: Sizes::Owned(sizes),
            strides: Sizes::Owned(strides),
        })
    }

    pub fn shape(&self) -> &[usize] {
        let all = self.sizes.get();
        // SAFETY: sizes are not negative, and of the same width.
        unsafe { from_raw_parts(all.as_ptr().cast(), all.len()) }
    }
    pub fn strides(&self) -> &[isize] {
        let all = self.strides.get();
        // SAFETY: of the same width.
        unsafe { from_raw_parts(all.as_ptr().cast(), all.len()) }
    }
    /// Whether a GPU's kernels can read it in place: on the GPU, dense in this order of its
    /// dimensions (empty for row-major), aligned.
    pub fn is_placed(&self, gpu: usize, order: &[usize]) -> bool {
        self.gpu == Some(gpu) && self.data.is_multiple_of(ALIGNMENT) && self.is_dense(order)
    }
    fn is_dense(&self, order: &[usize]) -> bool {
        let (sizes, strides) = (self.shape(), self.strides());
        if sizes.contains(&0) {
            return true;
        }
        let mut expected = 1;
        (0..sizes.len()).rev().all(|i| {
            let d = if order.is_empty() { i } else { order[i] };
            let fits = sizes[d] == 1 || usize::try_from(strides[d]) == Ok(expected);
            expected *= sizes[d];
            fits
        })
    }
}

/// The tensors of a list.
pub fn tensors<'t>(objects: &'t [Bound<'_, PyAny>]) -> PyResult<Vec<Tensor<'t>>> {
    objects.iter().map(Tensor::of).collect()
}

/// The arrays of a list.
pub fn arrays<'t>(objects: &'t [Bound<'_, PyAny>]) -> PyResult<Vec<Tensor<'t>>> {
    objects.iter().map(Tensor::of_array).collect()
}

/// The objects of a list, which hold its tensors alive.
pub fn objects<'py>(list: &Bound<'py, PyList>) -> Vec<Bound<'py, PyAny>> {
    list.iter().collect()
}
