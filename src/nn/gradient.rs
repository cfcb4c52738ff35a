//! Gradients by the weights of modules.
use super::{Parameter, stored::Value};
use crate::{
    compile::{Arguments, Function, Pack, Returns},
    runtime::DataError,
    tensor::{Graph, Tensor, TraceError, value_and_gradients},
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

/// The values of weights, in their order: in a trace the values that
/// [`value_and_grad`] differentiates by.
#[track_caller]
pub fn values(parameters: &[&Parameter]) -> Vec<Tensor> {
    let graph = Graph::current();
    let _frame = graph.frame(Location::caller());
    parameters.iter().map(|p| p.on(&graph)).collect()
}

/// Sets weights, without a copy; the next call of a compiled function reads them. Err: another
/// number of values, or one of another dtype or shape, or without data; no weight is changed then.
pub fn assign(parameters: &[&Parameter], values: &[Tensor]) -> Result<(), TraceError> {
    let fail = |e: DataError| TraceError::User(Box::new(e));
    if parameters.len() != values.len() {
        let (n, m) = (values.len(), parameters.len());
        return Err(fail(DataError::Mismatch(format!("{n} values are given for {m} weights"))));
    }
    let arrays = values.iter().map(Tensor::array).collect::<Result<Vec<_>, _>>()?;
    for (p, array) in parameters.iter().zip(&arrays) {
        p.check_type(array.dtype(), array.shape()).map_err(fail)?;
    }
    for (p, array) in parameters.iter().zip(arrays) {
        p.replace(Value { array, file: None });
    }
    Ok(())
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
