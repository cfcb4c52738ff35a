//! State of a graph being traced: names, inputs, weights, symbols, errors.
use super::{
    Array, OpError,
    call_site::CallSite,
    session::{Lifted, Session},
};
use crate::{
    capture::{
        aten::Cx,
        storage::Alias,
        weight::{Weight, contiguous},
    },
    passes::refine_shapes::Facts,
};
use indexmap::IndexMap;
use kiln_dialects::{
    ir::*,
    ops::{BindShape, Constant, GetGlobal, Global, Sym},
    rules::CONSTANT_LIMIT,
    sym,
    value::{self, DType},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// What an SSA name refers to.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum NameKind {
    Input,
    Result,
}

pub(super) struct TraceState {
    pub cx: Cx,
    /// Insertion point of globals.
    top: Builder,
    pub facts: Facts,
    /// The last op recorded in `facts`.
    pub last: Option<Op>,
    /// Names of inputs and results, in order.
    pub names: IndexMap<String, NameKind>,
    /// The name of each value.
    pub name_of: HashMap<Alias, String>,
    /// Weights by name, with whether each is frozen.
    globals: IndexMap<String, (Alias, bool)>,
    /// Symbols by name: declaration and SSA value.
    symbols: IndexMap<String, (Sym, Value)>,
    /// Expressions used by handles, with their SSA values.
    pub expressions: Vec<(sym::Dim, Value)>,
    /// SSA values of expressions, where available.
    pub sizes: HashMap<sym::Dim, Value>,
    stored: BTreeMap<String, Weight>,
    types: Vec<Type>,
    layouts: Vec<Attr>,
    pub errors: Vec<OpError>,
    /// Concrete tensors used as constants, by address; kept alive, so that no address is reused.
    arrays: HashMap<usize, (Arc<Array>, Alias)>,
    /// State of the call being compiled.
    pub session: Option<Session>,
    /// Insertion points outside each open region, outermost first, and the last op there recorded
    /// in `facts`.
    outer: Vec<(Builder, Option<Op>)>,
}

/// State to restore after a region.
pub(super) struct Region {
    sizes: HashMap<sym::Dim, Value>,
    values: Vec<(usize, Value)>,
}

/// Parts of a finished graph.
pub(super) struct GraphParts {
    pub inputs: Vec<String>,
    pub types: Vec<Type>,
    pub layouts: Vec<Attr>,
    pub weights: BTreeMap<String, Weight>,
    pub session: Option<Session>,
}

