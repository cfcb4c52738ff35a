//! Masked scores of a thread, where a strategy emits its code directly.
use crate::{
    analysis::{Access, Body},
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::common::{
        ptx::Ptx,
        score::{Elements, Known, Leaves, ROW, Score, Sym, dim},
    },
};
use kiln_dialects::ir::*;

/// Values computed so far at a position, and the position.
#[derive(Clone)]
pub struct ScoreCache {
    outer: Vec<Value>,
    rows: [Value; 2],
    /// The thread's first column, and the last valid one if the tile may go beyond.
    first: Option<(Value, Option<Value>)>,
    /// Whether the window masks no key of the tile for any row.
    inside: bool,
    values: Known,
}

/// A score at a position.
struct Place<'a> {
    score: &'a Score<'a>,
    outer: &'a [Value],
    rows: [Value; 2],
    first: Option<(Value, Option<Value>)>,
    inside: bool,
    raw: Option<Value>,
}

impl Place<'_> {
    /// The column's position, as i32.
    fn column(&self, c: Code, column: usize) -> Result<Value> {
        let p = Ptx(c);
        let Some((first, last)) = self.first else { return p.number(0) };
        let at = p.add_const(first, column)?;
        last.map_or(Ok(at), |last| p.min(at, last))
    }

    /// Reads an operand of the stage.
    fn read(&self, c: Code, i: usize, row: usize, column: usize) -> Result<Value> {
        let a: &Access = self.score.stage.inputs.get(i).ok_or("reads what is no operand")?;
        let mut dims: Vec<LaneValue> = self.outer.iter().map(|i| LaneValue::Uniform(*i)).collect();
        let index = |v: Value| arith::index_cast(c, v, Type::index(c.ctx()));
        dims.extend([
            LaneValue::Uniform(index(self.rows[row])?),
            LaneValue::Uniform(index(self.column(c, column)?)?),
        ]);
        let one = Lanes { count: 1, mask: None };
        let scope = self.score.scope;
        let at = scope.address(c, &a.at, &dims, one)?;
        one.vector(c, one.load(c, scope.buffer(a.buffer)?, at)?)
    }
}

impl Leaves for Place<'_> {
    fn leaf(&self, c: Code, v: Value, row: usize, column: usize) -> Result<Option<Sym>> {
        let s = self.score;
        if v == s.raw {
            let raw = self.raw.map(Sym::Value);
            return raw.map(Some).ok_or_else(|| "reads a score where there is none".into());
        }
        if s.holds(v, self.inside) {
            return c.integer(1, v.ty()).map(Sym::Value).map(Some);
        }
        if !s.graph.has(v) {
            return s.scope.scalar(v).map(Sym::Value).map(Some);
        }
        if let Some((_, i)) = v.block_arg() {
            return self.read(c, i, row, column).map(Sym::Value).map(Some);
        }
        let Some(d) = v.def().and_then(dim) else { return Ok(None) };
        let p = Ptx(c);
        Ok(Some(match d as usize {
            d if d == s.outer => Sym::AffineInt(self.rows[row], 0),
            d if d == s.outer + 1 => match self.first {
                Some((first, None)) => Sym::AffineInt(first, 1),
                _ => Sym::AffineInt(self.column(c, column)?, 0),
            },
            d => {
                let index = self.outer.get(d).ok_or("asks for a loop that is not there")?;
                Sym::AffineInt(p.index_to_i32(*index)?, 0)
            }
        }))
    }
    fn extract(&self, c: Code, op: Op, indices: &[Value]) -> Result<Value> {
        let scope = self.score.scope;
        let view =
            scope.kernel.views.get(&op.operand(0)).ok_or("reads a tensor that is not there")?;
        let mut at = scope.poly(c, &view.offset)?;
        for (i, stride) in indices.iter().zip(&view.strides) {
            at = c.add(at, c.mul(*i, scope.poly(c, stride)?)?)?;
        }
        memref::load(c, scope.buffer(view.buffer)?, &[at])
    }
    fn stands_for(&self, v: Value) -> Value {
        self.score.product.filter(|(product, _)| *product == v).map_or(v, |(_, rest)| rest)
    }
}

impl Score<'_> {
    /// Evaluates values of the body at a position.
    fn at<R>(
        &self,
        known: &mut ScoreCache,
        raw: Option<Value>,
        f: impl FnOnce(&Elements<'_>, &mut Known) -> Result<R>,
    ) -> Result<R> {
        let ScoreCache { outer, rows, first, inside, values } = known;
        let place = Place { score: self, outer, rows: *rows, first: *first, inside: *inside, raw };
        let clamped = first.is_some_and(|(_, last)| last.is_some());
        f(&Elements { graph: &self.graph, leaves: &place, clamped, fast: true }, values)
    }
    /// Computes what is invariant over keys, once. `rows`: both rows of the thread, clamped to
    /// existing ones.
    pub fn rows(&self, c: Code, outer: &[Value], rows: [Value; 2]) -> Result<ScoreCache> {
        let mut known = ScoreCache {
            outer: outer.to_vec(),
            rows,
            first: None,
            inside: false,
            values: Known::new(),
        };
        let Body::Block(block) = self.stage.body else { return Ok(known) };
        let used = self.used();
        let all = block.args().into_iter().chain(block.ops().into_iter().flat_map(Op::results));
        for v in all.filter(|v| used.contains(v) && self.graph.depends(*v) & !ROW == 0) {
            for r in 0..if self.graph.depends(v) == 0 { 1 } else { 2 } {
                self.at(&mut known, None, |all, known| all.value(c, known, v, r, 0).map(drop))?;
            }
        }
        Ok(known)
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
        self.at(known, Some(raw), |all, known| {
            match all.value(c, known, self.root, row, column)? {
                Sym::AffineInt(..) => Err("has scores that are integers".into()),
                s => all.materialise(c, s, column, raw.ty()),
            }
        })
    }
}
