//! Gradients of functions of tensors: [`grad`], [`value_and_grad`], [`vjp`], [`jvp`].
//!
//! In a trace the function is traced once, and its backward pass follows in the same graph: within
//! a compiled function both are one program. In eager mode each call traces the function and runs
//! its graph, with the tensors that it reads as inputs; the process keeps the programs.
use super::{
    Graph, Tensor, TraceError,
    control::{FlatLeaf, FlatTree, Results, user},
    derivative::extended,
    region::show,
};
use crate::{
    compile::{Arguments, FirstArgument, Function, Leaf, Pack, Returns},
    runtime::guards::Scalar,
};
use kiln_dialects::sym::Dim;
use std::{marker::PhantomData, panic::Location};

/// The name of `grad` and its relatives in errors.
const OP: &str = "grad";

/// What a function returns, and its vector-Jacobian product.
type WithPullback<F, A> = (Results<F, A>, Pullback<F, A>);
/// What a function returns, twice: values and their tangents.
type WithTangents<F, A> = (Results<F, A>, Results<F, A>);

/// A function's gradient; see [`grad`].
pub struct Grad<F, A>(ValueAndGrad<F, A>);

/// A function's value and gradient; see [`value_and_grad`].
pub struct ValueAndGrad<F, A> {
    function: F,
    site: &'static Location<'static>,
    _arguments: PhantomData<fn(A)>,
}

/// The gradient of a function by its first argument, as `jax.grad`: a function of the same
/// arguments, which returns the first argument's structure with a gradient for each tensor, in its
/// shape and dtype. The first tensor that the function returns has one element; what else it
/// returns is not differentiated. [Compiled](crate::compile()), it is one program; applied twice,
/// it gives second derivatives.
///
/// ```
/// use kiln::Tensor;
/// let cube = |x: Tensor| &x * &x * &x;
/// let x = Tensor::scalar(2.0f64)?;
/// assert_eq!(kiln::grad(cube).call(&x)?.item::<f64>()?, 12.0);
/// let second = kiln::compile(kiln::grad(kiln::grad(cube)));
/// assert_eq!(second.call(&x)?.item::<f64>()?, 12.0);
/// # Ok::<(), kiln::Error>(())
/// ```
#[track_caller]
pub fn grad<F: Function<A>, A: FirstArgument>(function: F) -> Grad<F, A> {
    Grad(value_and_grad(function))
}

/// As [`grad`], and returns what the function returns too: (results, gradients), as
/// `jax.value_and_grad` with `has_aux`.
///
/// ```
/// use kiln::Tensor;
/// let step = kiln::compile(kiln::value_and_grad(|w: Tensor, x: Tensor| (x * w).sum(.., false)));
/// let tensor = |values: &[f32]| Tensor::from_slice(&[values.len()], values);
/// let (w, x) = (tensor(&[1.0, 2.0])?, tensor(&[3.0, 4.0])?);
/// let (loss, by_w) = step.call((&w, &x))?;
/// assert_eq!((loss.item::<f64>()?, by_w.to_vec::<f32>()?), (11.0, vec![3.0, 4.0]));
/// # Ok::<(), kiln::Error>(())
/// ```
#[track_caller]
pub fn value_and_grad<F: Function<A>, A: FirstArgument>(function: F) -> ValueAndGrad<F, A> {
    ValueAndGrad { function, site: Location::caller(), _arguments: PhantomData }
}

impl<F: Function<A>, A: FirstArgument> ValueAndGrad<F, A> {
    /// Calls it. Err: the function's own error, an invalid op or one without a derivative, with its
    /// location, a read of a value, or a first result that is no float of one element.
    #[track_caller]
    pub fn call(&self, arguments: impl Pack<A>) -> Result<(Results<F, A>, A::First), TraceError> {
        self.at(Location::caller(), arguments.pack())
    }

    fn at(
        &self,
        site: &'static Location<'static>,
        arguments: A,
    ) -> Result<(Results<F, A>, A::First), TraceError> {
        let first = FlatTree::of(arguments.first());
        differentiable(&first)?;
        let n = first.tensors.len();
        let wrt = |graph: &Graph, primals: &[Tensor]| {
            for t in &primals[..n] {
                if !graph.is_float(t)? {
                    let reason = "is by a tensor that is not of floats";
                    return Err(graph.refuse(site, OP, reason, std::slice::from_ref(t)).error());
                }
            }
            Ok(primals[..n].to_vec())
        };
        let (results, gradients) = value_and_gradients(site, &self.function, arguments, n, wrt)?;
        Ok((results, first.rebuild(gradients)?))
    }
}

