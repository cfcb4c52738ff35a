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

type Made = Result<Value>;

impl Scalars {
    /// Creates an op with one result.
    pub fn op(&self, name: &str, operands: &[Value], ty: Type) -> Made {
        Ok(self.b.generic(name, operands, &[ty], &[], &mut [])?.result(0))
    }
    /// Creates an op whose result type is that of its operands.
    pub fn same(&self, name: &str, operands: &[Value]) -> Made {
        self.op(name, operands, operands[0].ty())
    }
    /// A constant of a scalar type.
    pub fn constant(&self, value: Attr) -> Made {
        Ok(self
            .b
            .generic("arith.constant", &[], &[value.type_of()], &[("value", value)], &mut [])?
            .result(0))
    }
    /// A float constant of the type of `like`.
    pub fn float(&self, value: f64, like: Value) -> Made {
        self.constant(Attr::scalar(self.b.ctx, like.ty().dtype()?, value))
    }
    /// An integer or index constant of the type of `like`.
    pub fn int(&self, value: i64, like: Value) -> Made {
        if like.ty().is_index() {
            self.b.index(value)
        } else {
            self.constant(Attr::scalar_int(self.b.ctx, like.ty().dtype()?, value))
        }
    }
    /// `c ? x : y`.
    pub fn select(&self, c: Value, x: Value, y: Value) -> Made {
        self.op("arith.select", &[c, x, y], x.ty())
    }
    fn i1(&self) -> Type {
        Type::scalar(self.b.ctx, DType::I1)
    }
    /// `arith.cmpf` with upstream's predicate number.
    pub fn cmpf(&self, predicate: i64, x: Value, y: Value) -> Made {
        let attrs = [("predicate", Attr::i64(self.b.ctx, predicate))];
        Ok(self.b.generic("arith.cmpf", &[x, y], &[self.i1()], &attrs, &mut [])?.result(0))
    }
    /// `arith.cmpi` with upstream's predicate number.
    pub fn cmpi(&self, predicate: i64, x: Value, y: Value) -> Made {
        let attrs = [("predicate", Attr::i64(self.b.ctx, predicate))];
        Ok(self.b.generic("arith.cmpi", &[x, y], &[self.i1()], &attrs, &mut [])?.result(0))
    }

    /// Converts from the storage type to the compute type.
    pub fn load(&self, v: Value, d: DType) -> Made {
        let want = compute_type(self.b.ctx, d);
        match d {
            _ if v.ty() == want => Ok(v),
            DType::I1 => self.op("arith.trunci", &[v], want),
            _ => self.op("arith.extf", &[v], want),
        }
    }
    /// Converts from the compute type to a storage type.
    pub fn store(&self, v: Value, to: Type) -> Made {
        match v.ty() {
            t if t == to => Ok(v),
            t if t == self.i1() => self.op("arith.extui", &[v], to),
            _ => self.op("arith.truncf", &[v], to),
        }
    }

