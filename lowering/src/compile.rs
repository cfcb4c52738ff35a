//! From a module on any level down to objects, or PTX for a GPU: kernels on worker threads, each from the cache if it is there.
use crate::{
    PassError, RunOptions, Target,
    gpu::{GRID, PERSISTENT, SHARED_BYTES, TENSOR_MAPS, THREADS, ptx, support},
    host::{
        control::each,
        interface::{describe, entry_symbol},
        llvm::{CodeGen, CodeGenError, HOST_PASSES, KERNEL_PASSES, UNROLLING_KERNEL_PASSES, version},
    },
    part_text,
    pipeline::On,
    pipeline_text_for, run_pipeline,
};
use kiln_dialects::{ir::*, rules::Level, value::DType};
use kiln_passes::{Failure, pass::level_of};
use kiln_runtime::{
    cache::{Remark, Store},
    program::{self as p, Program},
};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// How to compile.
pub struct CompileOptions<'a> {
    /// What to compile for.
    pub target: Target,
    /// Threads that compile.
    pub workers: usize,
    /// Where objects are kept between processes.
    pub cache: Option<&'a Store>,
    /// Runs MLIR's verifier after every pass.
    pub verify: bool,
    /// Names the compiler's build in the keys of the cache.
    pub salt: &'a str,
    /// Told how many of how many kernels are done.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// What came out.
pub struct Compiled {
    /// The program as plain data.
    pub program: Program,
    /// Object code by name, the host function's first; or the PTX of each kernel.
    pub objects: Vec<(String, Vec<u8>)>,
    /// Where the time went.
    pub report: CompileReport,
}

/// Where the time of a compilation went.
#[derive(Clone, Debug, Default)]
pub struct CompileReport {
    /// Passes on the whole graph, down to `linalg`.
    pub graph: Duration,
    /// All kernels, in time on the clock.
    pub kernels: Duration,
    /// The host function.
    pub host: Duration,
    /// Different kernels.
    pub kernel_count: usize,
    /// How many of them came from the cache.
    pub cached: usize,
    /// Time in passes and in LLVM, summed over the kernels that were compiled.
    pub kernel_passes: Duration,
    /// See `kernel_passes`.
    pub kernel_code: Duration,
    /// What the cache had to say.
    pub remarks: Vec<Remark>,
    /// Warnings and remarks of passes.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why nothing came out.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A pass failed.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// LLVM failed.
    #[error("{kernel}: {error}")]
    Code {
        /// The kernel, or the host function.
        kernel: String,
        /// What LLVM said.
        error: CodeGenError,
    },
    /// Some ops have no form for the target: each with its place.
    #[error("{}", .0.join("\n"))]
    Unsupported(Vec<String>),
    /// The module is not what the compiler takes.
    #[error("{0}")]
    Module(String),
}

/// A kernel on its way.
struct Job {
    name: String,
    symbol: String,
    bytecode: Vec<u8>,
    /// A contraction's loops are unrolled by its schedule.
    contract: bool,
    /// It may multiply with AMX.
    amx: bool,
}

/// Compiles the function of that name.
pub fn compile(module: &Module, function: &str, options: &CompileOptions) -> Result<Compiled, CompileError> {
    let mut report = CompileReport::default();
    let run = RunOptions { skip_verifier: !options.verify, ..Default::default() };
    let start = Instant::now();
    let level = level_of(module.op()).unwrap_or(Level::Graph);
    let ctx = module.op().ctx();
    module.op().set_attr("kiln.level", Attr::string(ctx, level.name()));
    if level > Level::Program {
        let message = format!("a module on level {} no longer says what it takes and gives; graph to program are compiled", level.name());
        return Err(CompileError::Module(message));
    }
    if options.target.chip().is_some() {
        let missing = support::control(module.op());
        if !missing.is_empty() {
            return Err(CompileError::Unsupported(missing));
        }
    }
    if level < Level::Linalg {
        let text = pipeline_text_for(level, Level::Linalg, &options.target).map_err(CompileError::Module)?;
        report.diagnostics.extend(run_pipeline(module, &text, &run, &|_, _, _| ())?.diagnostics);
    }
    let mut level = level.max(Level::Linalg);
    if let Some(chip) = options.target.chip() {
        let missing = support::missing(module.op());
        if !missing.is_empty() {
            return Err(CompileError::Unsupported(missing));
        }
        if level == Level::Linalg {
            // Here and not beside the kernels' code, since the program says how many blocks a launch has.
            level = Level::Scheduled;
            run_pipeline(module, &format!("builtin.module(kiln-gpu-schedule{{chip={}}})", chip.name()), &run, &|_, _, _| ())?;
        }
    }
    let jobs = kernels_of(module, options, level).map_err(CompileError::Module)?;
    report.graph = start.elapsed();

    let kernel_start = Instant::now();
    let all = Kernels { jobs: &jobs, options, level, next: AtomicUsize::new(0), done: AtomicUsize::new(0), made: Mutex::default() };
    let (host, elapsed) = std::thread::scope(|scope| {
        for _ in 0..options.workers.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| all.work());
        }
        // The host function meanwhile, on this thread, since its module lives here.
        let start = Instant::now();
        (host(module, function, options, &run, level), start.elapsed())
    });
    report.host = elapsed;
    let (mut program, object) = host?;
    let tiles = jobs.iter().any(|j| j.amx);
    each(&mut program, &mut |p| p.amx = tiles);
    let made = all.made.into_inner().unwrap_or_else(|e| e.into_inner());
    report.kernels = kernel_start.elapsed();
    report.kernel_count = jobs.len();
    let mut objects: Vec<(String, Vec<u8>)> = object.map(|o| (program.entry.object.clone(), o)).into_iter().collect();
    let mut failure = None;
    for (symbol, outcome) in made {
        match outcome {
            Ok(kernel) => {
                report.cached += usize::from(kernel.cached);
                report.kernel_passes += kernel.passes;
                report.kernel_code += kernel.code;
                report.remarks.extend(kernel.remarks);
                objects.push((symbol, kernel.object));
            }
            Err(e) => {
                failure.get_or_insert(e);
            }
        };
    }
    match failure {
        Some(e) => Err(e),
        None => Ok(Compiled { program, objects, report }),
    }
}

