//! The interpreter of control flow: assigns values to buffers and runs the steps, on any device.
use super::{Body, ControlFlow, Shape, Step};
use crate::{
    CallError, OutOfMemory, Program, View, ViewMut, call_error::tensor_error, custom::CustomFn,
    program::CallSizes, view::tensor_bytes,
};
use std::borrow::Cow;

/// A device that runs steps. Addresses are of its memory; operations take effect in order.
pub(crate) trait Backend {
    /// Required alignment of a program's inputs and outputs, in bytes.
    const ALIGNMENT: usize;
    /// The device, for views.
    fn device(&self) -> crate::DeviceId;
    /// The buffers that earlier calls cached.
    fn memory(&self) -> Vec<CountedBuffer>;
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
    fn read_condition(&mut self, at: *const u8) -> Result<bool, CallError>;
    /// Reads an `i64`. Synchronises with all earlier operations.
    fn read_size(&mut self, at: *const u8) -> Result<i64, CallError>;
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
pub(crate) struct CountedBuffer {
    pub at: *mut u8,
    pub len: usize,
    pub references: usize,
}

/// Where a value is, and the buffer that it holds a reference to.
#[derive(Clone, Copy)]
pub(crate) struct Location {
    data: *mut u8,
    buffer: Option<usize>,
}

impl Location {
    /// Memory of the caller, not counted.
    pub fn borrowed(data: *mut u8) -> Location {
        Location { data, buffer: None }
    }
}

/// Slices along the first dimension, aligned for programs.
struct Slices {
    first: Location,
    /// Bytes from one slice to the next.
    pitch: usize,
    /// Bytes of a slice.
    bytes: usize,
}

impl Slices {
    fn slice(&self, i: usize) -> Location {
        Location { data: self.first.data.wrapping_add(i * self.pitch), ..self.first }
    }
}

/// An operation of the device that reads values and writes new ones.
type Operation<'a, M> = dyn Fn(&mut M, &[View], &mut [ViewMut]) -> Result<(), CallError> + 'a;

/// One call in progress.
pub(crate) struct Interpreter<'a, M> {
    flow: &'a ControlFlow,
    program: &'a Program,
    backend: &'a mut M,
    sizes: Cow<'a, CallSizes>,
    /// Shapes and bytes of all values.
    shapes: Cow<'a, [Option<Shape>]>,
    locations: Vec<Option<Location>>,
    /// The preferred destination of a value, if any.
    destinations: Vec<Option<Location>>,
    memory: Vec<CountedBuffer>,
}

