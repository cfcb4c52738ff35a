//! Calls in memory that is all the caller's, such as that of a framework's caching allocator.
use super::{
    CudaError, Loaded, Settings, Stream,
    arguments::{ALIGNMENT, same_sizes},
    call::Timing,
    launch::Addresses,
    lru::LruCache,
    memory::copy_on_device,
    plan::LaunchPlan,
};
use crate::{CallError, call_error::tensor_error};

/// Fewest launches of a program that a CUDA graph replaces.
const LEAST_LAUNCHES: usize = 2;
/// The call of a plan at which its graph is instantiated, which takes as long as a few calls: a
/// program that is captured by its caller, or called once, has none.
const GRAPH_FROM_CALL: u32 = 3;

/// What a call in the caller's memory allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The shape of each output.
    pub outputs: Vec<Vec<usize>>,
    /// Bytes of the workspace: the program's arena and that of its library calls.
    pub workspace: usize,
}

impl Loaded {
    /// What [`Loaded::launch_in`] needs for inputs of these shapes.
    ///
    /// # Errors
    /// The shapes do not fit the program, or its memory follows from values
    /// ([`Loaded::needs_own_memory`]).
    pub fn allocation(&self, inputs: &[&[usize]]) -> Result<Allocation, CallError> {
        let mut plans = self.workspace_plans.lock();
        let plan = self.planned_for(&mut plans, inputs)?;
        let workspace = match &plan.flow {
            Some(flow) => flow.bytes().unwrap_or(usize::MAX),
            None => plan.arena,
        };
        Ok(Allocation { outputs: self.program.output_shapes(inputs)?, workspace })
    }

    /// Enqueues the program on the caller's stream. All memory is the caller's: addresses of the
    /// inputs and outputs, and of [`Allocation::workspace`] bytes. The host does not wait, and the
    /// stream may be captured into a CUDA graph: nothing of the program's own memory but its
    /// weights is used. With [`Settings::replay`](super::Settings::replay), later calls of
    /// the same shapes launch a CUDA graph, in which addresses that have changed are patched.
    ///
    /// Of control flow with functions of the host the call waits until these have their inputs. Its
    /// stream may not be captured.
    ///
    /// # Errors
    /// As [`Loaded::allocation`]; an address is no multiple of 16 bytes; the driver refuses a
    /// launch; a function of the host fails; control flow on a stream that is being captured.
    ///
    /// # Safety
    /// The addresses are of this device's memory, and hold tensors of the program's dtypes, of
    /// these shapes for inputs and of [`Allocation::outputs`] for outputs, dense in the order that
    /// the program states. The memory and the stream live until the work has completed. Nothing
    /// else uses outputs and workspace meanwhile.
    pub unsafe fn launch_in(
        &self,
        shapes: &[&[usize]],
        inputs: &[u64],
        outputs: &[u64],
        workspace: u64,
        stream: Stream,
    ) -> Result<(), CallError> {
        let p = &self.program;
        for (what, want, have) in
            [("inputs", p.inputs.len(), inputs.len()), ("outputs", p.outputs.len(), outputs.len())]
        {
            if want != have {
                return Err(CallError::Count { what, want, have });
            }
        }
        for (what, tensors, all) in [("input", &p.inputs, inputs), ("output", &p.outputs, outputs)]
        {
            if let Some((t, at)) =
                tensors.iter().zip(all).find(|(_, at)| !at.is_multiple_of(ALIGNMENT))
            {
                let reason = format!("lies at {at:#x}, which is no multiple of {ALIGNMENT} bytes");
                return Err(tensor_error(what, &t.name, reason));
            }
        }
        let _current = self.device.enter()?;
        let mut at =
            Addresses { arena: workspace, inputs: inputs.to_vec(), outputs: outputs.to_vec() };
        at.begin_states(p);
        if let Some(control) = &self.control {
            return self.launch_flow(control, shapes, (&at, stream));
        }
        let mut plans = self.workspace_plans.lock();
        let mut plan = self.planned_for(&mut plans, shapes)?;
        let mut captured = None;
        if self.replays(plan) {
            if stream.captures(&self.device)? {
                // The caller's graph takes the launches. The plan's keeps its addresses.
                plan = captured.insert(self.plan(shapes)?);
            } else {
                plan.calls = plan.calls.saturating_add(1);
                if plan.calls == GRAPH_FROM_CALL {
                    self.instantiate(plan)?;
                }
            }
        }
        for ((from, to), n) in inputs.iter().zip(&at.inputs).zip(&plan.inputs) {
            if from != to {
                copy_on_device(&self.device, *to, *from, *n, stream)?;
            }
        }
        self.device.faults.launched(stream, &plan.fault_info);
        match plan.bind(&at) {
            Err(e) if plan.graph.is_some() && !matches!(e, CudaError::Fault { .. }) => {
                self.give_up_graph(plan, &e);
                plan.bind(&at)?;
            }
            other => other?,
        }
        Ok(self.kernels(plan, stream, Timing::Nothing, &[])?)
    }

    /// Whether later calls launch a CUDA graph.
    fn replays(&self, plan: &LaunchPlan) -> bool {
        let Settings { replay, blocking, nvtx, .. } = self.settings;
        replay && !blocking && !nvtx && plan.launches.len() >= LEAST_LAUNCHES
    }

    /// The plan for these shapes, from the cache or made for it.
    pub(super) fn planned_for<'p>(
        &self,
        plans: &'p mut LruCache<LaunchPlan>,
        shapes: &[&[usize]],
    ) -> Result<&'p mut LaunchPlan, CallError> {
        let (want, have) = (self.program.inputs.len(), shapes.len());
        if want != have {
            return Err(CallError::Count { what: "inputs", want, have });
        }
        if !plans.find(|plan| same_sizes(&self.program, plan, shapes.iter().copied())) {
            let mut plan = self.plan(shapes)?;
            if let Some(control) = &self.control {
                plan.flow = Some(self.flow_memory(control, &plan)?);
            }
            plans.add(plan);
        }
        plans.last().ok_or_else(|| tensor_error("program", &self.program.name, "no plan".into()))
    }
}