    /// A unary prim on an element of dtype `d`, in its compute type.
    pub fn unary(&self, kind: UnaryKind, x: Value, d: DType) -> Made {
        use UnaryKind as K;
        if d.is_float() {
            let name = match kind {
                K::Neg => "arith.negf",
                K::Abs => "math.absf",
                K::Exp => "math.exp",
                K::Exp2 => "math.exp2",
                K::Expm1 => "math.expm1",
                K::Log => "math.log",
                K::Log1p => "math.log1p",
                K::Log2 => "math.log2",
                K::Sqrt => "math.sqrt",
                K::Rsqrt => "math.rsqrt",
                K::Sin => "math.sin",
                K::Cos => "math.cos",
                K::Tan => "math.tan",
                K::Asin => "math.asin",
                K::Acos => "math.acos",
                K::Atan => "math.atan",
                K::Sinh => "math.sinh",
                K::Cosh => "math.cosh",
                K::Tanh => "math.tanh",
                K::Erf => "math.erf",
                K::Ceil => "math.ceil",
                K::Floor => "math.floor",
                K::RoundEven => "math.roundeven",
                K::Trunc => "math.trunc",
                K::IsNan => return self.cmpf(14, x, x),
                K::IsFinite => {
                    let a = self.same("math.absf", &[x])?;
                    return self.cmpf(4, a, self.float(f64::INFINITY, x)?);
                }
                K::Sign => {
                    let zero = self.float(0.0, x)?;
                    let below = self.select(self.cmpf(4, x, zero)?, self.float(-1.0, x)?, x)?;
                    return self.select(self.cmpf(2, x, zero)?, self.float(1.0, x)?, below);
                }
                K::Not => return Err("is not defined on floats".into()),
            };
            return self.same(name, &[x]);
        }
        let truth =
            |on: bool| self.constant(Attr::scalar_int(self.b.ctx, DType::I1, i64::from(on)));
        match kind {
            K::IsNan => truth(false),
            K::IsFinite => truth(true),
            K::Not => self.same("arith.xori", &[x, self.int(-1, x)?]),
            K::Abs if d == DType::UI8 => Ok(x),
            K::Neg => self.same("arith.subi", &[self.int(0, x)?, x]),
            K::Abs => self.same("math.absi", &[x]),
            K::Sign => {
                let (zero, one) = (self.int(0, x)?, self.int(1, x)?);
                let below = if d == DType::UI8 {
                    zero
                } else {
                    self.select(self.cmpi(2, x, zero)?, self.int(-1, x)?, zero)?
                };
                let greater = self.cmpi(if d == DType::UI8 { 8 } else { 4 }, x, zero)?;
                self.select(greater, one, below)
            }
            other => Err(format!("has no {other:?} on integers").into()),
        }
    }

    /// A binary prim on elements of dtype `d`, in their compute type.
    pub fn binary(&self, kind: BinaryKind, x: Value, y: Value, d: DType) -> Made {
        use BinaryKind as K;
        let unsigned = matches!(d, DType::UI8 | DType::I1);
        let name = match (kind, d.is_float()) {
            (K::Add, true) => "arith.addf",
            (K::Sub, true) => "arith.subf",
            (K::Mul, true) => "arith.mulf",
            (K::Div, true) => "arith.divf",
            (K::Rem, true) => "arith.remf",
            (K::Pow, true) => return crate::linalg::power::float_pow(self, x, y),
            (K::Max, true) => "arith.maximumf",
            (K::Min, true) => "arith.minimumf",
            (K::Atan2, true) => "math.atan2",
            (K::FloorDiv, true) => return self.floor_div(x, y),
            (K::Add | K::Or, false) if d == DType::I1 => "arith.ori",
            (K::Mul | K::And, false) if d == DType::I1 => "arith.andi",
            (K::Add, false) => "arith.addi",
            (K::Sub, false) => "arith.subi",
            (K::Mul, false) => "arith.muli",
            (K::Max, false) if unsigned => "arith.maxui",
            (K::Min, false) if unsigned => "arith.minui",
            (K::Max, false) => "arith.maxsi",
            (K::Min, false) => "arith.minsi",
            (K::And, false) => "arith.andi",
            (K::Or, false) => "arith.ori",
            (K::Xor, false) => "arith.xori",
            (K::Div | K::Rem | K::FloorDiv, false) => {
                return self.int_division(kind, x, y, unsigned);
            }
            (K::Shl | K::Shr, false) => return self.shift(kind, x, y, d),
            (K::Pow, false) => return crate::linalg::power::int_pow(self, x, y, d),
            (other, _) => return Err(format!("has no {other:?} on {d}").into()),
        };
        self.same(name, &[x, y])
    }

    /// Python's float floor division: (x - mod(x, y)) / y, then rounded. Same formula as
    /// `reference/scalar.rs`.
    fn floor_div(&self, x: Value, y: Value) -> Made {
        let (zero, one) = (self.float(0.0, x)?, self.float(1.0, x)?);
        let plain = self.same("arith.divf", &[x, y])?;
        let rest = self.same("arith.remf", &[x, y])?;
        let quotient = self.same("arith.divf", &[self.same("arith.subf", &[x, rest])?, y])?;
        let signs =
            self.same("arith.xori", &[self.cmpf(4, y, zero)?, self.cmpf(4, rest, zero)?])?;
        let below = self.same("arith.andi", &[self.cmpf(13, rest, zero)?, signs])?;
        let quotient = self.select(below, self.same("arith.subf", &[quotient, one])?, quotient)?;
        let floor = self.same("math.floor", &[quotient])?;
        let gap = self.same("arith.subf", &[quotient, floor])?;
        let up = self.cmpf(2, gap, self.float(0.5, x)?)?;
        let rounded = self.select(up, self.same("arith.addf", &[floor, one])?, floor)?;
        let signed_zero = self.same("math.copysign", &[zero, plain])?;
        let result = self.select(self.cmpf(1, quotient, zero)?, signed_zero, rounded)?;
        self.select(self.cmpf(1, y, zero)?, plain, result)
    }

