//! Masked attention scores (score modifications), element by element of a fragment: any expression
//! of a score, its position and what is in memory.
//!
//! A thread has scores of two rows, and of columns at static distances from its first one.
//!
//! - Values that depend on rows only are computed once for all keys.
//! - Values that depend on columns only are computed once for both rows.
//! - Integers that are affine in the position are one register for a tile: a comparison of two is
//!   one of a register with a constant.
//! - Floats with such an integer as a factor are two registers for a row of a tile, and one op for
//!   an element.
use crate::{
    analysis::{Access, Attention, Body, Stage},
    emit::{
        body::Scope,
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::common::ptx::Ptx,
};
use kiln_dialects::{ir::*, value::DType};
use std::collections::{HashMap, HashSet};

/// Greatest coefficient of a position in an affine value: positions below 2^22 times it fit 32
/// bits.
const FACTOR: i64 = 256;
/// Greatest constant in an affine value.
const NUMBER: i64 = 1 << 22;

/// Bits of what a value depends on.
const ROW: u8 = 1;
const COLUMN: u8 = 2;
const SCORE: u8 = 4;

/// The analysed stage of the masked scores.
#[derive(Clone)]
pub struct Score<'a> {
    scope: &'a Scope<'a>,
    stage: &'a Stage,
    outer: usize,
    /// The block argument of the raw score.
    raw: Value,
    /// The score expression, without the comparisons of positions.
    root: Value,
    /// A final multiplication by the factor, or one inside selects whose other side is -inf, and
    /// the value that replaces it.
    product: Option<(Value, Value)>,
    /// Whether the caller applies the causal mask, as it does the sequence lengths.
    pub causal: bool,
    /// Positive factor that is still to be applied to the result.
    pub factor: f64,
    /// Query i attends to no key after i + this.
    pub last_key: Option<i64>,
    /// Query i attends to no key before i - this (sliding window).
    pub window: Option<i64>,
    /// The comparisons that state this window.
    window_conditions: HashSet<Value>,
    depends: HashMap<Value, u8>,
    affine_ints: HashSet<Value>,
    affine_floats: HashSet<Value>,
}

/// A symbolic value at an element.
#[derive(Clone, Copy)]
enum Sym {
    /// An i32 affine in the column: a register, and its step per column.
    AffineInt(Value, i64),
    /// An f32 affine in the column: value, and step per column.
    AffineFloat(Value, Value),
    /// Any other value.
    Value(Value),
}

/// Values computed so far at a position, and the position.
#[derive(Clone)]
pub struct ScoreCache {
    outer: Vec<Value>,
    rows: [Value; 2],
    /// The thread's first column, and the last valid one if the tile may go beyond.
    first: Option<(Value, Option<Value>)>,
    /// Whether the window masks no key of the tile for any row.
    inside: bool,
    values: HashMap<(Value, Option<usize>, Option<usize>), Sym>,
}

fn number(v: Value) -> Option<f64> {
    v.def_as::<arith::Constant>()?.value()?.as_f64()
}

/// The loop that a `linalg.index` asks for.
fn dim(op: Op) -> Option<i64> {
    op.dyn_cast::<linalg::Index>()?.dim()
}

fn integer(v: Value) -> Option<i64> {
    v.def_as::<arith::Constant>()?.value()?.as_i64()
}

/// Fast-math flags: products with sums may contract to FMAs, and products with constants may be
/// reassociated.
fn exactness(product: bool) -> FastMathFlags {
    match product {
        true => FastMathFlags::REASSOC | FastMathFlags::CONTRACT,
        false => FastMathFlags::CONTRACT,
    }
}

/// Comparisons of integers that mask a score with -inf unless they hold.
fn conditions(v: Value) -> Vec<Op> {
    let (mut all, mut scores, mut masks) = (vec![], vec![v], vec![]);
    while let Some(v) = scores.pop() {
        let Some(op) = v.def() else { continue };
        if op.isa::<arith::AddF>() {
            scores.extend(op.operands());
        } else if op.isa::<arith::Select>() && number(op.operand(2)) == Some(f64::NEG_INFINITY) {
            masks.push(op.operand(0));
            scores.push(op.operand(1));
        }
    }
    while let Some(v) = masks.pop() {
        let Some(op) = v.def() else { continue };
        if op.isa::<arith::AndI>() {
            masks.extend(op.operands());
        } else if op.isa::<arith::CmpI>() {
            all.push(op);
        }
    }
    all
}

/// The score where neither comparisons of positions nor other masks make it -inf.
fn unmasked(mut v: Value) -> Value {
    while let Some(op) = v
        .def()
        .filter(|op| op.isa::<arith::Select>() && number(op.operand(2)) == Some(f64::NEG_INFINITY))
    {
        v = op.operand(1);
    }
    v
}

