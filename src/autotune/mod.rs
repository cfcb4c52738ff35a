//! Measuring schedules: each different kernel of a model alone, with the schedule of the model of
//! the machine and with ones near it.
//!
//! A schedule is an attribute of a kernel at `linalg`, so that this takes a model to there, makes a
//! program of each kernel, and compiles and times it with one schedule after the other: first those
//! near the default, then those near the fastest, until none is faster or the time is over. A
//! schedule whose results are not those of the default does not count. Operands are the same in
//! each call, and may lie in a cache.
//!
//! `kiln tune` does so for a table of its own; a compilation with [`Options::max_autotune`] for the
//! table that it keeps.
mod alone;
mod kept;
pub mod parts;

pub use kept::{Kept, MAX_TABLE, measured};

use crate::{
    Error, Model, Options,
    dialects::{
        ir::*,
        ops::{Global, Launch, OpKind},
        rules::Level,
        value::Tensor,
    },
    lowering::{
        RunOptions, Schedules, Stop, Target,
        analysis::kernels_of,
        driver::{
            compile::CompileError,
            schedules::{by_library, candidates, key},
            user_passes::whole_text,
        },
        run_pipeline,
    },
    model::{Data, target},
    passes::pass::level_of,
    runtime::{Place, Program, cuda::libraries::present},
    tolerance,
};
use alone::{Alone, Timed};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// What a schedule must take of another one's time to count as faster.
const FASTER: f64 = 0.98;
/// Most schedules that one kernel is tried with.
const MOST: usize = 48;

/// One kernel is timed at a time in a process, whatever compiles.
static TIMING: Mutex<()> = Mutex::new(());

/// Until this goes, nobody else in the process times kernels.
fn timing() -> MutexGuard<'static, ()> {
    TIMING.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    /// A library that has it as well, and the microseconds that it takes.
    pub library: Option<(&'static str, f64)>,
    /// How many others were tried.
    pub tried: usize,
    /// How many of these could not be compiled or run, or gave other results.
    pub refused: usize,
}

/// Values for the inputs of a program of one kernel.
pub type Inputs<'a> = dyn Fn(&Program) -> Result<Vec<Data>, Error> + 'a;
/// Is told how many of how many kernels are done, and the next one's name.
pub type Progress<'a> = dyn Fn(usize, usize, &str) + 'a;

/// How to measure.
pub struct How<'a> {
    /// Until when.
    pub until: Instant,
    /// Ends it, as it ends a compilation.
    pub stop: Stop,
    /// With what.
    pub inputs: &'a Inputs<'a>,
    /// Is told how far it is.
    pub progress: &'a Progress<'a>,
}

/// Err: why nothing compiled for this target can be timed here.
pub fn measurable(options: &Options, target: &Target) -> Result<(), String> {
    match (target, options.device) {
        (Target::Host(_), Place::Host) | (Target::Cuda { .. }, Place::Cuda(_)) => Ok(()),
        (Target::Cuda { .. }, Place::Host) => Err(format!(
            "nothing is measured: the program is for {target}, and no GPU is named as the device"
        )),
        (Target::Host(_), Place::Cuda(_)) => {
            Err(format!("nothing is measured: the program is for {target}, the device is a GPU"))
        }
    }
}

/// A model's kernels at `linalg`.
pub struct Kernels {
    /// By key; those that can be timed: of known sizes, and launched by more than what runs once.
    all: BTreeMap<String, Option<Alone>>,
    _module: Module,
    // It goes last.
    _context: Context,
}

/// The functions that run once, when a program is loaded: globals name them as what makes them.
fn once(module: Op) -> Vec<String> {
    let made = |o: Op| Some(Global::of(o)?.source?.split_once('#')?.0.to_string());
    walk(module).into_iter().filter_map(made).collect()
}

