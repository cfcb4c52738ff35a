//! Splits the kernels of a module into modules that threads compile separately.
use crate::{
    Target,
    cpu::llvm::version,
    driver::compile::CompileOptions,
    target::launch::{GRID, LIBRARY, PERSISTENT, SHARED_BYTES, TENSOR_MAPS, THREADS},
};
use kiln_dialects::{ir::*, rules::Level, value::DType};
use sha2::{Digest, Sha256};
use std::{cmp::Reverse, collections::BTreeMap};

/// A kernel to compile.
pub(crate) struct Job {
    pub name: String,
    pub symbol: String,
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
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    for kernel in blocks(module.op())
        .into_iter()
        .flat_map(|b| b.ops())
        .filter(|o| o.attr("kiln.kernel").is_some())
    {
        let name = kernel.symbol().unwrap_or_default();
        // A kernel that is only declared is a runtime function, or external PTX.
        let Some(func) = crate::analysis::kernels_of(kernel).first().copied() else { continue };
        func.set_attr("sym_name", Attr::string(ctx, "kernel"));
        let mut sha = Sha256::new();
        // Text holds no locations and no value names, so equal kernels of different models share a
        // symbol.
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
            &format!("{:?}", (options.debug.disable, options.debug.own)),
        ] {
            sha.update((part.len() as u64).to_le_bytes());
            sha.update(part);
        }
        let hash: String = sha.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect();
        let symbol = format!("kiln_{hash}");
        let about = kernel.attr("kiln.kernel").and_then(|a| a.entries()).unwrap_or_default();
        let kind = about
            .iter()
            .find(|(n, _)| n == "kind")
            .and_then(|(_, a)| a.as_string())
            .unwrap_or_default();
        let mut entries: Vec<(&str, Attr)> = about.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        entries.push(("symbol", Attr::string(ctx, &symbol)));
        // The launch attributes of a GPU kernel move to its module, because the function leaves it.
        entries.extend(
            [GRID, LIBRARY, PERSISTENT, THREADS, TENSOR_MAPS, SHARED_BYTES]
                .into_iter()
                .filter_map(|name| Some((name, func.attr(name)?))),
        );
        kernel.set_attr("kiln.kernel", Attr::dictionary(ctx, &entries));
        func.set_attr("sym_name", Attr::string(ctx, &symbol));
        if !jobs.contains_key(&symbol) {
            let own = Module::new(func.loc());
            own.op().set_attr(
                "kiln.kernel",
                Attr::dictionary(ctx, &[("kind", Attr::string(ctx, &kind))]),
            );
            own.op().set_attr("kiln.level", Attr::string(ctx, level.name()));
            beside.iter().chain([&func]).try_for_each(|o| {
                Builder::at_end(ctx, own.body(), o.loc()).clone_op(*o, &|v| v).map(drop)
            })?;
            jobs.insert(
                symbol.clone(),
                Job {
                    name,
                    symbol,
                    bytecode: own.bytecode(),
                    contract: ["contract", "attention"].contains(&kind.as_str()),
                    amx: tiles && sums_bf16(func),
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

/// Whether a kernel reduces over two bf16 inputs, the only case in which the schedule may use AMX.
fn sums_bf16(func: Op) -> bool {
    let narrow = |v: &Value| v.ty().element().is_some_and(|t| t.dtype() == Ok(DType::BF16));
    let reduces =
        |o: &Op| o.attr("iterator_types").is_some_and(|a| a.to_string().contains("reduction"));
    walk(func).iter().any(|o| reduces(o) && o.operands().iter().filter(|v| narrow(v)).count() >= 2)
}
