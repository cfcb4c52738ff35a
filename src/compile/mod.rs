//! `compile(f)`: a function of tensors as programs that are made when a call needs them, with the
//! guards under which they are right.
//!
//! `docs/front.md` says how the parts work together.
mod disable;
mod explain;
mod function;
pub(crate) mod later;
mod plan;
mod reasons;
mod remark;
mod settings;
mod specialise;
mod state;
mod tree;

pub use disable::{Disabled, disable};
pub use explain::{Break, Explanation, GraphInfo, explain};
pub use function::{Arguments, Function, Pack};
pub use remark::{Remark, Topic};
pub use settings::{OptionInfo, Settings, list_mode_options, list_options};
pub use state::reset;
pub use tree::{Leaf, Leaves, Returns, Tree};

use crate::{
    Error,
    backend::{self, Backend},
    lowering::{Stop, driver::compile::CompileError},
    model::Place,
    runtime::{
        CallError,
        entries::Made,
        guards::{Given, Guards},
    },
    tensor::{Segments, TraceError, Why, at_once, in_segments, is_left_out, lock},
};
use function::{into_leaves, leaves, rebuild};
use later::{Later, Making};
use plan::History;
use reasons::whole;
use specialise::{Code, Entry, Failed, Maker, traced};
use state::State;
use std::{
    marker::PhantomData,
    panic::Location,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// A function that is compiled when it is called; see [`compile`]. May be called from many threads
/// at once.
pub struct Compiled<F, A> {
    function: F,
    settings: Settings,
    /// None: every op runs at once.
    backend: Option<Arc<dyn Backend>>,
    /// What was wrong with a setting.
    wrong: Option<String>,
    state: Arc<State>,
    _arguments: PhantomData<fn(A)>,
}

/// Makes a function compiled. It may take and give tensors, numbers, and tuples, lists, arrays and
/// options of these; what else it reads, such as weights of an [`nn`](crate::nn) module, may change
/// between calls only if it is a [`Parameter`](crate::nn::Parameter). It may give a `Result`.
///
/// ```
/// use kiln::Tensor;
/// let scaled = kiln::compile(|x: Tensor, y: Tensor| (&x * 2 + y).relu()).name("scaled");
/// let (x, y) = (Tensor::of(&[3], &[1.0f32, -2.0, 3.0])?, Tensor::scalar(1.0f32)?);
/// assert_eq!(scaled.call((&x, &y))?.to_vec::<f32>()?, [3.0, 0.0, 7.0]);
/// # Ok::<(), kiln::Error>(())
/// ```
pub fn compile<F: Function<A>, A: Arguments>(function: F) -> Compiled<F, A> {
    let (settings, wrong) = match Settings::new() {
        Ok(settings) => (settings, None),
        Err(e) => (Settings::plain(), Some(e.to_string())),
    };
    // The name was looked for when it was set.
    let backend = backend::find(&settings.backend).unwrap_or_else(|_| Some(backend::kiln()));
    Compiled { function, settings, backend, wrong, state: State::new(), _arguments: PhantomData }
}

/// How a function is compiled. What is wrong with a setting is the error of [`Compiled::check`],
/// and of every call.
impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    fn with(mut self, set: impl FnOnce(&mut Compiled<F, A>) -> Result<(), Error>) -> Self {
        if let Err(e) = set(&mut self) {
            self.wrong.get_or_insert(e.to_string());
        }
        self
    }
    /// A mode of [`list_mode_options`].
    #[track_caller]
    pub fn mode(self, mode: &str) -> Self {
        let at = Location::caller();
        self.with(|c| {
            c.settings.set_mode(mode)?.into_iter().for_each(|r| c.remark(Topic::Options, at, r));
            Ok(())
        })
    }
    /// Whether sizes are symbols: none (as it is if not called) for those that have changed between
    /// calls, `true` for all from the first call on, `false` for none.
    pub fn dynamic(mut self, dynamic: impl Into<Option<bool>>) -> Self {
        self.settings.dynamic = dynamic.into();
        self
    }
    /// Whether a graph break is an error.
    pub fn fullgraph(mut self, fullgraph: bool) -> Self {
        self.settings.fullgraph = fullgraph;
        self
    }
    /// A backend of [`list_backends`](crate::list_backends).
    pub fn backend(self, name: &str) -> Self {
        self.with(|c| {
            c.backend = backend::find(name)?;
            c.settings.backend = name.into();
            Ok(())
        })
    }
    /// Where programs run: `cpu`, `cuda`, `cuda:<number>`.
    pub fn device(self, device: &str) -> Self {
        self.with(|c| {
            c.settings.machine.device = Place::parse(device).map_err(Error::Setting)?;
            Ok(())
        })
    }
    /// Options of [`list_options`] by name.
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
    /// Whether nothing is compiled: the function is called as it is.
    pub fn disable(mut self, disable: bool) -> Self {
        self.settings.disable = disable;
        self
    }
    /// Whether weights become part of the program, to be packed and folded. A weight that is
    /// changed afterwards makes a new program.
    pub fn freeze(mut self, freeze: bool) -> Self {
        self.settings.freeze = freeze;
        self
    }
    /// What remarks call it.
    pub fn name(mut self, name: &str) -> Self {
        self.settings.name = name.into();
        self
    }
    /// Err: what is wrong with the settings.
    pub fn check(&self) -> Result<(), Error> {
        self.wrong.as_ref().map_or(Ok(()), |e| Err(Error::Setting(e.clone())))
    }
    /// What ends its compilations from another thread: after `stop().cancel()` calls that have no
    /// program run op by op.
    pub fn stop(&self) -> Stop {
        self.settings.machine.stop.clone()
    }
    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The guards of each program, in the order in which calls ask them.
    pub fn guards(&self) -> Vec<Guards> {
        self.state.entries.all().iter().map(|e| e.guards.clone()).collect()
    }
    /// What it has had to say, oldest first.
    pub fn remarks(&self) -> Vec<Remark> {
        lock(&self.state.remarks).clone()
    }
    /// How many programs it has.
    pub fn programs(&self) -> usize {
        self.state.entries.all().len()
    }
    /// Waits until no other thread makes a program for it (option `asynchronous`). Err: why the
    /// first of them that there is none of was not made.
    pub fn wait(&self) -> Result<(), Error> {
        let mut all: Vec<Arc<Later>> = vec![];
        for entry in self.state.entries.all().iter() {
            if let Code::Graph(graph) = &entry.code {
                all.extend(graph.program.clone());
            }
        }
        if let Some(segments) = lock(&self.state.segments).as_ref() {
            all.extend(lock(&segments.made).iter().filter_map(|s| s.prepared.program.clone()));
        }
        let outcomes: Vec<_> = all.iter().map(|p| p.wait()).collect();
        outcomes.into_iter().find_map(Result::err).map_or(Ok(()), |e| Err(Error::Asynchronous(e)))
    }
    /// Forgets its programs, and what it knows of sizes that change.
    pub fn reset(&self) {
        self.state.reset();
    }

    fn remark(&self, topic: Topic, at: &Location<'_>, message: String) {
        self.remark_at(topic, remark::place(at), message);
    }
    fn remark_at(&self, topic: Topic, place: String, message: String) {
        self.state.remark(Remark { topic, function: self.settings.name.clone(), message, place });
    }
}