impl<'a, M: Backend> Interpreter<'a, M> {
    /// `sizes` and `shapes` are of this call, before it reads sizes.
    pub fn new(
        flow: &'a ControlFlow,
        program: &'a Program,
        sizes: &'a CallSizes,
        shapes: &'a [Option<Shape>],
        backend: &'a mut M,
    ) -> Interpreter<'a, M> {
        let none = vec![None; shapes.len()];
        let memory = backend.memory();
        Interpreter {
            flow,
            program,
            sizes: Cow::Borrowed(sizes),
            shapes: shapes.into(),
            locations: none.clone(),
            destinations: none,
            memory,
            backend,
        }
    }

    fn shape(&self, value: usize) -> Result<&Shape, CallError> {
        self.shapes[value].as_ref().ok_or_else(|| {
            let reason = format!("{value} is used before its size is read");
            tensor_error("value", "", reason)
        })
    }

    /// Err: a result whose size is known now is larger than the caller's memory, which is that of
    /// the sizes' upper bounds.
    fn check_results(&self) -> Result<(), CallError> {
        let p = self.program;
        let (symbols, exprs) = p.before_reads(&self.sizes.symbols)?.at_bounds(p)?;
        for (value, t) in self.flow.control.body.yields.iter().zip(&p.outputs) {
            let Some((shape, bytes)) = &self.shapes[*value] else { continue };
            let room = t.dims.iter().map(|d| d.size(&symbols, &exprs));
            let room = room.collect::<Result<Vec<usize>, _>>()?;
            if *bytes > tensor_bytes("output", &t.name, &t.dtype, &room)? {
                let reason = format!("is {shape:?} here, and its memory that of {room:?}");
                return Err(tensor_error("output", &t.name, reason));
            }
        }
        Ok(())
    }

    /// Runs the top-level body on these arguments, and writes these results.
    pub fn execute(mut self, args: &[Location], results: &[Location]) -> Result<(), CallError> {
        let body = &self.flow.control.body;
        self.set_all(&body.args, args);
        for (value, location) in body.yields.iter().zip(results) {
            // A result that no other one aliases is computed in the caller's memory.
            self.destinations[*value] =
                (body.yields.iter().filter(|y| *y == value).count() == 1).then_some(*location);
        }
        self.steps(&body.steps)?;
        for (value, to) in body.yields.iter().zip(results) {
            let from = self.at(*value)?;
            let bytes = self.shape(*value)?.1;
            self.copy(from, *to, bytes)?;
        }
        Ok(())
    }

    /// Copies a value, unless source and destination are the same.
    fn copy(&mut self, from: Location, to: Location, bytes: usize) -> Result<(), CallError> {
        if from.data == to.data || bytes == 0 {
            Ok(())
        } else {
            self.backend.copy(from.data, to.data, bytes)
        }
    }

    /// The smallest unused buffer of at least that many bytes, or a new one. Takes no reference.
    fn find_buffer(&mut self, bytes: usize) -> Result<Location, CallError> {
        let free = |m: &CountedBuffer| m.references == 0;
        let fits = self.memory.iter().enumerate().filter(|(_, m)| free(m) && m.len >= bytes);
        if let Some((i, m)) = fits.min_by_key(|(_, m)| m.len) {
            return Ok(Location { data: m.at, buffer: Some(i) });
        }
        let i = self.memory.iter().position(free).unwrap_or(self.memory.len());
        let (at, len) = self.backend.ensure(i, bytes)?;
        let grown = CountedBuffer { at, len, references: 0 };
        match self.memory.get_mut(i) {
            Some(m) => *m = grown,
            None => self.memory.push(grown),
        }
        Ok(Location { data: at, buffer: Some(i) })
    }
    fn retain(&mut self, all: &[Location]) {
        all.iter().filter_map(|p| p.buffer).for_each(|b| self.memory[b].references += 1);
    }
    fn release(&mut self, all: &[Location]) {
        all.iter().filter_map(|p| p.buffer).for_each(|b| self.memory[b].references -= 1);
    }

    fn at(&self, value: usize) -> Result<Location, CallError> {
        self.locations[value].ok_or_else(|| {
            tensor_error("value", "", format!("{value} is read before it is defined"))
        })
    }
    fn all(&self, values: &[usize]) -> Result<Vec<Location>, CallError> {
        values.iter().map(|v| self.at(*v)).collect()
    }
    fn set(&mut self, value: usize, location: Location) {
        self.retain(&[location]);
        if let Some(old) = self.locations[value].replace(location) {
            self.release(&[old]);
        }
    }
    fn set_all(&mut self, values: &[usize], locations: &[Location]) {
        values.iter().zip(locations).for_each(|(v, p)| self.set(*v, *p));
    }
    /// Allocates a value and takes a reference for it.
    fn allocate(&mut self, value: usize) -> Result<Location, CallError> {
        self.shape(value)?;
        let location = match self.destinations[value] {
            Some(location) => location,
            None => self.find_buffer(self.shape(value)?.1)?,
        };
        self.set(value, location);
        Ok(location)
    }

    /// Runs a body. Retains the values it yields and releases the others it defined.
    fn body(&mut self, body: &Body, args: &[Location]) -> Result<Vec<Location>, CallError> {
        self.set_all(&body.args, args);
        self.steps(&body.steps)?;
        let yields = self.all(&body.yields)?;
        self.retain(&yields);
        for value in body.args.iter().chain(body.steps.iter().flat_map(Step::results)) {
            if let Some(old) = self.locations[*value].take() {
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
            Step::UnbackedSize { value, result, .. } => {
                let at = self.at(*value)?;
                let read = self.backend.read_size(at.data)?;
                self.sizes.to_mut().read(self.program, read)?;
                self.shapes = self.flow.shapes(self.program, &self.sizes)?.into();
                self.check_results()?;
                // Aligned, and never read, since the value has no elements.
                let nowhere = std::ptr::without_provenance_mut(256);
                self.set_all(result, &[Location::borrowed(nowhere)]);
                Ok(())
            }
            Step::If { condition, then, otherwise, results, .. } => {
                let condition = self.at(*condition)?;
                let taken =
                    if self.backend.read_condition(condition.data)? { then } else { otherwise };
                let yields = self.body(taken, &[])?;
                self.set_all(results, &yields);
                self.release(&yields);
                Ok(())
            }
            Step::While { inits, condition, body, results, .. } => {
                let mut state = self.all(inits)?;
                self.retain(&state);
                loop {
                    let test = self.body(condition, &state)?;
                    let goes_on = self.backend.read_condition(test[0].data)?;
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
        let length = self.shape(inputs[0])?.0.first().copied().unwrap_or(0);
        let mut sliced = vec![];
        for value in inputs {
            let from = self.at(*value)?;
            let rows = self.slices(*value, from, length)?;
            if rows.first.data != from.data {
                self.backend.copy_rows(
                    (from.data, rows.bytes),
                    (rows.first.data, rows.pitch),
                    rows.bytes,
                    length,
                )?;
            }
            sliced.push(rows);
        }
        let (carried, stacks) = results.split_at(inits.len());
        let (mut stacked, mut outputs) = (vec![], vec![]);
        for value in stacks {
            let to = self.allocate(*value)?;
            stacked.push(self.slices(*value, to, length)?);
            outputs.push(to);
        }
        let mut state = self.all(inits)?;
        self.retain(&state);
        let made = &body.yields[inits.len()..];
        for step in 0..length {
            let i = if reverse { length - 1 - step } else { step };
            let args: Vec<Location> =
                state.iter().copied().chain(sliced.iter().map(|r| r.slice(i))).collect();
            // A value that is two slices is written to one of them and copied to the other.
            made.iter().zip(&stacked).for_each(|(v, r)| self.destinations[*v] = Some(r.slice(i)));
            let yields = self.body(body, &args)?;
            made.iter().for_each(|v| self.destinations[*v] = None);
            let (next, rows) = yields.split_at(inits.len());
            for (from, to) in rows.iter().zip(&stacked) {
                self.copy(*from, to.slice(i), to.bytes)?;
            }
            self.release(rows);
            self.release(&state);
            state = next.to_vec();
        }
        for (rows, to) in stacked.iter().zip(&outputs) {
            if rows.first.data != to.data {
                self.backend.copy_rows(
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
    fn slices(&mut self, value: usize, at: Location, length: usize) -> Result<Slices, CallError> {
        let bytes = self.shape(value)?.1.checked_div(length).unwrap_or(0);
        let pitch = bytes.next_multiple_of(M::ALIGNMENT);
        let first = if pitch == bytes || length < 2 {
            at
        } else {
            let bytes = pitch.checked_mul(length);
            self.find_buffer(
                bytes.ok_or_else(|| OutOfMemory::new(None, "slices of a scan's values"))?,
            )?
        };
        self.retain(&[first]);
        Ok(Slices { first, pitch, bytes })
    }

    /// Runs an operation that reads values and writes new ones.
    fn run(
        &mut self,
        inputs: &[usize],
        results: &[usize],
        f: &Operation<M>,
    ) -> Result<(), CallError> {
        let read = self.all(inputs)?;
        let mut written = Vec::with_capacity(results.len());
        for value in results {
            written.push(self.allocate(*value)?);
        }
        inputs.iter().chain(results).try_for_each(|v| self.shape(*v).map(|_| ()))?;
        let (values, shapes) = (&self.flow.control.values, &self.shapes);
        let shape = |v: usize| shapes[v].as_ref().map_or(&[][..], |s| &s.0[..]);
        let device = self.backend.device();
        let view = |(v, p): (&usize, &Location)| {
            // SAFETY: a value has the bytes of its shape, and lives while a reference is held.
            unsafe { View::at(device, &values[*v].dtype, shape(*v), None, p.data) }
        };
        let views: Vec<View> = inputs.iter().zip(&read).map(view).collect();
        let out = |(v, p): (&usize, &Location)| {
            // SAFETY: as above; an output's memory is nobody else's.
            unsafe { ViewMut::at(device, &values[*v].dtype, shape(*v), None, p.data) }
        };
        let mut outs: Vec<ViewMut> = results.iter().zip(&written).map(out).collect();
        f(self.backend, &views, &mut outs)
    }
}
