//! A call with resolved sizes: its memory, and its launches, which lack only addresses. Plans are
//! cached by input shapes.
use super::{
    CudaError,
    fault::Launches,
    flow_memory::{FlowMemory, WORKSPACE_ALIGNMENT},
    graph::Graph,
    launch::{Addresses, ParameterSource, ResolvedLaunch, UnboundTensorMap},
    libraries::PreparedCall,
    lru::LruCache,
};
use crate::{
    CallError, OutOfMemory, Program,
    control::Shape,
    program::{Arg, CallSizes, Dim, Tensor},
    view::tensor_bytes,
};
use cudarc::driver::sys;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Plans of concurrent calls, by the inputs' shapes.
pub struct SharedPlans(Mutex<LruCache<LaunchPlan>>);

impl SharedPlans {
    /// An empty cache of at most `most` plans.
    pub fn new(most: usize) -> SharedPlans {
        SharedPlans(Mutex::new(LruCache::new(most)))
    }
    /// The cache, for the time of one call.
    pub fn lock(&self) -> MutexGuard<'_, LruCache<LaunchPlan>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that follows from a call's sizes.
pub struct LaunchPlan {
    /// The shapes of all inputs, concatenated.
    pub shapes: Vec<usize>,
    /// The shapes of all outputs, concatenated.
    pub results: Vec<usize>,
    /// Bytes of the arena.
    pub arena: usize,
    /// Bytes of each input.
    pub inputs: Vec<usize>,
    /// Bytes of each output.
    pub outputs: Vec<usize>,
    /// Shapes and bytes of the values of a control-flow program; `None` of those whose sizes it
    /// reads.
    pub values: Vec<Option<Shape>>,
    /// The sizes of a control-flow program, before it reads any.
    pub sizes: CallSizes,
    /// The memory of a control-flow program's call in the caller's memory.
    pub flow: Option<FlowMemory>,
    /// In launch order.
    pub launches: Vec<ResolvedLaunch>,
    /// The addresses that the launches' parameters hold.
    pub at: Option<Addresses>,
    /// The instantiated CUDA graph, if there is one.
    pub graph: Option<Graph>,
    /// Whether the driver refused the graph.
    pub no_graph: bool,
    /// Calls in the caller's memory.
    pub calls: u32,
    /// For fault reports.
    pub fault_info: Arc<Launches>,
}

impl LaunchPlan {
    /// Resolves a call. `shapes` are the inputs', `functions` the kernels by launch, `globals`
    /// device addresses, `processors` the number of SMs.
    pub fn new(
        program: &Arc<Program>,
        shapes: &[&[usize]],
        functions: &[sys::CUfunction],
        globals: &[u64],
        processors: u32,
    ) -> Result<LaunchPlan, CallError> {
        let p = &**program;
        let (symbols, exprs) = p.sizes(shapes)?;
        let value = |d: Dim| d.value(&symbols, &exprs);
        let all_bytes =
            |what: &'static str, shapes: &mut dyn Iterator<Item = (&[usize], &Tensor)>| {
                shapes
                    .map(|(s, t)| tensor_bytes(what, &t.name, &t.dtype, s))
                    .collect::<Result<Vec<usize>, _>>()
            };
        let (results, arena) = (p.output_shapes(shapes)?, p.arena.size(&symbols, &exprs)?);
        let mut launches = vec![];
        for (i, (k, f)) in p.kernels.iter().zip(functions).enumerate() {
            let fail = |reason: String| CudaError::Launch {
                what: format!("kernel {} (launch {i})", k.name),
                reason,
            };
            let l = k
                .launch
                .as_ref()
                .ok_or_else(|| fail("the program does not say how it is launched".into()))?;
            let (mut sources, mut words) = (vec![], vec![]);
            for a in &l.args {
                let missing = || fail(format!("there is no {a:?}"));
                let (source, word) = match a {
                    Arg::Input(i) if *i < p.inputs.len() => (ParameterSource::Input(*i, 0), 0),
                    Arg::Output(i) if *i < p.outputs.len() => (ParameterSource::Output(*i, 0), 0),
                    Arg::InputAt(i, d) if *i < p.inputs.len() => {
                        (ParameterSource::Input(*i, d.size(&symbols, &exprs)? as u64), 0)
                    }
                    Arg::OutputAt(i, d) if *i < p.outputs.len() => {
                        (ParameterSource::Output(*i, d.size(&symbols, &exprs)? as u64), 0)
                    }
                    Arg::Input(_) | Arg::Output(_) | Arg::InputAt(..) | Arg::OutputAt(..) => {
                        return Err(missing().into());
                    }
                    Arg::Global(i) => {
                        (ParameterSource::Fixed, *globals.get(*i).ok_or_else(missing)?)
                    }
                    Arg::Arena(d) => {
                        let offset = d.size(&symbols, &exprs)?;
                        if offset > arena {
                            let reason = format!("byte {offset} of the arena, which has {arena}");
                            return Err(fail(reason).into());
                        }
                        (ParameterSource::Arena(offset as u64), 0)
                    }
                    Arg::Size(d) => (ParameterSource::Fixed, value(*d)? as u64),
                };
                sources.push(source);
                words.push(word);
            }
            let blocks = value(l.grid)?;
            if l.entry.is_some() && i32::try_from(blocks).is_err() {
                return Err(fail(format!(
                    "{blocks} blocks are asked for, of which a launch has at most {}",
                    i32::MAX
                ))
                .into());
            }
            let mut grid = u32::try_from(blocks.clamp(1, i64::from(i32::MAX))).unwrap_or(1);
            if l.resident > 0 {
                grid = grid.min(l.resident.saturating_mul(processors).max(1));
            }
            let mut unbound = vec![];
            for m in &l.maps {
                let numbers =
                    |all: &[Dim]| all.iter().map(|d| value(*d)).collect::<Result<Vec<i64>, _>>();
                if m.arg >= words.len() {
                    return Err(fail(format!("there is no parameter {}", m.arg)).into());
                }
                let first = m.offset.size(&symbols, &exprs)? as u64;
                let width = crate::view::byte_size(&m.dtype).unwrap_or(2) as u64;
                let offset = first
                    .checked_mul(width)
                    .ok_or_else(|| fail(format!("element {first} of a tensor, as its first")))?;
                let (sizes, strides) = (numbers(&m.sizes)?, numbers(&m.strides)?);
                unbound.push(UnboundTensorMap {
                    arg: m.arg,
                    dtype: m.dtype.clone(),
                    offset,
                    sizes,
                    strides,
                    extent: m.extent.clone(),
                    window: m.window,
                });
            }
            let mut launch =
                ResolvedLaunch::new(*f, (grid, l.threads, l.shared), sources, words, unbound);
            // What runs before the program is the caller's.
            launch.dependent = l.dependent && i > 0;
            launches.push(launch);
        }
        let about =
            Launches { program: program.clone(), grids: launches.iter().map(|l| l.grid).collect() };
        Ok(LaunchPlan {
            shapes: shapes.concat(),
            arena,
            inputs: all_bytes("input", &mut shapes.iter().copied().zip(&p.inputs))?,
            outputs: all_bytes("output", &mut results.iter().map(Vec::as_slice).zip(&p.outputs))?,
            results: results.concat(),
            values: vec![],
            sizes: CallSizes::default(),
            flow: None,
            launches,
            at: None,
            graph: None,
            no_graph: false,
            calls: 0,
            fault_info: about.into(),
        })
    }

