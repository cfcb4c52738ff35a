//! Emits a product's prologue on the left operand's fragments, in registers.
//!
//! A thread has elements of a few rows and, in each K step, of 16 columns. Values that depend on
//! rows only are computed once per tile, values that depend on columns only once per K step.
use crate::{
    analysis::{Access, Stage},
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
        partials,
    },
    strategies::gpu::{
        common::{fragments::ProductResults, ptx::Ptx},
        prologue::Prologue,
        wgmma_gemm::DEPTH,
    },
};
use kiln_dialects::{ir::*, value::DType};
use std::collections::HashMap;

/// Bits: the dimensions that a value depends on.
pub const ROW: u8 = 1;
/// See [`ROW`].
pub const COLUMN: u8 = 2;

const ONE_LANE: Lanes = Lanes { count: 1, mask: None };

/// A value of the body, with its row and its column where it depends on these.
type Key = (Value, Option<usize>, Option<usize>);

/// The values of a product's prologue.
pub struct PrologueValues<'a> {
    /// The stage that contracts.
    pub stage: &'a Stage,
    /// Its prologue.
    pub prologue: &'a Prologue,
    /// The block argument of the left operand's element.
    pub raw: Value,
    depends: HashMap<Value, u8>,
}

impl<'a> PrologueValues<'a> {
    /// Of a product that has a prologue.
    pub fn of(results: &'a ProductResults<'a>) -> Result<PrologueValues<'a>> {
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
        let ([row], [k_dim]) = (product.roles.rows.as_slice(), product.roles.k.as_slice()) else {
            return Err("has several dimensions of rows".into());
        };
        let mut depends = HashMap::new();
        for i in &prologue.inputs {
            let (a, v) = (
                stage.inputs.get(*i).ok_or("reads what is no input")?,
                *args.get(*i).ok_or("reads what is no input")?,
            );
            depends
                .insert(v, u8::from(a.at.uses(*row)) * ROW + u8::from(a.at.uses(*k_dim)) * COLUMN);
        }
        for op in &prologue.ops {
            let bits = op.operands().iter().filter_map(|v| depends.get(v)).fold(0, |a, b| a | b);
            op.results().into_iter().for_each(|v| {
                depends.insert(v, bits);
            });
        }
        Ok(PrologueValues { stage, prologue, raw, depends })
    }
    /// Bits of what a value depends on; `None` of one from outside.
    pub fn bits(&self, v: Value) -> Option<u8> {
        self.depends.get(&v).copied()
    }
    /// All values, operands first.
    pub fn all(&self) -> Vec<Value> {
        let body = self.stage.op.regions().first().and_then(|r| r.first());
        let args = body.map(|b| b.args()).unwrap_or_default();
        let inputs = self.prologue.inputs.iter().filter_map(|i| args.get(*i).copied());
        inputs.chain(self.prologue.ops.iter().flat_map(|op| op.results())).collect()
    }
}

/// The prologue of a product, at a thread's position.
pub struct PrologueElements<'a> {
    results: &'a ProductResults<'a>,
    values: PrologueValues<'a>,
    /// The batch position.
    batch: Vec<Value>,
    /// The thread's rows, as indices clamped to bounds.
    rows: Vec<Value>,
    cache: HashMap<Key, Value>,
    /// The size of K, if a K step may exceed it.
    depth: Option<Value>,
}

/// A K step: the thread's first column, the cached values of its columns, and which columns are in
/// bounds.
#[derive(Default)]
pub struct KStep {
    first: Option<Value>,
    cache: HashMap<Key, Value>,
    in_bounds: Vec<Value>,
}

/// A thread's columns of a K step, relative to its first one: a pair of each eight.
fn columns() -> impl Iterator<Item = usize> {
    (0..DEPTH / 8).map(|eight| 8 * eight)
}

