//! Zero-copy views of other libraries' tensors: slices of numbers, ndarray arrays, DLPack tensors.
use crate::{CallError, View, ViewMut};

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is a tensor's element type.
pub trait Element: Copy + sealed::Sealed + 'static {
    /// MLIR's name of the element type.
    const DTYPE: &'static str;
}

macro_rules! elements {
    ($($rust:ty: $mlir:literal;)*) => {
        $(impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: &'static str = $mlir;
        })*
    };
}

elements! {
    f64: "f64";
    f32: "f32";
    half::f16: "f16";
    half::bf16: "bf16";
    i64: "i64";
    i32: "i32";
    i16: "i16";
    i8: "i8";
    u8: "ui8";
    bool: "i1";
}

fn bytes<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: elements have no padding, and all their bytes are initialised.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

impl<'a> View<'a> {
    /// Row-major elements. Err: `values` has another length than the shape says.
    pub fn from_slice<T: Element>(
        shape: &'a [usize],
        values: &'a [T],
    ) -> Result<View<'a>, CallError> {
        View::new(T::DTYPE, shape, bytes(values))
    }
}

impl<'a> ViewMut<'a> {
    /// Memory for row-major elements. Err: `values` has another length than the shape says.
    /// Programs write 0 or 1 to a `bool`.
    pub fn from_slice<T: Element>(
        shape: &'a [usize],
        values: &'a mut [T],
    ) -> Result<ViewMut<'a>, CallError> {
        // SAFETY: elements have no padding, and programs write valid values of the type.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values))
        };
        ViewMut::new(T::DTYPE, shape, bytes)
    }
}

/// Err: the tensor is not a row-major host tensor of this element type.
fn fits<T: Element>(
    what: &'static str,
    dtype: &str,
    (data, n): (*const u8, usize),
    dense: bool,
    device: crate::DeviceId,
) -> Result<(), CallError> {
    crate::view::check_device(what, "", device, crate::DeviceId::Host)?;
    let wrong = |e: String| Err(crate::call_error::tensor_error(what, "", e));
    match () {
        () if dtype != T::DTYPE => wrong(format!("is {dtype}, not {}", T::DTYPE)),
        () if !dense => wrong("is not in row-major order".into()),
        () if n > 0 && !data.cast::<T>().is_aligned() => {
            wrong(format!("does not lie at a multiple of {} bytes", align_of::<T>()))
        }
        () => Ok(()),
    }
}

impl<'a> View<'a> {
    /// The elements, row-major. Err: another element type, layout or device.
    pub fn elements<T: Element>(&self) -> Result<&'a [T], CallError> {
        let n = self.shape.iter().product();
        let dense = self.is_dense(&[]);
        fits::<T>("input", self.dtype(), (self.data, n), dense, self.device())?;
        // SAFETY: that many elements of the type, which the view's creator promised.
        Ok(if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.data.cast(), n) } })
    }
}

impl ViewMut<'_> {
    /// The elements, row-major and mutable. Err: another element type, layout or device.
    pub fn elements_mut<T: Element>(&mut self) -> Result<&mut [T], CallError> {
        let n = self.shape.iter().product();
        let dense = self.check_order("").is_ok();
        fits::<T>("output", self.dtype(), (self.data, n), dense, self.device())?;
        // SAFETY: as above, and borrowed mutably.
        Ok(if n == 0 {
            &mut []
        } else {
            unsafe { std::slice::from_raw_parts_mut(self.data.cast(), n) }
        })
    }
}

#[cfg(feature = "ndarray")]
mod arrays {
    use super::{CallError, Element, View, ViewMut};
    use crate::call_error::tensor_error;
    use ndarray::{ArrayBase, Data, DataMut, Dimension};

    impl<'a> View<'a> {
        /// An array of any strides.
        pub fn from_array<S: Data<Elem: Element>, D: Dimension>(
            array: &'a ArrayBase<S, D>,
        ) -> View<'a> {
            // SAFETY: an array's strides reach its own elements only.
            unsafe {
                View::strided(S::Elem::DTYPE, array.shape(), array.strides(), array.as_ptr().cast())
            }
        }
    }

    impl<'a> ViewMut<'a> {
        /// A row-major array. Err: it has other strides.
        pub fn from_array<S: DataMut<Elem: Element>, D: Dimension>(
            array: &'a mut ArrayBase<S, D>,
        ) -> Result<ViewMut<'a>, CallError> {
            if !array.is_standard_layout() {
                return Err(tensor_error(
                    "output",
                    "",
                    format!("is not in row-major order: its strides are {:?}", array.strides()),
                ));
            }
            // SAFETY: a standard layout is dense, and the array stays borrowed.
            let parts = unsafe {
                (
                    std::slice::from_raw_parts(array.shape().as_ptr(), array.ndim()),
                    array.as_mut_ptr(),
                    array.len(),
                )
            };
            // SAFETY: as above; shape and elements do not overlap.
            ViewMut::from_slice(parts.0, unsafe {
                std::slice::from_raw_parts_mut(parts.1, parts.2)
            })
        }
    }
}

#[cfg(all(feature = "dlpack", target_pointer_width = "64"))]
pub use dlpack::dlpack_dtype;

// DLPack's 64-bit sizes and strides are read as usize and isize.
#[cfg(all(feature = "dlpack", target_pointer_width = "64"))]
mod dlpack {
    use super::{View, ViewMut};
    use crate::{CallError, DeviceId, call_error::tensor_error};
    use dlpark::ffi::{DLDataType, DLDataTypeCode as Code, DLDeviceType, DLTensor};

