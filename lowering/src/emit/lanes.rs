//! Vectorised values: uniform across lanes, affine in the lane (a constant step), or a vector.
use crate::emit::code::{Code, constant_value};
use kiln_dialects::ir::*;

/// A value in every lane.
#[derive(Clone, Copy, Debug)]
pub enum LaneValue {
    /// Uniform: the same scalar in all lanes.
    Uniform(Value),
    /// Affine: an integer in the first lane, and its step per lane.
    Strided(Value, i64),
    /// A vector, one element per lane.
    Vector(Value),
}

/// Lane count and mask of vectorised iterations.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// Lane count.
    pub count: usize,
    /// `vector<count x i1>` of active lanes; `None` if all are.
    pub mask: Option<Value>,
}

impl Lanes {
    /// `0, step, 2 step, …`.
    fn iota(&self, c: Code, element: Type, step: i64) -> Result<Value> {
        let number = |i| Attr::integer(element, i * step);
        let numbers = (0..self.count as i64).map(number).collect::<Result<Vec<_>>>()?;
        arith::constant(c, Attr::elements(Type::vector(element, self.count), &numbers))
    }
    /// As a vector; with one lane, the scalar itself.
    pub fn vector(&self, c: Code, v: LaneValue) -> Result<Value> {
        let spread = |x: Value| -> Result<Value> {
            if self.count == 1 {
                Ok(x)
            } else {
                vector::broadcast(c, x, Type::vector(x.ty(), self.count))
            }
        };
        match v {
            LaneValue::Vector(v) => Ok(v),
            LaneValue::Uniform(v) => spread(v),
            LaneValue::Strided(base, step) => {
                let (start, steps) = (spread(base)?, self.iota(c, base.ty(), step)?);
                arith::addi(c, start, steps)
            }
        }
    }
    /// Sum, or difference if `minus`, of integers.
    pub fn add_or_sub(
        &self,
        c: Code,
        a: LaneValue,
        b: LaneValue,
        minus: bool,
    ) -> Result<LaneValue> {
        let scalar = |x: Value, y: Value| match (minus, x.ty().is_index()) {
            (false, true) => c.add(x, y),
            (true, true) => c.sub(x, y),
            (false, false) => arith::addi(c, x, y),
            (true, false) => arith::subi(c, x, y),
        };
        let sign = if minus { -1 } else { 1 };
        Ok(match (a, b) {
            (LaneValue::Uniform(x), LaneValue::Uniform(y)) => LaneValue::Uniform(scalar(x, y)?),
            (LaneValue::Strided(x, s), LaneValue::Uniform(y)) => {
                LaneValue::Strided(scalar(x, y)?, s)
            }
            (LaneValue::Uniform(x), LaneValue::Strided(y, s)) => {
                LaneValue::Strided(scalar(x, y)?, sign * s)
            }
            (LaneValue::Strided(x, s), LaneValue::Strided(y, t)) if s + sign * t == 0 => {
                LaneValue::Uniform(scalar(x, y)?)
            }
            (LaneValue::Strided(x, s), LaneValue::Strided(y, t)) => {
                LaneValue::Strided(scalar(x, y)?, s + sign * t)
            }
            _ => {
                let (x, y) = (self.vector(c, a)?, self.vector(c, b)?);
                LaneValue::Vector(if minus { arith::subi(c, x, y) } else { arith::addi(c, x, y) }?)
            }
        })
    }
    /// Product with a uniform scalar of index type.
    pub fn scaled(&self, c: Code, a: LaneValue, by: Value) -> Result<LaneValue> {
        Ok(match (a, constant_value(by)) {
            (LaneValue::Uniform(x), _) => LaneValue::Uniform(c.mul(x, by)?),
            (_, Some(1)) => a,
            (_, Some(0)) => LaneValue::Uniform(by),
            (LaneValue::Strided(x, s), Some(k)) => LaneValue::Strided(c.mul(x, by)?, s * k),
            _ => {
                let (x, y) = (self.vector(c, a)?, self.vector(c, LaneValue::Uniform(by))?);
                LaneValue::Vector(arith::muli(c, x, y)?)
            }
        })
    }
    /// `a floordiv by` or `a mod by`, for negative `a` too.
    pub fn division(&self, c: Code, a: LaneValue, by: i64, modulo: bool) -> Result<LaneValue> {
        let scalar = matches!(a, LaneValue::Uniform(_)) || self.count == 1;
        let x = if let LaneValue::Uniform(x) = a { x } else { self.vector(c, a)? };
        let number = |k: i64| -> Result<Value> {
            let k = c.index(k)?;
            if scalar { Ok(k) } else { self.vector(c, LaneValue::Uniform(k)) }
        };
        let result = if by > 0 && by & (by - 1) == 0 {
            if modulo {
                arith::andi(c, x, number(by - 1)?)?
            } else {
                arith::shrsi(c, x, number(by.trailing_zeros() as i64)?)?
            }
        } else {
            // The remainder is corrected by a second one, since `remsi` of a negative number is
            // negative.
            let d = number(by)?;
            let r = arith::remsi(c, arith::addi(c, arith::remsi(c, x, d)?, d)?, d)?;
            if modulo { r } else { arith::divsi(c, arith::subi(c, x, r)?, d)? }
        };
        Ok(if scalar { LaneValue::Uniform(result) } else { LaneValue::Vector(result) })
    }
    fn full_mask(&self, c: Code) -> Result<Value> {
        let i1 = Type::scalar(c.ctx(), kiln_dialects::value::DType::I1);
        self.mask.map_or_else(|| c.integer(1, Type::vector(i1, self.count)), Ok)
    }
    /// Ones for inactive lanes, on which no op traps (such as a division).
    fn ones(&self, c: Code, element: Type) -> Result<Value> {
        c.number(1.0, Type::vector(element, self.count))
    }
    /// Loads elements of a flat buffer.
    pub fn load(&self, c: Code, buffer: Value, at: LaneValue) -> Result<LaneValue> {
        let element = buffer.ty().element().ok_or("reads from what is no buffer")?;
        let vector = Type::vector(element, self.count);
        Ok(match (at, self.mask) {
            (LaneValue::Uniform(i), _) => LaneValue::Uniform(memref::load(c, buffer, &[i])?),
            (LaneValue::Strided(i, 1), None) => {
                LaneValue::Vector(vector::load(c, buffer, &[i], vector)?)
            }
            (LaneValue::Strided(i, 1), Some(m)) => LaneValue::Vector(vector::maskedload(
                c,
                buffer,
                &[i],
                m,
                self.ones(c, element)?,
                vector,
            )?),
            _ => {
                let (first, at) = (c.index(0)?, self.vector(c, at)?);
                let (mask, ones) = (self.full_mask(c)?, self.ones(c, element)?);
                LaneValue::Vector(vector::gather(c, buffer, &[first], at, mask, ones, vector)?)
            }
        })
    }
    /// Prefetches `bytes` after a whole vector of contiguous elements; past the end of a buffer
    /// that has no effect.
    pub fn prefetch(&self, c: Code, buffer: Value, at: LaneValue, bytes: usize) -> Result<()> {
        let (LaneValue::Strided(i, 1), None) = (at, self.mask) else { return Ok(()) };
        let size =
            buffer.ty().element().ok_or("reads from what is no buffer")?.dtype()?.byte_size();
        let ahead = c.add(i, c.index((bytes / size) as i64)?)?;
        memref::prefetch(c, buffer, &[ahead], false, 3, true)
    }
    /// Stores elements of a flat buffer. `nontemporal`: streaming stores of whole vectors, aligned
    /// to their size.
    pub fn store(
        &self,
        c: Code,
        buffer: Value,
        at: LaneValue,
        v: LaneValue,
        nontemporal: bool,
    ) -> Result<()> {
        let bytes = self.count
            * buffer.ty().element().ok_or("writes to what is no buffer")?.dtype()?.byte_size();
        match (at, v, self.mask) {
            (LaneValue::Uniform(i), LaneValue::Uniform(v), _) => memref::store(c, v, buffer, &[i]),
            (LaneValue::Uniform(_), ..) => Err("writes several values to one place".into()),
            (LaneValue::Strided(i, 1), _, None) => {
                let store = vector::Store::new(c, self.vector(c, v)?, buffer, &[i]);
                let store = if nontemporal {
                    store.nontemporal(true).alignment(bytes as i64)
                } else {
                    store
                };
                store.build().map(drop)
            }
            (LaneValue::Strided(i, 1), _, Some(m)) => {
                vector::maskedstore(c, buffer, &[i], m, self.vector(c, v)?)
            }
            _ => {
                let (first, at) = (c.index(0)?, self.vector(c, at)?);
                vector::scatter(
                    c,
                    buffer,
                    &[first],
                    at,
                    self.full_mask(c)?,
                    self.vector(c, v)?,
                    &[],
                )
                .map(drop)
            }
        }
    }
}
