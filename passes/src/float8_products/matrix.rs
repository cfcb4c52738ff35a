//! An operand as a matrix in memory.
use crate::decompose::tools::Math;
use kiln_dialects::{
    ir::*,
    ops::{DotGeneral, Transpose},
    value::DType,
};

/// Why [`operands`] has none.
pub(super) const NO_MATRIX: &str =
    "the rows of an operand, or its K, are not next to each other in memory";

/// The operands of a product, if both are matrices in memory.
pub(super) fn operands(dot: &DotGeneral) -> Option<[Matrix; 2]> {
    let lhs = Matrix::of(dot.lhs, &dot.lhs_contract)?;
    Some([lhs, Matrix::of(dot.rhs, &dot.rhs_contract)?])
}

/// A tensor whose dimensions are the rows of an operand, then K, or K, then its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Matrix {
    /// The tensor, behind the operand's transposes.
    tensor: Value,
    /// How many of its dimensions are the first part.
    split: usize,
    /// Whether K is the second part.
    pub is_k_major: bool,
}

impl Matrix {
    /// The operand of a product that contracts these dimensions. `None`: it is none in memory.
    fn of(operand: Value, contract: &[i64]) -> Option<Matrix> {
        let (mut tensor, rank) = (operand, operand.ty().dims().len() as i64);
        let mut order: Vec<i64> = (0..rank).collect();
        while let Some(t) = tensor.def().and_then(Transpose::of) {
            order.iter_mut().for_each(|d| *d = t.permutation[*d as usize]);
            tensor = t.input;
        }
        let at = |dims: &mut dyn Iterator<Item = i64>| -> Vec<i64> {
            dims.map(|d| order[d as usize]).collect()
        };
        let k = at(&mut contract.iter().copied());
        let rows = at(&mut (0..rank).filter(|d| !contract.contains(d)));
        let (is_k_major, split) = (rows < k, if rows < k { rows.len() } else { k.len() });
        let all = if is_k_major { [rows, k] } else { [k, rows] }.concat();
        let stored = all.iter().copied().eq(0..rank) && (1..rank as usize).contains(&split);
        stored.then_some(Matrix { tensor, split, is_k_major })
    }

    /// The dimensions of its rows and those of K, in the tensor.
    pub fn parts(&self) -> [std::ops::Range<usize>; 2] {
        let (first, second) = (0..self.split, self.split..self.tensor.ty().dims().len());
        if self.is_k_major { [first, second] } else { [second, first] }
    }
    pub fn tensor(&self) -> Value {
        self.tensor
    }
    /// The same elements, for what their order does not matter to.
    pub fn k_major(self) -> Matrix {
        Matrix { is_k_major: true, split: 1, ..self }
    }
    /// The sizes of its rows' dimensions.
    pub fn row_sizes(&self, m: &Math) -> Result<Vec<Size>> {
        let [rows, _] = self.parts();
        rows.map(|d| m.size_of(self.tensor, d)).collect()
    }
    /// Its elements as stored, f32 of two dimensions.
    pub fn elements(&self, m: &Math) -> Result<Value> {
        let sizes = m.sizes_of(self.tensor)?;
        let (first, second) = sizes.split_at(self.split);
        let plane = match sizes.len() {
            2 => self.tensor,
            _ => m.reshape(self.tensor, &[m.product(first)?, m.product(second)?])?,
        };
        m.convert(plane, DType::F32)
    }
}