    /// DLPack's element types (of one lane), and MLIR's names of them.
    const DTYPES: [(Code, u8, &str); 12] = [
        (Code::FLOAT, 64, "f64"),
        (Code::FLOAT, 32, "f32"),
        (Code::FLOAT, 16, "f16"),
        (Code::BFLOAT, 16, "bf16"),
        (Code::INT, 64, "i64"),
        (Code::INT, 32, "i32"),
        (Code::INT, 16, "i16"),
        (Code::INT, 8, "i8"),
        (Code::UINT, 8, "ui8"),
        (Code::BOOL, 8, "i1"),
        (Code::FLOAT8_E4M3FN, 8, "f8E4M3FN"),
        (Code::FLOAT8_E5M2, 8, "f8E5M2"),
    ];

    /// MLIR's name of a DLPack element type.
    fn dtype(t: &DLTensor) -> Option<&'static str> {
        let of = t.dtype;
        let found = DTYPES.iter().find(|(code, bits, _)| (of.code, of.bits) == (*code, *bits));
        found.filter(|_| of.lanes == 1).map(|(.., name)| *name)
    }

    /// DLPack's element type of MLIR's name.
    pub fn dlpack_dtype(name: &str) -> Option<DLDataType> {
        let found = DTYPES.iter().find(|(.., known)| *known == name);
        found.map(|(code, bits, _)| DLDataType { code: *code, bits: *bits, lanes: 1 })
    }

    /// A DLPack tensor, checked as far as it can be.
    struct DlpackParts<'a> {
        device: DeviceId,
        dtype: &'static str,
        shape: &'a [usize],
        strides: Option<&'a [isize]>,
        data: *mut u8,
    }

    /// # Safety
    /// As for [`View::from_dlpack`].
    unsafe fn dlpack_parts<'a>(
        what: &'static str,
        t: &'a DLTensor,
    ) -> Result<DlpackParts<'a>, CallError> {
        let refuse = |reason: String| tensor_error(what, "", reason);
        let device = match t.device.device_type {
            DLDeviceType::CPU | DLDeviceType::CUDAHOST => DeviceId::Host,
            DLDeviceType::CUDA => {
                let index = t.device.device_id;
                DeviceId::Cuda(
                    usize::try_from(index)
                        .map_err(|_| refuse(format!("lies on GPU {index}, which is none")))?,
                )
            }
            other => return Err(refuse(format!("lies on a device of DLPack's type {}", other.0))),
        };
        let dtype = dtype(t).ok_or_else(|| {
            refuse(format!(
                "has DLPack's type code {} with {} bits and {} lanes",
                t.dtype.code.0, t.dtype.bits, t.dtype.lanes
            ))
        })?;
        let rank =
            usize::try_from(t.ndim).map_err(|_| refuse(format!("has {} dimensions", t.ndim)))?;
        let data = match t.data.is_null() {
            true => std::ptr::NonNull::dangling().as_ptr(),
            // A device address is only a number here.
            false => t.data.cast::<u8>().wrapping_add(t.byte_offset as usize),
        };
        if rank == 0 {
            return Ok(DlpackParts { device, dtype, shape: &[], strides: Some(&[]), data });
        }
        if t.shape.is_null() {
            return Err(refuse("has no shape".into()));
        }
        // SAFETY: the caller's promise.
        let sizes = unsafe { std::slice::from_raw_parts(t.shape.cast_const(), rank) };
        if let Some(d) = sizes.iter().position(|n| *n < 0) {
            return Err(refuse(format!("has size {} in dimension {d}", sizes[d])));
        }
        // SAFETY: the caller's promise; sizes are not negative, and i64 and usize have equal
        // layouts.
        let (shape, strides) = unsafe {
            let strides = (!t.strides.is_null())
                .then(|| std::slice::from_raw_parts(t.strides.cast::<isize>().cast_const(), rank));
            (std::slice::from_raw_parts(t.shape.cast::<usize>().cast_const(), rank), strides)
        };
        Ok(DlpackParts { device, dtype, shape, strides, data })
    }

    impl<'a> View<'a> {
        /// A tensor of any strides in host or device memory. Err: a device type or dtype that kiln
        /// does not support, or a negative size.
        ///
        /// # Safety
        /// The tensor is valid by DLPack's specification. Its memory, shape and strides live for
        /// `'a` and are not written; device memory as [`View::on_cuda`] says.
        pub unsafe fn from_dlpack(t: &'a DLTensor) -> Result<View<'a>, CallError> {
            // SAFETY: the caller's promise.
            unsafe {
                let p = dlpack_parts("input", t)?;
                Ok(match p.device {
                    DeviceId::Host => View::at(DeviceId::Host, p.dtype, p.shape, p.strides, p.data),
                    DeviceId::Cuda(info) => {
                        View::on_cuda(info, p.dtype, p.shape, p.strides, p.data as u64)
                    }
                })
            }
        }
    }

    impl<'a> ViewMut<'a> {
        /// A row-major tensor in host or device memory. Err: as for [`View::from_dlpack`]. The call
        /// checks the strides, since it can name the output.
        ///
        /// # Safety
        /// The tensor is valid by DLPack's specification. Its memory, shape and strides live for
        /// `'a` and are otherwise unused; device memory as [`ViewMut::on_cuda`] says.
        pub unsafe fn from_dlpack(t: &'a mut DLTensor) -> Result<ViewMut<'a>, CallError> {
            // SAFETY: the caller's promise.
            unsafe {
                let p = dlpack_parts("output", t)?;
                Ok(ViewMut::at(p.device, p.dtype, p.shape, p.strides, p.data))
            }
        }
    }
}
