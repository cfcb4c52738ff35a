//! Checks of views, slices, concatenation and reductions.
use super::{Call, Checks, Ty, differ, list, scalar_name, wants};
use crate::capture::aten::tools::wrap;
use kiln_dialects::Result;

pub(super) const CHECKS: Checks = &[
    (&["t.default"], t),
    (&["view.default", "reshape.default", "_unsafe_view.default"], view),
    (&["expand.default"], expand),
    (&["expand_as.default"], expand_as),
    (&["flatten.using_ints"], flatten),
    (&["select.int"], select),
    (&["slice.Tensor"], slice),
    (&["narrow.default"], narrow),
    (&["split.Tensor"], split),
    (&["split_with_sizes.default"], split_with_sizes),
    (&["chunk.default"], chunk),
    (&["unbind.int"], unbind),
    (&["permute.default"], permute),
    (&["transpose.int"], transpose),
    (&["roll.default"], roll),
    (&["cat.default"], cat),
    (&["stack.default"], stack),
    (&["repeat.default"], repeat),
    (&["constant_pad_nd.default", "pad.default"], pad),
    (&["zeros.default", "ones.default", "empty.memory_format", "full.default"], created),
    (&["new_zeros.default", "new_ones.default", "new_full.default"], created),
    (&["tril.default", "triu.default"], triangle),
    (&["linalg_vector_norm.default", "norm.ScalarOpt_dim"], norm),
    (&["mean.default", "mean.dim"], mean),
    (&["diff.default"], diff),
    (&["topk.default"], topk),
];

fn t(c: &mut Call) -> Result<()> {
    let rank = c.ty("self")?.rank();
    wants(rank <= 2, || format!("t() expects a tensor with <= 2 dimensions, but self is {rank}D"))
}

fn view(c: &mut Call) -> Result<()> {
    let (x, to) = (c.ty("self")?, c.sizes(if c.a.has("size") { "size" } else { "shape" })?);
    wants(to.iter().filter(|n| **n == Some(-1)).count() < 2, || {
        "only one dimension can be inferred".into()
    })?;
    if let Some(i) = to.iter().position(|n| n.is_some_and(|n| n < -1)) {
        let n = to[i].unwrap_or(-1);
        return Err(
            format!("invalid shape dimension {n} at index {i} of shape {}", list(&to)).into()
        );
    }
    let open = to.contains(&Some(-1));
    let rest = to.iter().filter(|n| **n != Some(-1));
    let rest = rest.copied().try_fold(1i64, |all, n| all.checked_mul(n?));
    let Some((have, rest)) = x.count().zip(rest) else { return Ok(()) };
    wants(!(open && have == 0 && rest == 0), || {
        format!(
            "cannot reshape tensor of 0 elements into shape {} because the unspecified dimension size -1 can be any value and is ambiguous",
            list(&to)
        )
    })?;
    let fits = if open { rest != 0 && have % rest == 0 } else { have == rest };
    wants(fits, || format!("shape '{}' is invalid for input of size {have}", list(&to)))
}

fn expand(c: &mut Call) -> Result<()> {
    let (x, to) = (c.ty("self")?, c.sizes("size")?);
    expands(&x, &to)
}

fn expand_as(c: &mut Call) -> Result<()> {
    let (x, other) = (c.ty("self")?, c.ty("other")?);
    expands(&x, &other.dims)
}

fn flatten(c: &mut Call) -> Result<()> {
    let rank = c.ty("self")?.rank();
    let (start, end) = (c.a.int("start_dim", Some(0))?, c.a.int("end_dim", Some(-1))?);
    wants(wrap(start, rank)? <= wrap(end, rank)?, || {
        "flatten() has invalid args: start_dim cannot come after end_dim".into()
    })
}

