//! Graphs of nodes.
use super::*;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn graph() -> CUgraph {
    // SAFETY: room for the handle.
    made(|to| unsafe { cuGraphCreate(to, 0) })
}

fn params(func: CUfunction, params: &mut [*mut c_void; 2]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 2,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: params.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

/// A node that stores a number, with dependencies.
fn store(
    graph: CUgraph,
    after: &[CUgraphNode],
    function: CUfunction,
    at: u64,
    number: u32,
) -> CudaResult<CUgraphNode> {
    let mut values = Store(at, number);
    let mut pointers = values.pointers();
    // SAFETY: the parameters are copied.
    got(|to| unsafe {
        cuGraphAddKernelNode_v2(
            to,
            graph,
            after.as_ptr(),
            after.len(),
            &params(function, &mut pointers),
        )
    })
}

/// A graph of one fill, as a library's call would be captured.
fn captured(at: u64, byte: u8, nodes: usize) -> CUgraph {
    let stream = stream();
    // SAFETY: memory that lives.
    unsafe {
        done(cuStreamBeginCapture_v2(stream, 2));
        (0..nodes).for_each(|_| done(cuMemsetD8Async(at, byte, 4, stream)));
        let graph = made(|to| cuStreamEndCapture(stream, to));
        done(cuStreamDestroy_v2(stream));
        graph
    }
}

#[test]
fn dependencies_are_added_to_nodes() {
    let _turn = ready();
    let (module, at) = (load(STORE), memory(8));
    let (function, stream, graph) = (kernel(module, c"store"), stream(), graph());
    // SAFETY: memory and handles that live.
    unsafe {
        let first = store(graph, &[], function, at, 1).unwrap();
        let second = store(graph, &[], function, at, 2).unwrap();
        let depend = |from: CUgraphNode, to: CUgraphNode| {
            cuGraphAddDependencies_v2(graph, &from, &to, ptr::null(), 1)
        };
        done(depend(first, second));
        refused(depend(second, first), INVALID);
        refused(depend(first, ptr::null_mut()), INVALID);
        let exec = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
        done(cuGraphLaunch(exec, stream));
        // Without the dependency the newer node would run first.
        assert_eq!(bytes(at, 4), [2, 0, 0, 0]);
    }
}

#[test]
fn nodes_run_after_their_dependencies() {
    let _turn = ready();
    let (module, at) = (load(STORE), memory(8));
    let (function, stream, graph) = (kernel(module, c"store"), stream(), graph());
    // SAFETY: memory and handles that live.
    unsafe {
        done(cuMemsetD8_v2(at, 0, 8));
        let first = store(graph, &[], function, at, 1).unwrap();
        let child = captured(at, 2, 1);
        let second = made(|to| cuGraphAddChildGraphNode(to, graph, &first, 1, child));
        // A graph that was added is a copy.
        done(cuGraphDestroy(child));
        let exec = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
        assert_eq!(bytes(at, 8), [0; 8]);
        done(cuGraphLaunch(exec, stream));
        assert_eq!(bytes(at, 8), [2, 2, 2, 2, 1, 0, 0, 0]);
        // Update parameters in the executable graph.
        let mut values = Store(at, 9);
        let mut pointers = values.pointers();
        done(cuGraphExecKernelNodeSetParams_v2(exec, first, &params(function, &mut pointers)));
        let child = captured(at, 3, 1);
        done(cuGraphExecChildGraphNodeSetParams(exec, second, child));
        done(cuGraphLaunch(exec, stream));
        assert_eq!(bytes(at, 8), [3, 3, 3, 3, 9, 0, 0, 0]);
        // Not to nodes of another kind, other nodes, or other nodes within.
        refused(
            cuGraphExecKernelNodeSetParams_v2(exec, second, &params(function, &mut pointers)),
            INVALID,
        );
        refused(cuGraphExecChildGraphNodeSetParams(exec, first, child), INVALID);
        refused(cuGraphExecChildGraphNodeSetParams(exec, graph.cast(), child), INVALID);
        let longer = captured(at, 3, 2);
        refused(cuGraphExecChildGraphNodeSetParams(exec, second, longer), INVALID);
        [child, longer, graph].into_iter().for_each(|g| done(cuGraphDestroy(g)));
        // What was instantiated stays.
        done(cuGraphLaunch(exec, stream));
        done(cuGraphExecDestroy(exec));
        done(cuModuleUnload(module));
        done(cuStreamDestroy_v2(stream));
        done(cuMemFree_v2(at));
    }
}

#[test]
fn a_missing_dependency_shows() {
    let _turn = ready();
    let (module, at) = (load(STORE), memory(8));
    let (function, graph) = (kernel(module, c"store"), graph());
    // SAFETY: memory and handles that live.
    unsafe {
        let last = |graph| {
            let exec = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
            done(cuGraphLaunch(exec, ptr::null_mut()));
            done(cuGraphExecDestroy(exec));
            bytes(at, 1)[0]
        };
        let first = store(graph, &[], function, at, 1).unwrap();
        let second = store(graph, &[first], function, at, 2).unwrap();
        assert_eq!(last(graph), 2);
        store(graph, &[], function, at, 3).unwrap();
        assert_eq!(last(graph), 2);
        store(graph, &[first, second], function, at, 4).unwrap();
        assert_eq!(last(graph), 4);
        // Nodes of other graphs are no dependencies.
        let other = super::graphs::graph();
        assert_eq!(store(other, &[first], function, at, 1), Err(INVALID));
        refused(
            cuGraphAddChildGraphNode(&mut ptr::null_mut(), other, ptr::null(), 0, other),
            INVALID,
        );
        [graph, other].into_iter().for_each(|g| done(cuGraphDestroy(g)));
        refused(cuGraphDestroy(graph), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(store(graph, &[], function, at, 1), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        done(cuModuleUnload(module));
        done(cuMemFree_v2(at));
    }
}
