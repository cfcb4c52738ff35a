//! Kernels below the level `kernels`, run before and after a pass as machine code. Those of a GPU
//! run there, or on the emulator, in the suite `gpu::card::passes`.
//!
//! Linalg has no schedule to trust, so it is lowered by upstream's passes alone: one-shot
//! bufferization and one serial loop nest an op. The level `kernels` is what the interpreter runs.
use super::reference;
use crate::{support::*, tolerance};
use kiln::{
    Options,
    capture::weight::{self, Weight},
    dialects::{
        interp::{self, Mode},
        ir::*,
        ops::Global,
        rules::{Level, tensor_type},
        value::Tensor,
    },
    lowering::{RunOptions, program::description, run_pipeline},
    model::{CachePolicy, Model, OwnedTensor, random_inputs},
    passes::pass::level_of,
    runtime::DeviceId,
};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

/// Temporaries of reference loops are on the stack.
const STACK: usize = 256 << 20;

/// Whether both modules are the same but for attributes that state something of ops, such as a
/// kernel's schedule, so that they compute the same. Below the level `kernels` attributes of ops
/// that are neither functions nor modules may say what is computed.
pub fn same_but_for_attributes(before: &Module, after: &Module) -> bool {
    let above = level(after) <= Level::Kernels;
    let bare = |module: &Module| {
        let copy = module.duplicate();
        let stating = |o: &Op| above || o.isa::<func::Func>() || o.is("builtin.module");
        for op in walk(copy.op()).into_iter().filter(stating) {
            let own = op.attrs().into_iter().filter(|(name, _)| name.starts_with("kiln."));
            own.for_each(|(name, _)| op.remove_attr(&name));
        }
        copy.print(PrintOptions::default())
    };
    bare(before) == bare(after)
}

/// Whether a module has kernels in code of a GPU's threads, which no processor runs.
pub fn is_for_a_gpu(module: &Module) -> bool {
    let threads = |o: Op| o.isa::<func::Func>() && o.attr("kiln.threads").is_some();
    level(module) >= Level::Tiled && walk(module.op()).into_iter().any(threads)
}

/// Whether a module has kernels and the interpreter runs all of them, since they are tile programs.
pub fn is_interpreted(module: &Module) -> bool {
    level(module) == Level::Tiled && interp::has_tile_programs_only(module.op())
}

/// Values of symbols, by name.
pub type Sizes = Vec<(String, i64)>;

/// Values of a function's symbols, of which some are given.
pub fn symbols_of(func: Op, given: &Sizes) -> Result<HashMap<String, i64>, String> {
    let mut all = symbol_values(func);
    for (name, value) in given {
        *all.get_mut(name).ok_or_else(|| format!("there is no symbol @{name}"))? = *value;
    }
    Ok(all)
}

/// Whether the functions of a module below `kernels` compute the same after the pipeline, whose
/// result runs with these options, for inputs of these sizes.
pub fn same_results(
    before: &Module,
    pipeline: &str,
    options: &Options,
    sizes: &Sizes,
) -> Result<(), String> {
    let before = reference::program(before)?;
    let after = before.duplicate();
    let passes = format!("builtin.module({pipeline})");
    run_pipeline(&after, &passes, &RunOptions::default(), &|_, _, _| ())
        .map_err(|e| format!("on a program of the kernel: {e}"))?;
    if level(&before) >= Level::Target && before.op().attr("kiln.programs").is_some() {
        return same_programs(&before, &after);
    }
    let all = functions(&before);
    all.iter().try_for_each(|func| same_function(*func, [&before, &after], options, sizes))
}

/// Whether the programs of a module on level `target` compute the same afterwards. Their functions
/// are on pointers, so the module's description says what they take.
fn same_programs(before: &Module, after: &Module) -> Result<(), String> {
    let described = before.op().attr("kiln.programs").and_then(Attr::entries).unwrap_or_default();
    for (name, _) in described {
        let program = description::read(before.op(), &name).map_err(|e| e.to_string())?;
        let inputs = random_inputs(&program).map_err(|e| e.to_string())?;
        let inputs: Vec<Tensor> = inputs
            .iter()
            .map(OwnedTensor::tensor)
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())?;
        let results = |module: &Module| {
            let text = module.print(PrintOptions::default());
            machine(&text, &name, &inputs, Path::new(""), &on_the_host())
        };
        let wanted = results(before).map_err(|e| format!("before the pass: {e}"))?;
        let found = results(after).map_err(|e| format!("after the pass: {e}"))?;
        if wanted.is_empty() || found != wanted {
            return Err(format!("@{name} gives {found:?}, before the pass {wanted:?}"));
        }
    }
    Ok(())
}

