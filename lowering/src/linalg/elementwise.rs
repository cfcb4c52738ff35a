//! Unary and binary prims on scalars.
use crate::linalg::{
    power::{float_pow, int_pow},
    scalar::Scalars,
};
use kiln_dialects::{ir::*, ops::*, value::DType};

type Made = Result<Value, String>;

impl Scalars {
    /// A unary prim on an element of dtype `d`.
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
            other => Err(format!("has no {other:?} on integers")),
        }
    }

    /// A binary prim on elements of dtype `d`.
    pub fn binary(&self, kind: BinaryKind, x: Value, y: Value, d: DType) -> Made {
        use BinaryKind as K;
        let unsigned = matches!(d, DType::UI8 | DType::I1);
        let name = match (kind, d.is_float()) {
            (K::Add, true) => "arith.addf",
            (K::Sub, true) => "arith.subf",
            (K::Mul, true) => "arith.mulf",
            (K::Div, true) => "arith.divf",
            (K::Rem, true) => "arith.remf",
            (K::Pow, true) => return float_pow(self, x, y),
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
            (K::Pow, false) => return int_pow(self, x, y, d),
            (other, _) => return Err(format!("has no {other:?} on {d}")),
        };
        self.same(name, &[x, y])
    }

    /// As Python's float_floor_div: (x - mod(x, y)) / y, then rounded; the formula is that of
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

    /// Integer division that cannot trap: by 0 it gives an unspecified number, the least integer by
    /// -1 wraps around.
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
        // Unsigned, so that a negative count is too large as well.
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
}