impl Kernels {
    /// Takes a model to `linalg`; products in as many parts as the table says.
    pub fn of(
        model: &Model,
        options: &Options,
        target: &Target,
        table: &Schedules,
    ) -> Result<Kernels, Error> {
        let context = Context::new();
        let (module, _) = model.module(&context)?;
        parts::request(&module, table, target);
        let level = level_of(module.op()).unwrap_or(Level::Graph);
        let run = RunOptions {
            skip_verifier: !options.verify,
            disable: options.disable.clone(),
            stop: options.stop.clone(),
            ..Default::default()
        };
        if level < Level::Linalg || !options.passes.is_empty() {
            let text = whole_text(level, Level::Linalg.max(level), target, &options.passes)
                .map_err(CompileError::Module)?;
            run_pipeline(&module, &text, &run, &|_, _, _| ()).map_err(CompileError::from)?;
        }
        let once = once(module.op());
        let within =
            |o: &Op| o.parent().and_then(|f| f.symbol()).is_some_and(|f| once.contains(&f));
        let launches: Vec<Op> = walk(module.op())
            .into_iter()
            .filter(|o| o.kind() == Some(OpKind::Launch) && !within(o))
            .collect();
        let known =
            |v: &Value| v.ty().is_tensor() && v.ty().dims().iter().all(|d| d.known().is_some());
        let mut all: BTreeMap<String, Option<Alone>> = BTreeMap::new();
        for func in
            kernels_of(module.op()).into_iter().filter(|f| f.attr("kiln.schedule").is_none())
        {
            let Some(kernel) = func.parent() else { continue };
            let launch = launches.iter().copied().find(|o| {
                let same = Launch::of(*o).is_some_and(|l| Some(l.kernel) == kernel.symbol());
                same && o.operands().iter().chain(&o.results()).all(known)
            });
            let alone = launch.map(|launch| Alone { launch, kernel });
            let place = all.entry(key(func)).or_default();
            *place = place.or(alone);
        }
        Ok(Kernels { all, _module: module, _context: context })
    }
    /// The keys, each with whether it can be timed.
    pub fn keys(&self) -> impl Iterator<Item = (&str, bool)> {
        self.all.iter().map(|(k, a)| (k.as_str(), a.is_some()))
    }

    /// Times those that the table does not have, while nobody else does so, and adds what is
    /// fastest to it. Err: the device fails, or it was stopped; what was measured until then is in
    /// the table.
    pub fn measure(
        &self,
        options: &Options,
        target: &Target,
        how: &How<'_>,
        table: &mut Schedules,
    ) -> Result<Vec<Tuned>, Error> {
        let todo: Vec<(&String, &Alone)> = self
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
        tracing::info!(target: "kiln::autotune", "{total} kernels to measure for {target} in {:.1} s; {open} of open sizes, or that run once, are not", how.until.saturating_duration_since(Instant::now()).as_secs_f64());
        let own = options.alone();
        for (i, (key, alone)) in todo.into_iter().enumerate() {
            how.stop.check().map_err(CompileError::from)?;
            if Instant::now() >= how.until {
                tracing::info!(target: "kiln::autotune", "the time is over with {} of {total} kernels measured", i);
                break;
            }
            (how.progress)(i, total, &alone.name());
            // What is left is shared among the kernels that are left.
            let share = how.until.saturating_duration_since(Instant::now()) / (total - i) as u32;
            match tune(alone, &own, target, how, Instant::now() + share) {
                Ok(tuned) => {
                    table.insert(key, &target.to_string(), tuned.after, &tuned.schedule);
                    made.push(tuned);
                }
                Err(
                    e
                    @ (Error::Cuda(_) | Error::Call(_) | Error::Compile(CompileError::Stopped(_))),
                ) => return Err(e),
                // Of others nothing follows from that.
                Err(e) => {
                    tracing::info!(target: "kiln::autotune", "{}: not measured: {e}", alone.name())
                }
            }
        }
        (how.progress)(made.len(), total, "");
        Ok(made)
    }
}

