//! Compiles a module on any level to objects, or to PTX for a GPU: kernels on worker threads, each
//! from the cache if it is there.

use crate::{
    CancellationError, CancellationToken, PassError, PassRun, RunOptions, Schedules, Target,
    cpu::llvm::codegen::{
        CodeGen, CodeGenError, HOST_PASSES, KERNEL_PASSES, UNROLLING_KERNEL_PASSES,
    },
    driver::{
        extract,
        jobs::{Job, kernels_of},
        pipeline::On,
        user_passes::{UserPasses, insert_after, whole_text},
    },
    gpu::{ptx, support},
    part_text,
    program::{
        control::for_each_program, description::read, external_ptx, interface::entry_symbol,
    },
    run_pipeline,
};
use kiln_dialects::{error::Kind, ir::*, rules::Level};
use kiln_passes::pass::level_of;
use kiln_runtime::{
    cache::{Remark, Store},
    program as p,
    program::Program,
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Options of a compilation.
pub struct CompileOptions<'a> {
    /// The target.
    pub target: Target,
    /// Number of compiling threads.
    pub workers: usize,
    /// The persistent object cache.
    pub cache: Option<&'a Store>,
    /// Runs MLIR's verifier after every pass.
    pub verify: bool,
    /// Cancellation token.
    pub cancellation: CancellationToken,
    /// Debugging options.
    pub debug: Debug<'a>,
    /// Autotuned schedules of kernels.
    pub schedules: &'a Schedules,
    /// Identifies the compiler's build in the cache keys.
    pub salt: &'a str,
    /// Progress callback: kernels done, kernels in all.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
    /// Called with the symbol and code of each kernel, by the thread that compiled it.
    pub on_kernel: &'a (dyn Fn(&str, &[u8]) + Sync),
}

/// Debugging options: passes to skip or add, and files to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Debug<'a> {
    /// Flags of passes that are skipped.
    pub disable: &'a [String],
    /// User passes that run in addition to those of the table.
    pub user_passes: &'a [UserPasses],
    /// Folder for reproducers (IR and pipeline) of failing passes.
    pub reproducer: Option<&'a Path>,
    /// Folder for IR dumps: `graph/` after every pass on the whole graph, and in `kernels/` each
    /// kernel as a program of its own and after every pass.
    pub dump: Option<&'a Path>,
}

/// The result of a compilation.
pub struct Compiled {
    /// The program as plain data.
    pub program: Program,
    /// Object code by name, the host function's first; or the PTX of each kernel.
    pub objects: Vec<(String, Vec<u8>)>,
    /// Times, counts, and diagnostics.
    pub report: CompileReport,
}

/// Compile-time report.
#[derive(Clone, Debug, Default)]
pub struct CompileReport {
    /// Time of passes on the whole graph, down to `linalg`.
    pub graph: Duration,
    /// Wall time of all kernels.
    pub kernels: Duration,
    /// Time of the host function.
    pub host: Duration,
    /// Number of distinct kernels.
    pub kernel_count: usize,
    /// How many of them were cache hits.
    pub cached: usize,
    /// Time in passes, summed over the compiled kernels.
    pub kernel_passes: Duration,
    /// Time in LLVM, summed over the compiled kernels.
    pub kernel_code: Duration,
    /// Every pass by flag, in the order of their first runs.
    pub passes: Vec<PassTime>,
    /// Remarks of the cache.
    pub remarks: Vec<Remark>,
    /// Warnings and remarks of passes.
    pub diagnostics: Vec<Diagnostic>,
}

/// Total time of one pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassTime {
    /// The pass's flag.
    pub pass: String,
    /// Number of runs.
    pub runs: usize,
    /// Time of all runs; runs on kernels are summed over threads.
    pub time: Duration,
}

