//! Loops of a known limit, which have derivatives.
use super::{
    Graph, Tensor, TraceError,
    control::{FlatTree, cond, scan, tracing},
};
use crate::compile::{Returns, Tree};
use std::panic::Location;

/// As [`while_loop`](super::while_loop), at most `limit` times, so that gradients go through it: a
/// backward pass keeps what each iteration needs. In a trace it is a [`scan`] of `limit` steps, each
/// a [`cond`]: iterations after the last cost their conditions. Err: as for both.
///
/// ```
/// use kiln::{Tensor, while_loop_bounded};
/// // 2, 4, 16: the fourth power of x
/// let f = |x: Tensor| while_loop_bounded(8, |y: Tensor| y.lt(10.0), |y: Tensor| y.square(), x);
/// let by = kiln::compile(kiln::grad(f)).call(Tensor::scalar(2.0f32)?)?;
/// assert_eq!(by.item::<f64>()?, 32.0);
/// # Ok::<(), kiln::Error>(())
/// ```
#[track_caller]
pub fn while_loop_bounded<C: Tree, B: Returns<Tree = C>>(
    limit: usize,
    condition: impl Fn(C) -> Tensor,
    body: impl Fn(C) -> B,
    init: C,
) -> Result<C, TraceError> {
    let again = |state: &C| {
        let state = FlatTree::of(state);
        Ok::<_, TraceError>(condition(state.rebuild(state.tensors.clone())?))
    };
    if tracing(&[&FlatTree::of(&init).tensors]).is_none() {
        let mut state = init;
        for _ in 0..limit {
            if !again(&state)?.item::<bool>()? {
                break;
            }
            state = body(state).into_tree()?;
        }
        return Ok(state);
    }
    let graph = Graph::current();
    let _frame = graph.frame(Location::caller());
    let steps = graph.arange(0, limit as i64, 1);
    let step = |state: C, _: Tensor| -> Result<(C, ()), TraceError> {
        let again = again(&state)?;
        cond(again, &body, |state: C| state, state).map(|state| (state, ()))
    };
    scan(step, init, steps).map(|(state, ())| state)
}
