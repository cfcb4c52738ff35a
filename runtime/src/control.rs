//! Control flow between programs: what chooses, repeats and calls, as plain data, and what runs it.
//!
//! A value is memory of the caller, or of a call's buffers, which are counted: one is free again as soon as no value lies in it. So a loop takes turns with a few
//! buffers, and calls that follow each other allocate nothing.
use crate::{
    Buffer, CallError, Loaded, Program, View, ViewMut,
    call::tensor_error,
    custom::{self, CustomFn},
    program::{Dim, Tensor},
    view::{byte_size, product},
};
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
        let mut run = Run { driver: self, shapes: &made, places: vec![None; made.len()], wanted: vec![None; made.len()], memory, threads };
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
        let mut memory = run.memory;
        memory.buffers.iter_mut().for_each(|b| b.users = 0);
        lock(&self.idle).push(memory);
        drop(copies);
        done
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(what: &'static str, dtype: &str, place: crate::Place, t: &Tensor) -> Result<(), CallError> {
    crate::call::same_dtype(what, dtype, t)?;
    crate::view::check_place(what, &t.name, place, crate::Place::Host)
}

/// Copies bytes unless they are there already.
fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if from != to.cast_const() && bytes > 0 {
        // SAFETY: both are values of that many bytes, which lie apart or are the same.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
    }
}

/// Buffers of a call, with how many values lie in each.
#[derive(Default)]
struct Memory {
    buffers: Vec<Counted>,
}
#[derive(Default)]
struct Counted {
    memory: Buffer,
    users: usize,
}

impl Memory {
    /// A buffer that nothing lies in, of at least that many bytes; the smallest of them. Nobody has it yet.
    fn take(&mut self, bytes: usize) -> Result<Place, CallError> {
        let free = |b: &Counted| b.users == 0;
        let fits = self.buffers.iter().enumerate().filter(|(_, b)| free(b) && b.memory.len() >= bytes);
        let found = fits.min_by_key(|(_, b)| b.memory.len()).map(|(i, _)| i);
        let i = match found.or_else(|| self.buffers.iter().position(free)) {
            Some(i) => i,
            None => {
                self.buffers.push(Counted::default());
                self.buffers.len() - 1
            }
        };
        self.buffers[i].memory.ensure(bytes)?;
        Ok(Place { data: self.buffers[i].memory.as_mut_ptr(), buffer: Some(i) })
    }
    fn hold(&mut self, p: Place) {
        if let Some(b) = p.buffer {
            self.buffers[b].users += 1;
        }
    }
    fn release(&mut self, p: Place) {
        if let Some(b) = p.buffer {
            self.buffers[b].users -= 1;
        }
    }
}

/// Where a value lies, and the buffer that keeps it there.
#[derive(Clone, Copy)]
struct Place {
    data: *mut u8,
    buffer: Option<usize>,
}

/// One call on its way.
struct Run<'a> {
    driver: &'a Driver,
    /// Sizes and bytes of all values.
    shapes: &'a [(Vec<usize>, usize)],
    places: Vec<Option<Place>>,
    /// Where a value should be written, if somebody wants it there.
    wanted: Vec<Option<Place>>,
    memory: Memory,
    threads: usize,
}

