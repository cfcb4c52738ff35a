//! Compiles a module on any level to objects, or to PTX for a GPU: kernels on worker threads, each
//! from the cache if it is there.
mod error;
mod host;
mod kernels;
mod options;
mod report;

pub use error::CompileError;
pub use options::{CompileOptions, Debug};
pub use report::{CompileReport, PassTime};

use crate::{
    RunOptions,
    driver::{
        compile::{
            host::{Host, host},
            kernels::Kernels,
        },
        extract,
        jobs::kernels_of,
        pipeline::On,
        reproducer::new_reproducer,
        user_passes::{insert_after, whole_text},
    },
    gpu::{ptx, support},
    part_text,
    program::{control::for_each_program, external_ptx},
    run_pipeline,
};
use kiln_dialects::{ir::*, rules::Level};
use kiln_passes::pass::level_of;
use kiln_runtime::program::Program;
use std::{
    sync::{Mutex, atomic::AtomicUsize},
    time::Instant,
};

/// The result of a compilation.
pub struct Compiled {
    /// The program as plain data.
    pub program: Program,
    /// Object code by name, the host function's first; or the PTX of each kernel.
    pub objects: Vec<(String, Vec<u8>)>,
    /// Times, counts, and diagnostics.
    pub report: CompileReport,
}

/// An empty pipeline.
const EMPTY_PIPELINE: &str = "builtin.module()";

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
