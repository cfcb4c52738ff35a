//! `kiln-partition`: a joint function becomes a forward and a backward function.
//!
//! Why: a training step in two programs saves values of the forward pass for the backward pass.
//! What it saves is a choice between memory and recomputation: a minimum cut of the graph, as in
//! PyTorch's `min_cut_rematerialization_partition` (Chen et al., 2016; Jia et al., Checkmate,
//! 2020). Upstream has no such pass.
//!
//! A joint function has forward results first, and then gradients, as `kiln-differentiate` gives
//! them. `NAME_forward` returns the forward results and the saved values; `NAME_backward` takes
//! these and the cotangents. Arguments that the backward pass reads are saved too, but cost
//! nothing: they are alive. What a checkpoint recomputes, and effects that depend on cotangents,
//! are the backward function's. What it recomputes is computed right before it is read. The cut is
//! of bytes that are saved; then values that would be recomputed early and read late are saved too,
//! if that lowers the peak. `kiln.partition` reports values, bytes, the peak, and flops.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  func @f(%x, %g) -> (%2, %4) {  %0 = kiln.linear %x, …  %1 = kiln.exp %0  %2 = kiln.sin %1  %3 = kiln.cos %1  %4 = kiln.mul %g, %3  %5 = kiln.mul %4, %1 … }
//! after:   func @f_forward(%x) -> (%2, %0) {  %0 = kiln.linear %x, …  %1 = kiln.exp %0  %2 = kiln.sin %1 }
//!          func @f_backward(%0, %g) -> %5 {  %1 = kiln.exp %0  %3 = kiln.cos %1  %4 = kiln.mul %g, %3  %5 = kiln.mul %4, %1 }
//! ```
mod choose;
mod cost;
mod emit;
mod flow;
mod images;
mod peak;
mod stored;

use crate::{
    names::hint,
    pass::{Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::OpKind,
    rules::{Level, non_drivers},
};

crate::pass_options! {
    /// The pass.
    pub struct Partition {
        /// How many results are the forward pass's: the first ones
        pub results: usize = 1,
        /// How many arguments are cotangents, which only the backward pass takes: the last ones
        pub cotangents: usize = 0,
        /// Share of the saved bytes, from 1: all that `heavy` ops make, to 0: as few as can be; as
        /// torch._functorch.config.activation_memory_budget
        pub budget: f64 = 1.0,
        /// Ops, by mnemonic, that are not recomputed while the budget allows it; reductions, means
        /// and variances count where they read four times what they make
        pub heavy: Vec<String> = vec![
            "attention".into(),
            "convolution".into(),
            "dot_general".into(),
            "linear".into(),
            "matmul".into(),
            "reduce".into(),
            "reduce_window".into(),
            "scatter".into(),
            "sort".into(),
            "top_k".into()
        ],
        /// What `heavy` ops of the backward pass read, and several tensors are read for, is not
        /// recomputed either while the budget allows it, since it would be stored again
        pub keep_stored: bool = true,
        /// Ops, by mnemonic, that are never recomputed
        pub never: Vec<String> = vec![
            "custom_call".into(),
            "dropout".into(),
            "if".into(),
            "philox".into(),
            "ptx_call".into(),
            "random_bits".into(),
            "random_normal".into(),
            "random_uniform".into(),
            "scan".into(),
            "while".into()
        ],
        /// Value assumed for a dynamic dimension
        pub size: i64 = 64,
        /// Saves images that convolutions read or make as [N, H, W, C], which their kernels take
        pub channels_last: bool = false,
    }
}

impl Pass for Partition {
    const FLAG: &'static str = "kiln-partition";
    const SUMMARY: &'static str =
        "Splits functions with gradients into a forward and a backward function";
    const LEVELS: &'static [Level] = &[Level::Graph];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        if !(0.0..=1.0).contains(&self.budget) {
            return Err(format!("has a budget of {}, not one from 0 to 1", self.budget).into());
        }
        let kinds = Kinds { heavy: kinds(&self.heavy)?, never: kinds(&self.never)? };
        for func in non_drivers(root) {
            self.function(func, &kinds).at(func)?;
        }
        Ok(())
    }
}

/// What is not recomputed.
struct Kinds {
    heavy: Vec<OpKind>,
    never: Vec<OpKind>,
}

/// Ops by mnemonic. Err: there is no such op.
fn kinds(names: &[String]) -> Result<Vec<OpKind>> {
    let find = |name: &String| {
        let found = OpKind::ALL.iter().copied().find(|k| k.mnemonic() == name);
        found.ok_or_else(|| {
            let names = OpKind::ALL.iter().map(|k| k.mnemonic());
            format!("names '{name}', which is no op{}", hint(name, names)).into()
        })
    };
    names.iter().map(find).collect()
}

impl Partition {
    fn function(&self, func: Op, kinds: &Kinds) -> Result<()> {
        let Some(block) = func.regions().first().and_then(|r| r.first()) else { return Ok(()) };
        let end = block.terminator().ok_or("has no return")?;
        let (args, values) = (block.args(), end.operands());
        if self.results >= values.len() {
            let (n, m) = (self.results, values.len());
            return Err(format!("has {m} results, of which {n} are forward: no gradient").into());
        }
        let Some(primals) = args.len().checked_sub(self.cotangents) else {
            let (n, m) = (self.cotangents, args.len());
            return Err(format!("has {m} arguments, not {n} cotangents").into());
        };
        let (results, gradients) = values.split_at(self.results);
        let joint = choose::Joint {
            block,
            primals: &args[..primals],
            cotangents: &args[primals..],
            results,
            gradients,
        };
        let costs = cost::Costs::of(func, self.size)?;
        let plan = choose::choose(&joint, &costs, kinds, self.budget, self.keep_stored)?;
        emit::emit(func, &joint, &costs, &plan, self.channels_last)
    }
}
