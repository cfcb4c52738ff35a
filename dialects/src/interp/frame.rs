//! A call: the values of a function, and its ops one after another.
use super::{
    eval,
    factorize::{factorize, transform},
    interpreter::{Interpreter, Mode, RunError, error, unsupported},
};
use crate::{
    ir::*,
    ops::*,
    sym,
    value::{DType, Tensor},
};
use kiln_linalg::{Factorization, Fourier};
use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

/// The run-time value of an SSA value.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Tensor(Rc<Tensor>),
    Index(i64),
}

pub(super) struct Frame<'a, 'b> {
    pub interp: &'a Interpreter<'b>,
    pub(super) module: Op,
    symbols: HashMap<String, i64>,
    values: HashMap<Value, Bound>,
    pub(super) depth: usize,
}

/// Limit of the call depth.
const MAX_CALLS: usize = 64;

/// Calls a function of a module.
pub(super) fn call(
    interp: &Interpreter,
    module: Op,
    function: &str,
    inputs: Vec<Bound>,
    depth: usize,
) -> Result<Vec<Bound>, RunError> {
    if depth > MAX_CALLS {
        return Err(error(module, format!("calls nest deeper than {MAX_CALLS}")));
    }
    let func = func(module, function)?;
    let block =
        func.regions().first().and_then(|r| r.first()).ok_or_else(|| error(func, "has no body"))?;
    let args = block.args();
    if args.len() != inputs.len() {
        return Err(error(
            func,
            format!(
                "@{function} takes {} input{}, but {} {} given",
                args.len(),
                if args.len() == 1 { "" } else { "s" },
                inputs.len(),
                if inputs.len() == 1 { "is" } else { "are" }
            ),
        ));
    }
    let mut frame =
        Frame { interp, module, symbols: HashMap::new(), values: HashMap::new(), depth };
    for (i, (arg, input)) in args.iter().zip(inputs).enumerate() {
        match &input {
            Bound::Tensor(t) => {
                check(arg.ty(), t).map_err(|e| error(func, format!("input {i} {}", e.message)))?
            }
            Bound::Index(_) if arg.ty().is_index() => {}
            Bound::Index(_) => {
                return Err(error(func, format!("input {i} is a size, not {}", arg.ty())));
            }
        }
        frame.values.insert(*arg, input);
    }
    frame.bind_symbols(block)?;
    frame.block(block)
}

/// A function of a module.
pub(super) fn func(module: Op, name: &str) -> Result<Op, RunError> {
    let found = blocks(module)
        .into_iter()
        .flat_map(|b| b.ops())
        .find(|o| o.isa::<func::Func>() && o.symbol().as_deref() == Some(name));
    found.ok_or_else(|| error(module, format!("has no function @{name}")))
}

fn has_function(module: Op, name: &str) -> bool {
    blocks(module)
        .into_iter()
        .flat_map(|b| b.ops())
        .any(|o| o.isa::<func::Func>() && o.symbol().as_deref() == Some(name))
}

/// Checks that a tensor has the type.
fn check(ty: Type, t: &Tensor) -> Result<()> {
    let want = crate::rules::tensor_type(ty)?;
    let fits = want.dims.len() == t.rank()
        && want.dims.iter().zip(t.shape()).all(|(d, n)| d.known().is_none_or(|d| d == *n as i64));
    if want.dtype != t.dtype() || !fits {
        return Err(format!("is {} {:?}, which is not {ty}", t.dtype().name(), t.shape()).into());
    }
    Ok(())
}

impl Frame<'_, '_> {
    pub(super) fn tensor(&self, v: Value) -> Result<Rc<Tensor>> {
        match self.values.get(&v) {
            Some(Bound::Tensor(t)) => Ok(t.clone()),
            Some(Bound::Index(_)) => Err("uses a size as a tensor".into()),
            None => Err("uses a value that has not been computed".into()),
        }
    }
    pub(super) fn value(&self, v: Value) -> Option<Bound> {
        self.values.get(&v).cloned()
    }
    pub(super) fn index(&self, v: Value) -> Result<i64> {
        let late = || v.def().filter(|op| matches!(op.kind(), Some(OpKind::Sym | OpKind::SymExpr)));
        match self.values.get(&v) {
            Some(Bound::Index(i)) => Ok(*i),
            Some(Bound::Tensor(_)) => Err("uses a tensor as a size".into()),
            None => match late() {
                Some(op) => self.size_of_symbols(op),
                None => Err("uses a size that has not been computed".into()),
            },
        }
    }

