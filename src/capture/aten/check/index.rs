//! Checks of indexing: dtypes and shapes of index tensors.
use super::{Call, Checks, Ty, differ, list, scalar_name, shapes_differ, wants};
use kiln_dialects::{Result, value::DType};

pub(super) const CHECKS: Checks = &[
    (&["embedding.default"], embedding),
    (&["index_select.default"], index_select),
    (&["gather.default"], gather),
    (&["scatter.src", "scatter.value", "scatter_add.default"], scatter),
    (&["index.Tensor", "index_put.default"], index),
    (&["index_put.default"], index_put),
    (&["slice_scatter.default"], slice_scatter),
    (&["select_scatter.default"], select_scatter),
];

fn is_index(d: DType) -> bool {
    [DType::I64, DType::I32].contains(&d)
}

fn embedding(c: &mut Call) -> Result<()> {
    let (weight, indices) = (c.ty("weight")?, c.ty("indices")?);
    wants(weight.rank() == 2, || "'weight' must be 2-D".into())?;
    wants(is_index(indices.dtype), || {
        format!(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got {} instead",
            scalar_name(indices.dtype)
        )
    })
}

fn index_select(c: &mut Call) -> Result<()> {
    let index = c.ty("index")?;
    wants(index.rank() <= 1, || "index_select(): Index is supposed to be a vector".into())?;
    wants(is_index(index.dtype), || {
        "index_select(): Expected dtype int32 or int64 for index".into()
    })
}

fn gather(c: &mut Call) -> Result<()> {
    let (x, index) = (c.ty("self")?, c.ty("index")?);
    let d = c.dim(None, x.rank())?;
    if index.count() == Some(0) {
        return Ok(());
    }
    wants(is_index(index.dtype), || "gather(): Expected dtype int32/int64 for index".into())?;
    let (sizes, own) = (x.at_least_1d(), index.at_least_1d());
    wants(sizes.len() == own.len(), || {
        "Index tensor must have the same number of dimensions as input tensor".into()
    })?;
    for (i, (n, m)) in sizes.iter().zip(&own).enumerate().filter(|(i, _)| *i != d) {
        wants(!larger(*m, *n), || {
            format!(
                "Size does not match at dimension {i} expected index {} to be no larger than self {} apart from dimension {d}",
                list(&own),
                list(&sizes)
            )
        })?;
    }
    Ok(())
}

/// Whether one size is known to be the larger.
fn larger(x: Option<i64>, y: Option<i64>) -> bool {
    x.zip(y).is_some_and(|(x, y)| x > y)
}

fn scatter(c: &mut Call) -> Result<()> {
    let (x, index, src) = (c.ty("self")?, c.ty("index")?, c.optional("src")?);
    let d = c.dim(None, x.rank())?;
    wants(is_index(index.dtype) || index.count() == Some(0), || {
        "scatter(): Expected dtype int32/int64 for index".into()
    })?;
    if let Some(src) = &src {
        wants(src.dtype == x.dtype, || {
            "scatter(): Expected self.dtype to be equal to src.dtype".into()
        })?;
    }
    if index.count() == Some(0) {
        return Ok(());
    }
    let (sizes, own) = (x.at_least_1d(), index.at_least_1d());
    let same = |n: usize, of: &str| {
        wants(own.len() == n, || {
            format!("Index tensor must have the same number of dimensions as {of} tensor")
        })
    };
    same(sizes.len(), "self")?;
    let from = src.as_ref().map(Ty::at_least_1d);
    if let Some(from) = &from {
        same(from.len(), "src")?;
    }
    let beyond = (0..own.len()).any(|i| i != d && larger(own[i], sizes[i]));
    let more = from.as_ref().is_some_and(|f| (0..own.len()).any(|i| larger(own[i], f[i])));
    wants(!beyond && !more, || {
        let (index, own) = (list(&own), list(&sizes));
        let text = format!(
            "Expected index {index} to be no larger than self {own} apart from dimension {d}"
        );
        from.map_or(text.clone(), |f| {
            format!("{text} and to be no larger size than src {}", list(&f))
        })
    })
}

