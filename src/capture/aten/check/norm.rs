//! Checks of normalisations and dropout.
use super::{Call, Checks, Ty, differ, list, shapes_differ, wants};
use kiln_dialects::Result;

pub(super) const CHECKS: Checks = &[
    (&["layer_norm.default", "native_layer_norm.default", "rms_norm.default"], layer_norm),
    (&["native_group_norm.default"], native_group_norm),
    (&["group_norm.default"], |c| {
        let input = c.ty("input")?;
        group_norm(c, &input, "num_groups")
    }),
    (&["cross_entropy_loss.default", "mse_loss.default"], reduction),
    (&["dropout.default", "feature_dropout.default"], dropout),
];

fn layer_norm(c: &mut Call) -> Result<()> {
    let (x, shape) = (c.ty("input")?, c.sizes("normalized_shape")?);
    wants(!shape.is_empty(), || {
        "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = []".into()
    })?;
    for name in ["weight", "bias"] {
        let Some(t) = c.optional(name)? else { continue };
        wants(!shapes_differ(&t.dims, &shape), || {
            format!(
                "Expected {name} to be of same shape as normalized_shape, but got {name} of shape {} and normalized_shape = {}",
                t.sizes(),
                list(&shape)
            )
        })?;
    }
    let inner = x.rank().checked_sub(shape.len()).map(|lead| &x.dims[lead..]);
    wants(inner.is_some_and(|inner| !shapes_differ(inner, &shape)), || {
        let text = list(&shape);
        format!(
            "Given normalized_shape={text}, expected input with shape [*, {}, but got input of size{}",
            &text[1..],
            x.sizes()
        )
    })
}

fn native_group_norm(c: &mut Call) -> Result<()> {
    let input = c.ty("input")?;
    let (n, channels, pixels) = (c.a.size("N")?, c.a.size("C")?, c.a.size("HxW")?);
    let all =
        [n, channels, pixels].into_iter().try_fold(1i64, |all, s| all.checked_mul(s.known()?));
    let negative = [n, channels, pixels].iter().any(|s| s.known().is_some_and(|n| n < 0));
    let known = input.dims.get(1).copied().flatten();
    wants(!negative && !differ(all, input.count()) && !differ(known, channels.known()), || {
        "Expected X.numel() == N * C * HxW to be true, but got false.".into()
    })?;
    group_norm(c, &input, "group")
}

fn group_norm(c: &mut Call, input: &Ty, groups: &str) -> Result<()> {
    let groups = c.a.int(groups, None)?;
    wants(groups > 0, || format!("Expected num groups to be greater than 0, got {groups}"))?;
    wants(input.rank() >= 2, || {
        format!("Expected at least 2 dimensions for input tensor but received {}", input.rank())
    })?;
    let channels = input.dims[1];
    wants(channels.is_none_or(|n| n % groups == 0), || {
        format!(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape {} and num_groups={groups}",
            input.sizes()
        )
    })?;
    for name in ["weight", "bias"] {
        let Some(t) = c.optional(name)? else { continue };
        wants(t.rank() == 1 && !differ(t.dims[0], channels), || {
            format!(
                "Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of shape {} and input of shape {}",
                t.sizes(),
                input.sizes()
            )
        })?;
    }
    Ok(())
}

fn reduction(c: &mut Call) -> Result<()> {
    let n = c.a.int("reduction", Some(1))?;
    wants((0..=2).contains(&n), || {
        format!("Invalid reduction type encountered in {}: {n}", c.packet())
    })
}

fn dropout(c: &mut Call) -> Result<()> {
    let p = c.a.float("p", Some(0.5))?;
    wants((0.0..=1.0).contains(&p), || {
        format!("dropout probability has to be between 0 and 1, but got {p}")
    })
}
