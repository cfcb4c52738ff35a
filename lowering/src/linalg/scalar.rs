//! One element of a prim: scalar `arith` and `math` ops with PyTorch's semantics.
//!
//! A scalar of a 16-bit or 8-bit float is computed in f32, an i1 as i1, a ui8 as i8 with unsigned
//! ops. In memory an i1 is a byte.
use kiln_dialects::{
    ir::*,
    ops::{CompareKind, ReduceKind},
    value::DType,
};

/// The type in which a dtype is computed.
pub fn compute_type(c: Ctx, d: DType) -> Type {
    match d {
        DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 => Type::scalar(c, DType::F32),
        DType::UI8 => Type::scalar(c, DType::I8),
        other => Type::scalar(c, other),
    }
}

/// The dtype that a value has in memory.
pub fn storage(d: DType) -> DType {
    match d {
        DType::I1 | DType::UI8 => DType::I8,
        other => other,
    }
}

/// The dtype in which sums and intermediate results of a dtype are kept.
pub fn wide(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 => DType::F32,
        other => storage(other),
    }
}

/// Makes scalar ops at one place.
#[derive(Clone, Copy)]
pub struct Scalars {
    /// Where.
    pub b: Builder,
}

type Made = Result<Value, String>;

impl Scalars {
    /// An op with one result.
    pub fn op(&self, name: &str, operands: &[Value], ty: Type) -> Made {
        Ok(self.b.generic(name, operands, &[ty], &[], &mut [])?.result(0))
    }
    /// An op whose result is of its operands' type.
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
    /// A float of the type of `like`.
    pub fn float(&self, value: f64, like: Value) -> Made {
        self.constant(Attr::scalar(self.b.ctx, like.ty().dtype()?, value))
    }
    /// An integer of the type of `like`.
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
    /// `arith.cmpf` by upstream's number of the predicate.
    pub fn cmpf(&self, predicate: i64, x: Value, y: Value) -> Made {
        let attrs = [("predicate", Attr::i64(self.b.ctx, predicate))];
        Ok(self.b.generic("arith.cmpf", &[x, y], &[self.i1()], &attrs, &mut [])?.result(0))
    }
    /// `arith.cmpi` by upstream's number of the predicate.
    pub fn cmpi(&self, predicate: i64, x: Value, y: Value) -> Made {
        let attrs = [("predicate", Attr::i64(self.b.ctx, predicate))];
        Ok(self.b.generic("arith.cmpi", &[x, y], &[self.i1()], &attrs, &mut [])?.result(0))
    }

    /// From memory to the compute type.
    pub fn load(&self, v: Value, d: DType) -> Made {
        let want = compute_type(self.b.ctx, d);
        match d {
            _ if v.ty() == want => Ok(v),
            DType::I1 => self.op("arith.trunci", &[v], want),
            _ => self.op("arith.extf", &[v], want),
        }
    }
    /// From the compute type to a type in memory.
    pub fn store(&self, v: Value, to: Type) -> Made {
        match v.ty() {
            t if t == to => Ok(v),
            t if t == self.i1() => self.op("arith.extui", &[v], to),
            _ => self.op("arith.truncf", &[v], to),
        }
    }

    /// A comparison of elements of dtype `d`.
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

    /// A step of a reduction in the compute type of `d`.
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

    /// From f64 to f32 with an odd last bit unless that is exact, so that rounding the result again
    /// is as rounding `x` once. A direct conversion to 16 bits would be a call of a function that
    /// nobody offers.
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

    /// Truncation; what is out of range becomes the nearest integer, NaN 0.
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

    /// The same bits as another dtype.
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