fn same_function(
    func: Op,
    [before, after]: [&Module; 2],
    options: &Options,
    sizes: &Sizes,
) -> Result<(), String> {
    let folder = weights(before)?;
    let host = on_the_host();
    let symbols = symbols_of(func, sizes)?;
    for seed in 0..2 {
        let inputs = inputs_of_sizes(func, seed, &symbols);
        let results = |module, mode, options: &Options| {
            results(module, func, mode, &inputs, folder.path(), options)
        };
        let wanted =
            results(before, Mode::Exact, &host).map_err(|e| format!("before the pass: {e}"))?;
        let rounded = match level(before) <= Level::Kernels {
            true => results(before, Mode::Rounded, &host)?,
            false => wanted.clone(),
        };
        let found =
            results(after, Mode::Exact, options).map_err(|e| format!("after the pass: {e}"))?;
        if wanted.len() != found.len() {
            return Err(format!("{} results, before the pass {}", found.len(), wanted.len()));
        }
        for (i, ((found, rounded), wanted)) in found.iter().zip(&rounded).zip(&wanted).enumerate() {
            tolerance::compare(found, rounded, wanted).map_err(|e| format!("result {i} {e}"))?;
        }
    }
    Ok(())
}

/// A folder with random values for the weights that a module names.
fn weights(module: &Module) -> Result<tempfile::TempDir, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut files: BTreeMap<String, Vec<(String, Weight)>> = BTreeMap::new();
    for global in module.body().ops().into_iter().filter_map(Global::of) {
        let Some(source) = global.source else { continue };
        let (file, name) = source.split_once('#').unwrap_or((&source, &global.sym_name));
        let t = tensor_type(global.r#type).map_err(|e| e.to_string())?;
        let shape: Vec<usize> = t.dims.iter().map(|d| d.known().unwrap_or(0) as usize).collect();
        let value = Random(name.len() as u64).tensor(t.dtype, &shape);
        files.entry(file.into()).or_default().push((name.into(), Weight::from_tensor(&value)));
    }
    for (file, all) in files {
        weight::write(&folder.path().join(file), &all).map_err(|e| e.to_string())?;
    }
    Ok(folder)
}

fn level(module: &Module) -> Level {
    level_of(module.op()).unwrap_or(Level::Graph)
}

/// Results of a function, by the interpreter where it can.
fn results(
    module: &Module,
    func: Op,
    mode: Mode,
    inputs: &[Tensor],
    weights: &Path,
    options: &Options,
) -> Result<Vec<Tensor>, String> {
    let name = func.symbol().ok_or("has no name")?;
    match level(module) {
        Level::Graph | Level::Prims | Level::Kernels => {
            run(module, func, mode, inputs).map_err(|e| e.to_string())
        }
        Level::Linalg | Level::Scheduled => {
            machine(&reference::loops(module)?, &name, inputs, weights, &on_the_host())
        }
        _ if options.device == DeviceId::Host && is_interpreted(module) => {
            run(module, func, mode, inputs).map_err(|e| e.to_string())
        }
        _ => machine(&module.print(PrintOptions::default()), &name, inputs, weights, options),
    }
}

/// Options of a run on this machine's processor.
pub fn on_the_host() -> Options {
    Options { cache: CachePolicy::Off, threads: 1, workers: 1, ..Options::default() }
}

/// Results of machine code of a program on a level from `tiled` on.
pub fn machine(
    text: &str,
    name: &str,
    inputs: &[Tensor],
    weights: &Path,
    options: &Options,
) -> Result<Vec<Tensor>, String> {
    let call = || {
        let context = Context::new();
        let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "tiled.mlir")
            .map_err(|e| format!("{e}\n{text}"))?;
        let options = Options { function: name.into(), ..options.clone() };
        let exe =
            Model::from_module(&module, weights).compile(&options).map_err(|e| e.to_string())?;
        exe.call_values(&inputs.iter().collect::<Vec<_>>()).map_err(|e| e.to_string())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, call);
        thread.map_err(|e| e.to_string())?.join().map_err(|_| "a panic".to_string())?
    })
}
