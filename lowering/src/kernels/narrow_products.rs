//! `kiln-narrow-products`: products of widened 8-bit floats become products of the 8-bit floats.
//!
//! Why: `_scaled_mm`, and graphs that dequantise activations and weights, widen both operands and
//! multiply. Hopper's tensor cores multiply 8-bit floats at twice the rate of 16-bit ones, from half
//! the bytes. Without this pass each operand would be widened by a kernel of its own. Upstream has
//! no such pass: its quantised types carry scales.
//!
//! A product is narrowed where `wgmma_gemm` reads both operands: one element type, K-major, K and
//! rows in whole 16-byte units, more than one row and column. A matrix that the graph quantises in
//! the other order is quantised once more, transposed (`transposed.rs`).
//!
//! Numerics: exact. 8-bit floats are exact in 16 bits, and so are their products in f32.
//!
//! ```text
//! before:  %a = kiln.convert %x : … f8E4M3FN> to bf16   %b = kiln.convert %w : … f8E4M3FN> to bf16
//!          %0 = kiln.dot_general %a, %b … : tensor<64x128xbf16>, tensor<96x128xbf16> to f32
//! after:   %0 = kiln.dot_general %x, %w … : tensor<64x128xf8E4M3FN>, tensor<96x128xf8E4M3FN> to f32
//! ```
mod transposed;

use crate::{
    kernels::{pad_products::operand::Stored, prologues::operands::dtype},
    target::Chip,
};
use kiln_dialects::{ir::*, ops::*, rules::Level, value::DType};
use kiln_passes::{Numerics, Pass, readers::erase_dead, refine_shapes::Facts};

