//! Training mode: dropout draws, batch norm takes statistics of the batch.
use super::Parameter;
use crate::{
    compile::Returns,
    tensor::{Graph, Place, Tensor, TraceError},
};
use std::cell::RefCell;

/// Training mode of a thread.
struct Training {
    /// Where it holds: not in another trace, and not in a region, whose values end with it.
    place: Place,
    /// What dropout draws from, i64 [2].
    key: Option<Tensor>,
    /// How often it drew.
    draws: i64,
    /// New values of buffers, by qualified name.
    updated: Vec<(String, Tensor)>,
}

thread_local! {
    /// Calls of [`train`] of this thread, innermost last.
    static MODE: RefCell<Vec<Training>> = const { RefCell::new(vec![]) };
}

/// Leaves training mode, also when a function panics.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        MODE.with_borrow_mut(|all| drop(all.pop()));
    }
}

/// Calls a function with all modules of this thread in training mode, PyTorch's `train()`; outside
/// of it they are in evaluation mode, `eval()`. Returns what the function returns, and the new
/// value of each of `buffers` ([`Module::buffers`](super::Module::buffers)), such as the running
/// statistics of batch norm; [`assign`](super::assign) stores these. In a compiled function both
/// are parts of the program.
///
/// `key` is what dropout draws from: `i64 [2]`, a seed and the number of a stream. Draw k of a call
/// takes (seed, stream + k), so calls with the same key drop the same elements, whatever is fused
/// or recomputed; training passes a new seed in each step. Nothing is drawn without dropout.
/// Err: the function's own error.
///
/// It is called within the function that is compiled or differentiated, not around it; and bodies
/// of `cond`, `scan` and the like have no training mode. A module that would need one there is an
/// error of the trace.
///
/// ```
/// use kiln::{Tensor, nn::{self, Dropout, Module}};
/// let (layer, x) = (Dropout::new(0.5), Tensor::from_slice(&[100], &[1.0f32; 100])?);
/// let key = Tensor::from_slice(&[2], &[7i64, 0])?;
/// let (y, _) = nn::train(&[], key, || layer.forward(&x))?;
/// let kept = y.to_vec::<f32>()?.iter().filter(|y| **y == 2.0).count();
/// assert!((30..70).contains(&kept));
/// assert_eq!(layer.forward(&x).to_vec::<f32>()?, [1.0; 100]);
/// # Ok::<(), kiln::Error>(())
/// ```
#[track_caller]
pub fn train<R: Returns>(
    buffers: &[&Parameter],
    key: impl Into<Option<Tensor>>,
    f: impl FnOnce() -> R,
) -> Result<(R::Tree, Vec<Tensor>), TraceError> {
    let place = Graph::current().place();
    let mode = Training { place, key: key.into(), draws: 0, updated: vec![] };
    MODE.with_borrow_mut(|all| all.push(mode));
    let guard = Guard;
    let tree = f().into_tree()?;
    let graph = Graph::current();
    let new = buffers.iter().map(|p| current(p, &graph)).collect();
    drop(guard);
    Ok((tree, new))
}

/// Whether modules are in training mode; a poisoned tensor if it began in another place.
pub(super) fn is_training(op: &'static str, graph: &Graph) -> Result<bool, Tensor> {
    let Some(place) = MODE.with_borrow(|all| all.last().map(|m| m.place)) else {
        return Ok(false);
    };
    match place == graph.place() {
        true => Ok(true),
        false => Err(graph.failed(
            op,
            "is in training mode, which began outside of this function: nn::train goes inside of \
             what is compiled or differentiated, and holds in no body of cond or scan",
        )),
    }
}

/// The key of the next draw; `None` if training mode has none.
pub(super) fn next_key() -> Option<Tensor> {
    let (key, draw) = MODE.with_borrow_mut(|all| {
        let mode = all.last_mut()?;
        let key = mode.key.clone()?;
        mode.draws += 1;
        Some((key, mode.draws - 1))
    })?;
    let step = Tensor::from_slice(&[2], &[0, draw]).ok()?;
    Some(key + step)
}

/// A buffer's value, after the updates of this call of [`train`].
pub(super) fn current(p: &Parameter, graph: &Graph) -> Tensor {
    let updated = MODE.with_borrow(|all| {
        let updated = &all.last()?.updated;
        updated.iter().rfind(|(name, _)| name == p.name()).map(|(_, t)| t.clone())
    });
    updated.unwrap_or_else(|| p.on(graph))
}

/// Runs the body of a checkpoint, which began at `outside`, in the mode that holds there. Also
/// returns the buffers' new values, by name, for [`update`] once the body is over.
pub(crate) fn within<R>(outside: Place, f: impl FnOnce() -> R) -> (R, Vec<(String, Tensor)>) {
    let place = Graph::current().place();
    let inner = MODE.with_borrow(|all| {
        let mode = all.last().filter(|m| m.place == outside)?;
        let (key, updated) = (mode.key.clone(), mode.updated.clone());
        Some(Training { place, key, draws: mode.draws, updated })
    });
    let Some(inner) = inner else { return (f(), vec![]) };
    let before = inner.updated.len();
    MODE.with_borrow_mut(|all| all.push(inner));
    let guard = Guard;
    let result = f();
    let updated = MODE.with_borrow_mut(|all| {
        let [.., outer, inner] = all.as_mut_slice() else { return vec![] };
        outer.draws = inner.draws;
        inner.updated.split_off(before.min(inner.updated.len()))
    });
    drop(guard);
    (result, updated)
}

/// Sets a buffer's value, in training mode.
pub(crate) fn update(name: &str, value: Tensor) {
    MODE.with_borrow_mut(|all| {
        if let Some(mode) = all.last_mut() {
            mode.updated.push((name.to_string(), value));
        }
    });
}
