//! Compiles the host function, which launches the kernels.
use crate::{
    PassRun, RunOptions, Target,
    cpu::llvm::codegen::{CodeGen, HOST_PASSES},
    driver::{
        compile::{error::CompileError, options::CompileOptions},
        pipeline::On,
        user_passes::insert_after,
    },
    part_text,
    program::{control::for_each_program, description::read, interface::entry_symbol},
    run_pipeline,
};
use kiln_dialects::{ir::*, rules::Level};
use kiln_runtime::{program as p, program::Program};

/// The compiled host function.
pub(super) struct Host {
    pub(super) program: Program,
    pub(super) object: Option<Vec<u8>>,
    pub(super) passes: Vec<PassRun>,
}

pub(super) fn host(
    module: &Module,
    function: &str,
    options: &CompileOptions,
    run: &RunOptions,
    level: Level,
) -> Result<Host, CompileError> {
    let ctx = module.op().ctx();
    let host_text = |from, to| {
        insert_after(&part_text(On::Host, from, to, &options.target), options.debug.user_passes)
    };
    let mut passes = vec![];
    // The kernels' bodies are compiled elsewhere, so the module goes straight to level `tiled`.
    if level < Level::Program {
        module.op().set_attr("kiln.level", Attr::string(ctx, Level::Tiled.name()));
        passes.extend(
            run_pipeline(module, &host_text(Level::Tiled, Level::Program), run, &|_, _, _| ())?
                .passes,
        );
    }
    let mut program = read(module.op(), function)?;
    let target = match &options.target {
        Target::Cuda { chip, .. } => {
            let target =
                p::Target { arch: "cuda".into(), cpu: chip.name().into(), features: String::new() };
            for_each_program(&mut program, &mut |p| p.target = target.clone());
            return Ok(Host { program, object: None, passes });
        }
        Target::Host(target) => target,
    };
    program.target = p::Target {
        arch: target.arch.clone(),
        cpu: target.cpu.clone(),
        features: target.features.clone(),
    };
    passes.extend(
        run_pipeline(
            module,
            &host_text(level.max(Level::Program), Level::Llvm),
            run,
            &|_, _, _| (),
        )?
        .passes,
    );
    // LLVM has nothing to do for a module without a body, but the translation does not handle one.
    for kernel in blocks(module.op())
        .into_iter()
        .flat_map(|b| b.ops())
        .filter(|o| o.attr("kiln.kernel").is_some())
    {
        kernel.erase();
    }
    let code = |error| CompileError::Code { kernel: entry_symbol(function), error };
    // A short host function is optimised: its overhead counts in a small program's call, half a
    // microsecond of four.
    let generator =
        if walk(module.op()).len() > LONG { CodeGen::quick(target) } else { CodeGen::new(target) };
    let object = generator.map_err(code)?.object(module.op(), HOST_PASSES).map_err(code)?;
    Ok(Host { program, object: Some(object), passes })
}

/// From this many ops on (some twenty launches), a host function is compiled without optimisation.
const LONG: usize = 2000;
