//! `torch.autocast` for functions of tensors: ops take their arguments in the precision that
//! PyTorch's lists give for them (`src/capture/autocast.rs`).
use super::{Graph, Operand, Tensor, TraceError, arg::Arg};
use crate::{
    capture::autocast::{Autocast, Policy},
    compile::Returns,
    runtime::DataError,
};
use kiln_dialects::value::DType;
use std::cell::RefCell;

thread_local! {
    /// The calls of [`autocast`] of this thread, innermost last; `None` disables the outer ones.
    static CONTEXTS: RefCell<Vec<Option<Autocast>>> = const { RefCell::new(vec![]) };
}

/// Leaves a context, also when a function panics.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        CONTEXTS.with_borrow_mut(Vec::pop);
    }
}

fn within<R>(context: Option<Autocast>, f: impl FnOnce() -> R) -> R {
    CONTEXTS.with_borrow_mut(|all| all.push(context));
    let _leave = Leave;
    f()
}

/// Whether ops of this thread convert their arguments.
pub(crate) fn is_autocast() -> bool {
    CONTEXTS.with_borrow(|all| all.last().is_some_and(Option::is_some))
}

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
    let context =
        Autocast::new(device, Some(dtype)).map_err(|e| DataError::Mismatch(e.to_string()))?;
    within(Some(context), || f().into_tree())
}

/// Calls a function outside of the contexts around it, as `torch.autocast(enabled=False)`.
pub fn without_autocast<R>(f: impl FnOnce() -> R) -> R {
    within(None, f)
}

/// Converts the arguments of a row by the context around it.
#[track_caller]
pub(super) fn cast(
    op: &'static str,
    target: &str,
    args: Vec<(&'static str, Arg)>,
) -> Vec<(&'static str, Arg)> {
    let context = CONTEXTS.with_borrow(|all| all.last().copied().flatten());
    let Some((context, policy)) = context.and_then(|c| Some((c, c.policy(target)?))) else {
        return args;
    };
    let names_dtype = || args.iter().any(|(name, _)| *name == "dtype");
    let to = match policy {
        Policy::Lower => context.dtype,
        Policy::SingleByDefault if names_dtype() => return args,
        Policy::Single | Policy::SingleByDefault => DType::F32,
        // Of the eligible dtypes, f32 is the only one wider than the context's.
        Policy::Promote => {
            let all = args.iter().flat_map(|(_, a)| a.tensors());
            let wide = all.filter_map(|t| eligible(&t)).any(|d| d == DType::F32);
            if wide { DType::F32 } else { context.dtype }
        }
    };
    let one = |t: Tensor| match eligible(&t) {
        Some(from) if from != to => {
            note(&t.graph(), op, from, to);
            t.to(to)
        }
        _ => t,
    };
    let arg = |arg: Arg| match arg {
        Arg::Operand(Operand::Tensor(t)) => Arg::Operand(Operand::Tensor(one(t))),
        Arg::Tensors(all) => Arg::Tensors(all.into_iter().map(one).collect()),
        other => other,
    };
    args.into_iter().map(|(name, a)| (name, arg(a))).collect()
}

/// The dtype of a tensor that is converted: a float, f64 aside.
fn eligible(t: &Tensor) -> Option<DType> {
    t.dtype().ok().filter(|d| d.is_float() && *d != DType::F64)
}

/// Counts a conversion, which a compiled function reports.
fn note(graph: &Graph, op: &'static str, from: DType, to: DType) {
    if let Ok(mut state) = graph.state()
        && let Some(session) = &mut state.session
    {
        *session.casts.entry((op, from.name(), to.name())).or_default() += 1;
    }
}
