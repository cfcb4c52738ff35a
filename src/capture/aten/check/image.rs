//! Checks of convolution, pooling and resizing.
use super::{Call, Checks, Val, differ, scalar_name, wants};
use kiln_dialects::Result;

pub(super) const CHECKS: Checks = &[
    (
        &[
            "conv1d.default",
            "conv2d.default",
            "conv3d.default",
            "conv2d.padding",
            "conv_transpose1d.default",
            "conv_transpose2d.input",
            "convolution.default",
        ],
        convolution,
    ),
    (&["max_pool1d.default", "avg_pool1d.default"], |c| pool(c, 1)),
    (&["max_pool2d.default", "max_pool2d_with_indices.default", "avg_pool2d.default"], |c| {
        pool(c, 2)
    }),
    (&["adaptive_avg_pool1d.default"], |c| adaptive(c, 1)),
    (&["adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default"], |c| adaptive(c, 2)),
    (&["upsample_nearest2d.vec", "upsample_nearest2d.default"], upsample),
];

/// A list with one entry, or one per spatial dimension; the default if absent.
fn spread(c: &Call, name: &str, n: usize, default: i64) -> Result<Vec<i64>> {
    let Some(all) = c.a.ints(name)? else { return Ok(vec![default; n]) };
    match all.len() {
        1 => Ok(all.repeat(n)),
        len if len == n => Ok(all),
        _ => Err(format!(
            "expected {name} to be a single integer value or a list of {n} values to match the convolution dimensions, but got {name}={all:?}"
        ).into()),
    }
}

fn convolution(c: &mut Call) -> Result<()> {
    let (x, weight) = (c.ty("input")?, c.ty("weight")?);
    for (name, t) in [("weight", Some(&weight)), ("bias", c.optional("bias")?.as_ref())] {
        let Some(t) = t.filter(|t| t.dtype != x.dtype) else { continue };
        let (input, other) = (scalar_name(x.dtype), scalar_name(t.dtype));
        return Err(
            format!("Input type ({input}) and {name} type ({other}) should be the same").into()
        );
    }
    wants(weight.rank() > 2, || "weight should have at least three dimensions".into())?;
    let named = [("1d", 1), ("2d", 2), ("3d", 3)];
    let named = named.iter().find(|(end, _)| c.packet().ends_with(end)).map(|(_, n)| *n);
    let n = named.unwrap_or(weight.rank() - 2);
    wants(weight.rank() == n + 2, || {
        format!("Expected {}-dimensional weight, but got weight of size {}", n + 2, weight.sizes())
    })?;
    let transposed = c.packet().starts_with("conv_transpose") || c.a.flag("transposed", false)?;
    wants(x.rank() == n + 2 || (x.rank() == n + 1 && named.is_some()), || {
        let name = c.packet();
        format!(
            "Expected {}D (unbatched) or {}D (batched) input to {name}, but got input of size: {}",
            n + 1,
            n + 2,
            x.sizes()
        )
    })?;
    let stride = spread(c, "stride", n, 1)?;
    let dilation = spread(c, "dilation", n, 1)?;
    match c.a.values.get("padding") {
        Some(Val::Str(mode)) => {
            wants(["valid", "same"].contains(&mode.as_str()), || {
                format!("Invalid padding string: '{mode}'")
            })?;
            wants(mode == "valid" || stride.iter().all(|s| *s == 1), || {
                "padding='same' is not supported for strided convolutions".into()
            })?;
        }
        _ => {
            let padding = spread(c, "padding", n, 0)?;
            wants(padding.iter().all(|p| *p >= 0), || "negative padding is not supported".into())?;
        }
    }
    wants(stride.iter().all(|s| *s > 0), || "non-positive stride is not supported".into())?;
    wants(dilation.iter().all(|s| *s > 0), || "dilation should be greater than zero".into())?;
    let groups = c.a.int("groups", Some(1))?;
    wants(groups > 0, || "non-positive groups is not supported".into())?;
    let out = spread(c, "output_padding", n, 0)?;
    if transposed {
        let fits = (0..n).all(|i| out[i] >= 0 && out[i] < stride[i].max(dilation[i]));
        wants(fits, || {
            format!(
                "output padding must be smaller than either stride or dilation, but got output_padding: {out:?} stride: {stride:?} dilation: {dilation:?}"
            )
        })?;
    }
    let filters = match (transposed, weight.dims[1], weight.dims[0]) {
        (true, n, _) => n.and_then(|n| n.checked_mul(groups)),
        (false, _, n) => n,
    };
    let Some(bias) = c.optional("bias")? else { return Ok(()) };
    wants(bias.rank() == 1 && !differ(bias.dims[0], filters), || {
        let given = if transposed { "Given transposed=1, weight" } else { "Given weight" };
        format!(
            "{given} of size {}, expected bias to be 1-dimensional with {} elements, but got bias of size {} instead",
            weight.sizes(),
            filters.map_or("s".into(), |n| n.to_string()),
            bias.sizes()
        )
    })
}

