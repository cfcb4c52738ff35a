//! From a module on any level down to objects, or PTX for a GPU: kernels on worker threads, each
//! from the cache if it is there.

pub use super::options::{CompileError, CompileOptions, Debug};

use crate::{
    PassError, PassRun, RunOptions, Target,
    cpu::llvm::codegen::{CodeGen, HOST_PASSES, KERNEL_PASSES, UNROLLING_KERNEL_PASSES},
    driver::{
        extract,
        jobs::{Job, kernels_of},
        pipeline::On,
        user_passes::{behind, whole_text},
    },
    gpu::{ptx, support},
    part_text,
    program::{
        control::each,
        external_ptx,
        interface::{describe, entry_symbol},
    },
    run_pipeline,
};
use kiln_dialects::{ir::*, rules::Level};
use kiln_passes::{Failure, pass::level_of};
use kiln_runtime::{cache::Remark, program as p, program::Program};
use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

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
    /// Every pass by flag, in the order in which each ran first.
    pub passes: Vec<PassTime>,
    /// What the cache had to say.
    pub remarks: Vec<Remark>,
    /// Warnings and remarks of passes.
    pub diagnostics: Vec<Diagnostic>,
}

/// What the runs of one pass took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassTime {
    /// The flag.
    pub pass: String,
    /// How often it ran.
    pub runs: usize,
    /// All runs together; those on kernels are summed over threads.
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

/// A pipeline without passes.
const NOTHING: &str = "builtin.module()";

/// A new file for IR and pipeline of a pass that fails.
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
        stop: options.stop.clone(),
        reproducer: options.debug.reproducer.map(new_reproducer),
        ..Default::default()
    };
    let dumped =
        |part: &str| RunOptions { dump: options.debug.dump.map(|d| d.join(part)), ..run.clone() };
    let start = Instant::now();
    let level = level_of(module.op()).unwrap_or(Level::Graph);
    let ctx = module.op().ctx();
    module.op().set_attr("kiln.level", Attr::string(ctx, level.name()));
    if level > Level::Program {
        let message = format!(
            "a module on level {} no longer says what it takes and gives; graph to program are compiled",
            level.name()
        );
        return Err(CompileError::Module(message));
    }
    let refused = external_ptx::refused(module.op(), &options.target);
    if !refused.is_empty() {
        return Err(CompileError::Unsupported(refused));
    }
    let own = options.debug.own;
    let text = whole_text(level, Level::Linalg.max(level), &options.target, own)
        .map_err(CompileError::Module)?;
    // Of a module that comes on a level below there may be passes of one's own.
    if level < Level::Linalg || text != NOTHING {
        let done = run_pipeline(module, &text, &dumped("graph"), &|_, _, _| ())?;
        report.add(&done.passes);
        report.diagnostics.extend(done.diagnostics);
    }
    let mut level = level.max(Level::Linalg);
    if level == Level::Linalg {
        options.schedules.apply(module.op(), &options.target).map_err(CompileError::Module)?;
    }
    if options.target.chip().is_some() {
        let missing = support::missing(module.op());
        if !missing.is_empty() {
            return Err(CompileError::Unsupported(missing));
        }
        if level == Level::Linalg {
            // Here and not beside the kernels' code, since the program says how many blocks a
            // launch has.
            level = Level::Scheduled;
            let text = behind(&part_text(On::Kernels, Level::Linalg, level, &options.target), own);
            report.add(&run_pipeline(module, &text, &dumped("schedule"), &|_, _, _| ())?.passes);
        }
    }
    if let Some(dir) = options.debug.dump {
        extract::write(module, &dir.join("kernels"))?;
    }
    let jobs = kernels_of(module, options, level).map_err(CompileError::Module)?;
    let given = external_ptx::objects(module.op());
    report.graph = start.elapsed();

    let kernel_start = Instant::now();
    let all = Kernels {
        jobs: &jobs,
        options,
        level,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        made: Mutex::default(),
    };
    let (host, elapsed) = std::thread::scope(|scope| {
        for _ in 0..options.workers.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| all.work());
        }
        // The host function meanwhile, on this thread, since its module lives here.
        let start = Instant::now();
        (host(module, function, options, &dumped("host"), level), start.elapsed())
    });
    report.host = elapsed;
    let Host { mut program, object, passes } = host?;
    report.add(&passes);
    let tiles = jobs.iter().any(|j| j.amx);
    each(&mut program, &mut |p| p.amx = tiles);
    let made = all.made.into_inner().unwrap_or_else(|e| e.into_inner());
    report.kernels = kernel_start.elapsed();
    report.kernel_count = jobs.len();
    let mut objects: Vec<(String, Vec<u8>)> =
        object.map(|o| (program.entry.object.clone(), o)).into_iter().collect();
    objects.extend(given);
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