    /// Integer division that cannot trap: a divisor of 0 gives an unspecified number, and the least
    /// integer divided by -1 wraps around.
    fn int_division(&self, kind: BinaryKind, x: Value, y: Value, unsigned: bool) -> Made {
        let (zero, one, minus) = (self.int(0, x)?, self.int(1, x)?, self.int(-1, x)?);
        let by_zero = self.cmpi(0, y, zero)?;
        if unsigned {
            let y = self.select(by_zero, one, y)?;
            return self.same(
                if kind == BinaryKind::Rem { "arith.remui" } else { "arith.divui" },
                &[x, y],
            );
        }
        let by_minus = self.cmpi(0, y, minus)?;
        let trap = self.same("arith.ori", &[by_zero, by_minus])?;
        let safe = self.select(trap, one, y)?;
        if kind == BinaryKind::Rem {
            return self.select(by_minus, zero, self.same("arith.remsi", &[x, safe])?);
        }
        let negated = self.same("arith.subi", &[zero, x])?;
        let quotient = self.select(by_minus, negated, self.same("arith.divsi", &[x, safe])?)?;
        if kind == BinaryKind::Div {
            return Ok(quotient);
        }
        let rest = self.same("arith.subi", &[x, self.same("arith.muli", &[quotient, y])?])?;
        let signs = self.same("arith.xori", &[self.cmpi(2, x, zero)?, self.cmpi(2, y, zero)?])?;
        let below = self.same("arith.andi", &[self.cmpi(1, rest, zero)?, signs])?;
        self.select(below, self.same("arith.subi", &[quotient, one])?, quotient)
    }

    fn shift(&self, kind: BinaryKind, x: Value, y: Value, d: DType) -> Made {
        // Unsigned comparison, so that a negative shift count is out of range as well.
        let bits = i64::from(d.bits());
        let inside = self.cmpi(6, y, self.int(bits, y)?)?;
        let zero = self.int(0, x)?;
        let count = self.select(inside, y, zero)?;
        if kind == BinaryKind::Shl {
            return self.select(inside, self.same("arith.shli", &[x, count])?, zero);
        }
        if d == DType::UI8 {
            return self.select(inside, self.same("arith.shrui", &[x, count])?, zero);
        }
        let count = self.select(inside, y, self.int(bits - 1, y)?)?;
        self.same("arith.shrsi", &[x, count])
    }

    /// A comparison of elements of dtype `d`; an i1.
    pub fn compare(&self, kind: CompareKind, x: Value, y: Value, d: DType) -> Made {
        use CompareKind as K;
        if d.is_float() {
            let predicate = match kind {
                K::Eq => 1,
                K::Ne => 13,
                K::Lt => 4,
                K::Le => 5,
                K::Gt => 2,
                K::Ge => 3,
            };
            return self.cmpf(predicate, x, y);
        }
        let unsigned = if matches!(d, DType::UI8 | DType::I1) { 4 } else { 0 };
        let predicate = match kind {
            K::Eq => 0,
            K::Ne => 1,
            K::Lt => 2 + unsigned,
            K::Le => 3 + unsigned,
            K::Gt => 4 + unsigned,
            K::Ge => 5 + unsigned,
        };
        self.cmpi(predicate, x, y)
    }

    /// One reduction step: combines the accumulator with an element, in the compute type of `d`.
    pub fn combine(&self, kind: ReduceKind, sum: Value, x: Value, d: DType) -> Made {
        self.binary(kind.step(), sum, x, d)
    }

