//! A plan's launches as a CUDA graph of kernel nodes; a library's call is a graph of its own within
//! it, captured. A node depends on the one before it: launches use the arena's memory again, and
//! their order is what keeps that right. Addresses and descriptions that change are patched in the
//! executable graph; launches that are under way keep the old ones.
use super::{CudaError, Device, fault::Launches, plan::Ready, stream::Stream, words};
use cudarc::driver::{
    result,
    sys::{self, CUDA_KERNEL_NODE_PARAMS},
};
use std::{ptr, sync::Arc};

/// An executable graph, with its nodes by launch.
pub struct Graph {
    device: Arc<Device>,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
}
// SAFETY: the driver's handles are tied to no thread.
unsafe impl Send for Graph {}

fn node(l: &Ready) -> CUDA_KERNEL_NODE_PARAMS {
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
    /// The graph of launches that have their addresses. Err: what the driver refused, with the
    /// launch if it is one.
    pub fn new(
        device: &Arc<Device>,
        launches: &[Ready],
        about: &Launches,
    ) -> Result<Graph, CudaError> {
        let mut graph = Graph {
            device: device.clone(),
            graph: ptr::null_mut(),
            exec: ptr::null_mut(),
            nodes: vec![],
        };
        // SAFETY: a fresh graph; parameters are copied when a node is made; what was made is
        // destroyed with `graph`.
        unsafe {
            sys::cuGraphCreate(&mut graph.graph, 0)
                .result()
                .map_err(device.error("making a graph"))?;
            for (i, l) in launches.iter().enumerate() {
                let (mut made, before) = (ptr::null_mut(), graph.nodes.last().copied());
                let after = before.as_ref().map_or(ptr::null(), ptr::from_ref);
                let added = match &l.library {
                    None => sys::cuGraphAddKernelNode_v2(
                        &mut made,
                        graph.graph,
                        after,
                        usize::from(before.is_some()),
                        &node(l),
                    ),
                    Some((call, _)) => {
                        let own = call.captured(device, &l.words, l.scratch)?;
                        let added = sys::cuGraphAddChildGraphNode(
                            &mut made,
                            graph.graph,
                            after,
                            usize::from(before.is_some()),
                            own,
                        );
                        // The node has a copy of it.
                        let _ = result::graph::destroy(own);
                        added
                    }
                };
                added.result().map_err(|e| CudaError::Launch {
                    what: about.one(i),
                    reason: format!("is no node of a graph: {}", words(e)),
                })?;
                graph.nodes.push(made);
            }
            graph.exec = result::graph::instantiate(graph.graph, sys::CUgraphInstantiate_flags(0))
                .map_err(device.error("instantiating a graph"))?;
        }
        Ok(graph)
    }
    /// Gives a launch its new parameters.
    pub fn patch(&self, i: usize, l: &Ready, about: &Launches) -> Result<(), CudaError> {
        let Some(made) = self.nodes.get(i) else { return Ok(()) };
        let patched = match &l.library {
            // SAFETY: a node of this graph, with the kernel that it had.
            None => unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.exec, *made, &node(l)) },
            Some((call, _)) => {
                let own = call.captured(&self.device, &l.words, l.scratch)?;
                // SAFETY: a node of this graph; what the same call launches with other addresses is
                // the same nodes, and the driver says if not.
                unsafe {
                    let patched = sys::cuGraphExecChildGraphNodeSetParams(self.exec, *made, own);
                    let _ = result::graph::destroy(own);
                    patched
                }
            }
        };
        patched.result().map_err(|e| CudaError::Launch {
            what: about.one(i),
            reason: format!("was not changed in its graph: {}", words(e)),
        })
    }
    /// Launches all.
    pub fn launch(&self, stream: Stream) -> Result<(), CudaError> {
        // SAFETY: a live graph and a live stream.
        unsafe { result::graph::launch(self.exec, stream.0) }
            .map_err(self.device.error("launching a graph"))
    }
}

impl Drop for Graph {
    /// A graph that is under way goes on: the driver frees it behind that.
    fn drop(&mut self) {
        let Ok(_current) = self.device.enter() else { return };
        // SAFETY: made by `new`, destroyed once.
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
