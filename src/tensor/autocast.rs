//! `torch.autocast` for functions of tensors: ops take their arguments in the precision that
//! PyTorch's lists give for them (`src/capture/autocast.rs`).
use super::{TraceError, autocast_context::within};
use crate::{capture::autocast::Autocast, compile::Returns, runtime::DataError};
use kiln_dialects::value::DType;

/// Calls a function in mixed precision, as `torch.autocast(device, dtype)`: matrix products,
/// convolutions and attention take their f32 arguments in `dtype` (bf16 or f16), ops that need range
/// or precision take 16-bit ones in f32, others what they are given. `device` chooses between
/// PyTorch's lists for `cpu` and `cuda`. Weights stay f32, and so do their gradients.
///
/// It goes inside of what is compiled or differentiated; around a compiled function it is an error
/// of the call. Err: another dtype or device, or the function's own error.
///
/// ```
/// use kiln::{Tensor, autocast, dialects::value::DType};
/// let f = kiln::compile(|x: Tensor, w: Tensor| {
///     autocast("cpu", DType::BF16, || x.linear(&w, None).softmax(-1))
/// });
/// let (x, w) = (Tensor::from_slice(&[1, 2], &[1.0f32; 2])?, Tensor::from_slice(&[3, 2], &[0.5f32; 6])?);
/// assert_eq!(f.call((&x, &w))?.dtype()?, DType::BF16);
/// # Ok::<(), kiln::Error>(())
/// ```
pub fn autocast<R: Returns>(
    device: &str,
    dtype: DType,
    f: impl FnOnce() -> R,
) -> Result<R::Tree, TraceError> {
    let device = super::device::parse(device)?.gpu().map_or("cpu", |_| "cuda");
    let context = Autocast::new(device, Some(dtype)).map_err(DataError::mismatch)?;
    within(Some(context), || f().into_tree())
}

/// Calls a function outside of the contexts around it, as `torch.autocast(enabled=False)`.
pub fn without_autocast<R>(f: impl FnOnce() -> R) -> R {
    within(None, f)
}
