//! Graphs and executable graphs.
use super::{
    CudaResult, alive, current, lock, put, stream, table::Table, table::fresh, valid, work::Work,
};
use cudarc::driver::sys::{
    CUgraph, CUgraph_st, CUgraphExec, CUgraphExec_st, CUgraphNode, CUresult, CUstream,
};
use std::{
    collections::BTreeSet,
    ffi::{c_uint, c_ulonglong},
    sync::{Arc, Mutex},
};

/// All flags of `cuGraphInstantiate`.
const FLAGS: c_ulonglong = 15;

/// The nodes of a graph in topological order.
#[derive(Clone, Default)]
pub struct GraphNodes(Vec<Node>);

#[derive(Clone)]
struct Node {
    handle: usize,
    after: Vec<usize>,
    work: Work,
}

impl GraphNodes {
    /// Adds a node with these dependencies and returns its handle.
    pub fn add(&mut self, after: &[usize], work: Work) -> CudaResult<usize> {
        valid(after.iter().all(|a| self.0.iter().any(|n| n.handle == *a)))?;
        let handle = fresh();
        self.0.push(Node { handle, after: after.to_vec(), work });
        Ok(handle)
    }
    /// Adds a dependency; the later node is the newer one, which keeps the order topological.
    pub fn depend(&mut self, from: usize, to: usize) -> CudaResult {
        let at = |handle| self.0.iter().position(|n| n.handle == handle);
        let (Some(first), Some(second)) = (at(from), at(to)) else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        valid(first < second)?;
        self.0[second].after.push(from);
        Ok(())
    }
    /// The transitive dependencies of these nodes, themselves included.
    pub fn dependencies(&self, nodes: &[usize]) -> BTreeSet<usize> {
        let mut found: BTreeSet<usize> = nodes.iter().copied().collect();
        for node in self.0.iter().rev() {
            if found.contains(&node.handle) {
                found.extend(&node.after);
            }
        }
        found
    }
    /// A topological order that prefers the newest ready node, so that a missing dependency shows.
    fn topological_order(&self) -> Vec<(usize, Work)> {
        let (mut left, mut done, mut topological_order) =
            (self.0.iter().collect::<Vec<_>>(), BTreeSet::new(), vec![]);
        while let Some(at) = left.iter().rposition(|n| n.after.iter().all(|a| done.contains(a))) {
            let node = left.remove(at);
            done.insert(node.handle);
            topological_order.push((node.handle, node.work.clone()));
        }
        topological_order
    }
    /// All nodes as one work item.
    fn as_work(&self) -> Work {
        Work::Several(self.topological_order().into_iter().map(|(_, work)| work).collect())
    }
}

/// An executable graph: work items with the nodes that they come from.
struct Exec(Mutex<Vec<(usize, Work)>>);

static GRAPHS: Table<Mutex<GraphNodes>, CUgraph_st> = Table::new();
static EXECS: Table<Exec, CUgraphExec_st> = Table::new();

/// Creates a graph of these nodes.
pub fn add(body: GraphNodes) -> CUgraph {
    GRAPHS.add(Mutex::new(body))
}

/// A graph's nodes.
pub fn find(graph: CUgraph) -> CudaResult<Arc<Mutex<GraphNodes>>> {
    GRAPHS.get(graph)
}

/// A graph as one work item.
pub fn as_work(graph: CUgraph) -> CudaResult<Work> {
    Ok(lock(&*find(graph)?).as_work())
}

/// Replaces a node's work by other work of the same kind.
pub fn change(exec: CUgraphExec, node: CUgraphNode, work: Work) -> CudaResult {
    let exec = EXECS.get(exec)?;
    let mut steps = lock(&exec.0);
    let (_, old) = steps
        .iter_mut()
        .find(|(handle, _)| *handle == node.addr())
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    valid(old.is_like(&work))?;
    *old = work;
    Ok(())
}

/// Creates an empty graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint) -> CUresult {
    alive(|| {
        valid(!graph.is_null() && flags == 0)?;
        // SAFETY: room for a handle.
        unsafe { put(graph, add(GraphNodes::default())) }
    })
}

/// Destroys a graph; executable graphs of it stay valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: CUgraph) -> CUresult {
    alive(|| GRAPHS.take(graph).map(drop))
}

/// Instantiates a graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> CUresult {
    current(|| {
        valid(!exec.is_null() && flags <= FLAGS)?;
        let steps = lock(&*find(graph)?).topological_order();
        // SAFETY: room for a handle.
        unsafe { put(exec, EXECS.add(Exec(Mutex::new(steps)))) }
    })
}

/// Destroys an executable graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult {
    alive(|| EXECS.take(exec).map(drop))
}

/// Launches a graph on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> CUresult {
    current(|| {
        let (exec, stream) = (EXECS.get(exec)?, stream::find(stream)?);
        let all: Arc<[Work]> = lock(&exec.0).iter().map(|(_, work)| work.clone()).collect();
        stream.run(Work::Several(all))
    })
}
