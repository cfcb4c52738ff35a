//! Overloads that make complex tensors, or take their parts.
use super::super::{
    check::scalar_name,
    formula::{self as real, Formula},
};
use super::{Args, Cx, Outcome, Row, Val, Z, dtype_of, number::formula};
use crate::capture::storage::Alias;
use kiln_dialects::{ir::*, value::DType};

/// The same tensor where it is real, else what `complex` makes of it.
macro_rules! of_complex {
    ($name:literal, $real:expr, $complex:expr) => {
        Row {
            name: $name,
            arguments: "self",
            build: |cx, a| match a.get("self") {
                Some(Val::Complex(re, im)) => $complex(cx, a, *re, *im),
                _ => $real(cx, a),
            },
        }
    };
}

/// Rows of this family.
pub(in super::super) const ROWS: &[Row] = &[
    Row {
        name: "aten.complex.default",
        arguments: "real, imag",
        build: |cx, a| {
            let (x, y) = (cx.tensor(a, "real")?, cx.tensor(a, "imag")?);
            real_parts(&[x, y])?;
            cx.one_complex(x, y)
        },
    },
    Row {
        name: "aten.polar.default",
        arguments: "abs, angle",
        build: |cx, a| {
            let (m, angle) = (cx.tensor(a, "abs")?, cx.tensor(a, "angle")?);
            real_parts(&[m, angle])?;
            formula(cx, |f| Z::polar(f.of(m), f.of(angle)))
        },
    },
    of_complex!("aten.real.default", same, |_: &mut Cx, _: &Args<'_>, re, _| only(re)),
    of_complex!(
        "aten.imag.default",
        |_: &mut Cx, _: &Args<'_>| Err(
            "imag is not implemented for tensors with non-complex dtypes.".into()
        ),
        |_: &mut Cx, _: &Args<'_>, _, im| only(im)
    ),
    Row {
        name: "aten.view_as_real.default",
        arguments: "self",
        build: |cx, a| match a.get("self") {
            Some(Val::Complex(re, im)) => only(cx.interleaved(*re, *im)?),
            _ => Err("view_as_real is only supported for complex tensors".into()),
        },
    },
    Row {
        name: "aten.view_as_complex.default",
        arguments: "self",
        build: |cx, a| {
            let whole = a.alias("self")?;
            let x = cx.get(whole)?;
            real_parts(&[x])?;
            Ok(Outcome::One(cx.parted(whole)?))
        },
    },
    of_complex!("aten._conj.default", same, conj_view),
    of_complex!("aten.conj_physical.default", copy, conj),
    of_complex!("aten.resolve_conj.default", same, |_: &mut Cx, a: &Args<'_>, _, _| kept(a)),
    of_complex!("aten.resolve_neg.default", same, |_: &mut Cx, a: &Args<'_>, _, _| kept(a)),
    of_complex!("aten._neg_view.default", negative, |cx: &mut Cx, _: &Args<'_>, re, im| {
        [re, im].into_iter().for_each(|part| cx.store.pin(part));
        let z = (cx.get(re)?, cx.get(im)?);
        pinned(cx, |f| -Z::of(f, z))
    }),
    of_complex!("aten.angle.default", real_angle, |cx: &mut Cx, _: &Args<'_>, re, im| {
        let z = (cx.get(re)?, cx.get(im)?);
        real::formula(cx, |f| Z::of(f, z).angle())
    }),
    of_complex!(
        "aten.sgn.default",
        |cx: &mut Cx, a: &Args<'_>| {
            let row = super::super::find("aten.sign.default").ok_or("has no sign")?;
            (row.build)(cx, a)
        },
        |cx: &mut Cx, _: &Args<'_>, re, im| {
            let z = (cx.get(re)?, cx.get(im)?);
            formula(cx, |f| {
                let z = Z::of(f, z);
                let m = z.abs();
                let zero = m.number(0.0);
                Z { re: m.eq(0.0).select(zero, z.re / m), im: m.eq(0.0).select(zero, z.im / m) }
            })
        }
    ),
];

fn only(alias: Alias) -> Result<Outcome> {
    Ok(Outcome::One(Val::Tensor(alias)))
}

fn same(_: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    only(a.alias("self")?)
}

fn copy(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    cx.one(x)
}

fn negative(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.tensor(a, "self")?;
    real::formula(cx, |f| -f.of(x))
}

fn kept(a: &Args<'_>) -> Result<Outcome> {
    a.get("self").cloned().map(Outcome::One).ok_or_else(|| "has no argument".into())
}

/// A copy of what is a view in PyTorch: it may not be written.
fn pinned(cx: &mut Cx, make: impl for<'f> FnOnce(&'f Formula) -> Z<'f>) -> Result<Outcome> {
    let made = formula(cx, make)?;
    if let Outcome::One(Val::Complex(re, im)) = &made {
        [*re, *im].into_iter().for_each(|part| cx.store.pin(part));
    }
    Ok(made)
}

/// The conjugate as a view: neither it nor the tensor may be written later.
fn conj_view(cx: &mut Cx, _: &Args<'_>, re: Alias, im: Alias) -> Result<Outcome> {
    [re, im].into_iter().for_each(|part| cx.store.pin(part));
    let z = (cx.get(re)?, cx.get(im)?);
    pinned(cx, |f| Z::of(f, z).conj())
}

fn conj(cx: &mut Cx, _: &Args<'_>, re: Alias, im: Alias) -> Result<Outcome> {
    let z = (cx.get(re)?, cx.get(im)?);
    formula(cx, |f| Z::of(f, z).conj())
}

/// Pi for negative numbers, 0 for others, NaN for NaN.
fn real_angle(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let x = cx.floating(a, "self")?;
    real::formula(cx, |f| {
        let x = f.of(x);
        let angle = x.lt(0.0).select(x.number(std::f64::consts::PI), x.number(0.0));
        x.is_nan().select(x, angle)
    })
}

/// Err: parts are neither f32 nor f64.
fn real_parts(all: &[Value]) -> Result<()> {
    for v in all {
        match dtype_of(*v)? {
            DType::F32 | DType::F64 => {}
            DType::F16 => {
                return Err(crate::capture::unsupported("complex32 is not supported"));
            }
            _ => return Err("Expected both inputs to be Half, Float or Double tensors".into()),
        }
    }
    let names = all.iter().map(|v| dtype_of(*v).map(scalar_name)).collect::<Result<Vec<_>>>()?;
    match names[..] {
        [x, y] if x != y => Err(format!(
            "Expected object of scalar type {x} but got scalar type {y} for second argument"
        )
        .into()),
        _ => Ok(()),
    }
}
