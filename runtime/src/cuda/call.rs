//! Calling a program on a card: memory, copies, launches, all in the order of one stream.
use super::{
    CudaError, Loaded, Mode,
    arguments::{self, Way},
    graph::Graph,
    memory::copy_on_card,
    nvtx,
    plan::{Plan, Ready},
    state::State,
    stream::{Event, Lane, Stream},
    words,
};
use crate::{Buffer, Bytes, CallError, Place, View, ViewMut, profile::Profile};
use cudarc::driver::{result, sys};
use std::{sync::atomic::Ordering, time::Duration};

/// What was timed: rounds or launches, or the launches of programs that control flow calls.
type Watched = (Vec<Duration>, Option<Profile>);

/// What is timed by the card's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Nothing,
    /// So many rounds of all launches, so many times each.
    Rounds(usize, usize),
    /// Each launch.
    Launches,
}

impl Watch {
    /// How many rounds, and how many calls in each.
    pub fn rounds(self) -> (usize, usize) {
        if let Watch::Rounds(n, calls) = self { (n, calls) } else { (1, 1) }
    }
}

impl Loaded {
    /// The results of a program without inputs.
    pub fn results(&self) -> Result<Vec<Bytes>, CallError> {
        self.program.results(&mut |outputs| self.call(&[], outputs))
    }

    /// Runs the program, and waits for its results. Tensors in the card's memory are read and
    /// written where they lie; arguments there have to be written when this is called, since it
    /// runs on a stream of its own. Those of the host are copied.
    pub fn call(&self, inputs: &[View], outputs: &mut [ViewMut]) -> Result<(), CallError> {
        self.run(inputs, outputs, None, Watch::Nothing).map(drop)
    }

    /// Runs the program in the order of the caller's stream, and returns when all has been given to
    /// it: arguments of the host have been read then. Only if a result belongs into the host's
    /// memory is it waited for. A result is there for whatever comes behind the call on the stream,
    /// and stays until its owner writes to it: calls of any mode write to no other memory of the
    /// caller's than that of this call's results.
    ///
    /// # Safety
    /// The stream lives until the call is over on it; memory on the card that the views name stays
    /// allocated until then, and no other stream uses it in a way that disturbs the call.
    pub unsafe fn launch(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        stream: Stream,
    ) -> Result<(), CallError> {
        self.run(inputs, outputs, Some(stream), Watch::Nothing).map(drop)
    }

    /// As [`Loaded::call`], with all kernels launched that many times in a row between the copies:
    /// in so many rounds, of so many calls each. The time of a call in each round, by the card's
    /// clock. What the clock itself takes, about 2 us a round, is the less of it the more calls
    /// there are.
    pub fn measure(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        rounds: usize,
        calls: usize,
    ) -> Result<Vec<Duration>, CallError> {
        let (times, _) = self.run(inputs, outputs, None, Watch::Rounds(rounds, calls.max(1)))?;
        Ok(times.into_iter().map(|t| t / calls.max(1) as u32).collect())
    }

    /// As [`Loaded::call`], with the time of each launch by the card's clock. There is no graph
    /// then. Of control flow, the launches of [`crate::Program::parts`].
    pub fn profile(&self, inputs: &[View], outputs: &mut [ViewMut]) -> Result<Profile, CallError> {
        let (times, profile) = self.run(inputs, outputs, None, Watch::Launches)?;
        Ok(profile.unwrap_or_else(|| Profile::of(times)))
    }

