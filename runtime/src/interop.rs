//! Tensors of other libraries as views, without a copy: slices of numbers, ndarray's arrays,
//! DLPack's tensors.
use crate::{CallError, View, ViewMut};

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose values are elements of tensors.
pub trait Element: Copy + sealed::Sealed + 'static {
    /// MLIR's name of the type.
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
    // SAFETY: elements have no padding, and every byte of theirs may be read.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

impl<'a> View<'a> {
    /// Elements in row-major order. Err: another number of elements than the shape says.
    pub fn of<T: Element>(shape: &'a [usize], values: &'a [T]) -> Result<View<'a>, CallError> {
        View::new(T::DTYPE, shape, bytes(values))
    }
}

impl<'a> ViewMut<'a> {
    /// Memory for elements in row-major order. Err: another number of elements than the shape says.
    /// A program writes 0 or 1 for a `bool`.
    pub fn of<T: Element>(
        shape: &'a [usize],
        values: &'a mut [T],
    ) -> Result<ViewMut<'a>, CallError> {
        // SAFETY: elements have no padding, and a program writes values of the type.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values))
        };
        ViewMut::new(T::DTYPE, shape, bytes)
    }
}

/// Whether elements of a type may be read here.
fn fits<T: Element>(
    what: &'static str,
    dtype: &str,
    data: *const u8,
    dense: bool,
    place: crate::Place,
) -> Result<(), CallError> {
    crate::view::check_place(what, "", place, crate::Place::Host)?;
    let wrong = |e: String| Err(crate::call::tensor_error(what, "", e));
    match () {
        () if dtype != T::DTYPE => wrong(format!("is {dtype}, not {}", T::DTYPE)),
        () if !dense => wrong("is not in row-major order".into()),
        () if !data.cast::<T>().is_aligned() => {
            wrong(format!("does not lie at a multiple of {} bytes", align_of::<T>()))
        }
        () => Ok(()),
    }
}

impl<'a> View<'a> {
    /// The elements, in row-major order. Err: they are of another type, or lie otherwise.
    pub fn elements<T: Element>(&self) -> Result<&'a [T], CallError> {
        fits::<T>("input", self.dtype(), self.data, self.lies(&[]), self.place())?;
        let n = self.shape.iter().product();
        // SAFETY: that many elements of the type, which the maker of the view promised.
        Ok(if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.data.cast(), n) } })
    }
}

impl ViewMut<'_> {
    /// The elements, to be written in row-major order. Err: they are of another type, or lie
    /// otherwise.
    pub fn elements_mut<T: Element>(&mut self) -> Result<&mut [T], CallError> {
        fits::<T>("output", self.dtype(), self.data, self.check_order("").is_ok(), self.place())?;
        let n = self.shape.iter().product();
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
    use crate::call::tensor_error;
    use ndarray::{ArrayBase, Data, DataMut, Dimension};

    impl<'a> View<'a> {
        /// An array of any strides.
        pub fn of_array<S: Data<Elem: Element>, D: Dimension>(
            array: &'a ArrayBase<S, D>,
        ) -> View<'a> {
            // SAFETY: an array's strides reach its own elements only.
            unsafe {
                View::strided(S::Elem::DTYPE, array.shape(), array.strides(), array.as_ptr().cast())
            }
        }
    }

    impl<'a> ViewMut<'a> {
        /// An array in row-major order. Err: it has other strides.
        pub fn of_array<S: DataMut<Elem: Element>, D: Dimension>(
            array: &'a mut ArrayBase<S, D>,
        ) -> Result<ViewMut<'a>, CallError> {
            if !array.is_standard_layout() {
                return Err(tensor_error(
                    "output",
                    "",
                    format!("is not in row-major order: its strides are {:?}", array.strides()),
                ));
            }
            // SAFETY: a standard layout has no gaps, and the array stays borrowed.
            let parts = unsafe {
                (
                    std::slice::from_raw_parts(array.shape().as_ptr(), array.ndim()),
                    array.as_mut_ptr(),
                    array.len(),
                )
            };
            // SAFETY: as above; shape and elements are different memory.
            ViewMut::of(parts.0, unsafe { std::slice::from_raw_parts_mut(parts.1, parts.2) })
        }
    }
}

// DLPack's 64-bit sizes and strides are read as this machine's.
#[cfg(all(feature = "dlpack", target_pointer_width = "64"))]
mod dlpack {
    use super::{View, ViewMut};
    use crate::{CallError, Place, call::tensor_error};
    use dlpark::ffi::{DLDataTypeCode as Code, DLDeviceType, DLTensor};

