//! Control flow between programs: what chooses, repeats and calls, as plain data, and what runs it.
//!
//! A value is memory of the caller, or of a call's buffers, which are counted: one is free again as
//! soon as no value lies in it. So a loop takes turns with a few buffers, and calls that follow
//! each other allocate nothing.
//!
//! [`Driver`] runs it on the host; on a card `cuda::Loaded` does, by the same steps.
mod host;
pub(crate) mod run;
#[cfg(test)]
mod tests;

use crate::{
    CallError, Program,
    call::tensor_error,
    custom::{self, CustomFn},
    program::{Dim, Tensor},
    view::tensor_bytes,
};
pub use host::Driver;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a program does that runs others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// The programs. Their objects are those of the whole.
    pub parts: Vec<Program>,
    /// All values, the arguments first; sizes are those of the whole program.
    pub values: Vec<Value>,
    /// What is done.
    pub body: Body,
}

/// A tensor that goes from one step to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The element type in MLIR's spelling.
    pub dtype: String,
    /// The sizes.
    pub dims: Vec<Dim>,
}

/// Steps in order. Numbers count in [`Control::values`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Body {
    /// What it takes.
    pub args: Vec<usize>,
    /// What it does.
    pub steps: Vec<Step>,
    /// What it gives.
    pub yields: Vec<usize>,
}

