//! Overloads that write: in place (`aten.relu_.default`) or to `out=` arguments (`aten.add.out`).
//! Each is the row of its functional overload and a write of the result.
use super::{
    Args, Cx, Outcome, Row, Val, check, find, promote::can_cast, rows, synonyms, tools::dtype_of,
};
use crate::capture::storage::Alias;
use kiln_dialects::{ir::*, value::DType};

/// Packet, overload that writes, and functional overload, where the name of one does not tell the
/// other.
const IRREGULAR: &[(&str, &str, &str)] = &[
    ("floor_divide_", "Tensor", "default"),
    ("float_power_", "Tensor", "Tensor_Tensor"),
    ("ldexp_", "default", "Tensor"),
    ("pow_", "Tensor", "Tensor_Tensor"),
    ("all", "all_out", "default"),
    ("all", "out", "dim"),
    ("any", "all_out", "default"),
    ("any", "out", "dim"),
    ("arange", "start_out", "start_step"),
    ("bernoulli", "float_out", "p"),
    ("frobenius_norm", "out", "dim"),
    ("linalg_matrix_rank", "out_tol_tensor", "tol_tensor"),
    ("linalg_pinv", "out_rcond_tensor", "rcond_tensor"),
    ("max", "dim_max", "dim"),
    ("max", "out", "other"),
    ("max", "unary_out", "default"),
    ("mean", "dtype_out", "default"),
    ("mean", "out", "dim"),
    ("median", "dim_values", "dim"),
    ("min", "dim_min", "dim"),
    ("min", "out", "other"),
    ("min", "unary_out", "default"),
    ("nanmedian", "dim_values", "dim"),
    ("norm", "dtype_out", "ScalarOpt_dim_dtype"),
    ("norm", "out", "ScalarOpt_dim"),
    ("prod", "int_out", "dim_int"),
    ("sort", "values_stable", "stable"),
    ("std", "out", "dim"),
    ("sum", "IntList_out", "dim_IntList"),
    ("var", "out", "dim"),
    ("xlogy", "OutScalar_Other", "Scalar_Other"),
    ("xlogy", "OutScalar_Self", "Scalar_Self"),
    ("xlogy", "OutTensor", "Tensor"),
];

/// Overloads that are named after their first `out=` argument; the functional one is `default`.
const FIRST_OUTPUTS: &[&str] = &[
    "L",
    "Q",
    "U",
    "X",
    "a",
    "eigenvalues",
    "eigvals",
    "grad_input",
    "inverse",
    "output",
    "result",
    "sign",
    "values",
];

/// In-place overloads that change a tensor's metadata, not its elements: rows of their own.
const RESHAPES: &[&str] = &[
    "t",
    "transpose",
    "swapaxes",
    "swapdims",
    "squeeze",
    "unsqueeze",
    "permute",
    "resize",
    "resize_as",
    "as_strided",
];

/// Whether the overload is in-place: it writes its first argument.
pub fn is_in_place(target: &str) -> bool {
    in_place(target).is_some()
}

/// The functional overload of an in-place one: `aten.relu_.default` is `aten.relu.default`.
fn in_place(target: &str) -> Option<String> {
    let (packet, overload) = target.strip_prefix("aten.")?.rsplit_once('.')?;
    let base = packet.strip_suffix('_').filter(|b| !b.ends_with('_') && !RESHAPES.contains(b))?;
    let irregular = IRREGULAR.iter().find(|(p, o, _)| *p == packet && *o == overload);
    Some(format!("aten.{base}.{}", irregular.map_or(overload, |(_, _, f)| f)))
}

