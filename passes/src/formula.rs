//! Formulas on tensors, written with operators.
//!
//! A [`Formula`] keeps the first error; terms after it hold nothing, and [`Formula::end`] returns it.
//! Operands broadcast, and have one dtype as the ops want it: a number takes the dtype of the term
//! beside it.
use crate::broadcasting as ops;
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, value::DType};
use std::{
    cell::RefCell,
    ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub},
};

/// Where terms are emitted, and the first error.
pub struct Formula {
    b: Builder,
    error: RefCell<Option<Error>>,
}

/// A tensor in a formula.
#[derive(Clone, Copy)]
pub struct Term<'f> {
    f: &'f Formula,
    value: Option<Value>,
}

impl Formula {
    /// Starts a formula at an insertion point.
    pub fn new(b: &Builder) -> Formula {
        Formula { b: *b, error: RefCell::new(None) }
    }
    /// A term for a value.
    pub fn of(&self, value: Value) -> Term<'_> {
        Term { f: self, value: Some(value) }
    }
    /// A term for what a helper emits.
    pub fn emit(&self, made: Result<Value>) -> Term<'_> {
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
    fn then(self, make: impl FnOnce(&Builder, Value) -> Result<Value>) -> Term<'f> {
        match self.value {
            Some(v) => self.f.emit(make(&self.f.b, v)),
            None => self,
        }
    }
    fn with(
        self,
        other: Term<'f>,
        make: impl FnOnce(&Builder, Value, Value) -> Result<Value>,
    ) -> Term<'f> {
        self.then(|b, x| make(b, x, other.value.ok_or("has no value")?))
    }
    fn unary(self, kind: UnaryKind) -> Term<'f> {
        self.then(|b, x| ops::unary(b, kind, x))
    }
    fn binary(self, kind: BinaryKind, other: Term<'f>) -> Term<'f> {
        self.with(other, |b, x, y| ops::binary(b, kind, x, y))
    }
    fn compare(self, kind: CompareKind, other: Term<'f>) -> Term<'f> {
        self.with(other, |b, x, y| ops::compare(b, kind, x, y))
    }
    /// A constant of this term's dtype.
    pub fn number(self, x: f64) -> Term<'f> {
        self.then(|b, v| b.splat(tensor_type(v.ty())?.dtype, &[], x))
    }
    /// The dtype; f32 after an error.
    pub fn dtype(self) -> DType {
        self.value.and_then(|v| tensor_type(v.ty()).ok()).map_or(DType::F32, |t| t.dtype)
    }
    /// The rank; 0 after an error.
    pub fn rank(self) -> usize {
        self.value.map_or(0, |v| v.ty().dims().len())
    }
    /// The bits as another dtype of the same width.
    pub fn bitcast(self, dtype: DType) -> Term<'f> {
        self.then(|b, input| b.add(&Bitcast { input, dtype: Type::scalar(b.ctx, dtype) }))
    }
    /// Rounded to a narrower dtype, as between two ops of PyTorch: fused 16-bit floats are not.
    pub fn rounded(self, narrow: DType) -> Term<'f> {
        let wide = self.dtype();
        self.to(narrow).to(wide)
    }
    /// Converted to a dtype.
    pub fn to(self, dtype: DType) -> Term<'f> {
        self.then(|b, x| ops::convert(b, x, dtype))
    }
    /// `e^x`.
    pub fn exp(self) -> Term<'f> {
        self.unary(UnaryKind::Exp)
    }
    /// `e^x - 1`.
    pub fn expm1(self) -> Term<'f> {
        self.unary(UnaryKind::Expm1)
    }
    /// `2^x`.
    pub fn exp2(self) -> Term<'f> {
        self.unary(UnaryKind::Exp2)
    }
    /// Natural logarithm.
    pub fn ln(self) -> Term<'f> {
        self.unary(UnaryKind::Log)
    }
    /// `ln(1 + x)`.
    pub fn ln_1p(self) -> Term<'f> {
        self.unary(UnaryKind::Log1p)
    }
    /// Logarithm to the base 2.
    pub fn log2(self) -> Term<'f> {
        self.unary(UnaryKind::Log2)
    }
    /// Square root.
    pub fn sqrt(self) -> Term<'f> {
        self.unary(UnaryKind::Sqrt)
    }
    /// Sine.
    pub fn sin(self) -> Term<'f> {
        self.unary(UnaryKind::Sin)
    }
    /// Cosine.
    pub fn cos(self) -> Term<'f> {
        self.unary(UnaryKind::Cos)
    }
    /// Arc cosine.
    pub fn acos(self) -> Term<'f> {
        self.unary(UnaryKind::Acos)
    }
    /// Hyperbolic sine.
    pub fn sinh(self) -> Term<'f> {
        self.unary(UnaryKind::Sinh)
    }
    /// Hyperbolic cosine.
    pub fn cosh(self) -> Term<'f> {
        self.unary(UnaryKind::Cosh)
    }
    /// The angle of the point `(x, self)`, from -pi to pi.
    pub fn atan2(self, x: Term<'f>) -> Term<'f> {
        self.binary(BinaryKind::Atan2, x)
    }
    /// Hyperbolic tangent.
    pub fn tanh(self) -> Term<'f> {
        self.unary(UnaryKind::Tanh)
    }
    /// Error function.
    pub fn erf(self) -> Term<'f> {
        self.unary(UnaryKind::Erf)
    }
    /// Absolute value.
    pub fn abs(self) -> Term<'f> {
        self.unary(UnaryKind::Abs)
    }
    /// Sign as -1, 0 or 1.
    pub fn sign(self) -> Term<'f> {
        self.unary(UnaryKind::Sign)
    }
    /// The error of a formula that does not exist.
    pub fn fail(self, why: &'static str) -> Term<'f> {
        self.then(|_, _| Err(why.into()))
    }
    /// Rounded up.
    pub fn ceil(self) -> Term<'f> {
        self.unary(UnaryKind::Ceil)
    }
    /// Rounded down.
    pub fn floor(self) -> Term<'f> {
        self.unary(UnaryKind::Floor)
    }
    /// Rounded toward 0.
    pub fn trunc(self) -> Term<'f> {
        self.unary(UnaryKind::Trunc)
    }
    /// Rounded to nearest, ties to even.
    pub fn round(self) -> Term<'f> {
        self.unary(UnaryKind::RoundEven)
    }
    /// Whether it is NaN, as i1.
    pub fn is_nan(self) -> Term<'f> {
        self.unary(UnaryKind::IsNan)
    }
    /// Whether it is neither infinite nor NaN, as i1.
    pub fn is_finite(self) -> Term<'f> {
        self.unary(UnaryKind::IsFinite)
    }
    /// Power.
    pub fn pow(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::Pow, y.like_term(self))
    }
    /// Remainder with this term's sign.
    pub fn remainder(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::Rem, y.like_term(self))
    }
    /// Quotient rounded down.
    pub fn floor_div(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::FloorDiv, y.like_term(self))
    }
    /// Greater of two; NaN if either is.
    pub fn max(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::Max, y.like_term(self))
    }
    /// Lesser of two; NaN if either is.
    pub fn min(self, y: impl Operand<'f>) -> Term<'f> {
        self.binary(BinaryKind::Min, y.like_term(self))
    }
    /// Equal.
    pub fn eq(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Eq, y.like_term(self))
    }
    /// Not equal.
    pub fn ne(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Ne, y.like_term(self))
    }
    /// Less.
    pub fn lt(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Lt, y.like_term(self))
    }
    /// Less or equal.
    pub fn le(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Le, y.like_term(self))
    }
    /// Greater.
    pub fn gt(self, y: impl Operand<'f>) -> Term<'f> {
        self.compare(CompareKind::Gt, y.like_term(self))
    }
    /// Greater or equal.
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
        self.then(|b, c| {
            ops::select(b, c, x.value.ok_or("has no value")?, y.value.ok_or("has no value")?)
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
        self.then(|b, input| {
            let r = b.add(&Reduce { kind, input, dims: dims.to_vec(), maybe_empty: true })?;
            if keep { ops::keep_dims(b, input, r, dims) } else { Ok(r) }
        })
    }
}

/// A term or a number.
pub trait Operand<'f>: Copy {
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

/// Emits a formula. Err: the first op that could not be built.
pub fn value(b: &Builder, make: impl for<'f> FnOnce(&'f Formula) -> Term<'f>) -> Result<Value> {
    let f = Formula::new(b);
    let term = make(&f);
    f.end(term)
}
