//! Algebraic identities: arithmetic that folds to an operand or a constant.
use super::splats::*;
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Patterns by root op.
pub(super) const PATTERNS: &[Pattern] = &[
    Pattern {
        name: "add-zero",
        root: OpKind::Add,
        apply: |op, r| fold_identity(op, r, &[(0, -0.0), (1, -0.0)]),
    },
    Pattern {
        name: "sub-zero",
        root: OpKind::Sub,
        apply: |op, r| fold_identity(op, r, &[(1, 0.0)]),
    },
    Pattern {
        name: "mul-one",
        root: OpKind::Mul,
        apply: |op, r| fold_identity(op, r, &[(0, 1.0), (1, 1.0)]),
    },
    Pattern {
        name: "div-one",
        root: OpKind::Div,
        apply: |op, r| fold_identity(op, r, &[(1, 1.0)]),
    },
    Pattern {
        name: "pow-one",
        root: OpKind::Pow,
        apply: |op, r| fold_identity(op, r, &[(1, 1.0)]),
    },
    Pattern {
        name: "or-zero",
        root: OpKind::Or,
        apply: |op, r| fold_identity(op, r, &[(0, 0.0), (1, 0.0)]),
    },
    Pattern {
        name: "xor-zero",
        root: OpKind::Xor,
        apply: |op, r| fold_identity(op, r, &[(0, 0.0), (1, 0.0)]),
    },
    Pattern {
        name: "shl-zero",
        root: OpKind::Shl,
        apply: |op, r| fold_identity(op, r, &[(1, 0.0)]),
    },
    Pattern {
        name: "shr-zero",
        root: OpKind::Shr,
        apply: |op, r| fold_identity(op, r, &[(1, 0.0)]),
    },
    Pattern { name: "and-ones", root: OpKind::And, apply: and_ones },
    Pattern { name: "mul-zero", root: OpKind::Mul, apply: mul_zero },
    Pattern { name: "sub-self", root: OpKind::Sub, apply: zero_of_self },
    Pattern { name: "xor-self", root: OpKind::Xor, apply: zero_of_self },
    Pattern { name: "max-self", root: OpKind::Max, apply: self_of_self },
    Pattern { name: "min-self", root: OpKind::Min, apply: self_of_self },
    Pattern { name: "and-self", root: OpKind::And, apply: self_of_self },
    Pattern { name: "or-self", root: OpKind::Or, apply: self_of_self },
    Pattern { name: "neg-neg", root: OpKind::Neg, apply: involution },
    Pattern { name: "not-not", root: OpKind::Not, apply: involution },
    Pattern { name: "abs-abs", root: OpKind::Abs, apply: idempotent },
    Pattern { name: "ceil-ceil", root: OpKind::Ceil, apply: idempotent },
    Pattern { name: "floor-floor", root: OpKind::Floor, apply: idempotent },
    Pattern { name: "trunc-trunc", root: OpKind::Trunc, apply: idempotent },
    Pattern { name: "round-round", root: OpKind::RoundEven, apply: idempotent },
    Pattern { name: "clamp-one-bound", root: OpKind::Clamp, apply: clamp },
    Pattern { name: "select-known", root: OpKind::Select, apply: select },
    Pattern { name: "convert-convert", root: OpKind::Convert, apply: convert },
    Pattern { name: "bitcast-bitcast", root: OpKind::Bitcast, apply: bitcast },
];

/// Folds to the other operand if one is the identity element: (operand number, identity).
fn fold_identity(op: Op, r: &Rewriter, identities: &[(usize, f64)]) -> Result<bool> {
    for &(operand, number) in identities {
        if is_number(op.operand(operand), number) {
            r.replace(op, &[op.operand(1 - operand)]);
            return Ok(true);
        }
    }
    Ok(false)
}

/// All bits set: -1, true, or 255 of ui8.
fn and_ones(op: Op, r: &Rewriter) -> Result<bool> {
    let ones = match dtype(op.operand(0)) {
        Some(DType::I1) => 1.0,
        Some(DType::UI8) => 255.0,
        _ => -1.0,
    };
    fold_identity(op, r, &[(0, ones), (1, ones)])
}

