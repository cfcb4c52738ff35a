//! Miscompilation bisection: the first wrong pass, then the kernel, then the op.
//!
//! Down to `kernels`, the interpreter runs the IR after every pass. Below that, bisection disables
//! each optional pass in turn, and runs each kernel alone on its inputs from the whole program.
use super::{Weights, first_wrong, interpreted, optional};
use crate::{
    Error, Model, Options,
    dialects::{
        interp::Mode,
        ir::*,
        ops::{BindShape, Launch, Sym},
        rules::Level,
        value::{DType, Tensor},
    },
    lowering::{
        RunOptions, Target,
        driver::{
            extract as alone,
            manager::{Moment, Selection},
            table,
            user_passes::whole_text,
        },
        run_pipeline,
    },
    model::{CachePolicy, OwnedTensor, random_inputs},
    passes::pass::level_of,
    runtime::Package,
};
use std::{cell::RefCell, collections::HashMap, fmt, path::Path};

/// Result of a bisection. `Display` prints a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bisection {
    /// The mismatch of the compiled program; `None` if its results are right.
    pub mismatch: Option<String>,
    /// The pass, whether it is optional, and the evidence.
    pub pass: Option<(String, bool, String)>,
    /// The first kernel that is wrong in isolation, and its mismatch.
    pub kernel: Option<(String, String)>,
    /// The first wrong op of that kernel, with its source location and its mismatch.
    pub op: Option<(String, String)>,
    /// What could not be checked, and why.
    pub notes: Vec<String>,
}

struct Search<'a> {
    model: &'a Model,
    options: Options,
    inputs: Vec<Tensor>,
    weights: Weights<'a>,
    exact: Vec<Tensor>,
    rounded: Vec<Tensor>,
}

/// Bisects a model's wrong results. Wrong means: further from the exact result than law 5 of the
/// design allows, which is twice the error of eager execution plus the dtype's tolerance. Missing
/// inputs are random. Err: the model does not compile, or the interpreter cannot run it.
pub fn bisect(
    model: &Model,
    options: &Options,
    inputs: Option<&[OwnedTensor]>,
) -> Result<Bisection, Error> {
    let options = Options { cache: CachePolicy::Off, dump: None, ..options.clone() };
    let exe = model.compile(&options)?;
    let inputs = match inputs {
        Some(inputs) => inputs.to_vec(),
        None => random_inputs(exe.program())?,
    };
    let inputs = inputs.iter().map(|d| d.tensor()).collect::<Result<Vec<_>, _>>()?;
    let found = exe.call_values(&inputs.iter().collect::<Vec<_>>())?;
    let (context, none) = (Context::new(), Package::default());
    let (module, _) = model.module_for(&context, &options)?;
    let where_weights_are = options.clone();
    let weights = Weights::of(model, &where_weights_are, &none, &module);
    let run =
        |mode| interpreted(&module, &options.function, &inputs, mode, &|n, s| weights.read(n, s));
    let (exact, rounded) = (run(Mode::Exact)?, run(Mode::Rounded)?);
    let Some(mismatch) = first_wrong(&found, &rounded, &exact) else {
        return Ok(Bisection::default());
    };
    let search = Search { model, options, inputs, weights, exact, rounded };
    let mut out = Bisection { mismatch: Some(mismatch), ..Default::default() };
    out.pass = search.above_kernels(&module, &mut out.notes)?;
    if out.pass.is_none() {
        out.pass = search.without_each(&mut out.notes)?;
    }
    search.kernels(&module, &mut out)?;
    Ok(out)
}

