//! Where a call's tensors are: read and written where they lie if the kernels can, else by way of
//! memory of the call's own.
use super::{Device, plan::Plan};
use crate::{
    CallError, Place, Program, View, ViewMut,
    call::{same_dtype, tensor_error},
    view::check_place,
};
use cudarc::driver::sys::{self, CUmemorytype, CUpointer_attribute as Attribute};
use std::ffi::c_void;

/// Kernels read and write up to so many bytes at once, at multiples of as many.
pub const ALIGNED: u64 = 16;

/// How a tensor gets to the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It stays where it is, at this address.
    Here(u64),
    /// From or to the host, through pinned memory.
    Host,
    /// On the card, from or to this address, which wide accesses cannot use.
    Copied(u64),
    /// It has no elements.
    Empty,
}

/// What the program says of a call's tensors, before sizes.
pub fn check(
    program: &Program,
    inputs: &[View],
    outputs: &[ViewMut],
    runs: Place,
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
        check_place("input", &t.name, v.place(), runs)?;
    }
    for (v, t) in outputs.iter().zip(&program.outputs) {
        same_dtype("output", v.dtype(), t)?;
        check_place("output", &t.name, v.place(), runs)?;
        v.check_order(&t.name)?;
    }
    Ok(())
}

/// Whether a plan is for arguments of these sizes.
pub fn same_sizes(program: &Program, plan: &Plan, inputs: &[View]) -> bool {
    let mut rest = &plan.shapes[..];
    inputs.iter().zip(&program.inputs).all(|(v, t)| match rest.split_at_checked(t.dims.len()) {
        Some((shape, after)) if shape == v.shape => {
            rest = after;
            true
        }
        _ => false,
    })
}

/// Err: a result is not of the plan's sizes.
pub fn check_results(program: &Program, plan: &Plan, outputs: &[ViewMut]) -> Result<(), CallError> {
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

/// How an argument gets to the kernels. `known` are addresses that have been asked for.
pub fn input(
    device: &Device,
    v: &View,
    name: &str,
    order: &[usize],
    bytes: usize,
    known: &mut Vec<u64>,
) -> Result<Way, CallError> {
    if v.place() != Place::Host && bytes > 0 && !v.lies(order) {
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
    way(device, "input", name, v.place(), v.data as u64, bytes, known)
}

/// How a result gets from the kernels.
pub fn output(
    device: &Device,
    v: &ViewMut,
    name: &str,
    bytes: usize,
    known: &mut Vec<u64>,
) -> Result<Way, CallError> {
    way(device, "output", name, v.place(), v.data as u64, bytes, known)
}

fn way(
    device: &Device,
    what: &'static str,
    name: &str,
    place: Place,
    at: u64,
    bytes: usize,
    known: &mut Vec<u64>,
) -> Result<Way, CallError> {
    if bytes == 0 {
        return Ok(Way::Empty);
    }
    if place == Place::Host {
        return Ok(Way::Host);
    }
    if !known.contains(&at) {
        on_card(device, at).map_err(|reason| tensor_error(what, name, reason))?;
        // A program has few arguments; whoever passes ever new memory has it asked for every time.
        const KNOWN: usize = 64;
        if known.len() == KNOWN {
            known.clear();
        }
        known.push(at);
    }
    Ok(if at.is_multiple_of(ALIGNED) { Way::Here(at) } else { Way::Copied(at) })
}

/// Err: an address is not of this card's memory.
fn on_card(device: &Device, at: u64) -> Result<(), String> {
    let (mut kind, mut ordinal) = (0u32, -1i32);
    let mut asked = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let mut told: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
    // SAFETY: writes the two numbers.
    let asked =
        unsafe { sys::cuPointerGetAttributes(2, asked.as_mut_ptr(), told.as_mut_ptr(), at) }
            .result();
    let index = device.card().index;
    match (asked, kind) {
        (Ok(()), k)
            if k == CUmemorytype::CU_MEMORYTYPE_DEVICE as u32
                && usize::try_from(ordinal) == Ok(index) =>
        {
            Ok(())
        }
        (Ok(()), k) if k == CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 => Err(format!(
            "is said to lie in the memory of GPU {index}, {at:#x} is memory of GPU {ordinal}"
        )),
        (Ok(()), k) if k == CUmemorytype::CU_MEMORYTYPE_HOST as u32 => Err(format!(
            "is said to lie in the memory of GPU {index}, {at:#x} is pinned memory of the host"
        )),
        _ => Err(format!(
            "is said to lie in the memory of GPU {index}, {at:#x} is no memory that the driver knows, such as the host's"
        )),
    }
}