/// Err: a tensor does not expand to these sizes; -1 keeps its own.
pub(super) fn expands(x: &Ty, to: &[Option<i64>]) -> Result<()> {
    let Some(lead) = to.len().checked_sub(x.rank()) else {
        return Err(format!(
            "the number of sizes provided ({}) must be greater or equal to the number of dimensions in the tensor ({})",
            to.len(),
            x.rank()
        ).into());
    };
    for (i, want) in to.iter().enumerate() {
        let have = i.checked_sub(lead).and_then(|i| x.dims[i]);
        let stays = i >= lead && *want == Some(-1);
        wants(stays || want.is_none_or(|n| n >= 0), || {
            format!(
                "The expanded size of the tensor ({}) isn't allowed in a leading, non-existing dimension {i}",
                want.unwrap_or(-1)
            )
        })?;
        let repeats = have == Some(1) || stays || i < lead;
        wants(repeats || !differ(have, *want), || {
            let (want, have) = (want.unwrap_or(-1), have.unwrap_or(-1));
            format!(
                "The expanded size of the tensor ({want}) must match the existing size ({have}) at non-singleton dimension {i}.  Target sizes: {}.  Tensor sizes: {}",
                list(to),
                x.sizes()
            )
        })?;
    }
    Ok(())
}

fn select(c: &mut Call) -> Result<()> {
    let x = c.ty("self")?;
    wants(x.rank() > 0, || "select() cannot be applied to a 0-dim tensor.".into())?;
    let d = c.dim(None, x.rank())?;
    let Some((index, n)) = c.a.size("index")?.known().zip(x.dims[d]) else { return Ok(()) };
    wants((-n..n).contains(&index), || {
        format!(
            "select(): index {index} out of range for tensor of size {} at dimension {d}",
            x.sizes()
        )
    })
}

fn slice(c: &mut Call) -> Result<()> {
    let rank = c.ty("self")?.rank();
    wants(rank > 0, || "slice() cannot be applied to a 0-dim tensor.".into())?;
    wants(c.a.int("step", Some(1))? > 0, || "slice step must be positive".into())
}

fn narrow(c: &mut Call) -> Result<()> {
    let x = c.ty("self")?;
    wants(x.rank() > 0, || "narrow() cannot be applied to a 0-dim tensor.".into())?;
    let d = c.dim(None, x.rank())?;
    let (start, length) = (c.a.size("start")?.known(), c.a.size("length")?.known());
    wants(length.is_none_or(|n| n >= 0), || "narrow(): length must be non-negative.".into())?;
    let (Some(start), Some(n)) = (start, x.dims[d]) else { return Ok(()) };
    wants((-n..=n).contains(&start), || {
        format!("start out of range (expected to be in range of [{}, {n}], but got {start})", -n)
    })?;
    let start = if start < 0 { start + n } else { start };
    let Some(length) = length else { return Ok(()) };
    wants(length <= n - start, || {
        format!("start ({start}) + length ({length}) exceeds dimension size ({n}).")
    })
}

fn split(c: &mut Call) -> Result<()> {
    let x = c.ty("self")?;
    wants(x.rank() > 0, || "split expects at least a 1-dimensional tensor".into())?;
    let d = c.dim(Some(0), x.rank())?;
    let Some(each) = c.a.size("split_size")?.known() else { return Ok(()) };
    wants(each >= 0, || {
        format!("split expects split_size be non-negative, but got split_size={each}")
    })?;
    wants(each > 0 || x.dims[d] == Some(0), || {
        format!(
            "split_size can only be 0 if dimension size is 0, but got dimension size of {}",
            list(&x.dims[d..=d]).trim_matches(['[', ']'])
        )
    })
}

fn split_with_sizes(c: &mut Call) -> Result<()> {
    let x = c.ty("self")?;
    wants(x.rank() > 0, || "split expects at least a 1-dimensional tensor".into())?;
    let (d, sizes) = (c.dim(Some(0), x.rank())?, c.sizes("split_sizes")?);
    wants(sizes.iter().all(|n| n.is_none_or(|n| n >= 0)), || {
        format!(
            "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={}",
            list(&sizes)
        )
    })?;
    let sum = sizes.iter().try_fold(0i64, |sum, n| sum.checked_add((*n)?));
    let known = sizes.iter().all(Option::is_some);
    let fits = !known || x.dims[d].is_none() || sum == x.dims[d];
    wants(fits, || {
        format!(
            "split_with_sizes expects split_sizes to sum exactly to {} (input tensor's size at dimension {d}), but got split_sizes={}",
            x.dims[d].unwrap_or(-1),
            list(&sizes)
        )
    })
}

