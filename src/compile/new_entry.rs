//! What a call does for which no program fits: it compiles one, or runs op by op at the limit of
//! recompilations.
use super::{
    Arguments, Compiled, Function, Leaf, Returns, Settings, Topic,
    background::ProgramCompiler,
    donation::Donor,
    entry::{Entry, EntryCompiler, EntryError},
    fullgraph::fullgraph_error,
    function::{self, rebuild},
    remark,
    specialisation::{self, History},
};
use crate::{
    Error, backend,
    lowering::driver::compile::CompileError,
    model::DeviceId,
    runtime::{entries::NewEntry, guards::LeafView},
    tensor::{BreakReason, TraceError, device_of},
};
use std::{
    panic::Location,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    pub(super) fn program_compiler(
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
    pub(super) fn find_or_compile(
        &self,
        all: &[Leaf],
        named: &[usize],
        leaf_views: &[LeafView],
        location: &'static Location<'static>,
    ) -> Result<Option<Arc<Entry>>, Error> {
        let fits = |e: &Entry| e.guards.check(leaf_views) && e.is_current();
        self.state.entries.find_or_compile(fits, |history, before| {
            self.compile_entry((all, named), leaf_views, location, history, before)
        })
    }

    /// The entries to keep, and a new one.
    fn compile_entry(
        &self,
        (all, named): (&[Leaf], &[usize]),
        leaf_views: &[LeafView],
        location: &'static Location<'static>,
        history: &mut History,
        before: &[Arc<Entry>],
    ) -> Result<Option<NewEntry<Entry>>, Error> {
        if self.state.cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let start = Instant::now();
        // Before anything else holds the arguments.
        let donors = Donor::all(all, named);
        let on = device_of(all.iter().filter_map(specialisation::array))
            .map_err(|e| Error::Setting(format!("{} {e}", self.settings.name)))?;
        let mut settings = self.settings.clone();
        settings.options = settings.options.for_tensors_on(on);
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
        if settings.options.device != DeviceId::Host
            && self.settings.dynamic.is_none()
            && kept.len() + 2 <= self.settings.cache_size_limit
        {
            history.declare_divisors(&mut spec);
        }
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
            donors: &donors,
            donations: &self.donations,
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
