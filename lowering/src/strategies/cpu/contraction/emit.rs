//! Register tiles of rows by vectors in cache blocks: contractions, with accumulators in registers
//! across the reduction loops, and transposes.
use crate::{
    analysis::{Access, Buffer, Kernel, LinearExpr, Nest, Poly, Role, row_major},
    emit::{
        body::{ForwardedElements, Scope},
        code::{Code, distance},
        lanes::Lanes,
        loops::{FixedDims, Loops, decode},
    },
    strategies::cpu::{
        common::tasks::{Threads, blocks},
        contraction::TileRoles,
        transpose::registers,
    },
    target::kernel_attrs::IN_PLACE,
};
use kiln_dialects::{ir::*, sym::Dim};
use std::collections::HashMap;

/// Sizes of the tiles and blocks of a contraction or a transpose.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    /// Vectors of columns of a register tile.
    pub n: usize,
    /// Rows of a register tile.
    pub m: usize,
    /// Rows of a block.
    pub m_block: usize,
    /// Columns of a block.
    pub n_block: usize,
    /// Whether the operand that all rows share is packed.
    pub pack: bool,
    /// Whether squares are transposed in registers.
    pub in_registers: bool,
}

/// Emits the nest of a contraction or a transpose.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    nest: &Nest,
    roles: &TileRoles,
    tiles: &Tiles,
    threads: Threads,
) -> Result<()> {
    let loops =
        Loops { scope, nest, vector: Some(roles.vector), lanes: roles.lanes, unroll: tiles.n };
    let copy = match roles.pack.filter(|_| tiles.pack) {
        Some(input) => Some(Panel::new(c, &loops, input)?),
        None => None,
    };
    let across = registers::across(&loops, roles.rows).filter(|_| tiles.in_registers);
    // In place, an overwritten input cannot be read again.
    let again = scope.kernel.func.attr(IN_PLACE).is_none();
    let step = RowBlocking { max_rows: tiles.m, transposed: across, may_recompute: again };
    let none: FixedDims = vec![None; nest.extents.len()];
    let size = |d: usize| scope.poly(c, &nest.extents[d]);
    let (m, n) = (size(roles.rows)?, size(roles.columns)?);
    let (m_block, n_block) = (c.index(tiles.m_block as i64)?, c.index(tiles.n_block as i64)?);
    let mut sizes: Vec<Value> = roles.outer.iter().map(|d| size(*d)).collect::<Result<_>>()?;
    sizes.extend([c.ceil_div(n, n_block)?, c.ceil_div(m, m_block)?]);
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    blocks(c, total, 1, threads, &mut |c, i| {
        let at = decode(c, i, &sizes)?;
        let mut fixed = none.clone();
        roles.outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
        let part = |i: Value, block: Value, size: Value| -> Result<(Value, Value)> {
            let lo = c.mul(i, block)?;
            Ok((lo, c.block_end(lo, block, size)?))
        };
        let mut columns = part(at[roles.outer.len()], n_block, n)?;
        let rows = part(at[roles.outer.len() + 1], m_block, m)?;
        if roles.columns == roles.vector {
            // The last block of a split dimension may be shorter.
            if loops.is_cut(roles.vector) {
                columns.1 = c.min(columns.1, loops.size(c, roles.vector, &fixed)?)?;
            }
            return panel(c, &loops, &fixed, columns, (roles.rows, rows), &step, copy.as_ref());
        }
        c.for_loop(columns.0, columns.1, 1, &[], &mut |c, i, _| {
            let mut fixed = fixed.clone();
            fixed[roles.columns] = Some(i);
            let whole = (c.index(0)?, loops.size(c, roles.vector, &fixed)?);
            panel(c, &loops, &fixed, whole, (roles.rows, rows), &step, copy.as_ref())
                .map(|()| vec![])
        })?;
        Ok(())
    })
}

/// How rows are divided.
struct RowBlocking {
    /// Most rows at once.
    max_rows: usize,
    /// Operands that are transposed in registers.
    transposed: Option<Vec<Access>>,
    /// Whether a row may be computed twice.
    may_recompute: bool,
}

