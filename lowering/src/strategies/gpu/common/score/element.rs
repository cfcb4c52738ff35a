//! Emits a masked score: each value at most once for what it depends on, and affine values as a
//! register with a step per column.
use crate::{
    analysis::Access,
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::common::{
        ptx::Ptx,
        score::{COLUMN, ROW, SCORE, Score, ScoreCache, Sym, dim, integer, number, small},
    },
};
use kiln_dialects::{ir::*, value::DType};

/// Fast-math flags: products with sums may contract to FMAs, and products with constants may be
/// reassociated.
fn exactness(product: bool) -> FastMathFlags {
    match product {
        true => FastMathFlags::REASSOC | FastMathFlags::CONTRACT,
        false => FastMathFlags::CONTRACT,
    }
}

impl Score<'_> {
    pub(super) fn value(
        &self,
        c: Code,
        v: Value,
        row: usize,
        column: usize,
        known: &mut ScoreCache,
        raw: Option<Value>,
    ) -> Result<Sym> {
        if v == self.raw {
            return raw.map(Sym::Value).ok_or_else(|| "reads a score where there is none".into());
        }
        if let Some((_, rest)) = self.product.filter(|(product, _)| *product == v) {
            return self.value(c, rest, row, column, known, raw);
        }
        if known.inside && self.window_conditions.contains(&v) {
            return c.integer(1, v.ty()).map(Sym::Value);
        }
        if let Some(n) = small(v) {
            return Ok(Sym::AffineInt(Ptx(c).constant(n)?, 0));
        }
        let Some(bits) = self.depends.get(&v) else { return self.scope.scalar(v).map(Sym::Value) };
        let beyond = known.first.is_some_and(|(_, last)| last.is_some());
        let each = bits & SCORE != 0
            || (bits & COLUMN != 0
                && (beyond || !(self.affine_ints.contains(&v) || self.affine_floats.contains(&v))));
        let key = (v, (bits & (ROW | SCORE) != 0).then_some(row), each.then_some(column));
        if let Some(found) = known.values.get(&key) {
            return Ok(*found);
        }
        let made = match v.def().filter(|_| v.block_arg().is_none()) {
            Some(op) => self.result(c, op, row, column, known, raw)?,
            None => Sym::Value(self.read(c, v, row, column, known)?),
        };
        known.values.insert(key, made);
        Ok(made)
    }

    /// The column's position, of index type.
    fn column(&self, c: Code, column: usize, known: &ScoreCache) -> Result<Value> {
        let p = Ptx(c);
        let Some((first, last)) = known.first else { return c.index(0) };
        let at = p.add_const(first, column)?;
        let at = last.map_or(Ok(at), |last| p.min(at, last))?;
        arith::index_cast(c, at, Type::index(c.ctx()))
    }

    /// Reads an operand of the stage.
    fn read(
        &self,
        c: Code,
        v: Value,
        row: usize,
        column: usize,
        known: &ScoreCache,
    ) -> Result<Value> {
        let (_, i) = v.block_arg().ok_or("reads what is no operand")?;
        let a: &Access = self.stage.inputs.get(i).ok_or("reads what is no operand")?;
        let mut dims: Vec<LaneValue> = known.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
        let index = |v: Value| arith::index_cast(c, v, Type::index(c.ctx()));
        dims.extend([
            LaneValue::Uniform(index(known.rows[row])?),
            LaneValue::Uniform(self.column(c, column, known)?),
        ]);
        let one = Lanes { count: 1, mask: None };
        let at = self.scope.address(c, &a.at, &dims, one)?;
        one.vector(c, one.load(c, self.scope.buffer(a.buffer)?, at)?)
    }

    /// Materialises a symbolic value with this type.
    pub(super) fn materialise(&self, c: Code, s: Sym, column: usize, ty: Type) -> Result<Value> {
        let (base, step) = match s {
            Sym::Value(v) => return Ok(v),
            Sym::AffineInt(base, step) => (base, step),
            Sym::AffineFloat(base, step) if column == 0 || number(step) == Some(0.0) => {
                return Ok(base);
            }
            Sym::AffineFloat(base, step) => {
                return math::fma(c, step, c.number(column as f64, ty)?, base);
            }
        };
        let v = Ptx(c).add_signed(base, step * column as i64)?;
        match ty {
            t if t == v.ty() => Ok(v),
            t if t.is_index() => arith::index_cast(c, v, t),
            t => arith::extsi(c, v, t),
        }
    }

    fn result(
        &self,
        c: Code,
        op: Op,
        row: usize,
        column: usize,
        known: &mut ScoreCache,
        raw: Option<Value>,
    ) -> Result<Sym> {
        let (c, p) = (Code(c.0.at(op.loc())), Ptx(Code(c.0.at(op.loc()))));
        let (name, ty) = (op.name(), op.result(0).ty());
        if op.isa::<linalg::Index>() {
            let d = dim(op).map_or(0, |d| d as usize);
            return Ok(match d {
                d if d == self.outer => Sym::AffineInt(known.rows[row], 0),
                d if d == self.outer + 1 => match known.first {
                    Some((first, None)) => Sym::AffineInt(first, 1),
                    _ => Sym::AffineInt(p.index_to_i32(self.column(c, column, known)?)?, 0),
                },
                d => Sym::AffineInt(
                    p.index_to_i32(
                        *known.outer.get(d).ok_or("asks for a loop that is not there")?,
                    )?,
                    0,
                ),
            });
        }
        // `tensor.extract` reads from a tensor, which is no scalar operand.
        let inputs = op.operands().split_off(usize::from(op.isa::<tensor::Extract>()));
        let all = inputs
            .iter()
            .map(|v| self.value(c, *v, row, column, known, raw))
            .collect::<Result<Vec<Sym>>>()?;
        let steps = |n: i64| if n == 1 { Ok(None) } else { p.constant(n).map(Some) };
        match (name.as_str(), all.as_slice()) {
            (arith::AddI::NAME, [Sym::AffineInt(a, x), Sym::AffineInt(b, y)]) => {
                return Ok(Sym::AffineInt(p.add(*a, *b)?, x + y));
            }
            (arith::SubI::NAME, [Sym::AffineInt(a, x), Sym::AffineInt(b, y)]) => {
                return Ok(Sym::AffineInt(p.sub(*a, *b)?, x - y));
            }
            (arith::MulI::NAME, [Sym::AffineInt(a, x), Sym::AffineInt(b, y)])
                if self.affine_ints.contains(&op.result(0)) =>
            {
                let (value, step, n) = match (integer(op.operand(1)), integer(op.operand(0))) {
                    (Some(n), _) => (*a, *x, n),
                    (_, Some(n)) => (*b, *y, n),
                    _ => return Err("multiplies positions".into()),
                };
                let value = match steps(n)? {
                    Some(n) => arith::muli(c, value, n)?,
                    None => value,
                };
                return Ok(Sym::AffineInt(value, step * n));
            }
            (
                arith::IndexCast::NAME | arith::ExtSI::NAME | arith::TruncI::NAME,
                [Sym::AffineInt(a, x)],
            ) if self.affine_ints.contains(&op.result(0)) => {
                return Ok(Sym::AffineInt(*a, *x));
            }
            (arith::SIToFP::NAME, [Sym::AffineInt(a, x)]) if ty.dtype() == Ok(DType::F32) => {
                // Exact below 2^24, the largest range in which f32 represents every integer.
                return Ok(Sym::AffineFloat(arith::sitofp(c, *a, ty)?, c.number(*x as f64, ty)?));
            }
            (arith::AddF::NAME | arith::SubF::NAME, [a, b])
                if self.affine_floats.contains(&op.result(0)) =>
            {
                let nothing = c.number(0.0, ty)?;
                let parts = |s: &Sym| match s {
                    Sym::AffineFloat(base, step) => Ok([*base, *step]),
                    Sym::Value(v) => Ok([*v, nothing]),
                    Sym::AffineInt(..) => Err("adds an integer to a float".to_string()),
                };
                let [a, b] = [parts(a)?, parts(b)?];
                let both = |x: Value, y: Value| match op.isa::<arith::AddF>() {
                    true => arith::addf(c, x, y),
                    false => arith::subf(c, x, y),
                };
                return Ok(Sym::AffineFloat(both(a[0], b[0])?, both(a[1], b[1])?));
            }
            (
                arith::MulF::NAME,
                [Sym::AffineFloat(base, step), Sym::Value(v)]
                | [Sym::Value(v), Sym::AffineFloat(base, step)],
            ) if self.affine_floats.contains(&op.result(0)) => {
                let by = |x: Value| arith::mulf(c, x, *v);
                return Ok(Sym::AffineFloat(by(*base)?, by(*step)?));
            }
            (arith::CmpI::NAME, [Sym::AffineInt(a, x), Sym::AffineInt(b, y)]) => {
                use CmpIPredicate as P;
                let predicate = op.dyn_cast::<arith::CmpI>().and_then(|op| op.predicate());
                if let Some(signed @ (P::Eq | P::Ne | P::Slt | P::Sle | P::Sgt | P::Sge)) =
                    predicate
                {
                    let number = p.constant((y - x) * column as i64)?;
                    return Ok(Sym::Value(c.compare(signed, p.sub(*a, *b)?, number)?));
                }
            }
            _ => {}
        }
        let pairs = all.iter().zip(&inputs);
        let operands = pairs
            .map(|(s, v)| self.materialise(c, *s, column, v.ty()))
            .collect::<Result<Vec<Value>>>()?;
        if op.isa::<tensor::Extract>() {
            let view = self
                .scope
                .kernel
                .views
                .get(&op.operand(0))
                .ok_or("reads a tensor that is not there")?;
            let mut at = self.scope.poly(c, &view.offset)?;
            for (i, stride) in operands.iter().zip(&view.strides) {
                at = c.add(at, c.mul(*i, self.scope.poly(c, stride)?)?)?;
            }
            return Ok(Sym::Value(memref::load(c, self.scope.buffer(view.buffer)?, &[at])?));
        }
        if op.result_count() != 1 || !op.regions().is_empty() {
            return Err(format!("has a {name} in its body").into());
        }
        let narrow = ty.dtype() == Ok(DType::F32);
        if let (math::Tanh::NAME, true, [x]) = (name.as_str(), narrow, operands.as_slice()) {
            return p.tanh(*x).map(Sym::Value);
        }
        let attrs = op.attrs();
        let mut attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        if let (arith::DivF::NAME, true, [x, _], Some(n)) = (
            name.as_str(),
            narrow,
            operands.as_slice(),
            op.operands().last().copied().and_then(number),
        ) {
            // Division by a constant becomes a product with its reciprocal, at the cost of one
            // rounding more.
            let part = c.number((1.0 / n as f32).into(), ty)?;
            let product = arith::MulF::new(c, *x, part).fastmath(exactness(true));
            return product.result().map(Sym::Value);
        }
        if [arith::AddF::NAME, arith::SubF::NAME, arith::MulF::NAME].contains(&name.as_str()) {
            attrs.retain(|(n, _)| *n != "fastmath");
            attrs.push(("fastmath", exactness(op.isa::<arith::MulF>()).attr(c.ctx())?));
        }
        Ok(Sym::Value(c.op(&name, &operands, ty, &attrs)?))
    }
}