/// One step. Results are new values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A program.
    Call {
        /// Its number in [`Control::parts`].
        part: usize,
        /// What it reads.
        inputs: Vec<usize>,
        /// What it writes.
        results: Vec<usize>,
    },
    /// One of two bodies, which take nothing.
    If {
        /// An `i1` without dimensions.
        condition: usize,
        /// Runs if it is true.
        then: Body,
        /// Runs if it is false.
        otherwise: Body,
        /// What either yields.
        results: Vec<usize>,
        /// Where it stands in the source, such as `while_loop (model.rs:12)`; empty if that is not
        /// known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
    /// A body as long as another, of the same values, gives true.
    While {
        /// What both take first.
        inits: Vec<usize>,
        /// Yields an `i1` without dimensions.
        condition: Body,
        /// Yields what both take next.
        body: Body,
        /// What the condition refused.
        results: Vec<usize>,
        /// Where it stands in the source, such as `while_loop (model.rs:12)`; empty if that is not
        /// known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
    /// A body for each slice along the inputs' first dimension: it takes carried values, then
    /// slices, and yields carried values, then slices of results.
    Scan {
        /// What is carried into the first one.
        inits: Vec<usize>,
        /// What is sliced.
        inputs: Vec<usize>,
        /// Whether the last slice comes first.
        reverse: bool,
        /// What is done with each.
        body: Body,
        /// What was carried out of the last one, then the stacked slices.
        results: Vec<usize>,
        /// Where it stands in the source, such as `while_loop (model.rs:12)`; empty if that is not
        /// known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
    /// A function that is registered under a name.
    Custom {
        /// The name.
        callee: String,
        /// What it reads.
        inputs: Vec<usize>,
        /// What it writes.
        results: Vec<usize>,
        /// Where it stands in the source, such as `while_loop (model.rs:12)`; empty if that is not
        /// known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        source: String,
    },
}

/// What goes on between the programs of one: its steps, checked, with the functions that they call.
pub(crate) struct Flow {
    /// The name of the program.
    name: String,
    pub control: Control,
    /// The function of each custom call, by name.
    customs: Vec<(String, Arc<CustomFn>)>,
}

/// The sizes of a value, and its bytes.
pub(crate) type Shape = (Vec<usize>, usize);

impl Flow {
    /// Err: the program names values or parts that it does not have, or a function that is not
    /// registered.
    pub fn new(program: &Program) -> Result<Flow, CallError> {
        let control = program.control.as_deref().cloned().unwrap_or_default();
        let mut flow = Flow { name: program.name.clone(), control, customs: vec![] };
        let mut names = vec![];
        let said = |e: String| tensor_error("program", &program.name, e);
        flow.check(&flow.control.body, &mut names).map_err(said)?;
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

    /// Whether values, which lie row by row, are what a program takes or gives.
    fn fits(&self, values: &[usize], all: &[Tensor]) -> bool {
        let same = |(v, t): (&Value, &Tensor)| {
            v.dtype == t.dtype && v.dims.len() == t.dims.len() && t.order.is_empty()
        };
        values.len() == all.len()
            && values.iter().map(|v| &self.control.values[*v]).zip(all).all(same)
    }

    /// Whether everything that is named is there.
    fn check(&self, body: &Body, names: &mut Vec<String>) -> Result<(), String> {
        let known = |all: &[usize]| match all.iter().find(|v| **v >= self.control.values.len()) {
            Some(v) => Err(format!("has a step with value {v}, which there is not")),
            None => Ok(()),
        };
        let wants = |ok: bool, what: &str| {
            if ok { Ok(()) } else { Err(format!("has {what} that does not fit")) }
        };
        known(&body.args)?;
        known(&body.yields)?;
        for step in &body.steps {
            match step {
                Step::Call { part, inputs, results } => {
                    let p = self
                        .control
                        .parts
                        .get(*part)
                        .ok_or_else(|| format!("calls part {part}, which there is not"))?;
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

    /// The sizes and bytes of all values of a call of `program`, whose flow this is.
    pub fn shapes(
        &self,
        program: &Program,
        symbols: &[i64],
        exprs: &[i64],
    ) -> Result<Vec<Shape>, CallError> {
        let mut made = Vec::with_capacity(self.control.values.len());
        for v in &self.control.values {
            let sizes = v.dims.iter().map(|d| d.size(symbols, exprs));
            let shape: Vec<usize> = sizes.collect::<Result<_, _>>()?;
            let bytes = tensor_bytes("value of program", &self.name, &v.dtype, &shape)?;
            made.push((shape, bytes));
        }
        let body = &self.control.body;
        for (values, tensors) in [(&body.args, &program.inputs), (&body.yields, &program.outputs)] {
            for (v, t) in values.iter().zip(tensors) {
                let sizes = t.dims.iter().map(|d| d.size(symbols, exprs));
                let want = sizes.collect::<Result<Vec<_>, _>>()?;
                if made[*v].0 != want {
                    return Err(self.differ(&made[*v].0, &want));
                }
            }
        }
        self.agree(body, &made)?;
        Ok(made)
    }

    fn differ(&self, one: &[usize], other: &[usize]) -> CallError {
        let reason = format!("has steps that take turns with values of {one:?} and of {other:?}");
        tensor_error("program", &self.name, reason)
    }

    /// Whether values that are handed on from step to step have the same sizes. Programs and
    /// functions that are called compare theirs.
    fn agree(&self, body: &Body, made: &[Shape]) -> Result<(), CallError> {
        let same = |x: &[usize], y: &[usize]| {
            let mut pairs = x.iter().zip(y).map(|(x, y)| (&made[*x].0[..], &made[*y].0[..]));
            pairs.find(|(x, y)| x != y).map_or(Ok(()), |(x, y)| Err(self.differ(x, y)))
        };
        for step in &body.steps {
            match step {
                Step::Call { .. } | Step::Custom { .. } => {}
                Step::If { then, otherwise, results, .. } => {
                    for body in [then, otherwise] {
                        self.agree(body, made)?;
                        same(&body.yields, results)?;
                    }
                }
                Step::While { inits, condition, body, results, .. } => {
                    self.agree(condition, made)?;
                    self.agree(body, made)?;
                    for other in [&condition.args, &body.args, &body.yields, results] {
                        same(inits, other)?;
                    }
                }
                Step::Scan { inits, inputs, body, results, .. } => {
                    self.agree(body, made)?;
                    for other in [&body.args, &body.yields, results] {
                        same(inits, other)?;
                    }
                    let n = inits.len();
                    let length = made[inputs[0]].0[0];
                    let slices = inputs.iter().zip(&body.args[n..]);
                    for (whole, slice) in slices.chain(results[n..].iter().zip(&body.yields[n..])) {
                        let (whole, slice) = (&made[*whole].0, &made[*slice].0);
                        if whole[0] != length || whole[1..] != slice[..] {
                            return Err(self.differ(whole, slice));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// How many launches all parts have.
    pub fn launches(&self) -> usize {
        self.first_launch(self.control.parts.len())
    }
    /// Where the launches of a part are among those of all.
    pub fn first_launch(&self, part: usize) -> usize {
        self.control.parts.iter().take(part).map(|p| p.kernels.len()).sum()
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
    /// All steps in order, each before those of its bodies.
    pub(crate) fn each(&self, f: &mut dyn FnMut(&Step)) {
        for step in &self.steps {
            f(step);
            match step {
                Step::If { then, otherwise, .. } => {
                    [then, otherwise].into_iter().for_each(|b| b.each(f))
                }
                Step::While { condition, body, .. } => {
                    [condition, body].into_iter().for_each(|b| b.each(f))
                }
                Step::Scan { body, .. } => body.each(f),
                Step::Call { .. } | Step::Custom { .. } => {}
            }
        }
    }
}

impl Step {
    /// The new values.
    pub(crate) fn results(&self) -> &[usize] {
        match self {
            Step::Call { results, .. } | Step::If { results, .. } | Step::While { results, .. } => {
                results
            }
            Step::Scan { results, .. } | Step::Custom { results, .. } => results,
        }
    }
}
