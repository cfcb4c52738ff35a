//! Calls of a compiled function: by the program whose guards hold, op by op, or in segments between
//! reads of values.
use super::{
    Arguments, Compiled, Function, Leaf, Pack, Returns, Topic,
    entry::{Entry, EntryCode, traced},
    function::{into_leaves, leaves, rebuild},
    specialisation,
};
use crate::{
    Error,
    runtime::{CallError, guards::LeafView},
    tensor::{Segments, TraceError, eagerly, in_segments, is_autocast, is_disabled, lock},
};
use std::{
    panic::Location,
    sync::{Arc, atomic::Ordering},
};

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
        let arguments = arguments.pack();
        let named = self.donations.leaves(&arguments)?;
        let all = into_leaves(arguments);
        let whole = |all| rebuild::<A>(all).map_err(Error::from);
        if traced(&all) || self.settings.disable {
            return Ok(self.function.invoke(whole(all)?).into_tree()?);
        }
        if is_autocast() {
            let why = "is called in an autocast context: autocast goes inside of what is compiled";
            return Err(Error::Setting(format!("{} {why}", self.settings.name)));
        }
        if self.backend.is_none() || is_disabled() {
            return self.eager(whole(all)?);
        }
        let ran = {
            let leaf_views = specialisation::leaf_views(&all)?;
            let entry = match self.find(&leaf_views) {
                Some(entry) => Some(entry),
                None => self.find_or_compile(&all, &named, &leaf_views, location)?,
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