    /// The value of a `kiln.sym` or `kiln.sym_expr`.
    fn size_of_symbols(&self, op: Op) -> Result<i64> {
        if let Some(o) = Sym::of(op) {
            let value = self.symbols.get(&o.name).copied();
            let value = value.ok_or_else(|| format!("has unbound symbol @{}", o.name))?;
            return in_range(&o, value).map(|()| value);
        }
        let o = SymExpr::of(op).ok_or_malformed(op)?;
        let (a, b) = (self.index(o.lhs)?, self.index(o.rhs)?);
        sym::evaluate(o.kind, a, b)
            .ok_or_else(|| format!("has no value: {} of {a} and {b}", o.kind.keyword()).into())
    }
    /// Whether a size needs a symbol that a later `kiln.unbacked_size` binds.
    fn waits(&self, op: Op, later: &HashSet<String>) -> bool {
        let unbound = |name: &String| later.contains(name) && !self.symbols.contains_key(name);
        match (Sym::of(op), SymExpr::of(op)) {
            (Some(o), _) => unbound(&o.name),
            (None, Some(o)) => {
                let waits = |v: Value| v.def().is_some_and(|d| self.waits(d, later));
                waits(o.lhs) || waits(o.rhs)
            }
            _ => false,
        }
    }

    /// Binds symbols from the `kiln.bind_shape` of arguments before the first op runs.
    fn bind_symbols(&mut self, block: Block) -> Result<(), RunError> {
        for op in block.ops() {
            let Some(o) = BindShape::of(op) else { continue };
            let Some(Bound::Tensor(t)) = self.values.get(&o.value) else { continue };
            for (size, actual) in o.sizes.iter().zip(t.shape()) {
                let Size::Dynamic(v) = size else { continue };
                let Some(s) = v.def().and_then(Sym::of) else { continue };
                let actual = *actual as i64;
                match self.symbols.insert(s.name.clone(), actual) {
                    Some(old) if old != actual => {
                        return Err(error(
                            op,
                            format!(
                                "binds @{} to {actual}, but another input binds it to {old}",
                                s.name
                            ),
                        ));
                    }
                    _ => in_range(&s, actual).map_err(|e| error(op, e))?,
                }
            }
        }
        Ok(())
    }

    /// Runs a block and returns its terminator's operands.
    fn block(&mut self, block: Block) -> Result<Vec<Bound>, RunError> {
        let later: HashSet<String> =
            block.ops().into_iter().filter_map(UnbackedSize::of).map(|o| o.name).collect();
        for op in block.ops() {
            if !later.is_empty() && self.waits(op, &later) {
                continue;
            }
            let end = matches!(op.kind(), Some(OpKind::Yield)) || op.isa::<func::Return>();
            if end {
                let get = |v: Value| {
                    self.values
                        .get(&v)
                        .cloned()
                        .ok_or_else(|| error(op, "uses a value that has not been computed"))
                };
                return op.operands().into_iter().map(get).collect();
            }
            let results = self.op(op)?;
            if results.len() != op.result_count() {
                return Err(error(
                    op,
                    format!(
                        "returned {} results where {} are declared",
                        results.len(),
                        op.result_count()
                    ),
                ));
            }
            for (v, r) in op.results().into_iter().zip(results) {
                if let Bound::Tensor(t) = &r {
                    check(v.ty(), t)
                        .map_err(|e| error(op, format!("has a result that {}", e.message)))?;
                }
                self.values.insert(v, r);
            }
        }
        Err(error(block.parent().unwrap_or(self.module), "has a block without a terminator"))
    }

    /// Result `n` of a function that computes globals; it runs once.
    fn prepared(&self, name: &str, n: &str) -> Result<Rc<Tensor>, Option<RunError>> {
        if !self.interp.prepared.borrow().contains_key(name) {
            let results =
                call(self.interp, self.module, name, vec![], self.depth + 1).map_err(Some)?;
            let tensor = |b| if let Bound::Tensor(t) = b { Some(t) } else { None };
            let all = results.into_iter().map(tensor).collect::<Option<Vec<_>>>().ok_or(None)?;
            self.interp.prepared.borrow_mut().insert(name.into(), all);
        }
        let prepared = self.interp.prepared.borrow();
        n.parse().ok().and_then(|n: usize| prepared.get(name)?.get(n).cloned()).ok_or(None)
    }

    /// Runs a region's block with these arguments.
    pub(super) fn region(
        &mut self,
        region: Region,
        args: Vec<Bound>,
    ) -> Result<Vec<Bound>, RunError> {
        let block = region.first().ok_or_else(|| error(self.module, "has an empty region"))?;
        self.values.extend(block.args().into_iter().zip(args));
        self.block(block)
    }