fn pool(c: &mut Call, n: usize) -> Result<()> {
    let name = c.packet();
    let rank = c.cx.tensor(c.a, "self").map(|v| v.ty().dims().len())?;
    wants(rank == n + 1 || rank == n + 2, || {
        format!(
            "{name}: Expected {}D or {}D (batch mode) tensor for input, but got: {rank}D",
            n + 1,
            n + 2
        )
    })?;
    let mut lists = vec![];
    for (list, default) in [("kernel_size", 1), ("padding", 0), ("dilation", 1)] {
        let all = match c.a.ints(list)? {
            None => vec![default; n],
            Some(one) if one.len() == 1 => one.repeat(n),
            Some(all) => all,
        };
        wants(all.len() == n, || {
            format!("{name}: {list} must be one int, or {n}, but got size {}", all.len())
        })?;
        lists.push(all);
    }
    let stride = c.a.ints("stride")?.map_or(0, |s| s.len());
    wants([0, 1, n].contains(&stride), || {
        format!("{name}: stride must either be omitted, one int, or {n}, but got size {stride}")
    })?;
    for ((kernel, pad), dilation) in lists[0].iter().zip(&lists[1]).zip(&lists[2]) {
        let (kernel, pad, dilation) = (*kernel, *pad, *dilation);
        wants(pad >= 0, || format!("pad must be non-negative, but got pad: {pad}"))?;
        let reach = kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(1);
        wants(pad <= reach / 2, || {
            format!(
                "pad should be at most half of effective kernel size, but got pad={pad}, kernel_size={kernel} and dilation={dilation}"
            )
        })?;
    }
    let divisor = c.a.int("divisor_override", Some(1))?;
    wants(divisor != 0, || "divisor must be not zero".into())
}

fn adaptive(c: &mut Call, n: usize) -> Result<()> {
    let name = c.packet();
    let name = name.trim_start_matches('_');
    let x = c.cx.tensor(c.a, "self").map(|v| v.ty().dims().len())?;
    let len = c.a.sizes("output_size")?.len();
    wants(len == n, || match n {
        1 => format!("{name}() argument 'output_size' should contain one int (got {len})"),
        _ => format!("{name}: output_size must be {n}"),
    })?;
    wants(x == n + 1 || x == n + 2, || {
        format!("{name}(): Expected {}D or {}D tensor, but got {x}D", n + 1, n + 2)
    })
}

fn upsample(c: &mut Call) -> Result<()> {
    let name = if c.a.has("input") { "input" } else { "self" };
    let rank = c.ty(name)?.rank();
    wants(rank == 4, || format!("It is expected input_size equals to 4, but got size {rank}"))?;
    if c.a.has("output_size") {
        let len = c.a.sizes("output_size")?.len();
        wants(len == 2, || format!("It is expected output_size equals to 2, but got size {len}"))?;
        let both = matches!(c.a.values.get("scale_factors"), Some(Val::List(_)));
        return wants(!both, || "Must specify exactly one of output_size and scale_factors".into());
    }
    match c.a.values.get("scale_factors") {
        Some(Val::List(all)) => wants(all.len() == 2, || {
            format!("It is expected scale_factors equals to 2, but got size {}", all.len())
        }),
        _ => Err("Must specify exactly one of output_size and scale_factors".into()),
    }
}
