//! Scalar lowering: one element of a prim as `arith` and `math` ops with PyTorch's semantics.
//!
//! Compute types: 16-bit and 8-bit floats in f32, i1 as i1, ui8 as i8 with unsigned ops. In memory
//! an i1 is a byte.
use kiln_dialects::{
    ir::*,
    ops::{BinaryKind, CompareKind, ReduceKind, UnaryKind},
    value::DType,
};

/// The MLIR type in which elements of a dtype are computed.
pub fn compute_type(c: Ctx, d: DType) -> Type {
    match d {
        DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 => Type::scalar(c, DType::F32),
        DType::UI8 => Type::scalar(c, DType::I8),
        other => Type::scalar(c, other),
    }
}

/// The dtype in which elements of a dtype are stored.
pub fn storage(d: DType) -> DType {
    match d {
        DType::I1 | DType::UI8 => DType::I8,
        other => other,
    }
}

/// The dtype of accumulators and intermediate results of a dtype.
pub fn wide(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 => DType::F32,
        other => storage(other),
    }
}

/// Creates scalar ops at one insertion point.
#[derive(Clone, Copy)]
pub struct Scalars {
    /// The insertion point.
    pub b: Builder,
}

impl From<Scalars> for Builder {
    fn from(s: Scalars) -> Builder {
        s.b
    }
}
impl From<&Scalars> for Builder {
    fn from(s: &Scalars) -> Builder {
        s.b
    }
}

impl Scalars {
    /// A constant of a scalar type.
    pub fn constant(&self, value: Attr) -> Result<Value> {
        arith::constant(self, value)
    }
    /// A float constant of the type of `like`.
    pub fn float(&self, value: f64, like: Value) -> Result<Value> {
        self.constant(Attr::scalar(self.b.ctx, like.ty().dtype()?, value))
    }
    /// An integer or index constant of the type of `like`.
    pub fn int(&self, value: i64, like: Value) -> Result<Value> {
        if like.ty().is_index() {
            self.b.index(value)
        } else {
            self.constant(Attr::scalar_int(self.b.ctx, like.ty().dtype()?, value))
        }
    }
    /// `c ? x : y`.
    pub fn select(&self, c: Value, x: Value, y: Value) -> Result<Value> {
        arith::select(self, c, x, y)
    }
    fn i1(&self) -> Type {
        Type::scalar(self.b.ctx, DType::I1)
    }
    /// `arith.cmpf`.
    pub fn cmpf(&self, predicate: CmpFPredicate, x: Value, y: Value) -> Result<Value> {
        arith::cmpf(self, predicate, x, y)
    }
    /// `arith.cmpi`.
    pub fn cmpi(&self, predicate: CmpIPredicate, x: Value, y: Value) -> Result<Value> {
        arith::cmpi(self, predicate, x, y)
    }

    /// Converts from the storage type to the compute type.
    pub fn load(&self, v: Value, d: DType) -> Result<Value> {
        let want = compute_type(self.b.ctx, d);
        match d {
            _ if v.ty() == want => Ok(v),
            DType::I1 => arith::trunci(self, v, want),
            _ => arith::extf(self, v, want),
        }
    }
    /// Converts from the compute type to a storage type.
    pub fn store(&self, v: Value, to: Type) -> Result<Value> {
        match v.ty() {
            t if t == to => Ok(v),
            t if t == self.i1() => arith::extui(self, v, to),
            _ => arith::truncf(self, v, to),
        }
    }