/// The functional overload of one with `out=` arguments: `aten.add.out` is `aten.add.Tensor`.
fn with_out(target: &str) -> Option<String> {
    let (packet, overload) = target.strip_prefix("aten.")?.rsplit_once('.')?;
    let named = |overload: &str| format!("aten.{packet}.{overload}");
    let has_row = |name: &str| rows().any(|r| r.name == name) || synonyms::resolve(name).is_some();
    if packet.ends_with('_') {
        return None;
    }
    if let Some((_, _, f)) = IRREGULAR.iter().find(|(p, o, _)| *p == packet && *o == overload) {
        return Some(named(f));
    }
    if FIRST_OUTPUTS.contains(&overload) {
        return Some(named("default"));
    }
    match overload {
        "out" => ["default", "Tensor"].map(named).into_iter().find(|name| has_row(name)),
        "out_mode" => Some(named("Tensor_mode")),
        _ => overload.strip_suffix("_out").map(named),
    }
}

/// The functional overload of one that writes.
pub(super) fn functional(target: &str) -> Option<String> {
    in_place(target).or_else(|| with_out(target))
}

/// What a node writes.
pub enum Writes<'a> {
    /// Nothing.
    Nothing,
    /// Its first argument.
    First(Option<Val>),
    /// Its `out=` arguments, in the order of the results, and whether they have to have the results'
    /// dtypes.
    Outputs(Vec<(&'a str, Val)>, bool),
}

/// Overloads whose `out=` arguments have the dtypes of the results; others convert.
const SAME_DTYPE: &[&str] = &["aten.complex.out", "aten.aminmax.out"];

impl<'a> Writes<'a> {
    /// What `target`, built by `row`, writes, with the names of its arguments in their order. `out=`
    /// arguments leave `args`, and a row with a dtype computes in theirs, as PyTorch does.
    pub fn of(
        cx: &mut Cx,
        target: &str,
        row: &Row,
        order: &[&'a str],
        args: &mut Args<'a>,
    ) -> Result<Writes<'a>> {
        if is_in_place(target) {
            if row.arguments.starts_with("input,") {
                // `dropout_` calls `self` what `dropout` calls `input`.
                args.values.remove("self").and_then(|v| args.values.insert("input", v));
            }
            return Ok(Writes::First(args.get("self").or_else(|| args.get("input")).cloned()));
        }
        if target == row.name || with_out(target).is_none() || find(target).is_none() {
            return Ok(Writes::Nothing);
        }
        let parameter = |name: &str| {
            row.arguments.split(',').any(|p| p.split('=').next().unwrap_or("").trim() == name)
        };
        let is_tensor = |v: &Val| matches!(v, Val::Tensor(_) | Val::Complex(..));
        let mut outputs: Vec<(&str, Val)> = vec![];
        for name in order.iter().copied() {
            if !parameter(name) && args.values.get(name).is_some_and(is_tensor) {
                outputs.extend(args.values.remove(name).map(|v| (name, v)));
            }
        }
        if let (true, false, [(_, Val::Tensor(out)), ..]) =
            (parameter("dtype"), args.has("dtype"), &outputs[..])
        {
            args.values.insert("dtype", Val::DType(dtype_of(cx.get(*out)?)?));
        }
        let same = SAME_DTYPE.contains(&target);
        Ok(if outputs.is_empty() { Writes::Nothing } else { Writes::Outputs(outputs, same) })
    }

    /// Writes the results of a node, each converted to the dtype of what it is written to.
    pub fn finish(self, cx: &mut Cx, outcome: Outcome) -> Result<Vec<Val>> {
        let results = match outcome {
            Outcome::One(v) => vec![v],
            Outcome::Many(all) => all,
        };
        match self {
            Writes::Nothing => Ok(results),
            Writes::First(target) => match (target, &results[..]) {
                (Some(target), [result]) => {
                    write_value(cx, &target, result)?;
                    Ok(vec![target])
                }
                _ => Err("an in-place op without one result".into()),
            },
            Writes::Outputs(outputs, same) => {
                if outputs.len() != results.len() {
                    let (have, want) = (outputs.len(), results.len());
                    return Err(format!("has {have} out= tensors for {want} results").into());
                }
                for ((name, out), result) in outputs.iter().zip(&results).filter(|_| same) {
                    let (have, want) = (element_type(cx, out)?, element_type(cx, result)?);
                    if have != want {
                        return Err(
                            format!("{name}= has to be a tensor of {want}, not {have}").into()
                        );
                    }
                }
                outputs.iter().zip(&results).map(|((_, out), r)| to_output(cx, out, r)).collect()
            }
        }
    }
}

/// The dtype of a tensor; of a complex one that of its parts.
fn element_type(cx: &mut Cx, v: &Val) -> Result<DType> {
    match v {
        Val::Tensor(t) | Val::Complex(t, _) => dtype_of(cx.get(*t)?),
        _ => Err("writes what is no tensor".into()),
    }
}

/// Writes a result to an `out=` tensor, which PyTorch resizes if its shape is another one.
fn to_output(cx: &mut Cx, out: &Val, result: &Val) -> Result<Val> {
    let (Val::Tensor(to), Val::Tensor(from)) = (out, result) else {
        write_value(cx, out, result)?;
        return Ok(out.clone());
    };
    let (old, new) = (cx.get(*to)?, cx.get(*from)?);
    let sizes = |v: Value| v.ty().dims().iter().map(|d| d.known()).collect::<Vec<_>>();
    let (have, want) = (sizes(old), sizes(new));
    let differ = |(h, w): (&Option<i64>, &Option<i64>)| h.zip(*w).is_some_and(|(h, w)| h != w);
    if have.len() == want.len() && !have.iter().zip(&want).any(differ) {
        write(cx, *to, *from)?;
        return Ok(out.clone());
    }
    // `torch.empty(0)` as `out=` asks for a new tensor.
    if have != [Some(0)] || old.def().is_none() {
        let (have, want) = (check::list(&have), check::list(&want));
        return Err(format!("resizes an out= tensor of shape {have} to {want}").into());
    }
    let (from, to) = (dtype_of(new)?, dtype_of(old)?);
    castable(from, to)?;
    let new = cx.convert(new, to)?;
    Ok(Val::Tensor(cx.store.fresh(new)))
}

fn write_value(cx: &mut Cx, target: &Val, result: &Val) -> Result<()> {
    match (target, result) {
        (Val::Tensor(target), Val::Tensor(result)) => write(cx, *target, *result),
        (Val::Complex(re, im), Val::Complex(new_re, new_im)) => {
            write(cx, *re, *new_re)?;
            write(cx, *im, *new_im)
        }
        (Val::Complex(re, im), Val::Tensor(result)) => {
            let value = cx.get(*result)?;
            let zero = cx.full_like(value, 0.0)?;
            let zero = cx.store.fresh(zero);
            write(cx, *re, *result)?;
            write(cx, *im, zero)
        }
        (Val::Tensor(_), Val::Complex(..)) => {
            Err("a complex result type can't be cast to the desired real output type".into())
        }
        _ => Err("writes what is no tensor".into()),
    }
}

fn castable(from: DType, to: DType) -> Result<()> {
    if can_cast(from, to) {
        return Ok(());
    }
    let (from, to) = (check::scalar_name(from), check::scalar_name(to));
    Err(format!("result type {from} can't be cast to the desired output type {to}").into())
}

fn write(cx: &mut Cx, target: Alias, result: Alias) -> Result<()> {
    let (old, new) = (cx.get(target)?, cx.get(result)?);
    castable(dtype_of(new)?, dtype_of(old)?)?;
    let sizes = |v: Value| v.ty().dims().iter().map(|d| d.known()).collect::<Vec<_>>();
    let (have, want) = (sizes(new), sizes(old));
    let larger =
        |(h, w): (&Option<i64>, &Option<i64>)| h.zip(*w).is_some_and(|(h, w)| h != w && h != 1);
    let grown = have.len() > want.len() || have.iter().rev().zip(want.iter().rev()).any(larger);
    if grown {
        let (have, want) = (check::list(&have), check::list(&want));
        let why = format!("output with shape {want} doesn't match the broadcast shape {have}");
        return Err(why.into());
    }
    let new = cx.convert(new, dtype_of(old)?)?;
    let new = cx.broadcast_to(new, &cx.b.sizes_of(old)?)?;
    cx.store.write(&cx.b, target, new)
}