/// Integers only: a float times 0 may be NaN or -0.
fn mul_zero(op: Op, r: &Rewriter) -> Result<bool> {
    let zero = [0, 1].into_iter().find(|i| is_number(op.operand(*i), 0.0));
    match zero {
        Some(i) if dtype(op.operand(i)).is_some_and(|d| !d.is_float()) => {
            r.replace(op, &[op.operand(i)]);
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Integers only: inf - inf is NaN.
fn zero_of_self(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(d) = dtype(op.operand(0)).filter(|d| !d.is_float() && op.operand(0) == op.operand(1))
    else {
        return Ok(false);
    };
    let b = r.before(op)?;
    let zero = b.splat(d, &b.sizes_of(op.operand(0))?, 0.0)?;
    r.replace(op, &[zero]);
    Ok(true)
}

/// A clamp to infinity is a max or a min.
fn clamp(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(Clamp { input, low, high }) = Clamp::of(op) else { return Ok(false) };
    let b = r.before(op)?;
    let v = if is_number(high, f64::INFINITY) {
        b.add(&Max { lhs: input, rhs: low })?
    } else if is_number(low, f64::NEG_INFINITY) {
        b.add(&Min { lhs: input, rhs: high })?
    } else {
        return Ok(false);
    };
    r.replace(op, &[v]);
    Ok(true)
}

fn self_of_self(op: Op, r: &Rewriter) -> Result<bool> {
    if op.operand(0) != op.operand(1) {
        return Ok(false);
    }
    r.replace(op, &[op.operand(0)]);
    Ok(true)
}

/// f(f(x)) = x
fn involution(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(inner) = op.operand(0).def().filter(|d| d.kind() == op.kind()) else {
        return Ok(false);
    };
    r.replace(op, &[inner.operand(0)]);
    Ok(true)
}

/// f(f(x)) = f(x)
fn idempotent(op: Op, r: &Rewriter) -> Result<bool> {
    if op.operand(0).def().is_none_or(|d| d.kind() != op.kind()) {
        return Ok(false);
    }
    r.replace(op, &[op.operand(0)]);
    Ok(true)
}

fn select(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Select::of(op) else { return Ok(false) };
    let known = scalar_of(o.condition).and_then(integer);
    let chosen = match known {
        _ if o.on_true == o.on_false => o.on_true,
        Some(0) => o.on_false,
        Some(_) => o.on_true,
        None => {
            let Some(not) = o.condition.def().filter(|d| d.kind() == Some(OpKind::Not)) else {
                return Ok(false);
            };
            r.before(op)?.add(&Select {
                condition: not.operand(0),
                on_true: o.on_false,
                on_false: o.on_true,
            })?
        }
    };
    r.replace(op, &[chosen]);
    Ok(true)
}

/// Whether a conversion is lossless: `to` represents every number of `from`.
fn is_lossless(from: DType, to: DType) -> bool {
    use DType::*;
    let mantissa = |d| match d {
        F64 => 53,
        F32 => 24,
        F16 => 11,
        BF16 => 8,
        F8E4M3FN => 4,
        _ => 3,
    };
    // Least and greatest exponent; the mantissa accounts for subnormals.
    let exponents = |d| match d {
        F64 => (-1022, 1023),
        F32 | BF16 => (-126, 127),
        F16 => (-14, 15),
        F8E4M3FN => (-6, 8),
        _ => (-14, 15),
    };
    match (from.is_float(), to.is_float()) {
        _ if from == to => true,
        // e4m3fn has NaN but no infinity, so no float with an infinity fits into it.
        (true, true) => {
            let ((a, b), (c, d)) = (exponents(from), exponents(to));
            to != F8E4M3FN && mantissa(from) <= mantissa(to) && c <= a && b <= d
        }
        (true, false) => false,
        (false, true) => from == I1 || from.bits() - u32::from(from != UI8) <= mantissa(to),
        (false, false) if from == I1 => true,
        (false, false) => {
            to != I1
                && if from == UI8 { to.bits() > 8 } else { to != UI8 && from.bits() <= to.bits() }
        }
    }
}

fn convert(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Convert::of(op) else { return Ok(false) };
    if o.input.ty() == op.result(0).ty() {
        r.replace(op, &[o.input]);
        return Ok(true);
    }
    let Some(inner) = o.input.def().and_then(Convert::of) else { return Ok(false) };
    let (Some(first), Some(middle)) = (dtype(inner.input), dtype(o.input)) else {
        return Ok(false);
    };
    if !is_lossless(first, middle) {
        return Ok(false);
    }
    let direct = r.before(op)?.add(&Convert { input: inner.input, dtype: o.dtype })?;
    r.replace(op, &[direct]);
    Ok(true)
}

fn bitcast(op: Op, r: &Rewriter) -> Result<bool> {
    let Some(o) = Bitcast::of(op) else { return Ok(false) };
    if o.input.ty() == op.result(0).ty() {
        r.replace(op, &[o.input]);
        return Ok(true);
    }
    let Some(inner) = o.input.def().and_then(Bitcast::of) else { return Ok(false) };
    let direct = r.before(op)?.add(&Bitcast { input: inner.input, dtype: o.dtype })?;
    r.replace(op, &[direct]);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::is_lossless;
    use kiln_dialects::value::DType;

    #[test]
    fn lossless_conversions_round_no_number() {
        for from in DType::ALL.iter().copied().filter(|d| d.is_float() && d.bits() <= 16) {
            for to in DType::ALL.iter().copied().filter(|d| d.is_float()) {
                let lossless = (0u32..1 << from.bits()).all(|bits| {
                    let raw = &bits.to_le_bytes()[..from.byte_size()];
                    let x = from.decode(&[1], raw).expect("a number").as_f().expect("floats")[0];
                    let y = to.round(x);
                    x == y || (x.is_nan() && y.is_nan())
                });
                assert_eq!(is_lossless(from, to), lossless, "{} in {}", from.name(), to.name());
            }
        }
        for from in DType::ALL.iter().copied().filter(|d| !d.is_float()) {
            let (low, high) = from.int_range();
            for to in DType::ALL.iter().copied() {
                let fits = |x: i64| {
                    if to.is_float() {
                        to.round(x as f64) as i128 == x as i128
                    } else {
                        to.wrap(x) == x
                    }
                };
                // All integers of a range are exact in a float iff the odd ones next to its ends
                // are.
                let lossless =
                    [low, high, (high - 1).max(low), (low + 1).min(high)].into_iter().all(fits);
                assert_eq!(is_lossless(from, to), lossless, "{} in {}", from.name(), to.name());
            }
        }
    }
}
