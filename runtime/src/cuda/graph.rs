//! A plan's launches as a CUDA graph of kernel nodes. A library call is captured and becomes a
//! child graph. The nodes form a chain, since launches reuse arena memory; a dependent launch may start
//! while the one before it runs. Changed parameters are
//! patched in the executable graph; launches in flight keep the old ones.
use super::{
    CudaError, Device, driver_message, fault::Launches, launch::ResolvedLaunch, stream::Stream,
};
use cudarc::driver::{
    result,
    sys::{self, CUDA_KERNEL_NODE_PARAMS},
};
use std::{ptr, sync::Arc};

/// The dependency of a node that may start when all CTAs of a kernel have started.
const STARTED: sys::CUgraphEdgeData = sys::CUgraphEdgeData {
    from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
    to_port: 0,
    type_: sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
    reserved: [0; 5],
};

/// An executable graph, with the node of each launch.
pub struct Graph {
    device: Arc<Device>,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
}
// SAFETY: the driver's handles are tied to no thread.
unsafe impl Send for Graph {}

fn node(l: &ResolvedLaunch) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: l.function,
        gridDimX: l.grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: l.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: l.shared,
        kernelParams: l.params(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

impl Graph {
    /// Instantiates the graph of launches with known addresses. Err: the driver refused it; names
    /// the launch if it is one.
    pub fn new(
        device: &Arc<Device>,
        launches: &[ResolvedLaunch],
        about: &Launches,
    ) -> Result<Graph, CudaError> {
        let mut graph = Graph {
            device: device.clone(),
            graph: ptr::null_mut(),
            exec: ptr::null_mut(),
            nodes: vec![],
        };
        // SAFETY: a fresh graph; nodes copy their parameters; `graph` destroys what was created.
        unsafe {
            sys::cuGraphCreate(&mut graph.graph, 0)
                .result()
                .map_err(device.error("making a graph"))?;
            for (i, l) in launches.iter().enumerate() {
                let (mut made, before) = (ptr::null_mut(), graph.nodes.last().copied());
                let mut after = before.as_ref().map_or(ptr::null(), ptr::from_ref);
                let mut count = usize::from(before.is_some());
                if l.dependent {
                    (after, count) = (ptr::null(), 0);
                }
                let added = match &l.library {
                    None => {
                        sys::cuGraphAddKernelNode_v2(&mut made, graph.graph, after, count, &node(l))
                    }
                    Some((call, _)) => {
                        let own = call.capture(device, &l.words, l.scratch)?;
                        let added = sys::cuGraphAddChildGraphNode(
                            &mut made,
                            graph.graph,
                            after,
                            count,
                            own,
                        );
                        // The child node has a copy of it.
                        let _ = result::graph::destroy(own);
                        added
                    }
                };
                let added = match (added.result(), &before) {
                    (Ok(()), Some(before)) if l.dependent => {
                        sys::cuGraphAddDependencies_v2(graph.graph, before, &made, &STARTED, 1)
                            .result()
                    }
                    (added, _) => added,
                };
                added.map_err(|e| CudaError::Launch {
                    what: about.describe_launch(i),
                    reason: format!("is no node of a graph: {}", driver_message(e)),
                })?;
                graph.nodes.push(made);
            }
            graph.exec = result::graph::instantiate(graph.graph, sys::CUgraphInstantiate_flags(0))
                .map_err(device.error("instantiating a graph"))?;
        }
        Ok(graph)
    }
    /// Updates the parameters of a launch's node.
    pub fn patch(&self, i: usize, l: &ResolvedLaunch, about: &Launches) -> Result<(), CudaError> {
        let Some(made) = self.nodes.get(i) else { return Ok(()) };
        let patched = match &l.library {
            // SAFETY: a node of this graph, with the same kernel.
            None => unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.exec, *made, &node(l)) },
            Some((call, _)) => {
                let own = call.capture(&self.device, &l.words, l.scratch)?;
                // SAFETY: a node of this graph; the same library call captures the same topology,
                // and the driver reports if it does not.
                unsafe {
                    let patched = sys::cuGraphExecChildGraphNodeSetParams(self.exec, *made, own);
                    let _ = result::graph::destroy(own);
                    patched
                }
            }
        };
        patched.result().map_err(|e| CudaError::Launch {
            what: about.describe_launch(i),
            reason: format!("was not changed in its graph: {}", driver_message(e)),
        })
    }
    /// Launches the graph.
    pub fn launch(&self, stream: Stream) -> Result<(), CudaError> {
        // SAFETY: a live graph and a live stream.
        unsafe { result::graph::launch(self.exec, stream.0) }
            .map_err(self.device.error("launching a graph"))
    }
}

impl Drop for Graph {
    /// The driver lets launches in flight complete before it frees the graph.
    fn drop(&mut self) {
        let Ok(_current) = self.device.enter() else { return };
        // SAFETY: created by `new`, destroyed once.
        unsafe {
            if !self.exec.is_null() {
                let _ = result::graph::exec_destroy(self.exec);
            }
            if !self.graph.is_null() {
                let _ = result::graph::destroy(self.graph);
            }
        }
    }
}
