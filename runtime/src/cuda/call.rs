//! Calls of a loaded program: buffers, copies and launches, all enqueued on one stream.
use super::{
    CudaError, Loaded, Mode,
    arguments::{self, Residency},
    driver_message,
    event::{Event, StreamKey},
    graph::Graph,
    launch::ResolvedLaunch,
    memory::copy_on_device,
    nvtx,
    plan::LaunchPlan,
    state::CallState,
    stream::Stream,
};
use crate::{Buffer, Bytes, CallError, DeviceId, View, ViewMut, profile::Profile};
use cudarc::driver::result;
use std::{sync::atomic::Ordering, time::Duration};

/// Durations of rounds or launches, and the profile of a control-flow program.
type Timed = (Vec<Duration>, Option<Profile>);

/// What is timed with CUDA events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    Nothing,
    /// This many rounds, each of this many runs of all launches.
    Rounds(usize, usize),
    /// Each launch.
    Launches,
}

impl Timing {
    /// Rounds, and runs in each.
    pub fn rounds(self) -> (usize, usize) {
        if let Timing::Rounds(n, calls) = self { (n, calls) } else { (1, 1) }
    }
}

impl Loaded {
    /// Runs a program without inputs and returns its outputs.
    pub fn results(&self) -> Result<Vec<Bytes>, CallError> {
        self.program.results(&mut |outputs| self.call(&[], outputs))
    }

    /// Runs the program and waits for its results. Tensors in device memory are used in place; host
    /// tensors are copied. The call runs on a stream of its own, so device inputs must be written
    /// before it.
    pub fn call(&self, inputs: &[View], outputs: &mut [ViewMut]) -> Result<(), CallError> {
        self.run(inputs, outputs, None, Timing::Nothing).map(drop)
    }

    /// Enqueues the program on the caller's stream. Host inputs have been read when this returns.
    /// The call synchronises with the stream only if an output is in host memory.
    ///
    /// Work enqueued after the call sees its outputs. In any [`Mode`], a call writes no memory of
    /// the caller's other than its outputs.
    ///
    /// # Safety
    /// The stream and all device memory that the views name live until the call has completed on
    /// the stream. No other stream writes inputs or uses outputs meanwhile.
    pub unsafe fn launch(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        stream: Stream,
    ) -> Result<(), CallError> {
        self.run(inputs, outputs, Some(stream), Timing::Nothing).map(drop)
    }

    /// As [`Loaded::call`], with the kernels repeated `calls` times in each of `rounds` rounds,
    /// between one upload and one download. Returns the mean time of a call in each round, from
    /// CUDA events. The events cost about 2 us a round.
    pub fn measure(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        rounds: usize,
        calls: usize,
    ) -> Result<Vec<Duration>, CallError> {
        let (times, _) = self.run(inputs, outputs, None, Timing::Rounds(rounds, calls.max(1)))?;
        Ok(times.into_iter().map(|t| t / calls.max(1) as u32).collect())
    }

    /// As [`Loaded::call`], with the time of each launch from CUDA events, without a CUDA graph.
    /// For control flow these are the launches of [`crate::Program::parts`].
    pub fn profile(&self, inputs: &[View], outputs: &mut [ViewMut]) -> Result<Profile, CallError> {
        let (times, profile) = self.run(inputs, outputs, None, Timing::Launches)?;
        Ok(profile.unwrap_or_else(|| Profile::of(times)))
    }

