//! Control flow in the caller's memory: values between programs, and the programs' arenas.
//!
//! Which buffers the interpreter takes follows from sizes alone if no step reads a value. So it
//! runs once on a device without memory, which counts what the interpreter asks for, until it asks
//! for nothing more.
use super::{
    CudaError, Loaded, control,
    flow_memory::{FlowMemory, aligned},
    launch::Addresses,
    load::Control,
    plan::LaunchPlan,
    stream::Stream,
};
use crate::{
    CallError, DeviceId, OutOfMemory, View, ViewMut,
    call_error::tensor_error,
    control::{
        ControlFlow, Step,
        run::{Backend, CountedBuffer, Interpreter},
    },
    custom::CustomFn,
};
use std::{collections::HashMap, ptr::without_provenance_mut};

/// The step whose memory follows from values, if there is one.
fn reads_values(flow: &ControlFlow) -> Option<&'static str> {
    let mut found = None;
    flow.control.body.visit(&mut |step| {
        found = found.or(match step {
            Step::If { .. } => Some("a branch"),
            Step::While { .. } => Some("a loop"),
            Step::UnbackedSize { .. } => Some("a size"),
            Step::Call { .. } | Step::Scan { .. } | Step::Custom { .. } => None,
        });
    });
    found
}

impl Loaded {
    /// Why the program cannot be called in the caller's memory; `None` if it can.
    pub fn needs_own_memory(&self) -> Option<String> {
        let what = reads_values(&self.control.as_ref()?.flow)?;
        Some(format!(
            "has {what} that depends on a value of the GPU, from which its memory follows"
        ))
    }
    /// Whether a call waits for a function of the host, so that no CUDA graph can hold it.
    pub fn calls_host(&self) -> bool {
        let mut calls = false;
        if let Some(control) = &self.control {
            control.flow.control.body.visit(&mut |s| calls |= matches!(s, Step::Custom { .. }));
        }
        calls
    }

    /// The memory for a call of these sizes.
    pub(super) fn flow_memory(
        &self,
        control: &Control,
        plan: &LaunchPlan,
    ) -> Result<FlowMemory, CallError> {
        let wrong = |reason: String| tensor_error("program", &self.program.name, reason);
        if let Some(why) = self.needs_own_memory() {
            return Err(wrong(why));
        }
        let mut measure = Measure {
            loaded: self,
            control,
            memory: FlowMemory { scratch: 0, buffers: vec![] },
            arenas: HashMap::new(),
        };
        loop {
            let before = measure.memory.clone();
            // Distinct addresses, which nothing reads.
            let count = control.flow.control.body.args.len() + self.program.outputs.len();
            let all: Vec<u64> = (1..=count as u64).map(|i| i << 48).collect();
            let (inputs, outputs) = all.split_at(control.flow.control.body.args.len());
            let at = (control::locations(inputs), control::locations(outputs));
            Interpreter::new(&control.flow, &self.program, &plan.sizes, &plan.values, &mut measure)
                .execute(&at.0, &at.1)?;
            if measure.memory == before {
                break;
            }
        }
        let memory = measure.memory;
        memory.bytes().ok_or_else(|| OutOfMemory::new(None, "values between programs"))?;
        Ok(memory)
    }

