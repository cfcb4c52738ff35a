//! Control flow between programs: what chooses, repeats and calls, as plain data, and what runs it.
//!
//! A value is memory of the caller, or of a call's buffers, which are counted: one is free again as soon as no value lies in it. So a loop takes turns with a few
//! buffers, and calls that follow each other allocate nothing.
mod run;

use crate::{
    CallError, Loaded, Program, View, ViewMut,
    call::tensor_error,
    custom::{self, CustomFn},
    profile::Profile,
    program::{Dim, Tensor},
    view::{byte_size, product},
};
use run::{Memory, Place, Run, copy};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

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
    },
    /// A body for each slice along the inputs' first dimension: it takes carried values, then slices, and yields carried values, then slices of results.
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
    },
    /// A function that is registered under a name.
    Custom {
        /// The name.
        callee: String,
        /// What it reads.
        inputs: Vec<usize>,
        /// What it writes.
        results: Vec<usize>,
    },
}

/// A program of programs, ready to be called from any thread.
pub struct Driver {
    program: Program,
    control: Control,
    parts: Vec<Loaded>,
    /// The function of each custom call, by name.
    customs: Vec<(String, Arc<CustomFn>)>,
    /// Buffers of calls that are over.
    idle: Mutex<Vec<Memory>>,
}

impl Driver {
    /// Joins a program with its loaded parts. Err: it names values or parts that it does not have, or a function that is not registered.
    pub fn new(program: Program, parts: Vec<Loaded>) -> Result<Driver, CallError> {
        let control = program.control.as_deref().cloned().unwrap_or_default();
        let mut driver = Driver { program, control, parts, customs: vec![], idle: Mutex::default() };
        let mut names = vec![];
        driver.check(&driver.control.body, &mut names).map_err(|e| tensor_error("program", &driver.program.name, e))?;
        if driver.control.body.args.len() != driver.program.inputs.len() || driver.control.body.yields.len() != driver.program.outputs.len()
        {
            return Err(tensor_error("program", &driver.program.name, "has steps for other arguments and results".into()));
        }
        for name in names {
            let found =
                custom::find(&name).ok_or_else(|| tensor_error("custom call", &name, "is not registered in this process".into()))?;
            driver.customs.push((name, found));
        }
        Ok(driver)
    }

    /// Whether everything that is named is there.
    fn check(&self, body: &Body, names: &mut Vec<String>) -> Result<(), String> {
        let known = |all: &[usize]| match all.iter().find(|v| **v >= self.control.values.len()) {
            Some(v) => Err(format!("has a step with value {v}, which there is not")),
            None => Ok(()),
        };
        let wants = |ok: bool, what: &str| if ok { Ok(()) } else { Err(format!("has {what} that does not fit")) };
        known(&body.args)?;
        known(&body.yields)?;
        for step in &body.steps {
            match step {
                Step::Call { part, inputs, results } => {
                    let p = self.parts.get(*part).ok_or_else(|| format!("calls part {part}, which there is not"))?.program();
                    wants(p.inputs.len() == inputs.len() && p.outputs.len() == results.len(), "a call")?;
                    known(inputs).and(known(results))?;
                }
                Step::If { condition, then, otherwise, results } => {
                    known(&[*condition]).and(known(results))?;
                    wants(then.yields.len() == results.len() && otherwise.yields.len() == results.len(), "a branch")?;
                    self.check(then, names).and_then(|()| self.check(otherwise, names))?;
                }
                Step::While { inits, condition, body, results } => {
                    known(inits).and(known(results))?;
                    let n = inits.len();
                    wants(
                        [condition.args.len(), body.args.len(), body.yields.len(), results.len()] == [n; 4] && condition.yields.len() == 1,
                        "a loop",
                    )?;
                    self.check(condition, names).and_then(|()| self.check(body, names))?;
                }
                Step::Scan { inits, inputs, body, results, .. } => {
                    known(inits).and(known(inputs)).and(known(results))?;
                    let sliced = |v: &usize| !self.control.values[*v].dims.is_empty();
                    let fits =
                        body.args.len() == inits.len() + inputs.len() && body.yields.len() == results.len() && results.len() >= inits.len();
                    wants(fits && !inputs.is_empty() && inputs.iter().chain(&results[inits.len()..]).all(sliced), "a scan")?;
                    self.check(body, names)?;
                }
                Step::Custom { callee, inputs, results } => {
                    known(inputs).and(known(results))?;
                    if !names.contains(callee) {
                        names.push(callee.clone());
                    }
                }
            }
        }
        Ok(())
    }

