//! The two functions of a plan.
use super::{
    choose::{Joint, Plan, makers, read_by},
    cost::Costs,
    images::around_convolutions,
};
use crate::{
    decompose::tools::Math,
    permutation::{channels_first, channels_last},
    rounding,
};
use kiln_dialects::{
    ir::*,
    ops::{BindShape, Sym, SymKind, Transpose},
    rules::tensor_type,
    sym::{Atom, Dim},
};
use std::collections::{HashMap, HashSet};

/// Replaces a function by its two parts.
pub(super) fn emit(
    func: Op,
    joint: &Joint<'_>,
    costs: &Costs,
    plan: &Plan,
    images: bool,
) -> Result<()> {
    let around = if images { around_convolutions(joint.block) } else { HashSet::new() };
    let own = |v: &&Value| !joint.primals.contains(v) && !joint.results.contains(v);
    let images: HashSet<Value> =
        plan.saved.iter().filter(own).filter(|v| around.contains(v)).copied().collect();
    let name = func.symbol().ok_or("has no name")?;
    let top = Builder::before(func).ok_or("is in no module")?;
    let given = [joint.results, &plan.saved].concat();
    let read = [given.clone(), read_by(&plan.forward_roots)].concat();
    let mut ops = makers(&read, &HashSet::new(), joint.block);
    ops.extend(&plan.forward_roots);
    plan.backward.iter().filter(|o| ops.contains(o)).for_each(|o| rounding::mark(*o));
    let ops: Vec<Op> = joint.block.ops().into_iter().filter(|o| ops.contains(o)).collect();
    let forward = Part { args: joint.primals, results: &given, ops: &ops, images: &images };
    let front = forward.emit(&top, &format!("{name}_forward"), &|_, _| Ok(()))?;
    let count = joint.results.len();
    let saved: Vec<Option<usize>> = vec![None; plan.saved.len()];
    copy_entries(func, front, "arg_attrs", &places(joint.primals));
    copy_entries(func, front, "res_attrs", &[(0..count).map(Some).collect(), saved].concat());

    let args = [&plan.saved, joint.cotangents].concat();
    let backward =
        Part { args: &args, results: joint.gradients, ops: &plan.backward, images: &images };
    let state = |b: &Builder, map: &mut Values| state(b, joint, costs, &args, map);
    let back = backward.emit(&top, &format!("{name}_backward"), &state)?;
    let gradients: Vec<_> = (count..count + joint.gradients.len()).map(Some).collect();
    copy_entries(func, back, "arg_attrs", &places(&args));
    copy_entries(func, back, "res_attrs", &gradients);
    let number = |n: u64| Attr::i64(func.ctx(), i64::try_from(n).unwrap_or(i64::MAX));
    let report = [
        ("bytes", number(plan.bytes)),
        ("bytes_saved", number(plan.most.saturating_sub(plan.bytes))),
        ("flops_added", number(plan.flops)),
        ("peak_bytes", number(plan.peak)),
        ("recomputed_ops", number(plan.recomputed_ops as u64)),
        ("values", number(plan.saved.len() as u64)),
    ];
    back.set_attr("kiln.partition", Attr::dictionary(func.ctx(), &report));
    func.erase();
    Ok(())
}

/// Where values are among the arguments; `None`: they are no arguments.
fn places(values: &[Value]) -> Vec<Option<usize>> {
    values.iter().map(|v| v.block_arg().map(|(_, i)| i)).collect()
}

/// Copies entries of a function's list of attributes, such as layouts; `None`: an empty one.
fn copy_entries(from: Op, to: Op, name: &str, places: &[Option<usize>]) {
    let Some(listed) = from.attr(name).and_then(Attr::as_array) else { return };
    let none = Attr::dictionary(from.ctx(), &[]);
    let entry = |i: &Option<usize>| i.and_then(|i| listed.get(i).copied()).unwrap_or(none);
    to.set_attr(name, Attr::array(from.ctx(), &places.iter().map(entry).collect::<Vec<_>>()));
}

/// Values of the joint function, and what they are in a part.
type Values = HashMap<Value, Value>;

/// A function of `args` that computes `results` by these ops, in this order.
struct Part<'a> {
    args: &'a [Value],
    results: &'a [Value],
    ops: &'a [Op],
    /// Saved images that have channels last as an argument or result.
    images: &'a HashSet<Value>,
}