impl TraceState {
    pub(super) fn new(b: Builder, top: Builder, session: Option<Session>) -> TraceState {
        TraceState {
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
            arrays: HashMap::new(),
            session,
            outer: vec![],
        }
    }
    /// Enters a region with these arguments.
    pub(super) fn enter_region(&mut self, b: Builder, args: &[Value]) -> Region {
        self.outer.push((self.cx.b, self.last.take()));
        self.cx.b = b;
        args.iter().for_each(|v| self.facts.argument(*v));
        Region { sizes: self.sizes.clone(), values: self.cx.store.values() }
    }
    /// Leaves a region; values derived inside it are dropped.
    pub(super) fn leave_region(&mut self, region: Region) {
        if let Some((b, last)) = self.outer.pop() {
            (self.cx.b, self.last) = (b, last);
        }
        self.sizes = region.sizes;
        self.cx.store.restore(region.values);
    }
    /// Builds something in the function's entry block, visible to every region.
    fn outside<X>(&mut self, make: impl FnOnce(&mut TraceState) -> Result<X>) -> Result<X> {
        let Some((b, last)) = self.outer.first().copied() else { return make(self) };
        let inner = (self.cx.b, self.last);
        (self.cx.b, self.last) = (b.at(inner.0.loc), last);
        let made = make(self);
        self.outer[0].1 = self.last;
        (self.cx.b, self.last) = inner;
        made
    }
    pub(super) fn parts(&mut self) -> GraphParts {
        let inputs = self
            .names
            .iter()
            .filter(|(_, named)| **named == NameKind::Input)
            .map(|(name, _)| name.clone())
            .collect();
        GraphParts {
            inputs,
            types: std::mem::take(&mut self.types),
            layouts: std::mem::take(&mut self.layouts),
            weights: std::mem::take(&mut self.stored),
            session: self.session.take(),
        }
    }
    /// The location of an op created now.
    pub(super) fn loc(&self, site: CallSite) -> Loc {
        Loc::file(self.cx.b.ctx, site.file(), site.line(), site.column())
    }
    /// `base`, with a numeric suffix if the name is taken.
    pub(super) fn free(&self, base: &str) -> String {
        let mut name = base.to_string();
        for i in 1.. {
            if !self.names.contains_key(&name) && !self.globals.contains_key(&name) {
                break;
            }
            name = format!("{base}_{i}");
        }
        name
    }
    /// As [`TraceState::free`], and reserves the name.
    pub(super) fn unique(&mut self, base: &str, named: NameKind) -> String {
        let name = self.free(base);
        self.names.insert(name.clone(), named);
        name
    }
    /// The SSA value of a symbol.
    pub(super) fn symbol_value(&self, name: &str) -> Option<Value> {
        self.symbols.get(name).map(|(_, value)| *value)
    }
    /// Records all ops since the last call in `facts`.
    pub(super) fn advance(&mut self) -> Result<()> {
        let first = |s: &TraceState| s.cx.b.block().first();
        let mut next = self.last.map_or_else(|| first(self), Op::next);
        while let Some(op) = next {
            self.last = Some(op);
            let (known, equal) = sym::assumptions(|| self.facts.extend(op));
            known.map_err(|e| format!("'{}' op {e}", op.name()))?;
            if let Some(session) = &mut self.session {
                session.assume(equal, op)?;
            }
            next = op.next();
        }
        Ok(())
    }
    pub(super) fn symbol(&mut self, want: Sym) -> Result<Value> {
        self.outside(|s| s.own_symbol(want))
    }
    fn own_symbol(&mut self, want: Sym) -> Result<Value> {
        if let Some((have, value)) = self.symbols.get(&want.name) {
            let same = (have.min, have.max, have.divisor) == (want.min, want.max, want.divisor);
            return if same {
                Ok(*value)
            } else {
                Err(format!("@{} is already a size with another range", want.name).into())
            };
        }
        if want.min < 0 || want.max.is_some_and(|max| max < want.min) || want.divisor < 1 {
            return Err(format!("@{} has no size that it could be", want.name).into());
        }
        let value = self.cx.b.create_with(&want, &[Type::index(self.cx.b.ctx)], &mut [])?.result(0);
        self.advance()?;
        self.symbols.insert(want.name.clone(), (want, value));
        Ok(value)
    }
    pub(super) fn input(&mut self, name: &str, dtype: DType, sizes: &[Size]) -> Result<Alias> {
        self.outside(|s| s.own_input(name, dtype, sizes))
    }
    fn own_input(&mut self, name: &str, dtype: DType, sizes: &[Size]) -> Result<Alias> {
        if self.names.contains_key(name) {
            return Err(format!("there is already a tensor {name}").into());
        }
        if let Some(n) = sizes.iter().filter_map(|s| s.known()).find(|n| *n < 0) {
            return Err(format!("has size {n}, which is negative").into());
        }
        let (b, dims) = (
            self.cx.b,
            sizes
                .iter()
                .map(|s| s.known().map_or(sym::Dim::Unknown, sym::Dim::Known))
                .collect::<Vec<_>>(),
        );
        let ty = Type::tensor(b.ctx, dtype, &dims);
        let value = b.argument(ty, b.loc);
        self.facts.argument(value);
        let known: Option<Vec<usize>> =
            sizes.iter().map(|s| s.known().and_then(|n| usize::try_from(n).ok())).collect();
        // No layout means contiguous.
        let layout =
            known.map(|shape| ("kiln.layout", Attr::layout(b.ctx, &contiguous(&shape), 0, 0)));
        self.layouts.push(Attr::dictionary(b.ctx, layout.as_slice()));
        self.types.push(ty);
        if sizes.iter().any(|s| s.known().is_none()) {
            b.create_with(&BindShape { value, sizes: sizes.to_vec() }, &[], &mut [])?;
        }
        self.advance()?;
        let alias = self.cx.store.fresh(value);
        self.names.insert(name.into(), NameKind::Input);
        self.name_of.insert(alias, name.into());
        Ok(alias)
    }
    /// Lifts a number argument to an input, once.
    pub(super) fn number(&mut self, leaf: usize, dtype: DType) -> Result<Alias> {
        let argument = self
            .session
            .as_ref()
            .and_then(|s| s.numbers.get(&leaf))
            .ok_or("is a number of another call")?;
        if let Some(alias) = argument.input {
            return Ok(alias);
        }
        let name = self.free(&argument.name.clone());
        let alias = self.input(&name, dtype, &[])?;
        if let Some(session) = &mut self.session {
            session.lifted.push(Lifted::Number(leaf));
            session.numbers.entry(leaf).and_modify(|n| n.input = Some(alias));
        }
        Ok(alias)
    }
    /// The symbol of an integer argument, with the input that it is read from; `None` if it may not
    /// be symbolic.
    pub(super) fn size_number(&mut self, leaf: usize) -> Option<String> {
        let argument = self.session.as_ref()?.numbers.get(&leaf)?;
        let (symbol, name) = (argument.symbol.clone()?, argument.name.clone());
        if self.symbol_value(&symbol).is_none() {
            let value =
                self.symbol(Sym { name: symbol.clone(), min: 2, max: None, divisor: 1 }).ok()?;
            let name = self.free(&format!("{name}_size"));
            self.input(&name, DType::I8, &[Size::Static(0), Size::Dynamic(value)]).ok()?;
            self.session.as_mut()?.lifted.push(Lifted::Size(leaf));
        }
        Some(symbol)
    }
    pub(super) fn global(
        &mut self,
        name: &str,
        weight: Weight,
        source: String,
        frozen: bool,
    ) -> Result<Alias> {
        self.outside(|s| s.own_global(name, weight, source, frozen))
    }
    fn own_global(
        &mut self,
        name: &str,
        weight: Weight,
        source: String,
        frozen: bool,
    ) -> Result<Alias> {
        let dims: Vec<sym::Dim> = weight.shape.iter().map(|n| sym::Dim::Known(*n as i64)).collect();
        let ty = Type::tensor(self.cx.b.ctx, weight.dtype, &dims);
        if let Some((alias, as_frozen)) = self.globals.get(name).copied() {
            let same = self.cx.get(alias)?.ty() == ty && as_frozen == frozen;
            return if same {
                Ok(alias)
            } else {
                Err(format!("there is already another weight {name}").into())
            };
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
    /// A constant: inline in the program up to 4 KiB, a frozen weight beyond.
    pub(super) fn constant(&mut self, name: &str, weight: Weight) -> Result<Alias> {
        self.outside(|s| s.own_constant(name, weight))
    }
    fn own_constant(&mut self, name: &str, weight: Weight) -> Result<Alias> {
        if weight.bytes().len() > CONSTANT_LIMIT {
            return self.global(name, weight, format!("#{name}"), true);
        }
        let value: value::Tensor = weight.read().map_err(|e| e.to_string())?;
        let value = Attr::dense(self.cx.b.ctx, &value)?;
        let v = self.cx.b.create_with(&Constant { value }, &[value.type_of()], &mut [])?.result(0);
        self.advance()?;
        let alias = self.cx.store.fresh(v);
        self.name_of.insert(alias, name.into());
        Ok(alias)
    }
    /// A concrete tensor as a constant, once.
    pub(super) fn array(&mut self, array: &Arc<Array>) -> Result<Alias> {
        let key = Arc::as_ptr(array) as usize;
        if let Some((_, alias)) = self.arrays.get(&key) {
            return Ok(*alias);
        }
        let alias = if self.session.as_ref().is_some_and(|s| s.lift_arrays) {
            let sizes: Vec<Size> = array.shape().iter().map(|n| Size::Static(*n as i64)).collect();
            let name = self.free("captured");
            let alias = self.input(&name, array.dtype(), &sizes)?;
            if let Some(session) = &mut self.session {
                session.lifted.push(Lifted::Array(array.clone()));
            }
            alias
        } else {
            let name = self.unique("constant", NameKind::Result);
            self.constant(&name, Weight::from_array(array).map_err(|e| e.to_string())?)?
        };
        self.arrays.insert(key, (array.clone(), alias));
        Ok(alias)
    }
}