/// All rows for each group of vectors, so that the group's operand stays in the L1 cache.
fn panel(
    c: Code,
    loops: &Loops<'_>,
    fixed: &FixedDims,
    columns: (Value, Value),
    rows: (usize, (Value, Value)),
    step: &RowBlocking,
    copy: Option<&Panel>,
) -> Result<()> {
    let (d, (lo, hi)) = rows;
    loops.chunks(c, columns.0, columns.1, &[], &mut |c, start, count, mask, _| {
        let copied = copy.map(|p| p.fill(c, loops, fixed, start, count, mask)).transpose()?;
        let scope = copied.as_ref().map(|(kernel, scalars, memory)| Scope {
            kernel,
            scalars: scalars.clone(),
            memory: memory.clone(),
            ..loops.scope.clone()
        });
        let loops = Loops { scope: scope.as_ref().unwrap_or(loops.scope), ..*loops };
        let mut at = lo;
        let square = step
            .transposed
            .as_ref()
            .filter(|_| count == 1 && mask.is_none())
            .zip(distance(lo, hi).filter(|n| *n >= loops.lanes as i64));
        if let Some((reads, all)) = square {
            let n = loops.lanes as i64;
            let whole = c.add(lo, c.index(all / n * n)?)?;
            c.for_loop(lo, whole, n, &[], &mut |c, i, _| {
                registers::emit(c, &loops, fixed, start, (d, i), reads).map(|()| vec![])
            })?;
            at = whole;
            if all % n != 0 && step.may_recompute {
                // The last square overlaps the one before it.
                registers::emit(
                    c,
                    &loops,
                    fixed,
                    start,
                    (d, c.add(lo, c.index(all - n)?)?),
                    reads,
                )?;
                at = hi;
            }
        }
        // Remaining rows take smaller tiles.
        let mut counts = vec![step.max_rows.max(1)];
        counts.extend([4, 1].into_iter().filter(|n| *n < step.max_rows));
        for group in counts {
            let size = c.index(group as i64)?;
            let whole = c.div(c.sub(hi, at)?, size)?;
            let end = c.add(at, c.mul(whole, size)?)?;
            c.for_loop(at, end, group as i64, &[], &mut |c, i, _| {
                loops
                    .parallel(c, fixed, Some(start), count, mask, Some((d, i, group)))
                    .map(|()| vec![])
            })?;
            at = end;
        }
        Ok(vec![])
    })?;
    Ok(())
}

/// A packed operand, in the order in which the register tile reads it.
struct Panel {
    stage: usize,
    input: usize,
    memory: Value,
}

/// A kernel that reads the packed operand, its scalars and its memory.
type Copied = (Kernel, HashMap<Value, Value>, Vec<Option<Value>>);

impl Panel {
    fn new(c: Code, loops: &Loops<'_>, input: usize) -> Result<Panel> {
        let stage = *loops.nest.stages.first().ok_or("has no stage")?;
        let buffer =
            loops.scope.kernel.stages[stage].inputs.get(input).ok_or("has no such input")?.buffer;
        let element = loops.scope.kernel.buffers[buffer].element;
        let depth = Poly::product(Self::depth(loops.nest).iter().map(|d| &loops.nest.extents[*d]));
        let count = depth.known().ok_or("has a schedule that packs a dynamic size")?
            * (loops.unroll * loops.lanes) as i64;
        let ty = Type::memref(element, &[Dim::Known(count)]);
        let memory = memref::Alloca::new(c, &[], &[], ty).alignment(64).result()?;
        Ok(Panel { stage, input, memory })
    }
    fn depth(nest: &Nest) -> Vec<usize> {
        (0..nest.extents.len()).filter(|d| nest.reduction[*d]).collect()
    }
    /// Packs what `count` vectors from `start` on read.
    fn fill(
        &self,
        c: Code,
        loops: &Loops<'_>,
        fixed: &FixedDims,
        start: Value,
        count: usize,
        mask: Option<Value>,
    ) -> Result<Copied> {
        let (scope, vector) = (loops.scope, loops.vector.ok_or("has no vector dimension")?);
        let depth = Self::depth(loops.nest);
        let sizes: Vec<Poly> = depth.iter().map(|d| loops.nest.extents[*d].clone()).collect();
        let width = Poly::number((count * loops.lanes) as i64);
        let mut at = LinearExpr::dim(vector);
        for (d, stride) in depth.iter().zip(row_major(&sizes)) {
            at = at.plus(&LinearExpr::dim(*d).times(&stride.times(&width)));
        }
        at.constant = Poly::symbol(start).times(&Poly::number(-1));
        let (mut kernel, mut scalars, mut memory) =
            (scope.kernel.clone(), scope.scalars.clone(), scope.memory.clone());
        let old = std::mem::replace(
            &mut kernel.stages[self.stage].inputs[self.input],
            Access { buffer: memory.len(), at: at.clone() },
        );
        kernel.buffers.push(Buffer {
            element: kernel.buffers[old.buffer].element,
            sizes,
            role: Role::Temporary,
        });
        memory.push(Some(self.memory));
        scalars.insert(start, start);
        let new = Scope {
            kernel: &kernel,
            scalars: scalars.clone(),
            memory: memory.clone(),
            ..scope.clone()
        };
        // The packed operand does not depend on the rows.
        let rows: FixedDims = fixed
            .iter()
            .enumerate()
            .map(|(d, v)| if v.is_none() && !loops.nest.reduction[d] { Some(start) } else { *v })
            .collect();
        loops.reductions(c, &rows, &[], &mut |c, fixed, _| {
            for n in 0..count {
                let mut free = fixed.clone();
                free[vector] = None;
                let dims = loops.dims(c, &free, Some(loops.lane(c, start, n)?))?;
                let lanes = Lanes { count: loops.lanes, mask };
                let v = scope.read(c, &old, &dims, lanes, &ForwardedElements::new())?;
                let all = Lanes { count: loops.lanes, mask: None };
                all.store(c, self.memory, new.address(c, &at, &dims, all)?, v, false)?;
            }
            Ok(vec![])
        })?;
        Ok((kernel, scalars, memory))
    }
}
