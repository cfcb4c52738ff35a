//! Dispatch: adds an ATen row to a graph, or runs it eagerly.
use super::{
    Operand, Tensor, arg::Arg, autocast_context, call_site::CallSite, eager, graph::Graph,
    handle::Repr, modes, state::NameKind,
};
use crate::capture::{
    aten::{self, Args, Outcome, Val},
    autocast::Policy,
    storage::Alias,
};
use kiln_dialects::{Error, Result, ir::Size, value::DType};
use std::panic::Location;

/// Dispatches a row with a fixed number of results.
pub(super) fn exactly<const R: usize>(
    site: CallSite,
    op: &'static str,
    target: &'static str,
    args: Vec<(&'static str, Arg)>,
) -> [Tensor; R] {
    let args = cast(op, target, args);
    if let Some(made) = modes::replay(None, target, &args) {
        return made;
    }
    graph_of(&operands(&args)).dispatch(site, op, target, args)
}

/// Dispatches a row with any number of results.
pub(super) fn row(
    site: CallSite,
    op: &'static str,
    target: &'static str,
    args: Vec<(&'static str, Arg)>,
) -> Vec<Tensor> {
    let args = cast(op, target, args);
    graph_of(&operands(&args)).row(site, op, target, args)
}

/// The graph of the first traced operand, else the thread's current graph.
pub(super) fn graph_of(operands: &[Tensor]) -> Graph {
    operands
        .iter()
        .find(|t| t.is_traced() || matches!(t.0, Repr::Node(_)))
        .map_or_else(Graph::current, Tensor::graph)
}

impl Graph {
    /// A row with a fixed number of results.
    pub(super) fn exactly<const R: usize>(
        &self,
        site: CallSite,
        op: &'static str,
        target: &'static str,
        args: Vec<(&'static str, Arg)>,
    ) -> [Tensor; R] {
        self.dispatch(site, op, target, cast(op, target, args))
    }
    /// As [`Graph::exactly`], of arguments in their precision.
    fn dispatch<const R: usize>(
        &self,
        site: CallSite,
        op: &'static str,
        target: &'static str,
        args: Vec<(&'static str, Arg)>,
    ) -> [Tensor; R] {
        let operands = operands(&args);
        let all = self.row(site, op, target, args);
        let (n, first) = (all.len(), all.iter().find(|t| t.is_poisoned()).cloned());
        all.try_into().unwrap_or_else(|_| {
            let poisoned = first.unwrap_or_else(|| {
                self.refuse(site, op, format!("gives {n} results where {R} are taken"), &operands)
            });
            std::array::from_fn(|_| poisoned.clone())
        })
    }
    /// A row with any number of results; a single poisoned one on failure.
    pub(super) fn row(
        &self,
        site: CallSite,
        op: &'static str,
        target: &'static str,
        args: Vec<(&'static str, Arg)>,
    ) -> Vec<Tensor> {
        let operands = operands(&args);
        if operands.iter().any(Tensor::is_poisoned) {
            return vec![self.refuse(site, op, "", &operands)];
        }
        let args = match args.iter().any(|(_, a)| a.is_number()) {
            false => args,
            // Rows that need a static number fail first; then the number is specialised, if
            // possible.
            true => match self.attempt(site, op, target, args.clone()) {
                Ok(made) => return made,
                Err(reason) if args.iter().any(|(_, a)| a.is_dynamic_number()) => {
                    return vec![self.refuse(site, op, reason, &operands)];
                }
                Err(_) => args
                    .into_iter()
                    .map(|(name, a)| {
                        (name, a.specialised(site, &format!("'{op}' has to know it,")))
                    })
                    .collect(),
            },
        };
        self.attempt(site, op, target, args)
            .unwrap_or_else(|reason| vec![self.refuse(site, op, reason, &operands)])
    }
    fn attempt(
        &self,
        site: CallSite,
        op: &'static str,
        target: &'static str,
        args: Vec<(&'static str, Arg)>,
    ) -> Result<Vec<Tensor>> {
        if let Some(mut lazy) = self.lazy() {
            return lazy.row(self.id(), self.site(site), op, target, args);
        }
        match self.is_eager() {
            true => eager::row(self.site(site), op, target, args),
            false => Ok(self
                .emit(site, op, target, args)?
                .into_iter()
                .map(|alias| self.handle(Some(alias)))
                .collect()),
        }
    }

    fn emit(
        &self,
        site: CallSite,
        op: &str,
        target: &'static str,
        args: Vec<(&'static str, Arg)>,
    ) -> Result<Vec<Alias>> {
        let row =
            aten::find(target).ok_or_else(|| format!("{target} has no row in the ATen table"))?;
        let mut values = std::collections::HashMap::new();
        for (name, arg) in args {
            values.insert(name, self.value(arg)?);
        }
        let mut state = self.state()?;
        // The name is reserved only once there is a result.
        let name = state.unique(op, NameKind::Result);
        state.cx.b.loc = state.loc(self.site(site)).named(&name);
        let outcome = (row.build)(&mut state.cx, &Args { values })?;
        state.advance()?;
        let all = match outcome {
            Outcome::One(v) => vec![v],
            Outcome::Many(all) => all,
        };
        let mut aliases = vec![];
        for v in all {
            if let Val::Tensor(alias) = v {
                state.name_of.entry(alias).or_insert_with(|| name.clone());
                aliases.push(alias);
            }
        }
        Ok(aliases)
    }

    fn value(&self, arg: Arg) -> Result<Val> {
        let tensor = |t: &Tensor| match &t.0 {
            Repr::Node(node) if node.graph == self.id() => {
                node.alias.map(Val::Tensor).ok_or_else(|| "takes a poisoned tensor".into())
            }
            Repr::Node(_) => Err(Error::from("takes a tensor of another trace")),
            Repr::Array(array) => self.state()?.array(array).map(Val::Tensor),
            Repr::Lazy(_) => {
                let array = t.array().map_err(|e| e.to_string())?;
                self.state()?.array(&array).map(Val::Tensor)
            }
            Repr::Failed(_) => Err("takes a poisoned tensor".into()),
        };
        Ok(match arg {
            Arg::Plain(v) => v,
            Arg::Operand(Operand::Tensor(t)) => tensor(&t)?,
            Arg::Operand(Operand::Int(n)) => Val::Int(Size::Static(n)),
            Arg::Operand(Operand::Float(x)) => Val::Float(x),
            Arg::Operand(Operand::Bool(b)) => Val::Bool(b),
            // A plain number in a graph is a constant.
            Arg::Operand(Operand::Number(s)) if s.is_plain() => {
                return self.value(Arg::Operand(s.specialised(Location::caller(), "")));
            }
            Arg::Operand(Operand::Number(s)) => match tensor(&s.tensor())? {
                Val::Tensor(alias) => Val::Number(alias, s.dtype()),
                other => other,
            },
            Arg::Operand(Operand::Size(d)) => {
                self.raw_sizes(&[d])?.first().map_or(Val::None, |s| Val::Int(*s))
            }
            Arg::Tensors(all) => Val::List(all.iter().map(tensor).collect::<Result<_, _>>()?),
            Arg::Sizes(all) => Val::List(self.raw_sizes(&all)?.into_iter().map(Val::Int).collect()),
        })
    }
}

fn operands(args: &[(&'static str, Arg)]) -> Vec<Tensor> {
    args.iter().flat_map(|(_, a)| a.tensors()).collect()
}

/// Converts the arguments of a row by the context around it.
#[track_caller]
fn cast(
    op: &'static str,
    target: &str,
    args: Vec<(&'static str, Arg)>,
) -> Vec<(&'static str, Arg)> {
    let context = autocast_context::current();
    let Some((context, policy)) = context.and_then(|c| Some((c, c.policy(target)?))) else {
        return args;
    };
    let names_dtype = || args.iter().any(|(name, _)| *name == "dtype");
    let to = match policy {
        Policy::Lower => context.dtype,
        Policy::SingleByDefault if names_dtype() => return args,
        Policy::Single | Policy::SingleByDefault => DType::F32,
        // Of the eligible dtypes, f32 is the only one wider than the context's.
        Policy::Promote => {
            let all = args.iter().flat_map(|(_, a)| a.tensors());
            let wide = all.filter_map(|t| eligible(&t)).any(|d| d == DType::F32);
            if wide { DType::F32 } else { context.dtype }
        }
    };
    let one = |t: Tensor| match eligible(&t) {
        Some(from) if from != to => {
            note(&t.graph(), op, from, to);
            t.to(to)
        }
        _ => t,
    };
    let arg = |arg: Arg| match arg {
        Arg::Operand(Operand::Tensor(t)) => Arg::Operand(Operand::Tensor(one(t))),
        Arg::Tensors(all) => Arg::Tensors(all.into_iter().map(one).collect()),
        other => other,
    };
    args.into_iter().map(|(name, a)| (name, arg(a))).collect()
}

/// The dtype of a tensor that is converted: a float, f64 aside.
fn eligible(t: &Tensor) -> Option<DType> {
    t.dtype().ok().filter(|d| d.is_float() && *d != DType::F64)
}

/// Counts a conversion, which a compiled function reports.
fn note(graph: &Graph, op: &'static str, from: DType, to: DType) {
    if let Ok(mut state) = graph.state()
        && let Some(session) = &mut state.session
    {
        *session.casts.entry((op, from.name(), to.name())).or_default() += 1;
    }
}