    /// A unary prim on an element of dtype `d`, in its compute type.
    pub fn unary(&self, kind: UnaryKind, x: Value, d: DType) -> Result<Value> {
        use UnaryKind as K;
        if d.is_float() {
            let op: fn(Scalars, Value) -> Result<Value> = match kind {
                K::Neg => arith::negf,
                K::Abs => math::absf,
                K::Exp => math::exp,
                K::Exp2 => math::exp2,
                K::Expm1 => math::expm1,
                K::Log => math::log,
                K::Log1p => math::log1p,
                K::Log2 => math::log2,
                K::Sqrt => math::sqrt,
                K::Rsqrt => math::rsqrt,
                K::Sin => math::sin,
                K::Cos => math::cos,
                K::Tan => math::tan,
                K::Asin => math::asin,
                K::Acos => math::acos,
                K::Atan => math::atan,
                K::Sinh => math::sinh,
                K::Cosh => math::cosh,
                K::Tanh => math::tanh,
                K::Erf => math::erf,
                K::Ceil => math::ceil,
                K::Floor => math::floor,
                K::RoundEven => math::roundeven,
                K::Trunc => math::trunc,
                K::IsNan => return self.cmpf(CmpFPredicate::Uno, x, x),
                K::IsFinite => {
                    let a = math::absf(self, x)?;
                    return self.cmpf(CmpFPredicate::Olt, a, self.float(f64::INFINITY, x)?);
                }
                K::Sign => {
                    let zero = self.float(0.0, x)?;
                    let below = self.select(
                        self.cmpf(CmpFPredicate::Olt, x, zero)?,
                        self.float(-1.0, x)?,
                        x,
                    )?;
                    return self.select(
                        self.cmpf(CmpFPredicate::Ogt, x, zero)?,
                        self.float(1.0, x)?,
                        below,
                    );
                }
                K::Not => return Err("is not defined on floats".into()),
            };
            return op(*self, x);
        }
        let truth =
            |on: bool| self.constant(Attr::scalar_int(self.b.ctx, DType::I1, i64::from(on)));
        match kind {
            K::IsNan => truth(false),
            K::IsFinite => truth(true),
            K::Not => arith::xori(self, x, self.int(-1, x)?),
            K::Abs if d == DType::UI8 => Ok(x),
            K::Neg => arith::subi(self, self.int(0, x)?, x),
            K::Abs => math::absi(self, x),
            K::Sign => {
                let (zero, one) = (self.int(0, x)?, self.int(1, x)?);
                let below = if d == DType::UI8 {
                    zero
                } else {
                    self.select(self.cmpi(CmpIPredicate::Slt, x, zero)?, self.int(-1, x)?, zero)?
                };
                let greater = self.compare(CompareKind::Gt, x, zero, d)?;
                self.select(greater, one, below)
            }
            other => Err(format!("has no {other:?} on integers").into()),
        }
    }

    /// A binary prim on elements of dtype `d`, in their compute type.
    pub fn binary(&self, kind: BinaryKind, x: Value, y: Value, d: DType) -> Result<Value> {
        use BinaryKind as K;
        let unsigned = matches!(d, DType::UI8 | DType::I1);
        let op: fn(Scalars, Value, Value) -> Result<Value> = match (kind, d.is_float()) {
            (K::Add, true) => arith::addf,
            (K::Sub, true) => arith::subf,
            (K::Mul, true) => arith::mulf,
            (K::Div, true) => arith::divf,
            (K::Rem, true) => arith::remf,
            (K::Pow, true) => return self.float_pow(x, y),
            (K::Max, true) => arith::maximumf,
            (K::Min, true) => arith::minimumf,
            (K::Atan2, true) => math::atan2,
            (K::FloorDiv, true) => return self.floor_div(x, y),
            (K::Add | K::Or, false) if d == DType::I1 => arith::ori,
            (K::Mul | K::And, false) if d == DType::I1 => arith::andi,
            (K::Add, false) => arith::addi,
            (K::Sub, false) => arith::subi,
            (K::Mul, false) => arith::muli,
            (K::Max, false) if unsigned => arith::maxui,
            (K::Min, false) if unsigned => arith::minui,
            (K::Max, false) => arith::maxsi,
            (K::Min, false) => arith::minsi,
            (K::And, false) => arith::andi,
            (K::Or, false) => arith::ori,
            (K::Xor, false) => arith::xori,
            (K::Div | K::Rem | K::FloorDiv, false) => {
                return self.int_division(kind, x, y, unsigned);
            }
            (K::Shl | K::Shr, false) => return self.shift(kind, x, y, d),
            (K::Pow, false) => return self.int_pow(x, y, d),
            (other, _) => return Err(format!("has no {other:?} on {d}").into()),
        };
        op(*self, x, y)
    }

    /// Python's float floor division: (x - mod(x, y)) / y, then rounded. Same formula as
    /// `reference/scalar.rs`.
    fn floor_div(&self, x: Value, y: Value) -> Result<Value> {
        let (zero, one) = (self.float(0.0, x)?, self.float(1.0, x)?);
        let plain = arith::divf(self, x, y)?;
        let rest = arith::remf(self, x, y)?;
        let quotient = arith::divf(self, arith::subf(self, x, rest)?, y)?;
        let signs = arith::xori(
            self,
            self.cmpf(CmpFPredicate::Olt, y, zero)?,
            self.cmpf(CmpFPredicate::Olt, rest, zero)?,
        )?;
        let below = arith::andi(self, self.cmpf(CmpFPredicate::Une, rest, zero)?, signs)?;
        let quotient = self.select(below, arith::subf(self, quotient, one)?, quotient)?;
        let floor = math::floor(self, quotient)?;
        let gap = arith::subf(self, quotient, floor)?;
        let up = self.cmpf(CmpFPredicate::Ogt, gap, self.float(0.5, x)?)?;
        let rounded = self.select(up, arith::addf(self, floor, one)?, floor)?;
        let signed_zero = math::copysign(self, zero, plain)?;
        let result =
            self.select(self.cmpf(CmpFPredicate::Oeq, quotient, zero)?, signed_zero, rounded)?;
        self.select(self.cmpf(CmpFPredicate::Oeq, y, zero)?, plain, result)
    }

