//! Formulas of decompositions, written with operators.
//!
//! A [`Formula`] keeps the first error; terms after it hold nothing, and [`Formula::end`] returns it.
//! Operands broadcast, and have one dtype as the builders below them want it: a number takes the
//! dtype of the term beside it.
use super::{Cx, Outcome, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};
use std::{
    cell::RefCell,
    ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub},
};

/// The context in which terms are emitted.
pub(super) struct Formula<'c> {
    cx: &'c Cx,
    error: RefCell<Option<Error>>,
}

/// A tensor in a formula.
#[derive(Clone, Copy)]
pub(super) struct Term<'f> {
    f: &'f Formula<'f>,
    value: Option<Value>,
}

impl<'c> Formula<'c> {
    /// Starts a formula.
    pub fn new(cx: &'c Cx) -> Formula<'c> {
        Formula { cx, error: RefCell::new(None) }
    }
    /// A term for a value.
    pub fn of(&'c self, value: Value) -> Term<'c> {
        Term { f: self, value: Some(value) }
    }
    /// A term for what a helper emits.
    pub fn emit(&'c self, made: Result<Value>) -> Term<'c> {
        let value = match made {
            Ok(v) => Some(v),
            Err(e) => {
                self.error.borrow_mut().get_or_insert(e);
                None
            }
        };
        Term { f: self, value }
    }
    /// The value of a formula, or the first error on the way.
    pub fn end(&self, term: Term<'_>) -> Result<Value> {
        match (self.error.borrow_mut().take(), term.value) {
            (Some(e), _) => Err(e),
            (None, v) => v.ok_or_else(|| "has no value".into()),
        }
    }
}

impl<'f> Term<'f> {
    fn then(self, make: impl FnOnce(&Cx, Value) -> Result<Value>) -> Term<'f> {
        match self.value {
            Some(v) => self.f.emit(make(self.f.cx, v)),
            None => self,
        }
    }
    fn with(
        self,
        other: Term<'f>,
        make: impl FnOnce(&Cx, Value, Value) -> Result<Value>,
    ) -> Term<'f> {
        self.then(|cx, x| make(cx, x, other.value.ok_or("has no value")?))
    }
    fn unary(self, kind: UnaryKind) -> Term<'f> {
        self.then(|cx, x| cx.unary(kind, x))
    }
    fn binary(self, kind: BinaryKind, other: Term<'f>) -> Term<'f> {
        self.with(other, |cx, x, y| cx.binary(kind, x, y))
    }
    fn compare(self, kind: CompareKind, other: Term<'f>) -> Term<'f> {
        self.with(other, |cx, x, y| cx.compare(kind, x, y))
    }
    /// A constant of this term's dtype.
    pub fn number(self, x: f64) -> Term<'f> {
        self.then(|cx, v| cx.number(dtype_of(v)?, x))
    }
    /// The dtype; f32 after an error.
    pub fn dtype(self) -> DType {
        self.value.and_then(|v| dtype_of(v).ok()).unwrap_or(DType::F32)
    }
    /// The rank; 0 after an error.
    pub fn rank(self) -> usize {
        self.value.map_or(0, rank_of)
    }
    /// The bits as another dtype of the same width.
    pub fn bitcast(self, dtype: DType) -> Term<'f> {
        self.then(|cx, input| cx.b.add(&Bitcast { input, dtype: Type::scalar(cx.b.ctx, dtype) }))
    }
    /// Rounded to a narrower dtype, as between two ops of PyTorch: fused 16-bit floats are not.
    pub fn rounded(self, narrow: DType) -> Term<'f> {
        let wide = self.dtype();
        self.to(narrow).to(wide)
    }
    /// Converted to a dtype.
    pub fn to(self, dtype: DType) -> Term<'f> {
        self.then(|cx, x| cx.convert(x, dtype))
    }
    pub fn exp(self) -> Term<'f> {
        self.unary(UnaryKind::Exp)
    }
    pub fn expm1(self) -> Term<'f> {
        self.unary(UnaryKind::Expm1)
    }
    pub fn exp2(self) -> Term<'f> {
        self.unary(UnaryKind::Exp2)
    }
    pub fn ln(self) -> Term<'f> {
        self.unary(UnaryKind::Log)
    }
    pub fn ln_1p(self) -> Term<'f> {
        self.unary(UnaryKind::Log1p)
    }
    pub fn log2(self) -> Term<'f> {
        self.unary(UnaryKind::Log2)
    }
    pub fn sqrt(self) -> Term<'f> {
        self.unary(UnaryKind::Sqrt)
    }
    pub fn sin(self) -> Term<'f> {
        self.unary(UnaryKind::Sin)
    }
    pub fn cos(self) -> Term<'f> {
        self.unary(UnaryKind::Cos)
    }
    pub fn acos(self) -> Term<'f> {
        self.unary(UnaryKind::Acos)
    }
    pub fn sinh(self) -> Term<'f> {
        self.unary(UnaryKind::Sinh)
    }
    pub fn cosh(self) -> Term<'f> {
        self.unary(UnaryKind::Cosh)
    }
    /// The angle of the point `(x, self)`, from -pi to pi.
    pub fn atan2(self, x: Term<'f>) -> Term<'f> {
        self.binary(BinaryKind::Atan2, x)
    }
    pub fn tanh(self) -> Term<'f> {
        self.unary(UnaryKind::Tanh)
    }
    pub fn erf(self) -> Term<'f> {
        self.unary(UnaryKind::Erf)
    }
    pub fn abs(self) -> Term<'f> {
        self.unary(UnaryKind::Abs)
    }
    pub fn ceil(self) -> Term<'f> {
        self.unary(UnaryKind::Ceil)
    }
    pub fn floor(self) -> Term<'f> {
        self.unary(UnaryKind::Floor)
    }
    pub fn trunc(self) -> Term<'f> {
        self.unary(UnaryKind::Trunc)
    }
    pub fn round(self) -> Term<'f> {
        self.unary(UnaryKind::RoundEven)
    }
    pub fn is_nan(self) -> Term<'f> {
        self.unary(UnaryKind::IsNan)
    }
    pub fn is_finite(self) -> Term<'f> {
        self.unary(UnaryKind::IsFinite)
    }
    pub fn pow(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::Pow, y.like_term(self))
    }
    pub fn rem(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::Rem, y.like_term(self))
    }
    pub fn floor_div(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::FloorDiv, y.like_term(self))
    }
    pub fn max(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::Max, y.like_term(self))
    }
    pub fn min(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::Min, y.like_term(self))
    }
    pub fn eq(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Eq, y.like_term(self))
    }
    pub fn ne(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Ne, y.like_term(self))
    }
    pub fn lt(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Lt, y.like_term(self))
    }
    pub fn le(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Le, y.like_term(self))
    }
    pub fn gt(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Gt, y.like_term(self))
    }
    pub fn ge(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Ge, y.like_term(self))
    }
    /// `x` where this condition holds, else `y`. Two numbers are not possible: one side is a term.
    pub fn select(self, x: impl Operand<'f>, y: impl Operand<'f>) -> Term<'f> {
        let like = x.term().or(y.term());
        let Some(like) = like else {
            return self.then(|_, _| Err("selects between two numbers without a dtype".into()));
        };
        let (x, y) = (x.like_term(like), y.like_term(like));
        self.then(|cx, c| {
            cx.select(c, x.value.ok_or("has no value")?, y.value.ok_or("has no value")?)
        })
    }
    /// `sum coefficients[i] x^i` by Horner's rule.
    pub fn polynomial(self, coefficients: &[f64]) -> Term<'f> {
        let mut all = coefficients.iter().rev();
        let first = self.number(all.next().copied().unwrap_or(0.0));
        all.fold(first, |sum, k| sum * self + *k)
    }
    /// A reduction over dimensions, which stay as size 1 if `keep`.
    pub fn reduce(self, kind: ReduceKind, dims: &[i64], keep: bool) -> Term<'f> {
        self.then(|cx, input| {
            let r = cx.b.add(&Reduce { kind, input, dims: dims.to_vec(), maybe_empty: true })?;
            if keep { super::reduce::keep_dims(cx, input, r, dims) } else { Ok(r) }
        })
    }
}

