//! Ops with regions in a trace: traces functions into regions, and infers result types.
use super::{
    Graph, Tensor, TraceError,
    call_site::CallSite,
    state::{NameKind, TraceState},
};
use crate::lowering::analysis::sizes::SizeBuilder;
use kiln_dialects::{
    ir::*,
    ops::{BindShape, OpKind, Reshape, SymExpr, SymKind, Yield},
    rules::tensor_type,
    sym::{self, Atom},
    value::DType,
};
use std::cell::RefCell;

/// A dtype and a shape.
pub(super) type Spec = (DType, Vec<sym::Dim>);

/// A region: argument types, required result types if known, and the function.
pub(super) struct Body<'a> {
    pub args: Vec<Spec>,
    pub result_types: Option<Vec<Spec>>,
    pub run: &'a mut dyn FnMut(Vec<Tensor>) -> Result<Vec<Tensor>, TraceError>,
}

/// Infers an op's result types from those of its regions.
pub(super) type Results<'a> = dyn Fn(&[Vec<Spec>]) -> Result<Vec<Spec>> + 'a;

/// An op with regions.
pub(super) struct RegionOp<'a> {
    pub kind: OpKind,
    pub operands: Vec<Value>,
    pub attrs: Vec<(&'static str, Attr)>,
    pub bodies: Vec<Body<'a>>,
}

pub(super) fn type_of(c: Ctx, (dtype, dims): &Spec) -> Type {
    let dims: Vec<sym::Dim> =
        dims.iter().map(|d| d.known().map_or(sym::Dim::Unknown, sym::Dim::Known)).collect();
    Type::tensor(c, *dtype, &dims)
}

pub(super) fn show((dtype, dims): &Spec) -> String {
    format!("{dtype}[{}]", dims.iter().map(|d| d.to_string()).collect::<Vec<_>>().join(", "))
}

/// SSA values of sizes at the insertion point.
struct Sizes<'a>(&'a mut TraceState);

impl SizeBuilder for Sizes<'_> {
    type Output = Value;
    fn number(&mut self, n: i64) -> Result<Value, crate::dialects::Error> {
        self.0.cx.b.index(n)
    }
    fn leaf(&mut self, a: &Atom, whole: &sym::Dim) -> Result<Value, crate::dialects::Error> {
        let symbol = if let Atom::Sym(name) = a { self.0.symbol_value(name) } else { None };
        symbol.ok_or_else(|| format!("has a size that depends on data ({whole})").into())
    }
    fn apply(
        &mut self,
        kind: SymKind,
        lhs: Value,
        rhs: Value,
    ) -> Result<Value, crate::dialects::Error> {
        Ok(self
            .0
            .cx
            .b
            .create_with(&SymExpr { kind, lhs, rhs }, &[Type::index(self.0.cx.b.ctx)], &mut [])?
            .result(0))
    }
    fn cached(&self, d: &sym::Dim) -> Option<Value> {
        self.0.sizes.get(d).copied()
    }
    fn cache(&mut self, d: &sym::Dim, made: Value) {
        self.0.sizes.insert(d.clone(), made);
    }
}

impl TraceState {
    /// Materialises sizes at the insertion point: constants and SSA values.
    pub(super) fn raw(&mut self, dims: &[sym::Dim]) -> Result<Vec<Size>> {
        dims.iter()
            .map(|d| {
                Ok(match d.known() {
                    Some(n) => Size::Static(n),
                    None => Size::Dynamic(Sizes(self).build(d)?),
                })
            })
            .collect()
    }
    /// Binds the sizes of a new value.
    fn bind(&mut self, value: Value, dims: &[sym::Dim]) -> Result<()> {
        if dims.iter().any(|d| d.known().is_none()) {
            let sizes = self.raw(dims)?;
            self.cx.b.create_with(&BindShape { value, sizes }, &[], &mut [])?;
        }
        self.advance()
    }
    fn spec(&self, v: Value) -> Result<Spec> {
        Ok((tensor_type(v.ty())?.dtype, self.facts.dims(v).to_vec()))
    }
    /// Casts a value to a type as static as `spec`.
    fn cast_to(&mut self, v: Value, spec: &Spec) -> Result<Value> {
        if v.ty() == type_of(v.ctx(), spec) {
            return Ok(v);
        }
        let sizes = self.raw(&spec.1)?;
        let b = self.cx.b;
        let made = b
            .create_with(&Reshape { input: v, sizes }, &[type_of(b.ctx, spec)], &mut [])?
            .result(0);
        self.advance().map(|()| made)
    }
}

impl Graph {
    /// A tensor's SSA value in this graph, with its type.
    pub(super) fn ssa_value(&self, t: &Tensor) -> Result<(Value, Spec), TraceError> {
        let (value, _) = self.result(0, t)?;
        let spec = self.state().and_then(|s| s.spec(value)).map_err(TraceError::module)?;
        Ok((value, spec))
    }

