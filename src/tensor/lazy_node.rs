//! Values of lazy mode: what an op records of its results.
use super::{Array, trace::ResultSource};
use kiln_dialects::value::DType;
use std::{
    cell::RefCell,
    sync::{Arc, OnceLock},
};

/// Inferred result types of an op for given operand types.
pub(super) struct ResultTypes {
    pub types: Vec<(DType, Vec<usize>)>,
    pub result_sources: Vec<ResultSource>,
}

/// A recorded value.
pub(crate) struct LazyNode {
    pub graph: u64,
    /// Index of its segment, and its index among the segment's results.
    pub(super) segment: u32,
    pub(super) at: u32,
    /// Index of its type in `known`.
    pub(super) slot: u32,
    pub(super) result_types: Arc<ResultTypes>,
    pub value: OnceLock<Arc<Array>>,
}

impl LazyNode {
    pub fn dtype(&self) -> DType {
        self.result_types.types[self.slot as usize].0
    }
    pub fn shape(&self) -> &[usize] {
        &self.result_types.types[self.slot as usize].1
    }
    /// Whether it is this result of a segment.
    pub(super) fn is_result(&self, graph: u64, segment: u32, at: u32) -> bool {
        (self.graph, self.segment, self.at) == (graph, segment, at)
    }
}

/// A free list of nodes. In long functions, allocating and freeing nodes was most of the cost per
/// op. Each thread keeps some nodes between calls.
pub(super) struct Free(pub(super) Vec<Arc<LazyNode>>);

/// Capacity of a thread's free list.
const FREE: usize = 1024;
thread_local! {
    static FREE_NODES: RefCell<Vec<Arc<LazyNode>>> = const { RefCell::new(vec![]) };
}

impl Free {
    pub(super) fn of_thread() -> Free {
        Free(FREE_NODES.take())
    }
    /// Takes a node from the free list, or allocates one.
    pub(super) fn node(
        &mut self,
        known: &Arc<ResultTypes>,
        graph: u64,
        segment: u32,
        at: u32,
        slot: u32,
    ) -> Arc<LazyNode> {
        if let Some(mut node) = self.0.pop()
            && let Some(n) = Arc::get_mut(&mut node)
        {
            (n.graph, n.segment, n.at, n.slot) = (graph, segment, at, slot);
            if !Arc::ptr_eq(&n.result_types, known) {
                n.result_types = known.clone();
            }
            return node;
        }
        Arc::new(LazyNode {
            graph,
            segment,
            at,
            slot,
            result_types: known.clone(),
            value: OnceLock::new(),
        })
    }
    /// Recycles nodes that nobody else holds. They are reused in creation order, so that a repeated
    /// call finds them with matching types.
    pub(super) fn recycle(&mut self, nodes: Vec<Arc<LazyNode>>) {
        let room = FREE.saturating_sub(self.0.len());
        let idle = nodes
            .into_iter()
            .rev()
            .filter(|n| Arc::strong_count(n) == 1 && n.value.get().is_none());
        self.0.extend(idle.take(room));
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            // Fails during thread shutdown, harmlessly.
            let _ = FREE_NODES.try_with(|kept| *kept.borrow_mut() = std::mem::take(&mut self.0));
        }
    }
}
