//! Graph nodes.
use super::{
    CudaResult, alive, current, graph,
    launch::{Dims, PreparedLaunch},
    lock, put, valid,
    work::Work,
};
use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNode, CUresult,
};
use std::ptr;

/// Adds a node with dependencies.
///
/// # Safety
/// `node` is null or writable; `after` has `count` handles.
unsafe fn add(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    work: Work,
) -> CudaResult {
    valid(!node.is_null() && (count == 0 || !after.is_null()))?;
    // SAFETY: the caller's promise.
    let after: Vec<usize> = (0..count).map(|i| unsafe { after.add(i).read() }.addr()).collect();
    let made = lock(&*graph::find(graph)?).add(&after, work)?;
    // SAFETY: the caller's promise.
    unsafe { put(node, ptr::without_provenance_mut(made)) }
}

/// The work of a kernel node.
///
/// # Safety
/// `what` is null or describes a launch with all parameters of the kernel.
unsafe fn kernel(what: *const CUDA_KERNEL_NODE_PARAMS) -> CudaResult<Work> {
    // SAFETY: the caller's promise.
    unsafe {
        let p = what.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let (grid, block) =
            ([p.gridDimX, p.gridDimY, p.gridDimZ], [p.blockDimX, p.blockDimY, p.blockDimZ]);
        let dims = Dims { grid, block, shared: p.sharedMemBytes };
        Ok(Work::Kernel(PreparedLaunch::new(p.func, dims, p.kernelParams, p.extra)?))
    }
}

/// Adds a kernel node; its parameters are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode_v2(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    what: *const CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    // SAFETY: as the driver's functions are called.
    current(|| unsafe { add(node, graph, after, count, kernel(what)?) })
}

/// Adds dependencies between nodes of a graph; a programmatic one counts as a full one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddDependencies_v2(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    _edges: *const CUgraphEdgeData,
    count: usize,
) -> CUresult {
    alive(|| {
        valid(count == 0 || !from.is_null() && !to.is_null())?;
        let graph = graph::find(graph)?;
        (0..count).try_for_each(|i| {
            // SAFETY: as the driver's functions are called.
            let (from, to) = unsafe { (from.add(i).read(), to.add(i).read()) };
            lock(&*graph).depend(from.addr(), to.addr())
        })
    })
}

/// Adds a child graph node, with a copy of the graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddChildGraphNode(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> CUresult {
    alive(|| {
        valid(graph != child)?;
        // SAFETY: as the driver's functions are called.
        unsafe { add(node, graph, after, count, graph::as_work(child)?) }
    })
}

/// Replaces a kernel node's parameters in an executable graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    exec: CUgraphExec,
    node: CUgraphNode,
    what: *const CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    // SAFETY: as the driver's functions are called.
    current(|| graph::change(exec, node, unsafe { kernel(what) }?))
}

/// Replaces a child graph node's graph by one with the same topology.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecChildGraphNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> CUresult {
    alive(|| graph::change(exec, node, graph::as_work(child)?))
}
