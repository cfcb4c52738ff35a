//! One call of a program of programs: where its values lie, and its steps.
use super::{Body, Driver, Step};
use crate::{Buffer, CallError, View, ViewMut, call::tensor_error, profile::Profile};
use std::cell::RefCell;

/// Copies bytes unless they are there already.
pub(super) fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if from != to.cast_const() && bytes > 0 {
        // SAFETY: both are values of that many bytes, which lie apart or are the same.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
    }
}

/// Buffers of a call, with how many values lie in each.
#[derive(Default)]
pub(super) struct Memory {
    pub buffers: Vec<Counted>,
}
#[derive(Default)]
pub(super) struct Counted {
    pub memory: Buffer,
    pub users: usize,
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
pub(super) struct Place {
    pub data: *mut u8,
    pub buffer: Option<usize>,
}

/// What reads values and writes new ones, on at most so many threads.
type Work<'a> = dyn Fn(&[View], &mut [ViewMut], usize) -> Result<(), CallError> + 'a;

/// One call on its way.
pub(super) struct Run<'a> {
    pub driver: &'a Driver,
    /// Sizes and bytes of all values.
    pub shapes: &'a [(Vec<usize>, usize)],
    pub places: Vec<Option<Place>>,
    /// Where a value should be written, if somebody wants it there.
    pub wanted: Vec<Option<Place>>,
    pub memory: Memory,
    pub threads: usize,
    /// Takes in the times of launches, if somebody wants them.
    pub profile: Option<Profile>,
}

impl Run<'_> {
    pub fn place(&self, value: usize) -> Result<Place, CallError> {
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

    pub fn steps(&mut self, steps: &[Step]) -> Result<(), CallError> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<(), CallError> {
        match step {
            Step::Call { part, inputs, results } => {
                let (driver, profile) = (self.driver, self.profile.take().map(RefCell::new));
                let done = self.run(inputs, results, &|inputs, outputs, threads| match &profile {
                    None => driver.parts[*part].call(inputs, outputs, threads),
                    Some(all) => {
                        let one = driver.parts[*part].profile(inputs, outputs, threads)?;
                        all.borrow_mut().add(driver.first_launch(*part), &one);
                        Ok(())
                    }
                });
                self.profile = profile.map(RefCell::into_inner);
                done
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
    fn run(&mut self, inputs: &[usize], results: &[usize], f: &Work) -> Result<(), CallError> {
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
