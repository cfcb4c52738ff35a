//! `compile(f)`: just-in-time compilation of a function of tensors, with guarded programs.
//!
//! `docs/front.md` describes how the parts work together.
pub(crate) mod background;
mod conditions;
mod disable;
mod entry;
mod explain;
mod fullgraph;
mod function;
mod reasons;
mod remark;
mod settings;
mod specialisation;
mod state;
mod tree;
mod tree_error;

pub use disable::{Disabled, disable};
pub use explain::{Explanation, GraphBreak, GraphInfo, explain};
pub use function::{Arguments, Function, Pack};
pub use remark::{Remark, Topic};
pub use settings::{OptionInfo, Settings, list_mode_options, list_options};
pub use state::reset;
pub use tree::{Leaf, Leaves, Returns, Tree};
pub use tree_error::TreeError;

use crate::{
    Error,
    backend::{self, Backend},
    lowering::{CancellationToken, driver::compile::CompileError},
    model::DeviceId,
    runtime::{
        CallError,
        entries::NewEntry,
        guards::{Guards, LeafView},
    },
    tensor::{BreakReason, Segments, TraceError, eagerly, in_segments, is_disabled, lock},
};
use background::{ProgramCompiler, ProgramFuture};
use entry::{Entry, EntryCode, EntryCompiler, EntryError, traced};
use fullgraph::fullgraph_error;
use function::{into_leaves, leaves, rebuild};
use specialisation::History;
use state::FunctionState;
use std::{
    marker::PhantomData,
    panic::Location,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// A function that is compiled on its calls; see [`compile`]. Thread-safe.
pub struct Compiled<F, A> {
    function: F,
    settings: Settings,
    /// `None`: run eagerly.
    backend: Option<Arc<dyn Backend>>,
    /// The first invalid setting, reported by calls.
    setting_error: Option<String>,
    state: Arc<FunctionState>,
    _arguments: PhantomData<fn(A)>,
}

/// Compiles a function, as `torch.compile` does. Arguments and results are tensors, numbers, and
/// tuples, lists, arrays and options of these; the function may also return a `Result`. Other
/// captured state is a constant of the graph. Only a [`Parameter`](crate::nn::Parameter), such as a
/// weight of an [`nn`](crate::nn) module, may change between calls.
///
/// ```
/// use kiln::Tensor;
/// let scaled = kiln::compile(|x: Tensor, y: Tensor| (&x * 2 + y).relu()).name("scaled");
/// let (x, y) = (Tensor::from_slice(&[3], &[1.0f32, -2.0, 3.0])?, Tensor::scalar(1.0f32)?);
/// assert_eq!(scaled.call((&x, &y))?.to_vec::<f32>()?, [3.0, 0.0, 7.0]);
/// # Ok::<(), kiln::Error>(())
/// ```
pub fn compile<F: Function<A>, A: Arguments>(function: F) -> Compiled<F, A> {
    let (settings, setting_error) = match Settings::new() {
        Ok(settings) => (settings, None),
        Err(e) => (Settings::plain(), Some(e.to_string())),
    };
    // The name was checked when it was set.
    let backend = backend::find(&settings.backend).unwrap_or_else(|_| Some(backend::kiln()));
    Compiled {
        function,
        settings,
        backend,
        setting_error,
        state: FunctionState::new(),
        _arguments: PhantomData,
    }
}

/// Settings. An invalid setting is the error of [`Compiled::check`], and of every call.
impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    fn with(mut self, set: impl FnOnce(&mut Compiled<F, A>) -> Result<(), Error>) -> Self {
        if let Err(e) = set(&mut self) {
            self.setting_error.get_or_insert(e.to_string());
        }
        self
    }
    /// Sets a mode of [`list_mode_options`].
    #[track_caller]
    pub fn mode(self, mode: &str) -> Self {
        let at = Location::caller();
        self.with(|c| {
            c.settings.set_mode(mode)?.into_iter().for_each(|r| c.remark(Topic::Options, at, r));
            Ok(())
        })
    }
    /// Dynamic shapes. `None` (the default) makes sizes symbolic once they change between calls,
    /// `true` makes all symbolic from the first call, `false` always specialises.
    pub fn dynamic(mut self, dynamic: impl Into<Option<bool>>) -> Self {
        self.settings.dynamic = dynamic.into();
        self
    }
    /// Whether a graph break is an error.
    pub fn fullgraph(mut self, fullgraph: bool) -> Self {
        self.settings.fullgraph = fullgraph;
        self
    }
    /// Sets a backend of [`list_backends`](crate::list_backends).
    pub fn backend(self, name: &str) -> Self {
        self.with(|c| {
            c.backend = backend::find(name)?;
            c.settings.backend = name.into();
            Ok(())
        })
    }
    /// The device that programs run on: `cpu`, `cuda`, `cuda:<number>`.
    pub fn device(self, device: &str) -> Self {
        self.with(|c| {
            c.settings.options.device = DeviceId::parse(device).map_err(Error::Setting)?;
            Ok(())
        })
    }
    /// Sets options of [`list_options`] by name.
    #[track_caller]
    pub fn options<'a>(self, options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let at = Location::caller();
        self.with(|c| {
            for (name, value) in options {
                c.settings
                    .set(name, value)?
                    .into_iter()
                    .for_each(|r| c.remark(Topic::Options, at, r));
            }
            c.backend = backend::find(&c.settings.backend)?;
            Ok(())
        })
    }
    /// Whether to disable compilation; the function then runs eagerly.
    pub fn disable(mut self, disable: bool) -> Self {
        self.settings.disable = disable;
        self
    }
    /// Whether to freeze weights into the program, for packing and constant folding. Changing a
    /// frozen weight causes a recompilation.
    pub fn freeze(mut self, freeze: bool) -> Self {
        self.settings.freeze = freeze;
        self
    }
    /// The function's name in remarks.
    pub fn name(mut self, name: &str) -> Self {
        self.settings.name = name.into();
        self
    }
    /// Err: the first invalid setting.
    pub fn check(&self) -> Result<(), Error> {
        self.setting_error.as_ref().map_or(Ok(()), |e| Err(Error::Setting(e.clone())))
    }
    /// The cancellation token of its compilations. After `stop().cancel()`, calls without a
    /// compiled program run op by op.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.settings.options.cancellation.clone()
    }
    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The guards of each program, in the order in which calls check them.
    pub fn guards(&self) -> Vec<Guards> {
        self.state.entries.all().iter().map(|e| e.guards.clone()).collect()
    }
    /// Its remarks, oldest first.
    pub fn remarks(&self) -> Vec<Remark> {
        lock(&self.state.remarks).clone()
    }
    /// The number of programs.
    pub fn programs(&self) -> usize {
        self.state.entries.all().len()
    }
    /// Waits for background compilations (option `asynchronous`). Err: the first compilation that
    /// failed.
    pub fn wait(&self) -> Result<(), Error> {
        let mut all: Vec<Arc<ProgramFuture>> = vec![];
        for entry in self.state.entries.all().iter() {
            if let EntryCode::Graph(graph) = &entry.code {
                all.extend(graph.program.clone());
            }
        }
        if let Some(segments) = lock(&self.state.segments).as_ref() {
            all.extend(lock(&segments.programs).iter().filter_map(|s| s.prepared.program.clone()));
        }
        let outcomes: Vec<_> = all.iter().map(|p| p.wait()).collect();
        outcomes.into_iter().find_map(Result::err).map_or(Ok(()), |e| Err(Error::Asynchronous(e)))
    }
    /// Discards its programs, and what it learned about dynamic sizes.
    pub fn reset(&self) {
        self.state.reset();
    }

    fn remark(&self, topic: Topic, at: &Location<'_>, message: String) {
        self.remark_at(topic, remark::location(at), message);
    }
    fn remark_at(&self, topic: Topic, location: String, message: String) {
        self.state.remark(Remark {
            topic,
            function: self.settings.name.clone(),
            message,
            location,
        });
    }
}