    /// Replaces launches by library calls. They run one after another, so they share one workspace,
    /// placed after the program's arena.
    pub fn use_libraries(
        &mut self,
        prepared: &[Option<Arc<PreparedCall>>],
    ) -> Result<(), OutOfMemory> {
        let Some(most) = prepared.iter().flatten().map(|c| c.workspace()).max() else {
            return Ok(());
        };
        let room = self.arena.checked_next_multiple_of(WORKSPACE_ALIGNMENT);
        let (begin, end) = room
            .and_then(|begin| Some((begin, begin.checked_add(most)?)))
            .ok_or_else(|| OutOfMemory::new(None, "the arena and a library's workspace"))?;
        self.arena = end;
        for (launch, call) in self.launches.iter_mut().zip(prepared) {
            launch.library = call.clone().map(|c| (c, begin as u64));
        }
        self.serialize(|launch, before| launch.library.is_some() || before.library.is_some());
        Ok(())
    }

    /// Orders launches completely after the ones before them, where `wanted` says so of both.
    pub fn serialize(&mut self, wanted: impl Fn(&ResolvedLaunch, &ResolvedLaunch) -> bool) {
        for i in 1..self.launches.len() {
            let wanted = wanted(&self.launches[i], &self.launches[i - 1]);
            self.launches[i].dependent &= !wanted;
        }
    }

