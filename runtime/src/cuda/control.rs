//! Control flow between programs on a GPU. Values stay in device memory and everything is enqueued
//! on the call's stream. The host synchronises only to read a condition, or the inputs of a host
//! function.
use super::{
    CudaError, Loaded, Mode, arguments,
    call::Timing,
    control_state::{ControlState, PartState, Pinned},
    event::Event,
    flow_memory::GivenMemory,
    launch::Addresses,
    load::Control,
    lru::LruCache,
    memory::{DeviceBuffer, copy_on_device},
    outcome::Outcome,
    plan::LaunchPlan,
    staging::Staging,
    state::MAX_PLANS,
    stream::Stream,
};
use crate::{
    Buffer, CallError, DeviceId, View, ViewMut,
    call_error::tensor_error,
    control::{
        Shape,
        run::{self, Backend, Interpreter},
    },
    custom::CustomFn,
    profile::Profile,
    program::CallSizes,
};
use cudarc::driver::{result, sys};

/// `cuMemcpy2DAsync` takes pitches up to about 2 GiB.
const MAX_PITCH: usize = 1 << 30;

impl Loaded {
    /// Enqueues the control flow as often as `timing` says. Returns the times of rounds, or those
    /// of all launches of each kernel.
    pub(super) fn steps(
        &self,
        control: &Control,
        plan: &LaunchPlan,
        (control_state, staging): (&mut ControlState, &mut Staging),
        (at, stream): (&Addresses, Stream),
        (timing, marks): (Timing, &[Event]),
    ) -> Result<Option<Profile>, CallError> {
        let (inputs, outputs) = (locations(&at.inputs), locations(&at.outputs));
        let (mut marks, (rounds, calls)) = (marks.iter(), timing.rounds());
        let mut mark = || marks.next().map_or(Ok(()), |e| e.record(&self.device, stream));
        let mut backend = self.on_device(control, (control_state, staging), stream);
        backend.profile =
            (timing == Timing::Launches).then(|| Profile::of_parts(control.flow.launches()));
        mark()?;
        for _ in 0..rounds {
            for _ in 0..calls {
                Interpreter::new(
                    &control.flow,
                    &self.program,
                    &plan.sizes,
                    &plan.values,
                    &mut backend,
                )
                .execute(&inputs, &outputs)?;
            }
            mark()?;
        }
        Ok(backend.profile)
    }

    /// The control flow once, in the caller's memory.
    pub(super) fn steps_in(
        &self,
        control: &Control,
        (sizes, values): (&CallSizes, &[Option<Shape>]),
        (control_state, staging): (&mut ControlState, &mut Staging),
        (at, given): (&Addresses, &GivenMemory),
        stream: Stream,
    ) -> Result<(), CallError> {
        let mut backend = self.on_device(control, (control_state, staging), stream);
        backend.given = Some(given);
        Interpreter::new(&control.flow, &self.program, sizes, values, &mut backend)
            .execute(&locations(&at.inputs), &locations(&at.outputs))
    }

    /// A call, in memory of its own. What each program keeps between calls is empty at the first
    /// one.
    fn on_device<'a>(
        &'a self,
        control: &'a Control,
        (control_state, staging): (&'a mut ControlState, &'a mut Staging),
        stream: Stream,
    ) -> OnDevice<'a> {
        let part = |_: &Loaded| PartState {
            arena: DeviceBuffer::none(&self.device),
            plans: LruCache::new(MAX_PLANS),
            at: Addresses::default(),
            events: vec![],
        };
        if control_state.parts.is_empty() {
            control_state.parts = control.parts.iter().map(part).collect();
        }
        let (profile, given) = (None, None);
        OnDevice { loaded: self, control, control_state, staging, stream, profile, given }
    }

    /// Calls one program, with inputs and outputs in device memory. `scratch` is the caller's
    /// memory for its arena, if there is any.
    fn call_part(
        &self,
        part: &mut PartState,
        scratch: Option<u64>,
        inputs: &[View],
        outputs: &[ViewMut],
        stream: Stream,
        profile: Option<(&mut Profile, usize)>,
    ) -> Result<(), CallError> {
        let (p, device) = (&*self.program, &*self.device);
        if !part.plans.find(|plan| arguments::same_sizes(p, plan, inputs.iter().map(|v| v.shape))) {
            let shapes: Vec<&[usize]> = inputs.iter().map(|v| v.shape).collect();
            part.plans.add(self.plan(&shapes)?);
        }
        let PartState { arena, plans, at, events } = part;
        let Some(plan) = plans.last() else { return Ok(()) };
        arguments::check_results(p, plan, outputs)?;
        at.arena = match scratch {
            Some(address) => address,
            None => {
                arena.ensure(plan.arena, stream, &|| "memory between kernels".into(), &|| {
                    self.planned(None)
                })?;
                arena.address()
            }
        };
        at.inputs.clear();
        at.inputs.extend(inputs.iter().map(|v| v.data as u64));
        at.outputs.clear();
        at.outputs.extend(outputs.iter().map(|v| v.data as u64));
        plan.bind(at)?;
        // Below this, separate launches cost less than a graph launch.
        const MIN_GRAPH_LAUNCHES: usize = 4;
        if self.settings.mode == Mode::ReduceOverhead
            && profile.is_none()
            && plan.launches.len() > MIN_GRAPH_LAUNCHES
        {
            self.graph(plan, &Default::default())?;
        }
        device.faults.launched(stream, &plan.fault_info);
        let Some((profile, first)) = profile else {
            return Ok(self.kernels(plan, stream, Timing::Nothing, &[])?);
        };
        while events.len() <= p.kernels.len() {
            events.push(Event::timed(device)?);
        }
        let marks = &events[..=p.kernels.len()];
        self.kernels(plan, stream, Timing::Launches, marks)?;
        stream.wait(device)?;
        let times =
            marks.windows(2).map(|e| e[1].since(device, &e[0])).collect::<Result<_, _>>()?;
        profile.add(first, &Profile::of(times));
        Ok(())
    }
}

