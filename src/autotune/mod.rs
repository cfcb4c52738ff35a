//! Autotuning: times each distinct kernel of a model in isolation, with the schedule of the cost
//! model and with neighbouring schedules.
//!
//! A schedule is an attribute of a kernel at `linalg`. Autotuning lowers the model to that level
//! and makes a standalone program of each kernel. A local search starts at the default schedule and
//! moves to faster neighbours until none is faster or the time budget ends. A candidate whose
//! results differ from the default's is discarded. Operands are the same in each call, so they may
//! stay in cache.
//!
//! `kiln tune` writes a table of its own; compilation with [`Options::max_autotune`] updates the
//! persistent one.
pub mod split_k;
mod standalone;
mod store;

pub use store::{MAX_TABLE, ScheduleStore, autotuned};

use crate::{
    Error, Model, Options,
    dialects::{
        ir::*,
        ops::{Global, Launch, OpKind},
        rules::Level,
        value::Tensor,
    },
    lowering::{
        CancellationToken, RunOptions, Schedules, Target,
        analysis::kernels_of,
        driver::{
            compile::CompileError,
            schedules::{by_library, candidates, key},
            user_passes::whole_text,
        },
        run_pipeline,
    },
    model::{OwnedTensor, target},
    passes::pass::level_of,
    runtime::{DeviceId, Program, cuda::libraries::present},
    tolerance,
};
use standalone::{StandaloneKernel, Timed};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A candidate must take at most this fraction of the best time to replace it.
const ACCEPT_RATIO: f64 = 0.98;

/// Serialises measurements within the process.
static TIMING: Mutex<()> = Mutex::new(());

/// Holds the measurement lock until dropped.
fn lock_measurements() -> MutexGuard<'static, ()> {
    TIMING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Autotuning result of one kernel.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The kernel's name.
    pub kernel: String,
    /// Time with the default schedule, in microseconds.
    pub before: f64,
    /// Time with the best schedule, in microseconds.
    pub after: f64,
    /// The best schedule.
    pub schedule: String,
    /// A vendor library that also computes the kernel, and its time in microseconds.
    pub library: Option<(&'static str, f64)>,
    /// Number of candidates tried.
    pub tried: usize,
    /// Number of candidates that failed to compile or run, or gave other results.
    pub refused: usize,
}

/// Provides the inputs of a single-kernel program.
pub type Inputs<'a> = dyn Fn(&Program) -> Result<Vec<OwnedTensor>, Error> + 'a;
/// Progress callback: kernels done, kernels in total, name of the next kernel.
pub type Progress<'a> = dyn Fn(usize, usize, &str) + 'a;

/// Measurement settings.
pub struct MeasureOptions<'a> {
    /// Deadline.
    pub deadline: Instant,
    /// Cancellation token, as for compilations.
    pub cancellation: CancellationToken,
    /// Provides the inputs.
    pub inputs: &'a Inputs<'a>,
    /// Progress callback.
    pub progress: &'a Progress<'a>,
}

/// Err: why code for this target cannot be timed on this machine.
pub fn measurable(options: &Options, target: &Target) -> Result<(), Error> {
    match (target, options.device) {
        (Target::Host(_), DeviceId::Host) | (Target::Cuda { .. }, DeviceId::Cuda(_)) => Ok(()),
        (Target::Cuda { .. }, DeviceId::Host) => Err(Error::Target(format!(
            "nothing is measured: the program is for {target}, and no GPU is named as the device"
        ))),
        (Target::Host(_), DeviceId::Cuda(_)) => Err(Error::Target(format!(
            "nothing is measured: the program is for {target}, the device is a GPU"
        ))),
    }
}

/// A model's kernels at `linalg`.
pub struct Kernels {
    /// By key; `None` if not measurable: dynamic sizes, or launched only by initialisers.
    all: BTreeMap<String, Option<StandaloneKernel>>,
    _module: Module,
    // Dropped last: the modules live in it.
    _context: Context,
}

/// Initialiser functions, which run once at load time; globals refer to them.
fn initialisers(module: Op) -> Vec<String> {
    let made = |o: Op| Some(Global::of(o)?.source?.split_once('#')?.0.to_string());
    walk(module).into_iter().filter_map(made).collect()
}

