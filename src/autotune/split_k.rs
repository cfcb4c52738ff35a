//! Autotuning of split-K factors. The factor is chosen before kernels are formed, so candidates are
//! measured as the kernels that result from them.
//! The time of a factor is the sum over its kernels with default schedules. A vendor library
//! computes the whole product; if it is fastest, the factor is 1. In the table an entry looks like
//! a kernel's: the key describes the product, and the schedule is the factor.
use super::{Kernels, MeasureOptions, StandaloneKernel, classify};
use crate::{
    Error, Model, Options,
    dialects::{ir::*, rules::Level},
    lowering::{
        Chip, RunOptions, Schedules, Target,
        driver::{compile::CompileError, schedules::by_library, user_passes::whole_text},
        kernels::split_products::{PARTS, Splittable},
        run_pipeline,
    },
    passes::pass::level_of,
    runtime::{cuda::libraries::present, library_call::CUBLASLT},
};
use std::{collections::BTreeMap, path::Path, time::Instant};

/// Key prefix of products.
const KEY_PREFIX: &str = "parts ";
/// Split-K factors tried besides the cost model's.
const FACTORS: [i64; 4] = [1, 2, 4, 8];
/// Minimum K tiles per split.
const MIN_STEPS: i64 = 4;
/// Number of output tiles that fills the GPU without split-K (2 x 132 SMs).
const FULL_GPU_TILES: i64 = 2 * 132;
/// The pass that applies split-K.
const SPLIT_PASS: &str = ",kiln-split-products";

/// A model's products, right before split-K is applied.
pub struct SplitKCandidates {
    all: BTreeMap<String, (Splittable, Op)>,
    // Fields are dropped in order: the module before its context.
    _held: Option<(Module, Context)>,
}

/// Attaches the table's split-K factors to the module, for the pass to read.
pub fn attach_split_k(module: &Module, table: &Schedules, target: &Target) {
    let c = module.op().ctx();
    let all: Vec<(String, Attr)> = table
        .of(target)
        .filter_map(|(key, parts)| {
            Some((
                key.strip_prefix(KEY_PREFIX)?.to_string(),
                parts.parse().ok().filter(|n| *n > 0)?,
            ))
        })
        .map(|(product, parts)| (product, Attr::i64(c, parts)))
        .collect();
    if !all.is_empty() {
        let all: Vec<(&str, Attr)> = all.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        module.op().set_attr(PARTS, Attr::dictionary(c, &all));
    }
}