fn chunk(c: &mut Call) -> Result<()> {
    let rank = c.ty("self")?.rank();
    wants(rank > 0, || "chunk expects at least a 1-dimensional tensor".into())?;
    let chunks = c.a.int("chunks", None)?;
    wants(chunks > 0, || format!("chunk expects `chunks` to be greater than 0, got: {chunks}"))
}

fn unbind(c: &mut Call) -> Result<()> {
    let rank = c.ty("self")?.rank();
    wants(rank > 0, || "Dimension specified as 0 but tensor has no dimensions".into())
}

fn transpose(c: &mut Call) -> Result<()> {
    let rank = c.ty("self")?.rank();
    for name in ["dim0", "dim1"] {
        wrap(c.a.int(name, None)?, rank)?;
    }
    Ok(())
}

fn permute(c: &mut Call) -> Result<()> {
    let (rank, dims) = (c.ty("self")?.rank(), c.a.ints("dims")?.unwrap_or_default());
    wants(dims.len() == rank, || {
        format!(
            "permute(): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions i.e. input.dim() = {rank} is not equal to len(dims) = {}",
            dims.len()
        )
    })?;
    let mut seen = vec![false; rank];
    for d in dims {
        let d = wrap(d, rank)?;
        let again = std::mem::replace(&mut seen[d], true);
        wants(!again, || "permute(): duplicate dims are not allowed.".into())?;
    }
    Ok(())
}

fn roll(c: &mut Call) -> Result<()> {
    let shifts = if c.a.has("shifts") { c.sizes("shifts")?.len() } else { 0 };
    let dims = c.a.ints("dims")?.unwrap_or_default();
    wants(shifts > 0, || "`shifts` required".into())?;
    wants(shifts == dims.len() || (shifts == 1 && dims.is_empty()), || {
        format!("shifts and dimensions must align. shifts: {shifts}, dims:{}", dims.len())
    })?;
    let rank = c.ty("self")?.rank();
    match dims.first().filter(|_| rank == 0) {
        Some(d) => Err(format!("Dimension specified as {d} but tensor has no dimensions").into()),
        None => Ok(()),
    }
}

fn cat(c: &mut Call) -> Result<()> {
    let all = c.types("tensors")?;
    wants(!all.is_empty(), || "torch.cat(): expected a non-empty list of Tensors".into())?;
    if let Some(i) = all.iter().position(|t| t.rank() == 0) {
        let reason = format!("zero-dimensional tensor (at position {i}) cannot be concatenated");
        return Err(reason.into());
    }
    // An empty 1-d tensor concatenates with anything.
    let mut rest = all.iter().enumerate().filter(|(_, t)| t.dims != [Some(0)]);
    let Some((_, first)) = rest.next() else { return Ok(()) };
    let axis = c.dim(Some(0), first.rank())?;
    for (i, t) in rest {
        wants(t.rank() == first.rank(), || {
            format!(
                "Tensors must have same number of dimensions: got {} and {}",
                first.rank(),
                t.rank()
            )
        })?;
        let pairs = first.dims.iter().zip(&t.dims).enumerate();
        for (_, (want, have)) in pairs.filter(|(d, _)| *d != axis) {
            wants(!differ(*want, *have), || {
                format!(
                    "Sizes of tensors must match except in dimension {axis}. Expected size {} but got size {} for tensor number {i} in the list.",
                    want.unwrap_or(-1),
                    have.unwrap_or(-1)
                )
            })?;
        }
    }
    Ok(())
}

fn stack(c: &mut Call) -> Result<()> {
    let all = c.types("tensors")?;
    wants(!all.is_empty(), || "stack expects a non-empty TensorList".into())?;
    for (i, t) in all.iter().enumerate() {
        wants(!super::shapes_differ(&t.dims, &all[0].dims), || {
            format!(
                "stack expects each tensor to be equal size, but got {} at entry 0 and {} at entry {i}",
                all[0].sizes(),
                t.sizes()
            )
        })?;
    }
    Ok(())
}