/// Takes the bodies of all kernels out of a module, one job for each different one, and gives each kernel its symbol.
fn kernels_of(module: &Module, options: &CompileOptions, level: Level) -> Result<Vec<Job>, String> {
    let ctx = module.op().ctx();
    let tiles = matches!(&options.target, Target::Host(t) if t.bf16() == "amx");
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    for kernel in blocks(module.op()).into_iter().flat_map(|b| b.ops()).filter(|o| o.attr("kiln.kernel").is_some()) {
        let name = kernel.symbol().unwrap_or_default();
        // One that is only declared is a function of the runtime.
        let Some(func) = crate::host::kernels_of(kernel).first().copied() else { continue };
        func.set_attr("sym_name", Attr::string(ctx, "kernel"));
        let mut sha = Sha256::new();
        // Text holds no locations and no names of values, so equal kernels of different models are one.
        for part in [
            func.print(PrintOptions { alone: true, ..Default::default() }).as_str(),
            &options.target.to_string(),
            &version(),
            options.salt,
            level.name(),
        ] {
            sha.update((part.len() as u64).to_le_bytes());
            sha.update(part);
        }
        let hash: String = sha.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect();
        let symbol = format!("kiln_{hash}");
        let about = kernel.attr("kiln.kernel").and_then(|a| a.entries()).unwrap_or_default();
        let kind = about.iter().find(|(n, _)| n == "kind").and_then(|(_, a)| a.as_string()).unwrap_or_default();
        let mut entries: Vec<(&str, Attr)> = about.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        entries.push(("symbol", Attr::string(ctx, &symbol)));
        // A GPU's launches are described when the function is elsewhere.
        entries
            .extend([GRID, PERSISTENT, THREADS, TENSOR_MAPS, SHARED_BYTES].into_iter().filter_map(|name| Some((name, func.attr(name)?))));
        kernel.set_attr("kiln.kernel", Attr::dictionary(ctx, &entries));
        func.set_attr("sym_name", Attr::string(ctx, &symbol));
        if !jobs.contains_key(&symbol) {
            let own = Module::new(func.loc());
            own.op().set_attr("kiln.kernel", Attr::dictionary(ctx, &[("kind", Attr::string(ctx, &kind))]));
            own.op().set_attr("kiln.level", Attr::string(ctx, level.name()));
            Builder::at_end(ctx, own.body(), func.loc()).clone_op(func, &|v| v)?;
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
        func.erase();
    }
    Ok(jobs.into_values().collect())
}

/// Whether a kernel reduces over two inputs of bf16, which is all that the schedule may give to AMX.
fn sums_bf16(func: Op) -> bool {
    let narrow = |v: &Value| v.ty().element().is_some_and(|t| t.dtype() == Ok(DType::BF16));
    let reduces = |o: &Op| o.attr("iterator_types").is_some_and(|a| a.to_string().contains("reduction"));
    walk(func).iter().any(|o| reduces(o) && o.operands().iter().filter(|v| narrow(v)).count() >= 2)
}

fn host(
    module: &Module,
    function: &str,
    options: &CompileOptions,
    run: &RunOptions,
    level: Level,
) -> Result<(Program, Option<Vec<u8>>), CompileError> {
    let ctx = module.op().ctx();
    // Without bodies nothing is left to do for kernels.
    if level < Level::Program {
        module.op().set_attr("kiln.level", Attr::string(ctx, Level::Tiled.name()));
        run_pipeline(module, &part_text(On::Host, Level::Tiled, Level::Program, &options.target), run, &|_, _, _| ())?;
    }
    let said = |f: Failure| match (f.loc, f.op) {
        (Some(loc), Some(op)) => CompileError::Module(format!("{loc}: '{op}' op {}", f.message)),
        _ => CompileError::Module(f.message),
    };
    let mut program = describe(module.op(), function).map_err(said)?;
    let target = match &options.target {
        Target::Cuda(chip) => {
            let target = p::Target { arch: "cuda".into(), cpu: chip.name().into(), features: String::new() };
            each(&mut program, &mut |p| p.target = target.clone());
            return Ok((program, None));
        }
        Target::Host(target) => target,
    };
    program.target = p::Target { arch: target.arch.clone(), cpu: target.cpu.clone(), features: target.features.clone() };
    run_pipeline(module, &part_text(On::Host, Level::Program, Level::Llvm, &options.target), run, &|_, _, _| ())?;
    // A module without a body is nothing to LLVM, but the translation does not know it.
    for kernel in blocks(module.op()).into_iter().flat_map(|b| b.ops()).filter(|o| o.attr("kiln.kernel").is_some()) {
        kernel.erase();
    }
    let code = |error| CompileError::Code { kernel: entry_symbol(function), error };
    let object = CodeGen::new(target).map_err(code)?.object(module.op(), HOST_PASSES).map_err(code)?;
    Ok((program, Some(object)))
}

/// A compiled kernel.
struct Made {
    object: Vec<u8>,
    cached: bool,
    passes: Duration,
    code: Duration,
    remarks: Vec<Remark>,
}

/// What a thread makes code with: a context, and LLVM where no pass calls it.
type Tools = (Context, Option<CodeGen>);

struct Kernels<'a> {
    jobs: &'a [Job],
    options: &'a CompileOptions<'a>,
    level: Level,
    next: AtomicUsize,
    done: AtomicUsize,
    made: Mutex<Vec<(String, Result<Made, CompileError>)>>,
}