impl Kernels {
    /// Lowers a model to `linalg`, with the split-K factors of the table.
    pub fn of(
        model: &Model,
        options: &Options,
        target: &Target,
        table: &Schedules,
    ) -> Result<Kernels, Error> {
        let context = Context::new();
        let (module, _) = model.module_for(&context, options)?;
        split_k::attach_split_k(&module, table, target);
        let level = level_of(module.op()).unwrap_or(Level::Graph);
        let run = RunOptions {
            skip_verifier: !options.verify,
            disable: options.disable.clone(),
            cancellation: options.cancellation.clone(),
            ..Default::default()
        };
        if level < Level::Linalg || !options.passes.is_empty() {
            let text = whole_text(level, Level::Linalg.max(level), target, &options.passes)?;
            run_pipeline(&module, &text, &run, &|_, _, _| ()).map_err(CompileError::from)?;
        }
        let initialisers = initialisers(module.op());
        let within =
            |o: &Op| o.parent().and_then(|f| f.symbol()).is_some_and(|f| initialisers.contains(&f));
        let launches: Vec<Op> = walk(module.op())
            .into_iter()
            .filter(|o| o.kind() == Some(OpKind::Launch) && !within(o))
            .collect();
        let known =
            |v: &Value| v.ty().is_tensor() && v.ty().dims().iter().all(|d| d.known().is_some());
        let mut all: BTreeMap<String, Option<StandaloneKernel>> = BTreeMap::new();
        for func in
            kernels_of(module.op()).into_iter().filter(|f| f.attr("kiln.schedule").is_none())
        {
            let Some(kernel) = func.parent() else { continue };
            let launch = launches.iter().copied().find(|o| {
                let same = Launch::of(*o).is_some_and(|l| Some(l.kernel) == kernel.symbol());
                same && o.operands().iter().chain(&o.results()).all(known)
            });
            let standalone = launch.map(|launch| StandaloneKernel { launch, kernel });
            let place = all.entry(key(func)).or_default();
            *place = place.or(standalone);
        }
        Ok(Kernels { all, _module: module, _context: context })
    }
    /// The keys, each with whether its kernel can be measured.
    pub fn keys(&self) -> impl Iterator<Item = (&str, bool)> {
        self.all.iter().map(|(k, a)| (k.as_str(), a.is_some()))
    }

    /// Measures the kernels that the table lacks, under the measurement lock, and adds the best
    /// schedules to it. Err: the device failed, or autotuning was cancelled; results until then are
    /// in the table.
    pub fn measure(
        &self,
        options: &Options,
        target: &Target,
        settings: &MeasureOptions<'_>,
        table: &mut Schedules,
    ) -> Result<Vec<Tuned>, Error> {
        let todo: Vec<(&String, &StandaloneKernel)> = self
            .all
            .iter()
            .filter_map(|(k, a)| Some((k, a.as_ref()?)))
            .filter(|(k, _)| !table.has(k, target))
            .collect();
        let (mut made, total) = (vec![], todo.len());
        if total == 0 {
            return Ok(made);
        }
        let open = self.all.values().filter(|a| a.is_none()).count();
        tracing::info!(target: "kiln::autotune", "{total} kernels to measure for {target} in {:.1} s; {open} of open sizes, or that run once, are not", settings.deadline.saturating_duration_since(Instant::now()).as_secs_f64());
        let own = options.for_single_kernel();
        for (i, (key, standalone)) in todo.into_iter().enumerate() {
            settings.cancellation.check().map_err(CompileError::from)?;
            if Instant::now() >= settings.deadline {
                tracing::info!(target: "kiln::autotune", "the time is over with {} of {total} kernels measured", i);
                break;
            }
            (settings.progress)(i, total, &standalone.name());
            // The remaining time is shared by the remaining kernels.
            let share =
                settings.deadline.saturating_duration_since(Instant::now()) / (total - i) as u32;
            match tune(standalone, &own, target, settings, Instant::now() + share) {
                Ok(tuned) => {
                    table.insert(key, &target.to_string(), tuned.after, &tuned.schedule);
                    made.push(tuned);
                }
                Err(
                    e @ (Error::Cuda(_)
                    | Error::Call(_)
                    | Error::Compile(CompileError::Cancelled(_))),
                ) => return Err(e),
                // Other errors concern this kernel only.
                Err(e) => {
                    tracing::info!(target: "kiln::autotune", "{}: not measured: {e}", standalone.name())
                }
            }
        }
        (settings.progress)(made.len(), total, "");
        Ok(made)
    }
}

