//! Maps over the elements of fragments.
use crate::{
    emit::code::Code,
    gpu::lower_tiles::{
        fragments::{Lowered, place, register},
        role::Role,
    },
    strategies::gpu::common::{
        ptx::Ptx,
        score::{COLUMN, ELEMENT, Elements, Graph, Known, Leaf, Leaves, ROW, Sym},
    },
};
use kiln_dialects::{ir::*, ops::*};
use std::{cell::RefCell, collections::HashMap};

/// The arguments of a body, and what they stand for.
pub(super) struct Operands<'a> {
    role: &'a Role<'a>,
    block: Block,
    inputs: Vec<Lowered>,
    /// Elements read so far, by operand and first column.
    read: RefCell<HashMap<(usize, usize), Vec<Value>>>,
}

impl<'a> Operands<'a> {
    pub(super) fn of(role: &'a Role<'a>, op: Op, inputs: &[Value]) -> Result<Operands<'a>> {
        let block = op.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
        let inputs = inputs.iter().map(|v| role.materialised(*v)).collect::<Result<_>>()?;
        Ok(Operands { role, block, inputs, read: RefCell::default() })
    }
    pub(super) fn graph(&self) -> Graph {
        Graph::of(self.block, &|v| {
            let (_, i) = v.block_arg()?;
            let depends = match self.inputs.get(i)? {
                Lowered::Rows(_) => ROW,
                Lowered::Columns(..) | Lowered::Loaded(_) | Lowered::ColumnElements(_) => COLUMN,
                Lowered::Scalar(_) => 0,
                _ => ELEMENT,
            };
            Some(Leaf { depends, position: v.ty().is_index() })
        })
    }
    /// The same from another first column on.
    pub(super) fn starting_at(mut self, first: Option<Value>) -> Operands<'a> {
        for input in &mut self.inputs {
            if let (Lowered::Columns(own, _), Some(first)) = (input, first) {
                *own = first;
            }
        }
        self
    }
    /// Whether columns may be clamped.
    pub(super) fn clamped(&self) -> bool {
        self.inputs.iter().any(|i| matches!(i, Lowered::Columns(_, Some(_))))
    }
    /// Elements from a column on, read once.
    fn once(
        &self,
        key: (usize, usize),
        read: &dyn Fn(usize) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        if let Some(found) = self.read.borrow().get(&key) {
            return Ok(found.clone());
        }
        let made = read(key.1)?;
        self.read.borrow_mut().insert(key, made.clone());
        Ok(made)
    }
    pub(super) fn yields(&self) -> Result<Vec<Value>> {
        Ok(self.block.terminator().ok_or("has no kiln.yield")?.operands())
    }
}

impl Leaves for Operands<'_> {
    fn leaf(&self, c: Code, v: Value, row: usize, column: usize) -> Result<Option<Sym>> {
        let own = v.block_arg().filter(|(b, _)| *b == self.block);
        let Some((_, i)) = own else {
            let inside = v.def().is_some_and(|op| op.block() == Some(self.block));
            return Ok((!inside).then(|| Sym::Value(self.role.scalar(v))));
        };
        let p = Ptx(c);
        let symbol = |x: Value| -> Result<Sym> {
            match (v.ty().is_index(), x.ty().is_index()) {
                (true, true) => Ok(Sym::AffineInt(p.index_to_i32(x)?, 0)),
                (true, false) => Ok(Sym::AffineInt(x, 0)),
                (false, _) => Ok(Sym::Value(x)),
            }
        };
        Ok(Some(match self.inputs.get(i).ok_or("takes what is no operand")? {
            Lowered::Scalar(x) => symbol(*x)?,
            Lowered::Rows(both) => symbol(both[row])?,
            Lowered::Loaded(op) => {
                let pair = self.once((i, column / 2 * 2), &|first| {
                    Ok(self.role.loaded_pair(c, *op, first)?.to_vec())
                })?;
                Sym::Value(pair[column % 2])
            }
            Lowered::ColumnElements(all) => {
                let own = all.get(column / 8 * 2 + column % 2);
                Sym::Value(*own.ok_or("has too few columns")?)
            }
            Lowered::Local(op) => {
                let own = self.once((i, column / 16 * 16), &|first| {
                    self.role.local_columns(p, *op, first / 16)
                })?;
                Sym::Value(own[register(row, column % 16)])
            }
            Lowered::Columns(first, None) => Sym::AffineInt(*first, 1),
            Lowered::Columns(first, Some(last)) => {
                Sym::AffineInt(p.min(p.add_const(*first, column)?, *last)?, 0)
            }
            Lowered::Elements(all) => {
                let at = register(row, column);
                Sym::Value(*all.get(at).ok_or("has too few elements")?)
            }
            _ => return Err("maps what has no elements".into()),
        }))
    }
}

impl Role<'_> {
    /// Computes each element of the results.
    pub(super) fn map(&self, c: Code, op: Op) -> Result<Vec<Lowered>> {
        let o = TileMap::of(op).ok_or_malformed(op)?;
        let operands = Operands::of(self, op, &o.inputs)?;
        let graph = operands.graph();
        let clamped = operands.clamped();
        let all = Elements { graph: &graph, leaves: &operands, clamped, fast: o.fast };
        let (yields, mut known) = (operands.yields()?, Known::new());
        let ty = op.result(0).ty();
        let tile = ty.fragment_layout() == Some(FragmentLayout::Accumulator);
        let count = if tile { self.registers(ty)? } else { 2 };
        let mut made: Vec<Vec<Value>> = vec![vec![]; yields.len()];
        for i in 0..count {
            let (row, column) = if tile { place(i) } else { (i, 0) };
            for (v, made) in yields.iter().zip(&mut made) {
                made.push(all.element(c, &mut known, *v, row, column)?);
            }
        }
        let fragment = |all: Vec<Value>| match (tile, all.as_slice()) {
            (false, [a, b]) => Lowered::Rows([*a, *b]),
            _ => Lowered::Elements(all),
        };
        Ok(made.into_iter().map(fragment).collect())
    }
}
