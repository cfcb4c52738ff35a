//! Control flow between programs (branches, loops, calls), as plain data, and its interpreter.
//!
//! Values live in the caller's memory or in a call's reference-counted buffers; a buffer is
//! reusable as soon as no value is in it. So a loop alternates between a few buffers, and
//! consecutive calls allocate nothing.
//!
//! [`Driver`] runs it on the host, `cuda::Loaded` on a GPU, with the same interpreter.
mod host;
pub(crate) mod run;
#[cfg(test)]
mod tests;

pub use crate::program::{Body, Control, Step, Value};
use crate::{
    CallError, Program,
    call_error::tensor_error,
    custom::{self, CustomFn},
    program::{CallSizes, Tensor},
    view::tensor_bytes,
};
pub use host::Driver;
use std::sync::Arc;

/// The control flow of a program, validated, with its custom functions resolved.
pub(crate) struct ControlFlow {
    /// The program's name.
    name: String,
    pub control: Control,
    /// The custom functions, by name.
    customs: Vec<(String, Arc<CustomFn>)>,
}

/// Shape and bytes of a value.
pub(crate) type Shape = (Vec<usize>, usize);

impl ControlFlow {
    /// Err: a value or program index is out of range, or a custom function is not registered.
    pub fn new(program: &Program) -> Result<ControlFlow, CallError> {
        let control = program.control.as_deref().cloned().unwrap_or_default();
        let mut flow = ControlFlow { name: program.name.clone(), control, customs: vec![] };
        let mut names = vec![];
        let said = |e: String| tensor_error("program", &program.name, e);
        flow.check(&flow.control.body, &mut names)?;
        let (args, yields) = (&flow.control.body.args, &flow.control.body.yields);
        if !flow.fits(args, &program.inputs) || !flow.fits(yields, &program.outputs) {
            return Err(said("has steps for other arguments and results".into()));
        }
        for name in names {
            let found = custom::find(&name).ok_or_else(|| {
                tensor_error("custom call", &name, "is not registered in this process".into())
            })?;
            flow.customs.push((name, found));
        }
        Ok(flow)
    }

    /// Whether values, which are row-major, match a program's inputs or outputs.
    fn fits(&self, values: &[usize], all: &[Tensor]) -> bool {
        let same = |(v, t): (&Value, &Tensor)| {
            v.dtype == t.dtype && v.dims.len() == t.dims.len() && t.order.is_empty()
        };
        values.len() == all.len()
            && values.iter().map(|v| &self.control.values[*v]).zip(all).all(same)
    }

    /// Checks that all indices are in range; collects the names of custom functions.
    fn check(&self, body: &Body, names: &mut Vec<String>) -> Result<(), CallError> {
        let wrong = |e: String| tensor_error("program", &self.name, e);
        let known = |all: &[usize]| match all.iter().find(|v| **v >= self.control.values.len()) {
            Some(v) => Err(wrong(format!("has a step with value {v}, which does not exist"))),
            None => Ok(()),
        };
        let wants = |ok: bool, what: &str| {
            if ok { Ok(()) } else { Err(wrong(format!("has {what} that does not fit"))) }
        };
        known(&body.args)?;
        known(&body.yields)?;
        for step in &body.steps {
            match step {
                Step::Call { part, inputs, results } => {
                    let p =
                        self.control.parts.get(*part).ok_or_else(|| {
                            wrong(format!("calls part {part}, which does not exist"))
                        })?;
                    known(inputs).and(known(results))?;
                    wants(
                        self.fits(inputs, &p.inputs) && self.fits(results, &p.outputs),
                        "a call",
                    )?;
                }
                Step::If { condition, then, otherwise, results, .. } => {
                    known(&[*condition]).and(known(results))?;
                    wants(
                        then.yields.len() == results.len()
                            && otherwise.yields.len() == results.len(),
                        "a branch",
                    )?;
                    self.check(then, names).and_then(|()| self.check(otherwise, names))?;
                }
                Step::While { inits, condition, body, results, .. } => {
                    known(inits).and(known(results))?;
                    let n = inits.len();
                    wants(
                        [condition.args.len(), body.args.len(), body.yields.len(), results.len()]
                            == [n; 4]
                            && condition.yields.len() == 1,
                        "a loop",
                    )?;
                    self.check(condition, names).and_then(|()| self.check(body, names))?;
                }
                Step::Scan { inits, inputs, body, results, .. } => {
                    known(inits).and(known(inputs)).and(known(results))?;
                    let sliced = |v: &usize| !self.control.values[*v].dims.is_empty();
                    let fits = body.args.len() == inits.len() + inputs.len()
                        && body.yields.len() == results.len()
                        && results.len() >= inits.len();
                    wants(
                        fits && !inputs.is_empty()
                            && inputs.iter().chain(&results[inits.len()..]).all(sliced),
                        "a scan",
                    )?;
                    self.check(body, names)?;
                }
                Step::UnbackedSize { value, result, .. } => {
                    known(&[*value]).and(known(result))?;
                    wants(result.len() == 1, "a size")?;
                }
                Step::Custom { callee, inputs, results, .. } => {
                    known(inputs).and(known(results))?;
                    if !names.contains(callee) {
                        names.push(callee.clone());
                    }
                }
            }
        }
        Ok(())
    }