fn repeat(c: &mut Call) -> Result<()> {
    let (rank, repeats) = (c.ty("self")?.rank(), c.sizes("repeats")?);
    wants(repeats.len() >= rank, || {
        "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
            .into()
    })?;
    not_negative(&repeats)
}

fn created(c: &mut Call) -> Result<()> {
    not_negative(&c.sizes("size")?)
}

fn not_negative(sizes: &[Option<i64>]) -> Result<()> {
    let negative = sizes.iter().find_map(|n| n.filter(|n| *n < 0));
    negative.map_or(Ok(()), |n| {
        Err(format!("Trying to create tensor with negative dimension {n}: {}", list(sizes)).into())
    })
}

fn pad(c: &mut Call) -> Result<()> {
    let (x, pad) = (c.ty("self")?, c.sizes("pad")?);
    let n = pad.len();
    wants(n.is_multiple_of(2), || format!("Length of pad must be even but instead it equals {n}"))?;
    wants(n <= 2 * x.rank(), || {
        format!(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad length is {n} while the input has {} dimensions.",
            x.rank()
        )
    })?;
    for (i, pair) in pad.chunks(2).enumerate() {
        let d = x.rank() - 1 - i;
        let (Some(n), [Some(low), Some(high)]) = (x.dims[d], pair) else { continue };
        let (cut, added) = (low.min(&0).checked_add(*high.min(&0)), low.checked_add(*high));
        let all = cut.and_then(|cut| n.checked_add(cut)).filter(|n| *n >= 0);
        let all = all.and(added).and_then(|added| n.checked_add(added));
        wants(all.is_some_and(|n| n >= 0), || {
            format!(
                "The input size {n}, plus negative padding {low} and {high}, resulted in a negative output size, which is invalid. Check dimension {d} of your input."
            )
        })?;
    }
    Ok(())
}

fn triangle(c: &mut Call) -> Result<()> {
    let (rank, name) = (c.ty("self")?.rank(), c.packet());
    wants(rank >= 2, || format!("{name}: input tensor must have at least 2 dimensions"))
}

fn norm(c: &mut Call) -> Result<()> {
    if let Some(d) = c.a.dtype("dtype")? {
        wants(d.is_float(), || {
            let name = scalar_name(d);
            format!("linalg.vector_norm: dtype should be floating point or complex, but got {name}")
        })?;
    }
    let d = c.ty("self")?.dtype;
    let name = scalar_name(d);
    wants(d.is_float(), || match c.packet() {
        "norm" => {
            format!(
                "norm(): input dtype should be either floating point or complex. Got {name} instead."
            )
        }
        _ => {
            format!(
                "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {name}"
            )
        }
    })
}

fn mean(c: &mut Call) -> Result<()> {
    let d = c.a.dtype("dtype")?;
    let of = d.unwrap_or(c.ty("self")?.dtype);
    let what = if d.is_some() { "Optional" } else { "Input" };
    wants(of.is_float(), || {
        format!(
            "mean(): could not infer output dtype. {what} dtype must be either a floating point or complex dtype. Got: {}",
            scalar_name(of)
        )
    })
}

fn diff(c: &mut Call) -> Result<()> {
    let (rank, n) = (c.ty("self")?.rank(), c.a.int("n", Some(1))?);
    wants(rank > 0, || "diff expects input to be at least one-dimensional".into())?;
    wants(n >= 0, || format!("order must be non-negative but got {n}"))
}

fn topk(c: &mut Call) -> Result<()> {
    let x = c.ty("self")?;
    let (d, k) = (c.dim(Some(-1), x.rank())?, c.a.size("k")?);
    let n = x.at_least_1d()[d];
    let fits = k.known().is_none_or(|k| k >= 0 && n.is_none_or(|n| k <= n));
    wants(fits, || "selected index k out of range".into())
}