/// What a function returns, and the gradients of its first tensor by what `wrt` gives, which takes
/// the arguments; the first `n` of these are new values of the graph.
pub(crate) fn value_and_gradients<F: Function<A>, A: Arguments>(
    site: &'static Location<'static>,
    function: &F,
    arguments: A,
    n: usize,
    wrt: impl FnOnce(&Graph, &[Tensor]) -> Result<Vec<Tensor>, TraceError>,
) -> Result<(Results<F, A>, Vec<Tensor>), TraceError> {
    let all = FlatTree::of(&arguments);
    let (results, gradients) = extended(
        site,
        OP,
        [&all.tensors, &[]],
        n,
        |tensors| flat(function.invoke(all.rebuild(tensors)?)),
        |graph, results, primals, _| {
            let Some(value) = results.tensors.first() else {
                return Err(user("grad takes a function that returns a tensor first"));
            };
            let one = cotangent_of_scalar(graph, site, value)?;
            graph.pull_back(site, OP, &[(value, &one)], &wrt(graph, primals)?)
        },
    )?;
    Ok((results.rebuild(results.tensors.clone())?, gradients))
}

impl<F: Function<A>, A: FirstArgument> Grad<F, A> {
    /// Calls it. Err: as for [`ValueAndGrad::call`].
    #[track_caller]
    pub fn call(&self, arguments: impl Pack<A>) -> Result<A::First, TraceError> {
        self.0.at(Location::caller(), arguments.pack()).map(|(_, gradients)| gradients)
    }
}

impl<F: Function<A>, A: FirstArgument> Function<A> for ValueAndGrad<F, A> {
    type Out = Result<(Results<F, A>, A::First), TraceError>;
    fn invoke(&self, arguments: A) -> Self::Out {
        self.at(self.site, arguments)
    }
}

impl<F: Function<A>, A: FirstArgument> Function<A> for Grad<F, A> {
    type Out = Result<A::First, TraceError>;
    fn invoke(&self, arguments: A) -> Self::Out {
        self.0.at(self.0.site, arguments).map(|(_, gradients)| gradients)
    }
}

/// The vector-Jacobian product of a function at some arguments; see [`vjp`].
pub struct Pullback<F, A> {
    function: F,
    primals: FlatTree,
    results: FlatTree,
    /// The values of the arguments in the graph, in a trace.
    traced: Option<Vec<Tensor>>,
    _arguments: PhantomData<fn(A)>,
}

/// Calls a function, and returns its results and their vector-Jacobian product, as `jax.vjp`.
/// [`Pullback::call`] takes a cotangent for each result, of its shape and dtype, and returns the
/// arguments' structure with gradients. In eager mode that computes the function again. Err: the
/// function's own error, or an invalid op with its location.
///
/// ```
/// use kiln::Tensor;
/// let tensor = |values: &[f32]| Tensor::from_slice(&[values.len()], values);
/// let (x, y) = (tensor(&[1.0, 2.0])?, tensor(&[3.0, 4.0])?);
/// let (z, pullback) = kiln::vjp(|x: Tensor, y: Tensor| x * y, (&x, &y))?;
/// assert_eq!(z.to_vec::<f32>()?, [3.0, 8.0]);
/// let (by_x, by_y) = pullback.call(tensor(&[1.0, 10.0])?)?;
/// assert_eq!(by_x.to_vec::<f32>()?, [3.0, 40.0]);
/// assert_eq!(by_y.to_vec::<f32>()?, [1.0, 20.0]);
/// # Ok::<(), kiln::Error>(())
/// ```
#[track_caller]
pub fn vjp<F: Function<A>, A: Arguments>(
    function: F,
    arguments: impl Pack<A>,
) -> Result<WithPullback<F, A>, TraceError> {
    let primals = FlatTree::of(&arguments.pack());
    let mut traced = None;
    let call = |tensors| flat(function.invoke(primals.rebuild(tensors)?));
    let results = if super::control::tracing(&[&primals.tensors]).is_some() {
        let n = primals.tensors.len();
        let given = [primals.tensors.as_slice(), &[]];
        let keep = |_: &Graph, _: &FlatTree, fresh: &[Tensor], _: &[Tensor]| {
            traced = Some(fresh.to_vec());
            Ok(vec![])
        };
        extended(Location::caller(), "vjp", given, n, call, keep)?.0
    } else {
        call(primals.tensors.clone())?
    };
    let tree = results.rebuild(results.tensors.clone())?;
    Ok((tree, Pullback { function, primals, results, traced, _arguments: PhantomData }))
}

impl<F: Function<A>, A: Arguments> Pullback<F, A> {
    /// The gradients by all arguments; zeros for integers. Err: a cotangent of another type than
    /// its result, or an op without a derivative, with its location.
    #[track_caller]
    pub fn call(&self, cotangents: Results<F, A>) -> Result<A, TraceError> {
        let (site, given) = (Location::caller(), FlatTree::of(&cotangents));
        self.results.same(&given)?;
        let back = |graph: &Graph, results: &FlatTree, primals: &[Tensor], given: &[Tensor]| {
            let pairs: Vec<_> = results.tensors.iter().zip(given).collect();
            graph.pull_back(site, "vjp", &pairs, primals)
        };
        let gradients = match &self.traced {
            Some(primals) => {
                let all = [primals.as_slice(), &given.tensors];
                let graph = super::control::tracing(&all)
                    .ok_or_else(|| user("vjp was called in a trace that is over"))?;
                back(&graph, &self.results, primals, &given.tensors)?
            }
            None => {
                let all = [self.primals.tensors.as_slice(), &given.tensors];
                let call = |tensors| flat(self.function.invoke(self.primals.rebuild(tensors)?));
                extended(site, "vjp", all, self.primals.tensors.len(), call, back)?.1
            }
        };
        self.primals.rebuild(gradients)
    }
}

