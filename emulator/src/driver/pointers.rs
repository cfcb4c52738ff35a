//! Pointer attributes.
use super::{CudaResult, alive, context, put, valid};
use crate::allocations::{MEMORY, MemoryKind};
use cudarc::driver::sys::{CUdeviceptr, CUmemorytype, CUpointer_attribute, CUresult};
use std::ffi::{c_int, c_uint, c_void};

/// An attribute value with the width that the driver writes.
#[derive(Clone, Copy)]
enum Value {
    Byte(u8),
    Number(c_int),
    Wide(u64),
}

impl Value {
    /// The value for pointers that the driver does not know.
    fn nothing(self) -> Value {
        match self {
            Value::Byte(_) => Value::Byte(0),
            Value::Number(_) => Value::Number(0),
            Value::Wide(_) => Value::Wide(0),
        }
    }
    /// # Safety
    /// As [`put`], with room for its width.
    unsafe fn put(self, to: *mut c_void) -> CudaResult {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Value::Byte(v) => put(to.cast(), v),
                Value::Number(v) => put(to.cast(), v),
                Value::Wide(v) => put(to.cast(), v),
            }
        }
    }
}

/// An attribute of a pointer, and whether the driver knows the pointer.
fn of(attribute: c_uint, at: u64) -> CudaResult<(Value, bool)> {
    use CUpointer_attribute::*;
    let found = MEMORY.find(at);
    let (first, len, kind) = found.unwrap_or((0, 0, MemoryKind::Device));
    let memory = match kind {
        MemoryKind::Device => CUmemorytype::CU_MEMORYTYPE_DEVICE,
        MemoryKind::Host => CUmemorytype::CU_MEMORYTYPE_HOST,
    };
    let all = [
        (CU_POINTER_ATTRIBUTE_CONTEXT, Value::Wide(context::handle().addr() as u64)),
        (CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Value::Number(memory as c_int)),
        (CU_POINTER_ATTRIBUTE_DEVICE_POINTER, Value::Wide(at)),
        (CU_POINTER_ATTRIBUTE_HOST_POINTER, Value::Wide(at)),
        (CU_POINTER_ATTRIBUTE_BUFFER_ID, Value::Wide(first)),
        (CU_POINTER_ATTRIBUTE_IS_MANAGED, Value::Byte(0)),
        (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, Value::Number(0)),
        (CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, Value::Wide(first)),
        (CU_POINTER_ATTRIBUTE_RANGE_SIZE, Value::Wide(len as u64)),
        (CU_POINTER_ATTRIBUTE_MAPPED, Value::Byte(1)),
    ];
    let (asked, value) = all
        .into_iter()
        .find(|(a, _)| *a as c_uint == attribute)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let known =
        found.is_some() && (asked != CU_POINTER_ATTRIBUTE_HOST_POINTER || kind == MemoryKind::Host);
    Ok((value, known))
}

/// A pointer attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(
    to: *mut c_void,
    attribute: c_uint,
    at: CUdeviceptr,
) -> CUresult {
    alive(|| {
        let (value, known) = of(attribute, at)?;
        valid(known)?;
        // SAFETY: room for the attribute.
        unsafe { value.put(to) }
    })
}

/// Several pointer attributes; zeros for a pointer that the driver does not know.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *mut c_uint,
    to: *mut *mut c_void,
    at: CUdeviceptr,
) -> CUresult {
    alive(|| {
        valid(count > 0 && !attributes.is_null() && !to.is_null())?;
        for i in 0..count as usize {
            // SAFETY: so many attributes, and so many addresses with room for these.
            unsafe {
                let (value, known) = of(*attributes.add(i), at)?;
                let value = if known { value } else { value.nothing() };
                value.put(*to.add(i))?;
            }
        }
        Ok(())
    })
}
