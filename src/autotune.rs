//! Measuring schedules: each different kernel of a model alone, with the schedule of the model of the machine and with ones near it.
//!
//! A schedule is an attribute of a kernel at `linalg`, so that this takes a model to there, makes a program of each kernel, and compiles and times it with one
//! schedule after the other: first those near the default, then those near the fastest, until none is faster or the time is over. A schedule whose results
//! are not those of the default does not count. Operands are the same in each call, and may lie in a cache.
use crate::{
    Error, Model, Options,
    dialects::{
        ir::*,
        ops::{Launch, OpKind},
        rules::Level,
        value::Tensor,
    },
    lowering::{
        RunOptions, Schedules, Target,
        compile::CompileError,
        host::kernels_of,
        pipeline_text_for, run_pipeline,
        schedules::{key, variants},
    },
    model::{Data, target},
    passes::pass::level_of,
    runtime::Program,
    tolerance,
};
use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

/// Seconds that one schedule is timed for.
const SECONDS: f64 = 0.02;
/// What a schedule must take of another one's time to count as faster.
const FASTER: f64 = 0.98;

/// What came out for a kernel.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The kernel's name.
    pub kernel: String,
    /// Microseconds with the default schedule.
    pub before: f64,
    /// Microseconds with the fastest.
    pub after: f64,
    /// The fastest schedule.
    pub schedule: String,
    /// How many others were tried.
    pub tried: usize,
    /// How many of these could not be compiled or run, or gave other results.
    pub refused: usize,
}

/// Values for the inputs of a program of one kernel.
pub type Inputs<'a> = dyn Fn(&Program) -> Result<Vec<Data>, Error> + 'a;

/// A kernel as a program of its own.
struct Alone<'a> {
    /// The host function's launch of it.
    launch: Op,
    /// The kernel's module.
    kernel: Op,
    options: &'a Options,
    inputs: &'a Inputs<'a>,
}

impl Alone<'_> {
    /// The program's module, at `linalg`.
    fn module(&self, schedule: Option<Attr>) -> Result<Module, String> {
        let c = self.launch.ctx();
        let own = Module::new(self.launch.loc());
        own.op().set_attr("kiln.level", Attr::string(c, Level::Linalg.name()));
        let launch = Launch::of(self.launch).ok_or("is malformed")?;
        let types = |all: &[Value]| all.iter().map(|v| v.ty()).collect::<Vec<_>>();
        let b = Builder::at_end(c, own.body(), self.launch.loc());
        b.function(&self.options.function, &types(&launch.inputs), &types(&self.launch.results()), &mut |b, args| {
            let mut given: Vec<(Value, Value)> = launch.inputs.iter().copied().zip(args).collect();
            for out in &launch.outs {
                given.push((*out, b.generic("tensor.empty", &[], &[out.ty()], &[], &mut [])?.result(0)));
            }
            let copy = b.clone_op(self.launch, &|v| given.iter().find(|(old, _)| *old == v).map_or(v, |(_, new)| *new))?;
            b.ret(&copy.results()).map(drop)
        })?;
        b.clone_op(self.kernel, &|v| v)?;
        if let Some(schedule) = schedule {
            kernels_of(own.op()).iter().for_each(|f| f.set_attr("kiln.schedule", schedule));
        }
        Ok(own)
    }
    /// Microseconds of a call, and its results.
    fn time(&self, schedule: Attr) -> Result<(f64, Vec<Tensor>), Error> {
        let module = self.module(Some(schedule)).map_err(CompileError::Module)?;
        let exe = Model::of_module(&module, Path::new("")).compile(self.options)?;
        let inputs = (self.inputs)(exe.program())?;
        let mut outputs = exe.memory(&inputs)?;
        exe.call_data(&inputs, &mut outputs)?;
        let results = outputs.iter().map(Data::tensor).collect::<Result<_, _>>().map_err(Error::Target)?;
        let (start, mut times) = (Instant::now(), vec![]);
        while times.len() < 3 || (start.elapsed().as_secs_f64() < SECONDS && times.len() < 10_000) {
            times.extend(exe.measure(&inputs, &mut outputs, 20, 5)?);
        }
        times.sort_unstable();
        Ok((times[times.len() / 2].as_secs_f64() * 1e6, results))
    }
    /// The schedule that the model of the machine chooses.
    fn default(&self, target: &Target) -> Result<Attr, Error> {
        let module = self.module(None).map_err(CompileError::Module)?;
        let text = pipeline_text_for(Level::Linalg, Level::Scheduled, target).map_err(CompileError::Module)?;
        run_pipeline(&module, &text, &RunOptions::default(), &|_, _, _| ()).map_err(CompileError::Pass)?;
        let found = kernels_of(module.op()).first().and_then(|f| f.attr("kiln.schedule"));
        Ok(found.ok_or_else(|| CompileError::Module("has a kernel without a schedule".into()))?)
    }

    fn tune(&self, target: &Target, until: Instant) -> Result<Tuned, Error> {
        let c = self.launch.ctx();
        let mut best = self.default(target)?;
        let (before, want) = self.time(best)?;
        let mut made = Tuned {
            kernel: self.kernel.symbol().unwrap_or_default(),
            before,
            after: before,
            schedule: best.to_string(),
            tried: 0,
            refused: 0,
        };
        let mut seen = vec![best.to_string()];
        loop {
            let from = best;
            for candidate in variants(from, c) {
                let text = candidate.to_string();
                if Instant::now() >= until || seen.contains(&text) {
                    continue;
                }
                seen.push(text.clone());
                made.tried += 1;
                let right = |have: &[Tensor]| have.iter().zip(&want).all(|(a, b)| tolerance::compare(a, b).is_ok_and(|c| c.ok));
                match self.time(candidate) {
                    Ok((time, have)) if right(&have) => {
                        if time < FASTER * made.after {
                            (made.after, made.schedule, best) = (time, text, candidate);
                        }
                    }
                    // Not every neighbour is one that the kernel can have; a card that does not answer any more is another matter.
                    Err(Error::Cuda(_) | Error::Call(_)) => {
                        self.time(best)?;
                        made.refused += 1;
                    }
                    _ => made.refused += 1,
                }
            }
            if best.to_string() == from.to_string() {
                return Ok(made);
            }
        }
    }
}