    /// Integer division that cannot trap: a divisor of 0 gives an unspecified number, and the least
    /// integer divided by -1 wraps around.
    fn int_division(&self, kind: BinaryKind, x: Value, y: Value, unsigned: bool) -> Result<Value> {
        let (zero, one, minus) = (self.int(0, x)?, self.int(1, x)?, self.int(-1, x)?);
        let by_zero = self.cmpi(CmpIPredicate::Eq, y, zero)?;
        if unsigned {
            let y = self.select(by_zero, one, y)?;
            return match kind {
                BinaryKind::Rem => arith::remui(self, x, y),
                _ => arith::divui(self, x, y),
            };
        }
        let by_minus = self.cmpi(CmpIPredicate::Eq, y, minus)?;
        let trap = arith::ori(self, by_zero, by_minus)?;
        let safe = self.select(trap, one, y)?;
        if kind == BinaryKind::Rem {
            return self.select(by_minus, zero, arith::remsi(self, x, safe)?);
        }
        let negated = arith::subi(self, zero, x)?;
        let quotient = self.select(by_minus, negated, arith::divsi(self, x, safe)?)?;
        if kind == BinaryKind::Div {
            return Ok(quotient);
        }
        let rest = arith::subi(self, x, arith::muli(self, quotient, y)?)?;
        let signs = arith::xori(
            self,
            self.cmpi(CmpIPredicate::Slt, x, zero)?,
            self.cmpi(CmpIPredicate::Slt, y, zero)?,
        )?;
        let below = arith::andi(self, self.cmpi(CmpIPredicate::Ne, rest, zero)?, signs)?;
        self.select(below, arith::subi(self, quotient, one)?, quotient)
    }

    fn shift(&self, kind: BinaryKind, x: Value, y: Value, d: DType) -> Result<Value> {
        // Unsigned comparison, so that a negative shift count is out of range as well.
        let bits = i64::from(d.bits());
        let inside = self.cmpi(CmpIPredicate::Ult, y, self.int(bits, y)?)?;
        let zero = self.int(0, x)?;
        let count = self.select(inside, y, zero)?;
        if kind == BinaryKind::Shl {
            return self.select(inside, arith::shli(self, x, count)?, zero);
        }
        if d == DType::UI8 {
            return self.select(inside, arith::shrui(self, x, count)?, zero);
        }
        let count = self.select(inside, y, self.int(bits - 1, y)?)?;
        arith::shrsi(self, x, count)
    }

    /// A comparison of elements of dtype `d`; an i1.
    pub fn compare(&self, kind: CompareKind, x: Value, y: Value, d: DType) -> Result<Value> {
        use CompareKind as K;
        if d.is_float() {
            let predicate = match kind {
                K::Eq => CmpFPredicate::Oeq,
                K::Ne => CmpFPredicate::Une,
                K::Lt => CmpFPredicate::Olt,
                K::Le => CmpFPredicate::Ole,
                K::Gt => CmpFPredicate::Ogt,
                K::Ge => CmpFPredicate::Oge,
            };
            return self.cmpf(predicate, x, y);
        }
        let unsigned = matches!(d, DType::UI8 | DType::I1);
        let predicate = match (kind, unsigned) {
            (K::Eq, _) => CmpIPredicate::Eq,
            (K::Ne, _) => CmpIPredicate::Ne,
            (K::Lt, false) => CmpIPredicate::Slt,
            (K::Le, false) => CmpIPredicate::Sle,
            (K::Gt, false) => CmpIPredicate::Sgt,
            (K::Ge, false) => CmpIPredicate::Sge,
            (K::Lt, true) => CmpIPredicate::Ult,
            (K::Le, true) => CmpIPredicate::Ule,
            (K::Gt, true) => CmpIPredicate::Ugt,
            (K::Ge, true) => CmpIPredicate::Uge,
        };
        self.cmpi(predicate, x, y)
    }

    /// One reduction step: combines the accumulator with an element, in the compute type of `d`.
    pub fn combine(&self, kind: ReduceKind, sum: Value, x: Value, d: DType) -> Result<Value> {
        self.binary(kind.step(), sum, x, d)
    }