impl Part<'_> {
    /// The type of an argument or a result.
    fn saved_type(&self, v: Value) -> Result<Type> {
        if !self.images.contains(&v) {
            return Ok(v.ty());
        }
        let t = tensor_type(v.ty())?;
        let dims: Vec<Dim> = channels_last(4).iter().map(|d| t.dims[*d as usize].clone()).collect();
        Ok(Type::tensor(v.ty().ctx(), t.dtype, &dims))
    }

    fn emit(
        &self,
        top: &Builder,
        name: &str,
        begin: &dyn Fn(&Builder, &mut Values) -> Result<()>,
    ) -> Result<Op> {
        let is_image = |v: &Value| self.images.contains(v);
        let types =
            |all: &[Value]| all.iter().map(|v| self.saved_type(*v)).collect::<Result<Vec<_>>>();
        top.function(name, &types(self.args)?, &types(self.results)?, &mut |b, given| {
            given.iter().zip(self.args).for_each(|(new, old)| new.set_arg_loc(old.loc()));
            let mut map: Values = self.args.iter().copied().zip(given).collect();
            for v in self.args.iter().filter(|v| is_image(v)) {
                let (input, permutation) = (map[v], channels_first(4));
                map.insert(*v, b.at(v.loc()).add(&Transpose { input, permutation })?);
            }
            begin(&b, &mut map)?;
            for op in self.ops.iter().copied() {
                let made = op.results();
                if !made.is_empty() && made.iter().all(|v| map.contains_key(v)) {
                    continue;
                }
                let copy = b.clone_op(op, &|v| *map.get(&v).unwrap_or(&v))?;
                for (old, new) in made.into_iter().zip(copy.results()) {
                    map.entry(old).or_insert(new);
                }
            }
            let mut values = vec![];
            for v in self.results {
                let input = *map.get(v).unwrap_or(v);
                values.push(match is_image(v) {
                    true => {
                        let permutation = channels_last(4);
                        b.at(v.loc()).add(&Transpose { input, permutation })?
                    }
                    false => input,
                });
            }
            b.ret(&values).map(|_| ())
        })
    }
}

/// States what is known of the sizes of a part's arguments.
fn state(
    b: &Builder,
    joint: &Joint<'_>,
    costs: &Costs,
    args: &[Value],
    map: &mut Values,
) -> Result<()> {
    for v in args {
        let dims = costs.facts.dims(*v);
        if dims.iter().all(|d| d.known().is_some()) {
            continue;
        }
        let mut sizes = vec![];
        for (axis, d) in dims.iter().enumerate() {
            let stated = size(b, joint, d, map)?;
            sizes.push(stated.map_or_else(|| b.size_of(map[v], axis), Ok)?);
        }
        b.create_with(&BindShape { value: map[v], sizes }, &[], &mut [])?;
    }
    Ok(())
}

/// A size in terms of symbols. `None`: it depends on data.
fn size(b: &Builder, joint: &Joint<'_>, d: &Dim, map: &mut Values) -> Result<Option<Size>> {
    if let Some(n) = d.known() {
        return Ok(Some(Size::Static(n)));
    }
    let m = Math { b };
    let mut sum: Option<Size> = None;
    for (factors, n) in d.terms() {
        let mut term = Size::Static(n);
        for atom in &factors {
            let factor = match atom {
                Atom::Sym(name) => symbol(b, joint, name, map)?,
                Atom::Op(kind, args) => {
                    let (x, y) = (size(b, joint, &args.0, map)?, size(b, joint, &args.1, map)?);
                    x.zip(y).map(|(x, y)| m.size(*kind, x, y)).transpose()?
                }
                Atom::Opaque(..) => None,
            };
            let Some(factor) = factor else { return Ok(None) };
            term = m.size(SymKind::Mul, term, factor)?;
        }
        sum = Some(match sum {
            Some(sum) => m.size(SymKind::Add, sum, term)?,
            None => term,
        });
    }
    Ok(sum)
}

/// A symbol of the joint function.
fn symbol(b: &Builder, joint: &Joint<'_>, name: &str, map: &mut Values) -> Result<Option<Size>> {
    let is_it = |op: &Op| Sym::of(*op).is_some_and(|s| s.name == name);
    let Some(op) = joint.block.ops().into_iter().find(is_it) else { return Ok(None) };
    let old = op.result(0);
    if let Some(known) = map.get(&old) {
        return Ok(Some(Size::Dynamic(*known)));
    }
    let made = b.clone_op(op, &|v| v)?.result(0);
    map.insert(old, made);
    Ok(Some(Size::Dynamic(made)))
}