    fn run(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        stream: Option<Stream>,
        timing: Timing,
    ) -> Result<Timed, CallError> {
        let _current = self.device.enter()?;
        arguments::check(&self.program, inputs, outputs, DeviceId::Cuda(self.device.info().index))?;
        let _range = self.names.last().and_then(|n| nvtx::range(n));
        if let Some(stream) = stream
            && stream.captures(&self.device)?
        {
            // First of all: most driver calls invalidate a capture.
            return Err(CudaError::Stream {
                reason: "is being captured: replays of a graph would share the program's memory",
            }
            .into());
        }
        let key = stream.map(|s| StreamKey::query(&self.device, s)).transpose()?;
        let mut state = self.states.acquire(key)?;
        let outcome = match state.begin(key) {
            Ok(on) => {
                let outcome =
                    self.enqueue(&mut state, inputs, outputs, on, stream.is_none(), timing);
                // Also after an error: copies and launches may be in flight.
                let ended = state.end(on);
                if matches!(outcome, Err(CallError::Cuda(_)))
                    || outcome.is_err() && self.control.is_some()
                {
                    let _ = on.wait(&self.device);
                }
                outcome.and_then(|times| Ok(ended.map(|()| times)?))
            }
            Err(e) => Err(e.into()),
        };
        self.states.release(state);
        outcome
    }

    /// Enqueues a call on a stream. `waits`: synchronises before it returns.
    fn enqueue(
        &self,
        state: &mut CallState,
        inputs: &[View],
        outputs: &mut [ViewMut],
        stream: Stream,
        waits: bool,
        timing: Timing,
    ) -> Result<Timed, CallError> {
        let (p, device) = (&*self.program, &*self.device);
        if !state.plans.find(|plan| arguments::same_sizes(p, plan, inputs.iter().map(|v| v.shape)))
        {
            let shapes: Vec<&[usize]> = inputs.iter().map(|v| v.shape).collect();
            state.plans.add(self.plan(&shapes)?);
        }
        let CallState { plans, known_addresses: known, residency, .. } = state;
        let Some(plan) = plans.last() else { return Ok(Timed::default()) };
        arguments::check_results(p, plan, outputs)?;
        residency.0.clear();
        for ((v, t), n) in inputs.iter().zip(&p.inputs).zip(&plan.inputs) {
            residency.0.push(arguments::input(device, v, &t.name, &t.order, *n, known)?);
        }
        residency.1.clear();
        for ((v, t), n) in outputs.iter().zip(&p.outputs).zip(&plan.outputs) {
            residency.1.push(arguments::output(device, v, &t.name, *n, known)?);
        }
        self.reserve(state, stream)?;
        let CallState {
            plans,
            outputs: results,
            staging,
            control_state,
            events,
            residency,
            at,
            ..
        } = state;
        let Some(plan) = plans.last() else { return Ok(Timed::default()) };
        plan.bind(at)?;
        if self.settings.mode == Mode::ReduceOverhead && timing != Timing::Launches {
            self.graph(plan, residency)?;
        }
        let waits = waits || residency.1.contains(&Residency::Host);
        for ((((v, t), residency), n), to) in
            inputs.iter().zip(&p.inputs).zip(&residency.0).zip(&plan.inputs).zip(&at.inputs)
        {
            match residency {
                Residency::Host => {
                    let mut copy = Buffer::new();
                    let bytes = v.bytes(&t.order, &mut copy)?;
                    // A gathered copy dies with this iteration; the caller's own bytes outlive the
                    // call.
                    staging.upload(*to, bytes, stream, waits && v.is_dense(&t.order))?;
                }
                Residency::Copied(from) => copy_on_device(device, *to, *from, *n, stream)?,
                // A state whose new value has other memory.
                Residency::InPlace(from) if from != to => {
                    copy_on_device(device, *to, *from, *n, stream)?;
                }
                Residency::InPlace(_) | Residency::Empty => {}
            }
        }
        let marks = match timing {
            Timing::Nothing => 0,
            Timing::Rounds(n, _) => n + 1,
            Timing::Launches => p.kernels.len() + 1,
        };
        while events.len() < marks {
            events.push(Event::timed(device)?);
        }
        let marks = &events[..marks];
        let profile = match &self.control {
            Some(control) => {
                self.steps(control, plan, (control_state, staging), (at, stream), (timing, marks))?
            }
            None => {
                device.faults.launched(stream, &plan.fault_info);
                self.kernels(plan, stream, timing, marks)?;
                None
            }
        };
        let mut down = vec![];
        for (((v, residency), n), from) in
            outputs.iter_mut().zip(&residency.1).zip(&plan.outputs).zip(results)
        {
            match residency {
                Residency::Host => down.push((from.address(), v.bytes_mut())),
                Residency::Copied(to) => copy_on_device(device, *to, from.address(), *n, stream)?,
                Residency::InPlace(_) | Residency::Empty => {}
            }
        }
        if !down.is_empty() {
            staging.download(&mut down, stream)?;
        } else if waits {
            stream.wait(device)?;
        }
        Ok((
            marks.windows(2).map(|e| e[1].since(device, &e[0])).collect::<Result<_, _>>()?,
            profile,
        ))
    }

