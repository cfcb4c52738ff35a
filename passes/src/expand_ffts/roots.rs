//! Roots of unity, computed in f64 by ops on numbers that are known: programs run these once, when
//! they are loaded.
use crate::{decompose::tools::Math, formula::Formula};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Powers of `e^(-2 pi i / n)`, or with a positive exponent if `inverse`.
#[derive(Clone, Copy)]
pub struct Roots {
    /// The length.
    pub n: Size,
    /// Whether the exponent's sign is positive.
    pub inverse: bool,
}

impl Roots {
    /// The powers of exponents (i64) that are not negative: real and imaginary parts, in f64. The
    /// angle is reduced to a quarter, so that multiples of a quarter are exact.
    pub fn at(self, b: &Builder, exponents: Value) -> Result<(Value, Value)> {
        let f = Formula::new(b);
        let k = f.of(exponents);
        let n = match self.n.known() {
            Some(n) => k.number(n as f64),
            None => f.emit(b.size_as_tensor(self.n, k.dtype())),
        };
        let four = k.remainder(n) * 4.0;
        let quarter = four.floor_div(n);
        let rest = (four - quarter * n).to(DType::F64);
        let angle = rest / n.to(DType::F64) * std::f64::consts::FRAC_PI_2;
        let (sin, cos) = (angle.sin(), angle.cos());
        let odd = quarter.eq(1.0) | quarter.eq(3.0);
        let (re, im) = (odd.select(sin, cos), odd.select(cos, sin));
        let left = quarter.eq(1.0) | quarter.eq(2.0);
        let below = quarter.ge(2.0);
        let below = if self.inverse { below } else { !below };
        let (re, im) = (left.select(-re, re), below.select(-im, im));
        Ok((f.end(re)?, f.end(im)?))
    }

    /// The matrix `[n, parts, 2 k]` of a transform from n to k numbers, `d`: places and parts of its
    /// input, parts and places of its result. Real numbers have one part.
    pub fn matrix(
        self,
        b: &Builder,
        d: DType,
        (n, parts, k): (Size, i64, Size),
        scale: f64,
    ) -> Result<Value> {
        let m = Math { b };
        let (re, im) = self.at(b, grid(b, &[n, k], 0, 1)?)?;
        let by = |v: Value| m.mul(v, m.full_like(v, scale)?);
        let (re, im) = (by(re)?, by(im)?);
        let mut all = stacked(b, re, im, 1)?;
        if parts == 2 {
            let turned = stacked(b, m.unary(UnaryKind::Neg, im)?, re, 1)?;
            all = stacked(b, all, turned, 1)?;
        }
        let both = m.size(SymKind::Mul, k, Size::Static(2))?;
        m.reshape(m.convert(all, d)?, &[n, Size::Static(parts), both])
    }
}

/// The products (i64) of the indices of two dimensions of a shape.
pub fn grid(b: &Builder, shape: &[Size], i: usize, j: usize) -> Result<Value> {
    let m = Math { b };
    m.mul(m.iota(shape, i)?, m.iota(shape, j)?)
}

/// Two tensors along a new dimension.
pub fn stacked(b: &Builder, x: Value, y: Value, axis: usize) -> Result<Value> {
    let m = Math { b };
    let mut sizes = m.sizes_of(x)?;
    sizes.insert(axis, Size::Static(1));
    let inputs = vec![m.reshape(x, &sizes)?, m.reshape(y, &sizes)?];
    b.add(&Concat { inputs, axis: axis as i64 })
}
