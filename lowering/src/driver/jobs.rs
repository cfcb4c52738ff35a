//! Splits the kernels of a module into modules that threads compile separately.
use crate::{
    Target,
    analysis::{partial_reads::partial_reads, structure::loops_of},
    cpu::llvm::version,
    driver::compile::CompileOptions,
    target::{kernel_attrs::READS, launch::set_on_module},
};
use kiln_dialects::{ir::*, ops::OpKind, rules::Level, value::DType};
use sha2::{Digest, Sha256};
use std::{cmp::Reverse, collections::BTreeMap};

/// A kernel to compile.
pub(crate) struct Job {
    pub name: String,
    pub symbol: String,
    /// Its name in the cache.
    pub key: String,
    pub bytecode: Vec<u8>,
    /// Its schedule unrolls the contraction's loops.
    pub contract: bool,
    /// It may use AMX.
    pub amx: bool,
}

/// Takes the bodies of all kernels out of a module, one job per distinct kernel, and gives each
/// kernel its symbol.
pub(crate) fn kernels_of(
    module: &Module,
    options: &CompileOptions,
    level: Level,
) -> Result<Vec<Job>> {
    let ctx = module.op().ctx();
    let tiles = matches!(&options.target, Target::Host(t) if t.bf16() == "amx");
    // Calls of the host function already name the kernels.
    let named = level >= Level::Target && options.target.chip().is_none();
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    for kernel in blocks(module.op())
        .into_iter()
        .flat_map(|b| b.ops())
        .filter(|o| o.attr("kiln.kernel").is_some())
    {
        let name = kernel.symbol().unwrap_or_default();
        // A kernel that is only declared is a runtime function, or external PTX.
        let Some(func) = function_of(kernel) else { continue };
        if !named {
            func.set_attr("sym_name", Attr::string(ctx, "kernel"));
        }
        let mut sha = Sha256::new();
        // Text holds no locations and no value names, so equal kernels of different models share a
        // symbol, as far as fusion names them alike: by their ops.
        let print = |op: Op| op.print(PrintOptions { local_scope: true, ..Default::default() });
        // Shared-memory globals, if the module starts on a level that has them.
        let beside: Vec<Op> =
            blocks(kernel).into_iter().flat_map(|b| b.ops()).filter(|o| *o != func).collect();
        for part in [
            beside.iter().map(|o| print(*o)).chain([print(func)]).collect::<String>().as_str(),
            &options.target.to_string(),
            &version(),
            options.salt,
            level.name(),
            &format!("{:?}", (options.debug.disable, options.debug.user_passes)),
        ] {
            sha.update((part.len() as u64).to_le_bytes());
            sha.update(part);
        }
        let hash: String = sha.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect();
        // Profilers show it. Equal kernels of one program have names that differ by a number.
        let readable = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
        let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        let readable: String = readable.chars().filter(plain).take(64).collect();
        let key = format!("kiln_{readable}_{hash}");
        let symbol = if named { func.symbol().unwrap_or_default() } else { key.clone() };
        let about = kernel.attr("kiln.kernel").and_then(|a| a.entries()).unwrap_or_default();
        let kind = about
            .iter()
            .find(|(n, _)| n == "kind")
            .and_then(|(_, a)| a.as_string())
            .unwrap_or_default();
        let reads = partial_reads(func);
        let reads = (!reads.is_empty()).then(|| (READS, Attr::i64s(ctx, &reads)));
        set_on_module(kernel, func, &symbol, reads);
        func.set_attr("sym_name", Attr::string(ctx, &symbol));
        if !jobs.contains_key(&symbol) {
            let standalone = Module::new(func.loc());
            standalone.op().set_attr(
                "kiln.kernel",
                Attr::dictionary(ctx, &[("kind", Attr::string(ctx, &kind))]),
            );
            standalone.op().set_attr("kiln.level", Attr::string(ctx, level.name()));
            beside.iter().chain([&func]).try_for_each(|o| {
                Builder::at_end(ctx, standalone.body(), o.loc()).clone_op(*o, &|v| v).map(drop)
            })?;
            jobs.insert(
                symbol.clone(),
                Job {
                    name,
                    symbol,
                    key,
                    bytecode: standalone.bytecode(),
                    contract: ["contract", "attention"].contains(&kind.as_str()),
                    amx: tiles && (sums_bf16(func) || has_tiles(func)),
                },
            );
        }
        beside.into_iter().chain([func]).for_each(Op::erase);
    }
    let mut jobs: Vec<Job> = jobs.into_values().collect();
    // Longest jobs first, for load balance.
    jobs.sort_by_key(|j| (!j.contract, Reverse(j.bytecode.len())));
    Ok(jobs)
}

/// The function of a kernel's module, of the llvm dialect on level `llvm`.
fn function_of(kernel: Op) -> Option<Op> {
    let body = |f: &Op| f.regions().first().is_some_and(|r| !r.is_empty());
    let inside = blocks(kernel).into_iter().flat_map(|b| b.ops());
    inside.filter(body).find(|f| f.isa::<func::Func>() || f.isa::<llvm::LLVMFunc>())
}

/// Whether a kernel has ops on AMX tiles.
fn has_tiles(func: Op) -> bool {
    walk(func).iter().any(|o| o.name().starts_with("amx."))
}

/// Whether a kernel reduces over two bf16 inputs, the only case in which the schedule may use AMX.
fn sums_bf16(func: Op) -> bool {
    let narrow = |v: &Value| v.ty().element().is_some_and(|t| t.dtype() == Ok(DType::BF16));
    let reduces = |o: &Op| {
        o.kind().is_some_and(OpKind::has_loops)
            || loops_of(*o).is_ok_and(|(_, reduction)| reduction.contains(&true))
    };
    walk(func).iter().any(|o| reduces(o) && o.operands().iter().filter(|v| narrow(v)).count() >= 2)
}
