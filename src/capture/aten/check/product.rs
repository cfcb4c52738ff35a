//! Checks of matrix products: ranks and contracted sizes.
use super::{Call, Checks, Ty, differ, joined, list, scalar_name, shape::expands, wants};
use kiln_dialects::{Result, value::DType};

pub(super) const CHECKS: Checks = &[
    (&["mm.default"], mm),
    (&["bmm.default"], |c| batched(c, "self", "mat2").map(drop)),
    (&["addmm.default"], addmm),
    (&["baddbmm.default"], baddbmm),
    (&["mv.default"], mv),
    (&["dot.default"], dot),
    (&["outer.default"], outer),
    (&["einsum.default"], einsum),
    (&["scaled_dot_product_attention.default"], attention),
];

fn same_dtype(x: &Ty, y: &Ty, names: &str) -> Result<()> {
    wants(x.dtype == y.dtype, || {
        let (x, y) = (scalar_name(x.dtype), scalar_name(y.dtype));
        format!("expected {names} to have the same dtype, but got: {x} != {y}")
    })
}

fn inner(x: &Ty, y: &Ty) -> Result<()> {
    wants(!differ(x.dims[1], y.dims[0]), || {
        let (x, y) = (joined(&x.dims, "x"), joined(&y.dims, "x"));
        format!("mat1 and mat2 shapes cannot be multiplied ({x} and {y})")
    })
}

fn mm(c: &mut Call) -> Result<()> {
    let (x, y) = (c.ty("self")?, c.ty("mat2")?);
    wants(x.rank() == 2, || "self must be a matrix".into())?;
    wants(y.rank() == 2, || "mat2 must be a matrix".into())?;
    inner(&x, &y)?;
    same_dtype(&x, &y, "m1 and m2")
}

/// The result shape of a batched product.
fn batched(c: &mut Call, x: &str, y: &str) -> Result<Vec<Option<i64>>> {
    let (x, y) = (c.ty(x)?, c.ty(y)?);
    wants(x.rank() == 3, || "batch1 must be a 3D tensor".into())?;
    wants(y.rank() == 3, || "batch2 must be a 3D tensor".into())?;
    let want = [x.dims[0], x.dims[2]];
    wants(!differ(want[0], y.dims[0]) && !differ(want[1], y.dims[1]), || {
        format!(
            "Expected size for first two dimensions of batch2 tensor to be: {} but got: {}.",
            list(&want),
            list(&y.dims[..2])
        )
    })?;
    same_dtype(&x, &y, "batch1 and batch2")?;
    Ok(vec![x.dims[0], x.dims[1], y.dims[2]])
}

fn addmm(c: &mut Call) -> Result<()> {
    let (bias, x, y) = (c.ty("self")?, c.ty("mat1")?, c.ty("mat2")?);
    for (name, t) in [("mat1", &x), ("mat2", &y)] {
        wants(t.rank() == 2, || format!("{name} must be a matrix, got {}-D tensor", t.rank()))?;
    }
    inner(&x, &y)?;
    same_dtype(&x, &y, "mat1 and mat2")?;
    same_dtype(&bias, &y, "self and mat2")?;
    expands(&bias, &[x.dims[0], y.dims[1]])
}

fn baddbmm(c: &mut Call) -> Result<()> {
    let to = batched(c, "batch1", "batch2")?;
    let (bias, y) = (c.ty("self")?, c.ty("batch2")?);
    same_dtype(&bias, &y, "self and batch2")?;
    expands(&bias, &to)
}

fn mv(c: &mut Call) -> Result<()> {
    let (x, y) = (c.ty("self")?, c.ty("vec")?);
    wants(x.rank() == 2 && y.rank() == 1, || {
        format!("vector + matrix @ vector expected, got 1, {}, {}", x.rank(), y.rank())
    })?;
    wants(!differ(x.dims[1], y.dims[0]), || {
        let (x, y) = (joined(&x.dims, "x"), joined(&y.dims, "x"));
        format!("size mismatch, got mat ({x}), vec ({y})")
    })?;
    same_dtype(&x, &y, "self and vec")
}

fn dot(c: &mut Call) -> Result<()> {
    let (x, y) = (c.ty("self")?, c.ty("tensor")?);
    wants(x.rank() == 1 && y.rank() == 1, || {
        format!("1D tensors expected, but got {}D and {}D tensors", x.rank(), y.rank())
    })?;
    wants(!differ(x.dims[0], y.dims[0]), || {
        format!(
            "inconsistent tensor size, expected tensor {} and src {} to have the same number of elements",
            x.sizes(),
            y.sizes()
        )
    })?;
    same_dtype(&x, &y, "both vectors")
}

fn outer(c: &mut Call) -> Result<()> {
    for name in ["self", "vec2"] {
        let rank = c.ty(name)?.rank();
        wants(rank == 1, || format!("outer: Expected 1-D argument {name}, but got {rank}-D"))?;
    }
    Ok(())
}

/// Operands beyond the equation's terms are rejected by the builder.
fn einsum(c: &mut Call) -> Result<()> {
    let equation = c.a.text("equation", "")?;
    let left = equation.split("->").next().unwrap_or_default();
    for (i, (term, t)) in left.split(',').zip(c.types("tensors")?).enumerate() {
        let n = term.chars().filter(|c| c.is_alphabetic()).count();
        wants(term.contains('.') || n == t.rank(), || {
            format!(
                "einsum(): the number of subscripts in the equation ({n}) does not match the number of dimensions ({}) for operand {i} and no ellipsis was given",
                t.rank()
            )
        })?;
    }
    Ok(())
}

fn attention(c: &mut Call) -> Result<()> {
    let all = [c.ty("query")?, c.ty("key")?, c.ty("value")?];
    let [q, k, v] = &all;
    wants(all.iter().all(|t| t.rank() >= 2), || {
        format!(
            "Expected query, key, and value to all be at least 2 dimensional, but got query.dim: {} key.dim: {} and value.dim: {} instead.",
            q.rank(),
            k.rank(),
            v.rank()
        )
    })?;
    wants(all.iter().all(|t| t.dtype == q.dtype), || {
        let [q, k, v] = all.each_ref().map(|t| scalar_name(t.dtype));
        format!(
            "Expected query, key, and value to have the same dtype, but got query.dtype: {q} key.dtype: {k} and value.dtype: {v} instead."
        )
    })?;
    if let Some(mask) = c.optional("attn_mask")? {
        let fits = [DType::I1, DType::F32, q.dtype].contains(&mask.dtype);
        wants(fits, || {
            format!(
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {} and query.dtype: {} instead.",
                scalar_name(mask.dtype),
                scalar_name(q.dtype)
            )
        })?;
    }
    // Key and value heads are repeated only with `enable_gqa`.
    if c.a.flag("enable_gqa", false)? {
        return Ok(());
    }
    for other in [k, v] {
        let lead =
            q.dims[..q.rank() - 2].iter().rev().zip(other.dims[..other.rank() - 2].iter().rev());
        for (i, (x, y)) in lead.enumerate() {
            wants(!differ(*x, *y) || *x == Some(1) || *y == Some(1), || {
                format!(
                    "The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension {}",
                    x.unwrap_or(-1),
                    y.unwrap_or(-1),
                    q.rank().saturating_sub(3 + i)
                )
            })?;
        }
    }
    Ok(())
}
