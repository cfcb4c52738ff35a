//! Products whose left operand is computed: consumers read their rows of the tile from shared
//! memory, run the prologue on them and multiply the result from registers. The prologue of the
//! next K step overlaps the product of the current one.
use crate::{
    analysis::Access,
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
    },
    strategies::gpu::{
        common::{ptx::Ptx, tile::Tile},
        prologue::emit::{COLUMN, PrologueValues, ROW},
        wgmma_gemm::{
            DEPTH,
            tile::{TileCoord, WgmmaTile},
        },
    },
};
use kiln_dialects::{ir::*, value::DType};
use std::collections::HashMap;

const ONE: Lanes = Lanes { count: 1, mask: None };

/// The left operand at a tile.
struct LeftOperand<'a> {
    tile: &'a WgmmaTile<'a>,
    values: PrologueValues<'a>,
    batch: &'a [Value],
    /// Values that depend on no column: scalars, and rows.
    scalars: HashMap<Value, Value>,
    rows: Vec<(Value, Value)>,
    /// The size of K, if a K step may exceed it.
    depth: Option<Value>,
}

impl<'a> LeftOperand<'a> {
    fn of(c: Code, tile: &'a WgmmaTile<'a>, coord: &'a TileCoord) -> Result<LeftOperand<'a>> {
        let (t, p, r) = (Tile(c), Ptx(c), &tile.results);
        let (nest, k_dim) = (r.nest, r.product.roles.k[0]);
        let extent = nest.extents.get(k_dim).ok_or("has no K")?;
        let whole = extent.multiple_of(DEPTH as i64);
        let depth = (!whole).then(|| r.scope.poly(c, extent)).transpose()?;
        let values = PrologueValues::of(r)?;
        let (scalars, rows) = (HashMap::new(), vec![]);
        let mut left = LeftOperand { tile, values, batch: &coord.batch, scalars, rows, depth };
        let (mut scalars, zero) = (HashMap::new(), c.index(0)?);
        let all = left.values.all();
        let of = |v: &Value, bits: u8| left.values.bits(*v) == Some(bits);
        for v in all.iter().filter(|v| of(v, 0)) {
            left.value(c, *v, &mut scalars, zero)?;
        }
        // Rows beyond the last read what it reads; their results are not stored.
        let read = |v: &Value| of(v, ROW) && left.is_read(*v);
        let wanted: Vec<Value> = all.iter().copied().filter(read).collect();
        let mut rows = vec![];
        if !wanted.is_empty() {
            let last = c.sub(r.rows(c)?, c.index(1)?)?;
            let last = (!r.is_full()[0]).then(|| p.index_to_i32(last)).transpose()?;
            let f = tile.fragments();
            let positions = t.iota(coord.row, last, f.row(Type::index(c.ctx())))?;
            let types: Vec<Type> = wanted.iter().map(|v| f.row(v.ty())).collect();
            let made = t.map(&[positions], &types, &mut |c, x| {
                let mut known = scalars.clone();
                wanted.iter().map(|v| left.value(c, *v, &mut known, x[0])).collect()
            })?;
            rows = wanted.into_iter().zip(made).collect();
        }
        (left.scalars, left.rows) = (scalars, rows);
        Ok(left)
    }
    /// Whether a value is the result, or one that values of columns are computed from.
    fn is_read(&self, v: Value) -> bool {
        let of_columns = |op: &Op| {
            let bits = op.results().first().and_then(|r| self.values.bits(*r));
            bits.is_some_and(|bits| bits & COLUMN != 0)
        };
        let mut users = self.values.prologue.ops.iter().filter(|op| op.operands().contains(&v));
        v == self.values.prologue.value || users.any(of_columns)
    }

    /// A value of the body, where operands that are not known depend on rows only.
    fn value(
        &self,
        c: Code,
        v: Value,
        known: &mut HashMap<Value, Value>,
        row: Value,
    ) -> Result<Value> {
        if let Some(made) = known.get(&v) {
            return Ok(*made);
        }
        if self.values.bits(v).is_none() {
            return self.tile.results.scope.scalar(v);
        }
        let made = match (v.block_arg(), v.def()) {
            (Some((_, i)), _) => {
                let (scope, a) = (self.tile.results.scope, self.input(i)?);
                let at = self.address(c, a, row, c.index(0)?)?;
                ONE.vector(c, ONE.load(c, scope.buffer(a.buffer)?, LaneValue::Uniform(at))?)?
            }
            (None, Some(op)) => {
                for operand in op.operands() {
                    let made = self.value(c, operand, known, row)?;
                    known.insert(operand, made);
                }
                let get = |v: Value| match known.get(&v) {
                    Some(v) => Ok(LaneValue::Uniform(*v)),
                    None => self.tile.results.scope.scalar(v).map(LaneValue::Uniform),
                };
                let (c, scope) = (Code(c.0.at(op.loc())), self.tile.results.scope);
                ONE.vector(c, scope.scalar_op(c, self.values.stage, op, &[], ONE, &get)?)?
            }
            _ => return Err("takes what is not there".into()),
        };
        known.insert(v, made);
        Ok(made)
    }
    fn input(&self, i: usize) -> Result<&Access> {
        Ok(self.values.stage.inputs.get(i).ok_or("reads what is no input")?)
    }
    fn address(&self, c: Code, a: &Access, row: Value, column: Value) -> Result<Value> {
        let (r, roles) = (&self.tile.results, &self.tile.results.product.roles);
        let mut dims = vec![LaneValue::Uniform(c.index(0)?); r.nest.extents.len()];
        roles.batch.iter().zip(self.batch).for_each(|(d, i)| dims[*d] = LaneValue::Uniform(*i));
        dims[roles.rows[0]] = LaneValue::Uniform(row);
        dims[roles.k[0]] = LaneValue::Uniform(column);
        ONE.vector(c, r.scope.address(c, &a.at, &dims, ONE)?)
    }

    /// Elements of an operand that depends on columns only, clamped to the last pair.
    fn columns(&self, c: Code, v: Value, positions: Value) -> Result<Value> {
        let (_, i) = v.block_arg().ok_or("reads what is no operand")?;
        let (a, r) = (self.input(i)?, &self.tile.results);
        let k_dim = r.product.roles.k[0];
        let together = a.at.coefficient(k_dim).known() == Some(1)
            && a.at.constant.multiple_of(2)
            && a.at.dims.iter().all(|(d, n)| *d == k_dim || n.multiple_of(2));
        let memory = r.scope.buffer(a.buffer)?;
        let ty = self.tile.fragments().columns(v.ty(), DEPTH);
        let mut address = |c: Code, column: Value| {
            let column = match self.depth {
                Some(depth) => c.min(column, c.sub(depth, c.index(2)?)?)?,
                None => column,
            };
            self.address(c, a, c.index(0)?, column)
        };
        let vector = if together { 2 } else { 1 };
        Tile(c).load(memory, positions, (vector, false), &mut address, ty)
    }

    /// The left operand of a K step, in f32.
    fn step(&self, c: Code, stage: Value, step: Value) -> Result<Value> {
        let (t, p, f, product) = (Tile(c), Ptx(c), self.tile.fragments(), self.tile.product());
        let raw = Type::scalar(c.ctx(), product.raw);
        let tile = t.view(self.tile.left, stage)?;
        let raw = t.local_load(tile, f.accumulator(raw, DEPTH))?;
        let first = p.mul_const(step, DEPTH)?;
        let positions = t.iota(first, None, f.columns(Type::index(c.ctx()), DEPTH))?;
        let mut operands = vec![(self.values.raw, raw)];
        operands.extend(&self.rows);
        for v in self.values.all() {
            if v != self.values.raw && v.def().is_none() && self.values.bits(v) == Some(COLUMN) {
                operands.push((v, self.columns(c, v, positions)?));
            }
        }
        let mut inputs: Vec<Value> = operands.iter().map(|(_, made)| *made).collect();
        inputs.extend(self.depth.into_iter().flat_map(|depth| [positions, depth]));
        let ty = f.accumulator(Type::scalar(c.ctx(), DType::F32), DEPTH);
        t.map_one(&inputs, ty, &mut |c, x| {
            let mut known = self.scalars.clone();
            known.extend(operands.iter().zip(x).map(|((v, _), x)| (*v, *x)));
            let made = self.value(c, self.values.prologue.value, &mut known, c.index(0)?)?;
            // Beyond K the right operand is 0, and 0 × NaN is NaN, so the left one must be 0 too.
            match &x[operands.len()..] {
                [column, depth] => {
                    let there = c.compare(CmpIPredicate::Slt, *column, *depth)?;
                    c.select(there, made, c.number(0.0, made.ty())?)
                }
                _ => Ok(made),
            }
        })
    }
    /// The same as a left operand in registers.
    fn rounded(&self, c: Code, made: Value) -> Result<Value> {
        let element = Type::scalar(c.ctx(), self.values.prologue.element);
        Tile(c).convert(made, self.tile.fragments().operand(element, DEPTH))
    }
}

impl WgmmaTile<'_> {
    fn multiply_registers(&self, c: Code, left: Value, sums: Value, stage: Value) -> Result<Value> {
        let (t, transposed) = (Tile(c), self.product().rights[0].k_major);
        t.mma(left, t.view(self.right, stage)?, Some(sums), transposed, sums.ty())
    }