    fn run(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        stream: Option<Stream>,
        watch: Watch,
    ) -> Result<Watched, CallError> {
        let _current = self.device.enter()?;
        arguments::check(&self.program, inputs, outputs, Place::Cuda(self.device.card().index))?;
        let _range = self.names.last().and_then(|n| nvtx::range(n));
        if let Some(stream) = stream
            && stream.captures(&self.device)?
        {
            // Before anything else, since most of what a call asks the driver ends a capture.
            return Err(CudaError::Stream {
                reason: "is being captured: replays of a graph would share the program's memory",
            }
            .into());
        }
        let lane = stream.map(|s| Lane::of(&self.device, s)).transpose()?;
        let mut state = self.states.take(lane)?;
        let outcome = match state.begin(lane) {
            Ok(on) => {
                let outcome = self.give(&mut state, inputs, outputs, on, stream.is_none(), watch);
                // Also after an error: copies and launches may be under way.
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
        self.states.give(state);
        outcome
    }

    /// Gives a call to a stream. `waits`: until its results are there.
    fn give(
        &self,
        state: &mut State,
        inputs: &[View],
        outputs: &mut [ViewMut],
        stream: Stream,
        waits: bool,
        watch: Watch,
    ) -> Result<Watched, CallError> {
        let (p, device) = (&*self.program, &*self.device);
        if !state.plans.find(|plan| arguments::same_sizes(p, plan, inputs)) {
            state.plans.add(self.plan(inputs)?);
        }
        let State { plans, known, ways, .. } = state;
        let Some(plan) = plans.last() else { return Ok(Watched::default()) };
        arguments::check_results(p, plan, outputs)?;
        ways.0.clear();
        for ((v, t), n) in inputs.iter().zip(&p.inputs).zip(&plan.inputs) {
            ways.0.push(arguments::input(device, v, &t.name, &t.order, *n, known)?);
        }
        ways.1.clear();
        for ((v, t), n) in outputs.iter().zip(&p.outputs).zip(&plan.outputs) {
            ways.1.push(arguments::output(device, v, &t.name, *n, known)?);
        }
        self.reserve(state, stream)?;
        let State {
            plans,
            inputs: copies,
            outputs: results,
            staging,
            between,
            events,
            ways,
            at,
            ..
        } = state;
        let Some(plan) = plans.last() else { return Ok(Watched::default()) };
        plan.point(at)?;
        if self.settings.mode == Mode::ReduceOverhead && watch != Watch::Launches {
            self.graph(plan, ways)?;
        }
        let waits = waits || ways.1.contains(&Way::Host);
        for ((((v, t), way), n), to) in
            inputs.iter().zip(&p.inputs).zip(&ways.0).zip(&plan.inputs).zip(copies)
        {
            match way {
                Way::Host => {
                    let mut copy = Buffer::new();
                    let bytes = v.bytes(&t.order, &mut copy)?;
                    // What was gathered goes with this round of the loop, the caller's own bytes
                    // stay.
                    staging.upload(to.address(), bytes, stream, waits && v.lies(&t.order))?;
                }
                Way::Copied(from) => copy_on_card(device, to.address(), *from, *n, stream)?,
                Way::Here(_) | Way::Empty => {}
            }
        }
        let marks = match watch {
            Watch::Nothing => 0,
            Watch::Rounds(n, _) => n + 1,
            Watch::Launches => p.kernels.len() + 1,
        };
        while events.len() < marks {
            events.push(Event::timed(device)?);
        }
        let marks = &events[..marks];
        let profile = match &self.control {
            Some(control) => {
                self.steps(control, plan, (between, staging), (at, stream), (watch, marks))?
            }
            None => {
                device.faults.launched(stream, &plan.about);
                self.kernels(plan, stream, watch, marks)?;
                None
            }
        };
        let mut down = vec![];
        for (((v, way), n), from) in outputs.iter_mut().zip(&ways.1).zip(&plan.outputs).zip(results)
        {
            match way {
                Way::Host => down.push((from.address(), v.bytes_mut())),
                Way::Copied(to) => copy_on_card(device, *to, from.address(), *n, stream)?,
                Way::Here(_) | Way::Empty => {}
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

    /// What follows from the sizes of a call.
    pub(super) fn plan(&self, inputs: &[View]) -> Result<Plan, CallError> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|v| v.shape).collect();
        let mut plan = Plan::new(
            &self.program,
            &shapes,
            &self.functions,
            &self.addresses,
            self.device.card().processors,
        )?;
        plan.call(&self.called)?;
        if let Some(control) = &self.control {
            let (symbols, exprs) = self.program.sizes(&shapes)?;
            plan.values = control.flow.shapes(&self.program, &symbols, &exprs)?;
        }
        Ok(plan)
    }

    /// All launches, in as many rounds as are watched. The first event is recorded before them, the
    /// others behind each launch or each round.
    pub(super) fn kernels(
        &self,
        plan: &Plan,
        stream: Stream,
        watch: Watch,
        marks: &[Event],
    ) -> Result<(), CudaError> {
        let mut next = marks.iter();
        let mut mark = || next.next().map_or(Ok(()), |e| e.record(&self.device, stream));
        let each = watch == Watch::Launches;
        mark()?;
        let (rounds, calls) = watch.rounds();
        for call in 1..=rounds * calls {
            match plan.graph.as_ref().filter(|_| !each) {
                Some(graph) => graph.launch(stream)?,
                None => {
                    for (i, l) in plan.launches.iter().enumerate() {
                        let _range = self.names.get(i).and_then(|n| nvtx::range(n));
                        self.one(l, || plan.about.one(i), stream)?;
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

    /// Memory for a call, and where its tensors are for the kernels. If there is none, what other
    /// calls have kept goes first.
    fn reserve(&self, state: &mut State, stream: Stream) -> Result<(), CudaError> {
        match self.ensure(state, stream) {
            Err(CudaError::Memory { .. }) if self.states.trim() => {
                self.device.stream().wait(&self.device)?;
                self.ensure(state, stream)
            }
            other => other,
        }
    }

    fn ensure(&self, state: &mut State, stream: Stream) -> Result<(), CudaError> {
        let p = &*self.program;
        let State { plans, arena, inputs, outputs, ways, at, .. } = state;
        let Some(plan) = plans.last() else { return Ok(()) };
        let copied = |sizes: &[usize], ways: &[Way]| {
            sizes
                .iter()
                .zip(ways)
                .filter(|(_, w)| !matches!(w, Way::Here(_)))
                .fold(0usize, |all, (n, _)| all.saturating_add(*n))
        };
        let planned = || {
            self.planned(Some((
                plan.arena,
                copied(&plan.inputs, &ways.0),
                copied(&plan.outputs, &ways.1),
            )))
        };
        arena.ensure(plan.arena, stream, &|| "memory between kernels".into(), &planned)?;
        at.arena = arena.address();
        at.inputs.clear();
        for (((memory, way), n), t) in
            inputs.iter_mut().zip(&ways.0).zip(&plan.inputs).zip(&p.inputs)
        {
            at.inputs.push(match way {
                Way::Here(address) => *address,
                _ => {
                    memory.ensure(*n, stream, &|| format!("argument '{}'", t.name), &planned)?;
                    memory.address()
                }
            });
        }
        at.outputs.clear();
        for (((memory, way), n), t) in
            outputs.iter_mut().zip(&ways.1).zip(&plan.outputs).zip(&p.outputs)
        {
            at.outputs.push(match way {
                Way::Here(address) => *address,
                _ => {
                    memory.ensure(*n, stream, &|| format!("result '{}'", t.name), &planned)?;
                    memory.address()
                }
            });
        }
        Ok(())
    }

    /// Makes the plan's graph if there is none. What the driver refuses is launched one by one,
    /// with a remark.
    pub(super) fn graph(
        &self,
        plan: &mut Plan,
        ways: &(Vec<Way>, Vec<Way>),
    ) -> Result<(), CudaError> {
        if plan.graph.is_some()
            || plan.no_graph
            || self.settings.blocking
            || plan.launches.is_empty()
        {
            return Ok(());
        }
        match Graph::new(&self.device, &plan.launches, &plan.about) {
            Ok(graph) => {
                plan.graph = Some(graph);
                self.graphs.store(true, Ordering::Relaxed);
            }
            Err(e @ CudaError::Fault { .. }) => return Err(e),
            Err(e) => {
                plan.no_graph = true;
                self.remark(format!("no CUDA graph, the kernels are launched one by one: {e}"));
            }
        }
        let tensors = self.program.inputs.iter().map(|t| ("argument", t)).zip(&ways.0);
        for ((what, t), way) in
            tensors.chain(self.program.outputs.iter().map(|t| ("result", t)).zip(&ways.1))
        {
            let why = match way {
                Way::Host => "lies in the host's memory",
                Way::Copied(_) => "does not lie at a multiple of 16 bytes",
                Way::Here(_) | Way::Empty => continue,
            };
            self.remark(format!(
                "{what} '{}' {why}: it is copied outside of the CUDA graph",
                t.name
            ));
        }
        Ok(())
    }

    fn one(&self, l: &Ready, what: impl Fn() -> String, stream: Stream) -> Result<(), CudaError> {
        if let Some((call, _)) = &l.library {
            call.launch(&l.words, l.scratch, stream.0)?;
            return if self.settings.blocking { stream.wait(&self.device) } else { Ok(()) };
        }
        // SAFETY: the kernel takes 64-bit words and then descriptions, as many as the program says,
        // and the addresses are of memory of the planned sizes.
        let launched = unsafe {
            sys::cuLaunchKernel(
                l.function,
                l.grid,
                1,
                1,
                l.threads,
                1,
                1,
                l.shared,
                stream.0,
                l.params(),
                std::ptr::null_mut(),
            )
            .result()
        };
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
                .then(|| self.device.faults.of_launch(self.device.card().index, e, &what))
                .flatten();
            let fault = fault.or_else(|| self.device.faults.of(self.device.card().index, e));
            fault.unwrap_or_else(|| CudaError::Launch { what, reason: words(e) })
        })
    }
}