    /// A numeric conversion between compute types, rounding to `to`.
    pub fn convert(&self, x: Value, from: DType, to: DType) -> Made {
        let c = self.b.ctx;
        let (want, unsigned) = (compute_type(c, to), matches!(from, DType::UI8 | DType::I1));
        match (from.is_float(), to.is_float()) {
            _ if from == to => Ok(x),
            (true, true) => {
                let own = Type::scalar(c, to);
                let narrow = if own == x.ty() {
                    x
                } else if x.ty().dtype()? == DType::F64 && own.dtype()?.bits() < 32 {
                    self.op("arith.truncf", &[self.round_to_odd(x)?], own)?
                } else {
                    let name = if own.dtype()?.bits() < x.ty().dtype()?.bits() {
                        "arith.truncf"
                    } else {
                        "arith.extf"
                    };
                    self.op(name, &[x], own)?
                };
                self.load(narrow, to)
            }
            (true, false) if to == DType::I1 => self.cmpf(13, x, self.float(0.0, x)?),
            (true, false) => self.float_to_int(x, to),
            (false, true) => {
                let wide =
                    self.op(if unsigned { "arith.uitofp" } else { "arith.sitofp" }, &[x], want)?;
                if Type::scalar(c, to) == want {
                    return Ok(wide);
                }
                self.load(self.op("arith.truncf", &[wide], Type::scalar(c, to))?, to)
            }
            (false, false) if to == DType::I1 => self.cmpi(1, x, self.int(0, x)?),
            (false, false) => {
                let (have, bits) = (x.ty().dtype()?.bits(), want.dtype()?.bits());
                match have.cmp(&bits) {
                    std::cmp::Ordering::Equal => Ok(x),
                    std::cmp::Ordering::Less => {
                        self.op(if unsigned { "arith.extui" } else { "arith.extsi" }, &[x], want)
                    }
                    std::cmp::Ordering::Greater => self.op("arith.trunci", &[x], want),
                }
            }
        }
    }

    /// Rounds f64 to f32 by round-to-odd: an inexact result gets an odd last bit, so that a second
    /// rounding gives the same as rounding `x` once. A direct conversion to 16 bits would call a
    /// library function that no library here provides.
    fn round_to_odd(&self, x: Value) -> Made {
        let (f32, i32) =
            (Type::scalar(self.b.ctx, DType::F32), Type::scalar(self.b.ctx, DType::I32));
        let near = self.op("arith.truncf", &[x], f32)?;
        let back = self.op("arith.extf", &[near], x.ty())?;
        let bits = self.op("arith.bitcast", &[near], i32)?;
        let beyond =
            self.cmpf(2, self.same("math.absf", &[back])?, self.same("math.absf", &[x])?)?;
        let below =
            self.select(beyond, self.same("arith.subi", &[bits, self.int(1, bits)?])?, bits)?;
        let odd = self.op(
            "arith.bitcast",
            &[self.same("arith.ori", &[below, self.int(1, bits)?])?],
            f32,
        )?;
        self.select(self.cmpf(6, back, x)?, odd, near)
    }

    /// Truncation toward zero; an out-of-range value saturates, NaN gives 0.
    fn float_to_int(&self, x: Value, to: DType) -> Made {
        let (low, high) = to.int_range();
        let ty = compute_type(self.b.ctx, to);
        let name = if to == DType::UI8 { "arith.fptoui" } else { "arith.fptosi" };
        // high + 1 is a power of two, hence exact; a value below it truncates to at most high.
        let (least, beyond) = (self.float(low as f64, x)?, self.float(high as f64 + 1.0, x)?);
        let inside =
            self.same("arith.andi", &[self.cmpf(3, x, least)?, self.cmpf(4, x, beyond)?])?;
        let value = self.op(name, &[self.select(inside, x, self.float(0.0, x)?)?], ty)?;
        let bound = |n: i64| self.constant(Attr::scalar_int(self.b.ctx, ty.dtype()?, n));
        let value = self.select(self.cmpf(4, x, least)?, bound(low)?, value)?;
        self.select(self.cmpf(3, x, beyond)?, bound(high)?, value)
    }

    /// Reinterprets the bits of an element as another dtype.
    pub fn bitcast(&self, x: Value, from: DType, to: DType) -> Made {
        let c = self.b.ctx;
        let bits = if Type::scalar(c, from) == x.ty() || !from.is_float() {
            x
        } else {
            self.store(x, Type::scalar(c, from))?
        };
        let target = Type::scalar(c, storage(to));
        let cast =
            if bits.ty() == target { bits } else { self.op("arith.bitcast", &[bits], target)? };
        self.load(cast, to)
    }
}
