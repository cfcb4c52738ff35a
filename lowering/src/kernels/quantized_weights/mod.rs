//! `kiln-quantized-weights`: brings the frozen, quantised weights of products of few rows into the
//! form that a GPU's kernel dequantises in registers.
//!
//! Why: decoding reads each weight once, so that its time is that of the weights' bytes. Integers
//! that fit 4 bits, as far as their masks and shifts say, are stored two in a byte, K-major, the
//! element of even K in the lower half; how the archive packs them is undone once, at load
//! (`kiln-freeze`). Scales and zero points that change along K every 16 (int8) or 32 (int4)
//! elements at the earliest become matrices of a row a group. Movement ops go below the
//! elementwise ones, which are marked for the product's kernel.
//!
//! Numerics: exact; the same ops on the same values.
//!
//! ```text
//! before:  %q = … : tensor<1024x512xi32>   %f = kiln.convert %q   %w = kiln.mul %f, %s   %0 = kiln.dot_general %x, %w …
//! after:   %p = … : tensor<1024x256xui8>   %u = kiln.and (kiln.shr %p, [0, 4]), 15   %f = kiln.convert %u {kiln.prologue} …
//! ```
mod build;
pub(in crate::kernels) mod groups;
mod path;
mod ranges;

use crate::{
    kernels::{
        frozen::Frozen, fuse::gated_pairs::has_few_rows, marks::EACH_OP, prologues::operands::dtype,
    },
    target::costs::{SKINNY_K, SKINNY_MATRIX_ROWS, SKINNY_ROWS, SKINNY_VECTORS},
};
use build::{applied, moved, packed, reshaped, tabulated, transposed, unpacked};
use kiln_dialects::{ir::*, ops::*, rules::Level, value::DType};
use kiln_passes::{Numerics, Pass, permutation::inverse};
use path::{Other, Source, Step, is_affine, other, path, stored_as};

kiln_passes::pass_options! {
    /// The pass.
    pub struct QuantizedWeights {}
}

impl Pass for QuantizedWeights {
    const FLAG: &'static str = "kiln-quantized-weights";
    const SUMMARY: &'static str =
        "Packs int4 weights of products of few rows, for dequantisation in registers";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        if root.attr(EACH_OP).is_some() {
            return Ok(());
        }
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let ops = block.ops();
            let frozen = Frozen::of(&ops);
            let mut found = false;
            for op in ops {
                let Some(operand) = Operand::of(op, &frozen) else { continue };
                let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
                found = true;
                if let Some(weights) = operand.rebuilt(&b).at(op)? {
                    op.set_operand(operand.number, weights);
                }
            }
            // Not before: `frozen` knows values by their address.
            if found {
                block.ops().into_iter().rev().filter(|op| is_dead(*op)).for_each(Op::erase);
            }
        }
        Ok(())
    }
}

fn is_dead(op: Op) -> bool {
    let pure = op.kind().is_some_and(|k| k.is_elementwise() || k.family() == Family::Movement);
    pure && op.results().iter().all(|v| v.uses().is_empty())
}

/// The quantised weights of a product of few rows.
struct Operand {
    /// Which operand of the product they are.
    number: usize,
    value: Value,
    /// The dimensions, K last.
    order: Vec<i64>,
    /// Rows, and K.
    sizes: [i64; 2],
    source: Source,
    /// From the source up to the operand.
    steps: Vec<Step>,
}

