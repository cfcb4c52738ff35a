//! The kernels of a module, each as a module of its own that a thread compiles.
use crate::{
    Target,
    cpu::llvm::version,
    driver::options::CompileOptions,
    target::launch::{GRID, LIBRARY, PERSISTENT, SHARED_BYTES, TENSOR_MAPS, THREADS},
};
use kiln_dialects::{ir::*, rules::Level, value::DType};
use sha2::{Digest, Sha256};
use std::{cmp::Reverse, collections::BTreeMap};

/// A kernel on its way.
pub(crate) struct Job {
    pub name: String,
    pub symbol: String,
    pub bytecode: Vec<u8>,
    /// A contraction's loops are unrolled by its schedule.
    pub contract: bool,
    /// It may multiply with AMX.
    pub amx: bool,
}

/// Takes the bodies of all kernels out of a module, one job for each different one, and gives each
/// kernel its symbol.
pub(crate) fn kernels_of(
    module: &Module,
    options: &CompileOptions,
    level: Level,
) -> Result<Vec<Job>, String> {
    let ctx = module.op().ctx();
    let tiles = matches!(&options.target, Target::Host(t) if t.bf16() == "amx");
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    for kernel in blocks(module.op())
        .into_iter()
        .flat_map(|b| b.ops())
        .filter(|o| o.attr("kiln.kernel").is_some())
    {
        let name = kernel.symbol().unwrap_or_default();
        // One that is only declared is a function of the runtime, or given.
        let Some(func) = crate::analysis::kernels_of(kernel).first().copied() else { continue };
        func.set_attr("sym_name", Attr::string(ctx, "kernel"));
        let mut sha = Sha256::new();
        // Text holds no locations and no names of values, so equal kernels of different models are
        // one.
        let print = |op: Op| op.print(PrintOptions { local_scope: true, ..Default::default() });
        // Shared memory, if the module comes on a level that has it.
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
        // A GPU's launches are described when the function is elsewhere.
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
    // What takes longest is begun first, so that no thread is left with it at the end.
    jobs.sort_by_key(|j| (!j.contract, Reverse(j.bytecode.len())));
    Ok(jobs)
}

/// Whether a kernel reduces over two inputs of bf16, which is all that the schedule may give to
/// AMX.
fn sums_bf16(func: Op) -> bool {
    let narrow = |v: &Value| v.ty().element().is_some_and(|t| t.dtype() == Ok(DType::BF16));
    let reduces =
        |o: &Op| o.attr("iterator_types").is_some_and(|a| a.to_string().contains("reduction"));
    walk(func).iter().any(|o| reduces(o) && o.operands().iter().filter(|v| narrow(v)).count() >= 2)
}