/// Autotunes one kernel.
fn tune(
    standalone: &StandaloneKernel,
    options: &Options,
    target: &Target,
    settings: &MeasureOptions<'_>,
    deadline: Instant,
) -> Result<Tuned, Error> {
    let kernel = standalone.name();
    let mut best = standalone.default(options, target)?;
    let mut fastest = standalone.time(best, options, settings)?;
    let want = fastest.results.clone();
    let before = fastest.time;
    tracing::info!(target: "kiln::autotune", "{kernel}: {before:.2} us, the default, {best}");
    let mut made = Tuned {
        kernel,
        before,
        after: before,
        schedule: best.to_string(),
        library: None,
        tried: 0,
        refused: 0,
    };
    let mut seen = vec![best.to_string()];
    loop {
        let from = best;
        let near = candidates(standalone.launch, from, target);
        let near = near.map_err(|f| CompileError::Module(f.message))?;
        for candidate in near {
            let text = candidate.to_string();
            if Instant::now() >= deadline
                || made.tried >= options.autotune_candidates
                || seen.contains(&text)
            {
                continue;
            }
            settings.cancellation.check().map_err(CompileError::from)?;
            seen.push(text.clone());
            made.tried += 1;
            let kernel = &made.kernel;
            match classify(standalone.time(candidate, options, settings), &want) {
                Ok(mut timed) => {
                    tracing::info!(target: "kiln::autotune", "{kernel}: {:.2} us, {text}", timed.time);
                    if faster(&mut timed, &mut fastest)? {
                        (made.after, made.schedule, best, fastest) =
                            (timed.time, text, candidate, timed);
                    }
                }
                // Not every neighbour is a valid schedule, but a device failure is fatal.
                Err((why, failed)) => {
                    tracing::info!(target: "kiln::autotune", "{kernel}: refused, {text}: {why}");
                    made.refused += 1;
                    if failed {
                        fastest.remeasure()?;
                    }
                }
            }
        }
        if best.to_string() == from.to_string() {
            break;
        }
    }
    // Library calls are tried with the best schedule, which is the fallback without the library.
    let calls = by_library(best, standalone.launch.ctx())
        .into_iter()
        .filter(|(l, _)| matches!(target, Target::Cuda { .. }) && present(l));
    for (library, candidate) in calls {
        let timed = classify(standalone.time(candidate, options, settings), &want);
        match timed.and_then(|t| if t.uses_library() { Ok(t) } else { Err((t.remarks(), false)) }) {
            Ok(mut timed) => {
                made.tried += 1;
                tracing::info!(target: "kiln::autotune", "{}: {:.2} us, {candidate}", made.kernel, timed.time);
                made.library = Some((library, timed.time));
                if faster(&mut timed, &mut fastest)? {
                    (made.after, made.schedule, fastest) =
                        (timed.time, candidate.to_string(), timed);
                }
            }
            Err((why, _)) => {
                tracing::info!(target: "kiln::autotune", "{}: no call of {library}: {why}", made.kernel)
            }
        }
    }
    tracing::info!(
        target: "kiln::autotune", "{}: {:.2} us of {:.2}, {} tried, {} refused: {}",
        made.kernel, made.after, made.before, made.tried, made.refused, made.schedule
    );
    Ok(made)
}

/// Classifies a candidate. Err: why it is discarded, and whether the device may be at fault.
fn classify(timed: Result<Timed, Error>, want: &[Tensor]) -> Result<Timed, (String, bool)> {
    let first = |e: &Error| e.to_string().lines().next().unwrap_or_default().to_string();
    let timed = timed.map_err(|e| (first(&e), matches!(e, Error::Cuda(_) | Error::Call(_))))?;
    for (have, want) in timed.results.iter().zip(want) {
        match tolerance::compare(have, want) {
            Ok(c) if c.ok => {}
            Ok(c) => return Err((format!("other results than the default's: {c}"), false)),
            Err(e) => return Err((e.to_string(), false)),
        }
    }
    Ok(timed)
}

/// Whether one candidate is faster than another, confirmed by alternating measurements.
fn faster(one: &mut Timed, other: &mut Timed) -> Result<bool, Error> {
    if one.time >= ACCEPT_RATIO * other.time {
        return Ok(false);
    }
    for _ in 0..2 {
        other.time = other.time.min(other.remeasure()?);
        one.time = one.time.min(one.remeasure()?);
    }
    Ok(one.time < ACCEPT_RATIO * other.time)
}

/// Autotunes the kernels that the table lacks, and adds the best schedules to it. Kernels with
/// dynamic sizes are skipped. `progress` receives the kernels done, the total, and the next
/// kernel's name. Err: the model does not compile, or the device failed; results until then are in
/// the table.
pub fn autotune(
    model: &Model,
    options: &Options,
    budget: Duration,
    table: &mut Schedules,
    inputs: &Inputs<'_>,
    progress: &Progress<'_>,
) -> Result<Vec<Tuned>, Error> {
    let target = target(options)?;
    let products = split_k::SplitKCandidates::of(model, options, &target)?;
    let _one = lock_measurements();
    let settings = MeasureOptions {
        deadline: Instant::now() + budget,
        cancellation: options.cancellation.clone(),
        inputs,
        progress,
    };
    products.measure(options, &target, &settings, table)?;
    Kernels::of(model, options, &target, table)?.measure(options, &target, &settings, table)
}
