//! Builds arithmetic on values of one shape, scalar or vector, as ops.
use kiln_dialects::ir::*;

pub type Res = Result<Value>;

/// Creates arith and math ops before the op being expanded. None carries fast-math flags, because
/// the formulas rely on every rounding.
pub struct Emit {
    b: Builder,
    /// Text around the element type: `vector<16x` and `>`, or empty for a scalar.
    around: (String, &'static str),
    /// The element type of float constants.
    element: &'static str,
    /// Whether the target has AVX-512's `vscalef`.
    scalef: bool,
}

impl Emit {
    /// Whether a type is f64 or a vector of f64.
    pub fn of_f64(ty: Type) -> bool {
        ty.element().unwrap_or(ty).dtype() == Ok(kiln_dialects::value::DType::F64)
    }
    /// An emitter for the shape of a type with this element type; `None` if it is neither that
    /// scalar nor a vector of it. Float constants are f64 if the element type is f64, else f32.
    pub fn new(b: Builder, ty: Type, element: &str) -> Option<Emit> {
        let text = ty.to_string();
        let around = if text == element {
            (String::new(), "")
        } else {
            (
                text.strip_prefix("vector<")?
                    .strip_suffix(&format!("{element}>"))
                    .map(|dims| format!("vector<{dims}"))?,
                ">",
            )
        };
        Some(Emit {
            b,
            around,
            element: if element == "f64" { "f64" } else { "f32" },
            scalef: false,
        })
    }
    /// Sets whether the target has AVX-512's `vscalef`.
    pub fn with_scalef(self, scalef: bool) -> Emit {
        Emit { scalef, ..self }
    }
    /// The same emitter with f64 constants.
    pub fn wide(&self) -> Emit {
        Emit { b: self.b, around: self.around.clone(), element: "f64", scalef: self.scalef }
    }
    /// The type of this shape with another element type.
    pub fn ty(&self, element: &str) -> Result<Type> {
        let text = format!("{}{element}{}", self.around.0, self.around.1);
        Type::parse(self.b.ctx, &text).ok_or_else(|| format!("'{text}' is no type").into())
    }
    fn constant(&self, literal: &str, element: &str) -> Res {
        let ty = self.ty(element)?;
        let text = if self.around.1.is_empty() {
            format!("{literal} : {ty}")
        } else {
            format!("dense<{literal}> : {ty}")
        };
        let value =
            Attr::parse(self.b.ctx, &text).ok_or_else(|| format!("'{text}' is no attribute"))?;
        self.op("arith.constant", &[], ty, &[("value", value)])
    }
    /// A float constant, printed by its bit pattern so that it is exact.
    pub fn c(&self, value: f64) -> Res {
        let literal = if self.element == "f64" {
            format!("{:#018x}", value.to_bits())
        } else {
            format!("{:#010x}", (value as f32).to_bits())
        };
        self.constant(&literal, self.element)
    }
    /// An integer constant of the float's width.
    pub fn i(&self, value: i64) -> Res {
        self.constant(&value.to_string(), self.int())
    }
    /// An integer constant of another element type.
    pub fn whole(&self, value: i64, element: &str) -> Res {
        self.constant(&value.to_string(), element)
    }
    fn int(&self) -> &'static str {
        if self.element == "f64" { "i64" } else { "i32" }
    }
    fn op(&self, name: &str, operands: &[Value], ty: Type, attrs: &[(&str, Attr)]) -> Res {
        Ok(self.b.generic(name, operands, &[ty], attrs, &mut [])?.result(0))
    }
    /// An op whose result has its first operand's type.
    pub fn same(&self, name: &str, operands: &[Value]) -> Res {
        self.op(name, operands, operands.first().ok_or("has no operand")?.ty(), &[])
    }
    /// As [`Emit::same`], with these arith.fastmath flags, which allow a hardware approximation.
    pub fn approximate(&self, name: &str, operands: &[Value], flags: &str) -> Res {
        let flags = Attr::parse(self.b.ctx, &format!("#arith.fastmath<{flags}>"))
            .ok_or_else(|| format!("'{flags}' are no flags"))?;
        self.op(
            name,
            operands,
            operands.first().ok_or("has no operand")?.ty(),
            &[("fastmath", flags)],
        )
    }
    /// Clamps to [lo, hi] with maximumf and minimumf; NaN is propagated.
    pub fn between(&self, a: Value, lo: f64, hi: f64) -> Res {
        let a = self.same("arith.maximumf", &[a, self.c(lo)?])?;
        self.same("arith.minimumf", &[a, self.c(hi)?])
    }
    pub fn add(&self, a: Value, b: Value) -> Res {
        self.same("arith.addf", &[a, b])
    }
    pub fn sub(&self, a: Value, b: Value) -> Res {
        self.same("arith.subf", &[a, b])
    }
    pub fn mul(&self, a: Value, b: Value) -> Res {
        self.same("arith.mulf", &[a, b])
    }
    pub fn div(&self, a: Value, b: Value) -> Res {
        self.same("arith.divf", &[a, b])
    }
    pub fn neg(&self, a: Value) -> Res {
        self.same("arith.negf", &[a])
    }
    pub fn abs(&self, a: Value) -> Res {
        self.same("math.absf", &[a])
    }
    pub fn sqrt(&self, a: Value) -> Res {
        self.same("math.sqrt", &[a])
    }
    pub fn floor(&self, a: Value) -> Res {
        self.same("math.floor", &[a])
    }
    /// a * b + c, rounded once (fused multiply-add).
    pub fn fma(&self, a: Value, b: Value, c: Value) -> Res {
        self.same("math.fma", &[a, b, c])
    }
    /// a * b + c for a constant b.
    pub fn fmac(&self, a: Value, b: f64, c: Value) -> Res {
        self.fma(a, self.c(b)?, c)
    }
    /// `a`'s magnitude with `b`'s sign.
    pub fn copysign(&self, a: Value, b: Value) -> Res {
        self.same("math.copysign", &[a, b])
    }
    pub fn iadd(&self, a: Value, b: Value) -> Res {
        self.same("arith.addi", &[a, b])
    }
    pub fn isub(&self, a: Value, b: Value) -> Res {
        self.same("arith.subi", &[a, b])
    }
    pub fn and(&self, a: Value, b: Value) -> Res {
        self.same("arith.andi", &[a, b])
    }
    pub fn or(&self, a: Value, b: Value) -> Res {
        self.same("arith.ori", &[a, b])
    }
    pub fn xor(&self, a: Value, b: Value) -> Res {
        self.same("arith.xori", &[a, b])
    }
    pub fn shl(&self, a: Value, n: i64) -> Res {
        self.same("arith.shli", &[a, self.i(n)?])
    }
    /// Arithmetic shift right.
    pub fn shr(&self, a: Value, n: i64) -> Res {
        self.same("arith.shrsi", &[a, self.i(n)?])
    }
    /// Logical shift right.
    pub fn shift_right(&self, a: Value, n: i64) -> Res {
        self.same("arith.shrui", &[a, self.i(n)?])
    }
    /// A unary op whose result has another element type.
    pub fn same_as(&self, name: &str, a: Value, element: &str) -> Res {
        self.op(name, &[a], self.ty(element)?, &[])
    }
    pub fn bits(&self, a: Value) -> Res {
        self.op("arith.bitcast", &[a], self.ty(self.int())?, &[])
    }
    pub fn float(&self, a: Value) -> Res {
        self.op("arith.bitcast", &[a], self.ty(self.element)?, &[])
    }
    /// An integer's value as a float.
    pub fn to_float(&self, a: Value) -> Res {
        self.op("arith.sitofp", &[a], self.ty(self.element)?, &[])
    }
    pub fn extend(&self, a: Value, element: &str) -> Res {
        self.op("arith.extf", &[a], self.ty(element)?, &[])
    }
    pub fn truncate(&self, a: Value, element: &str) -> Res {
        self.op("arith.truncf", &[a], self.ty(element)?, &[])
    }
    /// A float comparison by its predicate number in `arith.cmpf`.
    fn cmpf(&self, predicate: i64, a: Value, b: Value) -> Res {
        self.op(
            "arith.cmpf",
            &[a, b],
            self.ty("i1")?,
            &[("predicate", Attr::i64(self.b.ctx, predicate))],
        )
    }
    /// Ordered equal.
    pub fn eq(&self, a: Value, b: Value) -> Res {
        self.cmpf(1, a, b)
    }
    /// Ordered greater than.
    pub fn gt(&self, a: Value, b: Value) -> Res {
        self.cmpf(2, a, b)
    }
    /// Ordered greater or equal.
    pub fn ge(&self, a: Value, b: Value) -> Res {
        self.cmpf(3, a, b)
    }
    /// Ordered less than.
    pub fn lt(&self, a: Value, b: Value) -> Res {
        self.cmpf(4, a, b)
    }
    /// Unordered or not equal.
    pub fn ne(&self, a: Value, b: Value) -> Res {
        self.cmpf(13, a, b)
    }
    /// Unordered: at least one operand is NaN.
    pub fn unordered(&self, a: Value, b: Value) -> Res {
        self.cmpf(14, a, b)
    }
    /// Whether an integer equals `n`.
    pub fn int_eq(&self, a: Value, n: i64) -> Res {
        self.op(
            "arith.cmpi",
            &[a, self.i(n)?],
            self.ty("i1")?,
            &[("predicate", Attr::i64(self.b.ctx, 0))],
        )
    }
    /// Whether an integer is not 0.
    pub fn nonzero(&self, a: Value) -> Res {
        self.op(
            "arith.cmpi",
            &[a, self.i(0)?],
            self.ty("i1")?,
            &[("predicate", Attr::i64(self.b.ctx, 1))],
        )
    }
    /// Whether an integer is below 0.
    pub fn negative(&self, a: Value) -> Res {
        self.op(
            "arith.cmpi",
            &[a, self.i(0)?],
            self.ty("i1")?,
            &[("predicate", Attr::i64(self.b.ctx, 2))],
        )
    }
    pub fn select(&self, condition: Value, a: Value, b: Value) -> Res {
        self.op("arith.select", &[condition, a, b], a.ty(), &[])
    }
    /// Reduces an i1 condition over all lanes with `or`; the result is a scalar.
    pub fn any(&self, condition: Value) -> Res {
        let ty = |s: &str| Type::parse(self.b.ctx, s).ok_or_else(|| format!("'{s}' is no type"));
        let Some(dims) = self.around.0.strip_prefix("vector<") else { return Ok(condition) };
        let mut lanes = 1usize;
        for dim in dims.split('x').filter(|d| !d.is_empty()) {
            lanes *= dim
                .parse::<usize>()
                .map_err(|_| format!("has a vector of {dims}, which has no fixed length"))?;
        }
        let flat =
            self.op("vector.shape_cast", &[condition], ty(&format!("vector<{lanes}xi1>"))?, &[])?;
        let kind = Attr::parse(self.b.ctx, "#vector.kind<or>").ok_or("has no vector dialect")?;
        self.op("vector.reduction", &[flat], ty("i1")?, &[("kind", kind)])
    }
    /// Whether the emitter's floats are f64.
    pub fn is_f64(&self) -> bool {
        self.element == "f64"
    }
    /// An `scf.while` that applies `change` to a loop-carried value while the scalar `again` holds.
    pub fn repeat(
        &self,
        value: Value,
        again: &mut dyn FnMut(&Emit, Value) -> Res,
        change: &mut dyn FnMut(&Emit, Value) -> Res,
    ) -> Res {
        let inside = |b: Builder| Emit {
            b,
            around: self.around.clone(),
            element: self.element,
            scalef: self.scalef,
        };
        let first =
            |args: &[Value]| args.first().copied().ok_or_else(|| "has no value".to_string());
        let mut before = |b: Builder, args: Vec<Value>| {
            let v = first(&args)?;
            b.generic("scf.condition", &[again(&inside(b), v)?, v], &[], &[], &mut []).map(|_| ())
        };
        let mut after = |b: Builder, args: Vec<Value>| {
            let new = change(&inside(b), first(&args)?)?;
            b.generic("scf.yield", &[new], &[], &[], &mut []).map(|_| ())
        };
        let types = [value.ty()];
        Ok(self
            .b
            .generic(
                "scf.while",
                &[value],
                &types,
                &[],
                &mut [(&types, &mut before), (&types, &mut after)],
            )?
            .result(0))
    }
    /// An `scf.if`: the results of `then` where the scalar condition holds, else the values.
    pub fn branch(
        &self,
        condition: Value,
        values: &[Value],
        then: &mut dyn FnMut(&Emit) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let types: Vec<Type> = values.iter().map(|v| v.ty()).collect();
        let yields = |b: Builder, values: &[Value]| {
            b.generic("scf.yield", values, &[], &[], &mut []).map(|_| ())
        };
        let mut inside = |b: Builder, _: Vec<Value>| {
            let all = then(&Emit {
                b,
                around: self.around.clone(),
                element: self.element,
                scalef: self.scalef,
            })?;
            yields(b, &all)
        };
        let mut outside = |b: Builder, _: Vec<Value>| yields(b, values);
        Ok(self
            .b
            .generic(
                "scf.if",
                &[condition],
                &types,
                &[],
                &mut [(&[], &mut inside), (&[], &mut outside)],
            )?
            .results())
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
        let bound = f64::powi(2.0, if self.element == "f64" { -27 } else { -13 });
        self.select(self.lt(self.abs(x)?, self.c(bound)?)?, x, y)
    }
    /// Rounds to the nearest integer by adding a magic number. It never converts a NaN or infinity,
    /// which would be poison.
    pub fn round(&self, a: Value) -> Result<Whole> {
        let magic = if self.element == "f64" { 6755399441055744.0 } else { 12582912.0 };
        let shifted = self.add(a, self.c(magic)?)?;
        let bits = if self.element == "f64" {
            magic.to_bits() as i64
        } else {
            (magic as f32).to_bits() as i64
        };
        Ok((self.sub(shifted, self.c(magic)?)?, self.isub(self.bits(shifted)?, self.i(bits)?)?))
    }
    /// 2^n for an n in the exponent range of normal numbers.
    pub fn power_of_two(&self, n: Value) -> Res {
        let (bias, mantissa) = if self.element == "f64" { (1023, 52) } else { (127, 23) };
        self.float(self.shl(self.iadd(n, self.i(bias)?)?, mantissa)?)
    }
    /// y 2^(n + more), by `vscalef` or by two multiplications with the same bits. The first
    /// multiplication is exact: a subnormal result is rounded once, and overflow gives infinity.
    pub fn scale(&self, y: Value, (n, bits): Whole, more: i64) -> Res {
        let lanes = if self.element == "f64" { 8 } else { 16 };
        if self.scalef
            && y.ty()
                == Type::vector(
                    Type::parse(self.b.ctx, self.element).ok_or("has no such type")?,
                    lanes,
                )
        {
            let n = if more == 0 { n } else { self.add(n, self.c(more as f64)?)? };
            let whole = |text: &str, ty: &str| {
                let (value, ty) = (
                    Attr::parse(self.b.ctx, &format!("{text} : {ty}")),
                    Type::parse(self.b.ctx, ty),
                );
                self.op(
                    "arith.constant",
                    &[],
                    ty.ok_or("has no such type")?,
                    &[("value", value.ok_or("has no such number")?)],
                )
            };
            // Mask: all lanes. Rounding 4: the current mode, as everywhere else.
            // x86vector.avx512.mask.scalef does not work here: it passes its operands to the
            // intrinsic in another order.
            let name = format!(
                "llvm.x86.avx512.mask.scalef.{}.512",
                if self.element == "f64" { "pd" } else { "ps" }
            );
            let attrs = [
                ("intrin", Attr::string(self.b.ctx, &name)),
                ("op_bundle_sizes", Attr::i32s(self.b.ctx, &[])),
                ("operandSegmentSizes", Attr::i32s(self.b.ctx, &[5, 0])),
            ];
            let operands = [y, n, y, whole("-1", &format!("i{lanes}"))?, whole("4", "i32")?];
            return self.op("llvm.call_intrinsic", &operands, y.ty(), &attrs);
        }
        let half = self.shr(bits, 1)?;
        let rest = self.iadd(self.isub(bits, half)?, self.i(more)?)?;
        self.mul(self.mul(y, self.power_of_two(half)?)?, self.power_of_two(rest)?)
    }
}

/// An integer below half of the mantissa's range: as a float, and in the low bits of an integer of
/// the same width.
pub type Whole = (Value, Value);
