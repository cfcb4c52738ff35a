//! What a launch of a kernel needs, as attributes of the kernel's function.
use crate::target::launch::{
    CLUSTER, GRID, PERSISTENT, RESIDENT, SHARED_BYTES, TENSOR_MAPS, THREADS,
};
use kiln_dialects::ir::{Attr, Op};

/// A GPU kernel's launch. A processor's kernel needs none of it.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// CTAs, as an affine map over the kernel's sizes. Any number is right: kernels are
    /// grid-stride.
    pub grid: Option<Attr>,
    /// Threads of a CTA.
    pub threads: usize,
    /// CTAs of a cluster; 0 or 1 for none.
    pub cluster: usize,
    /// Dynamic shared memory of a CTA in bytes.
    pub shared_bytes: Option<usize>,
    /// TMA descriptors, which the runtime encodes and passes behind the other arguments.
    pub tensor_maps: Option<Attr>,
    /// The occupancy that registers are limited for, in CTAs of an SM.
    pub ctas_per_sm: Option<usize>,
    /// The most CTAs that are launched for an SM, of a persistent kernel; 0 for one CTA a tile.
    pub persistent: usize,
}

impl Launch {
    /// Writes the attributes.
    pub fn apply(&self, func: Op) {
        let c = func.ctx();
        let set = |name: &str, n: usize| func.set_attr(name, Attr::i64(c, n as i64));
        if let Some(grid) = self.grid {
            func.set_attr(GRID, grid);
            set(THREADS, self.threads);
        }
        if self.cluster > 1 {
            set(CLUSTER, self.cluster);
        }
        if let Some(bytes) = self.shared_bytes {
            set(SHARED_BYTES, bytes);
        }
        if let Some(maps) = self.tensor_maps {
            func.set_attr(TENSOR_MAPS, maps);
        }
        if let Some(n) = self.ctas_per_sm {
            set(RESIDENT, n);
        }
        if self.persistent > 0 {
            set(PERSISTENT, self.persistent);
        }
    }
}