    /// What was compiled.
    pub fn program(&self) -> &Program {
        &self.program
    }
    /// The bytes of memory that calls keep, between kernels and between programs.
    pub fn arena_bytes(&self) -> usize {
        let own: usize = lock(&self.idle).iter().flat_map(|m| &m.buffers).map(|b| b.memory.len()).sum();
        own + self.parts.iter().map(Loaded::arena_bytes).sum::<usize>()
    }

    /// Runs the program on at most `threads` threads of the pool. Where a part or a custom call fails, results may have been written.
    pub fn call(&self, inputs: &[View], outputs: &mut [ViewMut], threads: usize) -> Result<(), CallError> {
        self.call_with(inputs, outputs, threads, None).map(|_| ())
    }
    /// As [`Driver::call`], with the time of each launch of the programs that it calls, in the order of [`Control::parts`].
    pub fn profile(&self, inputs: &[View], outputs: &mut [ViewMut], threads: usize) -> Result<Profile, CallError> {
        let launches = self.parts.iter().map(|p| p.program().kernels.len()).sum();
        let profile = self.call_with(inputs, outputs, threads, Some(Profile::of_parts(launches)))?;
        Ok(profile.unwrap_or_else(|| Profile::of_parts(launches)))
    }
    /// Where the launches of a part are among those of all.
    fn first_launch(&self, part: usize) -> usize {
        self.parts.iter().take(part).map(|p| p.program().kernels.len()).sum()
    }

    fn call_with(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
        profile: Option<Profile>,
    ) -> Result<Option<Profile>, CallError> {
        let p = &self.program;
        let shapes: Vec<&[usize]> = inputs.iter().map(|v| v.shape).collect();
        let (symbols, exprs) = p.sizes(&shapes)?;
        if outputs.len() != p.outputs.len() {
            return Err(CallError::Count { what: "outputs", want: p.outputs.len(), have: outputs.len() });
        }
        let size = |d: &Dim| -> Result<usize, CallError> { Ok(usize::try_from(d.value(&symbols, &exprs)?).unwrap_or(0)) };
        let mut made: Vec<(Vec<usize>, usize)> = Vec::with_capacity(self.control.values.len());
        for v in &self.control.values {
            let shape: Vec<usize> = v.dims.iter().map(size).collect::<Result<_, _>>()?;
            let bytes = byte_size(&v.dtype).and_then(|width| product(&shape, width));
            made.push((shape, bytes.ok_or_else(|| tensor_error("value", "", format!("of {} is of no known size", v.dtype)))?));
        }
        let mut copies = vec![];
        let memory = lock(&self.idle).pop().unwrap_or_default();
        let mut run =
            Run { driver: self, shapes: &made, places: vec![None; made.len()], wanted: vec![None; made.len()], memory, threads, profile };
        let place = |data: *const u8| Place { data: data.cast_mut(), buffer: None };
        for ((v, t), at) in inputs.iter().zip(&p.inputs).zip(&self.control.body.args) {
            check("input", v.dtype(), v.place(), t)?;
            if v.lies(&[]) {
                run.places[*at] = Some(place(v.data));
            } else {
                let copy = v.gathered(byte_size(v.dtype()).unwrap_or(1), &[])?;
                run.places[*at] = Some(place(copy.as_mut_ptr()));
                copies.push(copy);
            }
        }
        let yields = &self.control.body.yields;
        for ((v, t), value) in outputs.iter().zip(&p.outputs).zip(yields) {
            check("output", v.dtype(), v.place(), t)?;
            p.check("output", t, v.shape, &symbols, &exprs)?;
            v.check_order(&t.name)?;
            // What a part computes for the caller alone it writes there.
            run.wanted[*value] = (yields.iter().filter(|y| *y == value).count() == 1).then(|| place(v.data));
        }
        let done = run.steps(&self.control.body.steps).and_then(|()| {
            for (v, value) in outputs.iter().zip(yields) {
                let from = run.place(*value)?;
                copy(from.data, v.data, made[*value].1);
            }
            Ok(())
        });
        let (mut memory, profile) = (run.memory, run.profile);
        memory.buffers.iter_mut().for_each(|b| b.users = 0);
        lock(&self.idle).push(memory);
        drop(copies);
        done.map(|()| profile)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(what: &'static str, dtype: &str, place: crate::Place, t: &Tensor) -> Result<(), CallError> {
    crate::call::same_dtype(what, dtype, t)?;
    crate::view::check_place(what, &t.name, place, crate::Place::Host)
}
