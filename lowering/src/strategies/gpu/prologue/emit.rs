//! What a product's prologue computes of the left operand's elements, in the registers of the
//! thread that has them.
//!
//! A thread has elements of a few rows and, in each step of the depth, of 16 columns. What depends
//! on rows only is computed once for a tile, what depends on columns only once for a step.
use crate::{
    analysis::{Access, Stage},
    emit::{
        code::Code,
        lanes::{Lanes, Val},
        partials,
    },
    strategies::gpu::{
        common::{fragments::Results, ptx::Ptx},
        prologue::Prologue,
        wgmma_gemm::DEPTH,
    },
};
use kiln_dialects::{ir::*, value::DType};
use std::collections::HashMap;

/// What a value depends on, as bits.
const ROW: u8 = 1;
const COLUMN: u8 = 2;

const ONE: Lanes = Lanes { count: 1, mask: None };

/// A value's place in the body, with the row and the column that it is of where it depends on
/// these.
type Key = (Value, Option<usize>, Option<usize>);

/// The prologue of a product, and where a thread is.
pub struct Elements<'a> {
    results: &'a Results<'a>,
    stage: &'a Stage,
    prologue: &'a Prologue,
    depends: HashMap<Value, u8>,
    /// The place in the batch.
    batch: Vec<Value>,
    /// The thread's rows, as indices: ones that there are.
    rows: Vec<Value>,
    /// The block argument that is the left operand's element.
    raw: Value,
    known: HashMap<Key, Value>,
    /// How many columns there are, if a step may go beyond them.
    depth: Option<Value>,
}

/// A step of the depth: the thread's first column, what is known of its columns, and which of them
/// are there.
#[derive(Default)]
pub struct Step {
    first: Option<Value>,
    known: HashMap<Key, Value>,
    there: Vec<Value>,
}

/// Where in a step of the depth a thread's columns are, counted from its first one: pairs in each
/// eight.
fn columns() -> impl Iterator<Item = usize> {
    (0..DEPTH / 8).map(|eight| 8 * eight)
}

