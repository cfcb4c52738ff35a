//! How the tensors of a call reach the kernels: by device pointer if the kernels can use it, else
//! through a device buffer of the call's state.
use super::{Device, plan::LaunchPlan};
use crate::{
    CallError, DataError, DeviceId, Program, View, ViewMut, call::same_dtype,
    call_error::tensor_error, view::check_device,
};
use cudarc::driver::sys::{self, CUmemorytype, CUpointer_attribute as Attribute};
use std::ffi::c_void;

/// Kernels issue accesses of up to this many bytes, aligned to as many.
pub const ALIGNMENT: u64 = 16;

/// How a tensor reaches the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// In place: kernels use this device pointer.
    InPlace(u64),
    /// Copied from or to host memory, through pinned memory unless it is pinned itself.
    Host,
    /// Copied device to device, from or to this address, which is too weakly aligned for vector
    /// accesses.
    Copied(u64),
    /// No elements, no copy.
    Empty,
}

/// Checks counts, dtypes, ranks and devices of a call's tensors, before sizes are resolved.
pub fn check(
    program: &Program,
    inputs: &[View],
    outputs: &[ViewMut],
    runs: DeviceId,
) -> Result<(), CallError> {
    for (what, want, have) in [
        ("inputs", program.inputs.len(), inputs.len()),
        ("outputs", program.outputs.len(), outputs.len()),
    ] {
        if want != have {
            return Err(CallError::Count { what, want, have });
        }
    }
    for (v, t) in inputs.iter().zip(&program.inputs) {
        same_dtype("input", v.dtype(), t)?;
        check_device("input", &t.name, v.device(), runs)?;
    }
    for (v, t) in outputs.iter().zip(&program.outputs) {
        same_dtype("output", v.dtype(), t)?;
        check_device("output", &t.name, v.device(), runs)?;
        v.check_order(&t.name)?;
    }
    Ok(())
}

/// Whether a plan was made for inputs of these shapes.
pub fn same_sizes<'s>(
    program: &Program,
    plan: &LaunchPlan,
    shapes: impl IntoIterator<Item = &'s [usize]>,
) -> bool {
    let mut rest = &plan.shapes[..];
    shapes.into_iter().zip(&program.inputs).all(|(shape, t)| {
        match rest.split_at_checked(t.dims.len()) {
            Some((planned, after)) if planned == shape => {
                rest = after;
                true
            }
            _ => false,
        }
    })
}

/// Err: an output's shape is not the plan's.
pub fn check_results(
    program: &Program,
    plan: &LaunchPlan,
    outputs: &[ViewMut],
) -> Result<(), CallError> {
    let mut rest = &plan.results[..];
    for (v, t) in outputs.iter().zip(&program.outputs) {
        let (shape, after) = rest.split_at(t.dims.len().min(rest.len()));
        rest = after;
        if v.shape.len() != shape.len() {
            let reason =
                format!("has {} dimensions; the program writes {}", v.shape.len(), shape.len());
            return Err(tensor_error("output", &t.name, reason));
        }
        if let Some(i) = (0..shape.len()).find(|i| v.shape[*i] != shape[*i]) {
            let reason = format!(
                "has size {} in dimension {i}; the program writes {}",
                v.shape[i], shape[i]
            );
            return Err(tensor_error("output", &t.name, reason));
        }
    }
    Ok(())
}

/// How an input reaches the kernels. `known` caches addresses that the driver has confirmed.
pub fn input(
    device: &Device,
    v: &View,
    name: &str,
    order: &[usize],
    bytes: usize,
    known: &mut Vec<u64>,
) -> Result<Residency, CallError> {
    if v.device() != DeviceId::Host && bytes > 0 && !v.is_dense(order) {
        let want = if order.is_empty() {
            "row-major order".into()
        } else {
            format!("the order {order:?} of its dimensions")
        };
        let reason = format!(
            "lies on the GPU with other strides than those of {want}, which the program reads"
        );
        return Err(tensor_error("input", name, reason));
    }
    residency(device, "input", name, v.device(), v.data as u64, bytes, known)
}

/// How an output leaves the kernels.
pub fn output(
    device: &Device,
    v: &ViewMut,
    name: &str,
    bytes: usize,
    known: &mut Vec<u64>,
) -> Result<Residency, CallError> {
    residency(device, "output", name, v.device(), v.data as u64, bytes, known)
}

fn residency(
    device: &Device,
    what: &'static str,
    name: &str,
    tensor_device: DeviceId,
    at: u64,
    bytes: usize,
    known: &mut Vec<u64>,
) -> Result<Residency, CallError> {
    if bytes == 0 {
        return Ok(Residency::Empty);
    }
    if tensor_device == DeviceId::Host {
        return Ok(Residency::Host);
    }
    if !known.contains(&at) {
        on_device(device, at).map_err(|e| tensor_error(what, name, e.to_string()))?;
        // Bounds the cache: a caller that never reuses memory pays one driver query a tensor.
        const KNOWN: usize = 64;
        if known.len() == KNOWN {
            known.clear();
        }
        known.push(at);
    }
    Ok(if at.is_multiple_of(ALIGNMENT) { Residency::InPlace(at) } else { Residency::Copied(at) })
}

/// Err: the address is not in this device's memory.
fn on_device(device: &Device, at: u64) -> Result<(), DataError> {
    let (mut kind, mut ordinal) = (0u32, -1i32);
    let mut asked = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let mut told: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
    // SAFETY: writes the two attributes.
    let asked =
        unsafe { sys::cuPointerGetAttributes(2, asked.as_mut_ptr(), told.as_mut_ptr(), at) }
            .result();
    let index = device.info().index;
    match (asked, kind) {
        (Ok(()), k)
            if k == CUmemorytype::CU_MEMORYTYPE_DEVICE as u32
                && usize::try_from(ordinal) == Ok(index) =>
        {
            Ok(())
        }
        (Ok(()), k) if k == CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 => {
            Err(DataError::Mismatch(format!(
                "is said to lie in the memory of GPU {index}, {at:#x} is memory of GPU {ordinal}"
            )))
        }
        (Ok(()), k) if k == CUmemorytype::CU_MEMORYTYPE_HOST as u32 => {
            Err(DataError::Mismatch(format!(
                "is said to lie in the memory of GPU {index}, {at:#x} is pinned memory of the host"
            )))
        }
        _ => Err(DataError::Mismatch(format!(
            "is said to lie in the memory of GPU {index}, {at:#x} is no memory that the driver knows, such as the host's"
        ))),
    }
}