/// Measures the kernels of a model that the table does not have, and adds what is fastest to it. Kernels whose sizes depend on the call are left out. `progress`
/// is told how many of how many kernels are done, and the next one's name. Err: the model is not compiled, or the device fails; what was measured until then
/// is in the table.
pub fn autotune(
    model: &Model,
    options: &Options,
    budget: Duration,
    table: &mut Schedules,
    inputs: &Inputs<'_>,
    progress: &dyn Fn(usize, usize, &str),
) -> Result<Vec<Tuned>, Error> {
    let (until, target) = (Instant::now() + budget, target(options)?);
    let context = Context::new();
    let (module, _) = model.module(&context)?;
    let level = level_of(module.op()).unwrap_or(Level::Graph);
    let text = pipeline_text_for(level, Level::Linalg, &target).map_err(CompileError::Module)?;
    run_pipeline(&module, &text, &RunOptions { skip_verifier: !options.verify, ..Default::default() }, &|_, _, _| ())
        .map_err(CompileError::Pass)?;

    let launches: Vec<Op> = walk(module.op()).into_iter().filter(|o| o.kind() == Some(OpKind::Launch)).collect();
    let mut all: BTreeMap<String, (Op, Op)> = BTreeMap::new();
    for func in kernels_of(module.op()) {
        let Some(kernel) = func.parent() else { continue };
        let known = |v: &Value| v.ty().is_tensor() && v.ty().dims().iter().all(|d| d.known().is_some());
        let launch = launches.iter().copied().find(|o| {
            let same = Launch::of(*o).is_some_and(|l| Some(l.kernel) == kernel.symbol());
            same && o.operands().iter().chain(&o.results()).all(known)
        });
        let key = key(func);
        if let Some(launch) = launch.filter(|_| !table.has(&key, &target)) {
            all.insert(key, (launch, kernel));
        }
    }
    // One kernel is compiled at a time, and programs of kernels are nothing to keep.
    let own = Options { function: "main".into(), schedules: None, ..options.clone() };
    let (mut made, total) = (vec![], all.len());
    for (i, (key, (launch, kernel))) in all.into_iter().enumerate() {
        if Instant::now() >= until {
            break;
        }
        progress(i, total, &kernel.symbol().unwrap_or_default());
        // What is left is shared among the kernels that are left.
        let share = until.saturating_duration_since(Instant::now()) / (total - i) as u32;
        let tuned = Alone { launch, kernel, options: &own, inputs }.tune(&target, Instant::now() + share)?;
        table.insert(&key, &target.to_string(), tuned.after, &tuned.schedule);
        made.push(tuned);
    }
    progress(total, total, "");
    Ok(made)
}
