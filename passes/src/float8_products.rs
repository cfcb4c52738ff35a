//! `kiln-float8-products`: large products of 16-bit floats become products of scaled 8-bit floats.
//!
//! Why: Hopper's tensor cores multiply 8-bit floats at twice the rate of 16-bit ones. Training
//! with them keeps weights and activations in 16 bits and quantises the operands of each product
//! as it comes (dynamic scaling, as torchao.float8 does). On a graph that has gradients, their
//! products are quantised too. Upstream has no such pass: its quantised types carry fixed scales.
//!
//! With `recipe=rowwise` each operand is scaled by 448 / max |x| of each of its rows along K, with
//! `recipe=tensorwise` by that of all its elements. Sums are f32 and divided by both scales. An
//! operand is stored K-major, so a tensor that two products contract along different dimensions is
//! quantised twice.
//!
//! A product stays as it is where it has batch dimensions, where M·N / (M + N) is below `min-size`,
//! so that quantising costs more time than it saves, and in the head of a loss, whose rows feed a
//! softmax or whose operand is the derivative by labels. Its attribute `kiln.not_quantized` says
//! why.
//!
//! Numerics: approximates; an element of an operand has a relative error of at most 2^-4.
//!
//! ```text
//! before:  %0 = kiln.dot_general %x, %w … : tensor<64x32xbf16>, tensor<96x32xbf16>
//! after:   %1 = kiln.abs %x …  %2 = kiln.reduce max %1 dims = [1] …  %3 = kiln.convert … to f8E4M3FN
//!          …  %7 = kiln.dot_general … to f32  %8 = kiln.mul %7, … : tensor<64x96xf32>  …
//! ```
mod choice;
mod matrix;

use crate::{
    decompose::tools::Math,
    options::named_values,
    pass::{Numerics, Pass},
    readers::erase_dead,
    refine_shapes::Facts,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
    value::DType,
};
use matrix::{Matrix, NO_MATRIX};
use std::collections::HashMap;

/// Which elements of an operand share a scale; torchao's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// Nothing is quantised.
    Off,
    /// All elements.
    Tensorwise,
    /// Those of a row along K.
    Rowwise,
}

named_values!(Recipe, "off, tensorwise or rowwise": "off" => Off, "tensorwise" => Tensorwise, "rowwise" => Rowwise);

crate::pass_options! {
    /// The pass.
    pub struct Float8Products {
        /// Which elements share a scale: off, tensorwise or rowwise
        pub recipe: Recipe = Recipe::Off,
        /// Least M·N / (M + N) of a product that is quantised
        pub min_size: i64 = 1200,
        /// Rounds of size propagation
        pub rounds: usize = 8,
    }
}

/// The greatest f8E4M3FN.
const GREATEST: f64 = 448.0;
/// Least maximum that a scale is computed from, so that zeros have a finite one (torchao's).
const LEAST: f64 = 1e-12;

impl Pass for Float8Products {
    const FLAG: &'static str = "kiln-float8-products";
    const SUMMARY: &'static str =
        "Quantises the operands of large products of 16-bit floats to 8-bit floats";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Approximates;

    fn run(&self, root: Op) -> Result<()> {
        if self.recipe == Recipe::Off {
            return Ok(());
        }
        let rowwise = self.recipe == Recipe::Rowwise;
        for func in functions_in(root) {
            let facts = Facts::of(func, self.rounds)?;
            // All are chosen before any is replaced: facts are about values that are there now.
            let choose = |block: Block| -> Vec<Op> {
                let heads = choice::loss_heads(block);
                let chosen = |op: &Op| choice::is_chosen(*op, &facts, &heads, self.min_size);
                block.ops().into_iter().filter(chosen).collect()
            };
            let chosen: Vec<Vec<Op>> =
                walk(func).into_iter().flat_map(blocks).map(choose).collect();
            for products in &chosen {
                let mut quantised = Quantised { rowwise, ..Quantised::default() };
                products.iter().try_for_each(|op| quantised.replace(*op).at(*op))?;
            }
            let moves = |kind| matches!(kind, OpKind::DotGeneral | OpKind::Transpose);
            erase_dead(chosen.into_iter().flatten().map(|op| op.result(0)).collect(), moves);
        }
        Ok(())
    }
}

