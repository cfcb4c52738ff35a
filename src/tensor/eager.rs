//! Eager mode: each op runs as a single-op program, cached by the dtypes and shapes of its
//! operands.
use super::{
    Array, Graph, Tensor, TraceError,
    arg::Arg,
    call_site::CallSite,
    key::{self, Key},
    lock::lock,
    session::Session,
    trace::{Recorded, ResultSource, record},
};
use crate::{
    backend::{self, Backend, Runnable},
    compile::background::{ProgramCompiler, ProgramFuture},
    model::{DeviceId, Options},
    runtime::{DataError, cuda::Mode},
};
use indexmap::IndexMap;
use kiln_dialects::{
    Result,
    ir::{Context, PrintOptions},
};
use std::{
    cell::RefCell,
    sync::{Arc, LazyLock, Mutex, OnceLock},
};

/// Size limit of the cache; the oldest program is evicted first.
const MAX_PROGRAMS: usize = 4096;

/// A program, and the sources of the function's results.
pub(crate) struct Prepared {
    /// `None` if no result needs computing.
    pub program: Option<Arc<ProgramFuture>>,
    result_sources: Vec<ResultSource>,
}

impl Prepared {
    /// Compiles it. Err: the backend rejects it.
    pub fn new(
        name: &str,
        recorded: Recorded,
        program_compiler: &ProgramCompiler,
    ) -> Result<Prepared, crate::Error> {
        let computed = recorded.result_sources.iter().any(|s| matches!(s, ResultSource::Result(_)));
        let program =
            if computed { Some(program_compiler.compile(name, recorded.captured)?) } else { None };
        Ok(Prepared { program, result_sources: recorded.result_sources })
    }
    /// Whether it can run: background compilation has finished and succeeded.
    pub(crate) fn is_ready(&self) -> bool {
        self.program.as_ref().is_none_or(|p| p.ready().is_some())
    }
    /// Runs it. Err: execution failed.
    pub fn run(&self, inputs: &[Arc<Array>]) -> Result<Vec<Arc<Array>>, crate::Error> {
        let missing = || crate::Error::Backend("has no program yet".into());
        let program = self.program.as_ref().map(|p| p.ready().ok_or_else(missing)).transpose()?;
        let computed = computed(program.map(|p| &**p), inputs)?;
        let one = |slot| {
            let found = resolve_slot(slot, &computed, |i| inputs.get(i).cloned())?;
            // A tensor made after another, as by `zeros_like`, is where that one is.
            let ResultSource::Constant(_) = slot else { return Ok(found) };
            let device = device_of(inputs).map_err(|e| crate::Error::Backend(e.to_string()))?;
            Ok(found.beside(device)?)
        };
        self.result_sources.iter().map(one).collect()
    }
}

/// The results of a program; none without one.
fn computed(
    program: Option<&dyn Runnable>,
    inputs: &[Arc<Array>],
) -> Result<Vec<Arc<Array>>, crate::Error> {
    let Some(program) = program else { return Ok(vec![]) };
    let views: Vec<_> = inputs.iter().map(|a| a.as_view()).collect();
    Ok(program.run(&views)?.into_iter().map(Arc::new).collect())
}

/// The GPU that holds one of these at least, else the host. Err: they are on several GPUs.
pub(crate) fn device_of<'a>(arrays: impl IntoIterator<Item = &'a Arc<Array>>) -> Result<DeviceId> {
    common_device(arrays.into_iter().map(|a| a.device()))
}

/// The GPU among these, else the host. Err: there are several.
pub(crate) fn common_device(devices: impl IntoIterator<Item = DeviceId>) -> Result<DeviceId> {
    let mut on = DeviceId::Host;
    for device in devices {
        match (on, device) {
            (_, DeviceId::Host) => {}
            (DeviceId::Host, _) => on = device,
            (a, b) if a == b => {}
            (a, b) => return Err(format!("takes tensors on {a} and on {b}").into()),
        }
    }
    Ok(on)
}