/// How a call ran.
enum CallOutcome {
    /// Compiled; the leaves of its results.
    Results(Vec<Leaf>),
    /// No program, or none yet.
    OpByOp,
    /// The function reads values.
    InSegments,
}

/// Result type of a call.
type Out<F, A> = <<F as Function<A>>::Out as Returns>::Tree;

/// Calls.
impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    /// Calls the function with a program whose guards hold; compiles one if there is none. Inside a
    /// trace, or inside another compiled function, it is inlined. Err: an invalid op with its
    /// location, or a failure of compilation or execution.
    #[track_caller]
    pub fn call(&self, arguments: impl Pack<A>) -> Result<Out<F, A>, Error> {
        let location = Location::caller();
        self.check()?;
        // Only the leaves are kept: for many tensors, a second set of handles would cost a third of
        // a call.
        let all = into_leaves(arguments.pack());
        let whole = |all| rebuild::<A>(all).map_err(Error::from);
        if traced(&all) || self.settings.disable {
            return Ok(self.function.invoke(whole(all)?).into_tree()?);
        }
        if self.backend.is_none() || is_disabled() {
            return self.eager(whole(all)?);
        }
        let ran = {
            let leaf_views = specialisation::leaf_views(&all)?;
            let entry = match self.find(&leaf_views) {
                Some(entry) => Some(entry),
                None => self.find_or_compile(&all, &leaf_views, location)?,
            };
            entry.map_or(Ok(CallOutcome::OpByOp), |entry| {
                self.run(&entry, &all, &leaf_views, location)
            })?
        };
        match ran {
            CallOutcome::Results(results) => Ok(rebuild(results)?),
            CallOutcome::OpByOp => self.eager(whole(all)?),
            CallOutcome::InSegments => self.in_segments(whole(all)?, location),
        }
    }

    fn find(&self, leaf_views: &[LeafView]) -> Option<Arc<Entry>> {
        self.state.entries.find(|e| e.guards.check(leaf_views) && e.is_current())
    }

    fn run(
        &self,
        entry: &Entry,
        all: &[Leaf],
        leaf_views: &[LeafView],
        location: &'static Location<'static>,
    ) -> Result<CallOutcome, Error> {
        let graph = match &entry.code {
            EntryCode::Segments => {
                entry.count();
                return Ok(CallOutcome::InSegments);
            }
            EntryCode::Graph(graph) => graph,
        };
        if graph.program.as_ref().is_none_or(|p| p.ready().is_some()) {
            entry.count();
        }
        match graph.run(all, leaf_views) {
            Ok(Some(results)) => Ok(CallOutcome::Results(results)),
            // Another thread is compiling it, or its compilation failed.
            Ok(None) => Ok(CallOutcome::OpByOp),
            // Sizes that satisfy the guards but that the program rejects: eager execution gives the
            // exact result or reason.
            Err(Error::Call(e)) if !entry.guards.symbols.is_empty() && is_size_error(&e) => {
                self.remark(
                    Topic::Dynamic,
                    location,
                    format!(
                        "this call runs op by op, since the program does not take its sizes: {e}"
                    ),
                );
                Ok(CallOutcome::OpByOp)
            }
            Err(e) => Err(e),
        }
    }

    /// Runs every op eagerly.
    fn eager(&self, arguments: A) -> Result<Out<F, A>, Error> {
        self.state.eager.fetch_add(1, Ordering::Relaxed);
        let tree = eagerly(|| self.function.invoke(arguments).into_tree())?;
        for leaf in leaves(&tree) {
            if let Leaf::Tensor(t) = leaf {
                t.check()?;
            }
        }
        Ok(tree)
    }

    /// Runs the segments between reads of values as programs.
    fn in_segments(
        &self,
        arguments: A,
        location: &'static Location<'static>,
    ) -> Result<Out<F, A>, Error> {
        let segments = self.segments(location);
        let results = in_segments(segments.clone(), || {
            Ok(leaves(&self.function.invoke(arguments).into_tree()?))
        })?;
        if lock(&segments.programs).len() >= segments.limit
            && !self.state.warned.swap(true, Ordering::Relaxed)
        {
            let (n, location) = (
                segments.limit,
                segments.reads().into_iter().next().map_or(String::new(), |(location, _)| location),
            );
            let message = format!(
                "{n} programs have been made between reads of values, which is the limit (8 times cache_size_limit); further ones run op by op. \
                 Their sizes are numbers: read values outside of the function if these change"
            );
            self.remark_at(Topic::CacheLimit, location, message);
        }
        let plain = |leaf: Leaf| match leaf {
            Leaf::Tensor(t) => Ok(Leaf::Tensor(t.array()?.into())),
            other => Ok(other),
        };
        let results = results.into_iter().map(plain).collect::<Result<Vec<_>, TraceError>>()?;
        Ok(rebuild(results)?)
    }
    fn segments(&self, location: &'static Location<'static>) -> Arc<Segments> {
        let make = || {
            let mut s = self.settings.clone();
            s.adapt_to_device();
            let program_compiler = self.program_compiler(&s, location);
            Arc::new(Segments::new(
                s.name,
                program_compiler,
                s.each_op,
                s.cache_size_limit.saturating_mul(8),
            ))
        };
        lock(&self.state.segments).get_or_insert_with(make).clone()
    }

    fn program_compiler(
        &self,
        settings: &Settings,
        location: &'static Location<'static>,
    ) -> ProgramCompiler {
        ProgramCompiler {
            backend: self.backend.clone().unwrap_or_else(backend::kiln),
            options: settings.options.clone(),
            queue: self.state.queue(settings, location),
        }
    }

    /// Compiles a program for a call; `None` at the recompilation limit.
    fn find_or_compile(
        &self,
        all: &[Leaf],
        leaf_views: &[LeafView],
        location: &'static Location<'static>,
    ) -> Result<Option<Arc<Entry>>, Error> {
        let fits = |e: &Entry| e.guards.check(leaf_views) && e.is_current();
        self.state.entries.find_or_compile(fits, |history, before| {
            self.compile_entry(all, leaf_views, location, history, before)
        })
    }

    /// The entries to keep, and a new one.
    fn compile_entry(
        &self,
        all: &[Leaf],
        leaf_views: &[LeafView],
        location: &'static Location<'static>,
        history: &mut History,
        before: &[Arc<Entry>],
    ) -> Result<Option<NewEntry<Entry>>, Error> {
        if self.state.cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let start = Instant::now();
        let kept: Vec<Arc<Entry>> = before.iter().filter(|e| e.is_current()).cloned().collect();
        let names = rebuild::<A>(all.to_vec())?.leaf_names();
        if kept.len() >= self.settings.cache_size_limit {
            if !self.state.warned.swap(true, Ordering::Relaxed) {
                self.remark(Topic::CacheLimit, location, self.limit(&kept, all, leaf_views));
            }
            return Ok(None);
        }
        if let Some(why) = self.recompiled(before, all, leaf_views) {
            self.remark(Topic::Recompiles, location, why);
        }
        history.learn(all);
        for (s, occurrences) in before
            .iter()
            .filter(|e| e.compile_error().is_some())
            .map(|e| (&e.guards.symbols, &e.guards.same))
        {
            s.iter()
                .map(|s| (s.input, s.dim))
                .chain(occurrences.iter().map(|p| (p.input, p.dim)))
                .for_each(|(leaf, dim)| history.pin(leaf, dim));
        }
        let mut spec = history.specialise(all, self.settings.dynamic);
        // On the host, code for multiples would be the same (docs/front.md). Leaves room for the
        // general program after the divisible one.
        if self.settings.options.device != DeviceId::Host
            && self.settings.dynamic.is_none()
            && kept.len() + 2 <= self.settings.cache_size_limit
        {
            history.declare_divisors(&mut spec);
        }
        let mut settings = self.settings.clone();
        settings
            .adapt_to_device()
            .into_iter()
            .for_each(|r| self.remark(Topic::Options, location, r));
        let program_compiler = self.program_compiler(&settings, location);
        let compiler = EntryCompiler {
            name: &self.settings.name,
            settings: &settings,
            program_compiler: &program_compiler,
            location,
            names: &names,
            function: &|leaves| self.traced(leaves),
            remark: &|topic, message| self.remark(topic, location, message),
        };
        let compiled = match settings.each_op && !settings.fullgraph {
            true => Ok((
                Entry::in_segments(spec.guards(names.clone(), true, &[]), start.elapsed()),
                vec![],
            )),
            false => compiler.compile(&spec),
        };
        let entry = match compiled {
            Ok((entry, pinned)) => {
                pinned.into_iter().for_each(|(leaf, dim)| history.pin(leaf, dim));
                entry
            }
            Err(EntryError::Error(Error::Compile(CompileError::Cancelled(why)))) => {
                self.state.record_cancellation(
                    &self.settings.name,
                    why,
                    remark::location(location),
                );
                return Ok(None);
            }
            Err(EntryError::Error(e)) => return Err(e),
            Err(EntryError::Read(read)) if self.settings.fullgraph => {
                return Err(fullgraph_error(read));
            }
            Err(EntryError::Read(read)) => {
                let at = format!("{}:{}:{}", read.file, read.line, read.column);
                let why = BreakReason::from_error(&read).text();
                let message = format!(
                    "the graph ends here, since {why}; what lies between such places has programs of its own, and the function is called each time. \
                     fullgraph(true) makes this an error"
                );
                self.remark_at(Topic::GraphBreaks, at, message);
                Entry::in_segments(spec.guards(names, true, &[]), start.elapsed())
            }
        };
        remark::emit_guards(&self.settings.name, &entry.guards);
        Ok(Some((kept, entry)))
    }

    /// The function on traced leaves.
    fn traced(&self, leaves: Vec<Leaf>) -> Result<Vec<Leaf>, TraceError> {
        let arguments = rebuild(leaves).map_err(TraceError::module)?;
        Ok(function::leaves(&self.function.invoke(arguments).into_tree()?))
    }
}

/// Whether a program rejected its arguments, as opposed to a device failure.
fn is_size_error(e: &CallError) -> bool {
    matches!(
        e,
        CallError::Tensor { .. }
            | CallError::Range { .. }
            | CallError::Condition { .. }
            | CallError::Size(_)
    )
}