/// A factor of elements and its inverse, f32: of all, or one a row.
#[derive(Clone, Copy)]
struct Scale {
    factor: Value,
    inverse: Value,
}

/// What the products of a block have quantised so far.
#[derive(Default)]
struct Quantised {
    rowwise: bool,
    scales: HashMap<Matrix, Scale>,
    /// 8-bit floats [rows, K], widened to bf16.
    stored: HashMap<Matrix, Value>,
}

impl Quantised {
    /// Replaces a product by that of its quantised operands, times the inverses of their scales.
    fn replace(&mut self, op: Op) -> Result<()> {
        let [lhs, rhs] = DotGeneral::of(op).and_then(|o| matrix::operands(&o)).ok_or(NO_MATRIX)?;
        let b = Builder::before(op).ok_or("is in no block")?;
        let m = Math { b: &b };
        let (x, y) = (self.widened(&m, &lhs)?, self.widened(&m, &rhs)?);
        let scales = [self.scale(&m, &lhs)?, self.scale(&m, &rhs)?];
        let product = b.add(&DotGeneral {
            lhs: x,
            rhs: y,
            lhs_batch: vec![],
            rhs_batch: vec![],
            lhs_contract: vec![1],
            rhs_contract: vec![1],
            element_type: Some(Type::scalar(b.ctx, DType::F32)),
        })?;
        let [left, right] = scales.map(|s| s.inverse);
        let v = if self.rowwise {
            let v = m.mul(product, m.broadcast_to(left, &[0], product)?)?;
            m.mul(v, m.broadcast_to(right, &[1], product)?)?
        } else {
            m.mul(product, m.broadcast_to(m.mul(left, right)?, &[], product)?)?
        };
        let old = op.result(0);
        let v = m.convert(v, tensor_type(old.ty())?.dtype)?;
        let sizes = [lhs.row_sizes(&m)?, rhs.row_sizes(&m)?].concat();
        old.replace_uses(m.retype(m.reshape(v, &sizes)?, old.ty())?);
        Ok(())
    }

    /// The scales of an operand: f32, of no dimension or [rows].
    fn scale(&mut self, m: &Math, x: &Matrix) -> Result<Scale> {
        // All elements have one scale in either order.
        let key = if self.rowwise { *x } else { x.k_major() };
        if let Some(known) = self.scales.get(&key) {
            return Ok(*known);
        }
        let elements = m.unary(UnaryKind::Abs, key.elements(m)?)?;
        let k = [i64::from(key.is_k_major)];
        let greatest =
            m.reduce(ReduceKind::Max, elements, if self.rowwise { &k } else { &[0, 1] })?;
        let greatest = m.binary(BinaryKind::Max, greatest, m.full_like(greatest, LEAST)?)?;
        let limit = m.full_like(greatest, GREATEST)?;
        let scale = Scale { factor: m.div(limit, greatest)?, inverse: m.div(greatest, limit)? };
        self.scales.insert(key, scale);
        Ok(scale)
    }

    /// The scaled elements in 8 bits [rows, K], widened to bf16, in which they are exact.
    fn widened(&mut self, m: &Math, x: &Matrix) -> Result<Value> {
        if let Some(known) = self.stored.get(x) {
            return Ok(*known);
        }
        let factor = self.scale(m, x)?.factor;
        let elements = x.elements(m)?;
        // Transposed before it is scaled: one kernel reads the one and stores the other.
        let rows = if x.is_k_major { elements } else { m.transpose(elements, &[1, 0])? };
        let factors = m.broadcast_to(factor, if self.rowwise { &[0] } else { &[] }, rows)?;
        let narrow = m.convert(m.mul(rows, factors)?, DType::F8E4M3FN)?;
        let wide = m.convert(narrow, DType::BF16)?;
        self.stored.insert(*x, wide);
        Ok(wide)
    }
}