    /// A numeric conversion between compute types, rounding to `to`.
    pub fn convert(&self, x: Value, from: DType, to: DType) -> Result<Value> {
        let c = self.b.ctx;
        let (want, unsigned) = (compute_type(c, to), matches!(from, DType::UI8 | DType::I1));
        match (from.is_float(), to.is_float()) {
            _ if from == to => Ok(x),
            (true, true) => {
                let own = Type::scalar(c, to);
                let narrow = if own == x.ty() {
                    x
                } else if x.ty().dtype()? == DType::F64 && own.dtype()?.bits() < 32 {
                    arith::truncf(self, self.round_to_odd(x)?, own)?
                } else if own.dtype()?.bits() < x.ty().dtype()?.bits() {
                    arith::truncf(self, x, own)?
                } else {
                    arith::extf(self, x, own)?
                };
                self.load(narrow, to)
            }
            (true, false) if to == DType::I1 => {
                self.cmpf(CmpFPredicate::Une, x, self.float(0.0, x)?)
            }
            (true, false) => self.float_to_int(x, to),
            (false, true) => {
                let wide = match unsigned {
                    true => arith::uitofp(self, x, want)?,
                    false => arith::sitofp(self, x, want)?,
                };
                if Type::scalar(c, to) == want {
                    return Ok(wide);
                }
                self.load(arith::truncf(self, wide, Type::scalar(c, to))?, to)
            }
            (false, false) if to == DType::I1 => self.cmpi(CmpIPredicate::Ne, x, self.int(0, x)?),
            (false, false) => {
                let (have, bits) = (x.ty().dtype()?.bits(), want.dtype()?.bits());
                match have.cmp(&bits) {
                    std::cmp::Ordering::Equal => Ok(x),
                    std::cmp::Ordering::Less if unsigned => arith::extui(self, x, want),
                    std::cmp::Ordering::Less => arith::extsi(self, x, want),
                    std::cmp::Ordering::Greater => arith::trunci(self, x, want),
                }
            }
        }
    }

    /// Rounds f64 to f32 by round-to-odd: an inexact result gets an odd last bit, so that a second
    /// rounding gives the same as rounding `x` once. A direct conversion to 16 bits would call a
    /// library function that no library here provides.
    fn round_to_odd(&self, x: Value) -> Result<Value> {
        let (f32, i32) =
            (Type::scalar(self.b.ctx, DType::F32), Type::scalar(self.b.ctx, DType::I32));
        let near = arith::truncf(self, x, f32)?;
        let back = arith::extf(self, near, x.ty())?;
        let bits = arith::bitcast(self, near, i32)?;
        let beyond =
            self.cmpf(CmpFPredicate::Ogt, math::absf(self, back)?, math::absf(self, x)?)?;
        let below = self.select(beyond, arith::subi(self, bits, self.int(1, bits)?)?, bits)?;
        let odd = arith::bitcast(self, arith::ori(self, below, self.int(1, bits)?)?, f32)?;
        self.select(self.cmpf(CmpFPredicate::One, back, x)?, odd, near)
    }

    /// Truncation toward zero; an out-of-range value saturates, NaN gives 0.
    fn float_to_int(&self, x: Value, to: DType) -> Result<Value> {
        let (low, high) = to.int_range();
        let ty = compute_type(self.b.ctx, to);
        // high + 1 is a power of two, hence exact; a value below it truncates to at most high.
        let (least, beyond) = (self.float(low as f64, x)?, self.float(high as f64 + 1.0, x)?);
        let inside = arith::andi(
            self,
            self.cmpf(CmpFPredicate::Oge, x, least)?,
            self.cmpf(CmpFPredicate::Olt, x, beyond)?,
        )?;
        let safe = self.select(inside, x, self.float(0.0, x)?)?;
        let value = match to {
            DType::UI8 => arith::fptoui(self, safe, ty)?,
            _ => arith::fptosi(self, safe, ty)?,
        };
        let bound = |n: i64| self.constant(Attr::scalar_int(self.b.ctx, ty.dtype()?, n));
        let value = self.select(self.cmpf(CmpFPredicate::Olt, x, least)?, bound(low)?, value)?;
        self.select(self.cmpf(CmpFPredicate::Oge, x, beyond)?, bound(high)?, value)
    }

    /// Reinterprets the bits of an element as another dtype.
    pub fn bitcast(&self, x: Value, from: DType, to: DType) -> Result<Value> {
        let c = self.b.ctx;
        let bits = if Type::scalar(c, from) == x.ty() || !from.is_float() {
            x
        } else {
            self.store(x, Type::scalar(c, from))?
        };
        let target = Type::scalar(c, storage(to));
        let cast = if bits.ty() == target { bits } else { arith::bitcast(self, bits, target)? };
        self.load(cast, to)
    }
}
