//! Loops whose number of steps depends on data: greatest common divisors.
use super::{Args, Cx, Row, formula::value, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "aten.gcd.default",
        arguments: "self, other",
        build: |cx, a| {
            let (x, y) = integers(cx, a)?;
            let v = gcd(cx, x, y)?;
            cx.one(v)
        },
    },
    Row {
        name: "aten.lcm.default",
        arguments: "self, other",
        build: |cx, a| {
            let (x, y) = integers(cx, a)?;
            let divisor = gcd(cx, x, y)?;
            let v = value(cx, |f| {
                // Narrow integers are multiplied as int, as in C++.
                let d = f.of(x).dtype();
                let wide = if d.bits() < 32 { DType::I32 } else { d };
                let [x, y, g] = [x, y, divisor].map(|v| f.of(v).to(wide));
                (x / g.eq(0.0).select(1.0, g) * y).abs().to(d)
            })?;
            cx.one(v)
        },
    },
];

/// Both arguments in one dtype and shape.
fn integers(cx: &mut Cx, a: &Args<'_>) -> Result<(Value, Value)> {
    let (x, y) = cx.promoted(a, "self", "other")?;
    let d = dtype_of(x)?;
    if !d.is_int() || d.bits() == 1 {
        return Err(format!("is not implemented for {}", d.name()).into());
    }
    cx.broadcast(x, y)
}

/// Euclid's algorithm; the divisor of two zeros is 0.
fn gcd(cx: &mut Cx, x: Value, y: Value) -> Result<Value> {
    let any_left = |cx: &Cx, state: &[Value]| any(cx, value(cx, |f| f.of(state[1]).ne(0.0))?);
    let step = |cx: &Cx, state: &[Value]| {
        let (x, y) = (state[0], state[1]);
        let rest = value(cx, |f| {
            let (x, y) = (f.of(x), f.of(y));
            y.eq(0.0).select(y, x.remainder(y.eq(0.0).select(1.0, y)))
        })?;
        let left = value(cx, |f| f.of(y).eq(0.0).select(f.of(x), f.of(y)))?;
        Ok(vec![left, rest])
    };
    let found = repeat(cx, &[x, y], &any_left, &step)?;
    let unsigned = dtype_of(x)? == DType::UI8;
    value(cx, |f| if unsigned { f.of(found[0]) } else { f.of(found[0]).abs() })
}

/// Whether any element of a tensor of bools holds.
pub(super) fn any(cx: &Cx, x: Value) -> Result<Value> {
    let dims: Vec<i64> = (0..rank_of(x) as i64).collect();
    if dims.is_empty() { Ok(x) } else { cx.reduced(ReduceKind::Any, x, &dims) }
}

/// From carried values to what a region yields.
type Emit<'a, T> = &'a dyn Fn(&Cx, &[Value]) -> Result<T>;

/// The carried values after `step`, repeated while the 0-d condition of them holds.
pub(super) fn repeat(
    cx: &mut Cx,
    inits: &[Value],
    condition: Emit<'_, Value>,
    step: Emit<'_, Vec<Value>>,
) -> Result<Vec<Value>> {
    let b = cx.b;
    let types: Vec<Type> = inits.iter().map(|v| v.ty()).collect();
    let sizes = inits.iter().map(|v| b.sizes_of(*v)).collect::<Result<Vec<_>>>()?;
    // Symbolic sizes of carried values are those of the initial ones.
    let bound = |b: &Builder, values: &[Value]| -> Result<()> {
        for (value, sizes) in values.iter().zip(&sizes) {
            if sizes.iter().any(|s| s.known().is_none()) {
                let node = BindShape { value: *value, sizes: sizes.clone() };
                b.create_with(&node, &[], &mut [])?;
            }
        }
        Ok(())
    };
    let failed = std::cell::RefCell::new(None);
    let shared = std::cell::RefCell::new(cx);
    let region = |inner: Builder, args: &[Value], make: Emit<'_, Vec<Value>>| {
        let mut cx = shared.borrow_mut();
        cx.b = inner;
        let made = bound(&inner, args)
            .and_then(|()| make(&cx, args))
            .and_then(|values| inner.create_with(&Yield { values }, &[], &mut []).map(|_| ()));
        made.map_err(|e| {
            failed.borrow_mut().get_or_insert(e);
            Error::from("has a step that cannot be emitted")
        })
    };
    let holds = |cx: &Cx, state: &[Value]| condition(cx, state).map(|v| vec![v]);
    let mut test = |inner: Builder, args: Vec<Value>| region(inner, &args, &holds);
    let mut body = |inner: Builder, args: Vec<Value>| region(inner, &args, step);
    let regions: &mut [RegionBody<'_>] = &mut [(&types[..], &mut test), (&types[..], &mut body)];
    let op = b.generic(OpKind::While.name(), inits, &types, &[], regions);
    shared.borrow_mut().b = b;
    let op = match (op, failed.take()) {
        (_, Some(e)) => return Err(e),
        (op, None) => op?,
    };
    let finals = op.results();
    bound(&b, &finals)?;
    Ok(finals)
}