    fn op(&mut self, op: Op) -> Result<Vec<Bound>, RunError> {
        let fail = |e: Error| error(op, e);
        let Some(kind) = op.kind() else { return self.upstream(op) };
        let regions = op.regions();
        match kind {
            OpKind::If => {
                let c = self.tensor(op.operand(0)).map_err(fail)?;
                let taken = c.as_i().map_err(fail)?.first().is_some_and(|c| *c != 0);
                self.region(regions[if taken { 0 } else { 1 }], vec![])
            }
            OpKind::Checkpoint => self.region(regions[0], vec![]),
            OpKind::While => {
                let mut state: Vec<Bound> = op
                    .operands()
                    .iter()
                    .map(|v| self.values.get(v).cloned())
                    .collect::<Option<_>>()
                    .ok_or_else(|| fail("uses a value that has not been computed".into()))?;
                for _ in 0..self.interp.max_iterations {
                    let test = self.region(regions[0], state.clone())?;
                    let Some(Bound::Tensor(t)) = test.first() else {
                        return Err(fail("has a condition without a value".into()));
                    };
                    if t.as_i().map_err(fail)?.first() == Some(&0) {
                        return Ok(state);
                    }
                    state = self.region(regions[1], state)?;
                }
                Err(fail(format!("ran {} times without ending", self.interp.max_iterations).into()))
            }
            OpKind::Scan => self.scan(op),
            OpKind::Attention => self.attention(op),
            OpKind::CustomCall => {
                let o = CustomCall::of(op).ok_or_malformed(op).map_err(fail)?;
                let inputs: Vec<_> = o
                    .inputs
                    .iter()
                    .map(|v| self.tensor(*v))
                    .collect::<Result<_, _>>()
                    .map_err(fail)?;
                let own = self.interp.custom_calls.get(&o.callee);
                let known = (Factorization::find(&o.callee), Fourier::find(&o.callee));
                let made = match (own, known) {
                    (Some(call), _) => {
                        call(&inputs, o.config).map_err(|e| fail(e.to_string().into()))?
                    }
                    (None, (Some(f), _)) => factorize(f, &inputs).map_err(fail)?,
                    (None, (_, Some(f))) => {
                        let last = op.result(0).ty().dims().last().and_then(|n| n.known());
                        transform(f, &inputs, last).map_err(fail)?
                    }
                    (None, (None, None)) => {
                        let reason = format!("calls '{}', which is not registered", o.callee);
                        return Err(unsupported(op, reason));
                    }
                };
                Ok(made.into_iter().map(|t| Bound::Tensor(Rc::new(t))).collect())
            }
            OpKind::PtxCall => match regions.first() {
                Some(body) => self.region(*body, vec![]),
                None => Err(unsupported(op, "is a PTX kernel without a region to interpret")),
            },
            OpKind::GetGlobal => {
                let o = GetGlobal::of(op).ok_or_malformed(op).map_err(fail)?;
                let all = blocks(self.module).into_iter().flat_map(|b| b.ops());
                let found = all.into_iter().find(|g| {
                    g.kind() == Some(OpKind::Global) && g.symbol().as_deref() == Some(&o.global)
                });
                let global = found.and_then(Global::of).ok_or_else(|| {
                    fail(format!("refers to @{}, which is not a global", o.global).into())
                })?;
                let made = global
                    .source
                    .as_deref()
                    .and_then(|s| s.split_once('#'))
                    .filter(|(name, _)| has_function(self.module, name));
                if let Some((name, n)) = made {
                    return self.prepared(name, n).map(|t| vec![Bound::Tensor(t)]).map_err(|e| {
                        e.unwrap_or_else(|| fail(format!("refers to no result of @{name}").into()))
                    });
                }
                let value = match (global.value, global.source) {
                    (Some(a), _) => a.as_tensor(),
                    (None, Some(source)) => {
                        (self.interp.globals)(&o.global, &source).map_err(|e| e.to_string().into())
                    }
                    (None, None) => Err("has neither a source nor a value".into()),
                };
                Ok(vec![Bound::Tensor(Rc::new(value.map_err(fail)?))])
            }
            OpKind::Launch => self.launch(op),
            OpKind::Sym | OpKind::SymExpr => {
                Ok(vec![Bound::Index(self.size_of_symbols(op).map_err(fail)?)])
            }
            OpKind::UnbackedSize => {
                let o = UnbackedSize::of(op).ok_or_malformed(op).map_err(fail)?;
                let value = self.tensor(o.value).map_err(fail)?;
                let value = value.as_i().map_err(fail)?.first().copied().unwrap_or_default();
                let max =
                    self.size(o.max.first().ok_or_malformed(op).map_err(fail)?).map_err(fail)?;
                if !(0..=max).contains(&value) {
                    let reason = format!("binds @{} to {value}, which is not in 0..={max}", o.name);
                    return Err(fail(reason.into()));
                }
                self.symbols.insert(o.name, value);
                let rows = Tensor::ints(DType::I8, vec![value as usize, 0], vec![]);
                Ok(vec![Bound::Tensor(Rc::new(rows.map_err(|e| fail(e.to_string().into()))?))])
            }
            OpKind::Dim => {
                let o = Dim::of(op).ok_or_malformed(op).map_err(fail)?;
                let t = self.tensor(o.input).map_err(fail)?;
                let size = usize::try_from(o.axis).ok().and_then(|a| t.shape().get(a).copied());
                Ok(vec![Bound::Index(size.ok_or_else(|| {
                    fail(format!("has axis {} out of range for rank {}", o.axis, t.rank()).into())
                })? as i64)])
            }
            OpKind::BindShape => {
                let o = BindShape::of(op).ok_or_malformed(op).map_err(fail)?;
                let t = self.tensor(o.value).map_err(fail)?;
                for (i, (s, actual)) in o.sizes.iter().zip(t.shape()).enumerate() {
                    let stated = self.size(s).map_err(fail)?;
                    if stated != *actual as i64 {
                        return Err(fail(
                            format!(
                                "states size {stated} of dimension {i}, which has size {actual}"
                            )
                            .into(),
                        ));
                    }
                }
                Ok(vec![])
            }
            OpKind::Require => {
                let o = Require::of(op).ok_or_malformed(op).map_err(fail)?;
                let (a, b) = (self.index(o.lhs).map_err(fail)?, self.index(o.rhs).map_err(fail)?);
                if sym::holds(o.kind, a, b) {
                    Ok(vec![])
                } else {
                    Err(fail(format!("is not met: {}: {a} and {b}", o.message).into()))
                }
            }
            OpKind::AdvanceRng => Ok(vec![]),
            OpKind::RequireIndex => {
                let o = RequireIndex::of(op).ok_or_malformed(op).map_err(fail)?;
                let (index, size) = (self.tensor(o.index), self.index(o.size));
                let (index, size) = (index.map_err(fail)?, size.map_err(fail)?);
                let least = if o.wraps { -size } else { 0 };
                match index.as_i().map_err(fail)?.iter().find(|i| !(least..size).contains(*i)) {
                    None => Ok(vec![]),
                    Some(i) => Err(fail(
                        format!("is not met: {}: {i} is not in {least}..{size}", o.message).into(),
                    )),
                }
            }
            _ => {
                let view = View::of(op).ok_or_malformed(op).map_err(fail)?;
                let run = eval::eval(&view, &|v| self.tensor(v), &|s| self.size(s));
                let results = run.map_err(fail)?.into_iter();
                Ok(results
                    .map(|t| {
                        Bound::Tensor(Rc::new(if self.interp.mode == Mode::Rounded {
                            t.rounded()
                        } else {
                            t
                        }))
                    })
                    .collect())
            }
        }
    }

