//! `kiln-in-place`: finds the results of a kernel that may overwrite one of its inputs.
//!
//! Why: an input that is dead after the launch is in the caches already, and reusing it makes the
//! arena smaller; `kiln-plan` reuses it where liveness allows. This runs while the bodies are at
//! hand: later every kernel is compiled separately. Each element of such an input is read only by
//! the iteration that writes the same element of the result, and never after the write. On GPUs,
//! where kernels assume that nothing aliases, it is done for donated arguments and for large values,
//! such as a sum over chunks (`kiln-chunk-rows`) that a product is added to. A scatter or an
//! update of a slice by the runtime's library writes its updates alone then. Upstream's
//! one-shot bufferization does this analysis for tensors within a function, not for arguments of a
//! callee.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  module @k0 attributes {kiln.kernel = {…}} { func.func @k0 …
//! after:   module @k0 attributes {kiln.kernel = {…, in_place = array<i64: 0, 1>}} { func.func @k0 … attributes {kiln.in_place = array<i64: 0>}
//! ```
use crate::{
    analysis::{self, Access, Init, Kernel, Nest, NestPlan, Poly, Role, kernels_of},
    program::{
        library_call::Library,
        plan::{base, donated, host_functions},
    },
    strategies::cpu::contraction::transposition,
    target::kernel_attrs::{IN_PLACE, IN_PLACE_ENTRY},
};
use kiln_dialects::{
    ir::*,
    ops::Launch,
    rules::{Level, tensor_type},
    sym::known_product,
};
use kiln_passes::{Numerics, Pass};
use std::collections::HashSet;

kiln_passes::pass_options! {
    /// The pass.
    pub struct InPlace {
        /// Only inputs that are donated arguments of the program, of kernels without reductions but
        /// products
        pub donated: bool = false,
        /// With `donated` also other inputs of kernels that have a result of at least so many bytes
        pub sums_from: i64 = 67108864,
    }
}

impl Pass for InPlace {
    const FLAG: &'static str = "kiln-in-place";
    const SUMMARY: &'static str = "Marks results of kernels that may reuse the buffer of an input";
    const LEVELS: &'static [Level] = &[Level::Linalg];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let donated = if self.donated { donated_operands(root) } else { HashSet::new() };
        library(root);
        for func in kernels_of(root) {
            let kernel = func.parent().and_then(Op::symbol).unwrap_or_default();
            let takes = donated.iter().any(|(name, _)| *name == kernel);
            let large = self.donated && self.has_large_result(func);
            if self.donated && !takes && !large {
                continue;
            }
            let mut k = analysis::read(func)?;
            if k.attention.is_some() {
                continue;
            }
            let plan = analysis::nests(&mut k, analysis::SCRATCH);
            let mut found = pairs(&k, &plan);
            if self.donated {
                // How a GPU's strategies divide other reductions among threads is not known here.
                let plain = plan.nests.iter().all(|n| !n.reduction.contains(&true));
                let sum = matches!(&plan.nests[..], [n] if adds_to_product(&k, n));
                let donated = |input| donated.contains(&(kernel.clone(), input));
                found.retain(|(_, input)| (plain || sum) && (large || donated(*input)));
            }
            let Some(module) = func.parent().filter(|_| !found.is_empty()) else { continue };
            let c = func.ctx();
            let about = module.attr("kiln.kernel").unwrap_or_else(|| Attr::dictionary(c, &[]));
            let flat: Vec<i64> =
                found.iter().flat_map(|(result, input)| [*result as i64, *input as i64]).collect();
            let about = about.with_entry(c, IN_PLACE_ENTRY, Attr::i64s(c, &flat));
            module.set_attr("kiln.kernel", about);
            let mut results: Vec<i64> = found.iter().map(|(result, _)| *result as i64).collect();
            results.dedup();
            func.set_attr(IN_PLACE, Attr::i64s(c, &results));
        }
        Ok(())
    }
}

impl InPlace {
    /// Whether a kernel has a result of at least `sums_from` bytes.
    fn has_large_result(&self, func: Op) -> bool {
        let (_, results) = func
            .attr("function_type")
            .and_then(Attr::as_type)
            .and_then(Type::signature)
            .unwrap_or_default();
        results.into_iter().any(|ty| {
            let size = known_product(&ty.dims());
            let width = tensor_type(ty).map_or(0, |t| t.dtype.byte_size() as i64);
            size.and_then(|n| n.checked_mul(width)).is_some_and(|n| n >= self.sums_from)
        })
    }
}

/// Whether a nest is a product of two operands that are read as they are, and ops on its elements
/// and on elements of other inputs. Every strategy computes such an element in one thread, which
/// reads what it adds right before it writes.
fn adds_to_product(k: &Kernel, nest: &Nest) -> bool {
    let stages: Vec<_> = nest.all().map(|s| &k.stages[s]).collect();
    let products = stages.iter().filter(|s| s.contraction().is_some()).count();
    let others = stages.iter().filter(|s| s.contraction().is_none());
    products == 1 && others.into_iter().all(|s| !s.reduction.contains(&true))
}

