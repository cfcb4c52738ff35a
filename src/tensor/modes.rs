//! Modes of a thread: eager, lazy, and functions that are excluded from graphs.
use super::{
    Graph, Tensor, TraceError,
    arg::Arg,
    call_site::CallSite,
    graph::{DISABLED_DEPTH, EAGER, TRACED},
    handle::Repr,
    lazy::{Lazy, Segments},
    session::BreakReason,
};
use std::{cell::RefCell, sync::Arc};

/// Runs `body` in eager mode, even inside a trace.
pub(crate) fn eagerly<R>(body: impl FnOnce() -> R) -> R {
    let _tracing = EAGER.with(Graph::enter);
    body()
}

/// Runs an excluded function op by op, including compiled functions that it calls. A graph being
/// traced breaks before it, and recorded lazy ops run first. `tensors` are its arguments. Err: the
/// graph break, the error of a poisoned argument, or the function's own error.
pub(crate) fn run_disabled<R>(
    site: CallSite,
    tensors: &[Tensor],
    body: impl FnOnce() -> Result<R, TraceError>,
) -> Result<R, TraceError> {
    if let Some(t) = tensors.iter().find(|t| t.is_poisoned()) {
        return Err(t.error());
    }
    for t in tensors {
        let graph = match &t.0 {
            Repr::Node(node) => node.graph,
            Repr::Lazy(node) if node.value.get().is_none() => node.graph,
            _ => continue,
        };
        Graph::by_id(graph).ok_or_else(|| t.error())?.break_graph(
            site,
            BreakReason::Disabled,
            tensors,
        )?;
    }
    Graph::current().break_graph(site, BreakReason::Disabled, tensors)?;
    struct DisabledGuard;
    impl Drop for DisabledGuard {
        fn drop(&mut self) {
            DISABLED_DEPTH.set(DISABLED_DEPTH.get() - 1);
        }
    }
    DISABLED_DEPTH.set(DISABLED_DEPTH.get() + 1);
    let _guard = DisabledGuard;
    eagerly(body)
}

/// Whether this thread runs an excluded function.
pub(crate) fn is_disabled() -> bool {
    DISABLED_DEPTH.get() > 0
}

/// Runs `body` in lazy mode: ops are recorded and run in segments, which end where a value is read
/// or when `body` returns.
pub(crate) fn in_segments<R>(
    segments: Arc<Segments>,
    body: impl FnOnce() -> Result<R, TraceError>,
) -> Result<R, TraceError> {
    let graph = Graph::make(None, Some(RefCell::new(Lazy::new(segments))));
    let _tracing = graph.enter();
    let result = body()?;
    graph.flush(None)?;
    Ok(result)
}

/// Replays an op recorded at this point by an earlier call. `first` comes before `args`, as
/// argument `self`. `None`: another op, or not in lazy mode.
pub(super) fn replay<const R: usize>(
    first: Option<&Tensor>,
    target: &str,
    args: &[(&'static str, Arg)],
) -> Option<[Tensor; R]> {
    TRACED.with_borrow(|all| all.last()?.replay(first, target, args))
}