/// The tensors of an index list.
fn indices(c: &mut Call) -> Result<Vec<(usize, Ty)>> {
    let mut all = vec![];
    for (i, alias) in c.a.optional_aliases("indices")?.into_iter().enumerate() {
        if let Some(alias) = alias {
            all.push((i, Ty::of(c.cx.get(alias)?)?));
        }
    }
    Ok(all)
}

fn index(c: &mut Call) -> Result<()> {
    let x = c.ty("self")?;
    // A mask indexes as many dimensions as it has.
    let mut used = c.a.optional_aliases("indices")?.len();
    let mut at = 0;
    for (i, t) in indices(c)? {
        at += i.saturating_sub(at);
        let mask = [DType::I1, DType::UI8].contains(&t.dtype);
        wants(mask || is_index(t.dtype), || {
            "tensors used as indices must be long, int, byte or bool tensors".into()
        })?;
        if mask {
            used += t.rank().max(1) - 1;
            let own = x.dims.get(i..i + t.rank()).unwrap_or_default();
            let wrong = t.dims.iter().zip(own).position(|(m, n)| differ(*m, *n));
            if let Some(j) = wrong.or((own.len() < t.rank()).then_some(own.len())) {
                let (mask, own) = (t.sizes(), x.sizes());
                return Err(format!(
                    "The shape of the mask {mask} at index {j} does not match the shape of the indexed tensor {own} at index {}",
                    i + j
                ).into());
            }
        }
    }
    wants(used <= x.rank(), || {
        format!("too many indices for tensor of dimension {} (got {used})", x.rank())
    })
}

fn index_put(c: &mut Call) -> Result<()> {
    let (x, values) = (c.ty("self")?, c.ty("values")?);
    // A scalar assigned under a mask is `masked_fill`, which converts it.
    let number = values.count() == Some(1) && !c.a.flag("accumulate", false)?;
    let filled = number
        && matches!(&indices(c)?[..], [(_, t)] if [DType::I1, DType::UI8].contains(&t.dtype));
    wants(filled || x.dtype == values.dtype, || {
        format!(
            "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source.",
            scalar_name(x.dtype),
            scalar_name(values.dtype)
        )
    })
}

/// Err: `src` does not have the slice's shape.
fn same_slice(src: &Ty, part: &[Option<i64>]) -> Result<()> {
    wants(!shapes_differ(&src.dims, part), || {
        format!(
            "expected src to have a size equal to the slice of self. src size = {}, slice size = {}",
            src.sizes(),
            list(part)
        )
    })
}

fn slice_scatter(c: &mut Call) -> Result<()> {
    let (x, src) = (c.ty("self")?, c.ty("src")?);
    wants(x.rank() > 0, || "slice() cannot be applied to a 0-dim tensor.".into())?;
    let (d, step) = (c.dim(Some(0), x.rank())?, c.a.int("step", Some(1))?);
    wants(step > 0, || "slice step must be positive".into())?;
    let bound = |name, default: Option<i64>| match c.a.has(name) {
        false => Ok::<_, String>(default),
        true => {
            let (at, n) = (c.a.size(name)?.known(), x.dims[d]);
            Ok(at.zip(n).map(|(at, n)| if at < 0 { at + n } else { at }.clamp(0, n)))
        }
    };
    let (start, end) = (bound("start", Some(0))?, bound("end", x.dims[d])?);
    let mut part = x.dims.clone();
    part[d] = start.zip(end).map(|(start, end)| {
        let span = (end - start).max(0);
        span / step + i64::from(span % step != 0)
    });
    same_slice(&src, &part)
}

fn select_scatter(c: &mut Call) -> Result<()> {
    let (x, src) = (c.ty("self")?, c.ty("src")?);
    wants(x.rank() > 0, || "select() cannot be applied to a 0-dim tensor.".into())?;
    let (d, index) = (c.dim(None, x.rank())?, c.a.int("index", None)?);
    let mut part = x.dims.clone();
    let fits = part.remove(d).is_none_or(|n| (-n..n).contains(&index));
    wants(fits, || {
        format!(
            "select(): index {index} out of range for tensor of size {} at dimension {d}",
            x.sizes()
        )
    })?;
    same_slice(&src, &part)
}
