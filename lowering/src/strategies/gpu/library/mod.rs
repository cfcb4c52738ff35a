//! Matches kernels that one library call can replace: a product or a convolution with a supported
//! epilogue, and nothing else.
pub(crate) mod convolution;
pub(crate) mod epilogue;
pub(crate) mod gemm;

use crate::{
    analysis::{Kernel, NestPlan, Role},
    target::launch::LIBRARY,
};
use kiln_dialects::ir::*;
use kiln_runtime::{
    gemm::Activation,
    library_call::{CUBLASLT, CUDNN, LibraryCall},
};

/// Attaches the library call that `kiln.library` names to a kernel's function.
///
/// # Errors
/// There is no such library, or it does not support the kernel.
pub fn describe(k: &Kernel, plan: &NestPlan, tf32: bool) -> Result<()> {
    let Some(name) = k.func.attr(LIBRARY).and_then(Attr::as_string) else { return Ok(()) };
    let (told, what) = match name.as_str() {
        CUBLASLT => (gemm::describe(k, plan, tf32), "product"),
        CUDNN => (convolution::describe(k, plan, tf32), "convolution"),
        _ => {
            return Err(format!(
                "is for library '{name}', which is none of {}",
                LibraryCall::LIBRARIES.join(" ")
            )
            .into());
        }
    };
    let mut entries =
        told.ok_or_else(|| format!("is for library '{name}', but is no {what} that it has"))?;
    let c = k.func.ctx();
    entries.push(("name", Attr::string(c, &name)));
    entries.sort_by_key(|(name, _)| *name);
    k.func.set_attr(LIBRARY, Attr::dictionary(c, &entries));
    Ok(())
}

/// Decodes `kiln.library`.
pub fn read(a: Attr) -> Result<LibraryCall> {
    let told = match a.entry("name").and_then(Attr::as_string).as_deref() {
        Some(CUBLASLT) => gemm::read(a).map(|g| LibraryCall::Gemm(Box::new(g))),
        Some(CUDNN) => convolution::read(a).map(|c| LibraryCall::Convolution(Box::new(c))),
        _ => None,
    };
    told.ok_or_else(|| format!("has a bad kiln.library {a}").into())
}

/// The activation; no entry means none.
fn activation(a: Attr) -> Option<Activation> {
    let Some(name) = a.entry("activation").and_then(Attr::as_string) else {
        return Some(Activation::None);
    };
    Activation::ALL.iter().find(|(n, _)| *n == name).map(|(_, a)| *a)
}

/// The integers of an attribute, if none is negative.
fn numbers(a: Attr) -> Option<Vec<u64>> {
    a.as_i64s()?.into_iter().map(|n| u64::try_from(n).ok()).collect()
}

/// The name of the element type that a matrix or a volume states.
fn element(a: Attr) -> Option<String> {
    Some(a.entry("element")?.as_type()?.dtype().ok()?.name().to_string())
}

/// The entry of an activation, if it is not none.
fn activation_entry(c: Ctx, activation: Activation) -> Option<(&'static str, Attr)> {
    let (name, _) =
        Activation::ALL.iter().find(|(_, a)| *a == activation && *a != Activation::None)?;
    Some(("activation", Attr::string(c, name)))
}

/// `Some(None)` for the result, `Some(Some(number))` for an argument; `None` for buffers that are
/// not the caller's.
fn role(k: &Kernel, buffer: usize) -> Option<Option<usize>> {
    match k.buffers.get(buffer)?.role {
        Role::Output(0) => Some(None),
        Role::Input(n) => Some(Some(n)),
        _ => None,
    }
}
