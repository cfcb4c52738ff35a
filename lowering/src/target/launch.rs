//! Attributes of a kernel's function that state its launch configuration on a GPU.
use kiln_dialects::ir::{Attr, Op};

/// Most bytes of shared memory that a kernel uses. Every chip has 48 KiB without opt-in, of which
/// reductions take some.
pub const SHARED: i64 = 46 << 10;
/// LLVM's address space of shared memory.
pub const SHARED_SPACE: i64 = 3;
/// Lanes of a warp.
pub const WARP: usize = 32;
/// On a kernel's function: the number of CTAs (thread blocks) it asks for, over its `index`
/// parameters. It is correct with any number.
pub const GRID: &str = "kiln.grid";
/// On a kernel's function: the TMA descriptors (tensor maps) that are its last parameters.
pub const TENSOR_MAPS: &str = "kiln.tensor_maps";
/// On a kernel's function: bytes of shared memory per CTA.
pub const SHARED_BYTES: &str = "kiln.shared";
/// On a kernel's function: most CTAs launched per SM; these persistent CTAs loop over the remaining
/// work. Without it, all CTAs of `kiln.grid` are launched.
pub const PERSISTENT: &str = "kiln.persistent";
/// On a kernel's function: CTAs per cluster, which read each other's shared memory (DSMEM). Absent:
/// no cluster.
pub const CLUSTER: &str = "kiln.cluster";
/// On a kernel's function: a library, `"cublaslt"` or `"cudnn"`, that can compute it; after
/// scheduling, the call's arguments: argument indices, sizes, strides. A runtime that finds the
/// library calls it, any other runs the kernel.
pub const LIBRARY: &str = "kiln.library";
/// On a kernel's function, a unit: it waits itself for the kernel before it (programmatic dependent
/// launch), and may be launched while that one runs.
pub const DEPENDENT: &str = "kiln.dependent";
/// On a kernel's function: threads per CTA.
pub const THREADS: &str = "kiln.threads";
/// On a kernel's function: least CTAs resident per SM, for which ptxas limits registers; default 1.
pub const RESIDENT: &str = "kiln.resident";

/// What a launch needs of a kernel, as its function states it. It moves to the kernel's module when
/// the function leaves that.
pub fn launch_attributes(func: Op) -> Vec<(&'static str, Attr)> {
    let names = [DEPENDENT, GRID, LIBRARY, PERSISTENT, THREADS, TENSOR_MAPS, SHARED_BYTES];
    names.into_iter().filter_map(|name| Some((name, func.attr(name)?))).collect()
}

/// States a kernel's symbol, what a launch needs of `func`, and one more entry on the kernel's module.
pub fn set_on_module(kernel: Op, func: Op, symbol: &str, more: Option<(&'static str, Attr)>) {
    let c = kernel.ctx();
    let about = kernel.attr("kiln.kernel").and_then(Attr::entries).unwrap_or_default();
    let kept = about.iter().map(|(n, a)| (n.as_str(), *a)).filter(|(n, _)| *n != "symbol");
    let mut entries: Vec<(&str, Attr)> = kept.collect();
    entries.push(("symbol", Attr::string(c, symbol)));
    for (name, value) in launch_attributes(func).into_iter().chain(more) {
        entries.retain(|(n, _)| *n != name);
        entries.push((name, value));
    }
    kernel.set_attr("kiln.kernel", Attr::dictionary(c, &entries));
}