    /// Resolves everything that depends on the call's sizes.
    pub(super) fn plan(&self, shapes: &[&[usize]]) -> Result<LaunchPlan, CallError> {
        let mut plan = LaunchPlan::new(
            &self.program,
            shapes,
            &self.functions,
            &self.addresses,
            self.device.info().processors,
        )?;
        plan.use_libraries(&self.prepared)?;
        if !self.device.dependent_launches() {
            plan.serialize(|_, _| true);
        }
        if let Some(control) = &self.control {
            plan.sizes = self.program.before_reads(&self.program.sizes(shapes)?.0)?;
            plan.values = control.flow.shapes(&self.program, &plan.sizes)?;
        }
        Ok(plan)
    }

    /// All launches, repeated as `timing` says. The first event is recorded before them, the others
    /// after each launch or round.
    pub(super) fn kernels(
        &self,
        plan: &LaunchPlan,
        stream: Stream,
        timing: Timing,
        marks: &[Event],
    ) -> Result<(), CudaError> {
        let mut next = marks.iter();
        let mut mark = || next.next().map_or(Ok(()), |e| e.record(&self.device, stream));
        let each = timing == Timing::Launches;
        mark()?;
        let (rounds, calls) = timing.rounds();
        for call in 1..=rounds * calls {
            match plan.graph.as_ref().filter(|_| !each) {
                Some(graph) => graph.launch(stream)?,
                None => {
                    for (i, l) in plan.launches.iter().enumerate() {
                        let _range = self.names.get(i).and_then(|n| nvtx::range(n));
                        self.launch_one(l, || plan.fault_info.describe_launch(i), stream)?;
                        if each {
                            mark()?;
                        }
                    }
                }
            }
            if !each && call % calls == 0 {
                mark()?;
            }
        }
        Ok(())
    }

    /// Allocates the call's device buffers and sets the addresses that kernels use. If the device
    /// is out of memory, the buffers that idle states cache are freed first.
    fn reserve(&self, state: &mut CallState, stream: Stream) -> Result<(), CudaError> {
        match self.ensure(state, stream) {
            Err(CudaError::Memory { .. }) if self.states.trim() => {
                self.device.stream().wait(&self.device)?;
                self.ensure(state, stream)
            }
            other => other,
        }
    }

    fn ensure(&self, state: &mut CallState, stream: Stream) -> Result<(), CudaError> {
        let p = &*self.program;
        let CallState { plans, arena, inputs, outputs, residency, at, .. } = state;
        let Some(plan) = plans.last() else { return Ok(()) };
        let copied = |sizes: &[usize], residency: &[Residency]| {
            sizes
                .iter()
                .zip(residency)
                .filter(|(_, w)| !matches!(w, Residency::InPlace(_)))
                .fold(0usize, |all, (n, _)| all.saturating_add(*n))
        };
        let planned = || {
            self.planned(Some((
                plan.arena,
                copied(&plan.inputs, &residency.0),
                copied(&plan.outputs, &residency.1),
            )))
        };
        arena.ensure(plan.arena, stream, &|| "memory between kernels".into(), &planned)?;
        at.arena = arena.address();
        at.inputs.clear();
        for (((memory, residency), n), t) in
            inputs.iter_mut().zip(&residency.0).zip(&plan.inputs).zip(&p.inputs)
        {
            at.inputs.push(match residency {
                Residency::InPlace(address) => *address,
                _ => {
                    memory.ensure(*n, stream, &|| format!("argument '{}'", t.name), &planned)?;
                    memory.address()
                }
            });
        }
        at.outputs.clear();
        for (((memory, residency), n), t) in
            outputs.iter_mut().zip(&residency.1).zip(&plan.outputs).zip(&p.outputs)
        {
            at.outputs.push(match residency {
                Residency::InPlace(address) => *address,
                _ => {
                    memory.ensure(*n, stream, &|| format!("result '{}'", t.name), &planned)?;
                    memory.address()
                }
            });
        }
        at.begin_states(p);
        Ok(())
    }

