//! Gradients by the weights of modules.
use super::Parameter;
use crate::{
    compile::{Arguments, Function, Pack, Returns},
    tensor::{Tensor, TraceError, value_and_gradients},
};
use std::{marker::PhantomData, panic::Location};

/// What a function returns, and a gradient for each weight.
type WithGradients<F, A> = (<<F as Function<A>>::Out as Returns>::Tree, Vec<Tensor>);

/// A function's value and its gradients by weights; see [`value_and_grad`].
pub struct ValueAndGrad<'p, F, A> {
    parameters: Vec<&'p Parameter>,
    function: F,
    site: &'static Location<'static>,
    _arguments: PhantomData<fn(A)>,
}

/// As [`kiln::value_and_grad`](crate::value_and_grad), by weights: (what the function returns, a
/// gradient for each weight, in its shape and dtype). A weight that the function does not use has
/// gradient 0. [`Parameter::set`] takes a new value, which the next call reads.
///
/// ```
/// use kiln::{Tensor, nn::{self, Linear, Module, Scope}};
/// let net = Linear::without_bias(&Scope::root(), 2, 1);
/// let loss = |x: Tensor| net.forward(&x).sum(.., false);
/// let step = kiln::compile(nn::value_and_grad(net.parameters(), loss));
/// let x = Tensor::from_slice(&[1, 2], &[3.0f32, 4.0])?;
/// let (_, gradients) = step.call(&x)?;
/// assert_eq!(gradients[0].to_vec::<f32>()?, [3.0, 4.0]);
/// # Ok::<(), kiln::Error>(())
/// ```
#[track_caller]
pub fn value_and_grad<F: Function<A>, A: Arguments>(
    parameters: Vec<&Parameter>,
    function: F,
) -> ValueAndGrad<'_, F, A> {
    ValueAndGrad { parameters, function, site: Location::caller(), _arguments: PhantomData }
}

impl<F: Function<A>, A: Arguments> ValueAndGrad<'_, F, A> {
    /// Calls it. Err: as for [`kiln::value_and_grad`](crate::value_and_grad).
    #[track_caller]
    pub fn call(&self, arguments: impl Pack<A>) -> Result<WithGradients<F, A>, TraceError> {
        self.at(Location::caller(), arguments.pack())
    }
    fn at(
        &self,
        site: &'static Location<'static>,
        arguments: A,
    ) -> Result<WithGradients<F, A>, TraceError> {
        value_and_gradients(site, &self.function, arguments, 0, |graph, _| {
            Ok(self.parameters.iter().map(|p| p.on(graph)).collect())
        })
    }
}

impl<F: Function<A>, A: Arguments> Function<A> for ValueAndGrad<'_, F, A> {
    type Out = Result<WithGradients<F, A>, TraceError>;
    fn invoke(&self, arguments: A) -> Self::Out {
        self.at(self.site, arguments)
    }
}
