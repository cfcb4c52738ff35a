//! Nodes of graphs.
use super::{
    Done, alive, current, graph,
    launch::{Dims, Prepared},
    lock, put, valid,
    work::Work,
};
use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode, CUresult};
use std::ptr;

/// A node behind others.
///
/// # Safety
/// `node` is null or has room; there are `count` handles behind `after`.
unsafe fn add(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    work: Work,
) -> Done {
    valid(!node.is_null() && (count == 0 || !after.is_null()))?;
    // SAFETY: the caller's promise.
    let after: Vec<usize> = (0..count).map(|i| unsafe { after.add(i).read() }.addr()).collect();
    let made = lock(&*graph::find(graph)?).add(&after, work)?;
    // SAFETY: the caller's promise.
    unsafe { put(node, ptr::without_provenance_mut(made)) }
}

/// What a kernel's node does.
///
/// # Safety
/// `what` is null or describes a launch with all parameters of the kernel.
unsafe fn kernel(what: *const CUDA_KERNEL_NODE_PARAMS) -> Done<Work> {
    // SAFETY: the caller's promise.
    unsafe {
        let p = what.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let (grid, block) =
            ([p.gridDimX, p.gridDimY, p.gridDimZ], [p.blockDimX, p.blockDimY, p.blockDimZ]);
        let dims = Dims { grid, block, shared: p.sharedMemBytes };
        Ok(Work::Kernel(Prepared::new(p.func, dims, p.kernelParams, p.extra)?))
    }
}

/// A kernel's node; its parameters are copied.
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

/// A node that is a copy of another graph.
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
        unsafe { add(node, graph, after, count, graph::whole(child)?) }
    })
}

/// Gives a kernel's node other parameters, from the next launch on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    exec: CUgraphExec,
    node: CUgraphNode,
    what: *const CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    // SAFETY: as the driver's functions are called.
    current(|| graph::change(exec, node, unsafe { kernel(what) }?))
}

/// Gives a graph's node the parameters of another graph, which has the same nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecChildGraphNodeSetParams(
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> CUresult {
    alive(|| graph::change(exec, node, graph::whole(child)?))
}
