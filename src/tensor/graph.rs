//! The graph that is being traced: its arena, its names, inputs, weights and symbols.
use super::{
    Dim, OpError, Shape, Tensor, TraceError,
    dim::{Kind, Open},
    handle::Node,
};
use crate::{
    capture::{
        aten::Cx,
        size_op,
        storage::Alias,
        weight::{Weight, contiguous},
    },
    passes::refine_shapes::Facts,
};
use bumpalo::Bump;
use indexmap::IndexMap;
use kiln_dialects::{
    ir::*,
    ops::{BindShape, Constant, GetGlobal, Global, Sym, SymKind},
    rules::{CONSTANT_LIMIT, tensor_type},
    sym,
    value::{self, DType},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
    panic::Location,
};

/// A place in the user's code.
pub(super) type Place = &'static Location<'static>;

/// The graph of one trace: makes inputs, weights, sizes and constants.
pub struct Graph {
    pub(super) arena: Bump,
    pub(super) state: RefCell<State>,
}

/// What a name of a value stands for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Named {
    Input,
    Result,
}

pub(super) struct State {
    pub cx: Cx,
    /// Where globals go.
    top: Builder,
    pub facts: Facts,
    /// The last op that `facts` knows.
    pub last: Option<Op>,
    /// Names of inputs and results, in order.
    pub names: IndexMap<String, Named>,
    /// The name of a value.
    pub name_of: HashMap<Alias, String>,
    /// Weights by name, and whether they are frozen.
    globals: IndexMap<String, (Alias, bool)>,
    /// Symbols by name: what they may be, and themselves.
    symbols: IndexMap<String, (Sym, Value)>,
    expressions: Vec<sym::Dim>,
    /// A value of each expression that has one.
    sizes: HashMap<sym::Dim, Value>,
    stored: BTreeMap<String, Weight>,
    types: Vec<Type>,
    layouts: Vec<Attr>,
    pub errors: Vec<OpError>,
    pub frames: Vec<Place>,
}

/// What a finished graph leaves behind.
pub(super) struct Parts {
    pub inputs: Vec<String>,
    pub types: Vec<Type>,
    pub layouts: Vec<Attr>,
    pub weights: BTreeMap<String, Weight>,
}

/// While it lives, ops have its place; see [`Graph::frame`].
pub struct Frame<'t>(&'t Graph);

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.0.state.borrow_mut().frames.pop();
    }
}

impl State {
    /// The location of an op that is made now.
    pub(super) fn loc(&self, place: Place) -> Loc {
        Loc::file(self.cx.b.ctx, place.file(), place.line(), place.column())
    }
    /// The place of the innermost frame, else the given one.
    pub(super) fn place(&self, place: Place) -> Place {
        self.frames.last().copied().unwrap_or(place)
    }
    /// `base`, or with a number behind it if that is taken.
    pub(super) fn unique(&mut self, base: &str, named: Named) -> String {
        let mut name = base.to_string();
        for i in 1.. {
            if !self.names.contains_key(&name) {
                break;
            }
            name = format!("{base}_{i}");
        }
        self.names.insert(name.clone(), named);
        name
    }
    /// Takes what was made since the last call into the facts.
    pub(super) fn advance(&mut self) -> Result<(), String> {
        let first = |s: &State| s.cx.b.block().first();
        let mut next = self.last.map_or_else(|| first(self), Op::next);
        while let Some(op) = next {
            self.last = Some(op);
            self.facts.extend(op).map_err(|e| format!("'{}' op {e}", op.name()))?;
            next = op.next();
        }
        Ok(())
    }
    fn symbol(&mut self, want: Sym) -> Result<Value, String> {
        if let Some((have, value)) = self.symbols.get(&want.name) {
            let same = (have.min, have.max, have.divisor) == (want.min, want.max, want.divisor);
            return if same { Ok(*value) } else { Err(format!("@{} is already a size with another range", want.name)) };
        }
        if want.min < 0 || want.max.is_some_and(|max| max < want.min) || want.divisor < 1 {
            return Err(format!("@{} has no size that it could be", want.name));
        }
        let value = self.cx.b.create_with(&want, &[Type::index(self.cx.b.ctx)], &mut [])?.result(0);
        self.advance()?;
        self.symbols.insert(want.name.clone(), (want, value));
        Ok(value)
    }
    fn input(&mut self, name: &str, dtype: DType, sizes: &[Size]) -> Result<Alias, String> {
        if self.names.contains_key(name) {
            return Err(format!("there is already a tensor {name}"));
        }
        if let Some(n) = sizes.iter().filter_map(|s| s.known()).find(|n| *n < 0) {
            return Err(format!("has size {n}, which is negative"));
        }
        let (b, dims) = (self.cx.b, sizes.iter().map(|s| s.known().map_or(sym::Dim::Unknown, sym::Dim::Known)).collect::<Vec<_>>());
        let ty = Type::tensor(b.ctx, dtype, &dims);
        let value = b.argument(ty, b.loc);
        self.facts.argument(value);
        let known: Option<Vec<usize>> = sizes.iter().map(|s| s.known().and_then(|n| usize::try_from(n).ok())).collect();
        // What has no layout is contiguous.
        let layout = known.map(|shape| ("kiln.layout", Attr::layout(b.ctx, &contiguous(&shape), 0, 0)));
        self.layouts.push(Attr::dictionary(b.ctx, layout.as_slice()));
        self.types.push(ty);
        if sizes.iter().any(|s| s.known().is_none()) {
            b.create_with(&BindShape { value, sizes: sizes.to_vec() }, &[], &mut [])?;
        }
        self.advance()?;
        let alias = self.cx.store.fresh(value);
        self.names.insert(name.into(), Named::Input);
        self.name_of.insert(alias, name.into());
        Ok(alias)
    }
    fn global(&mut self, name: &str, weight: Weight, source: String, frozen: bool) -> Result<Alias, String> {
        let dims: Vec<sym::Dim> = weight.shape.iter().map(|n| sym::Dim::Known(*n as i64)).collect();
        let ty = Type::tensor(self.cx.b.ctx, weight.dtype, &dims);
        if let Some((alias, as_frozen)) = self.globals.get(name).copied() {
            let same = self.cx.get(alias)?.ty() == ty && as_frozen == frozen;
            return if same { Ok(alias) } else { Err(format!("there is already another weight {name}")) };
        }
        let global = Global {
            sym_name: name.into(),
            sym_visibility: Some("private".into()),
            is_mutable: !frozen,
            r#type: ty,
            source: Some(source),
            value: None,
        };
        self.top.at(self.cx.b.loc).create_with(&global, &[], &mut [])?;
        let get = GetGlobal { is_mutable: !frozen, global: name.into() };
        let value = self.cx.b.create_with(&get, &[ty], &mut [])?.result(0);
        self.advance()?;
        let alias = self.cx.store.fresh(value);
        self.globals.insert(name.into(), (alias, frozen));
        self.stored.insert(name.into(), weight);
        self.name_of.insert(alias, name.into());
        Ok(alias)
    }
}