/// A small integer constant, splat or scalar.
fn small(v: Value) -> Option<i64> {
    let wide = v.ty().is_index() || matches!(v.ty().dtype(), Ok(DType::I32 | DType::I64));
    integer(v).filter(|n| wide && n.abs() <= NUMBER)
}

impl<'a> Score<'a> {
    /// Analyses the masked scores of an attention kernel.
    pub fn of(scope: &'a Scope<'a>, at: &Attention) -> Result<Score<'a>> {
        let k = scope.kernel;
        let stage = k.stages.get(at.seen).ok_or("has no such stage")?;
        let Body::Block(block) = stage.body else {
            return Err("has scores that nothing computes".into());
        };
        let scores =
            k.stages.get(at.scores).and_then(|s| s.outputs.first()).ok_or("has no scores")?;
        let place = stage
            .inputs
            .iter()
            .position(|a| *a == scores.access)
            .ok_or("does not read its scores")?;
        let raw = *block.args().get(place).ok_or("does not read its scores")?;
        let root = at.limits.root;
        let (mut product, mut factor) = (None, 1.0);
        // Any other user of the product needs it with the factor.
        let alone = |op: &Op| op.isa::<arith::MulF>() && op.result(0).uses().len() == 1;
        if let Some(op) = unmasked(root).def().filter(alone) {
            let [a, b] = [op.operand(0), op.operand(1)];
            let positive = |v: Value| number(v).filter(|f| *f > 0.0 && f.is_finite());
            if let Some((f, rest)) =
                positive(b).map(|f| (f, a)).or_else(|| positive(a).map(|f| (f, b)))
            {
                (factor, product) = (f, Some((op.result(0), rest)));
            }
        }
        let mut s = Score {
            scope,
            stage,
            outer: at.outer,
            raw,
            root,
            product,
            causal: at.limits.causal,
            factor,
            last_key: at.limits.causal.then_some(0),
            window: None,
            window_conditions: HashSet::new(),
            depends: HashMap::new(),
            affine_ints: HashSet::new(),
            affine_floats: HashSet::new(),
        };
        s.analyse(block);
        for c in conditions(root) {
            s.bound(c);
        }
        Ok(s)
    }
    /// Turns a comparison of positions that must hold into a bound on the visible keys.
    fn bound(&mut self, compare: Op) -> Option<()> {
        let (l, r) = (self.sum(compare.operand(0))?, self.sum(compare.operand(1))?);
        let number = l[2] - r[2];
        let predicate = compare.attr("predicate").and_then(Attr::as_i64)?;
        // Normalised to key - query + constant, below or above 0.
        let (number, below, equal) = match ([l[0] - r[0], l[1] - r[1]], predicate) {
            ([-1, 1], 2 | 3) => (number, true, predicate == 3),
            ([-1, 1], 4 | 5) => (number, false, predicate == 5),
            ([1, -1], 2 | 3) => (-number, false, predicate == 3),
            ([1, -1], 4 | 5) => (-number, true, predicate == 5),
            _ => return None,
        };
        let least = |old: Option<i64>, new: i64| Some(old.map_or(new, |old| old.min(new)));
        let edge = i64::from(!equal);
        if below {
            self.last_key = least(self.last_key, -number - edge)
        } else {
            self.window = least(self.window, number - edge);
            self.window_conditions.insert(compare.result(0));
        }
        Some(())
    }
    /// Coefficients of query and key, and the constant, of an affine value.
    fn sum(&self, v: Value) -> Option<[i64; 3]> {
        let op = v.def().filter(|_| self.affine_ints.contains(&v) || small(v).is_some())?;
        let both = || Some((self.sum(op.operand(0))?, self.sum(op.operand(1))?));
        let each = |f: &dyn Fn(i64, i64) -> i64| {
            both().map(|(a, b)| [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2])])
        };
        match op.name().as_str() {
            linalg::Index::NAME => match dim(op)? as usize {
                d if d == self.outer => Some([1, 0, 0]),
                d if d == self.outer + 1 => Some([0, 1, 0]),
                _ => None,
            },
            arith::Constant::NAME => Some([0, 0, integer(v)?]),
            arith::AddI::NAME => each(&|a, b| a + b),
            arith::SubI::NAME => each(&|a, b| a - b),
            arith::MulI::NAME => None,
            _ => self.sum(op.operand(0)),
        }
    }
    /// Whether the result is the raw score times the factor, or -inf.
    pub fn is_scaled_only(&self) -> bool {
        let v = unmasked(self.root);
        self.product.filter(|(product, _)| *product == v).map_or(v, |(_, rest)| rest) == self.raw
    }

    fn analyse(&mut self, block: Block) {
        let (row, column) = (self.outer, self.outer + 1);
        for (i, v) in block.args().into_iter().enumerate() {
            let read = self.stage.inputs.get(i).filter(|_| v != self.raw);
            let bits = read.map_or(SCORE, |a| {
                u8::from(a.at.uses(row)) * ROW + u8::from(a.at.uses(column)) * COLUMN
            });
            self.depends.insert(v, bits);
        }
        for op in block.ops().into_iter().filter(|o| o.result_count() == 1) {
            let mut bits = op.operands().iter().map(|v| self.depends(*v)).fold(0, |a, b| a | b);
            if op.isa::<linalg::Index>() {
                let d = dim(op).map_or(0, |d| d as usize);
                bits = u8::from(d == row) * ROW + u8::from(d == column) * COLUMN;
            }
            let v = op.result(0);
            self.depends.insert(v, bits);
            if self.is_affine_int(op) {
                self.affine_ints.insert(v);
            }
            if self.is_affine_float(op) {
                self.affine_floats.insert(v);
            }
        }
    }
    fn depends(&self, v: Value) -> u8 {
        self.depends.get(&v).copied().unwrap_or(0)
    }
    /// Whether an op's result is affine in the positions.
    fn is_affine_int(&self, op: Op) -> bool {
        let linear =
            |i: usize| self.affine_ints.contains(&op.operand(i)) || small(op.operand(i)).is_some();
        let factor = |i: usize| integer(op.operand(i)).is_some_and(|n| n.abs() <= FACTOR);
        match op.name().as_str() {
            linalg::Index::NAME => true,
            arith::Constant::NAME => small(op.result(0)).is_some(),
            arith::AddI::NAME | arith::SubI::NAME => linear(0) && linear(1),
            arith::MulI::NAME => (linear(0) && factor(1)) || (linear(1) && factor(0)),
            arith::IndexCast::NAME | arith::ExtSI::NAME => linear(0),
            arith::TruncI::NAME => linear(0) && op.result(0).ty().dtype() == Ok(DType::I32),
            _ => false,
        }
    }

    /// Whether an op's result is a float that grows by the same step per column: positions, their
    /// products with column-invariant values (assumed finite), and sums of these.
    fn is_affine_float(&self, op: Op) -> bool {
        let grows = |i: usize| self.affine_floats.contains(&op.operand(i));
        let fixed = |i: usize| self.depends(op.operand(i)) & !ROW == 0;
        let either = || (grows(0) && (fixed(1) || grows(1))) || (fixed(0) && grows(1));
        op.result(0).ty().dtype() == Ok(DType::F32)
            && match op.name().as_str() {
                arith::SIToFP::NAME => self.affine_ints.contains(&op.operand(0)),
                arith::AddF::NAME | arith::SubF::NAME => either(),
                arith::MulF::NAME => either() && !(grows(0) && grows(1)),
                _ => false,
            }
    }

    /// Computes what is invariant over keys, once. `rows`: both rows of the thread, clamped to
    /// existing ones.
    pub fn rows(&self, c: Code, outer: &[Value], rows: [Value; 2]) -> Result<ScoreCache> {
        let mut known = ScoreCache {
            outer: outer.to_vec(),
            rows,
            first: None,
            inside: false,
            values: HashMap::new(),
        };
        let Body::Block(block) = self.stage.body else { return Ok(known) };
        let used = self.used();
        let all = block.args().into_iter().chain(block.ops().into_iter().flat_map(Op::results));
        for v in all.filter(|v| used.contains(v) && self.depends(*v) & !ROW == 0) {
            for r in 0..if self.depends(v) == 0 { 1 } else { 2 } {
                self.value(c, v, r, 0, &mut known, None)?;
            }
        }
        Ok(known)
    }
    /// The values that the root uses.
    fn used(&self) -> HashSet<Value> {
        let (mut used, mut stack) = (HashSet::new(), vec![self.root]);
        while let Some(v) = stack.pop() {
            if used.insert(v) {
                stack.extend(
                    v.def()
                        .filter(|_| self.depends.contains_key(&v))
                        .map(Op::operands)
                        .unwrap_or_default(),
                );
            }
        }
        used
    }
    /// State of a tile of keys. `first`: the thread's first column. `last`: the last key, if the
    /// tile may go beyond it. `inside`: whether the window masks no key for any row.
    pub fn tile(
        &self,
        rows: &ScoreCache,
        first: Value,
        last: Option<Value>,
        inside: bool,
    ) -> ScoreCache {
        ScoreCache { first: Some((first, last)), inside, ..rows.clone() }
    }
    /// The masked score in row `row` of the thread, `column` columns after its first one, without
    /// the factor.
    pub fn element(
        &self,
        c: Code,
        known: &mut ScoreCache,
        raw: Value,
        row: usize,
        column: usize,
    ) -> Result<Value> {
        match self.value(c, self.root, row, column, known, Some(raw))? {
            Sym::AffineInt(..) => Err("has scores that are integers".into()),
            s => self.materialise(c, s, column, raw.ty()),
        }
    }

    fn value(
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
    fn materialise(&self, c: Code, s: Sym, column: usize, ty: Type) -> Result<Value> {
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