    /// Builds the op; each function is called once. `results` infers the result types. Err: the
    /// error, also recorded in the trace. The op is kept on error, since tensors may refer to
    /// values of its regions.
    pub(super) fn region_op(
        &self,
        site: CallSite,
        op: &'static str,
        mut what: RegionOp,
        results: &Results,
    ) -> Result<Vec<Tensor>, TraceError> {
        let module = |e: Error| TraceError::module(e);
        let (b, name) = {
            let mut state = self.state().map_err(module)?;
            let name = state.unique(op, NameKind::Result);
            let loc = state.loc(self.site(site)).named(&name);
            (state.cx.b.at(loc), name)
        };
        let kind = what.kind;
        let (yielded, failure) = (RefCell::new(vec![]), RefCell::new(None));
        let types: Vec<Vec<Type>> = what
            .bodies
            .iter()
            .map(|body| body.args.iter().map(|a| type_of(b.ctx, a)).collect())
            .collect();
        let mut fills: Vec<_> = what
            .bodies
            .iter_mut()
            .map(|body| {
                |inner: Builder, args: Vec<Value>| {
                    let before = yielded.borrow().first().cloned();
                    match self.fill(inner, args, kind, body, before) {
                        Ok(specs) => yielded.borrow_mut().push(specs),
                        Err(e) => drop(failure.borrow_mut().get_or_insert(e)),
                    }
                    Ok(())
                }
            })
            .collect();
        let mut regions: Vec<(&[Type], &mut RegionFill)> =
            types.iter().zip(&mut fills).map(|(t, f)| (&t[..], f as &mut RegionFill)).collect();
        let made: RefCell<Vec<Spec>> = RefCell::default();
        let op_made = b.generic_late(
            what.kind.name(),
            &what.operands,
            &what.attrs,
            &mut regions,
            &mut || {
                if failure.borrow().is_none() {
                    match results(&yielded.borrow()) {
                        Ok(specs) => *made.borrow_mut() = specs,
                        Err(e) => drop(
                            failure.borrow_mut().insert(TraceError::User(e.to_string().into())),
                        ),
                    }
                }
                Ok(made.borrow().iter().map(|s| type_of(b.ctx, s)).collect())
            },
        );
        drop(regions);
        drop(fills);
        match failure.into_inner() {
            None => {}
            Some(TraceError::User(e)) => {
                return Err(self.refuse(site, op, e.to_string(), &[]).error());
            }
            Some(e) => {
                self.refuse(site, op, format!("is of a function that fails: {e}"), &[]);
                return Err(e);
            }
        }
        let mut state = self.state().map_err(module)?;
        let made_op = op_made.map_err(module)?;
        state.cx.b.loc = b.loc;
        state.advance().map_err(module)?;
        let mut all = vec![];
        for (value, (_, dims)) in made_op.results().into_iter().zip(made.into_inner()) {
            state.bind(value, &dims).map_err(module)?;
            let alias = state.cx.store.fresh(value);
            state.name_of.insert(alias, name.clone());
            all.push(self.handle(Some(alias)));
        }
        Ok(all)
    }

    fn fill(
        &self,
        inner: Builder,
        args: Vec<Value>,
        kind: OpKind,
        body: &mut Body,
        before: Option<Vec<Spec>>,
    ) -> Result<Vec<Spec>, TraceError> {
        let module = |e: Error| TraceError::module(e);
        let (region, tensors) = {
            let mut state = self.state().map_err(module)?;
            let region = state.enter_region(inner, &args);
            let mut tensors = vec![];
            for (v, (_, dims)) in args.iter().zip(&body.args) {
                state.bind(*v, dims).map_err(module)?;
                let alias = state.cx.store.fresh(*v);
                tensors.push(self.handle(Some(alias)));
            }
            (region, tensors)
        };
        let done = (body.run)(tensors).and_then(|given| {
            let mut values = vec![];
            for (i, t) in given.iter().enumerate() {
                values.push(self.result(i, t)?.0);
            }
            let mut state = self.state().map_err(module)?;
            let mut specs = values
                .iter()
                .map(|v| state.spec(*v))
                .collect::<Result<Vec<_>, _>>()
                .map_err(module)?;
            let exact = kind != OpKind::Scan;
            if let Some(want) = body.result_types.clone().or(before) {
                if want.len() > specs.len()
                    || exact && want.len() < specs.len()
                    || want.iter().zip(&specs).any(|(w, s)| w != s)
                {
                    let list = |all: &[Spec]| all.iter().map(show).collect::<Vec<_>>().join(", ");
                    return Err(TraceError::User(
                        format!("gives ({}) where ({}) is needed", list(&specs), list(&want))
                            .into(),
                    ));
                }
                for ((v, spec), want) in values.iter_mut().zip(&mut specs).zip(&want) {
                    *v = state.cast_to(*v, want).map_err(module)?;
                    *spec = want.clone();
                }
            }
            state.cx.b.create_with(&Yield { values }, &[], &mut []).map_err(module)?;
            Ok(specs)
        });
        self.state().map_err(module)?.leave_region(region);
        done
    }
}
