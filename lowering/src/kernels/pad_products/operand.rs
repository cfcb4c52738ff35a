//! The operands of a GEMM, as tensor cores read them.
use crate::{kernels::frozen::Frozen, target::costs::PRODUCT_EXTENT};
use kiln_dialects::{ir::*, ops::*};
use kiln_passes::refine_shapes::Facts;

/// 16-bit elements in 16 bytes.
pub(super) const UNIT: i64 = 8;

/// An operand with its transposes folded, as the product reads it.
pub(in crate::kernels) struct Stored {
    /// What is transposed.
    pub(super) base: Value,
    /// For each dimension of the operand that of the base.
    pub(super) order: Vec<i64>,
}

impl Stored {
    pub(in crate::kernels) fn of(v: Value) -> Stored {
        let mut stored = Stored { base: v, order: (0..v.ty().dims().len() as i64).collect() };
        while let Some(t) = stored.base.def().and_then(Transpose::of) {
            let inner = |d: &i64| t.permutation.get(*d as usize).copied();
            let Some(order) = stored.order.iter().map(inner).collect() else { break };
            stored = Stored { base: t.input, order };
        }
        stored
    }
    /// The operand's dimension that is innermost in memory.
    pub(in crate::kernels) fn innermost(&self) -> Option<usize> {
        self.order.iter().position(|d| *d + 1 == self.order.len() as i64)
    }
}

/// Analyses of a function's values.
pub(super) struct Analyses {
    pub(super) frozen: Frozen,
    pub(super) facts: Facts,
}

/// An operand of a GEMM.
pub(super) struct OperandShape {
    /// Rows per batch entry.
    pub(super) rows: i64,
    /// All its bytes.
    pub(super) bytes: i64,
    pub(super) frozen: bool,
    /// Whether its rows have to be rows of K.
    pub(super) k_major: bool,
    /// Whether they are rows of K in memory.
    pub(super) k_inner: bool,
    /// Elements to append to its innermost dimension, if that is not K.
    pub(super) more: i64,
}

/// The operand's description; none if the tensor cores could not read it with padding either.
pub(super) fn side(
    v: Value,
    batch: &[i64],
    contract: i64,
    known: &Analyses,
) -> Option<OperandShape> {
    let dims = v.ty().dims();
    let size = |d: usize| dims[d].known().unwrap_or(PRODUCT_EXTENT);
    let last = Stored::of(v).innermost()?;
    let (frozen, k_inner) = (known.frozen.contains(v), contract == last as i64);
    let divided =
        || known.facts.dims(v).get(last).is_some_and(|d| known.facts.divisor(d) % UNIT == 0);
    let aligned = || dims[last].known().map_or_else(divided, |n| n % UNIT == 0);
    // Frozen operands are stored as the product wants them.
    let (k_major, more) = match k_inner || aligned() {
        true => (k_inner, 0),
        false if frozen => (true, 0),
        false if batch.contains(&(last as i64)) => return None,
        false => (false, UNIT - dims[last].known()? % UNIT),
    };
    let free = (0..dims.len()).filter(|d| *d as i64 != contract && !batch.contains(&(*d as i64)));
    let rows = free.map(size).fold(1i64, i64::saturating_mul);
    let bytes = (0..dims.len()).map(size).fold(2i64, i64::saturating_mul);
    Some(OperandShape { rows, bytes, frozen, k_major, k_inner, more })
}