/// A term or a number.
pub(super) trait Operand<'f>: Copy {
    /// As a term of the dtype of another.
    fn like_term(self, other: Term<'f>) -> Term<'f>;
    /// The term, unless it is a number.
    fn term(self) -> Option<Term<'f>>;
}

impl<'f> Operand<'f> for Term<'f> {
    fn like_term(self, _: Term<'f>) -> Term<'f> {
        self
    }
    fn term(self) -> Option<Term<'f>> {
        Some(self)
    }
}

impl<'f> Operand<'f> for f64 {
    fn like_term(self, other: Term<'f>) -> Term<'f> {
        other.number(self)
    }
    fn term(self) -> Option<Term<'f>> {
        None
    }
}

macro_rules! operator {
    ($($trait:ident $name:ident $kind:ident),*) => { $(
        impl<'f, O: Operand<'f>> $trait<O> for Term<'f> {
            type Output = Term<'f>;
            fn $name(self, other: O) -> Term<'f> {
                self.binary(BinaryKind::$kind, other.like_term(self))
            }
        }
        impl<'f> $trait<Term<'f>> for f64 {
            type Output = Term<'f>;
            fn $name(self, other: Term<'f>) -> Term<'f> {
                other.number(self).binary(BinaryKind::$kind, other)
            }
        }
    )* };
}
operator!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl<'f> BitAnd for Term<'f> {
    type Output = Term<'f>;
    fn bitand(self, other: Term<'f>) -> Term<'f> {
        self.binary(BinaryKind::And, other)
    }
}
impl<'f> BitOr for Term<'f> {
    type Output = Term<'f>;
    fn bitor(self, other: Term<'f>) -> Term<'f> {
        self.binary(BinaryKind::Or, other)
    }
}
impl<'f> Neg for Term<'f> {
    type Output = Term<'f>;
    fn neg(self) -> Term<'f> {
        self.unary(UnaryKind::Neg)
    }
}
impl<'f> Not for Term<'f> {
    type Output = Term<'f>;
    fn not(self) -> Term<'f> {
        self.unary(UnaryKind::Not)
    }
}