    /// Runs control flow in the caller's memory. Waits for the GPU where the host computes.
    pub(super) fn launch_flow(
        &self,
        control: &Control,
        shapes: &[&[usize]],
        (at, stream): (&Addresses, Stream),
    ) -> Result<(), CallError> {
        if stream.captures(&self.device)? {
            // First of all: most driver calls invalidate a capture.
            let reason = "is being captured, and no CUDA graph holds what the host computes";
            return Err(CudaError::Stream { reason }.into());
        }
        let (sizes, values, given) = {
            let mut plans = self.workspace_plans.lock();
            let plan = self.planned_for(&mut plans, shapes)?;
            let memory = plan.flow.as_ref().map(|flow| flow.at(at.arena));
            (plan.sizes.clone(), plan.values.clone(), memory)
        };
        let Some(given) = given else { return Ok(()) };
        let key = super::event::StreamKey::query(&self.device, stream)?;
        let mut state = self.states.acquire(Some(key))?;
        let outcome = match state.begin(Some(key)) {
            Ok(stream) => {
                let kept = (&mut state.control_state, &mut state.staging);
                let outcome = self.steps_in(control, (&sizes, &values), kept, (at, &given), stream);
                // Also after an error: copies and launches may be in flight.
                let ended = state.end(stream);
                if outcome.is_err() {
                    let _ = stream.wait(&self.device);
                }
                outcome.and_then(|()| Ok(ended?))
            }
            Err(e) => Err(e.into()),
        };
        self.states.release(state);
        outcome
    }
}

/// A device without memory, which counts what is asked for.
struct Measure<'a> {
    loaded: &'a Loaded,
    control: &'a Control,
    memory: FlowMemory,
    /// Bytes of a program's arena for inputs of these shapes.
    arenas: HashMap<(usize, Vec<Vec<usize>>), usize>,
}

/// The address of a buffer that has none: distinct from those of arguments and of other buffers.
fn nowhere(i: usize) -> *mut u8 {
    without_provenance_mut((i + 1) << 32)
}

impl Measure<'_> {
    fn needs_scratch(&mut self, bytes: usize) -> Result<(), CallError> {
        self.memory.scratch = self.memory.scratch.max(aligned(bytes)?);
        Ok(())
    }
}

impl Backend for Measure<'_> {
    const ALIGNMENT: usize = super::arguments::ALIGNMENT as usize;

    fn device(&self) -> DeviceId {
        DeviceId::Cuda(self.loaded.device.info().index)
    }
    fn memory(&self) -> Vec<CountedBuffer> {
        let one =
            |(i, len): (usize, &usize)| CountedBuffer { at: nowhere(i), len: *len, references: 0 };
        self.memory.buffers.iter().enumerate().map(one).collect()
    }
    fn ensure(&mut self, i: usize, bytes: usize) -> Result<(*mut u8, usize), CallError> {
        let len = aligned(bytes)?;
        match self.memory.buffers.get_mut(i) {
            Some(have) => *have = len.max(*have),
            None => self.memory.buffers.push(len),
        }
        Ok((nowhere(i), self.memory.buffers[i]))
    }
    fn copy(&mut self, _: *const u8, _: *mut u8, _: usize) -> Result<(), CallError> {
        Ok(())
    }
    fn copy_rows(
        &mut self,
        _: (*const u8, usize),
        _: (*mut u8, usize),
        _: usize,
        _: usize,
    ) -> Result<(), CallError> {
        Ok(())
    }
    fn read_condition(&mut self, _: *const u8) -> Result<bool, CallError> {
        Err(tensor_error("program", &self.loaded.program.name, "reads a condition".into()))
    }
    fn read_size(&mut self, _: *const u8) -> Result<i64, CallError> {
        Err(tensor_error("program", &self.loaded.program.name, "reads a size".into()))
    }
    fn call(&mut self, part: usize, inputs: &[View], _: &mut [ViewMut]) -> Result<(), CallError> {
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|v| v.shape.to_vec()).collect();
        let key = (part, shapes);
        let arena = match self.arenas.get(&key) {
            Some(arena) => *arena,
            None => {
                let shapes: Vec<&[usize]> = key.1.iter().map(Vec::as_slice).collect();
                let arena = self.control.parts[part].plan(&shapes)?.arena;
                self.arenas.insert(key, arena);
                arena
            }
        };
        self.needs_scratch(arena)
    }
    fn custom(
        &mut self,
        callee: &str,
        _: &CustomFn,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError> {
        let bytes = self.control.functions.scratch(callee, inputs, outputs);
        self.needs_scratch(bytes.unwrap_or(0))
    }
}
