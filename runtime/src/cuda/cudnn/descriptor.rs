//! Descriptors of cuDNN's graph API (`cudnnBackendDescriptor_t`): set attributes, then finalise,
//! then refer to it from other descriptors.
use super::failure::failed;
use crate::cuda::CudaError;
use cudarc::cudnn::sys;
use std::{ffi::c_void, ptr};
use sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind,
};

/// A type of attribute values.
///
/// # Safety
/// Its layout is that of cuDNN's attribute type `TYPE`.
pub unsafe trait Value {
    const TYPE: Type;
}

macro_rules! values {
    ($($of:ty: $name:ident),*) => {
        // SAFETY: the layouts of the library's header.
        $(unsafe impl Value for $of {
            const TYPE: Type = Type::$name;
        })*
    };
}

values! {
    i64: CUDNN_TYPE_INT64,
    f32: CUDNN_TYPE_FLOAT,
    bool: CUDNN_TYPE_BOOLEAN,
    sys::cudnnDataType_t: CUDNN_TYPE_DATA_TYPE,
    sys::cudnnConvolutionMode_t: CUDNN_TYPE_CONVOLUTION_MODE,
    sys::cudnnPointwiseMode_t: CUDNN_TYPE_POINTWISE_MODE,
    sys::cudnnBackendHeurMode_t: CUDNN_TYPE_HEUR_MODE,
    sys::cudnnHandle_t: CUDNN_TYPE_HANDLE,
    Address: CUDNN_TYPE_VOID_PTR,
    Inner: CUDNN_TYPE_BACKEND_DESCRIPTOR
}

/// A device pointer.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(pub *mut c_void);

/// A descriptor as another one's attribute.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Inner(sys::cudnnBackendDescriptor_t);

/// A backend descriptor, destroyed on drop.
pub struct Descriptor(sys::cudnnBackendDescriptor_t);

impl Descriptor {
    /// Creates a descriptor without attributes.
    pub fn new(kind: Kind) -> Result<Descriptor, CudaError> {
        let mut made = ptr::null_mut();
        // SAFETY: writes one pointer.
        unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut made) }
            .result()
            .map_err(failed("describing a convolution to cuDNN"))?;
        Ok(Descriptor(made))
    }
    /// Sets an attribute.
    pub fn with<T: Value>(self, name: Name, values: &[T]) -> Result<Descriptor, CudaError> {
        // SAFETY: an array of that many values of that type.
        unsafe {
            sys::cudnnBackendSetAttribute(
                self.0,
                name,
                T::TYPE,
                values.len() as i64,
                values.as_ptr().cast(),
            )
        }
        .result()
        .map_err(failed("describing a convolution to cuDNN"))?;
        Ok(self)
    }
    /// Sets an attribute that is a descriptor.
    pub fn with_descriptor(self, name: Name, inner: &Descriptor) -> Result<Descriptor, CudaError> {
        self.with(name, &[inner.inner()])
    }
    /// Finalises it. Err: the library does not support it.
    pub fn finalize(self) -> Result<Descriptor, CudaError> {
        // SAFETY: a live descriptor.
        unsafe { sys::cudnnBackendFinalize(self.0) }
            .result()
            .map_err(failed("describing a convolution to cuDNN"))?;
        Ok(self)
    }
    pub fn inner(&self) -> Inner {
        Inner(self.0)
    }
    pub fn raw(&self) -> sys::cudnnBackendDescriptor_t {
        self.0
    }
    /// Reads an attribute of one integer.
    pub fn integer(&self, name: Name) -> Result<i64, CudaError> {
        let (mut n, mut count) = (0i64, 0);
        // SAFETY: room for the one integer.
        unsafe {
            sys::cudnnBackendGetAttribute(
                self.0,
                name,
                Type::CUDNN_TYPE_INT64,
                1,
                &mut count,
                (&raw mut n).cast(),
            )
        }
        .result()
        .map_err(failed("asking cuDNN for a number"))?;
        Ok(n)
    }
    /// Reads an attribute of at most `most` enumerators.
    pub fn enumerators(&self, name: Name, of: Type, most: usize) -> Result<Vec<u32>, CudaError> {
        let (mut all, mut count) = (vec![0u32; most], 0);
        // SAFETY: room for `most` values; integers, since a newer library may have more
        // enumerators.
        unsafe {
            sys::cudnnBackendGetAttribute(
                self.0,
                name,
                of,
                most as i64,
                &mut count,
                all.as_mut_ptr().cast(),
            )
        }
        .result()
        .map_err(failed("asking cuDNN for notes"))?;
        all.truncate(usize::try_from(count).unwrap_or(0));
        Ok(all)
    }
    /// Reads an attribute that is one descriptor of this kind.
    pub fn descriptor(&self, name: Name, kind: Kind) -> Result<Descriptor, CudaError> {
        let one = Descriptor::new(kind)?;
        let (mut inner, mut have) = (one.inner(), 0i64);
        // SAFETY: a live descriptor of this kind, which the library fills.
        unsafe {
            sys::cudnnBackendGetAttribute(
                self.0,
                name,
                Inner::TYPE,
                1,
                &mut have,
                (&raw mut inner).cast(),
            )
        }
        .result()
        .map_err(failed("asking cuDNN for a description"))?;
        Ok(one)
    }
    /// Reads an attribute that is a list of descriptors of this kind.
    pub fn descriptors(&self, name: Name, kind: Kind) -> Result<Vec<Descriptor>, CudaError> {
        let fail = failed("asking cuDNN for descriptions");
        let mut count = 0i64;
        // SAFETY: only counts.
        unsafe {
            sys::cudnnBackendGetAttribute(self.0, name, Inner::TYPE, 0, &mut count, ptr::null_mut())
        }
        .result()
        .map_err(&fail)?;
        let mut all = (0..count).map(|_| Descriptor::new(kind)).collect::<Result<Vec<_>, _>>()?;
        let mut inner: Vec<Inner> = all.iter().map(Descriptor::inner).collect();
        let mut have = 0i64;
        // SAFETY: that many live descriptors of this kind, which the library fills.
        unsafe {
            sys::cudnnBackendGetAttribute(
                self.0,
                name,
                Inner::TYPE,
                count,
                &mut have,
                inner.as_mut_ptr().cast(),
            )
        }
        .result()
        .map_err(&fail)?;
        all.truncate(usize::try_from(have).unwrap_or(0));
        Ok(all)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}
