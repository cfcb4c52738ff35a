//! Checkpoints: functions that a backward pass runs again instead of keeping their values.
use super::{
    Tensor, TraceError,
    control::{FlatTree, Results, tracing, user},
    gradient::flat,
    region::{Body, RegionOp},
};
use crate::{
    compile::{Arguments, Function, Pack, Returns},
    nn::mode,
};
use kiln_dialects::ops::OpKind;
use std::{marker::PhantomData, panic::Location};

/// A function whose values are not kept; see [`checkpoint`].
pub struct Checkpoint<F, A> {
    function: F,
    site: &'static Location<'static>,
    _arguments: PhantomData<fn(A)>,
}

/// A function of the same arguments and results, of which a backward pass keeps the arguments, and
/// what the function captures, alone: it runs the function again. As `torch.utils.checkpoint` and
/// `jax.checkpoint`. Dropout by [`nn::train`](crate::nn::train) drops the same elements then.
/// Outside of traces it is the function itself.
///
/// ```
/// use kiln::Tensor;
/// let block = |x: Tensor| x.exp().sin().exp();
/// let loss = |x: Tensor| kiln::checkpoint(block).call(&x).map(|y| y.sum(.., false));
/// let x = Tensor::from_slice(&[2], &[0.5f64, -1.0])?;
/// let found = kiln::compile(kiln::grad(loss)).call(&x)?;
/// let wanted = kiln::grad(move |x: Tensor| block(x).sum(.., false)).call(&x)?;
/// assert_eq!(found.to_vec::<f64>()?, wanted.to_vec::<f64>()?);
/// # Ok::<(), kiln::Error>(())
/// ```
#[track_caller]
pub fn checkpoint<F: Function<A>, A: Arguments>(function: F) -> Checkpoint<F, A> {
    Checkpoint { function, site: Location::caller(), _arguments: PhantomData }
}

impl<F: Function<A>, A: Arguments> Checkpoint<F, A> {
    /// Calls it. Err: the function's own error, or an invalid op with its location.
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
        let Some(graph) = tracing(&[&given.tensors]) else {
            return self.function.invoke(arguments).into_tree();
        };
        let (mut arguments, mut kept) = (Some(arguments), None);
        let outside = graph.place();
        let mut run = |_: Vec<Tensor>| {
            let arguments = arguments.take().ok_or_else(|| user("is traced twice"))?;
            let (tree, updates) = mode::within(outside, || flat(self.function.invoke(arguments)));
            let tree = tree?;
            let buffers: Vec<Tensor> = updates.iter().map(|(_, t)| t.clone()).collect();
            let all = [tree.tensors.as_slice(), &buffers].concat();
            kept = Some((tree, updates));
            Ok(all)
        };
        let bodies = vec![Body { args: vec![], result_types: None, run: &mut run }];
        let op = RegionOp { kind: OpKind::Checkpoint, operands: vec![], attrs: vec![], bodies };
        let first = |all: &[_]| Ok(all.first().cloned().unwrap_or_default());
        let mut made = graph.region_op(site, "checkpoint", op, &first)?;
        let (tree, updates) = kept.ok_or_else(|| user("has traced nothing"))?;
        let buffers = made.split_off(tree.tensors.len());
        updates.into_iter().zip(buffers).for_each(|((name, _), t)| mode::update(&name, t));
        tree.rebuild(made)
    }
}

impl<F: Function<A>, A: Arguments> Function<A> for Checkpoint<F, A> {
    type Out = Result<Results<F, A>, TraceError>;
    fn invoke(&self, arguments: A) -> Self::Out {
        self.at(self.site, arguments)
    }
}