impl<'a> PrologueElements<'a> {
    /// At a tile. `rows`: the thread's rows, as 32-bit integers, possibly out of bounds.
    pub fn of(
        c: Code,
        results: &'a ProductResults<'a>,
        batch: &[Value],
        rows: &[Value],
    ) -> Result<PrologueElements<'a>> {
        let values = PrologueValues::of(results)?;
        let k_dim = results.product.roles.k[0];
        let last = c.sub(results.rows(c)?, c.index(1)?)?;
        // Rows out of bounds read what the last row reads, and their results are not stored.
        let there = |row: &Value| {
            let row = Ptx(c).i32_to_index(*row)?;
            if results.is_full()[0] { Ok(row) } else { c.min(row, last) }
        };
        let rows: Vec<Value> = rows.iter().map(there).collect::<Result<_>>()?;
        let extent = &results.nest.extents[k_dim];
        let depth = if extent.multiple_of(DEPTH as i64) {
            None
        } else {
            Some(results.scope.poly(c, extent)?)
        };
        let mut e = PrologueElements {
            results,
            values,
            batch: batch.to_vec(),
            rows,
            cache: HashMap::new(),
            depth,
        };
        let mut tile = KStep::default();
        for v in e.values.all().into_iter().filter(|v| e.bits(*v) & !ROW == 0) {
            for row in 0..if e.bits(v) == 0 { 1 } else { e.rows.len() } {
                e.value(c, v, row, 0, &mut tile, None)?;
            }
        }
        e.cache = tile.cache;
        Ok(e)
    }

    fn bits(&self, v: Value) -> u8 {
        self.values.bits(v).unwrap_or(0)
    }

    /// A K step. `first`: the thread's first column, as a 32-bit integer.
    pub fn step(&self, c: Code, first: Value) -> Result<KStep> {
        let (p, mut step) =
            (Ptx(c), KStep { first: Some(first), cache: self.cache.clone(), in_bounds: vec![] });
        if let Some(depth) = self.depth {
            let depth = p.index_to_i32(depth)?;
            // slt; a pair is in bounds as a whole, since rows are multiples of 16 bytes.
            step.in_bounds = columns()
                .map(|at| c.compare(CmpIPredicate::Slt, p.add_const(first, at)?, depth))
                .collect::<Result<_>>()?;
        }
        Ok(step)
    }

    /// An element of the left factor in f32, given the raw operand's element. `column`: relative to
    /// the thread's first column.
    pub fn element(
        &self,
        c: Code,
        step: &mut KStep,
        raw: Value,
        row: usize,
        column: usize,
    ) -> Result<Value> {
        let v = self.value(c, self.values.prologue.value, row, column, step, Some(raw))?;
        // Beyond K the right operand is 0, and 0 × NaN is NaN, so the left one must be 0 too.
        match step.in_bounds.get(column / 8) {
            Some(there) => c.select(*there, v, c.number(0.0, v.ty())?),
            None => Ok(v),
        }
    }

    /// The left factor's elements of a K step as fragment registers: of each 16 columns, both rows
    /// of the first 8, then both rows of the second 8, in pairs.
    pub fn packed(&self, p: Ptx, made: &[Value]) -> Result<Vec<Value>> {
        made.chunks(2)
            .map(|unpack_pair| {
                p.pack_pair(self.values.prologue.element, unpack_pair[0], unpack_pair[1])
            })
            .collect()
    }

    fn value(
        &self,
        c: Code,
        v: Value,
        row: usize,
        column: usize,
        step: &mut KStep,
        raw: Option<Value>,
    ) -> Result<Value> {
        if v == self.values.raw {
            return raw.ok_or_else(|| "reads an element where there is none".into());
        }
        let Some(bits) = self.values.bits(v) else { return self.results.scope.scalar(v) };
        let key = (v, (bits & ROW != 0).then_some(row), (bits & COLUMN != 0).then_some(column));
        if let Some(found) = step.cache.get(&key) {
            return Ok(*found);
        }
        let made = match (v.block_arg(), v.def()) {
            (Some((_, i)), _) if bits & COLUMN == 0 => {
                let a = self.values.stage.inputs.get(i).ok_or("reads what is no input")?;
                self.read(c, a, self.rows[row], c.index(0)?, 1)?[0]
            }
            // Loads the adjacent element too. Loads stay at their use, since those of a whole K
            // step would exceed registers.
            (Some((_, i)), _) if bits & ROW == 0 => {
                let a = self.values.stage.inputs.get(i).ok_or("reads what is no input")?;
                let (first, even) =
                    (step.first.ok_or("reads columns in front of the steps")?, column / 2 * 2);
                let pair = self.pair(c, a, Ptx(c).add_const(first, even)?)?;
                (0..2).for_each(|e| {
                    step.cache.insert((v, None, Some(even + e)), pair[e]);
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
                        .map(|v| LaneValue::Uniform(*v))
                        .ok_or_else(|| "takes what is not there".into())
                };
                let c = Code(c.0.at(op.loc()));
                match self.results.scope.scalar_op(c, self.values.stage, op, &[], ONE_LANE, &get)? {
                    LaneValue::Uniform(v) => v,
                    _ => return Err("has several values where one is wanted".into()),
                }
            }
            _ => return Err("reads another tensor of all rows and columns".into()),
        };
        step.cache.insert(key, made);
        Ok(made)
    }

    /// Two adjacent elements of a value that depends on columns only, clamped to the last pair.
    fn pair(&self, c: Code, a: &Access, column: Value) -> Result<[Value; 2]> {
        let p = Ptx(c);
        let column = match self.depth {
            Some(depth) => p.min(column, p.add_signed(p.index_to_i32(depth)?, -2)?)?,
            None => column,
        };
        let (column, zero) = (p.i32_to_index(column)?, c.index(0)?);
        let k_dim = self.results.product.roles.k[0];
        let even = |d: &usize, n: &crate::analysis::Poly| *d == k_dim || n.multiple_of(2);
        let together = a.at.coefficient(k_dim).known() == Some(1)
            && a.at.constant.multiple_of(2)
            && a.at.dims.iter().all(|(d, n)| even(d, n));
        if together {
            return <[Value; 2]>::try_from(self.read(c, a, zero, column, 2)?)
                .map_err(|_| "reads no pair".into());
        }
        let one = |column: Value| Ok::<Value, String>(self.read(c, a, zero, column, 1)?[0]);
        Ok([one(column)?, one(c.add(column, c.index(1)?)?)?])
    }

    /// Contiguous elements of another operand.
    fn read(
        &self,
        c: Code,
        a: &Access,
        row: Value,
        column: Value,
        count: usize,
    ) -> Result<Vec<Value>> {
        let roles = &self.results.product.roles;
        let mut dims = vec![LaneValue::Uniform(c.index(0)?); self.results.nest.extents.len()];
        roles.batch.iter().zip(&self.batch).for_each(|(d, i)| dims[*d] = LaneValue::Uniform(*i));
        dims[roles.rows[0]] = LaneValue::Uniform(row);
        dims[roles.k[0]] =
            if count > 1 { LaneValue::Strided(column, 1) } else { LaneValue::Uniform(column) };
        let (lanes, scope) = (Lanes { count, mask: None }, self.results.scope);
        match lanes.load(c, scope.buffer(a.buffer)?, scope.address(c, &a.at, &dims, lanes)?)? {
            LaneValue::Uniform(v) => Ok(vec![v]),
            v => (0..count).map(|i| partials::extract_lane(c, lanes.vector(c, v)?, i)).collect(),
        }
    }
}

/// Unpacks two adjacent elements from a 32-bit register.
pub fn unpack_pair(c: Code, word: Value, element: DType) -> Result<[Value; 2]> {
    let both = llvm::bitcast(c, word, Type::vector(Type::scalar(c.ctx(), element), 2))?;
    Ok([partials::extract_lane(c, both, 0)?, partials::extract_lane(c, both, 1)?])
}
