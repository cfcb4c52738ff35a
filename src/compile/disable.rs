//! `disable(f)`: excludes a function from graphs, as `torch.compiler.disable` does.
use super::{Arguments, Function, Leaf, Pack, Returns, function::leaves};
use crate::tensor::{Tensor, TraceError, run_disabled};
use std::{marker::PhantomData, panic::Location};

/// A function that always runs op by op; see [`disable`].
pub struct Disabled<F, A> {
    function: F,
    _arguments: PhantomData<fn(A)>,
}

/// Excludes a function from compilation. A call inside a compiled function is a graph break: the
/// graph so far runs, this function runs op by op, and capture resumes with its results. Compiled
/// functions that it calls run op by op too. Arguments and results are those of
/// [compiled](super::compile()) functions.
///
/// ```
/// use kiln::{Tensor, tensor::TraceError};
/// let odd = kiln::disable(|x: Tensor| -> Result<Tensor, TraceError> {
///     if x.sum(.., false).item::<f64>()? > 0.0 { Ok(x) } else { Ok(-x) }
/// });
/// let f = kiln::compile(move |x: Tensor| -> Result<Tensor, TraceError> {
///     Ok(odd.call(x * 2)?.exp())
/// });
/// assert_eq!(f.call(Tensor::from_slice(&[2], &[0.0f32, 0.0])?)?.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), kiln::Error>(())
/// ```
pub fn disable<F: Function<A>, A: Arguments>(function: F) -> Disabled<F, A> {
    Disabled { function, _arguments: PhantomData }
}

impl<F: Function<A>, A: Arguments> Disabled<F, A> {
    /// Calls the function. Err: an invalid op with its location, or the function's own error.
    /// Inside a trace it is the graph break, which the traced function must return, as for a read.
    #[track_caller]
    pub fn call(&self, arguments: impl Pack<A>) -> Result<<F::Out as Returns>::Tree, TraceError> {
        let location = Location::caller();
        let arguments = arguments.pack();
        let tree = run_disabled(location, &tensors(leaves(&arguments)), || {
            self.function.invoke(arguments).into_tree()
        })?;
        for t in tensors(leaves(&tree)) {
            t.check()?;
        }
        Ok(tree)
    }
}

/// The tensors among leaves, including computed numbers.
fn tensors(leaves: Vec<Leaf>) -> Vec<Tensor> {
    let tensor = |leaf| match leaf {
        Leaf::Tensor(t) => Some(t),
        Leaf::Number(s) => (!s.is_plain()).then(|| s.tensor()),
        Leaf::Scalar(_) => None,
    };
    leaves.into_iter().filter_map(tensor).collect()
}