/// The host function's part.
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
    let host_text =
        |from, to| behind(&part_text(On::Host, from, to, &options.target), options.debug.own);
    let mut passes = vec![];
    // Without bodies nothing is left to do for kernels.
    if level < Level::Program {
        module.op().set_attr("kiln.level", Attr::string(ctx, Level::Tiled.name()));
        passes.extend(
            run_pipeline(module, &host_text(Level::Tiled, Level::Program), run, &|_, _, _| ())?
                .passes,
        );
    }
    let said = |f: Failure| match (f.loc, f.op) {
        (Some(loc), Some(op)) => CompileError::Module(format!("{loc}: '{op}' op {}", f.message)),
        _ => CompileError::Module(f.message),
    };
    let mut program = describe(module.op(), function).map_err(said)?;
    let target = match &options.target {
        Target::Cuda { chip, .. } => {
            let target =
                p::Target { arch: "cuda".into(), cpu: chip.name().into(), features: String::new() };
            each(&mut program, &mut |p| p.target = target.clone());
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
        run_pipeline(module, &host_text(Level::Program, Level::Llvm), run, &|_, _, _| ())?.passes,
    );
    // A module without a body is nothing to LLVM, but the translation does not know it.
    for kernel in blocks(module.op())
        .into_iter()
        .flat_map(|b| b.ops())
        .filter(|o| o.attr("kiln.kernel").is_some())
    {
        kernel.erase();
    }
    let code = |error| CompileError::Code { kernel: entry_symbol(function), error };
    // What a short one costs is a part of what a small program's call does: half a microsecond of
    // four.
    let generator =
        if walk(module.op()).len() > LONG { CodeGen::quick(target) } else { CodeGen::new(target) };
    let object = generator.map_err(code)?.object(module.op(), HOST_PASSES).map_err(code)?;
    Ok(Host { program, object: Some(object), passes })
}

/// Ops of a host function, some twenty launches, from which on its code is made quickly and not
/// made fast.
const LONG: usize = 2000;

/// A compiled kernel.
struct Made {
    object: Vec<u8>,
    cached: bool,
    passes: Duration,
    code: Duration,
    runs: Vec<PassRun>,
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
    /// Tells of code that the cache had.
    fn kept_code(&self, job: &Job, object: &[u8]) {
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
    /// Takes kernels until there are none left.
    fn work(&self) {
        // One context and one code generator a thread, made when the cache does not have
        // everything.
        let mut tools: Option<Tools> = None;
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = self.kernel(job, &mut tools);
            if let Ok(made) = &outcome {
                (self.options.made)(&job.symbol, &made.object);
            }
            self.made.lock().unwrap_or_else(|e| e.into_inner()).push((job.symbol.clone(), outcome));
            (self.options.progress)(self.done.fetch_add(1, Ordering::Relaxed) + 1, self.jobs.len());
        }
    }

    fn kernel(&self, job: &Job, tools: &mut Option<Tools>) -> Result<Made, CompileError> {
        let mut made = Made {
            object: vec![],
            cached: false,
            passes: Duration::ZERO,
            code: Duration::ZERO,
            runs: vec![],
            remarks: vec![],
        };
        self.options.stop.check()?;
        // A dump has the IR of every kernel.
        match self
            .options
            .cache
            .filter(|_| self.options.debug.dump.is_none())
            .map(|c| c.get(&job.symbol))
        {
            Some(Ok(Some(object))) => {
                tracing::debug!(target: "kiln::cache", kernel = job.name, key = job.symbol, "hit");
                self.kept_code(job, &object);
                return Ok(Made { object, cached: true, ..made });
            }
            Some(Err(remark)) => made.remarks.push(remark),
            Some(Ok(None)) => {
                tracing::debug!(target: "kiln::cache", kernel = job.name, key = job.symbol, "miss")
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
            stop: self.options.stop.clone(),
            reproducer: self.options.debug.reproducer.map(new_reproducer),
            ..Default::default()
        };
        let part = |from, to| {
            behind(&part_text(On::Kernels, from, to, &self.options.target), self.options.debug.own)
        };
        let (first, rest) = (part(self.level, Level::Program), part(Level::Target, Level::Llvm));
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
        module.op().set_attr("kiln.level", Attr::string(context.ctx(), Level::Target.name()));
        made.runs.extend(run_pipeline(&module, &rest, &run, &|_, _, _| ()).map_err(failed)?.passes);
        made.passes = start.elapsed();
        let start = Instant::now();
        let passes = if job.contract { KERNEL_PASSES } else { UNROLLING_KERNEL_PASSES };
        made.object = match codegen {
            Some(codegen) => codegen.object(module.op(), passes).map_err(code)?,
            // A pass made it.
            None => ptx::ptx(module.op())
                .map_err(|e| CompileError::Module(format!("kernel {}: {e}", job.name)))?,
        };
        made.code = start.elapsed();
        if tracing::enabled!(target: "kiln::output_code", tracing::Level::INFO) {
            // Machine code is no text; the module that it was made of is.
            let text = match &self.options.target {
                Target::Host(_) => module.print(PrintOptions::default()),
                Target::Cuda { .. } => String::from_utf8_lossy(&made.object).into_owned(),
            };
            tracing::info!(target: "kiln::output_code", kernel = job.name, "\n{text}");
        }
        if let Some(Err(remark)) = self.options.cache.map(|c| c.put(&job.symbol, &made.object)) {
            made.remarks.push(remark);
        }
        Ok(made)
    }
}