static PROGRAMS: LazyLock<Mutex<IndexMap<Key, Arc<Prepared>>>> = LazyLock::new(Mutex::default);
/// Options from the environment. Errors are not cached, so that fixing the environment helps.
static OPTIONS: OnceLock<Options> = OnceLock::new();

/// Options of single-op programs: in the default mode.
fn options(device: DeviceId) -> Result<Options, crate::Error> {
    if let Some(known) = OPTIONS.get() {
        return Ok(Options { device, ..known.clone() });
    }
    let read = Options::from_env()?;
    let plain = Options {
        device: DeviceId::Host,
        target: None,
        mode: Mode::Default,
        max_autotune: false,
        time_budget: None,
        ..read
    };
    Ok(Options { device, ..OPTIONS.get_or_init(|| plain).clone() })
}

thread_local! {
    static BACKEND: RefCell<Option<Arc<dyn Backend>>> = const { RefCell::new(None) };
}

/// Discards all single-op programs.
pub(crate) fn reset() {
    lock(&PROGRAMS).clear();
    lock(&GRAPHS).clear();
    lock(&NUMBERS).clear();
}

/// Runs `body` with another backend for eager ops, such as `interpreter`; the default is `kiln`.
/// Err: no such backend.
pub fn with_backend<R>(name: &str, body: impl FnOnce() -> R) -> Result<R, crate::Error> {
    struct Restore(Option<Arc<dyn Backend>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            BACKEND.set(self.0.take());
        }
    }
    let backend = backend::find(name)?;
    let _restore = Restore(BACKEND.replace(backend));
    Ok(body())
}