    /// MLIR's name of a DLPack type.
    fn dtype(t: &DLTensor) -> Option<&'static str> {
        Some(match (t.dtype.code, t.dtype.bits, t.dtype.lanes) {
            (Code::FLOAT, 64, 1) => "f64",
            (Code::FLOAT, 32, 1) => "f32",
            (Code::FLOAT, 16, 1) => "f16",
            (Code::BFLOAT, 16, 1) => "bf16",
            (Code::INT, 64, 1) => "i64",
            (Code::INT, 32, 1) => "i32",
            (Code::INT, 16, 1) => "i16",
            (Code::INT, 8, 1) => "i8",
            (Code::UINT, 8, 1) => "ui8",
            (Code::BOOL, 8, 1) => "i1",
            (Code::FLOAT8_E4M3FN, 8, 1) => "f8E4M3FN",
            (Code::FLOAT8_E5M2, 8, 1) => "f8E5M2",
            _ => return None,
        })
    }

    /// A tensor's parts, checked as far as they can be.
    struct Parts<'a> {
        place: Place,
        dtype: &'static str,
        shape: &'a [usize],
        strides: Option<&'a [isize]>,
        data: *mut u8,
    }

    /// # Safety
    /// As for [`View::of_dlpack`].
    unsafe fn parts<'a>(what: &'static str, t: &'a DLTensor) -> Result<Parts<'a>, CallError> {
        let refuse = |reason: String| tensor_error(what, "", reason);
        let place = match t.device.device_type {
            DLDeviceType::CPU | DLDeviceType::CUDAHOST => Place::Host,
            DLDeviceType::CUDA => {
                let index = t.device.device_id;
                Place::Cuda(
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
            // A GPU's address is a number here, so nothing is said about it.
            false => t.data.cast::<u8>().wrapping_add(t.byte_offset as usize),
        };
        if rank == 0 {
            return Ok(Parts { place, dtype, shape: &[], strides: Some(&[]), data });
        }
        if t.shape.is_null() {
            return Err(refuse("has no shape".into()));
        }
        // SAFETY: the caller's promise.
        let sizes = unsafe { std::slice::from_raw_parts(t.shape.cast_const(), rank) };
        if let Some(d) = sizes.iter().position(|n| *n < 0) {
            return Err(refuse(format!("has size {} in dimension {d}", sizes[d])));
        }
        // SAFETY: the caller's promise; sizes are not negative, and on 64-bit machines these are
        // the same numbers.
        let (shape, strides) = unsafe {
            let strides = (!t.strides.is_null())
                .then(|| std::slice::from_raw_parts(t.strides.cast::<isize>().cast_const(), rank));
            (std::slice::from_raw_parts(t.shape.cast::<usize>().cast_const(), rank), strides)
        };
        Ok(Parts { place, dtype, shape, strides, data })
    }

    impl<'a> View<'a> {
        /// A tensor of any strides in the memory of the host or of a GPU. Err: another device's
        /// memory, a type that kiln does not have, a negative size.
        ///
        /// # Safety
        /// The tensor is as DLPack says it has to be, and its memory, shape and strides live for
        /// `'a` and are not written to; a GPU's memory as [`View::on_cuda`] says.
        pub unsafe fn of_dlpack(t: &'a DLTensor) -> Result<View<'a>, CallError> {
            // SAFETY: the caller's promise.
            unsafe {
                let p = parts("input", t)?;
                Ok(match p.place {
                    Place::Host => View::at(Place::Host, p.dtype, p.shape, p.strides, p.data),
                    Place::Cuda(card) => {
                        View::on_cuda(card, p.dtype, p.shape, p.strides, p.data as u64)
                    }
                })
            }
        }
    }

    impl<'a> ViewMut<'a> {
        /// A tensor in row-major order in the memory of the host or of a GPU. Err: as for
        /// [`View::of_dlpack`]; strides are checked by the call, which can name the result.
        ///
        /// # Safety
        /// The tensor is as DLPack says it has to be, and its memory, shape and strides live for
        /// `'a` and are used by nothing else; a GPU's memory as [`ViewMut::on_cuda`] says.
        pub unsafe fn of_dlpack(t: &'a mut DLTensor) -> Result<ViewMut<'a>, CallError> {
            // SAFETY: the caller's promise.
            unsafe {
                let p = parts("output", t)?;
                Ok(ViewMut::at(p.place, p.dtype, p.shape, p.strides, p.data))
            }
        }
    }
}