impl CompileReport {
    fn add(&mut self, passes: &[PassRun]) {
        for run in passes.iter().filter(|r| !r.skipped) {
            let at = self.passes.iter().position(|p| p.pass == run.pass).unwrap_or_else(|| {
                self.passes.push(PassTime { pass: run.pass.clone(), ..Default::default() });
                self.passes.len() - 1
            });
            self.passes[at].runs += 1;
            self.passes[at].time += Duration::from_secs_f64(run.seconds);
        }
    }
}

/// An empty pipeline.
const EMPTY_PIPELINE: &str = "builtin.module()";

/// Why a compilation failed.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A pass failed.
    #[error(transparent)]
    Pass(PassError),
    /// It was cancelled, or its time budget was used up.
    #[error(transparent)]
    Cancelled(#[from] CancellationError),
    /// LLVM code generation failed.
    #[error("{kernel}: {error}")]
    Code {
        /// The kernel, or the host function.
        kernel: String,
        /// The code generator's error.
        error: CodeGenError,
    },
    /// The target does not support some ops: one sentence with a source location for each.
    #[error("{}", .0.join("\n"))]
    Unsupported(Vec<String>),
    /// The module is invalid as compiler input.
    #[error("{0}")]
    Module(String),
}

impl CompileError {
    /// Whether the module is valid, but has no form for the target.
    pub fn is_unsupported(&self) -> bool {
        match self {
            CompileError::Unsupported(_) => true,
            CompileError::Pass(e) => e.is_unsupported(),
            _ => false,
        }
    }
}

impl From<Error> for CompileError {
    fn from(e: Error) -> CompileError {
        match e.kind {
            Kind::Unsupported => CompileError::Unsupported(vec![e.to_string()]),
            Kind::Invalid | Kind::Internal => CompileError::Module(e.to_string()),
        }
    }
}

impl From<PassError> for CompileError {
    fn from(e: PassError) -> CompileError {
        match e {
            PassError::Cancelled(why) => CompileError::Cancelled(why),
            e => CompileError::Pass(e),
        }
    }
}

/// A unique path in a folder, for a reproducer of a failing pass.
pub fn new_reproducer(folder: &Path) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("kiln-reproducer-{}-{n}.mlir", std::process::id()))
}

