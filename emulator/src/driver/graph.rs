//! Graphs, and what is launched of them.
use super::{
    Done, alive, current, lock, put, stream, table::Table, table::fresh, valid, work::Work,
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

/// The nodes of a graph, each behind all that it depends on.
#[derive(Clone, Default)]
pub struct Body(Vec<Node>);

#[derive(Clone)]
struct Node {
    handle: usize,
    after: Vec<usize>,
    work: Work,
}

impl Body {
    /// One more node, behind some that there are. Its handle.
    pub fn add(&mut self, after: &[usize], work: Work) -> Done<usize> {
        valid(after.iter().all(|a| self.0.iter().any(|n| n.handle == *a)))?;
        let handle = fresh();
        self.0.push(Node { handle, after: after.to_vec(), work });
        Ok(handle)
    }
    /// These nodes, and all that they depend on.
    pub fn before(&self, nodes: &[usize]) -> BTreeSet<usize> {
        let mut found: BTreeSet<usize> = nodes.iter().copied().collect();
        for node in self.0.iter().rev() {
            if found.contains(&node.handle) {
                found.extend(&node.after);
            }
        }
        found
    }
    /// An order in which they can run: of what could be next, the node that was made last, so that
    /// a dependency that is missing shows.
    fn order(&self) -> Vec<(usize, Work)> {
        let (mut left, mut done, mut order) =
            (self.0.iter().collect::<Vec<_>>(), BTreeSet::new(), vec![]);
        while let Some(at) = left.iter().rposition(|n| n.after.iter().all(|a| done.contains(a))) {
            let node = left.remove(at);
            done.insert(node.handle);
            order.push((node.handle, node.work.clone()));
        }
        order
    }
    /// All of it as one piece of work.
    fn whole(&self) -> Work {
        Work::Several(self.order().into_iter().map(|(_, work)| work).collect())
    }
}

/// What is launched: pieces of work by the nodes that they are of.
struct Exec(Mutex<Vec<(usize, Work)>>);

static GRAPHS: Table<Mutex<Body>, CUgraph_st> = Table::new();
static EXECS: Table<Exec, CUgraphExec_st> = Table::new();

/// A graph of these nodes.
pub fn add(body: Body) -> CUgraph {
    GRAPHS.add(Mutex::new(body))
}

/// A graph's nodes.
pub fn find(graph: CUgraph) -> Done<Arc<Mutex<Body>>> {
    GRAPHS.get(graph)
}

/// A graph as one piece of work.
pub fn whole(graph: CUgraph) -> Done<Work> {
    Ok(lock(&*find(graph)?).whole())
}

/// Gives a node other work of the same kind.
pub fn change(exec: CUgraphExec, node: CUgraphNode, work: Work) -> Done {
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

/// A graph without nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint) -> CUresult {
    alive(|| {
        valid(!graph.is_null() && flags == 0)?;
        // SAFETY: room for a handle.
        unsafe { put(graph, add(Body::default())) }
    })
}

/// Ends a graph; what was instantiated of it stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: CUgraph) -> CUresult {
    alive(|| GRAPHS.take(graph).map(drop))
}

/// Makes a graph ready to be launched, as it is now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> CUresult {
    current(|| {
        valid(!exec.is_null() && flags <= FLAGS)?;
        let steps = lock(&*find(graph)?).order();
        // SAFETY: room for a handle.
        unsafe { put(exec, EXECS.add(Exec(Mutex::new(steps)))) }
    })
}

/// Ends what was instantiated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(exec: CUgraphExec) -> CUresult {
    alive(|| EXECS.take(exec).map(drop))
}

/// Gives a graph to a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> CUresult {
    current(|| {
        let (exec, stream) = (EXECS.get(exec)?, stream::find(stream)?);
        let all: Arc<[Work]> = lock(&exec.0).iter().map(|(_, work)| work.clone()).collect();
        stream.run(Work::Several(all))
    })
}