impl Search<'_> {
    fn mismatch(&self, found: &[Tensor]) -> Option<String> {
        first_wrong(found, &self.rounded, &self.exact)
    }

    /// Lowers a clone of the module to `kernels`. Err: a pass failed.
    fn lowered(&self, module: &Module, watch: &dyn Fn(Moment, &str, Op)) -> Result<(), Error> {
        let target = self
            .options
            .target
            .as_deref()
            .map_or_else(Target::host, Target::parse)
            .map_err(Error::Target)?;
        let level = level_of(module.op()).unwrap_or(Level::Graph);
        module.op().set_attr("kiln.level", Attr::string(module.op().ctx(), level.name()));
        let text = whole_text(level, Level::Kernels.max(level), &target, &self.options.passes)?;
        let run = RunOptions {
            disable: self.options.disable.clone(),
            print_after: Selection::All,
            skip_verifier: true,
            ..Default::default()
        };
        let ran = run_pipeline(module, &text, &run, watch);
        ran.map(drop).map_err(|e| Error::Compile(e.into()))
    }

    /// The first pass after which the interpreter's results are wrong.
    fn above_kernels(
        &self,
        module: &Module,
        notes: &mut Vec<String>,
    ) -> Result<Option<(String, bool, String)>, Error> {
        let own = module.duplicate();
        let (found, refused) = (RefCell::new(None), RefCell::new(None));
        self.lowered(&own, &|moment, flag, _| {
            if moment != Moment::After || found.borrow().is_some() {
                return;
            }
            match interpreted(&own, &self.options.function, &self.inputs, Mode::Exact, &|n, s| {
                self.weights.read(n, s)
            }) {
                Ok(results) => {
                    let mismatch = self.mismatch(&results);
                    *found.borrow_mut() = mismatch.map(|why| {
                        (
                            flag.to_string(),
                            is_optional(flag),
                            format!("the interpreter's results behind it: {why}"),
                        )
                    });
                }
                Err(e) => drop(refused.borrow_mut().get_or_insert(format!(
                    "the interpreter does not run the IR behind {flag}: {e}"
                ))),
            }
        })?;
        notes.extend(refused.into_inner());
        Ok(found.into_inner())
    }

    /// The first optional pass whose removal makes the compiled program right.
    fn without_each(
        &self,
        notes: &mut Vec<String>,
    ) -> Result<Option<(String, bool, String)>, Error> {
        let inputs: Vec<&Tensor> = self.inputs.iter().collect();
        for flag in optional(&self.options)? {
            let mut options = self.options.clone();
            options.disable.push(flag.clone());
            match self.model.compile(&options).and_then(|exe| exe.call_values(&inputs)) {
                Ok(found) if self.mismatch(&found).is_none() => {
                    return Ok(Some((
                        flag,
                        true,
                        "without it the compiled program is right".into(),
                    )));
                }
                Ok(_) => {}
                Err(e) => notes.push(format!(
                    "without {flag} nothing compiles: {}",
                    e.to_string().lines().next().unwrap_or_default()
                )),
            }
        }
        Ok(None)
    }

    /// The first kernel that is wrong on its inputs from the whole program, and its first wrong op.
    fn kernels(&self, module: &Module, out: &mut Bisection) -> Result<(), Error> {
        let own = module.duplicate();
        self.lowered(&own, &|_, _, _| ())?;
        let Some(func) = own.find(&self.options.function) else { return Ok(()) };
        let launches: Vec<(Op, Launch)> =
            walk(func).into_iter().filter_map(|op| Some((op, Launch::of(op)?))).collect();
        let mut wanted: Vec<Value> = vec![];
        for v in launches.iter().flat_map(|(_, l)| &l.inputs) {
            if !wanted.contains(v) {
                wanted.push(*v);
            }
        }
        let symbols = symbols(func, &self.inputs);
        let text = |(module, only): (Module, Vec<String>)| {
            (module.print(PrintOptions { debug_info: true, ..Default::default() }), only)
        };
        let alone = |(op, l): &(Op, Launch)| {
            own.find(&l.kernel).map(|k| alone::program(&own, *op, l, k).map(text))
        };
        let alone: Vec<_> = launches.iter().map(alone).collect();
        func.remove_attr("res_attrs");
        set_returned(func, &wanted)?;
        let values =
            match interpreted(&own, &self.options.function, &self.inputs, Mode::Rounded, &|n, s| {
                self.weights.read(n, s)
            }) {
                Ok(values) => values,
                Err(e) => {
                    out.notes.push(format!("the interpreter does not run the kernels: {e}"));
                    return Ok(());
                }
            };
        let known: HashMap<Value, &Tensor> = wanted.iter().copied().zip(&values).collect();
        for ((_, launch), alone) in launches.iter().zip(alone) {
            let (text, only) = match alone {
                Some(Ok(found)) => found,
                Some(Err(e)) => {
                    out.notes.push(format!("kernel {} is not run alone: {e}", launch.kernel));
                    continue;
                }
                None => continue,
            };
            let mut inputs: Vec<Tensor> =
                launch.inputs.iter().filter_map(|v| known.get(v).map(|t| (*t).clone())).collect();
            for name in &only {
                let n = symbols.get(name).copied().unwrap_or(1);
                inputs.push(
                    Tensor::ints(DType::I8, vec![n], vec![0; n])
                        .map_err(|e| Error::Backend(e.into()))?,
                );
            }
            match self.run_alone(&text, &inputs) {
                Ok(Some(why)) => {
                    out.kernel = Some((launch.kernel.clone(), why));
                    out.op = self.op(&text, &launch.kernel, &inputs, &mut out.notes)?;
                    return Ok(());
                }
                Ok(None) => {}
                Err(e) => out.notes.push(format!("kernel {} is not run alone: {e}", launch.kernel)),
            }
        }
        Ok(())
    }

    /// The mismatch of a compiled program without weights, if any.
    fn run_alone(&self, text: &str, inputs: &[Tensor]) -> Result<Option<String>, Error> {
        let context = Context::new();
        let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "kernel")?;
        let none = |name: &str, _: &str| Err(format!("has no weight @{name}").into());
        let (exact, rounded) = (
            interpreted(&module, "main", inputs, Mode::Exact, &none)?,
            interpreted(&module, "main", inputs, Mode::Rounded, &none)?,
        );
        let options = Options { function: "main".into(), ..self.options.clone() };
        let exe = Model::from_module(&module, Path::new("")).compile(&options)?;
        Ok(first_wrong(&exe.call_values(&inputs.iter().collect::<Vec<_>>())?, &rounded, &exact))
    }

    /// The first wrong op of a kernel: the kernel is truncated after each op in turn.
    fn op(
        &self,
        text: &str,
        kernel: &str,
        inputs: &[Tensor],
        notes: &mut Vec<String>,
    ) -> Result<Option<(String, String)>, Error> {
        let context = Context::new();
        let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "kernel")?;
        let found =
            module.find(kernel).and_then(|k| walk(k).into_iter().find(|o| o.isa::<func::Func>()));
        let Some(block) = found.and_then(|f| f.regions().first()?.first()) else { return Ok(None) };
        let open =
            |v: &Value| v.ty().is_index() || v.ty().dims().iter().any(|d| d.known().is_none());
        if block.args().iter().any(open) {
            notes.push(format!(
                "the ops of {kernel} are not looked at one by one, since its sizes are open"
            ));
            return Ok(None);
        }
        for op in block.ops() {
            if op.result_count() == 0 || !op.result(0).ty().is_tensor() || op.kind().is_none() {
                continue;
            }
            let part = Module::new(op.loc());
            part.op().set_attr("kiln.level", Attr::string(context.ctx(), Level::Prims.name()));
            let top = Builder::at_end(context.ctx(), part.body(), op.loc());
            let types: Vec<Type> = block.args().iter().map(|v| v.ty()).collect();
            let results: Vec<Type> = op.results().iter().map(|v| v.ty()).collect();
            let made = top.function("main", &types, &results, &mut |b, args| {
                let mut map: HashMap<Value, Value> = block.args().into_iter().zip(args).collect();
                for each in block.ops() {
                    let copy = b.clone_op(each, &|v| map.get(&v).copied().unwrap_or(v))?;
                    map.extend(each.results().into_iter().zip(copy.results()));
                    if each == op {
                        return b.ret(&copy.results()).map(drop);
                    }
                }
                Err("an op has been lost".into())
            });
            made.map_err(|e| Error::Backend(e.into()))?;
            let text = part.print(PrintOptions::default());
            match self.run_alone(&text, &inputs[..types.len().min(inputs.len())]) {
                Ok(Some(why)) => {
                    return Ok(Some((
                        format!("{} at {}", op.name(), op.loc().chain().join(" <- ")),
                        why,
                    )));
                }
                Ok(None) => {}
                Err(e) => notes.push(format!("{} is not run alone: {e}", op.name())),
            }
        }
        Ok(None)
    }
}