impl Kernels<'_> {
    /// Takes kernels until there are none left.
    fn work(&self) {
        // One context and one code generator a thread, made when the cache does not have everything.
        let mut tools: Option<Tools> = None;
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = self.kernel(job, &mut tools);
            self.made.lock().unwrap_or_else(|e| e.into_inner()).push((job.symbol.clone(), outcome));
            (self.options.progress)(self.done.fetch_add(1, Ordering::Relaxed) + 1, self.jobs.len());
        }
    }

    fn kernel(&self, job: &Job, tools: &mut Option<Tools>) -> Result<Made, CompileError> {
        let mut made = Made { object: vec![], cached: false, passes: Duration::ZERO, code: Duration::ZERO, remarks: vec![] };
        match self.options.cache.map(|c| c.get(&job.symbol)) {
            Some(Ok(Some(object))) => return Ok(Made { object, cached: true, ..made }),
            Some(Err(remark)) => made.remarks.push(remark),
            Some(Ok(None)) | None => {}
        }
        let code = |error| CompileError::Code { kernel: job.name.clone(), error };
        if tools.is_none() {
            let codegen = match &self.options.target {
                Target::Host(target) => Some(CodeGen::new(target).map_err(code)?),
                Target::Cuda(_) => None,
            };
            *tools = Some((Context::new(), codegen));
        }
        let Some((context, codegen)) = tools else { return Err(CompileError::Module("has no context".into())) };
        let start = Instant::now();
        let parsed = Module::parse(context.ctx(), &job.bytecode, &job.name);
        let (module, _) = parsed.map_err(|e| CompileError::Module(format!("kernel {}: {e}", job.name)))?;
        let run = RunOptions { skip_verifier: !self.options.verify, ..Default::default() };
        let part = |from, to| part_text(On::Kernels, from, to, &self.options.target);
        let (first, rest) = (part(self.level, Level::Program), part(Level::Target, Level::Llvm));
        let failed = |e: PassError| match e {
            PassError::Failed { pass, diagnostics, reproducer } => {
                CompileError::Pass(PassError::Failed { pass: format!("{pass} (kernel {})", job.name), diagnostics, reproducer })
            }
            other => CompileError::Pass(other),
        };
        run_pipeline(&module, &first, &run, &|_, _, _| ()).map_err(failed)?;
        module.op().set_attr("kiln.level", Attr::string(context.ctx(), Level::Target.name()));
        run_pipeline(&module, &rest, &run, &|_, _, _| ()).map_err(failed)?;
        made.passes = start.elapsed();
        let start = Instant::now();
        let passes = if job.contract { KERNEL_PASSES } else { UNROLLING_KERNEL_PASSES };
        made.object = match codegen {
            Some(codegen) => codegen.object(module.op(), passes).map_err(code)?,
            // A pass made it.
            None => ptx::ptx(module.op()).map_err(|e| CompileError::Module(format!("kernel {}: {e}", job.name)))?,
        };
        made.code = start.elapsed();
        if let Some(Err(remark)) = self.options.cache.map(|c| c.put(&job.symbol, &made.object)) {
            made.remarks.push(remark);
        }
        Ok(made)
    }
}
