//! The levels of the IR, from a captured graph to machine code.
use crate::{ir::*, ops::OpKind};

/// A level of the IR, stated by the module's `kiln.level`; nested modules share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Composite ops and prims, as captured.
    Graph,
    /// Prims, and composites that have a kernel strategy.
    Prims,
    /// A host function of launches, and one module of prims per kernel.
    Kernels,
    /// Each kernel in linalg and structured ops on tensors.
    Linalg,
    /// Linalg with a schedule per kernel.
    Scheduled,
    /// Each kernel as loops and vectors on memrefs.
    Tiled,
    /// The host function after memory planning.
    Program,
    /// The host function as calls in parallel regions; kernels with their ABI.
    Target,
    /// The llvm dialect.
    Llvm,
}

/// All levels, in lowering order.
pub const LEVELS: &[Level] = &[
    Level::Graph,
    Level::Prims,
    Level::Kernels,
    Level::Linalg,
    Level::Scheduled,
    Level::Tiled,
    Level::Program,
    Level::Target,
    Level::Llvm,
];
/// The levels on which the program is one graph of `kiln` ops.
pub const GRAPH_LEVELS: &[Level] = &[Level::Graph, Level::Prims];

/// Dialects of a kernel from `linalg` to the conversion to llvm.
const KERNEL: &[&str] = &["builtin", "func", "arith", "math", "tensor", "linalg", "affine"];
const CODE: &[&str] = &[
    "builtin",
    "func",
    "arith",
    "math",
    "affine",
    "scf",
    "cf",
    "memref",
    "vector",
    "ub",
    "index",
    "x86vector",
    "amx",
    "gpu",
];

impl Level {
    /// The name in `kiln.level` and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Graph => "graph",
            Level::Prims => "prims",
            Level::Kernels => "kernels",
            Level::Linalg => "linalg",
            Level::Scheduled => "scheduled",
            Level::Tiled => "tiled",
            Level::Program => "program",
            Level::Target => "target",
            Level::Llvm => "llvm",
        }
    }
    /// A description of the IR on this level.
    pub const fn summary(self) -> &'static str {
        match self {
            Level::Graph => {
                "the kiln dialect on tensors: composite ops and prims, symbolic sizes, weights as kiln.global"
            }
            Level::Prims => {
                "about 80 primitive ops; composites with a kernel strategy of their own may stay whole"
            }
            Level::Kernels => {
                "a host function of kiln.launch, and one module of prims per kernel; identical kernels are one"
            }
            Level::Linalg => "each kernel as linalg and structured ops on tensors",
            Level::Scheduled => {
                "the same with #kiln.schedule on each kernel: strategy and tile sizes"
            }
            Level::Tiled => {
                "each kernel as affine and scf loops around vectors on memrefs; a GPU's attention and wgmma products as tile programs first"
            }
            Level::Program => {
                "the host function with its arena planned: offsets, lifetimes, in-place reuse"
            }
            Level::Target => {
                "the host function as omp regions of calls, of a GPU's program as it was planned; kernels take bare pointers"
            }
            Level::Llvm => "the llvm dialect; of a GPU's program, kernels as PTX",
        }
    }
    /// The level of that name.
    pub fn from_name(name: &str) -> Option<Level> {
        LEVELS.iter().copied().find(|l| l.name() == name)
    }
    /// Whether an op is legal on this level.
    pub fn allows(self, op: Op) -> bool {
        let Some(kind) = op.kind() else { return self.allows_foreign(op) };
        match self {
            _ if kind.is_structured() => matches!(self, Level::Linalg | Level::Scheduled),
            _ if kind.is_tile() => self == Level::Tiled,
            Level::Graph => !kind.is_launch(),
            Level::Prims => !kind.is_launch() && (!kind.is_composite() || kind.has_strategy()),
            Level::Kernels => !kind.is_composite() || kind.has_strategy(),
            Level::Linalg | Level::Scheduled | Level::Tiled | Level::Program => {
                kind.is_host_structure()
            }
            // The runtime interprets the GPU host function, so it stays at the planned level.
            Level::Target | Level::Llvm => kind.is_host_structure() && for_gpu(op),
        }
    }
    fn allows_foreign(self, op: Op) -> bool {
        let name = op.name();
        let dialect = name.split('.').next().unwrap_or("");
        match self {
            Level::Graph | Level::Prims => {
                const FUNC: [&str; 3] = [func::Func::NAME, func::Return::NAME, func::Call::NAME];
                name == "builtin.module" || FUNC.contains(&&*name) || op.isa::<arith::Constant>()
            }
            Level::Kernels => {
                ["builtin", "func", "arith"].contains(&dialect) || op.isa::<tensor::Empty>()
            }
            Level::Linalg | Level::Scheduled => KERNEL.contains(&dialect),
            // Chip-specific ops are emitted directly.
            Level::Tiled | Level::Program => {
                CODE.contains(&dialect) || ["tensor", "llvm", "nvvm"].contains(&dialect)
            }
            Level::Target => {
                CODE.contains(&dialect)
                    || ["omp", "llvm", "nvvm"].contains(&dialect)
                    || (dialect == "tensor" && for_gpu(op))
            }
            Level::Llvm => {
                ["builtin", "llvm", "omp"].contains(&dialect)
                    || (["gpu", "func", "arith", "nvvm"].contains(&dialect) && for_gpu(op))
            }
        }
    }
}

