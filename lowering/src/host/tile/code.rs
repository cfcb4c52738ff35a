//! Makes loops and index arithmetic; what is known is folded at once, so that the code reads as one would write it.
use kiln_dialects::ir::*;

/// Makes ops at a place.
#[derive(Clone, Copy)]
pub struct Code(pub Builder);

/// A result, with a sentence for an error.
pub type Made<T> = Result<T, String>;
/// What a loop does: builder inside, induction variable, carried values; returns the carried values of the next iteration.
pub type LoopBody<'a> = dyn FnMut(Code, Value, &[Value]) -> Made<Vec<Value>> + 'a;

/// The number that a value is, if it is an `arith.constant`.
pub fn known(v: Value) -> Option<i64> {
    v.def().filter(|d| d.is("arith.constant")).and_then(|d| d.attr("value")).and_then(|a| a.as_i64())
}

impl Code {
    /// The context.
    pub fn ctx(self) -> Ctx {
        self.0.ctx
    }
    /// An op with one result.
    pub fn op(self, name: &str, operands: &[Value], ty: Type, attrs: &[(&str, Attr)]) -> Made<Value> {
        Ok(self.0.generic(name, operands, &[ty], attrs, &mut [])?.result(0))
    }
    /// An op without results.
    pub fn effect(self, name: &str, operands: &[Value], attrs: &[(&str, Attr)]) -> Made<()> {
        self.0.generic(name, operands, &[], attrs, &mut []).map(drop)
    }
    /// A number of index type.
    pub fn index(self, k: i64) -> Made<Value> {
        self.0.index(k)
    }
    /// A constant from the text of its attribute.
    pub fn constant(self, text: &str, ty: Type) -> Made<Value> {
        let value = Attr::parse(self.ctx(), &format!("{text} : {ty}")).ok_or_else(|| format!("{text} is no constant of type {ty}"))?;
        self.op("arith.constant", &[], ty, &[("value", value)])
    }
    fn binary(self, name: &str, a: Value, b: Value) -> Made<Value> {
        self.op(name, &[a, b], a.ty(), &[])
    }
    /// A sum of index values.
    pub fn add(self, a: Value, b: Value) -> Made<Value> {
        match (known(a), known(b)) {
            (Some(x), Some(y)) => self.index(x + y),
            (Some(0), _) => Ok(b),
            (_, Some(0)) => Ok(a),
            _ => self.binary("arith.addi", a, b),
        }
    }
    /// A difference.
    pub fn sub(self, a: Value, b: Value) -> Made<Value> {
        match (known(a), known(b)) {
            (Some(x), Some(y)) => self.index(x - y),
            (_, Some(0)) => Ok(a),
            _ => self.binary("arith.subi", a, b),
        }
    }
    /// A product.
    pub fn mul(self, a: Value, b: Value) -> Made<Value> {
        match (known(a), known(b)) {
            (Some(x), Some(y)) => self.index(x * y),
            (Some(1), _) => Ok(b),
            (_, Some(1)) => Ok(a),
            (Some(0), _) => Ok(a),
            (_, Some(0)) => Ok(b),
            _ => self.binary("arith.muli", a, b),
        }
    }
    /// A quotient of what is not negative.
    pub fn div(self, a: Value, b: Value) -> Made<Value> {
        match (known(a), known(b)) {
            (Some(x), Some(y)) if y > 0 => self.index(x / y),
            (_, Some(1)) => Ok(a),
            _ => self.binary("arith.divui", a, b),
        }
    }
    /// A remainder of what is not negative.
    pub fn rem(self, a: Value, b: Value) -> Made<Value> {
        match (known(a), known(b)) {
            (Some(x), Some(y)) if y > 0 => self.index(x % y),
            (_, Some(1)) => self.index(0),
            _ => self.binary("arith.remui", a, b),
        }
    }
    /// A quotient of what is not negative, rounded up.
    pub fn ceil_div(self, a: Value, b: Value) -> Made<Value> {
        let more = self.sub(b, self.index(1)?)?;
        self.div(self.add(a, more)?, b)
    }
    /// The lesser.
    pub fn min(self, a: Value, b: Value) -> Made<Value> {
        match (known(a), known(b)) {
            (Some(x), Some(y)) => self.index(x.min(y)),
            _ => self.binary("arith.minsi", a, b),
        }
    }
    /// `scf.for` from `lo` to `hi`; no loop if it is known that there are no iterations.
    pub fn each(self, lo: Value, hi: Value, step: i64, carried: &[Value], body: &mut LoopBody<'_>) -> Made<Vec<Value>> {
        if let (Some(l), Some(h)) = (known(lo), known(hi)) {
            if l >= h {
                return Ok(carried.to_vec());
            }
            if l + step >= h {
                return body(self, lo, carried);
            }
        }
        let operands: Vec<Value> = [&[lo, hi, self.index(step)?], carried].concat();
        let types: Vec<Type> = carried.iter().map(|v| v.ty()).collect();
        let args: Vec<Type> = std::iter::once(Type::index(self.ctx())).chain(types.iter().copied()).collect();
        let mut fill = |b: Builder, args: Vec<Value>| -> Result<(), String> {
            let (iv, rest) = args.split_first().ok_or("has no induction variable")?;
            let next = body(Code(b), *iv, rest)?;
            b.generic("scf.yield", &next, &[], &[], &mut []).map(drop)
        };
        Ok(self.0.generic("scf.for", &operands, &types, &[], &mut [(&args, &mut fill)])?.results())
    }
}
