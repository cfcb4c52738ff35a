//! The interpreter of control flow: assigns values to buffers and runs the steps, on any device.
use super::{Body, Flow, Shape, Step};
use crate::{CallError, OutOfMemory, View, ViewMut, call::tensor_error, custom::CustomFn};

/// A device that runs steps. Addresses are of its memory; operations take effect in order.
pub(crate) trait Machine {
    /// Required alignment of a program's inputs and outputs, in bytes.
    const ALIGNED: usize;
    /// The device, for views.
    fn place(&self) -> crate::Place;
    /// The buffers that earlier calls cached.
    fn memory(&self) -> Vec<Memory>;
    /// Grows a buffer to at least `bytes`, or appends one if the index is the buffer count. Growing
    /// loses the contents. Returns address and size.
    fn ensure(&mut self, buffer: usize, bytes: usize) -> Result<(*mut u8, usize), CallError>;
    /// Copies bytes; source and destination differ.
    fn copy(&mut self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), CallError>;
    /// Copies rows of `bytes` between pitched memory.
    fn copy_rows(
        &mut self,
        from: (*const u8, usize),
        to: (*mut u8, usize),
        bytes: usize,
        rows: usize,
    ) -> Result<(), CallError>;
    /// Reads an `i1`. Synchronises with all earlier operations.
    fn truth(&mut self, at: *const u8) -> Result<bool, CallError>;
    /// Calls a program.
    fn call(
        &mut self,
        part: usize,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError>;
    /// Calls a host function.
    fn custom(
        &mut self,
        callee: &str,
        f: &CustomFn,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError>;
}

/// A buffer and its reference count: the values in it.
pub(crate) struct Memory {
    pub at: *mut u8,
    pub len: usize,
    pub users: usize,
}

/// Where a value is, and the buffer that it holds a reference to.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    data: *mut u8,
    buffer: Option<usize>,
}

impl Place {
    /// Memory of the caller, not counted.
    pub fn of(data: *mut u8) -> Place {
        Place { data, buffer: None }
    }
}

/// Slices along the first dimension, aligned for programs.
struct Rows {
    first: Place,
    /// Bytes from one slice to the next.
    pitch: usize,
    /// Bytes of a slice.
    bytes: usize,
}

impl Rows {
    fn row(&self, i: usize) -> Place {
        Place { data: self.first.data.wrapping_add(i * self.pitch), ..self.first }
    }
}

/// An operation of the device that reads values and writes new ones.
type Work<'a, M> = dyn Fn(&mut M, &[View], &mut [ViewMut]) -> Result<(), CallError> + 'a;

/// One call in progress.
pub(crate) struct Run<'a, M> {
    flow: &'a Flow,
    machine: &'a mut M,
    /// Shapes and bytes of all values.
    shapes: &'a [Shape],
    places: Vec<Option<Place>>,
    /// The preferred destination of a value, if any.
    wanted: Vec<Option<Place>>,
    memory: Vec<Memory>,
}