    /// Sets the addresses, and patches the graph's nodes whose parameters change.
    pub fn bind(&mut self, to: &Addresses) -> Result<(), CudaError> {
        if self.at.as_ref() == Some(to) {
            return Ok(());
        }
        // Mixed addresses are no call's until the loop is through.
        self.at = None;
        let mut stale = false;
        for (i, launch) in self.launches.iter_mut().enumerate() {
            if launch.bind(to, &self.fault_info.program.kernels[i].name)?
                && let Some(graph) = &self.graph
            {
                match graph.patch(i, launch, &self.fault_info) {
                    // A library may launch another number of nodes, which cannot be patched.
                    Err(_) if launch.library.is_some() => stale = true,
                    other => other?,
                }
            }
        }
        if stale {
            self.graph = None;
        }
        self.at = Some(to.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Expr, ExprKind, Kernel, Launch, Symbol};

    fn program() -> Arc<Program> {
        let tensor = |name: &str| Tensor {
            name: name.into(),
            dtype: "f32".into(),
            dims: vec![Dim::Symbol(0), Dim::Known(4)],
            order: vec![],
        };
        let launch = |args: Vec<Arg>| {
            Some(Launch {
                args,
                grid: Dim::Expr(0),
                resident: 0,
                threads: 64,
                shared: 0,
                maps: vec![],
                library: None,
                dependent: false,
                entry: None,
            })
        };
        let kernel = |args| Kernel { launch: launch(args), ..Default::default() };
        Arc::new(Program {
            inputs: vec![tensor("x")],
            outputs: vec![tensor("y")],
            symbols: vec![Symbol {
                name: "s".into(),
                min: 0,
                max: None,
                divisor: 1,
                input: 0,
                dim: 0,
            }],
            exprs: vec![Expr { kind: ExprKind::Mul, lhs: Dim::Symbol(0), rhs: Dim::Known(16) }],
            kernels: vec![
                kernel(vec![Arg::Input(0), Arg::Arena(Dim::Known(32)), Arg::Size(Dim::Symbol(0))]),
                kernel(vec![Arg::Arena(Dim::Known(32)), Arg::Global(0), Arg::Output(0)]),
            ],
            arena: Dim::Expr(0),
            ..Default::default()
        })
    }

    #[test]
    fn sizes_first_and_addresses_later() {
        let none = std::ptr::null_mut();
        let mut plan =
            LaunchPlan::new(&program(), &[&[3, 4]], &[none, none], &[77], 132).expect("a plan");
        assert_eq!(
            (plan.arena, &plan.inputs[..], &plan.outputs[..], &plan.results[..]),
            (48, &[48][..], &[48][..], &[3, 4][..])
        );
        assert_eq!(plan.fault_info.grids, [48, 48]);
        let mut at = Addresses { arena: 1000, inputs: vec![1], outputs: vec![2] };
        plan.bind(&at).expect("no descriptions");
        let words = |p: &LaunchPlan| p.launches.iter().map(|l| l.words.clone()).collect::<Vec<_>>();
        assert_eq!(words(&plan), [vec![1, 1032, 3], vec![1032, 77, 2]]);
        assert_eq!(unsafe { *plan.launches[1].params[2].cast::<u64>() }, 2);
        at.outputs[0] = 9;
        assert!(!plan.launches[0].bind(&at, "k").expect("no descriptions"), "it has no result");
        plan.bind(&at).expect("no descriptions");
        assert_eq!(
            (words(&plan)[1].clone(), unsafe { *plan.launches[1].params[2].cast::<u64>() }),
            (vec![1032, 77, 9], 9)
        );
    }

    #[test]
    fn a_launch_depends_on_the_one_before_it_in_its_program() {
        let mut p = Program::clone(&program());
        for k in &mut p.kernels {
            k.launch.as_mut().expect("a launch").dependent = true;
        }
        let none = std::ptr::null_mut();
        let mut plan =
            LaunchPlan::new(&Arc::new(p), &[&[3, 4]], &[none, none], &[77], 132).expect("a plan");
        let all = |plan: &LaunchPlan| plan.launches.iter().map(|l| l.dependent).collect::<Vec<_>>();
        assert_eq!(all(&plan), [false, true], "what runs before the program is not known");
        plan.serialize(|_, before| before.library.is_some());
        assert_eq!(all(&plan), [false, true]);
        plan.serialize(|_, _| true);
        assert_eq!(all(&plan), [false, false]);
    }

    #[test]
    fn what_a_program_does_not_have_is_an_error() {
        let mut p = Program::clone(&program());
        let none = std::ptr::null_mut();
        let said = |p: &Program, globals: &[u64]| {
            let plan =
                LaunchPlan::new(&Arc::new(p.clone()), &[&[3, 4]], &[none, none], globals, 132);
            plan.err().expect("refused").to_string()
        };
        assert!(said(&p, &[]).contains("there is no Global(0)"));
        // kiln's own kernels loop over the grid; an external PTX kernel needs every CTA.
        let many = |p: &Program| {
            LaunchPlan::new(&Arc::new(p.clone()), &[&[1 << 28, 4]], &[none, none], &[77], 132)
        };
        assert_eq!(many(&p).expect("a plan").fault_info.grids, [i32::MAX as u32; 2]);
        let own = p.kernels[0].launch.as_mut().expect("a launch");
        own.entry = Some("mine".into());
        let refused = many(&p).err().expect("refused").to_string();
        assert!(
            refused.contains(
                "4294967296 blocks are asked for, of which a launch has at most 2147483647"
            ),
            "{refused}"
        );
        p.kernels[0].launch = None;
        assert!(said(&p, &[77]).contains("does not say how it is launched"));
    }
}