kiln_passes::pass_options! {
    /// The pass.
    pub struct NarrowProducts {
        /// Target GPU: only for sm_90a the pass does something
        pub chip: String = String::new(),
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

/// Elements in 16 bytes, the unit of TMA.
const UNIT: i64 = 16;

impl Pass for NarrowProducts {
    const FLAG: &'static str = "kiln-narrow-products";
    const SUMMARY: &'static str =
        "Multiplies 8-bit floats by Hopper's tensor cores as they are, not widened to 16 bits";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip != Chip::Sm90a.name() {
            return Ok(());
        }
        for func in functions_in(root) {
            let Some(block) = func.regions().first().and_then(|r| r.first()) else { continue };
            let all: Vec<NarrowProduct> =
                block.ops().into_iter().filter_map(NarrowProduct::of).collect();
            if all.is_empty() {
                continue;
            }
            let facts = Facts::of(func, self.rounds)?;
            let read: Vec<NarrowProduct> = all.into_iter().filter(|p| p.is_read(&facts)).collect();
            read.iter().try_for_each(|p| p.replace(&facts))?;
            let replaced = read.iter().map(|p| p.op.result(0)).collect();
            erase_dead(replaced, |kind| {
                kind == OpKind::DotGeneral
                    || matches!(kind, OpKind::Convert | OpKind::Transpose | OpKind::Reshape)
            });
        }
        Ok(())
    }
}

/// An operand behind its conversion.
struct Widened {
    /// The 8-bit floats.
    narrow: Value,
    /// The transposes and reshapes from them to the operand, the last one first.
    moves: Vec<Op>,
    /// The operand's dimension that is K.
    contract: i64,
}

impl Widened {
    fn of(mut v: Value, contract: i64) -> Option<Widened> {
        let mut moves = vec![];
        loop {
            let op = v.def()?;
            if matches!(op.kind(), Some(OpKind::Transpose | OpKind::Reshape)) {
                moves.push(op);
                v = op.operand(0);
                continue;
            }
            let narrow = Convert::of(op)?.input;
            let eight = dtype(narrow).is_some_and(DType::is_8_bit_float);
            return eight.then_some(Widened { narrow, moves, contract });
        }
    }
    /// The operand without its conversion, K-major.
    fn operand(&self, b: &Builder, facts: &Facts) -> Result<Value> {
        if !self.is_k_major(facts) {
            let again = transposed::transposed(b, self.narrow)?;
            // As its reader takes it: transposed if it was.
            return if self.moves.is_empty() { transposed::transpose(b, again) } else { Ok(again) };
        }
        self.moves.iter().rev().try_fold(self.narrow, |input, op| {
            match (Transpose::of(*op), Reshape::of(*op)) {
                (Some(t), _) => b.add(&Transpose { input, ..t }),
                (_, Some(r)) => b.add(&Reshape { input, ..r }),
                _ => Err("moves elements in no known way".into()),
            }
        })
    }
    /// Whether it is a matrix that the graph quantises, whose other dimension is K.
    fn can_be_transposed(&self, facts: &Facts) -> bool {
        let at = match self.moves.as_slice() {
            [] => self.contract,
            [op] if op.kind() == Some(OpKind::Transpose) => 1 - self.contract,
            _ => return false,
        };
        let dims = facts.dims(self.narrow);
        let divided = dims.first().is_some_and(|k| facts.divisor(k) % UNIT == 0);
        let quantised = self.narrow.def().and_then(Convert::of);
        dims.len() == 2 && at == 0 && divided && quantised.is_some()
    }
    /// Whether TMA reads it K-major: K, and all rows in memory, are whole units.
    fn is_k_major(&self, facts: &Facts) -> bool {
        // The operand's dimension as that of what is converted; a reshape may split or join others.
        let inner = |d: i64, op: &Op| {
            if let Some(t) = Transpose::of(*op) {
                return t.permutation.get(d as usize).copied();
            }
            let (from, to) = (facts.dims(op.operand(0)), facts.dims(op.result(0)));
            let last = d + 1 == to.len() as i64 && from.last() == to.last();
            last.then(|| from.len() as i64 - 1)
        };
        let at = self.moves.iter().try_fold(self.contract, inner);
        let stored = Stored::of(self.narrow);
        let innermost = stored.innermost().map(|d| d as i64);
        let k = at.and_then(|d| facts.dims(self.narrow).get(d as usize).cloned());
        at == innermost && k.is_some_and(|k| facts.divisor(&k) % UNIT == 0)
    }
}

/// A product of widened 8-bit floats.
struct NarrowProduct {
    op: Op,
    dot: DotGeneral,
    operands: [Widened; 2],
}

impl NarrowProduct {
    fn of(op: Op) -> Option<NarrowProduct> {
        let dot = DotGeneral::of(op)?;
        let ([k], [l]) = (dot.lhs_contract.as_slice(), dot.rhs_contract.as_slice()) else {
            return None;
        };
        let operands = [Widened::of(dot.lhs, *k)?, Widened::of(dot.rhs, *l)?];
        let same = dtype(operands[0].narrow) == dtype(operands[1].narrow);
        let wide = [dot.lhs, op.result(0)].map(dtype).contains(&Some(DType::F64));
        (same && !wide).then_some(NarrowProduct { op, dot, operands })
    }

    /// Whether `wgmma_gemm` reads both operands.
    fn is_read(&self, facts: &Facts) -> bool {
        let sides = [(self.dot.lhs, &self.dot.lhs_batch), (self.dot.rhs, &self.dot.rhs_batch)];
        sides.into_iter().zip(&self.operands).all(|((v, batch), operand)| {
            let (dims, k) = (facts.dims(v), operand.contract);
            let own = |d: &usize| *d as i64 != k && !batch.contains(&(*d as i64));
            let several = (0..dims.len()).filter(own).any(|d| dims[d].known() != Some(1));
            let some = dims.get(k as usize).is_some_and(|k| facts.bounds(k).0 > Some(0));
            several && some && (operand.is_k_major(facts) || operand.can_be_transposed(facts))
        })
    }

    fn replace(&self, facts: &Facts) -> Result<()> {
        let (op, [lhs, rhs]) = (self.op, &self.operands);
        let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
        let (lhs, rhs) = (lhs.operand(&b, facts).at(op)?, rhs.operand(&b, facts).at(op)?);
        let element_type = op.result(0).ty().element();
        let dot = DotGeneral { lhs, rhs, element_type, ..self.dot.clone() };
        op.result(0).replace_uses(b.add(&dot).at(op)?);
        Ok(())
    }
}