/// What has become of a call.
enum Ran {
    /// The leaves of its results.
    Results(Vec<Leaf>),
    /// There is no program for it, or none yet.
    OpByOp,
    /// Its function reads values.
    InSegments,
}

/// What a call gives.
type Out<F, A> = <<F as Function<A>>::Out as Returns>::Tree;

/// Calls.
impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    /// Calls the function, with a program that is right for these arguments; one is made if there
    /// is none. Within a trace, or within another compiled function, it becomes a part of that.
    /// Err: an op that cannot be, with its place; what compiling or running met.
    #[track_caller]
    pub fn call(&self, arguments: impl Pack<A>) -> Result<Out<F, A>, Error> {
        let place = Location::caller();
        self.check()?;
        // A program needs the leaves alone; of many tensors, handles beside these would be a third
        // of what a call costs.
        let all = into_leaves(arguments.pack());
        let whole = |all| rebuild::<A>(all).map_err(Error::Backend);
        if traced(&all) || self.settings.disable {
            return Ok(self.function.invoke(whole(all)?).into_tree()?);
        }
        if self.backend.is_none() || is_left_out() {
            return self.eager(whole(all)?);
        }
        let ran = {
            let given = plan::given(&all)?;
            let entry = match self.find(&given) {
                Some(entry) => Some(entry),
                None => self.make(&all, &given, place)?,
            };
            entry.map_or(Ok(Ran::OpByOp), |entry| self.run(&entry, &all, &given, place))?
        };
        match ran {
            Ran::Results(results) => rebuild(results).map_err(Error::Backend),
            Ran::OpByOp => self.eager(whole(all)?),
            Ran::InSegments => self.in_segments(whole(all)?, place),
        }
    }

    fn find(&self, given: &[Given]) -> Option<Arc<Entry>> {
        self.state.entries.find(|e| e.guards.check(given) && e.is_current())
    }

    fn run(
        &self,
        entry: &Entry,
        all: &[Leaf],
        given: &[Given],
        place: &'static Location<'static>,
    ) -> Result<Ran, Error> {
        let graph = match &entry.code {
            Code::Segments => {
                entry.count();
                return Ok(Ran::InSegments);
            }
            Code::Graph(graph) => graph,
        };
        if graph.program.as_ref().is_none_or(|p| p.ready().is_some()) {
            entry.count();
        }
        match graph.run(all, given) {
            Ok(Some(results)) => Ok(Ran::Results(results)),
            // Another thread is at it, or has said why there is none.
            Ok(None) => Ok(Ran::OpByOp),
            // Sizes that the guards allow and the program does not take: op by op the answer, or
            // the reason, is exact.
            Err(Error::Call(e)) if !entry.guards.symbols.is_empty() && is_about_sizes(&e) => {
                self.remark(
                    Topic::Dynamic,
                    place,
                    format!(
                        "this call runs op by op, since the program does not take its sizes: {e}"
                    ),
                );
                Ok(Ran::OpByOp)
            }
            Err(e) => Err(e),
        }
    }

    /// Every op at once.
    fn eager(&self, arguments: A) -> Result<Out<F, A>, Error> {
        self.state.eager.fetch_add(1, Ordering::Relaxed);
        let tree = at_once(|| self.function.invoke(arguments).into_tree())?;
        for leaf in leaves(&tree) {
            if let Leaf::Tensor(t) = leaf {
                t.check()?;
            }
        }
        Ok(tree)
    }

    /// What is noted between reads of values as programs.
    fn in_segments(
        &self,
        arguments: A,
        place: &'static Location<'static>,
    ) -> Result<Out<F, A>, Error> {
        let segments = self.segments(place);
        let results = in_segments(segments.clone(), || {
            Ok(leaves(&self.function.invoke(arguments).into_tree()?))
        })?;
        if lock(&segments.made).len() >= segments.limit
            && !self.state.warned.swap(true, Ordering::Relaxed)
        {
            let (n, place) = (
                segments.limit,
                segments.reads().into_iter().next().map_or(String::new(), |(place, _)| place),
            );
            let message = format!(
                "{n} programs have been made between reads of values, which is the limit (8 times cache_size_limit); further ones run op by op. \
                 Their sizes are numbers: read values outside of the function if these change"
            );
            self.remark_at(Topic::CacheLimit, place, message);
        }
        let plain = |leaf: Leaf| match leaf {
            Leaf::Tensor(t) => Ok(Leaf::Tensor(t.array()?.into())),
            other => Ok(other),
        };
        let results = results.into_iter().map(plain).collect::<Result<Vec<_>, TraceError>>()?;
        rebuild(results).map_err(Error::Backend)
    }
    fn segments(&self, place: &'static Location<'static>) -> Arc<Segments> {
        let make = || {
            let mut s = self.settings.clone();
            s.settle();
            let making = self.making(&s, place);
            Arc::new(Segments::new(s.name, making, s.each_op, s.cache_size_limit.saturating_mul(8)))
        };
        lock(&self.state.segments).get_or_insert_with(make).clone()
    }

    fn making(&self, settings: &Settings, place: &'static Location<'static>) -> Making {
        Making {
            backend: self.backend.clone().unwrap_or_else(backend::kiln),
            options: settings.machine.clone(),
            queue: self.state.queue(settings, place),
        }
    }

    /// Makes a program for a call; none if there may be no more.
    fn make(
        &self,
        all: &[Leaf],
        given: &[Given],
        place: &'static Location<'static>,
    ) -> Result<Option<Arc<Entry>>, Error> {
        let fits = |e: &Entry| e.guards.check(given) && e.is_current();
        self.state
            .entries
            .find_or_make(fits, |history, before| self.made(all, given, place, history, before))
    }

    /// The entries that stay, and a new one.
    fn made(
        &self,
        all: &[Leaf],
        given: &[Given],
        place: &'static Location<'static>,
        history: &mut History,
        before: &[Arc<Entry>],
    ) -> Result<Option<Made<Entry>>, Error> {
        if self.state.stopped.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let start = Instant::now();
        let kept: Vec<Arc<Entry>> = before.iter().filter(|e| e.is_current()).cloned().collect();
        let names = rebuild::<A>(all.to_vec()).map_err(Error::Backend)?.leaf_names();
        if kept.len() >= self.settings.cache_size_limit {
            if !self.state.warned.swap(true, Ordering::Relaxed) {
                self.remark(Topic::CacheLimit, place, self.limit(&kept, all, given));
            }
            return Ok(None);
        }
        if let Some(why) = self.recompiled(before, all, given) {
            self.remark(Topic::Recompiles, place, why);
        }
        history.learn(all);
        for (s, places) in before
            .iter()
            .filter(|e| e.refused().is_some())
            .map(|e| (&e.guards.symbols, &e.guards.same))
        {
            s.iter()
                .map(|s| (s.input, s.dim))
                .chain(places.iter().map(|p| (p.input, p.dim)))
                .for_each(|(leaf, dim)| history.pin(leaf, dim));
        }
        let mut plan = history.plan(all, self.settings.dynamic);
        // On the host code for multiples would be the same (docs/front.md). A program for all sizes
        // has to find room behind one for multiples.
        if self.settings.machine.device != Place::Host
            && self.settings.dynamic.is_none()
            && kept.len() + 2 <= self.settings.cache_size_limit
        {
            history.state_divisors(&mut plan);
        }
        let mut settings = self.settings.clone();
        settings.settle().into_iter().for_each(|r| self.remark(Topic::Options, place, r));
        let making = self.making(&settings, place);
        let maker = Maker {
            name: &self.settings.name,
            settings: &settings,
            making: &making,
            place,
            names: &names,
            function: &|leaves| self.traced(leaves),
            remark: &|topic, message| self.remark(topic, place, message),
        };
        let made = match settings.each_op && !settings.fullgraph {
            true => Ok((
                Entry::in_segments(plan.guards(names.clone(), true, &[]), start.elapsed()),
                vec![],
            )),
            false => maker.make(&plan),
        };
        let entry = match made {
            Ok((entry, pinned)) => {
                pinned.into_iter().for_each(|(leaf, dim)| history.pin(leaf, dim));
                entry
            }
            Err(Failed::Error(Error::Compile(CompileError::Stopped(why)))) => {
                self.state.stop(&self.settings.name, why, remark::place(place));
                return Ok(None);
            }
            Err(Failed::Error(e)) => return Err(e),
            Err(Failed::Read(read)) if self.settings.fullgraph => return Err(whole(read)),
            Err(Failed::Read(read)) => {
                let at = format!("{}:{}:{}", read.file, read.line, read.column);
                let why = Why::of(&read).text();
                let message = format!(
                    "the graph ends here, since {why}; what lies between such places has programs of its own, and the function is called each time. \
                     fullgraph(true) makes this an error"
                );
                self.remark_at(Topic::GraphBreaks, at, message);
                Entry::in_segments(plan.guards(names, true, &[]), start.elapsed())
            }
        };
        remark::tell_guards(&self.settings.name, &entry.guards);
        Ok(Some((kept, entry)))
    }

    /// The function on traced leaves.
    fn traced(&self, leaves: Vec<Leaf>) -> Result<Vec<Leaf>, TraceError> {
        let arguments = rebuild(leaves).map_err(TraceError::Module)?;
        Ok(function::leaves(&self.function.invoke(arguments).into_tree()?))
    }
}

/// Whether a program has refused what it was given, which is no failure of the machine.
fn is_about_sizes(e: &CallError) -> bool {
    matches!(
        e,
        CallError::Tensor { .. }
            | CallError::Range { .. }
            | CallError::Condition { .. }
            | CallError::Size(_)
    )
}