/// Times one kernel.
fn tune(
    alone: &Alone,
    options: &Options,
    target: &Target,
    how: &How<'_>,
    until: Instant,
) -> Result<Tuned, Error> {
    let kernel = alone.name();
    let mut best = alone.default(options, target)?;
    let mut fastest = alone.time(best, options, how)?;
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
        let near = candidates(alone.launch, from, target);
        let near = near.map_err(|f| CompileError::Module(f.message))?;
        for candidate in near {
            let text = candidate.to_string();
            if Instant::now() >= until || made.tried >= MOST || seen.contains(&text) {
                continue;
            }
            how.stop.check().map_err(CompileError::from)?;
            seen.push(text.clone());
            made.tried += 1;
            let kernel = &made.kernel;
            match outcome(alone.time(candidate, options, how), &want) {
                Ok(mut timed) => {
                    tracing::info!(target: "kiln::autotune", "{kernel}: {:.2} us, {text}", timed.time);
                    if faster(&mut timed, &mut fastest)? {
                        (made.after, made.schedule, best, fastest) =
                            (timed.time, text, candidate, timed);
                    }
                }
                // Not every neighbour is one that the kernel can have; a card that does not answer
                // any more is another matter.
                Err((why, failed)) => {
                    tracing::info!(target: "kiln::autotune", "{kernel}: refused, {text}: {why}");
                    made.refused += 1;
                    if failed {
                        fastest.again()?;
                    }
                }
            }
        }
        if best.to_string() == from.to_string() {
            break;
        }
    }
    // On top of the best schedule, since that is what runs where there is no library.
    let calls = by_library(best, alone.launch.ctx())
        .into_iter()
        .filter(|(l, _)| matches!(target, Target::Cuda { .. }) && present(l));
    for (library, candidate) in calls {
        let timed = outcome(alone.time(candidate, options, how), &want);
        match timed.and_then(|t| if t.by_library() { Ok(t) } else { Err((t.remarks(), false)) }) {
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

/// What a candidate came to. Err: why it does not count, and whether the device may be the reason.
fn outcome(timed: Result<Timed, Error>, want: &[Tensor]) -> Result<Timed, (String, bool)> {
    let first = |e: &Error| e.to_string().lines().next().unwrap_or_default().to_string();
    let timed = timed.map_err(|e| (first(&e), matches!(e, Error::Cuda(_) | Error::Call(_))))?;
    for (have, want) in timed.results.iter().zip(want) {
        match tolerance::compare(have, want) {
            Ok(c) if c.ok => {}
            Ok(c) => return Err((format!("other results than the default's: {c}"), false)),
            Err(e) => return Err((e, false)),
        }
    }
    Ok(timed)
}

/// Whether one is faster than another, also when both are timed anew, in turn.
fn faster(one: &mut Timed, other: &mut Timed) -> Result<bool, Error> {
    if one.time >= FASTER * other.time {
        return Ok(false);
    }
    for _ in 0..2 {
        other.time = other.time.min(other.again()?);
        one.time = one.time.min(one.again()?);
    }
    Ok(one.time < FASTER * other.time)
}

/// Measures the kernels of a model that the table does not have, and adds what is fastest to it.
/// Kernels whose sizes depend on the call are left out. `progress` is told how many of how many
/// kernels are done, and the next one's name. Err: the model is not compiled, or the device fails;
/// what was measured until then is in the table.
pub fn autotune(
    model: &Model,
    options: &Options,
    budget: Duration,
    table: &mut Schedules,
    inputs: &Inputs<'_>,
    progress: &Progress<'_>,
) -> Result<Vec<Tuned>, Error> {
    let target = target(options)?;
    let products = parts::Products::of(model, options, &target)?;
    let _one = timing();
    let how = How { until: Instant::now() + budget, stop: options.stop.clone(), inputs, progress };
    products.measure(options, &target, &how, table)?;
    Kernels::of(model, options, &target, table)?.measure(options, &target, &how, table)
}