    fn size(&self, s: &Size) -> Result<i64> {
        match s {
            Size::Static(n) => Ok(*n),
            Size::Dynamic(v) => self.index(*v),
        }
    }

    fn upstream(&mut self, op: Op) -> Result<Vec<Bound>, RunError> {
        let fail = |e: Error| error(op, e);
        if op.isa::<arith::Constant>() {
            let a = op.attr("value").ok_or_else(|| fail("has no value".into()))?;
            if a.type_of().is_index() {
                return Ok(vec![Bound::Index(
                    a.as_i64().ok_or_else(|| fail("has no integer".into()))?,
                )]);
            }
            return Ok(vec![Bound::Tensor(Rc::new(a.as_tensor().map_err(fail)?))]);
        }
        if op.isa::<func::Call>() {
            let callee = op
                .attr("callee")
                .and_then(Attr::as_symbol)
                .ok_or_else(|| fail("has no callee".into()))?;
            let inputs =
                op.operands().iter().map(|v| self.values.get(v).cloned()).collect::<Option<_>>();
            return call(
                self.interp,
                self.module,
                &callee,
                inputs.ok_or_else(|| fail("uses a value that has not been computed".into()))?,
                self.depth + 1,
            );
        }
        if op.isa::<tensor::Empty>() {
            // Memory for results is never read, so a placeholder is enough.
            return Ok(vec![Bound::Index(0)]);
        }
        Err(unsupported(
            op,
            "is not an op that the interpreter runs; it runs the graph, prims and kernels levels, \
             and tile programs",
        ))
    }
}

fn in_range(s: &Sym, value: i64) -> Result<()> {
    if value < s.min || s.max.is_some_and(|m| value > m) {
        let max = s.max.map_or("".into(), |m| m.to_string());
        return Err(format!("has @{} = {value} outside of [{}, {max}]", s.name, s.min).into());
    }
    if value % s.divisor != 0 {
        return Err(
            format!("has @{} = {value}, which {} does not divide", s.name, s.divisor).into()
        );
    }
    Ok(())
}
