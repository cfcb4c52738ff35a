//! The graph that ops are added to: a graph being traced, a lazy graph, or none in eager mode.
use super::{
    Array, Dim, OpError, Shape, Tensor, TraceError,
    arg::Arg,
    call_site::CallSite,
    dim::{Kind, SymbolicDim},
    handle::{Node, Repr},
    lazy::Lazy,
    session::{BreakReason, Lifted, Session},
    state::{GraphParts, NameKind, TraceState},
};
use crate::{
    capture::{size_op, storage::Alias, weight::Weight},
    nn::stored::{self, Stored},
};
use kiln_dialects::{
    ir::*,
    ops::{Sym, SymKind},
    rules::tensor_type,
    sym,
    value::{self, DType},
};
use std::{
    cell::{Cell, RefCell, RefMut},
    ops::RangeInclusive,
    panic::Location,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A graph: creates inputs, weights, symbols and constants. A cheap, single-threaded handle.
#[derive(Clone)]
pub struct Graph(Rc<Inner>);

struct Inner {
    /// Unique in the process.
    id: u64,
    /// Tracing state; `None` in eager and lazy mode.
    state: Option<RefCell<TraceState>>,
    /// Lazy mode: ops are recorded, and run when a value is read.
    lazy: Option<RefCell<Lazy>>,
    frames: RefCell<Vec<CallSite>>,
}

thread_local! {
    /// Graphs being traced by this thread, innermost last.
    pub(super) static TRACED: RefCell<Vec<Graph>> = const { RefCell::new(vec![]) };
    pub(super) static EAGER: Graph = Graph::make(None, None);
    /// Nesting depth of functions excluded from graphs on this thread.
    pub(super) static DISABLED_DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Guard object of a source location for ops; see [`Graph::frame`].
pub struct Frame(Graph);

impl Drop for Frame {
    fn drop(&mut self) {
        self.0.0.frames.borrow_mut().pop();
    }
}

/// A graph, and in a trace the block of it that ops are added to.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Place(u64, Option<Block>);

/// Guard object: the graph is the thread's current one.
pub(super) struct Tracing;

impl Drop for Tracing {
    fn drop(&mut self) {
        TRACED.with_borrow_mut(|all| drop(all.pop()));
    }
}

impl Graph {
    /// Runs the recorded ops.
    pub(super) fn flush(&self, read: Option<(CallSite, BreakReason)>) -> Result<(), TraceError> {
        let read = read.map(|(at, why)| (self.site(at), why));
        self.0.lazy.as_ref().map_or(Ok(()), |lazy| lazy.borrow_mut().flush(read))
    }
    /// Breaks the graph: runs the recorded ops. Err: the graph is being traced, so its function
    /// must run in segments.
    pub(super) fn break_graph(
        &self,
        site: CallSite,
        why: BreakReason,
        operands: &[Tensor],
    ) -> Result<(), TraceError> {
        if self.0.lazy.is_some() {
            return self.flush(Some((site, why)));
        }
        match self.is_eager() {
            true => Ok(()),
            false => Err(self.graph_break_error(
                site,
                why,
                why.text().into(),
                operands.iter().map(Tensor::type_name).collect(),
            )),
        }
    }
    /// The error of a trace that ends here; in a compiled function, the graph break.
    pub(super) fn graph_break_error(
        &self,
        site: CallSite,
        why: BreakReason,
        reason: String,
        operands: Vec<String>,
    ) -> TraceError {
        let error = OpError::new(self.site(site), why.op(), reason, operands);
        if let Ok(mut state) = self.state()
            && let Some(session) = &mut state.session
        {
            session.read.get_or_insert_with(|| error.clone());
        }
        TraceError::Read(error)
    }
    /// Replays an op in lazy mode.
    pub(super) fn replay<const R: usize>(
        &self,
        first: Option<&Tensor>,
        target: &str,
        args: &[(&'static str, Arg)],
    ) -> Option<[Tensor; R]> {
        self.0.lazy.as_ref()?.try_borrow_mut().ok()?.replay(self.0.id, first, target, args)
    }
    pub(super) fn lazy(&self) -> Option<RefMut<'_, Lazy>> {
        self.0.lazy.as_ref().map(RefCell::borrow_mut)
    }
    pub(super) fn make(state: Option<RefCell<TraceState>>, lazy: Option<RefCell<Lazy>>) -> Graph {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Graph(Rc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            state,
            lazy,
            frames: RefCell::default(),
        }))
    }
    pub(super) fn new(b: Builder, top: Builder, session: Option<Session>) -> Graph {
        Graph::make(Some(RefCell::new(TraceState::new(b, top, session))), None)
    }
    /// This thread's innermost graph being traced, or the eager one.
    pub fn current() -> Graph {
        TRACED.with_borrow(|all| all.last().cloned()).unwrap_or_else(|| EAGER.with(Graph::clone))
    }
    /// A graph being traced by this thread, by id.
    pub(super) fn by_id(id: u64) -> Option<Graph> {
        TRACED.with_borrow(|all| all.iter().rfind(|g| g.0.id == id).cloned())
    }
    pub(super) fn id(&self) -> u64 {
        self.0.id
    }
    /// Where ops are added now.
    pub(crate) fn place(&self) -> Place {
        Place(self.0.id, self.state().ok().map(|state| state.cx.b.block()))
    }
    pub(super) fn enter(&self) -> Tracing {
        TRACED.with_borrow_mut(|all| all.push(self.clone()));
        Tracing
    }
    /// Whether this is eager mode.
    pub fn is_eager(&self) -> bool {
        self.0.state.is_none()
    }
    /// The tracing state. Err: in eager mode.
    pub(super) fn state(&self) -> Result<RefMut<'_, TraceState>> {
        self.0
            .state
            .as_ref()
            .map(RefCell::borrow_mut)
            .ok_or_else(|| "is for graphs that are traced; here ops run at once".into())
    }
    /// The location of the innermost frame, else `site`.
    pub(super) fn site(&self, site: CallSite) -> CallSite {
        self.0.frames.borrow().last().copied().unwrap_or(site)
    }

    /// Creates a symbol with a range, bound by the shapes of a call's arguments. The same name
    /// gives the same symbol. Errors: an empty range, or a name with another range.
    #[track_caller]
    pub fn dim(&self, name: &str, range: RangeInclusive<i64>) -> Dim {
        self.dim_by(name, range, 1)
    }
    /// As [`Graph::dim`], for multiples of `divisor`.
    #[track_caller]
    pub fn dim_by(&self, name: &str, range: RangeInclusive<i64>, divisor: i64) -> Dim {
        let site = Location::caller();
        let made = self.state().and_then(|mut state| {
            state.cx.b.loc = state.loc(self.site(site)).named(name);
            let max = Some(*range.end()).filter(|m| *m < i64::MAX);
            let value =
                state.symbol(Sym { name: name.into(), min: *range.start(), max, divisor })?;
            Ok(self.symbolic_dim(&mut state, value))
        });
        made.unwrap_or_else(|e| {
            self.refuse(site, "dim", e, &[]);
            Dim::POISON
        })
    }
    /// Adds an input. Inputs are ordered by these calls. Errors: the name is taken, or a size is
    /// negative.
    #[track_caller]
    pub fn input(&self, name: &str, dtype: DType, shape: impl Shape) -> Tensor {
        let site = Location::caller();
        let made = self.raw_sizes(&shape.dims()).and_then(|sizes| {
            let mut state = self.state()?;
            state.cx.b.loc = state.loc(self.site(site)).named(name);
            state.input(name, dtype, &sizes)
        });
        self.finish_op(site, "input", made)
    }
    /// Adds a mutable weight, which the caller may change between calls, such as a framework's
    /// parameter. Errors: the name is taken by a weight of another type.
    #[track_caller]
    pub fn parameter(&self, name: &str, value: &Weight) -> Tensor {
        self.weight(name, value, format!("#{name}"), false)
    }
    /// Adds a frozen weight, for packing and constant folding. Errors: as [`Graph::parameter`].
    #[track_caller]
    pub fn frozen(&self, name: &str, value: &Weight) -> Tensor {
        self.weight(name, value, format!("#{name}"), true)
    }
    #[track_caller]
    pub(crate) fn weight(
        &self,
        name: &str,
        value: &Weight,
        source: String,
        frozen: bool,
    ) -> Tensor {
        let site = Location::caller();
        if self.is_eager() {
            return Array::from_weight(value)
                .map_or_else(|e| self.refuse(site, "parameter", e, &[]), Tensor::from);
        }
        let made = self.state().and_then(|mut state| {
            state.cx.b.loc = state.loc(self.site(site)).named(name);
            state.global(name, value.clone(), source, frozen)
        });
        self.finish_op(site, "parameter", made)
    }
    /// A module's weight: a lifted input in a compiled function, since it may change between calls;
    /// else a global.
    #[track_caller]
    pub(crate) fn parameter_of(
        &self,
        stored: &Arc<Stored>,
        version: u64,
        value: &stored::Value,
    ) -> Tensor {
        let site = Location::caller();
        let made = self.state().and_then(|mut state| {
            state.cx.b.loc = state.loc(self.site(site)).named(&stored.name);
            let weight = || value.weight().map_err(|e| e.to_string());
            let (frozen, source) = match &value.file {
                Some((_, source)) => (true, source.clone()),
                None => (false, format!("#{}", stored.name)),
            };
            let Some(session) = &mut state.session else {
                return state.global(&stored.name, weight()?, source, frozen);
            };
            if let Some((_, _, alias)) =
                session.weights.iter().find(|(w, _, _)| Arc::ptr_eq(w, stored))
            {
                return Ok(*alias);
            }
            // A program whose tensors are all inputs serves every value of a weight.
            let frozen = (frozen || session.freeze) && !session.lift_arrays;
            // Modules created under one scope have weights of the same name.
            let name = state.free(&stored.name);
            let sizes: Vec<Size> = stored.shape.iter().map(|n| Size::Static(*n as i64)).collect();
            let alias = match frozen {
                true => state.global(&name, weight()?, source, true)?,
                false => state.input(&name, stored.dtype, &sizes)?,
            };
            if let Some(session) = &mut state.session {
                if !frozen {
                    session.lifted.push(Lifted::Weight(stored.clone()));
                }
                session.weights.push((stored.clone(), frozen.then_some(version), alias));
            }
            Ok(alias)
        });
        self.finish_op(site, "parameter", made)
    }
    /// A constant: inline in the program up to 4 KiB, a frozen weight beyond.
    #[track_caller]
    pub fn constant(&self, value: &value::Tensor) -> Tensor {
        let site = Location::caller();
        if self.is_eager() {
            return Tensor::from(value);
        }
        let made = self.state().and_then(|mut state| {
            let name = state.unique("constant", NameKind::Result);
            state.cx.b.loc = state.loc(self.site(site)).named(&name);
            state.constant(&name, Weight::from_tensor(value))
        });
        self.finish_op(site, "constant", made)
    }
    /// Records an error that concerns no op, and returns a poisoned tensor.
    #[track_caller]
    pub(crate) fn failed(&self, op: &str, reason: impl ToString) -> Tensor {
        self.refuse(Location::caller(), op, reason, &[])
    }
    /// Sets the source location of ops until the result is dropped, unless an outer frame did. For
    /// library functions made of several ops: `let _frame = graph.frame(Location::caller());` in a
    /// function with `#[track_caller]`.
    pub fn frame(&self, site: &'static Location<'static>) -> Frame {
        self.inner_frame(self.site(site))
    }
    /// As [`Graph::frame`], overriding outer frames.
    pub fn inner_frame(&self, site: &'static Location<'static>) -> Frame {
        self.0.frames.borrow_mut().push(site);
        Frame(self.clone())
    }

    /// The result's handle; on failure, records the error and returns a poisoned one.
    fn finish_op(&self, site: CallSite, op: &'static str, made: Result<Alias>) -> Tensor {
        match made {
            Ok(alias) => self.handle(Some(alias)),
            Err(e) => self.refuse(site, op, e, &[]),
        }
    }
    pub(super) fn handle(&self, alias: Option<Alias>) -> Tensor {
        Tensor(Repr::Node(Arc::new(Node { graph: self.0.id, alias })))
    }
    /// Records an error and returns a poisoned tensor.
    pub(super) fn refuse(
        &self,
        site: CallSite,
        op: &str,
        reason: impl ToString,
        operands: &[Tensor],
    ) -> Tensor {
        let reason = reason.to_string();
        // Errors of poisoned operands are not reported again.
        let first = operands.iter().find_map(Tensor::failure);
        let poisoned = operands.iter().any(Tensor::is_poisoned);
        let error = match first {
            Some(error) => Some(error),
            None if poisoned || reason.is_empty() => None,
            None => {
                let types = operands.iter().map(Tensor::type_name).collect();
                Some(Arc::new(OpError::new(self.site(site), op, reason, types)))
            }
        };
        let Some(error) = error else { return self.handle(None) };
        let Ok(mut state) = self.state() else { return Tensor(Repr::Failed(error)) };
        if !state.errors.contains(&error) {
            state.errors.push(OpError::clone(&error));
        }
        drop(state);
        self.handle(None)
    }

    fn symbolic_dim(&self, state: &mut TraceState, value: Value) -> Dim {
        let expr = state.facts.size_value(value);
        match expr {
            sym::Dim::Known(n) => Dim(Kind::Known(n)),
            sym::Dim::Unknown => Dim::NO_VALUE,
            expr => {
                state.sizes.entry(expr.clone()).or_insert(value);
                state.expressions.push((expr, value));
                Dim(Kind::Symbolic(SymbolicDim {
                    graph: self.0.id,
                    index: state.expressions.len() - 1,
                }))
            }
        }
    }
    /// `x kind y`, at least one of them symbolic.
    pub(super) fn compute(&self, kind: SymKind, x: Dim, y: Dim, site: CallSite) -> Dim {
        let Ok(sizes) = self.raw_sizes(&[x, y]) else { return Dim::POISON };
        let ([x, y], Ok(mut state)) = (sizes.as_slice(), self.state()) else { return Dim::POISON };
        state.cx.b.loc = state.loc(self.site(site));
        match size_op(&state.cx.b, kind, *x, *y).and_then(|s| state.advance().map(|()| s)) {
            Ok(Size::Static(n)) => Dim::from(n),
            Ok(Size::Dynamic(value)) => self.symbolic_dim(&mut state, value),
            Err(_) => Dim::NO_VALUE,
        }
    }
    /// Sizes as op operands. Err: the reason; empty if it follows from a recorded error.
    pub(super) fn raw_sizes(&self, all: &[Dim]) -> Result<Vec<Size>> {
        let raw = |d: &Dim| match d.0 {
            Kind::Known(n) => Ok(Size::Static(n)),
            Kind::Symbolic(o) if o.graph == self.0.id => {
                let value = self.state()?.expressions.get(o.index).map(|(_, value)| *value);
                value
                    .map(Size::Dynamic)
                    .ok_or_else(|| Error::from("takes a size that the graph does not have"))
            }
            Kind::Symbolic(_) => Err("takes a size of another graph".into()),
            Kind::NoValue => {
                Err("takes a size that has no value: an overflow or a division by 0".into())
            }
            Kind::Poison => Err("".into()),
        };
        all.iter().map(raw).collect()
    }
    pub(super) fn expression(&self, index: usize) -> sym::Dim {
        self.state()
            .ok()
            .and_then(|s| s.expressions.get(index).map(|(d, _)| d.clone()))
            .unwrap_or(sym::Dim::Unknown)
    }
    pub(super) fn type_of(&self, alias: Alias) -> Option<(DType, Vec<sym::Dim>)> {
        let mut state = self.state().ok()?;
        let value = state.cx.get(alias).ok()?;
        Some((tensor_type(value.ty()).ok()?.dtype, state.facts.dims(value).to_vec()))
    }
    /// A dimension's size.
    pub(super) fn size_of(&self, alias: Alias, axis: usize) -> Dim {
        let Ok(mut state) = self.state() else { return Dim::POISON };
        let Ok(value) = state.cx.get(alias) else { return Dim::POISON };
        let known = state.facts.dims(value).get(axis).cloned().unwrap_or(sym::Dim::Unknown);
        if let Some(n) = known.known() {
            return Dim::from(n);
        }
        if let Some(size) = state.sizes.get(&known).copied() {
            return self.symbolic_dim(&mut state, size);
        }
        match state.cx.b.size_of(value, axis).and_then(|s| state.advance().map(|()| s)) {
            Ok(Size::Dynamic(size)) => self.symbolic_dim(&mut state, size),
            Ok(Size::Static(n)) => Dim::from(n),
            Err(_) => Dim::POISON,
        }
    }
    pub(super) fn rename(&self, alias: Alias, name: &str, site: CallSite) {
        let Ok(mut state) = self.state() else { return };
        let Some(op) = state.cx.get(alias).ok().and_then(Value::def) else { return };
        let name = state.unique(name, NameKind::Result);
        let loc = op.loc().file_line_col().map_or_else(
            || state.loc(site),
            |(file, line, col)| Loc::file(op.ctx(), &file, line, col),
        );
        op.set_loc(loc.named(&name));
        state.name_of.insert(alias, name);
    }

    /// The errors so far.
    pub(super) fn failure(&self) -> TraceError {
        TraceError::Ops(self.state().map(|s| s.errors.clone()).unwrap_or_default())
    }
    /// Err: the invalid ops so far.
    pub fn check(&self) -> Result<(), TraceError> {
        if self.state().is_ok_and(|s| !s.errors.is_empty()) { Err(self.failure()) } else { Ok(()) }
    }
    /// The SSA value and the name of a result.
    pub(super) fn result(&self, number: usize, t: &Tensor) -> Result<(Value, String), TraceError> {
        let module = |e: Error| TraceError::module(e);
        let alias = match &t.0 {
            Repr::Node(node) if node.graph == self.0.id => node.alias.ok_or("has no value"),
            Repr::Node(_) => Err("belongs to another trace"),
            Repr::Array(array) => {
                Ok(self.state().and_then(|mut s| s.array(array)).map_err(module)?)
            }
            Repr::Lazy(_) => {
                let array = t.array()?;
                Ok(self.state().and_then(|mut s| s.array(&array)).map_err(module)?)
            }
            Repr::Failed(error) => return Err(TraceError::Ops(vec![OpError::clone(error)])),
        };
        let alias = match alias {
            Ok(alias) => alias,
            Err(reason) => {
                self.check()?;
                return Err(TraceError::Module(format!("result {number} {reason}")));
            }
        };
        let mut state = self.state().map_err(module)?;
        let value = state.cx.get(alias).map_err(module)?;
        Ok((
            value,
            state.name_of.get(&alias).cloned().unwrap_or_else(|| format!("output_{number}")),
        ))
    }
    pub(super) fn parts(&self) -> Result<GraphParts, TraceError> {
        self.state().map(|mut s| s.parts()).map_err(TraceError::module)
    }
}
