//! Orthogonal polynomials, each element of an order of its own: recurrences (DLMF 18.9), and for
//! Chebyshev polynomials of high order inside of (-1, 1) their angles (DLMF 18.5), as PyTorch
//! chooses.
use super::super::{
    Args, Cx, Outcome, Row,
    arithmetic::default_float,
    axes::wide,
    formula::{Term, value},
    repeat::{any, repeat},
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// A family of polynomials.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    ChebyshevT,
    ChebyshevU,
    ChebyshevV,
    ChebyshevW,
    ShiftedT,
    ShiftedU,
    ShiftedV,
    ShiftedW,
    Hermite,
    HermiteE,
    Laguerre,
    Legendre,
}
use Kind::*;

/// The rows of each family: argument and order are tensors, or one of them is a number.
macro_rules! families {
    ($($name:literal => $kind:ident),* $(,)?) => { &[$(
        Row {
            name: concat!("aten.special_", $name, ".default"),
            arguments: "x, n",
            build: |cx, a| build(cx, a, $kind),
        },
        Row {
            name: concat!("aten.special_", $name, ".x_scalar"),
            arguments: "x, n",
            build: |cx, a| build(cx, a, $kind),
        },
        Row {
            name: concat!("aten.special_", $name, ".n_scalar"),
            arguments: "x, n",
            build: |cx, a| build(cx, a, $kind),
        },
    )*] };
}

/// Rows of this family.
pub const ROWS: &[Row] = families! {
    "chebyshev_polynomial_t" => ChebyshevT,
    "chebyshev_polynomial_u" => ChebyshevU,
    "chebyshev_polynomial_v" => ChebyshevV,
    "chebyshev_polynomial_w" => ChebyshevW,
    "shifted_chebyshev_polynomial_t" => ShiftedT,
    "shifted_chebyshev_polynomial_u" => ShiftedU,
    "shifted_chebyshev_polynomial_v" => ShiftedV,
    "shifted_chebyshev_polynomial_w" => ShiftedW,
    "hermite_polynomial_h" => Hermite,
    "hermite_polynomial_he" => HermiteE,
    "laguerre_polynomial_l" => Laguerre,
    "legendre_polynomial_p" => Legendre,
};

/// The polynomial of order 1.
fn first(kind: Kind, x: Term<'_>) -> Term<'_> {
    match kind {
        ChebyshevT | ShiftedT | HermiteE | Legendre => x,
        ChebyshevU | ShiftedU | Hermite => x + x,
        ChebyshevV | ShiftedV => x + x - 1.0,
        ChebyshevW | ShiftedW => x + x + 1.0,
        Laguerre => 1.0 - x,
    }
}

/// The polynomial of order k + 1 from those of the orders k - 1 and k.
fn next<'f>(kind: Kind, x: Term<'f>, k: Term<'f>, p: Term<'f>, q: Term<'f>) -> Term<'f> {
    match kind {
        Hermite => (x + x) * q - (k + k) * p,
        HermiteE => x * q - k * p,
        Laguerre => ((k + k + (1.0 - x)) * q - k * p) / (k + 1.0),
        Legendre => ((k + k + 1.0) * x * q - k * p) / (k + 1.0),
        _ => (x + x) * q - p,
    }
}

/// The least order at which PyTorch uses the angle.
fn angular_from(kind: Kind) -> Option<f64> {
    Some(match kind {
        ShiftedW => 5.0,
        ChebyshevT | ShiftedT | ShiftedU | ShiftedV => 7.0,
        ChebyshevU | ChebyshevV | ChebyshevW => 9.0,
        _ => return None,
    })
}

/// The polynomial inside of (-1, 1) by the angle.
fn by_angle<'f>(kind: Kind, x: Term<'f>, n: Term<'f>) -> Option<Term<'f>> {
    let angle = x.acos();
    let half = angle * 0.5;
    Some(match kind {
        ChebyshevT | ShiftedT => (n * angle).cos(),
        ChebyshevU | ShiftedU => ((n + 1.0) * angle).sin() / angle.sin(),
        ChebyshevV | ShiftedV => ((n + 0.5) * angle).cos() / half.cos(),
        ChebyshevW | ShiftedW => ((n + 0.5) * angle).sin() / half.sin(),
        _ => return None,
    })
}

fn build(cx: &mut Cx, a: &Args<'_>, kind: Kind) -> Result<Outcome> {
    let narrow = default_float(cx.common_dtype(a, &["x", "n"])?);
    let d = wide(narrow);
    let (x, n) = (cx.operand(a, "x", d)?, cx.operand(a, "n", d)?);
    let (x, n) = cx.broadcast(x, n)?;
    let x = match kind {
        ShiftedT | ShiftedU | ShiftedV | ShiftedW => value(cx, |f| f.of(x) + f.of(x) - 1.0)?,
        _ => x,
    };
    // What i64 cannot hold becomes negative, as on x86.
    let order = value(cx, |f| {
        let held = f.of(n).abs().lt(2f64.powi(63));
        held.select(f.of(n), -1.0).to(DType::I64)
    })?;
    // Beyond these orders PyTorch gives NaN.
    let most = match (kind, d) {
        (Hermite | HermiteE, DType::F64) => Some(512.0),
        (Hermite | HermiteE, _) => Some(128.0),
        _ => None,
    };
    let closed = value(cx, |f| {
        let (x, n) = (f.of(x), f.of(order));
        match (angular_from(kind), most) {
            (Some(least), _) => n.ge(least) & x.abs().lt(1.0),
            (None, Some(most)) => n.gt(most),
            (None, None) => n.ne(n),
        }
    })?;
    let steps = value(cx, |f| f.of(closed).select(0.0, f.of(order)))?;
    let one = cx.full_like(x, 1.0)?;
    let start = value(cx, |f| first(kind, f.of(x)))?;
    let inits = [cx.integer(DType::I64, 1)?, one, start];
    let more = |cx: &Cx, state: &[Value]| {
        any(cx, value(cx, |f| f.of(steps).gt(f.of(state[0])) & !f.of(state[2]).is_nan())?)
    };
    let step = |cx: &Cx, state: &[Value]| {
        let (k, p, q) = (state[0], state[1], state[2]);
        let after = cx.binary(BinaryKind::Add, k, cx.integer(DType::I64, 1)?)?;
        let goes = cx.compare(CompareKind::Gt, steps, k)?;
        let r = value(cx, |f| {
            let r = next(kind, f.of(x), f.of(k).to(d), f.of(p), f.of(q));
            f.of(goes).select(r, f.of(q))
        })?;
        Ok(vec![after, cx.select(goes, q, p)?, r])
    };
    let found = repeat(cx, &inits, &more, &step)?;
    let v = value(cx, |f| {
        let (n, q) = (f.of(order), f.of(found[2]));
        let special = by_angle(kind, f.of(x), n.to(d)).unwrap_or_else(|| q.number(f64::NAN));
        let high = f.of(closed).select(special, q);
        let low = n.eq(0.0).select(1.0, high);
        n.lt(0.0).select(0.0, low).to(narrow)
    })?;
    cx.one(v)
}