impl Operand {
    fn of(product: Op, frozen: &Frozen) -> Option<Operand> {
        let dot = DotGeneral::of(product)?;
        let narrow = |v: Value| matches!(dtype(v), Some(DType::BF16 | DType::F16));
        if !narrow(dot.lhs) || dtype(dot.lhs) != dtype(dot.rhs) || !dot.lhs_batch.is_empty() {
            return None;
        }
        let sides = [(1, dot.rhs, &dot.rhs_contract), (0, dot.lhs, &dot.lhs_contract)];
        sides.into_iter().find_map(|(number, value, contract)| {
            let [k] = contract.as_slice() else { return None };
            let dims = value.ty().dims();
            let all: Vec<i64> = dims.iter().map(|d| d.known()).collect::<Option<_>>()?;
            let free = (0..all.len() as i64).filter(|d| d != k);
            let order: Vec<i64> = free.chain([*k]).collect();
            let depth = *all.get(*k as usize)?;
            let rows = all.iter().product::<i64>().checked_div(depth)?;
            let few = has_few_rows(&dot, SKINNY_ROWS);
            let (source, steps) = frozen.contains(value).then(|| path(value, frozen))??;
            let o = Operand { number, value, order, sizes: [rows, depth], source, steps };
            let read = depth >= SKINNY_K && depth % o.vector() == 0 && rows >= SKINNY_MATRIX_ROWS;
            let affine = is_affine(&o.source, &o.steps, dtype(value)?);
            // 8-bit elements without a scale are read as they are.
            let table = |s: &Step| matches!(other(s), Other::Tensor(_));
            let changes = o.source.lowest.is_some() || o.steps.iter().any(table);
            (few && read && affine && changes).then_some(o)
        })
    }
    fn vector(&self) -> i64 {
        SKINNY_VECTORS[usize::from(self.source.lowest.is_some())]
    }
    /// The operand with movement ops below elementwise ones, which are marked; none if a scale
    /// changes too often along K or is wider than the weights.
    fn rebuilt(&self, b: &Builder) -> Result<Option<Value>> {
        let (mut below, mut computed) = (self.source.value, vec![]);
        for step in &self.steps {
            match step {
                Step::Moved(op) => {
                    below = moved(b, *op, below)?;
                    for (_, _, other) in &mut computed {
                        if let Other::Tensor(v) = other {
                            *v = moved(b, *op, *v)?;
                        }
                    }
                }
                Step::Computed(op, i) => computed.push((*op, *i, other(step))),
            }
        }
        let mut with = vec![];
        for (op, i, other) in computed {
            let other = match other {
                Other::Tensor(v) => match self.table(b, v)? {
                    Some(v) => Other::Tensor(v),
                    None => return Ok(None),
                },
                plain => plain,
            };
            with.push((op, i, other));
        }
        let rows = self.as_rows(b, below)?;
        let mut v = match self.source.lowest {
            Some(lowest) => unpacked(b, packed(b, rows, lowest)?, lowest, rows)?,
            None => rows,
        };
        for (op, i, other) in with {
            v = applied(b, op, i, v, other)?;
        }
        self.as_operand(b, v).map(Some)
    }
    /// A value of the operand's shape as rows of K.
    fn as_rows(&self, b: &Builder, v: Value) -> Result<Value> {
        reshaped(b, transposed(b, v, self.order.clone())?, &self.sizes)
    }
    /// Rows of K in the operand's shape.
    fn as_operand(&self, b: &Builder, v: Value) -> Result<Value> {
        let dims = self.value.ty().dims();
        let sizes: Vec<i64> =
            self.order.iter().filter_map(|d| dims.get(*d as usize)?.known()).collect();
        transposed(b, reshaped(b, v, &sizes)?, inverse(&self.order))
    }
    /// A scale or zero point of the operand's shape as rows of K, read from a matrix of a row a
    /// group, of the type that it was widened from.
    fn table(&self, b: &Builder, v: Value) -> Result<Option<Value>> {
        let [_, k] = self.sizes;
        let axis = self.order.last().map_or(0, |d| *d as usize);
        let run = match groups::run_length(v, axis) {
            0 => k,
            run => run,
        };
        let element = dtype(self.value).ok_or("is no tensor")?;
        let stored = stored_as(v, element).filter(|_| run % self.vector() == 0 && k % run == 0);
        stored.map(|d| tabulated(b, self.as_rows(b, v)?, run, d)).transpose()
    }
}
