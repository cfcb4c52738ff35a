//! The one way in which ops get into a graph: an ATen row, by name.
use super::{Operand, Tensor, arg::Arg, graph::Graph, graph::Named, graph::Place};
use crate::capture::{
    aten::{self, Args, Outcome, Val},
    storage::Alias,
};
use kiln_dialects::ir::Size;

impl Graph {
    /// A row with that many results.
    pub(super) fn exactly<'t, const R: usize>(
        &'t self,
        place: Place,
        op: &'static str,
        target: &'static str,
        args: Vec<(&'static str, Arg<'t>)>,
    ) -> [Tensor<'t>; R] {
        let operands = operands(&args);
        let all = self.row(place, op, target, args);
        let n = all.len();
        let poisoned = all.iter().any(|t| t.node.alias.is_none());
        all.try_into().unwrap_or_else(|_| {
            if !poisoned {
                self.refuse(place, op, format!("gives {n} results where {R} are taken"), &operands);
            }
            std::array::from_fn(|_| self.handle(None))
        })
    }
    /// A row with any number of results; one that is poisoned if it cannot be.
    pub(super) fn row<'t>(
        &'t self,
        place: Place,
        op: &'static str,
        target: &'static str,
        args: Vec<(&'static str, Arg<'t>)>,
    ) -> Vec<Tensor<'t>> {
        let operands = operands(&args);
        if operands.iter().any(|t| t.node.alias.is_none()) {
            return vec![self.handle(None)];
        }
        match self.emit(place, op, target, args) {
            Ok(all) => all.into_iter().map(|alias| self.handle(Some(alias))).collect(),
            Err(reason) => vec![self.refuse(place, op, reason, &operands)],
        }
    }

    fn emit(&self, place: Place, op: &str, target: &'static str, args: Vec<(&'static str, Arg<'_>)>) -> Result<Vec<Alias>, String> {
        let row = aten::find(target).ok_or_else(|| format!("{target} has no row in the ATen table"))?;
        let mut values = std::collections::HashMap::new();
        for (name, arg) in args {
            values.insert(name, self.value(arg)?);
        }
        let mut state = self.state.borrow_mut();
        // The name is taken once it is known that there is a result.
        let name = state.unique(op, Named::Result);
        state.cx.b.loc = state.loc(state.place(place)).named(&name);
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

    fn value(&self, arg: Arg<'_>) -> Result<Val, String> {
        let tensor = |t: &Tensor<'_>| match t.node.alias {
            Some(alias) if std::ptr::eq(t.graph, self) => Ok(Val::Tensor(alias)),
            Some(_) => Err("takes a tensor of another trace".to_string()),
            None => Err("takes a poisoned tensor".to_string()),
        };
        Ok(match arg {
            Arg::Plain(v) => v,
            Arg::Operand(Operand::Tensor(t)) => tensor(&t)?,
            Arg::Operand(Operand::Int(n)) => Val::Int(Size::Static(n)),
            Arg::Operand(Operand::Float(x)) => Val::Float(x),
            Arg::Operand(Operand::Bool(b)) => Val::Bool(b),
            Arg::Operand(Operand::Size(d)) => self.raw_sizes(&[d])?.first().map_or(Val::None, |s| Val::Int(*s)),
            Arg::Tensors(all) => Val::List(all.iter().map(tensor).collect::<Result<_, _>>()?),
            Arg::Sizes(all) => Val::List(self.raw_sizes(&all)?.into_iter().map(Val::Int).collect()),
        })
    }
}

fn operands<'t>(args: &[(&'static str, Arg<'t>)]) -> Vec<Tensor<'t>> {
    let each = |arg: &Arg<'t>| match arg {
        Arg::Operand(o) => o.tensor().into_iter().collect(),
        Arg::Tensors(all) => all.clone(),
        _ => vec![],
    };
    args.iter().flat_map(|(_, a)| each(a)).collect()
}