impl Run<'_> {
    fn place(&self, value: usize) -> Result<Place, CallError> {
        self.places[value].ok_or_else(|| tensor_error("value", "", format!("{value} is read before it is there")))
    }
    fn all(&self, values: &[usize]) -> Result<Vec<Place>, CallError> {
        values.iter().map(|v| self.place(*v)).collect()
    }
    fn set(&mut self, value: usize, place: Place) {
        self.memory.hold(place);
        if let Some(old) = self.places[value].replace(place) {
            self.memory.release(old);
        }
    }
    fn set_all(&mut self, values: &[usize], places: &[Place]) {
        values.iter().zip(places).for_each(|(v, p)| self.set(*v, *p));
    }
    /// Memory for a result, which it is from now on.
    fn make(&mut self, value: usize) -> Result<Place, CallError> {
        let place = match self.wanted[value] {
            Some(place) => place,
            None => self.memory.take(self.shapes[value].1)?,
        };
        self.set(value, place);
        Ok(place)
    }

    /// Runs a body. Its yields are held; what else it made is let go.
    fn body(&mut self, body: &Body, args: &[Place]) -> Result<Vec<Place>, CallError> {
        self.set_all(&body.args, args);
        self.steps(&body.steps)?;
        let yields = self.all(&body.yields)?;
        yields.iter().for_each(|p| self.memory.hold(*p));
        let results = body.steps.iter().flat_map(|s| match s {
            Step::Call { results, .. } | Step::If { results, .. } | Step::While { results, .. } => results,
            Step::Scan { results, .. } | Step::Custom { results, .. } => results,
        });
        for value in body.args.iter().chain(results) {
            if let Some(old) = self.places[*value].take() {
                self.memory.release(old);
            }
        }
        Ok(yields)
    }
    fn release(&mut self, all: &[Place]) {
        all.iter().for_each(|p| self.memory.release(*p));
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), CallError> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<(), CallError> {
        match step {
            Step::Call { part, inputs, results } => {
                let driver = self.driver;
                self.run(inputs, results, &|inputs, outputs, threads| driver.parts[*part].call(inputs, outputs, threads))
            }
            Step::Custom { callee, inputs, results } => {
                let found = self.driver.customs.iter().find(|(name, _)| name == callee).map(|(_, f)| f.clone());
                let f = found.ok_or_else(|| tensor_error("custom call", callee, "is not registered in this process".into()))?;
                self.run(inputs, results, &|inputs, outputs, _| f(inputs, outputs).map_err(|e| tensor_error("custom call", callee, e)))
            }
            Step::If { condition, then, otherwise, results } => {
                let taken = if self.truth(self.place(*condition)?) { then } else { otherwise };
                let yields = self.body(taken, &[])?;
                self.set_all(results, &yields);
                self.release(&yields);
                Ok(())
            }
            Step::While { inits, condition, body, results } => {
                let mut state = self.all(inits)?;
                state.iter().for_each(|p| self.memory.hold(*p));
                loop {
                    let test = self.body(condition, &state)?;
                    let goes_on = self.truth(test[0]);
                    self.release(&test);
                    if !goes_on {
                        break;
                    }
                    let next = self.body(body, &state)?;
                    self.release(&state);
                    state = next;
                }
                self.set_all(results, &state);
                self.release(&state);
                Ok(())
            }
            Step::Scan { inits, inputs, reverse, body, results } => {
                let (sliced, carried) = (self.all(inputs)?, inits.len());
                let length = self.shapes[inputs[0]].0[0];
                let rows: Vec<usize> = inputs.iter().map(|v| self.shapes[*v].1.checked_div(length).unwrap_or(0)).collect();
                let mut state = self.all(inits)?;
                state.iter().for_each(|p| self.memory.hold(*p));
                let mut stacked = vec![];
                for value in &results[carried..] {
                    stacked.push((self.make(*value)?, self.shapes[*value].1.checked_div(length).unwrap_or(0)));
                }
                let made = &body.yields[carried..];
                for step in 0..length {
                    let i = if *reverse { length - 1 - step } else { step };
                    let row = |(p, bytes): (&Place, &usize)| Place { data: p.data.wrapping_add(i * bytes), ..*p };
                    let args = [state.clone(), sliced.iter().zip(&rows).map(row).collect()].concat();
                    let to: Vec<Place> = stacked.iter().map(|(p, bytes)| row((p, bytes))).collect();
                    // A value that is two rows is written to one of them and copied to the other.
                    made.iter().zip(&to).for_each(|(v, p)| self.wanted[*v] = Some(*p));
                    let yields = self.body(body, &args)?;
                    made.iter().for_each(|v| self.wanted[*v] = None);
                    let (next, rows) = yields.split_at(carried);
                    for ((from, to), (_, bytes)) in rows.iter().zip(&to).zip(&stacked) {
                        copy(from.data, to.data, *bytes);
                    }
                    self.release(rows);
                    self.release(&state);
                    state = next.to_vec();
                }
                self.set_all(&results[..carried], &state);
                self.release(&state);
                Ok(())
            }
        }
    }

    fn truth(&self, p: Place) -> bool {
        // SAFETY: an i1 is a byte, and no value is written while another is read.
        unsafe { *p.data != 0 }
    }

    /// Something that reads values and writes new ones.
    fn run(
        &mut self,
        inputs: &[usize],
        results: &[usize],
        f: &dyn Fn(&[View], &mut [ViewMut], usize) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        let read = self.all(inputs)?;
        let mut written = Vec::with_capacity(results.len());
        for value in results {
            written.push(self.make(*value)?);
        }
        let values = &self.driver.control.values;
        let view = |(v, p): (&usize, &Place)| {
            // SAFETY: a value has the bytes of its sizes, and stays while it is held.
            unsafe { View::at(&values[*v].dtype, &self.shapes[*v].0, None, p.data) }
        };
        let views: Vec<View> = inputs.iter().zip(&read).map(view).collect();
        let out = |(v, p): (&usize, &Place)| {
            // SAFETY: as above; memory of a result is nobody else's.
            unsafe { ViewMut::at(crate::Place::Host, &values[*v].dtype, &self.shapes[*v].0, None, p.data) }
        };
        let mut outs: Vec<ViewMut> = results.iter().zip(&written).map(out).collect();
        f(&views, &mut outs, self.threads)
    }
}