/// The results of a function and their Jacobian-vector product, as `jax.jvp`: `tangents` has the
/// structure and types of the arguments. It is the transpose of a vector-Jacobian product, which is
/// linear in its cotangents, so ops have one derivative, not two. Err: as for [`Pullback::call`].
///
/// ```
/// use kiln::Tensor;
/// let (x, v) = (Tensor::scalar(3.0f64)?, Tensor::scalar(0.5f64)?);
/// let (y, along) = kiln::jvp(|x: Tensor| &x * &x, &x, &v)?;
/// assert_eq!((y.item::<f64>()?, along.item::<f64>()?), (9.0, 3.0));
/// # Ok::<(), kiln::Error>(())
/// ```
#[track_caller]
pub fn jvp<F: Function<A>, A: Arguments>(
    function: F,
    arguments: impl Pack<A>,
    tangents: impl Pack<A>,
) -> Result<WithTangents<F, A>, TraceError> {
    let site = Location::caller();
    let (primals, along) = (FlatTree::of(&arguments.pack()), FlatTree::of(&tangents.pack()));
    primals.same(&along)?;
    let given = [primals.tensors.as_slice(), &along.tensors];
    let (results, tangents) = extended(
        site,
        "jvp",
        given,
        primals.tensors.len(),
        |tensors| flat(function.invoke(primals.rebuild(tensors)?)),
        |graph, results, primals, along| {
            let zeros = |t: &Tensor| graph.filled_like(site, t, 0.0);
            let cotangents = results.tensors.iter().map(zeros).collect::<Result<Vec<_>, _>>()?;
            let pairs: Vec<_> = results.tensors.iter().zip(&cotangents).collect();
            let gradients = graph.pull_back(site, "jvp", &pairs, primals)?;
            let pairs: Vec<_> = gradients.iter().zip(along).collect();
            graph.pull_back(site, "jvp", &pairs, &cotangents)
        },
    )?;
    Ok((results.rebuild(results.tensors.clone())?, results.rebuild(tangents)?))
}

impl Tensor {
    /// The same elements, which differentiation takes for a constant: [`grad`] and its relatives
    /// go no further. Any dtype and shape; the identity outside of them. As
    /// `torch.Tensor.detach` and `jax.lax.stop_gradient`.
    ///
    /// ```
    /// use kiln::Tensor;
    /// let x = Tensor::scalar(3.0f64)?;
    /// let by_x = kiln::grad(|x: Tensor| &x * x.detach()).call(&x)?;
    /// assert_eq!(by_x.item::<f64>()?, 3.0);
    /// # Ok::<(), kiln::Error>(())
    /// ```
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        let site = Location::caller();
        let Some((graph, _)) = self.traced() else { return self.clone() };
        graph
            .detached(site, self)
            .unwrap_or_else(|e| graph.refuse(site, "detach", e, std::slice::from_ref(self)))
    }
}

/// What a function returned. Err: its own error, or a number that only the graph has.
pub(super) fn flat<R: Returns>(returned: R) -> Result<FlatTree, TraceError> {
    let tree = FlatTree::of(&returned.into_tree()?);
    let computed = |leaf: &FlatLeaf| matches!(leaf, FlatLeaf::Fixed(Leaf::Number(number)) if number.is_computed());
    match tree.leaves.iter().any(computed) {
        true => Err(user("the function returns a number that is computed; its tensor has it")),
        false => Ok(tree),
    }
}

/// Err: a structure has numbers, which have no gradient.
fn differentiable(first: &FlatTree) -> Result<(), TraceError> {
    let number = |leaf: &FlatLeaf| match leaf {
        FlatLeaf::Fixed(Leaf::Scalar(Scalar::Count(_))) | FlatLeaf::Tensor => false,
        FlatLeaf::Fixed(_) | FlatLeaf::Number(_) => true,
    };
    match first.leaves.iter().any(number) {
        true => Err(user("grad is by the tensors of the first argument, which has a number")),
        false => Ok(()),
    }
}

/// 1 in the type of a tensor. Err: it is no float of one element.
fn cotangent_of_scalar(
    graph: &Graph,
    site: &'static Location<'static>,
    value: &Tensor,
) -> Result<Tensor, TraceError> {
    let (_, spec) = graph.ssa_value(value)?;
    if !spec.0.is_float() || spec.1.iter().any(|d| *d != Dim::Known(1)) {
        let reason = format!(
            "is of a function that returns {}, not a float of one element; vjp takes a cotangent",
            show(&spec)
        );
        return Err(graph.refuse(site, OP, reason, &[]).error());
    }
    graph.filled_like(site, value, 1.0)
}
