//! Programs of programs on a card: the steps are the host's, values stay in the card's memory, and
//! all is given to the call's stream. The host waits only where it has to know a value: for the
//! condition of a branch or of a loop, and for what a function of the host reads.
use super::{
    CudaError, Loaded, Mode, arguments,
    call::Watch,
    memory::{Memory, copy_on_card},
    plan::{Addresses, Plan},
    recent::Recent,
    staging::Staging,
    state::PLANS,
    stream::{Event, Stream},
};
use crate::{
    Buffer, CallError, Place, View, ViewMut,
    call::tensor_error,
    control::{
        Flow, Step,
        run::{self, Machine, Run},
    },
    custom::CustomFn,
    profile::Profile,
};
use cudarc::driver::{result, sys};

/// A copy of rows takes distances up to some 2 GiB.
const WIDEST: usize = 1 << 30;

/// What a program of programs has in place of kernels.
pub struct Control {
    pub(super) flow: Flow,
    pub(super) parts: Vec<Loaded>,
}

/// What a call of a program of programs keeps beside what every call does.
#[derive(Default)]
pub struct Between {
    /// Memory of values; as many values lie in each as the run says.
    values: Vec<Memory>,
    /// Where conditions are copied to.
    flag: Option<Flag>,
    parts: Vec<Part>,
}

/// What a call keeps for one of the programs.
struct Part {
    arena: Memory,
    plans: Recent<Plan>,
    at: Addresses,
    events: Vec<Event>,
}

/// A byte of pinned memory.
struct Flag(*mut u8);
// SAFETY: memory of the driver's, owned by this.
unsafe impl Send for Flag {}

impl Drop for Flag {
    fn drop(&mut self) {
        // SAFETY: allocated by the driver; the copies have been waited for.
        let _ = unsafe { result::free_host(self.0.cast()) };
    }
}

impl Between {
    /// Bytes of memory between programs, and between their kernels.
    pub fn bytes(&self) -> usize {
        self.values.iter().map(Memory::len).sum::<usize>()
            + self.parts.iter().map(|p| p.arena.len()).sum::<usize>()
    }
}

/// What goes on between programs, in words: why they are no graph together.
pub(super) fn blockers(flow: &Flow) -> Vec<String> {
    let mut all = vec![];
    flow.control.body.each(&mut |step| {
        let (what, source, why) = match step {
            Step::Call { .. } => return,
            Step::If { source, .. } => {
                ("kiln.if", source, "chooses by a value of the GPU, for which the host waits")
            }
            Step::While { source, .. } => (
                "kiln.while",
                source,
                "goes on by a value of the GPU, for which the host waits each time",
            ),
            Step::Scan { source, .. } => {
                ("kiln.scan", source, "has its programs launched by the host for each slice")
            }
            Step::Custom { source, .. } => {
                ("kiln.custom_call", source, "calls a function of the host")
            }
        };
        let place = if source.is_empty() { String::new() } else { format!(" of {source}") };
        all.push(format!("no CUDA graph of the whole program: {what}{place} {why}"));
    });
    all
}

impl Loaded {
    /// Gives the steps of a program of programs to a stream, as often as is watched. The times of
    /// rounds, or of all launches of each kind.
    pub(super) fn steps(
        &self,
        control: &Control,
        plan: &Plan,
        (between, staging): (&mut Between, &mut Staging),
        (at, stream): (&Addresses, Stream),
        (watch, marks): (Watch, &[Event]),
    ) -> Result<Option<Profile>, CallError> {
        let pointer =
            |all: &[u64]| all.iter().map(|a| run::Place::of(*a as *mut u8)).collect::<Vec<_>>();
        let (inputs, outputs) = (pointer(&at.inputs), pointer(&at.outputs));
        let (mut marks, (rounds, calls)) = (marks.iter(), watch.rounds());
        let mut mark = || marks.next().map_or(Ok(()), |e| e.record(&self.device, stream));
        if between.parts.is_empty() {
            let part = |_: &Loaded| Part {
                arena: Memory::none(&self.device),
                plans: Recent::new(PLANS),
                at: Addresses::default(),
                events: vec![],
            };
            between.parts = control.parts.iter().map(part).collect();
        }
        let profile =
            (watch == Watch::Launches).then(|| Profile::of_parts(control.flow.launches()));
        let mut machine = OnCard { loaded: self, control, between, staging, stream, profile };
        mark()?;
        for _ in 0..rounds {
            for _ in 0..calls {
                Run::new(&control.flow, &plan.values, &mut machine).whole(&inputs, &outputs)?;
            }
            mark()?;
        }
        Ok(machine.profile)
    }