/// Emits a formula as the row's only result.
pub(super) fn formula(
    cx: &mut Cx,
    make: impl for<'f> FnOnce(&'f Formula<'f>) -> Term<'f>,
) -> Result<Outcome> {
    let v = value(cx, make)?;
    cx.one(v)
}

/// Emits a formula.
pub(super) fn value(
    cx: &Cx,
    make: impl for<'f> FnOnce(&'f Formula<'f>) -> Term<'f>,
) -> Result<Value> {
    let f = Formula::new(cx);
    let term = make(&f);
    f.end(term)
}

/// Emits a formula of two values.
pub(super) fn pair(
    cx: &Cx,
    make: impl for<'f> FnOnce(&'f Formula<'f>) -> (Term<'f>, Term<'f>),
) -> Result<(Value, Value)> {
    let f = Formula::new(cx);
    let (x, y) = make(&f);
    Ok((f.end(x)?, f.end(y)?))
}

/// A formula computed in f64 and rounded once: it cancels, or its result spans many magnitudes.
pub(super) fn precisely<'f>(x: Term<'f>, make: impl FnOnce(Term<'f>) -> Term<'f>) -> Term<'f> {
    let d = x.dtype();
    make(x.to(DType::F64)).to(d)
}

/// A formula of 16-bit floats computed in f32, constants too, and rounded once.
pub(super) fn widely<'f>(x: Term<'f>, make: impl FnOnce(Term<'f>) -> Term<'f>) -> Term<'f> {
    let d = x.dtype();
    make(x.to(statistics_dtype(d))).to(d)
}

/// Whether a number is negative, by its sign bit.
pub(super) fn negative(x: Term<'_>) -> Term<'_> {
    let bits = match x.dtype() {
        DType::F64 => DType::I64,
        DType::F32 => DType::I32,
        DType::F16 | DType::BF16 => DType::I16,
        DType::F8E4M3FN | DType::F8E5M2 => DType::I8,
        DType::I1 | DType::UI8 => return x.ne(x),
        _ => return x.lt(0.0),
    };
    x.bitcast(bits).lt(0.0)
}

/// A magnitude with the sign of `x`.
pub(super) fn sign_of<'f>(x: Term<'f>, magnitude: Term<'f>) -> Term<'f> {
    negative(x).select(-magnitude, magnitude)
}