impl<'a, M: Machine> Run<'a, M> {
    pub fn new(flow: &'a Flow, shapes: &'a [Shape], machine: &'a mut M) -> Run<'a, M> {
        let none = vec![None; shapes.len()];
        let memory = machine.memory();
        Run { flow, shapes, places: none.clone(), wanted: none, memory, machine }
    }

    /// Runs the top-level body on these arguments, and writes these results.
    pub fn whole(mut self, args: &[Place], results: &[Place]) -> Result<(), CallError> {
        let body = &self.flow.control.body;
        self.set_all(&body.args, args);
        for (value, place) in body.yields.iter().zip(results) {
            // A result that no other one aliases is computed in the caller's memory.
            self.wanted[*value] =
                (body.yields.iter().filter(|y| *y == value).count() == 1).then_some(*place);
        }
        self.steps(&body.steps)?;
        for (value, to) in body.yields.iter().zip(results) {
            let from = self.at(*value)?;
            self.copy(from, *to, self.shapes[*value].1)?;
        }
        Ok(())
    }

    /// Copies a value, unless source and destination are the same.
    fn copy(&mut self, from: Place, to: Place, bytes: usize) -> Result<(), CallError> {
        if from.data == to.data || bytes == 0 {
            Ok(())
        } else {
            self.machine.copy(from.data, to.data, bytes)
        }
    }

    /// The smallest unused buffer of at least that many bytes, or a new one. Takes no reference.
    fn take(&mut self, bytes: usize) -> Result<Place, CallError> {
        let free = |m: &Memory| m.users == 0;
        let fits = self.memory.iter().enumerate().filter(|(_, m)| free(m) && m.len >= bytes);
        if let Some((i, m)) = fits.min_by_key(|(_, m)| m.len) {
            return Ok(Place { data: m.at, buffer: Some(i) });
        }
        let i = self.memory.iter().position(free).unwrap_or(self.memory.len());
        let (at, len) = self.machine.ensure(i, bytes)?;
        let grown = Memory { at, len, users: 0 };
        match self.memory.get_mut(i) {
            Some(m) => *m = grown,
            None => self.memory.push(grown),
        }
        Ok(Place { data: at, buffer: Some(i) })
    }
    fn hold(&mut self, all: &[Place]) {
        all.iter().filter_map(|p| p.buffer).for_each(|b| self.memory[b].users += 1);
    }
    fn release(&mut self, all: &[Place]) {
        all.iter().filter_map(|p| p.buffer).for_each(|b| self.memory[b].users -= 1);
    }

    fn at(&self, value: usize) -> Result<Place, CallError> {
        self.places[value]
            .ok_or_else(|| tensor_error("value", "", format!("{value} is read before it is there")))
    }
    fn all(&self, values: &[usize]) -> Result<Vec<Place>, CallError> {
        values.iter().map(|v| self.at(*v)).collect()
    }
    fn set(&mut self, value: usize, place: Place) {
        self.hold(&[place]);
        if let Some(old) = self.places[value].replace(place) {
            self.release(&[old]);
        }
    }
    fn set_all(&mut self, values: &[usize], places: &[Place]) {
        values.iter().zip(places).for_each(|(v, p)| self.set(*v, *p));
    }
    /// Allocates a value and takes a reference for it.
    fn make(&mut self, value: usize) -> Result<Place, CallError> {
        let place = match self.wanted[value] {
            Some(place) => place,
            None => self.take(self.shapes[value].1)?,
        };
        self.set(value, place);
        Ok(place)
    }

    /// Runs a body. Retains the values it yields and releases the others it defined.
    fn body(&mut self, body: &Body, args: &[Place]) -> Result<Vec<Place>, CallError> {
        self.set_all(&body.args, args);
        self.steps(&body.steps)?;
        let yields = self.all(&body.yields)?;
        self.hold(&yields);
        for value in body.args.iter().chain(body.steps.iter().flat_map(Step::results)) {
            if let Some(old) = self.places[*value].take() {
                self.release(&[old]);
            }
        }
        Ok(yields)
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), CallError> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<(), CallError> {
        match step {
            Step::Call { part, inputs, results } => {
                self.run(inputs, results, &|m, inputs, outputs| m.call(*part, inputs, outputs))
            }
            Step::Custom { callee, inputs, results, .. } => {
                let f = self.flow.custom(callee)?;
                self.run(inputs, results, &|m, inputs, outputs| {
                    m.custom(callee, f, inputs, outputs)
                })
            }
            Step::If { condition, then, otherwise, results, .. } => {
                let condition = self.at(*condition)?;
                let taken = if self.machine.truth(condition.data)? { then } else { otherwise };
                let yields = self.body(taken, &[])?;
                self.set_all(results, &yields);
                self.release(&yields);
                Ok(())
            }
            Step::While { inits, condition, body, results, .. } => {
                let mut state = self.all(inits)?;
                self.hold(&state);
                loop {
                    let test = self.body(condition, &state)?;
                    let goes_on = self.machine.truth(test[0].data)?;
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
            Step::Scan { inits, inputs, reverse, body, results, .. } => {
                self.scan(inits, inputs, *reverse, body, results)
            }
        }
    }

    fn scan(
        &mut self,
        inits: &[usize],
        inputs: &[usize],
        reverse: bool,
        body: &Body,
        results: &[usize],
    ) -> Result<(), CallError> {
        let length = self.shapes[inputs[0]].0[0];
        let mut sliced = vec![];
        for value in inputs {
            let from = self.at(*value)?;
            let rows = self.rows(*value, from, length)?;
            if rows.first.data != from.data {
                self.machine.copy_rows(
                    (from.data, rows.bytes),
                    (rows.first.data, rows.pitch),
                    rows.bytes,
                    length,
                )?;
            }
            sliced.push(rows);
        }
        let (carried, stacks) = results.split_at(inits.len());
        let (mut stacked, mut whole) = (vec![], vec![]);
        for value in stacks {
            let to = self.make(*value)?;
            stacked.push(self.rows(*value, to, length)?);
            whole.push(to);
        }
        let mut state = self.all(inits)?;
        self.hold(&state);
        let made = &body.yields[inits.len()..];
        for step in 0..length {
            let i = if reverse { length - 1 - step } else { step };
            let args: Vec<Place> =
                state.iter().copied().chain(sliced.iter().map(|r| r.row(i))).collect();
            // A value that is two slices is written to one of them and copied to the other.
            made.iter().zip(&stacked).for_each(|(v, r)| self.wanted[*v] = Some(r.row(i)));
            let yields = self.body(body, &args)?;
            made.iter().for_each(|v| self.wanted[*v] = None);
            let (next, rows) = yields.split_at(inits.len());
            for (from, to) in rows.iter().zip(&stacked) {
                self.copy(*from, to.row(i), to.bytes)?;
            }
            self.release(rows);
            self.release(&state);
            state = next.to_vec();
        }
        for (rows, to) in stacked.iter().zip(&whole) {
            if rows.first.data != to.data {
                self.machine.copy_rows(
                    (rows.first.data, rows.pitch),
                    (to.data, rows.bytes),
                    rows.bytes,
                    length,
                )?;
            }
        }
        sliced.iter().chain(&stacked).for_each(|r| self.release(&[r.first]));
        self.set_all(carried, &state);
        self.release(&state);
        Ok(())
    }

    /// The slices of a value there; if they would be misaligned, slices of a padded buffer. Takes a
    /// reference.
    fn rows(&mut self, value: usize, at: Place, length: usize) -> Result<Rows, CallError> {
        let bytes = self.shapes[value].1.checked_div(length).unwrap_or(0);
        let pitch = bytes.next_multiple_of(M::ALIGNED);
        let first = if pitch == bytes || length < 2 {
            at
        } else {
            let bytes = pitch.checked_mul(length);
            self.take(bytes.ok_or_else(|| OutOfMemory::new(None, "slices of a scan's values"))?)?
        };
        self.hold(&[first]);
        Ok(Rows { first, pitch, bytes })
    }

    /// Runs an operation that reads values and writes new ones.
    fn run(&mut self, inputs: &[usize], results: &[usize], f: &Work<M>) -> Result<(), CallError> {
        let read = self.all(inputs)?;
        let mut written = Vec::with_capacity(results.len());
        for value in results {
            written.push(self.make(*value)?);
        }
        let (values, place) = (&self.flow.control.values, self.machine.place());
        let view = |(v, p): (&usize, &Place)| {
            // SAFETY: a value has the bytes of its shape, and lives while a reference is held.
            unsafe { View::at(place, &values[*v].dtype, &self.shapes[*v].0, None, p.data) }
        };
        let views: Vec<View> = inputs.iter().zip(&read).map(view).collect();
        let out = |(v, p): (&usize, &Place)| {
            // SAFETY: as above; an output's memory is nobody else's.
            unsafe { ViewMut::at(place, &values[*v].dtype, &self.shapes[*v].0, None, p.data) }
        };
        let mut outs: Vec<ViewMut> = results.iter().zip(&written).map(out).collect();
        f(self.machine, &views, &mut outs)
    }
}