impl<'a> Elements<'a> {
    /// At a tile. `rows`: the thread's rows, as numbers, which may be beyond the last one.
    pub fn of(
        c: Code,
        results: &'a Results<'a>,
        batch: &[Value],
        rows: &[Value],
    ) -> Result<Elements<'a>> {
        let product = results.product;
        let prologue = product.prologue.as_ref().ok_or("has no prologue")?;
        let stage = product
            .stages
            .first()
            .and_then(|s| results.scope.kernel.stages.get(*s))
            .ok_or("has no such stage")?;
        let args = stage.op.regions().first().and_then(|r| r.first()).ok_or("has no body")?.args();
        let access = prologue.raw(stage).ok_or("has no left operand")?;
        let number = stage.inputs.iter().position(|a| a == access).ok_or("has no left operand")?;
        let raw = *args.get(number).ok_or("has no left operand")?;
        let ([row], [deep]) = (product.roles.rows.as_slice(), product.roles.depth.as_slice())
        else {
            return Err("has several dimensions of rows".into());
        };
        let mut depends = HashMap::new();
        for i in &prologue.inputs {
            let (a, v) = (
                stage.inputs.get(*i).ok_or("reads what is no input")?,
                *args.get(*i).ok_or("reads what is no input")?,
            );
            depends
                .insert(v, u8::from(a.at.uses(*row)) * ROW + u8::from(a.at.uses(*deep)) * COLUMN);
        }
        for op in &prologue.ops {
            let bits = op.operands().iter().filter_map(|v| depends.get(v)).fold(0, |a, b| a | b);
            op.results().into_iter().for_each(|v| {
                depends.insert(v, bits);
            });
        }
        let last = c.sub(results.rows(c)?, c.index(1)?)?;
        // Those beyond the end read what the last one reads, and nobody stores what comes of it.
        let there = |row: &Value| {
            let row = Ptx(c).index(*row)?;
            if results.whole()[0] { Ok(row) } else { c.min(row, last) }
        };
        let rows: Vec<Value> = rows.iter().map(there).collect::<Result<_>>()?;
        let extent = &results.nest.extents[*deep];
        let depth = if extent.multiple_of(DEPTH as i64) {
            None
        } else {
            Some(results.scope.poly(c, extent)?)
        };
        let mut e = Elements {
            results,
            stage,
            prologue,
            depends,
            batch: batch.to_vec(),
            rows,
            raw,
            known: HashMap::new(),
            depth,
        };
        let mut tile = Step::default();
        let all = prologue
            .inputs
            .iter()
            .filter_map(|i| args.get(*i).copied())
            .chain(prologue.ops.iter().flat_map(|op| op.results()));
        for v in all.filter(|v| e.bits(*v) & !ROW == 0) {
            for row in 0..if e.bits(v) == 0 { 1 } else { e.rows.len() } {
                e.value(c, v, row, 0, &mut tile, None)?;
            }
        }
        e.known = tile.known;
        Ok(e)
    }

    fn bits(&self, v: Value) -> u8 {
        self.depends.get(&v).copied().unwrap_or(0)
    }

    /// A step of the depth. `first`: the thread's first column, as a number.
    pub fn step(&self, c: Code, first: Value) -> Result<Step> {
        let (p, mut step) =
            (Ptx(c), Step { first: Some(first), known: self.known.clone(), there: vec![] });
        if let Some(depth) = self.depth {
            let depth = p.of(depth)?;
            // slt; of a pair both are there, since rows are multiples of 16 bytes.
            step.there = columns()
                .map(|at| c.compare(2, p.plus(first, at)?, depth))
                .collect::<Result<_>>()?;
        }
        Ok(step)
    }

    /// An element of the product's left factor in f32, given the operand's own. `column`: counted
    /// from the thread's first one.
    pub fn element(
        &self,
        c: Code,
        step: &mut Step,
        raw: Value,
        row: usize,
        column: usize,
    ) -> Result<Value> {
        let v = self.value(c, self.prologue.value, row, column, step, Some(raw))?;
        // Zeros of the right operand are behind the end of the depth, which must not be multiplied
        // with what is no number.
        match step.there.get(column / 8) {
            Some(there) => c.select(*there, v, c.constant("0.0", v.ty())?),
            None => Ok(v),
        }
    }

    /// Registers of a thread with the left factor's elements in a step, as products take them: of
    /// each 16 columns, both rows of the first 8 and both of the others, in pairs.
    pub fn packed(&self, p: Ptx, made: &[Value]) -> Result<Vec<Value>> {
        made.chunks(2).map(|two| p.pair(self.prologue.element.name(), two[0], two[1])).collect()
    }

    fn value(
        &self,
        c: Code,
        v: Value,
        row: usize,
        column: usize,
        step: &mut Step,
        raw: Option<Value>,
    ) -> Result<Value> {
        if v == self.raw {
            return raw.ok_or_else(|| "reads an element where there is none".into());
        }
        let Some(bits) = self.depends.get(&v) else { return self.results.scope.scalar(v) };
        let key = (v, (bits & ROW != 0).then_some(row), (bits & COLUMN != 0).then_some(column));
        if let Some(found) = step.known.get(&key) {
            return Ok(*found);
        }
        let made = match (v.block_arg(), v.def()) {
            (Some((_, i)), _) if bits & COLUMN == 0 => {
                let a = self.stage.inputs.get(i).ok_or("reads what is no input")?;
                self.read(c, a, self.rows[row], c.index(0)?, 1)?[0]
            }
            // With its neighbour; where it is wanted, since all of a step's would fill the
            // registers.
            (Some((_, i)), _) if bits & ROW == 0 => {
                let a = self.stage.inputs.get(i).ok_or("reads what is no input")?;
                let (first, even) =
                    (step.first.ok_or("reads columns in front of the steps")?, column / 2 * 2);
                let pair = self.pair(c, a, Ptx(c).plus(first, even)?)?;
                (0..2).for_each(|e| {
                    step.known.insert((v, None, Some(even + e)), pair[e]);
                });
                return Ok(pair[column % 2]);
            }
            (None, Some(op)) => {
                let all = op
                    .operands()
                    .into_iter()
                    .map(|v| Ok((v, self.value(c, v, row, column, step, raw)?)));
                let all = all.collect::<Result<HashMap<Value, Value>>>()?;
                let get = |v: Value| {
                    all.get(&v)
                        .map(|v| Val::One(*v))
                        .ok_or_else(|| "takes what is not there".into())
                };
                let c = Code(c.0.at(op.loc()));
                match self.results.scope.scalar_op(c, self.stage, op, &[], ONE, &get)? {
                    Val::One(v) => v,
                    _ => return Err("has several values where one is wanted".into()),
                }
            }
            _ => return Err("reads another tensor of all rows and columns".into()),
        };
        step.known.insert(key, made);
        Ok(made)
    }

    /// Two neighbours of what depends on columns only; of the last ones if they are beyond the end.
    fn pair(&self, c: Code, a: &Access, column: Value) -> Result<[Value; 2]> {
        let p = Ptx(c);
        let column = match self.depth {
            Some(depth) => p.least(column, p.shifted(p.of(depth)?, -2)?)?,
            None => column,
        };
        let (column, zero) = (p.index(column)?, c.index(0)?);
        let deep = self.results.product.roles.depth[0];
        let even = |d: &usize, n: &crate::analysis::Poly| *d == deep || n.multiple_of(2);
        let together = a.at.coefficient(deep).known() == Some(1)
            && a.at.constant.multiple_of(2)
            && a.at.dims.iter().all(|(d, n)| even(d, n));
        if together {
            return <[Value; 2]>::try_from(self.read(c, a, zero, column, 2)?)
                .map_err(|_| "reads no pair".into());
        }
        let one = |column: Value| Ok::<Value, String>(self.read(c, a, zero, column, 1)?[0]);
        Ok([one(column)?, one(c.add(column, c.index(1)?)?)?])
    }

    /// Neighbours of another operand from a place on.
    fn read(
        &self,
        c: Code,
        a: &Access,
        row: Value,
        column: Value,
        count: usize,
    ) -> Result<Vec<Value>> {
        let roles = &self.results.product.roles;
        let mut dims = vec![Val::One(c.index(0)?); self.results.nest.extents.len()];
        roles.batch.iter().zip(&self.batch).for_each(|(d, i)| dims[*d] = Val::One(*i));
        dims[roles.rows[0]] = Val::One(row);
        dims[roles.depth[0]] = if count > 1 { Val::Steps(column, 1) } else { Val::One(column) };
        let (lanes, scope) = (Lanes { count, mask: None }, self.results.scope);
        match lanes.load(c, scope.buffer(a.buffer)?, scope.address(c, &a.at, &dims, lanes)?)? {
            Val::One(v) => Ok(vec![v]),
            v => (0..count).map(|i| partials::part(c, lanes.many(c, v)?, i)).collect(),
        }
    }
}

/// Two neighbours in a register of 32 bits.
pub fn two(c: Code, word: Value, element: DType) -> Result<[Value; 2]> {
    let both =
        c.op("llvm.bitcast", &[word], Type::vector(Type::scalar(c.ctx(), element), 2), &[])?;
    Ok([partials::part(c, both, 0)?, partials::part(c, both, 1)?])
}