    /// A call of a part, with its arguments and results on the card.
    fn part(
        &self,
        part: &mut Part,
        inputs: &[View],
        outputs: &[ViewMut],
        stream: Stream,
        profile: Option<(&mut Profile, usize)>,
    ) -> Result<(), CallError> {
        let (p, device) = (&*self.program, &*self.device);
        if !part.plans.find(|plan| arguments::same_sizes(p, plan, inputs)) {
            part.plans.add(self.plan(inputs)?);
        }
        let Part { arena, plans, at, events } = part;
        let Some(plan) = plans.last() else { return Ok(()) };
        arguments::check_results(p, plan, outputs)?;
        arena.ensure(plan.arena, stream, &|| "memory between kernels".into(), &|| {
            self.planned(None)
        })?;
        at.arena = arena.address();
        at.inputs.clear();
        at.inputs.extend(inputs.iter().map(|v| v.data as u64));
        at.outputs.clear();
        at.outputs.extend(outputs.iter().map(|v| v.data as u64));
        plan.point(at)?;
        // A launch of its own costs less than a graph of few.
        const FEW: usize = 4;
        if self.settings.mode == Mode::ReduceOverhead
            && profile.is_none()
            && plan.launches.len() > FEW
        {
            self.graph(plan, &Default::default())?;
        }
        device.faults.launched(stream, &plan.about);
        let Some((profile, first)) = profile else {
            return Ok(self.kernels(plan, stream, Watch::Nothing, &[])?);
        };
        while events.len() <= p.kernels.len() {
            events.push(Event::timed(device)?);
        }
        let marks = &events[..=p.kernels.len()];
        self.kernels(plan, stream, Watch::Launches, marks)?;
        stream.wait(device)?;
        let times =
            marks.windows(2).map(|e| e[1].since(device, &e[0])).collect::<Result<_, _>>()?;
        profile.add(first, &Profile::of(times));
        Ok(())
    }
}

/// A call on a card.
struct OnCard<'a> {
    loaded: &'a Loaded,
    control: &'a Control,
    between: &'a mut Between,
    staging: &'a mut Staging,
    stream: Stream,
    /// Takes in the times of launches, if somebody wants them.
    profile: Option<Profile>,
}

impl OnCard<'_> {
    /// Again, with what other calls have kept given back, if the card has no memory.
    fn again<T>(
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

impl Machine for OnCard<'_> {
    const ALIGNED: usize = arguments::ALIGNED as usize;

    fn place(&self) -> Place {
        Place::Cuda(self.loaded.device.card().index)
    }
    fn memory(&self) -> Vec<run::Memory> {
        self.between
            .values
            .iter()
            .map(|m| run::Memory { at: m.address() as *mut u8, len: m.len(), users: 0 })
            .collect()
    }
    fn ensure(&mut self, i: usize, bytes: usize) -> Result<(*mut u8, usize), CallError> {
        let loaded = self.loaded;
        if i == self.between.values.len() {
            self.between.values.push(Memory::none(&loaded.device));
        }
        self.again(|this| {
            let kept = this.between.bytes();
            let planned =
                || format!("{}, {kept} bytes between its programs so far", loaded.planned(None));
            let memory = &mut this.between.values[i];
            memory.ensure(bytes, this.stream, &|| "a value between programs".into(), &planned)?;
            Ok((memory.address() as *mut u8, memory.len()))
        })
    }
    fn copy(&mut self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), CallError> {
        Ok(copy_on_card(&self.loaded.device, to as u64, from as u64, bytes, self.stream)?)
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
        if from.1.max(to.1) > WIDEST {
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
        // SAFETY: that many rows are at both places.
        let done = unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.stream.0) }.result();
        Ok(done.map_err(self.loaded.device.error("copying rows on the GPU"))?)
    }
    fn truth(&mut self, at: *const u8) -> Result<bool, CallError> {
        let device = &self.loaded.device;
        let flag = match &self.between.flag {
            Some(flag) => flag.0,
            None => {
                // SAFETY: a fresh allocation, which the flag frees.
                let made = unsafe { result::malloc_host(1, 0) }
                    .map_err(device.error("allocating pinned memory"))?;
                self.between.flag.insert(Flag(made.cast())).0
            }
        };
        // SAFETY: this call's byte, which is read when the copy has been waited for; an i1 is a
        // byte.
        unsafe {
            let copied = result::memcpy_dtoh_async(
                std::slice::from_raw_parts_mut(flag, 1),
                at as u64,
                self.stream.0,
            );
            copied.map_err(device.error("copying from the GPU"))?;
            self.stream.wait(device)?;
            Ok(flag.read_volatile() != 0)
        }
    }
    fn call(
        &mut self,
        part: usize,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError> {
        let first = self.control.flow.first_launch(part);
        self.again(|this| {
            let OnCard { control, between, stream, profile, .. } = this;
            control.parts[part].part(
                &mut between.parts[part],
                inputs,
                outputs,
                *stream,
                profile.as_mut().map(|p| (p, first)),
            )
        })
    }
    /// The function reads copies of its arguments in the host's memory, and its results are copied
    /// to the card.
    fn custom(
        &mut self,
        callee: &str,
        f: &CustomFn,
        inputs: &[View],
        outputs: &mut [ViewMut],
    ) -> Result<(), CallError> {
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
        // Also of none: what happens on the card before the call has happened then.
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
        f(&views, &mut outs).map_err(|e| tensor_error("custom call", callee, e))?;
        drop(outs);
        for (v, b) in outputs.iter().zip(&written) {
            self.staging.upload(v.data as u64, b.bytes(), self.stream, false)?;
        }
        Ok(())
    }
}