/// Runs a row on concrete tensors. Err: the reason.
pub(super) fn row(
    site: CallSite,
    op: &'static str,
    target: &'static str,
    args: Vec<(&'static str, Arg)>,
) -> Result<Vec<Tensor>> {
    if let Some(lifted) = lift_numbers(target, &args) {
        let key = key::of("", DeviceId::Host, target, &lifted);
        match run_cached(site, op, target, lifted) {
            Ok(made) => return Ok(made),
            // An op that needs static numbers has a program for each.
            Err(_) => drop(lock(&NUMBERS).insert(key, None)),
        }
    }
    run_cached(site, op, target, args)
}

/// Plain numbers seen per op, by key; beyond a limit they become inputs. `None`: the op needs them
/// static.
static NUMBERS: LazyLock<Mutex<IndexMap<Key, Option<Vec<Key>>>>> = LazyLock::new(Mutex::default);
/// Number of values with programs of their own before numbers become inputs.
const MAX_SPECIALISED: usize = 4;

/// Turns plain numbers into inputs once the op has been called with too many different ones.
fn lift_numbers(
    target: &'static str,
    args: &[(&'static str, Arg)],
) -> Option<Vec<(&'static str, Arg)>> {
    if !args.iter().any(|(_, a)| a.is_plain_number()) {
        return None;
    }
    let lifted: Vec<_> = args.iter().map(|(name, a)| (*name, a.clone().into_number())).collect();
    let of = |args| key::of("", DeviceId::Host, target, args);
    let (one, all) = (of(args), of(&lifted));
    let mut known = lock(&NUMBERS);
    if known.len() >= MAX_PROGRAMS {
        known.shift_remove_index(0);
    }
    let had = known.entry(all).or_insert_with(|| Some(vec![])).as_mut()?;
    if had.contains(&one) {
        return None;
    }
    if had.len() < MAX_SPECIALISED {
        had.push(one);
        return None;
    }
    Some(lifted)
}

fn run_cached(
    site: CallSite,
    op: &'static str,
    target: &'static str,
    args: Vec<(&'static str, Arg)>,
) -> Result<Vec<Tensor>> {
    let operands: Vec<Tensor> = args.iter().flat_map(|(_, a)| a.tensors()).collect();
    let arrays = operands
        .iter()
        .map(|t| t.array().map_err(|e| e.to_string()))
        .collect::<Result<Vec<_>, _>>()?;
    let backend = match BACKEND.with_borrow(Option::clone) {
        Some(backend) => backend,
        None => backend::kiln(),
    };
    let device = device_of(&arrays)?;
    let key = key::of(backend.name(), device, target, &args);
    let known = lock(&PROGRAMS).get(&key).cloned();
    let made = match known {
        Some(made) => made,
        None => {
            let compiler = ProgramCompiler {
                backend,
                options: options(device).map_err(|e| e.to_string())?,
                queue: None,
            };
            let made = Arc::new(compile_op(site, op, target, args, &arrays, &compiler)?);
            let mut all = lock(&PROGRAMS);
            if all.len() >= MAX_PROGRAMS {
                all.shift_remove_index(0);
            }
            all.insert(key, made.clone());
            made
        }
    };
    let made = made.run(&arrays).map_err(|e| e.to_string())?;
    Ok(made.into_iter().map(Tensor::from).collect())
}

/// Programs of whole graphs, by backend and text.
static GRAPHS: LazyLock<Mutex<IndexMap<[String; 2], Arc<ProgramFuture>>>> =
    LazyLock::new(Mutex::default);
/// Size limit of that cache.
const MAX_GRAPHS: usize = 256;

/// Runs a recorded graph as one program. Err: the backend rejects it, or execution failed.
pub(super) fn graph(
    name: &str,
    recorded: Recorded,
    inputs: &[Arc<Array>],
) -> Result<Vec<Tensor>, crate::Error> {
    let backend = BACKEND.with_borrow(Option::clone).unwrap_or_else(backend::kiln);
    let device = device_of(inputs).map_err(|e| crate::Error::Backend(e.to_string()))?;
    let text = recorded.captured.module.print(PrintOptions::default());
    let key = [format!("{} on {device}", backend.name()), text];
    // The text has no weights.
    let is_kept = recorded.captured.weights.is_empty();
    let known = lock(&GRAPHS).get(&key).filter(|_| is_kept).cloned();
    let prepared = match known {
        Some(program) => {
            Prepared { program: Some(program), result_sources: recorded.result_sources }
        }
        None => {
            let compiler = ProgramCompiler { backend, options: options(device)?, queue: None };
            let made = Prepared::new(name, recorded, &compiler)?;
            if let Some(program) = made.program.clone().filter(|_| is_kept) {
                let mut all = lock(&GRAPHS);
                if all.len() >= MAX_GRAPHS {
                    all.shift_remove_index(0);
                }
                all.insert(key, program);
            }
            made
        }
    };
    Ok(prepared.run(inputs)?.into_iter().map(Tensor::from).collect())
}

/// Looks up a result by its source.
pub(crate) fn resolve_slot(
    slot: &ResultSource,
    results: &[Arc<Array>],
    input: impl FnOnce(usize) -> Option<Arc<Array>>,
) -> Result<Arc<Array>, DataError> {
    let found = match slot {
        ResultSource::Result(i) => results.get(*i).cloned(),
        ResultSource::Input(i) => input(*i),
        ResultSource::Constant(array) => Some(array.clone()),
    };
    found
        .ok_or_else(|| DataError::Missing("the program has fewer results than the function".into()))
}

/// The reason why tracing a single op failed.
pub(super) fn reason(e: TraceError) -> String {
    match e {
        TraceError::Ops(all) => all.into_iter().next().map_or_else(String::new, |e| e.reason),
        e => e.to_string(),
    }
}

fn compile_op(
    site: CallSite,
    op: &'static str,
    target: &'static str,
    args: Vec<(&'static str, Arg)>,
    arrays: &[Arc<Array>],
    program_compiler: &ProgramCompiler,
) -> Result<Prepared> {
    let context = Context::new();
    let recorded = record(context.ctx(), site, Session::default(), |graph: &Graph| {
        let inputs: Vec<Tensor> = arrays
            .iter()
            .enumerate()
            .map(|(i, a)| graph.input(&format!("x{i}"), a.dtype(), a.shape()))
            .collect();
        let mut next = inputs.into_iter();
        let args =
            args.into_iter().map(|(name, arg)| (name, arg.with_tensors(&mut next))).collect();
        Ok(graph.row(site, op, target, args))
    });
    Ok(Prepared::new(op, recorded.map_err(reason)?, program_compiler).map_err(|e| e.to_string())?)
}
