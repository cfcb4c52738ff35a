//! `disable(f)`: a function that no graph takes in.
use super::{Arguments, Function, Leaf, Pack, Returns, function::leaves};
use crate::tensor::{Tensor, TraceError, left_out};
use std::{marker::PhantomData, panic::Location};

/// A function that runs op by op wherever it is called; see [`disable`].
pub struct Disabled<F, A> {
    function: F,
    _arguments: PhantomData<fn(A)>,
}

/// Keeps a function out of graphs. Called within a function that is compiled, it ends the graph:
/// what has been captured is compiled and runs, this function runs op by op with its arguments as
/// values, and what follows is captured again with its results as values. Elsewhere it just runs.
/// It takes and gives what functions do that are [compiled](super::compile()). Compiled functions
/// that it calls run op by op, too.
///
/// ```
/// use kiln::{Tensor, tensor::TraceError};
/// let odd = kiln::disable(|x: Tensor| -> Result<Tensor, TraceError> { if x.sum(.., false).item::<f64>()? > 0.0 { Ok(x) } else { Ok(-x) } });
/// let f = kiln::compile(move |x: Tensor| -> Result<Tensor, TraceError> { Ok(odd.call(x * 2)?.exp()) });
/// assert_eq!(f.call(Tensor::of(&[2], &[0.0f32, 0.0])?)?.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), kiln::Error>(())
/// ```
pub fn disable<F: Function<A>, A: Arguments>(function: F) -> Disabled<F, A> {
    Disabled { function, _arguments: PhantomData }
}

impl<F: Function<A>, A: Arguments> Disabled<F, A> {
    /// Calls the function. Err: within a function that is traced, the end of its graph, which that
    /// function has to give back, as that of a read; an op that cannot be, with its place; the
    /// function's own.
    #[track_caller]
    pub fn call(&self, arguments: impl Pack<A>) -> Result<<F::Out as Returns>::Tree, TraceError> {
        let place = Location::caller();
        let arguments = arguments.pack();
        let tree = left_out(place, &tensors(leaves(&arguments)), || {
            self.function.invoke(arguments).into_tree()
        })?;
        for t in tensors(leaves(&tree)) {
            t.check()?;
        }
        Ok(tree)
    }
}

/// The tensors among leaves, and numbers that were computed as such.
fn tensors(leaves: Vec<Leaf>) -> Vec<Tensor> {
    let tensor = |leaf| match leaf {
        Leaf::Tensor(t) => Some(t),
        Leaf::Number(s) => (!s.is_plain()).then(|| s.tensor()),
        Leaf::Scalar(_) => None,
    };
    leaves.into_iter().filter_map(tensor).collect()
}