impl SplitKCandidates {
    /// Lowers a model to the split-K pass, and collects the products with a choice of factor.
    pub fn of(
        model: &Model,
        options: &Options,
        target: &Target,
    ) -> Result<SplitKCandidates, Error> {
        // The pass supports this architecture only.
        if target.chip() != Some(Chip::Sm90a) {
            return Ok(SplitKCandidates { all: BTreeMap::new(), _held: None });
        }
        let context = Context::new();
        let (module, _) = model.module_for(&context, options)?;
        let level = level_of(module.op()).unwrap_or(Level::Graph);
        let mut all = BTreeMap::new();
        let text = if level < Level::Kernels {
            whole_text(level, Level::Linalg, target, &options.passes)?
        } else {
            String::new()
        };
        if let Some((before, _)) = text.split_once(SPLIT_PASS) {
            let run = RunOptions {
                skip_verifier: !options.verify,
                disable: options.disable.clone(),
                cancellation: options.cancellation.clone(),
                ..Default::default()
            };
            run_pipeline(&module, &format!("{before})"), &run, &|_, _, _| ())
                .map_err(CompileError::from)?;
            let found = walk(module.op()).into_iter().filter_map(|o| Some((Splittable::of(o)?, o)));
            for (s, op) in
                found.filter(|(s, _)| s.tiles < FULL_GPU_TILES && s.steps >= 2 * MIN_STEPS)
            {
                all.insert(format!("{KEY_PREFIX}{}", s.product), (s, op));
            }
        }
        Ok(SplitKCandidates { all, _held: Some((module, context)) })
    }
    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }
    /// Products that the table lacks.
    fn missing(&self, table: &Schedules, target: &Target) -> Vec<(&String, &(Splittable, Op))> {
        self.all.iter().filter(|(k, _)| !table.has(k, target)).collect()
    }

    /// Measures the products that the table lacks, under the measurement lock, and adds the best
    /// factors to it.
    pub fn measure(
        &self,
        options: &Options,
        target: &Target,
        settings: &MeasureOptions<'_>,
        table: &mut Schedules,
    ) -> Result<(), Error> {
        // The other half of the time is for the kernels' schedules.
        let deadline =
            Instant::now() + settings.deadline.saturating_duration_since(Instant::now()) / 2;
        let todo = self.missing(table, target);
        for (i, (key, (s, op))) in todo.iter().enumerate() {
            settings.cancellation.check().map_err(CompileError::from)?;
            if Instant::now() >= deadline {
                break;
            }
            (settings.progress)(i, todo.len(), "parts of a product");
            let mut times: Vec<(i64, f64)> = vec![];
            let mut counts: Vec<i64> = FACTORS
                .into_iter()
                .chain([s.parts])
                .filter(|n| *n == 1 || s.steps % n == 0 && s.steps / n >= MIN_STEPS)
                .collect();
            counts.sort_unstable();
            counts.dedup();
            for n in counts {
                match time(*op, s, n, options, target, settings) {
                    Ok(all) => {
                        for (what, time) in all {
                            tracing::info!(target: "kiln::autotune", "{}: {n} parts{what}: {time:.2} us", s.product);
                            times.push((n, time));
                        }
                    }
                    Err(e) => {
                        tracing::info!(target: "kiln::autotune", "{}: {n} parts: refused: {}", s.product, e.to_string().lines().next().unwrap_or_default())
                    }
                }
            }
            let fastest = times.iter().min_by(|a, b| a.1.total_cmp(&b.1));
            if let Some((n, time)) = fastest {
                tracing::info!(target: "kiln::autotune", "{}: {n} parts, the model says {}", s.product, s.parts);
                table.insert(key, &target.to_string(), *time, &n.to_string());
            }
        }
        Ok(())
    }
}

/// Microseconds of a product with this split-K factor; for factor 1, those of a library as well.
fn time(
    op: Op,
    s: &Splittable,
    parts: i64,
    options: &Options,
    target: &Target,
    settings: &MeasureOptions<'_>,
) -> Result<Vec<(&'static str, f64)>, Error> {
    let module = standalone(op, s, parts)?;
    let own = options.for_single_kernel();
    let kernels = Kernels::of(
        &Model::from_module(&module, Path::new("")),
        &own,
        target,
        &Schedules::default(),
    )?;
    let all: Vec<&StandaloneKernel> = kernels.all.values().flatten().collect();
    // A mismatch means that something else was measured.
    if (all.len() > 1) != (parts > 1) {
        return Err(Error::Target(format!("it is {} kernels", all.len())));
    }
    let (mut sum, mut made) = (0.0, vec![]);
    for kernel in all {
        let schedule = kernel.default(&own, target)?;
        let timed = kernel.time(schedule, &own, settings)?;
        sum += timed.time;
        let calls = by_library(schedule, kernel.launch.ctx())
            .into_iter()
            .filter(|(l, _)| parts == 1 && *l == CUBLASLT && present(l));
        for (_, candidate) in calls {
            if let Ok(called) = classify(kernel.time(candidate, &own, settings), &timed.results)
                && called.uses_library()
            {
                made.push((" by the library", called.time));
            }
        }
    }
    made.push(("", sum));
    Ok(made)
}

/// A product as a standalone program, at level prims.
fn standalone(op: Op, s: &Splittable, parts: i64) -> Result<Module> {
    let c = op.ctx();
    let own = Module::new(op.loc());
    own.op().set_attr("kiln.level", Attr::string(c, Level::Prims.name()));
    own.op().set_attr(PARTS, Attr::dictionary(c, &[(s.product.as_str(), Attr::i64(c, parts))]));
    let operands = op.operands();
    let types = |all: &[Value]| all.iter().map(|v| v.ty()).collect::<Vec<_>>();
    let b = Builder::at_end(c, own.body(), op.loc());
    b.function("main", &types(&operands), &types(&op.results()), &mut |b, args| {
        let place = |v: Value| {
            operands.iter().position(|o| *o == v).and_then(|i| args.get(i).copied()).unwrap_or(v)
        };
        let copy = b.clone_op(op, &place)?;
        b.ret(&copy.results()).map(drop)
    })?;
    Ok(own)
}