/// Marks a driver function, which only calls, branches and loops over programs.
pub const CONTROL: &str = "kiln.control";
/// On a function whose last results are the values of `kiln.unbacked_size` ops: their symbols.
pub const SIZE_RESULTS: &str = "kiln.size_results";
/// On an argument of a function: it is a state of the program, which calls update. A dictionary:
/// `result` is the number of its new value, `source` says where its initial value is.
pub const STATE: &str = "kiln.state";
/// The greatest value of a `kiln.unbacked_size` that nothing bounds.
pub const UNBOUNDED: i64 = i64::MAX;

/// Whether a function is a driver.
pub fn is_driver(func: Op) -> bool {
    func.attr(CONTROL).is_some()
}

/// All functions inside an op but drivers.
pub fn non_drivers(root: Op) -> Vec<Op> {
    functions_in(root).into_iter().filter(|f| !is_driver(*f)).collect()
}

/// The attributes of a function parameter.
pub fn param_attrs(v: Value) -> Option<Attr> {
    let (block, i) = v.block_arg()?;
    block.parent()?.attr("arg_attrs")?.as_array()?.get(i).copied()
}

/// Of the attributes of a parameter that is a state, the result that is its new value.
pub fn state_result(about: Attr) -> Option<usize> {
    usize::try_from(about.entry(STATE)?.entry("result")?.as_i64()?).ok()
}

/// Whether the op's module targets a GPU.
fn for_gpu(op: Op) -> bool {
    let mut at = Some(op);
    while let Some(o) = at {
        if let Some(target) = o.attr("kiln.target").and_then(|a| a.as_string()) {
            return target.starts_with("cuda:");
        }
        at = o.parent();
    }
    false
}

impl OpKind {
    /// Whether the composite may stay below level `graph`, since a kernel strategy computes it.
    pub fn has_strategy(self) -> bool {
        use OpKind::*;
        matches!(
            self,
            Attention
                | AttentionGradient
                | Softmax
                | LogSoftmax
                | LayerNorm
                | GroupNorm
                | RmsNorm
                | CrossEntropy
        )
    }
    /// Whether the op is control flow between programs, which the runtime executes.
    pub fn is_control(self) -> bool {
        use OpKind::*;
        matches!(self, If | While | Scan | CustomCall | UnbackedSize)
    }
    /// Whether the op launches a kernel or plans its memory.
    pub fn is_launch(self) -> bool {
        use OpKind::*;
        matches!(self, Launch | Arena | ArenaSize | Reuse | Output)
    }
    /// Whether the op stays in the host function when kernels are lowered: sizes, weights, views,
    /// launches, control flow.
    pub fn is_host_structure(self) -> bool {
        use OpKind::*;
        matches!(
            self,
            Sym | SymExpr
                | Dim
                | BindShape
                | Require
                | AdvanceRng
                | RequireIndex
                | Global
                | GetGlobal
                | Reshape
                | Yield
        ) || self.is_launch()
            || self.is_control()
    }
}