/// Addresses of the caller's memory.
pub(super) fn locations(all: &[u64]) -> Vec<run::Location> {
    all.iter().map(|a| run::Location::borrowed(*a as *mut u8)).collect()
}

/// A call on a GPU.
struct OnDevice<'a> {
    loaded: &'a Loaded,
    control: &'a Control,
    control_state: &'a mut ControlState,
    staging: &'a mut Staging,
    stream: Stream,
    /// Collects the launches' times if the caller profiles.
    profile: Option<Profile>,
    /// The caller's memory for values and arenas, in place of the call's own.
    given: Option<&'a GivenMemory>,
}

impl OnDevice<'_> {
    /// Copies bytes to the host, after all earlier operations.
    fn read<const N: usize>(&mut self, at: *const u8) -> Result<[u8; N], CallError> {
        let device = &self.loaded.device;
        let pinned = match &self.control_state.pinned {
            Some(pinned) => pinned.0,
            None => {
                // SAFETY: a fresh allocation, which its owner frees.
                let made = unsafe { result::malloc_host(Pinned::BYTES, 0) }
                    .map_err(device.error("allocating pinned memory"))?;
                self.control_state.pinned.insert(Pinned(made.cast())).0
            }
        };
        const { assert!(N <= Pinned::BYTES, "room for a value") };
        // SAFETY: this call's memory, read after the copy has completed.
        unsafe {
            let copied = result::memcpy_dtoh_async(
                std::slice::from_raw_parts_mut(pinned, N),
                at as u64,
                self.stream.0,
            );
            copied.map_err(device.error("copying from the GPU"))?;
            self.stream.wait(device)?;
            Ok(pinned.cast::<[u8; N]>().read_volatile())
        }
    }
    /// Enqueues a library's function. Returns whether one computes it.
    fn on_device(
        &mut self,
        callee: &str,
        inputs: &[View],
        outputs: &[ViewMut],
    ) -> Result<bool, CallError> {
        let (loaded, functions) = (self.loaded, &self.control.functions);
        let Some(bytes) = functions.scratch(callee, inputs, outputs) else {
            if let Some(why) = functions.refused(callee) {
                loaded.on_host(callee, why);
            }
            return Ok(false);
        };
        let scratch = match self.given {
            Some(given) => given.scratch,
            None => self.retry(|this| {
                let memory = this.control_state.scratch(&loaded.device);
                let planned = || loaded.planned(None);
                memory.ensure(bytes, this.stream, &|| "a library's workspace".into(), &planned)?;
                Ok(memory.address())
            })?,
        };
        let on = (&*loaded.device, &mut *self.staging, self.stream);
        match functions.call(callee, (inputs, outputs), scratch, on)? {
            Outcome::Done => Ok(true),
            Outcome::Host(why) => {
                loaded.on_host(callee, &why);
                Ok(false)
            }
        }
    }
    /// Runs `f`. If the device is out of memory, frees what idle states cache and retries once.
    fn retry<T>(
        &mut self,
        mut f: impl FnMut(&mut Self) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        match f(self) {
            Err(CallError::Cuda(CudaError::Memory { .. })) if self.loaded.states.trim() => {
                self.loaded.device.stream().wait(&self.loaded.device)?;
                f(self)
            }
            other => other,
        }
    }
}

