//! Overloads that move or add elements: they run once for each part.
use super::super::find as row_of;
use super::{Args, Build, Cx, Outcome, Row, Val, check, is_complex, part_dtype};
use crate::capture::unsupported;
use kiln_dialects::ir::*;

/// Overloads, without `aten.` and the overload's name.
const MOVES: &[&str] = &[
    "_reshape_alias _to_copy _unsafe_index _unsafe_view add alias as_strided atleast_1d",
    "atleast_2d atleast_3d block_diag broadcast_tensors cat channel_shuffle chunk clone",
    "column_stack constant_pad_nd contiguous copy cumsum detach diag diag_embed diagflat diagonal",
    "diagonal_scatter diff dsplit dstack empty empty_like expand expand_as eye fill flatten flip",
    "fliplr flipud full full_like gather hsplit hstack index index_add index_copy index_fill",
    "index_put index_select lift_fresh lift_fresh_copy linalg_diagonal mT masked_fill",
    "masked_scatter mean meshgrid movedim narrow neg new_full new_ones new_zeros numpy_T ones",
    "ones_like pad permute pixel_shuffle pixel_unshuffle ravel repeat repeat_interleave reshape",
    "reshape_as roll rot90 rsub scalar_tensor scatter scatter_add select select_scatter slice",
    "slice_scatter split split_with_sizes squeeze stack sub sum swapaxes swapdims t take",
    "take_along_dim tensor_split tile to trace transpose tril triu unbind unflatten unfold",
    "unsqueeze view view_as vsplit vstack where zero zeros zeros_like nansum sum_to_size",
    "new_empty new_empty_strided sym_size sym_numel cumulative_trapezoid trapezoid _chunk_cat",
];

/// Arguments whose elements or numbers are data, and so have parts.
const DATA: &[&str] = &[
    "self",
    "input",
    "other",
    "tensors",
    "src",
    "value",
    "values",
    "source",
    "fill_value",
    "s",
    "prepend",
    "append",
    "y",
];

/// Overloads that fill with 1 on the real part.
const ONES: &[&str] = &["ones", "ones_like", "new_ones", "eye"];

pub(super) fn find(name: &str) -> Option<Build> {
    let packet = name.split('.').next()?;
    // `view.dtype` reads bits.
    let moves = name != "view.dtype"
        && MOVES.iter().any(|line| line.split(' ').any(|known| known == packet));
    moves.then_some(each_part)
}

/// A zero for a real argument's imaginary part.
fn zero(cx: &mut Cx, v: &Val) -> Result<Val> {
    Ok(match v {
        Val::Tensor(t) => {
            let x = cx.get(*t)?;
            let zero = cx.full_like(x, 0.0)?;
            Val::Tensor(cx.store.fresh(zero))
        }
        Val::Number(_, d) if d.is_float() => Val::Float(0.0),
        Val::Float(_) => Val::Float(0.0),
        Val::Int(_) | Val::Bool(_) | Val::Number(..) => Val::Int(Size::Static(0)),
        other => other.clone(),
    })
}

/// One part of an argument.
fn part(cx: &mut Cx, v: &Val, imaginary: bool) -> Result<Val> {
    Ok(match v {
        Val::Complex(re, im) => Val::Tensor(if imaginary { *im } else { *re }),
        Val::ComplexNumber(re, im) => Val::Float(if imaginary { *im } else { *re }),
        Val::List(all) => {
            Val::List(all.iter().map(|v| part(cx, v, imaginary)).collect::<Result<_>>()?)
        }
        v if imaginary => zero(cx, v)?,
        v => v.clone(),
    })
}

fn each_part(cx: &mut Cx, row: &Row, a: &Args<'_>) -> Result<Outcome> {
    let name = row.name.strip_prefix("aten.").unwrap_or(row.name);
    let packet = name.split('.').next().unwrap_or(name);
    let converts = ["to", "_to_copy", "sum", "mean", "cumsum"].contains(&packet);
    // A conversion to a real dtype discards the imaginary part.
    let real = converts && matches!(a.get("dtype"), Some(Val::DType(_)));
    let mut run = |imaginary: bool| -> Result<Outcome> {
        let mut values = std::collections::HashMap::new();
        for (name, v) in &a.values {
            let v = match v {
                Val::ComplexDType(d) => Val::DType(*d),
                v if DATA.contains(name) => part(cx, v, imaginary)?,
                v if is_complex(v) => {
                    return Err(unsupported(format!("argument {name} may not be complex")));
                }
                v => v.clone(),
            };
            values.insert(*name, v);
        }
        let args = Args { values };
        if imaginary && ONES.contains(&packet) {
            let zeros = row_of(if a.has("self") { "aten.zeros_like.default" } else { "" });
            return match zeros.filter(|_| packet == "ones_like") {
                Some(row) => (row.build)(cx, &args),
                None => nothing(cx, row, &args),
            };
        }
        check(row, cx, &args)?;
        (row.build)(cx, &args)
    };
    let re = run(false)?;
    if real {
        return Ok(re);
    }
    let im = run(true)?;
    // What is real shares no memory with what is made of it.
    let shares = a.values.values().any(has_parts);
    let (re, im) = if shares { (re, im) } else { (cx.copied(re)?, cx.copied(im)?) };
    match (re, im) {
        (Outcome::One(re), Outcome::One(im)) => Ok(Outcome::One(pair(cx, re, im)?)),
        (Outcome::Many(re), Outcome::Many(im)) => {
            let all = re.into_iter().zip(im).map(|(re, im)| pair(cx, re, im));
            Ok(Outcome::Many(all.collect::<Result<_>>()?))
        }
        _ => Err("has parts of different forms".into()),
    }
}

/// Whether an argument is or holds a complex tensor.
fn has_parts(v: &Val) -> bool {
    match v {
        Val::Complex(..) => true,
        Val::List(all) => all.iter().any(has_parts),
        _ => false,
    }
}

/// Zeros in the shape of a row's result.
fn nothing(cx: &mut Cx, row: &Row, a: &Args<'_>) -> Result<Outcome> {
    let Outcome::One(Val::Tensor(made)) = (row.build)(cx, a)? else {
        return Err("fills several tensors".into());
    };
    let x = cx.get(made)?;
    let zero = cx.full_like(x, 0.0)?;
    cx.one(zero)
}

/// A result from those of the two parts; sizes are the same for both.
fn pair(cx: &mut Cx, re: Val, im: Val) -> Result<Val> {
    let (Val::Tensor(x), Val::Tensor(y)) = (&re, &im) else { return Ok(re) };
    let dtypes = (super::dtype_of(cx.get(*x)?)?, super::dtype_of(cx.get(*y)?)?);
    let d = part_dtype(dtypes.0)?;
    if dtypes == (d, d) {
        return Ok(Val::Complex(*x, *y));
    }
    let mut to = |alias| {
        let v = cx.get(alias)?;
        let v = cx.convert(v, d)?;
        Ok::<_, Error>(cx.store.fresh(v))
    };
    Ok(Val::Complex(to(*x)?, to(*y)?))
}