/// Marks library calls that write parts of a tensor: in place they copy nothing.
fn library(root: Op) {
    for module in blocks(root).into_iter().flat_map(|b| b.ops()) {
        let Some(call) = Library::of(module) else { continue };
        let writes = ["kiln_scatter", "kiln_dynamic_update_slice"].contains(&&call.callee[..]);
        let (Some(input), Some(Some(result))) = (call.operands.first(), call.results.first())
        else {
            continue;
        };
        // Read by another operand as well, elements would change under it.
        let alone = call.operands.iter().filter(|i| *i == input).count() == 1;
        if writes && alone {
            let pair = Attr::i64s(module.ctx(), &[*result as i64, *input as i64]);
            let about = module.attr("kiln.kernel").unwrap_or(Attr::dictionary(module.ctx(), &[]));
            module.set_attr("kiln.kernel", about.with_entry(module.ctx(), IN_PLACE_ENTRY, pair));
        }
    }
}

/// Kernels and their inputs that some launch gives a donated argument.
fn donated_operands(root: Op) -> HashSet<(String, usize)> {
    let mut found = HashSet::new();
    for func in host_functions(root) {
        let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
        let arguments = donated(func, block);
        for launch in block.ops().into_iter().filter_map(Launch::of) {
            for (i, v) in launch.inputs.iter().enumerate() {
                if arguments.contains(&base(*v)) {
                    found.insert((launch.kernel.clone(), i));
                }
            }
        }
    }
    found
}

/// Pairs of a result and a tensor input that it may overwrite, in order.
fn pairs(k: &Kernel, plan: &NestPlan) -> Vec<(usize, usize)> {
    let mut found: Vec<_> = plan.nests.iter().flat_map(|n| pairs_of(k, plan, n)).collect();
    found.sort_unstable();
    found
}

/// Those whose result a nest writes, in any order.
fn pairs_of(k: &Kernel, plan: &NestPlan, nest: &Nest) -> Vec<(usize, usize)> {
    // A transposition reads and writes in different orders.
    if transposition(k, plan, nest, 512).is_some() {
        return vec![];
    }
    // Inputs are numbered among tensors only, as in a launch.
    let args =
        k.func.regions().first().and_then(|r| r.first()).map(Block::args).unwrap_or_default();
    let tensors: Vec<usize> = (0..args.len()).filter(|i| args[*i].ty().is_tensor()).collect();
    let mut found = vec![];
    for (b, buffer) in k.buffers.iter().enumerate() {
        let Role::Output(result) = buffer.role else { continue };
        let Some((writer, at)) = writer(k, nest, b) else { continue };
        for (x, input) in k.buffers.iter().enumerate() {
            let Role::Input(arg) = input.role else { continue };
            let width = |t: Type| t.dtype().map(|d| d.byte_size()).ok();
            let alike = width(input.element) == width(buffer.element)
                && Poly::product(&input.sizes) == Poly::product(&buffer.sizes);
            // A padded view of it has other indices.
            let padded = k.buffers.iter().any(|b| b.role == Role::Padded(arg));
            if alike && !padded && only_before(k, nest, x, writer, at) {
                found.push((result, tensors.iter().filter(|t| **t < arg).count()));
            }
        }
    }
    found
}

/// Position in its nest of the only stage that writes all of a buffer, and its access; `None` if
/// anything else accesses the buffer, but for later stages that read the element just written.
fn writer<'a>(k: &'a Kernel, nest: &Nest, b: usize) -> Option<(usize, &'a Access)> {
    let writes = |s: &usize| k.stages[*s].outputs.iter().any(|o| o.access.buffer == b);
    let mut all = nest.all().enumerate().filter(|(_, s)| writes(s));
    let ((at, s), None) = (all.next()?, all.next()) else { return None };
    let mut outputs = k.stages[s].outputs.iter().filter(|o| o.access.buffer == b);
    let (o, None) = (outputs.next()?, outputs.next()) else { return None };
    let parallel =
        (0..nest.extents.len()).filter(|d| !nest.reduction[*d]).map(|d| &nest.extents[d]);
    let whole =
        nest.split.is_none() && Poly::product(parallel) == Poly::product(&k.buffers[b].sizes);
    // Reductions write at the end of their loops, after all of their reads.
    let last = !nest.reduction.contains(&true) || at >= nest.stages.len();
    let later: Vec<usize> = nest.all().skip(at + 1).collect();
    let forwarded = k.stages.iter().enumerate().all(|(s, stage)| {
        let mut reads = stage.reads().filter(|a| a.buffer == b).peekable();
        let none = reads.peek().is_none();
        let same = later.contains(&s) && reads.all(|a| a.at == o.access.at);
        (none || same) && !stage.captured.contains(&b)
    });
    (whole && last && forwarded && !o.reduces && matches!(o.init, Init::None))
        .then_some((at, &o.access))
}

/// Whether an input is read at this address only, by the stage at this position of the nest or by
/// earlier stages that run once per element.
fn only_before(k: &Kernel, nest: &Nest, x: usize, writer: usize, at: &Access) -> bool {
    let reduces = nest.reduction.contains(&true);
    let stages: Vec<usize> = nest.all().collect();
    let allowed = |s: usize| {
        let place = stages.iter().position(|n| *n == s);
        place.is_some_and(|p| p <= writer && (!reduces || p >= nest.stages.len()))
    };
    k.stages.iter().enumerate().all(|(s, stage)| {
        let mut reads = stage.reads().filter(|a| a.buffer == x).peekable();
        let none = reads.peek().is_none();
        !stage.captured.contains(&x) && (none || (allowed(s) && reads.all(|a| a.at == at.at)))
    })
}