impl Backend for OnDevice<'_> {
    const ALIGNMENT: usize = arguments::ALIGNMENT as usize;

    fn device(&self) -> DeviceId {
        DeviceId::Cuda(self.loaded.device.info().index)
    }
    fn memory(&self) -> Vec<run::CountedBuffer> {
        if let Some(given) = self.given {
            return given.buffers();
        }
        self.control_state
            .values
            .iter()
            .map(|m| run::CountedBuffer { at: m.address() as *mut u8, len: m.len(), references: 0 })
            .collect()
    }
    fn ensure(&mut self, i: usize, bytes: usize) -> Result<(*mut u8, usize), CallError> {
        let loaded = self.loaded;
        if self.given.is_some() {
            let reason = format!("buffer {i} of {bytes} bytes is not in the caller's memory");
            return Err(tensor_error("program", &loaded.program.name, reason));
        }
        if i == self.control_state.values.len() {
            self.control_state.values.push(DeviceBuffer::none(&loaded.device));
        }
        self.retry(|this| {
            let kept = this.control_state.bytes();
            let planned =
                || format!("{}, {kept} bytes between its programs so far", loaded.planned(None));
            let memory = &mut this.control_state.values[i];
            memory.ensure(bytes, this.stream, &|| "a value between programs".into(), &planned)?;
            Ok((memory.address() as *mut u8, memory.len()))
        })
    }
    fn copy(&mut self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), CallError> {
        Ok(copy_on_device(&self.loaded.device, to as u64, from as u64, bytes, self.stream)?)
    }
    fn copy_rows(
        &mut self,
        from: (*const u8, usize),
        to: (*mut u8, usize),
        bytes: usize,
        rows: usize,
    ) -> Result<(), CallError> {
        if bytes == 0 || rows == 0 {
            return Ok(());
        }
        if from.1.max(to.1) > MAX_PITCH {
            return (0..rows).try_for_each(|i| {
                self.copy(from.0.wrapping_add(i * from.1), to.0.wrapping_add(i * to.1), bytes)
            });
        }
        let device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: device,
            srcHost: std::ptr::null(),
            srcDevice: from.0 as u64,
            srcArray: std::ptr::null_mut(),
            srcPitch: from.1,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: device,
            dstHost: std::ptr::null_mut(),
            dstDevice: to.0 as u64,
            dstArray: std::ptr::null_mut(),
            dstPitch: to.1,
            WidthInBytes: bytes,
            Height: rows,
        };
        // SAFETY: both sides hold that many rows.
        let done = unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.stream.0) }.result();
        Ok(done.map_err(self.loaded.device.error("copying rows on the GPU"))?)
    }
    fn read_condition(&mut self, at: *const u8) -> Result<bool, CallError> {
        Ok(self.read::<1>(at)? != [0])
    }
    fn read_size(&mut self, at: *const u8) -> Result<i64, CallError> {
        Ok(i64::from_ne_bytes(self.read::<8>(at)?))
    }
    fn call(
        &mut self,
        part: usize,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError> {
        let first = self.control.flow.first_launch(part);
        self.retry(|this| {
            let OnDevice { control, control_state, stream, profile, given, .. } = this;
            control.parts[part].call_part(
                &mut control_state.parts[part],
                given.map(|g| g.scratch),
                inputs,
                outputs,
                *stream,
                profile.as_mut().map(|p| (p, first)),
            )
        })
    }
    /// Runs a function on the GPU where its library is found. Else copies the inputs to the
    /// host, runs the function, and copies its outputs to the device.
    fn custom(
        &mut self,
        callee: &str,
        f: &CustomFn,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError> {
        if self.on_device(callee, inputs, outputs)? {
            return Ok(());
        }
        let bytes = |dtype: &str, shape: &[usize]| {
            crate::view::byte_size(dtype).and_then(|w| crate::view::product(shape, w)).unwrap_or(0)
        };
        let room = |n: usize| Buffer::zeroed(n).map_err(CallError::Memory);
        let mut read = inputs
            .iter()
            .map(|v| room(bytes(v.dtype(), v.shape)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut written = outputs
            .iter()
            .map(|v| room(bytes(v.dtype(), v.shape)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut down: Vec<(u64, &mut [u8])> =
            inputs.iter().zip(&mut read).map(|(v, b)| (v.data as u64, b.bytes_mut())).collect();
        // Even without inputs: synchronises, so that earlier work has completed.
        self.staging.download(&mut down, self.stream)?;
        let views = inputs
            .iter()
            .zip(&read)
            .map(|(v, b)| View::new(v.dtype(), v.shape, b.bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        let out = |(v, b)| -> Result<ViewMut, CallError> {
            let (v, b): (&ViewMut, &mut Buffer) = (v, b);
            ViewMut::new(v.dtype(), v.shape, b.bytes_mut())
        };
        let mut outs = outputs.iter().zip(&mut written).map(out).collect::<Result<Vec<_>, _>>()?;
        f(&views, &mut outs).map_err(|e| tensor_error("custom call", callee, e.to_string()))?;
        drop(outs);
        for (v, b) in outputs.iter().zip(&written) {
            self.staging.upload(v.data as u64, b.bytes(), self.stream, false)?;
        }
        Ok(())
    }
}