    /// Shapes and bytes of all values of a call of `program`, whose control flow this is; `None` of
    /// a value with a size that has not been read.
    pub fn shapes(
        &self,
        program: &Program,
        call: &CallSizes,
    ) -> Result<Vec<Option<Shape>>, CallError> {
        let mut made = Vec::with_capacity(self.control.values.len());
        for v in &self.control.values {
            let sizes = v.dims.iter().map(|d| call.size(program, *d));
            let shape: Option<Vec<usize>> = sizes.collect::<Result<_, _>>()?;
            let bytes = shape
                .as_ref()
                .map(|shape| tensor_bytes("value of program", &self.name, &v.dtype, shape));
            made.push(shape.zip(bytes.transpose()?));
        }
        let body = &self.control.body;
        for (values, tensors) in [(&body.args, &program.inputs), (&body.yields, &program.outputs)] {
            for (v, t) in values.iter().zip(tensors) {
                let sizes = t.dims.iter().map(|d| call.size(program, *d));
                let want = sizes.collect::<Result<Option<Vec<_>>, _>>()?;
                let have = made[*v].as_ref().map(|s| &s.0);
                if have != want.as_ref() {
                    let shown = |s: Option<&Vec<usize>>| s.cloned().unwrap_or_default();
                    return Err(self.differ(&shown(have), &shown(want.as_ref())));
                }
            }
        }
        self.check_shapes(body, &made)?;
        Ok(made)
    }

    fn differ(&self, one: &[usize], other: &[usize]) -> CallError {
        let reason = format!("has steps that take turns with values of {one:?} and of {other:?}");
        tensor_error("program", &self.name, reason)
    }

    /// Whether values that alias over iterations or branches have equal shapes. Called programs and
    /// functions check theirs.
    fn check_shapes(&self, body: &Body, made: &[Option<Shape>]) -> Result<(), CallError> {
        let shape = |v: usize| made[v].as_ref().map_or(&[][..], |s| &s.0[..]);
        let same = |x: &[usize], y: &[usize]| {
            let mut pairs = x.iter().zip(y).map(|(x, y)| (shape(*x), shape(*y)));
            pairs.find(|(x, y)| x != y).map_or(Ok(()), |(x, y)| Err(self.differ(x, y)))
        };
        for step in &body.steps {
            match step {
                Step::Call { .. } | Step::Custom { .. } | Step::UnbackedSize { .. } => {}
                Step::If { then, otherwise, results, .. } => {
                    for body in [then, otherwise] {
                        self.check_shapes(body, made)?;
                        same(&body.yields, results)?;
                    }
                }
                Step::While { inits, condition, body, results, .. } => {
                    self.check_shapes(condition, made)?;
                    self.check_shapes(body, made)?;
                    for other in [&condition.args, &body.args, &body.yields, results] {
                        same(inits, other)?;
                    }
                }
                Step::Scan { inits, inputs, body, results, .. } => {
                    self.check_shapes(body, made)?;
                    for other in [&body.args, &body.yields, results] {
                        same(inits, other)?;
                    }
                    let n = inits.len();
                    // Of sizes that have not been read.
                    let Some(length) = shape(inputs[0]).first().copied() else { continue };
                    let slices = inputs.iter().zip(&body.args[n..]);
                    for (whole, slice) in slices.chain(results[n..].iter().zip(&body.yields[n..])) {
                        let (whole, slice) = (shape(*whole), shape(*slice));
                        if whole.first() != Some(&length) || whole[1..] != slice[..] {
                            return Err(self.differ(whole, slice));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Number of launches over all parts.
    pub fn launches(&self) -> usize {
        self.first_launch(self.control.parts.len())
    }
    /// Index of a part's first launch among those of all parts.
    pub fn first_launch(&self, part: usize) -> usize {
        self.control.parts.iter().take(part).map(|p| p.kernels.len()).sum()
    }
    /// The names of the functions of the host, each once.
    pub fn callees(&self) -> impl Iterator<Item = &str> {
        self.customs.iter().map(|(name, _)| name.as_str())
    }
    /// The function of a custom call.
    pub fn custom(&self, callee: &str) -> Result<&CustomFn, CallError> {
        let found = self.customs.iter().find(|(name, _)| name == callee).map(|(_, f)| &**f);
        found.ok_or_else(|| {
            tensor_error("custom call", callee, "is not registered in this process".into())
        })
    }
}

impl Body {
    /// Visits all steps in pre-order.
    pub(crate) fn visit(&self, f: &mut dyn FnMut(&Step)) {
        for step in &self.steps {
            f(step);
            match step {
                Step::If { then, otherwise, .. } => {
                    [then, otherwise].into_iter().for_each(|b| b.visit(f))
                }
                Step::While { condition, body, .. } => {
                    [condition, body].into_iter().for_each(|b| b.visit(f))
                }
                Step::Scan { body, .. } => body.visit(f),
                Step::Call { .. } | Step::Custom { .. } | Step::UnbackedSize { .. } => {}
            }
        }
    }
}

impl Step {
    /// The values that the step defines.
    pub(crate) fn results(&self) -> &[usize] {
        match self {
            Step::Call { results, .. } | Step::If { results, .. } | Step::While { results, .. } => {
                results
            }
            Step::Scan { results, .. } | Step::Custom { results, .. } => results,
            Step::UnbackedSize { result, .. } => result,
        }
    }
}
