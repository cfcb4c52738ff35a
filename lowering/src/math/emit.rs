//! Builds arithmetic on values of one shape, scalar or vector, as ops.
use kiln_dialects::{ir::*, value::DType};

pub type Res = Result<Value>;

/// Creates arith and math ops before the op being expanded. None carries fast-math flags, because
/// the formulas rely on every rounding.
pub struct Emit {
    b: Builder,
    /// A type of the shape.
    like: Type,
    /// The element type of float constants: f64 or f32.
    element: DType,
    /// Whether the target has AVX-512's `vscalef`.
    scalef: bool,
    /// The module for functions of rare cases; `None` if these are inlined.
    pub(super) rare_functions: Option<Op>,
}

impl From<&Emit> for Builder {
    fn from(e: &Emit) -> Builder {
        e.b
    }
}

impl Emit {
    /// Whether a type is f64 or a vector of f64.
    pub fn of_f64(ty: Type) -> bool {
        ty.element().unwrap_or(ty).dtype() == Ok(DType::F64)
    }
    /// An emitter for the shape of a type with this element type; `None` if it is neither that
    /// scalar nor a vector of it. Float constants are f64 if the element type is f64, else f32.
    pub fn new(b: Builder, ty: Type, element: DType) -> Option<Emit> {
        let of = if ty.is_vector() { ty.element()? } else { ty };
        (of == Type::scalar(b.ctx, element)).then_some(Emit {
            b,
            like: ty,
            element: if element == DType::F64 { DType::F64 } else { DType::F32 },
            scalef: false,
            rare_functions: None,
        })
    }
    /// Sets whether the target has AVX-512's `vscalef`.
    pub fn with_scalef(self, scalef: bool) -> Emit {
        Emit { scalef, ..self }
    }
    /// Sets the module in which [`Emit::rare`] builds functions.
    pub fn with_rare_functions(self, module: Option<Op>) -> Emit {
        Emit { rare_functions: module, ..self }
    }
    /// The same emitter at another insertion point.
    pub fn inside(&self, b: Builder) -> Emit {
        Emit { b, ..*self }
    }
    /// The shape and element type as part of a symbol: `16xf32`.
    pub fn shape_name(&self) -> String {
        let sizes = self.like.vector_sizes().unwrap_or_default();
        let sizes: String = sizes.iter().map(|n| format!("{n}x")).collect();
        format!("{sizes}{}", self.element.name())
    }
    /// The same emitter with f64 constants.
    pub fn wide(&self) -> Emit {
        Emit { element: DType::F64, ..*self }
    }
    /// The type of this shape with another element type.
    pub fn ty(&self, element: DType) -> Type {
        Type::scalar(self.b.ctx, element).in_shape_of(self.like)
    }
    /// A float constant.
    pub fn c(&self, value: f64) -> Res {
        arith::constant(self, Attr::number(self.ty(self.element), value)?)
    }
    /// An integer constant of the float's width.
    pub fn i(&self, value: i64) -> Res {
        self.whole(value, self.int())
    }
    /// An integer constant of another element type.
    pub fn whole(&self, value: i64, element: DType) -> Res {
        arith::constant(self, Attr::integer(self.ty(element), value)?)
    }
    fn int(&self) -> DType {
        if self.is_f64() { DType::I64 } else { DType::I32 }
    }
    /// Clamps to [lo, hi] with maximumf and minimumf; NaN is propagated.
    pub fn between(&self, a: Value, lo: f64, hi: f64) -> Res {
        let a = arith::maximumf(self, a, self.c(lo)?)?;
        arith::minimumf(self, a, self.c(hi)?)
    }
    pub fn add(&self, a: Value, b: Value) -> Res {
        arith::addf(self, a, b)
    }
    pub fn sub(&self, a: Value, b: Value) -> Res {
        arith::subf(self, a, b)
    }
    pub fn mul(&self, a: Value, b: Value) -> Res {
        arith::mulf(self, a, b)
    }
    pub fn div(&self, a: Value, b: Value) -> Res {
        arith::divf(self, a, b)
    }
    pub fn neg(&self, a: Value) -> Res {
        arith::negf(self, a)
    }
    pub fn abs(&self, a: Value) -> Res {
        math::absf(self, a)
    }
    pub fn sqrt(&self, a: Value) -> Res {
        math::sqrt(self, a)
    }
    pub fn floor(&self, a: Value) -> Res {
        math::floor(self, a)
    }
    /// a * b + c, rounded once (fused multiply-add).
    pub fn fma(&self, a: Value, b: Value, c: Value) -> Res {
        math::fma(self, a, b, c)
    }
    /// a * b + c for a constant b.
    pub fn fmac(&self, a: Value, b: f64, c: Value) -> Res {
        self.fma(a, self.c(b)?, c)
    }
    /// `a`'s magnitude with `b`'s sign.
    pub fn copysign(&self, a: Value, b: Value) -> Res {
        math::copysign(self, a, b)
    }
    pub fn iadd(&self, a: Value, b: Value) -> Res {
        arith::addi(self, a, b)
    }
    pub fn isub(&self, a: Value, b: Value) -> Res {
        arith::subi(self, a, b)
    }
    pub fn and(&self, a: Value, b: Value) -> Res {
        arith::andi(self, a, b)
    }
    pub fn or(&self, a: Value, b: Value) -> Res {
        arith::ori(self, a, b)
    }
    pub fn xor(&self, a: Value, b: Value) -> Res {
        arith::xori(self, a, b)
    }
    pub fn shl(&self, a: Value, n: i64) -> Res {
        arith::shli(self, a, self.i(n)?)
    }
    /// Arithmetic shift right.
    pub fn shr(&self, a: Value, n: i64) -> Res {
        arith::shrsi(self, a, self.i(n)?)
    }
    /// Logical shift right.
    pub fn shift_right(&self, a: Value, n: i64) -> Res {
        arith::shrui(self, a, self.i(n)?)
    }
    pub fn bits(&self, a: Value) -> Res {
        arith::bitcast(self, a, self.ty(self.int()))
    }
    pub fn float(&self, a: Value) -> Res {
        arith::bitcast(self, a, self.ty(self.element))
    }
    /// An integer's value as a float.
    pub fn to_float(&self, a: Value) -> Res {
        arith::sitofp(self, a, self.ty(self.element))
    }
    pub fn extend(&self, a: Value, element: DType) -> Res {
        arith::extf(self, a, self.ty(element))
    }
    pub fn truncate(&self, a: Value, element: DType) -> Res {
        arith::truncf(self, a, self.ty(element))
    }
    fn cmpf(&self, predicate: CmpFPredicate, a: Value, b: Value) -> Res {
        arith::cmpf(self, predicate, a, b)
    }
    fn cmpi(&self, predicate: CmpIPredicate, a: Value, n: i64) -> Res {
        arith::cmpi(self, predicate, a, self.i(n)?)
    }
    /// Ordered equal.
    pub fn eq(&self, a: Value, b: Value) -> Res {
        self.cmpf(CmpFPredicate::Oeq, a, b)
    }
    /// Ordered greater than.
    pub fn gt(&self, a: Value, b: Value) -> Res {
        self.cmpf(CmpFPredicate::Ogt, a, b)
    }
    /// Ordered greater or equal.
    pub fn ge(&self, a: Value, b: Value) -> Res {
        self.cmpf(CmpFPredicate::Oge, a, b)
    }
    /// Ordered less than.
    pub fn lt(&self, a: Value, b: Value) -> Res {
        self.cmpf(CmpFPredicate::Olt, a, b)
    }
    /// Unordered or not equal.
    pub fn ne(&self, a: Value, b: Value) -> Res {
        self.cmpf(CmpFPredicate::Une, a, b)
    }
    /// Unordered: at least one operand is NaN.
    pub fn unordered(&self, a: Value, b: Value) -> Res {
        self.cmpf(CmpFPredicate::Uno, a, b)
    }
    /// Whether an integer equals `n`.
    pub fn int_eq(&self, a: Value, n: i64) -> Res {
        self.cmpi(CmpIPredicate::Eq, a, n)
    }
    /// Whether an integer is not 0.
    pub fn nonzero(&self, a: Value) -> Res {
        self.cmpi(CmpIPredicate::Ne, a, 0)
    }
    /// Whether an integer is below 0.
    pub fn negative(&self, a: Value) -> Res {
        self.cmpi(CmpIPredicate::Slt, a, 0)
    }
    pub fn select(&self, condition: Value, a: Value, b: Value) -> Res {
        arith::select(self, condition, a, b)
    }
    /// Reduces an i1 condition over all lanes with `or`; the result is a scalar.
    pub fn any(&self, condition: Value) -> Res {
        if !self.like.is_vector() {
            return Ok(condition);
        }
        let sizes = self.like.vector_sizes().ok_or("has a vector of no fixed length")?;
        let i1 = Type::integer(self.b.ctx, 1);
        let flat = Type::vector(i1, sizes.iter().product::<i64>() as usize);
        vector::reduction(self, CombiningKind::Or, vector::shape_cast(self, condition, flat)?, i1)
    }
    /// Whether the emitter's floats are f64.
    pub fn is_f64(&self) -> bool {
        self.element == DType::F64
    }
    /// An `scf.while` that applies `change` to a loop-carried value while the scalar `again` holds.
    pub fn repeat(
        &self,
        value: Value,
        again: &mut dyn FnMut(&Emit, Value) -> Res,
        change: &mut dyn FnMut(&Emit, Value) -> Res,
    ) -> Res {
        let first =
            |args: &[Value]| args.first().copied().ok_or_else(|| "has no value".to_string());
        let mut before = |b: Builder, args: Vec<Value>| {
            let v = first(&args)?;
            scf::condition(b, again(&self.inside(b), v)?, &[v])
        };
        let mut after = |b: Builder, args: Vec<Value>| {
            let new = change(&self.inside(b), first(&args)?)?;
            scf::yield_(b, &[new])
        };
        let types = [value.ty()];
        let (before, after) = ((&types[..], &mut before as _), (&types[..], &mut after as _));
        Ok(scf::while_(self, &[value], &types, before, after)?.result(0))
    }
    /// An `scf.if`: the results of `then` where the scalar condition holds, else the values.
    pub fn branch(
        &self,
        condition: Value,
        values: &[Value],
        then: &mut dyn FnMut(&Emit) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let types: Vec<Type> = values.iter().map(|v| v.ty()).collect();
        let mut inside = |b: Builder, _: Vec<Value>| {
            let all = then(&self.inside(b))?;
            scf::yield_(b, &all)
        };
        let mut outside = |b: Builder, _: Vec<Value>| scf::yield_(b, values);
        let branches = ((&[][..], &mut inside as _), (&[][..], &mut outside as _));
        Ok(scf::if_(self, condition, &types, branches.0, branches.1)?.results())
    }
    /// Clamps to [lo, hi] with compares and selects; NaN is propagated.
    pub fn clamp(&self, a: Value, lo: f64, hi: f64) -> Res {
        let (lo, hi) = (self.c(lo)?, self.c(hi)?);
        let a = self.select(self.lt(a, lo)?, lo, a)?;
        self.select(self.gt(a, hi)?, hi, a)
    }
    /// Evaluates a polynomial by Horner's scheme with FMAs, highest coefficient first.
    pub fn poly(&self, x: Value, coefficients: &[f64]) -> Res {
        let (first, rest) =
            coefficients.split_first().ok_or("is a polynomial without coefficients")?;
        rest.iter().try_fold(self.c(*first)?, |sum, c| self.fma(sum, x, self.c(*c)?))
    }
    /// `x` where it is small enough that f(x) rounds to x (this also keeps the sign of 0), else
    /// `y`.
    pub fn unless_tiny(&self, x: Value, y: Value) -> Res {
        let bound = f64::powi(2.0, if self.element == DType::F64 { -27 } else { -13 });
        self.select(self.lt(self.abs(x)?, self.c(bound)?)?, x, y)
    }
    /// Rounds to the nearest integer by adding a magic number. It never converts a NaN or infinity,
    /// which would be poison.
    pub fn round(&self, a: Value) -> Result<IntegerParts> {
        let magic = if self.element == DType::F64 { 6755399441055744.0 } else { 12582912.0 };
        let shifted = self.add(a, self.c(magic)?)?;
        let bits = if self.element == DType::F64 {
            magic.to_bits() as i64
        } else {
            (magic as f32).to_bits() as i64
        };
        Ok((self.sub(shifted, self.c(magic)?)?, self.isub(self.bits(shifted)?, self.i(bits)?)?))
    }
    /// 2^n for an n in the exponent range of normal numbers.
    pub fn power_of_two(&self, n: Value) -> Res {
        let (bias, mantissa) = if self.element == DType::F64 { (1023, 52) } else { (127, 23) };
        self.float(self.shl(self.iadd(n, self.i(bias)?)?, mantissa)?)
    }
    /// y 2^(n + more), by `vscalef` or by two multiplications with the same bits. The first
    /// multiplication is exact: a subnormal result is rounded once, and overflow gives infinity.
    pub fn scale(&self, y: Value, (n, bits): IntegerParts, more: i64) -> Res {
        let lanes = if self.element == DType::F64 { 8 } else { 16 };
        let element = Type::scalar(self.b.ctx, self.element);
        if self.scalef && y.ty() == Type::vector(element, lanes) {
            let n = if more == 0 { n } else { self.add(n, self.c(more as f64)?)? };
            let whole = |bits: u32, n: i64| arith::constant(self, Attr::int(self.b.ctx, bits, n));
            // Mask: all lanes. Rounding 4: the current mode, as everywhere else.
            // x86vector.avx512.mask.scalef does not work here: it passes its operands to the
            // intrinsic in another order.
            let name = format!(
                "llvm.x86.avx512.mask.scalef.{}.512",
                if self.element == DType::F64 { "pd" } else { "ps" }
            );
            let attrs = [
                ("intrin", Attr::string(self.b.ctx, &name)),
                ("op_bundle_sizes", Attr::i32s(self.b.ctx, &[])),
                ("operandSegmentSizes", Attr::i32s(self.b.ctx, &[5, 0])),
            ];
            let operands = [y, n, y, whole(lanes as u32, -1)?, whole(32, 4)?];
            let name = llvm::CallIntrinsic::NAME;
            let call = self.b.generic(name, &operands, &[y.ty()], &attrs, &mut [])?;
            return Ok(call.result(0));
        }
        let half = self.shr(bits, 1)?;
        let rest = self.iadd(self.isub(bits, half)?, self.i(more)?)?;
        self.mul(self.mul(y, self.power_of_two(half)?)?, self.power_of_two(rest)?)
    }
}

/// An integer below half of the mantissa's range: as a float, and in the low bits of an integer of
/// the same width.
pub type IntegerParts = (Value, Value);
