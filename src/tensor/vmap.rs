//! Vectorised functions: of one example, called with a batch.
use super::{
    TraceError,
    control::{FlatTree, Results, map, tracing, user},
    derivative::extended,
    gradient::flat,
};
use crate::compile::{Arguments, Function, Pack};
use std::{marker::PhantomData, panic::Location};

/// A function on batches; see [`vmap`].
pub struct Vmap<F, A> {
    function: F,
    site: &'static Location<'static>,
    _arguments: PhantomData<fn(A)>,
}

/// A function of batches from one of single examples, as `jax.vmap`: dimension 0 of every tensor
/// among the arguments and the results is the batch. What the function captures is the same for all
/// examples. Each op has a batching rule, or runs in a loop.
/// [Compiled](crate::compile()), it is one program; [`grad`](crate::grad) goes into it and around
/// it: `vmap(grad(f))` are the gradients of each example.
///
/// ```
/// use kiln::Tensor;
/// let cosine = |x: Tensor, y: Tensor| {
///     let norm = |v: &Tensor| v.square().sum(.., false).sqrt();
///     (&x * &y).sum(.., false) / (norm(&x) * norm(&y))
/// };
/// let x = Tensor::from_slice(&[2, 2], &[1.0f64, 0.0, 3.0, 4.0])?;
/// let y = Tensor::from_slice(&[2, 2], &[2.0f64, 0.0, 4.0, -3.0])?;
/// assert_eq!(kiln::vmap(cosine).call((&x, &y))?.to_vec::<f64>()?, [1.0, 0.0]);
/// # Ok::<(), kiln::Error>(())
/// ```
#[track_caller]
pub fn vmap<F: Function<A>, A: Arguments>(function: F) -> Vmap<F, A> {
    Vmap { function, site: Location::caller(), _arguments: PhantomData }
}

impl<F: Function<A>, A: Arguments> Vmap<F, A> {
    /// Calls it. Err: tensors of other first dimensions, the function's own error, an invalid op or
    /// one that cannot be batched, with its location, or a read of a value.
    #[track_caller]
    pub fn call(&self, arguments: impl Pack<A>) -> Result<Results<F, A>, TraceError> {
        self.at(Location::caller(), arguments.pack())
    }

    fn at(
        &self,
        site: &'static Location<'static>,
        arguments: A,
    ) -> Result<Results<F, A>, TraceError> {
        let given = FlatTree::of(&arguments);
        let batched = |tensors: Vec<_>| -> Result<FlatTree, TraceError> {
            let graph = tracing(&[&tensors]).ok_or_else(|| user("vmap is not traced"))?;
            let each = |one: A| self.function.invoke(one);
            let mut tree = flat(map(each, given.rebuild::<A>(tensors)?))?;
            tree.tensors = graph.vectorised(site, &tree.tensors)?;
            Ok(tree)
        };
        let nothing = |_: &_, _: &_, _: &[_], _: &[_]| Ok(vec![]);
        let (tree, _) = extended(site, "vmap", [&given.tensors, &[]], 0, batched, nothing)?;
        tree.rebuild(tree.tensors.clone())
    }
}

impl<F: Function<A>, A: Arguments> Function<A> for Vmap<F, A> {
    type Out = Result<Results<F, A>, TraceError>;
    fn invoke(&self, arguments: A) -> Self::Out {
        self.at(self.site, arguments)
    }
}