    /// The consumers.
    pub(super) fn consume_computed(&self, c: Code) -> Result<()> {
        self.for_each_tile(c, &mut |c, coord, first| {
            let (t, p) = (Tile(c), Ptx(c));
            let left = LeftOperand::of(c, self, coord)?;
            t.wait(self.left, first)?;
            let made = left.step(c, first, p.number(0)?)?;
            let zero = c.number(0.0, self.accumulators(c, self.n))?;
            // Loop-carried: accumulators, left operand, stage.
            let state = [zero, left.rounded(c, made)?, first];
            let (one, count) = (c.index(1)?, self.k_split.count);
            let done = c.for_dynamic_step(one, count, one, &state, &mut |c, step, state| {
                let (t, operand, stage) = (Tile(c), state[1], state[2]);
                let sums = self.multiply_registers(c, operand, state[0], stage)?;
                let next = t.next_stage(self.left, stage)?;
                t.wait(self.left, next)?;
                let made = left.step(c, next, Ptx(c).index_to_i32(step)?)?;
                // Ends a basic block: otherwise ptxas sinks the prologue below the wgmma wait. For
                // the same reason the prologue's results pass through that wait and are rounded
                // only after it.
                t.wait(self.left, next)?;
                let done = t.mma_wait(0, &[sums, made], &[operand])?;
                t.release(self.left, stage)?;
                Ok(vec![done[0], left.rounded(c, done[1])?, next])
            })?;
            let sums = self.multiply_registers(c, done[1], done[0], done[2])?;
            let sums = t.mma_wait(0, &[sums], &[done[1]])?[0];
            t.release(self.left, done[2])?;
            self.finish(c, coord, sums)?;
            t.next_stage(self.left, done[2])
        })
    }
}