fn is_optional(flag: &str) -> bool {
    table::find(flag).is_none_or(|p| !p.required)
}

/// The symbol values for these inputs.
fn symbols(func: Op, inputs: &[Tensor]) -> HashMap<String, usize> {
    let mut all = HashMap::new();
    for bound in walk(func).into_iter().filter_map(BindShape::of) {
        let Some(input) = bound.value.block_arg().and_then(|(_, i)| inputs.get(i)) else {
            continue;
        };
        for (size, n) in bound.sizes.iter().zip(input.shape()) {
            if let Size::Dynamic(v) = size
                && let Some(s) = v.def().and_then(Sym::of)
            {
                all.insert(s.name, *n);
            }
        }
    }
    all
}

impl fmt::Display for Bisection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mismatch) = &self.mismatch else { return writeln!(f, "the results are right") };
        writeln!(f, "the compiled program is wrong: {mismatch}")?;
        match &self.pass {
            Some((flag, optional, how)) => writeln!(
                f,
                "pass {flag} ({}): {how}",
                if *optional { "optional" } else { "required" }
            )?,
            None => writeln!(
                f,
                "no pass above the kernels makes it wrong, and without none of the optional ones it is right"
            )?,
        }
        match &self.kernel {
            Some((name, why)) => writeln!(f, "kernel {name} is wrong by itself: {why}")?,
            None => writeln!(f, "no kernel is wrong by itself")?,
        }
        if let Some((op, why)) = &self.op {
            writeln!(f, "op {op} is the first behind which it is wrong: {why}")?;
        }
        self.notes.iter().try_for_each(|n| writeln!(f, "note: {n}"))
    }
}
