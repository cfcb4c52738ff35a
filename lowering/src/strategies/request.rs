//! What a strategy is asked about: a kernel, analysed once, and the machine.
use crate::{
    analysis::{self, Kernel, NestPlan, SCRATCH},
    target::{Chip, launch::SHARED},
};
use kiln_dialects::{Result, ir::Op};
use std::{cell::RefCell, collections::HashMap, rc::Rc};

/// How a kernel's stages become loop nests.
#[derive(Clone, Copy, Debug)]
pub struct Nesting {
    /// Identifies it: equal nestings have equal names.
    pub name: &'static str,
    /// Builds the nests; `None` where the kernel has none of this kind.
    pub build: fn(Kernel) -> Option<(Kernel, NestPlan)>,
}

impl Nesting {
    /// All stages as they are, such as those of an attention.
    pub const NONE: Nesting = Nesting {
        name: "whole",
        build: |k| {
            let plan = NestPlan::without_nests(&k);
            Some((k, plan))
        },
    };
    /// Loop nests whose intermediates have scratch on a processor's stack.
    pub const CPU: Nesting = Nesting {
        name: "cpu_nests",
        build: |mut k| {
            let plan = analysis::nests(&mut k, SCRATCH);
            Some((k, plan))
        },
    };
    /// Loop nests whose intermediates fit shared memory.
    pub const GPU: Nesting = Nesting {
        name: "gpu_nests",
        build: |mut k| {
            let plan = analysis::nests(&mut k, SHARED);
            Some((k, plan))
        },
    };
    /// Loop nests whose intermediates each CTA computes as a whole, in shared memory beside a
    /// product's; `None` without a product.
    pub const CTA: Nesting = Nesting {
        name: "cta_nests",
        build: |mut k| {
            let products = k.stages.iter().any(|s| s.contraction().is_some());
            products.then(|| {
                let plan = analysis::nests_without_rows(&mut k, CTA_SCRATCH);
                (k, plan)
            })
        },
    };
}

/// Most bytes of intermediates that each CTA computes.
pub const CTA_SCRATCH: i64 = 20 << 10;

/// A kernel and its loop nests in one nesting.
pub type Analysed = Rc<(Kernel, NestPlan)>;

/// The analysis of a kernel's function: it is read once, each nesting is built when it is first
/// asked for.
pub struct Analysis {
    /// The kernel's function.
    pub func: Op,
    kernel: Kernel,
    nested: RefCell<HashMap<&'static str, Option<Analysed>>>,
}

impl Analysis {
    /// Reads a kernel's function on level `linalg` or `scheduled`.
    pub fn of(func: Op) -> Result<Analysis> {
        Ok(Analysis { func, kernel: analysis::read(func)?, nested: RefCell::default() })
    }
    /// The kernel without nests.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
    /// The nests; `None` where the kernel has none of this kind.
    pub fn nests(&self, nesting: Nesting) -> Option<Analysed> {
        let mut nested = self.nested.borrow_mut();
        let make = || (nesting.build)(self.kernel.clone()).map(Rc::new);
        nested.entry(nesting.name).or_insert_with(make).clone()
    }
}

/// What a machine has for products of bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bf16 {
    /// Nothing: they are widened.
    Widen,
    /// Dot products of pairs.
    Dot,
    /// These, and products of tiles.
    Amx,
}

impl Bf16 {
    /// By name: `widen`, `dot`, `amx`.
    pub fn of(name: &str) -> Option<Bf16> {
        Some(match name {
            "widen" => Bf16::Widen,
            "dot" => Bf16::Dot,
            "amx" => Bf16::Amx,
            _ => return None,
        })
    }
}

/// A processor, as cost models see it.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// Bits of a vector register.
    pub bits: i64,
    /// Threads to have tasks for.
    pub threads: i64,
    /// Bytes of the L2 cache.
    pub l2: i64,
    /// Bytes of the last-level cache that a kernel may count on.
    pub l3: i64,
    /// What multiplies bf16.
    pub bf16: Bf16,
}

/// A GPU, as cost models see it.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    /// The architecture.
    pub chip: Chip,
    /// Most threads of a CTA of an elementwise kernel.
    pub threads: i64,
    /// Whether products of bf16 and f16 may take tensor cores unless a schedule says otherwise.
    pub tensor_cores: bool,
    /// Whether factors of f32 may be rounded to tf32.
    pub tf32: bool,
}

impl Gpu {
    /// Whether the architecture has TMA, wgmma and clusters.
    pub fn hopper(&self) -> bool {
        self.chip == Chip::Sm90a
    }
}

/// What a kernel is scheduled for.
#[derive(Clone, Copy, Debug)]
pub enum Machine {
    /// A processor.
    Cpu(Cpu),
    /// A GPU.
    Gpu(Gpu),
}

/// What a strategy is asked: the kernel in the strategy's nesting, and the machine.
pub struct Request<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Its loop nests.
    pub plan: &'a NestPlan,
    /// The machine.
    pub machine: Machine,
}

impl Request<'_> {
    /// The processor.
    ///
    /// # Errors
    /// The kernel is scheduled for a GPU.
    pub fn cpu(&self) -> Result<Cpu> {
        match self.machine {
            Machine::Cpu(cpu) => Ok(cpu),
            Machine::Gpu(_) => Err("has a strategy of processors on a GPU".into()),
        }
    }
    /// The GPU.
    ///
    /// # Errors
    /// The kernel is scheduled for a processor.
    pub fn gpu(&self) -> Result<Gpu> {
        match self.machine {
            Machine::Gpu(gpu) => Ok(gpu),
            Machine::Cpu(_) => Err("has a strategy of GPUs on a processor".into()),
        }
    }
}

/// What a strategy answers.
pub enum Match<P> {
    /// It does not compute this kernel, or not well.
    No,
    /// It computes the kernel with these parameters.
    Yes {
        /// The parameters.
        params: P,
        /// Estimated clocks. Strategies of neighbouring rows of the table that both state a cost
        /// compete; without one the first match wins.
        cost: Option<f64>,
    },
}

impl<P> Match<P> {
    /// A match without a cost, if there are parameters.
    pub fn first(params: Option<P>) -> Match<P> {
        params.map_or(Match::No, |params| Match::Yes { params, cost: None })
    }
    /// A match with a cost, if there are parameters.
    pub fn costed(found: Option<(P, f64)>) -> Match<P> {
        found.map_or(Match::No, |(params, cost)| Match::Yes { params, cost: Some(cost) })
    }
}