impl Graph {
    pub(super) fn new(b: Builder, top: Builder) -> Graph {
        let state = State {
            cx: Cx::new(b),
            top,
            facts: Facts::default(),
            last: None,
            names: IndexMap::new(),
            name_of: HashMap::new(),
            globals: IndexMap::new(),
            symbols: IndexMap::new(),
            expressions: vec![],
            sizes: HashMap::new(),
            stored: BTreeMap::new(),
            types: vec![],
            layouts: vec![],
            errors: vec![],
            frames: vec![],
        };
        Graph { arena: Bump::new(), state: RefCell::new(state) }
    }

    /// A symbolic size that is bound when the program is called. One name is one size. Errors: a range without sizes, a name with another range.
    #[track_caller]
    pub fn dim<'t>(&'t self, name: &str, range: RangeInclusive<i64>) -> Dim<'t> {
        self.dim_by(name, range, 1)
    }
    /// As [`Graph::dim`], for a multiple of `divisor`.
    #[track_caller]
    pub fn dim_by<'t>(&'t self, name: &str, range: RangeInclusive<i64>, divisor: i64) -> Dim<'t> {
        let place = Location::caller();
        let mut state = self.state.borrow_mut();
        state.cx.b.loc = state.loc(state.place(place)).named(name);
        let max = Some(*range.end()).filter(|m| *m < i64::MAX);
        match state.symbol(Sym { name: name.into(), min: *range.start(), max, divisor }) {
            Ok(value) => self.open(&mut state, value),
            Err(e) => {
                drop(state);
                self.refuse(place, "dim", e, &[]);
                Dim::POISON
            }
        }
    }
    /// An input of the program. Inputs are in the order of these calls. Errors: a name that is taken, a negative size.
    #[track_caller]
    pub fn input<'t>(&'t self, name: &str, dtype: DType, shape: impl Shape<'t>) -> Tensor<'t> {
        let place = Location::caller();
        let made = self.raw_sizes(&shape.dims()).and_then(|sizes| {
            let mut state = self.state.borrow_mut();
            state.cx.b.loc = state.loc(state.place(place)).named(name);
            state.input(name, dtype, &sizes)
        });
        self.made(place, "input", made)
    }
    /// A weight that the caller may change between calls of the program, such as those of a framework. Errors: a name that is taken by a weight
    /// of another type.
    #[track_caller]
    pub fn parameter<'t>(&'t self, name: &str, value: &Weight) -> Tensor<'t> {
        self.weight(name, value, format!("#{name}"), false)
    }
    /// A weight that never changes, so that it may be packed and folded. Errors: as [`Graph::parameter`].
    #[track_caller]
    pub fn frozen<'t>(&'t self, name: &str, value: &Weight) -> Tensor<'t> {
        self.weight(name, value, format!("#{name}"), true)
    }
    #[track_caller]
    pub(crate) fn weight<'t>(&'t self, name: &str, value: &Weight, source: String, frozen: bool) -> Tensor<'t> {
        let place = Location::caller();
        let mut state = self.state.borrow_mut();
        state.cx.b.loc = state.loc(state.place(place)).named(name);
        let made = state.global(name, value.clone(), source, frozen);
        drop(state);
        self.made(place, "parameter", made)
    }
    /// Literal values: in the program up to 4 KiB, beyond that a frozen weight.
    #[track_caller]
    pub fn constant<'t>(&'t self, value: &value::Tensor) -> Tensor<'t> {
        let place = Location::caller();
        let weight = Weight::of(value);
        let mut state = self.state.borrow_mut();
        let name = state.unique("constant", Named::Result);
        state.cx.b.loc = state.loc(state.place(place)).named(&name);
        if weight.bytes().len() > CONSTANT_LIMIT {
            drop(state);
            return self.weight(&name, &weight, format!("#{name}"), true);
        }
        let made = Attr::dense(state.cx.b.ctx, value).and_then(|value| {
            let ty = value.type_of();
            let v = state.cx.b.create_with(&Constant { value }, &[ty], &mut [])?.result(0);
            state.advance()?;
            let alias = state.cx.store.fresh(v);
            state.name_of.insert(alias, name);
            Ok(alias)
        });
        drop(state);
        self.made(place, "constant", made)
    }
    /// Records an error that is none of an op on tensors, and gives a poisoned tensor.
    #[track_caller]
    pub(crate) fn failed<'t>(&'t self, op: &str, reason: String) -> Tensor<'t> {
        self.refuse(Location::caller(), op, reason, &[])
    }
    /// While the result lives, ops have this place, unless a frame is there already. For functions that are called by a user and are made of
    /// several ops: `let _frame = graph.frame(Location::caller());` in a function with `#[track_caller]`.
    pub fn frame(&self, place: &'static Location<'static>) -> Frame<'_> {
        let mut state = self.state.borrow_mut();
        let place = state.place(place);
        state.frames.push(place);
        Frame(self)
    }
    /// As [`Graph::frame`], whatever frame is there.
    pub fn inner_frame(&self, place: &'static Location<'static>) -> Frame<'_> {
        self.state.borrow_mut().frames.push(place);
        Frame(self)
    }

    /// A handle of what was made, or an error and a poisoned one.
    fn made<'t>(&'t self, place: Place, op: &'static str, made: Result<Alias, String>) -> Tensor<'t> {
        match made {
            Ok(alias) => self.handle(Some(alias)),
            Err(e) => self.refuse(place, op, e, &[]),
        }
    }
    pub(super) fn handle<'t>(&'t self, alias: Option<Alias>) -> Tensor<'t> {
        Tensor { graph: self, node: self.arena.alloc(Node { alias }) }
    }
    /// Records an error and gives a poisoned tensor.
    pub(super) fn refuse<'t>(&'t self, place: Place, op: &str, reason: String, operands: &[Tensor<'t>]) -> Tensor<'t> {
        let poisoned = operands.iter().any(|t| t.node.alias.is_none());
        // What is wrong with a poisoned tensor follows from what poisoned it.
        if !poisoned && !reason.is_empty() {
            let types = operands.iter().map(|t| t.to_string()).collect();
            let mut state = self.state.borrow_mut();
            let error = OpError::new(state.place(place), op, reason, types);
            state.errors.push(error);
        }
        self.handle(None)
    }

    fn open<'t>(&'t self, state: &mut State, value: Value) -> Dim<'t> {
        let expr = state.facts.size_value(value);
        match expr {
            sym::Dim::Known(n) => Dim(Kind::Known(n)),
            sym::Dim::Unknown => Dim::NO_VALUE,
            expr => {
                state.sizes.entry(expr.clone()).or_insert(value);
                state.expressions.push(expr);
                Dim(Kind::Open(self.arena.alloc(Open { graph: self, value, expr: state.expressions.len() - 1 })))
            }
        }
    }
    pub(super) fn expression(&self, number: usize) -> sym::Dim {
        self.state.borrow().expressions.get(number).cloned().unwrap_or(sym::Dim::Unknown)
    }
    /// `x kind y`, at least one of which is symbolic.
    pub(super) fn compute<'t>(&'t self, kind: SymKind, x: Dim<'t>, y: Dim<'t>, place: Place) -> Dim<'t> {
        let Ok(sizes) = self.raw_sizes(&[x, y]) else { return Dim::POISON };
        let [x, y] = sizes.as_slice() else { return Dim::POISON };
        let mut state = self.state.borrow_mut();
        state.cx.b.loc = state.loc(state.place(place));
        match size_op(&state.cx.b, kind, *x, *y).and_then(|s| state.advance().map(|()| s)) {
            Ok(Size::Static(n)) => Dim::from(n),
            Ok(Size::Dynamic(value)) => self.open(&mut state, value),
            Err(_) => Dim::NO_VALUE,
        }
    }
    /// Sizes as ops take them. Err: a reason, which is empty for what follows from an error that is recorded.
    pub(super) fn raw_sizes(&self, all: &[Dim<'_>]) -> Result<Vec<Size>, String> {
        let raw = |d: &Dim<'_>| match d.0 {
            Kind::Known(n) => Ok(Size::Static(n)),
            Kind::Open(o) if std::ptr::eq(o.graph, self) => Ok(Size::Dynamic(o.value)),
            Kind::Open(_) => Err("takes a size of another graph".to_string()),
            Kind::NoValue => Err("takes a size that has no value: an overflow or a division by 0".to_string()),
            Kind::Poison => Err(String::new()),
        };
        all.iter().map(raw).collect()
    }
    pub(super) fn type_of(&self, t: Tensor<'_>) -> Option<(DType, Vec<sym::Dim>)> {
        let mut state = self.state.borrow_mut();
        let value = t.node.alias.and_then(|a| state.cx.get(a).ok())?;
        Some((tensor_type(value.ty()).ok()?.dtype, state.facts.dims(value).to_vec()))
    }
    /// A size of a tensor that has that dimension.
    pub(super) fn size_of<'t>(&'t self, t: Tensor<'t>, axis: usize) -> Dim<'t> {
        let mut state = self.state.borrow_mut();
        let Some(value) = t.node.alias.and_then(|a| state.cx.get(a).ok()) else { return Dim::POISON };
        let known = state.facts.dims(value).get(axis).cloned().unwrap_or(sym::Dim::Unknown);
        if let Some(n) = known.known() {
            return Dim::from(n);
        }
        if let Some(size) = state.sizes.get(&known).copied() {
            return self.open(&mut state, size);
        }
        match state.cx.b.size_of(value, axis).and_then(|s| state.advance().map(|()| s)) {
            Ok(Size::Dynamic(size)) => self.open(&mut state, size),
            Ok(Size::Static(n)) => Dim::from(n),
            Err(_) => Dim::POISON,
        }
    }
    pub(super) fn rename(&self, t: Tensor<'_>, name: &str, place: Place) {
        let mut state = self.state.borrow_mut();
        let Some(alias) = t.node.alias else { return };
        let Some(op) = state.cx.get(alias).ok().and_then(Value::def) else { return };
        let name = state.unique(name, Named::Result);
        let loc = op.loc().place().map_or_else(|| state.loc(place), |(file, line, col)| Loc::file(op.ctx(), &file, line, col));
        op.set_loc(loc.named(&name));
        state.name_of.insert(alias, name);
    }

    /// The errors so far.
    pub(super) fn failure(&self) -> TraceError {
        TraceError::Ops(self.state.borrow().errors.clone())
    }
    /// Err: the ops so far that cannot be.
    pub fn check(&self) -> Result<(), TraceError> {
        if self.state.borrow().errors.is_empty() { Ok(()) } else { Err(self.failure()) }
    }
    /// Values and names of the results.
    pub(super) fn finish(&self, results: &[Tensor<'_>]) -> Result<(Vec<Value>, Vec<String>), TraceError> {
        let mut state = self.state.borrow_mut();
        let (mut values, mut names) = (vec![], vec![]);
        for (i, t) in results.iter().enumerate() {
            let own = std::ptr::eq(t.graph, self);
            let Some(alias) = t.node.alias.filter(|_| own) else {
                let reason = if own { "has no value" } else { "belongs to another trace" };
                drop(state);
                self.check()?;
                return Err(TraceError::Module(format!("result {i} {reason}")));
            };
            values.push(state.cx.get(alias).map_err(TraceError::Module)?);
            names.push(state.name_of.get(&alias).cloned().unwrap_or_else(|| format!("output_{i}")));
        }
        Ok((values, names))
    }
    pub(super) fn into_parts(self) -> Parts {
        let state = self.state.into_inner();
        let inputs = state.names.into_iter().filter(|(_, named)| *named == Named::Input).map(|(name, _)| name).collect();
        Parts { inputs, types: state.types, layouts: state.layouts, weights: state.stored }
    }
}