    /// Instantiates a CUDA graph of the plan's launches, unless the driver refuses it.
    pub(super) fn instantiate(&self, plan: &mut LaunchPlan) -> Result<(), CudaError> {
        match Graph::new(&self.device, &plan.launches, &plan.fault_info) {
            Ok(graph) => {
                plan.graph = Some(graph);
                self.graphs.store(true, Ordering::Relaxed);
            }
            Err(e @ CudaError::Fault { .. }) => return Err(e),
            Err(e) => self.give_up_graph(plan, &e),
        }
        Ok(())
    }

    /// Launches the plan's kernels one by one from now on.
    pub(super) fn give_up_graph(&self, plan: &mut LaunchPlan, why: &CudaError) {
        (plan.graph, plan.no_graph) = (None, true);
        self.remark(format!("no CUDA graph, the kernels are launched one by one: {why}"));
    }

    /// Instantiates the plan's CUDA graph on first use. If the driver refuses it, the kernels are
    /// launched one by one, with a remark.
    pub(super) fn graph(
        &self,
        plan: &mut LaunchPlan,
        residency: &(Vec<Residency>, Vec<Residency>),
    ) -> Result<(), CudaError> {
        if plan.graph.is_some()
            || plan.no_graph
            || self.settings.blocking
            || plan.launches.is_empty()
        {
            return Ok(());
        }
        self.instantiate(plan)?;
        let tensors = self.program.inputs.iter().map(|t| ("argument", t)).zip(&residency.0);
        for ((what, t), residency) in
            tensors.chain(self.program.outputs.iter().map(|t| ("result", t)).zip(&residency.1))
        {
            let why = match residency {
                Residency::Host => "lies in the host's memory",
                Residency::Copied(_) => "does not lie at a multiple of 16 bytes",
                Residency::InPlace(_) | Residency::Empty => continue,
            };
            self.remark(format!(
                "{what} '{}' {why}: it is copied outside of the CUDA graph",
                t.name
            ));
        }
        Ok(())
    }

    fn launch_one(
        &self,
        l: &ResolvedLaunch,
        what: impl Fn() -> String,
        stream: Stream,
    ) -> Result<(), CudaError> {
        if let Some((call, _)) = &l.library {
            call.launch(&l.words, l.scratch, stream.0)?;
            return if self.settings.blocking { stream.wait(&self.device) } else { Ok(()) };
        }
        // SAFETY: the kernel takes as many 64-bit parameters and tensor maps as the program says,
        // and the addresses are of buffers of the planned sizes.
        let launched = unsafe { l.enqueue(stream) };
        // SAFETY: a live stream.
        let over = launched.and_then(|()| {
            if self.settings.blocking {
                unsafe { result::stream::synchronize(stream.0) }
            } else {
                Ok(())
            }
        });
        over.map_err(|e| {
            let what = format!("{}, parameters {:x?}", what(), l.words);
            let fault = self
                .settings
                .blocking
                .then(|| self.device.faults.launch_fault(self.device.info().index, e, &what))
                .flatten();
            let fault = fault.or_else(|| self.device.faults.fault(self.device.info().index, e));
            fault.unwrap_or_else(|| CudaError::Launch { what, reason: driver_message(e) })
        })
    }
}
