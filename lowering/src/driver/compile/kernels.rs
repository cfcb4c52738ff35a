//! Compiles kernels on worker threads, each from the cache if it is there.
use crate::{
    PassError, PassRun, RunOptions, Target,
    cpu::llvm::codegen::{CodeGen, KERNEL_PASSES, UNROLLING_KERNEL_PASSES},
    driver::{
        compile::{error::CompileError, options::CompileOptions},
        extract,
        jobs::Job,
        pipeline::On,
        reproducer::new_reproducer,
        user_passes::insert_after,
    },
    gpu::ptx,
    part_text, run_pipeline,
};
use kiln_dialects::{ir::*, rules::Level};
use kiln_runtime::cache::Remark;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// A compiled kernel.
pub(super) struct CompiledKernel {
    pub(super) object: Vec<u8>,
    pub(super) cached: bool,
    pub(super) passes: Duration,
    pub(super) code: Duration,
    pub(super) runs: Vec<PassRun>,
    pub(super) remarks: Vec<Remark>,
}

/// What a thread compiles with: a context, and an LLVM code generator where no pass calls LLVM.
type Tools = (Context, Option<CodeGen>);

pub(super) struct Kernels<'a> {
    pub(super) jobs: &'a [Job],
    pub(super) options: &'a CompileOptions<'a>,
    pub(super) level: Level,
    pub(super) next: AtomicUsize,
    pub(super) done: AtomicUsize,
    pub(super) results: Mutex<Vec<(String, Result<CompiledKernel, CompileError>)>>,
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
    pub(super) fn work(&self) {
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