/// Compiles the function of that name.
pub fn compile(
    module: &Module,
    function: &str,
    options: &CompileOptions,
) -> Result<Compiled, CompileError> {
    let mut report = CompileReport::default();
    let run = RunOptions {
        skip_verifier: !options.verify,
        disable: options.debug.disable.to_vec(),
        cancellation: options.cancellation.clone(),
        reproducer: options.debug.reproducer.map(new_reproducer),
        ..Default::default()
    };
    let dumped =
        |part: &str| RunOptions { dump: options.debug.dump.map(|d| d.join(part)), ..run.clone() };
    let start = Instant::now();
    let level = level_of(module.op()).unwrap_or(Level::Graph);
    let ctx = module.op().ctx();
    module.op().set_attr("kiln.level", Attr::string(ctx, level.name()));
    let refused = external_ptx::refused(module.op(), &options.target);
    if !refused.is_empty() {
        return Err(CompileError::Unsupported(refused));
    }
    let user_passes = options.debug.user_passes;
    let text = whole_text(level, Level::Linalg.max(level), &options.target, user_passes)?;
    // A module that starts on a lower level may still have user passes to run.
    if level < Level::Linalg || text != EMPTY_PIPELINE {
        let done = run_pipeline(module, &text, &dumped("graph"), &|_, _, _| ())?;
        report.add(&done.passes);
        report.diagnostics.extend(done.diagnostics);
    }
    let mut level = level.max(Level::Linalg);
    if level == Level::Linalg {
        options.schedules.apply(module.op(), &options.target)?;
    }
    if options.target.chip().is_some() {
        let missing = support::missing(module.op());
        if !missing.is_empty() {
            return Err(CompileError::Unsupported(missing));
        }
        if level == Level::Linalg {
            // Scheduled here and not with the kernels' code, since the program states the number of
            // CTAs per launch.
            level = Level::Scheduled;
            let text = insert_after(
                &part_text(On::Kernels, Level::Linalg, level, &options.target),
                user_passes,
            );
            report.add(&run_pipeline(module, &text, &dumped("schedule"), &|_, _, _| ())?.passes);
        }
    }
    if let Some(dir) = options.debug.dump {
        extract::write(module, &dir.join("kernels"))?;
    }
    let jobs = kernels_of(module, options, level)?;
    let given = external_ptx::objects(module.op());
    let compiled = ptx::objects(module.op())?;
    report.graph = start.elapsed();

    let kernel_start = Instant::now();
    let all = Kernels {
        jobs: &jobs,
        options,
        level,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        results: Mutex::default(),
    };
    let (host, elapsed) = std::thread::scope(|scope| {
        for _ in 0..options.workers.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| all.work());
        }
        // The host function compiles meanwhile, on this thread, which owns its module.
        let start = Instant::now();
        (host(module, function, options, &dumped("host"), level), start.elapsed())
    });
    report.host = elapsed;
    let Host { mut program, object, passes } = host?;
    report.add(&passes);
    let tiles = jobs.iter().any(|j| j.amx);
    for_each_program(&mut program, &mut |p| p.amx = tiles);
    let made = all.results.into_inner().unwrap_or_else(|e| e.into_inner());
    report.kernels = kernel_start.elapsed();
    report.kernel_count = jobs.len();
    let mut objects: Vec<(String, Vec<u8>)> =
        object.map(|o| (program.entry.object.clone(), o)).into_iter().collect();
    objects.extend(given);
    objects.extend(compiled);
    let mut failure = None;
    for (symbol, outcome) in made {
        match outcome {
            Ok(kernel) => {
                report.cached += usize::from(kernel.cached);
                report.kernel_passes += kernel.passes;
                report.kernel_code += kernel.code;
                report.add(&kernel.runs);
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

/// The compiled host function.
struct Host {
    program: Program,
    object: Option<Vec<u8>>,
    passes: Vec<PassRun>,
}

fn host(
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

/// A compiled kernel.
struct CompiledKernel {
    object: Vec<u8>,
    cached: bool,
    passes: Duration,
    code: Duration,
    runs: Vec<PassRun>,
    remarks: Vec<Remark>,
}

/// What a thread compiles with: a context, and an LLVM code generator where no pass calls LLVM.
type Tools = (Context, Option<CodeGen>);

struct Kernels<'a> {
    jobs: &'a [Job],
    options: &'a CompileOptions<'a>,
    level: Level,
    next: AtomicUsize,
    done: AtomicUsize,
    results: Mutex<Vec<(String, Result<CompiledKernel, CompileError>)>>,
}

impl Kernels<'_> {
    /// Reports code from the cache.
    fn report_cached_code(&self, job: &Job, object: &[u8]) {
        match &self.options.target {
            Target::Host(_) => tracing::info!(
                target: "kiln::output_code", kernel = job.name,
                "{} bytes of machine code, compiled before; cache_dir=off shows the llvm dialect that it is made of", object.len()
            ),
            Target::Cuda { .. } => {
                tracing::info!(target: "kiln::output_code", kernel = job.name, "\n{}", String::from_utf8_lossy(object))
            }
        }
    }
    /// Compiles kernels until none are left.
    fn work(&self) {
        // One context and one code generator per thread, created at the first cache miss.
        let mut tools: Option<Tools> = None;
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = self.kernel(job, &mut tools);
            if let Ok(made) = &outcome {
                (self.options.on_kernel)(&job.symbol, &made.object);
            }
            self.results
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .push((job.symbol.clone(), outcome));
            (self.options.progress)(self.done.fetch_add(1, Ordering::Relaxed) + 1, self.jobs.len());
        }
    }

    fn kernel(&self, job: &Job, tools: &mut Option<Tools>) -> Result<CompiledKernel, CompileError> {
        let mut made = CompiledKernel {
            object: vec![],
            cached: false,
            passes: Duration::ZERO,
            code: Duration::ZERO,
            runs: vec![],
            remarks: vec![],
        };
        self.options.cancellation.check()?;
        // A dump needs the IR of every kernel, so it skips the cache.
        match self
            .options
            .cache
            .filter(|_| self.options.debug.dump.is_none())
            .map(|c| c.get(&job.key))
        {
            Some(Ok(Some(object))) => {
                tracing::debug!(target: "kiln::cache", kernel = job.name, key = job.key, "hit");
                self.report_cached_code(job, &object);
                return Ok(CompiledKernel { object, cached: true, ..made });
            }
            Some(Err(remark)) => made.remarks.push(remark),
            Some(Ok(None)) => {
                tracing::debug!(target: "kiln::cache", kernel = job.name, key = job.key, "miss")
            }
            None => {}
        }
        let code = |error| CompileError::Code { kernel: job.name.clone(), error };
        if tools.is_none() {
            let codegen = match &self.options.target {
                Target::Host(target) => Some(CodeGen::new(target).map_err(code)?),
                Target::Cuda { .. } => None,
            };
            *tools = Some((Context::new(), codegen));
        }
        let Some((context, codegen)) = tools else {
            return Err(CompileError::Module("has no context".into()));
        };
        let start = Instant::now();
        let parsed = Module::parse(context.ctx(), &job.bytecode, &job.name);
        let (module, _) =
            parsed.map_err(|e| CompileError::Module(format!("kernel {}: {e}", job.name)))?;
        let dump =
            self.options.debug.dump.map(|d| d.join("kernels").join(extract::file_name(&job.name)));
        let run = RunOptions {
            skip_verifier: !self.options.verify,
            disable: self.options.debug.disable.to_vec(),
            dump,
            cancellation: self.options.cancellation.clone(),
            reproducer: self.options.debug.reproducer.map(new_reproducer),
            ..Default::default()
        };
        let part = |from, to| {
            insert_after(
                &part_text(On::Kernels, from, to, &self.options.target),
                self.options.debug.user_passes,
            )
        };
        let code_level = self.level.max(Level::Target);
        let (first, rest) = (part(self.level, Level::Program), part(code_level, Level::Llvm));
        let failed = |e: PassError| match e {
            PassError::Failed { pass, diagnostics, reproducer } => {
                CompileError::Pass(PassError::Failed {
                    pass: format!("{pass} (kernel {})", job.name),
                    diagnostics,
                    reproducer,
                })
            }
            other => other.into(),
        };
        made.runs
            .extend(run_pipeline(&module, &first, &run, &|_, _, _| ()).map_err(failed)?.passes);
        module.op().set_attr("kiln.level", Attr::string(context.ctx(), code_level.name()));
        made.runs.extend(run_pipeline(&module, &rest, &run, &|_, _, _| ()).map_err(failed)?.passes);
        made.passes = start.elapsed();
        let start = Instant::now();
        let passes = if job.contract { KERNEL_PASSES } else { UNROLLING_KERNEL_PASSES };
        made.object = match codegen {
            Some(codegen) => codegen.object(module.op(), passes).map_err(code)?,
            // A pass generated the PTX.
            None => ptx::ptx(module.op())
                .map_err(|e| CompileError::Module(format!("kernel {}: {e}", job.name)))?,
        };
        made.code = start.elapsed();
        if tracing::enabled!(target: "kiln::output_code", tracing::Level::INFO) {
            // Object code is not text, so log the module that it was generated from.
            let text = match &self.options.target {
                Target::Host(_) => module.print(PrintOptions::default()),
                Target::Cuda { .. } => String::from_utf8_lossy(&made.object).into_owned(),
            };
            tracing::info!(target: "kiln::output_code", kernel = job.name, "\n{text}");
        }
        if let Some(Err(remark)) = self.options.cache.map(|c| c.put(&job.key, &made.object)) {
            made.remarks.push(remark);
        }
        Ok(made)
    }
}
