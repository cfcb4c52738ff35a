//! `kiln-sink-scales`: moves the scale of 8-bit weights behind the product that reads them.
//!
//! Why: torchao's `Float8WeightOnlyConfig` dequantises weights and then multiplies. On a GPU a
//! kernel would write the dequantised weights to memory in each call, five times the bytes of the
//! weights themselves. Without the scale only a conversion is left in front of the product, which
//! `skinny_gemm` computes in registers (`kiln-prologues`). Upstream has no quantised products.
//!
//! That is done where `skinny_gemm` reads the weights: few rows, one reader, known sizes, K in
//! whole vectors. The scale has to be the same along K. Weights with a zero point are left to
//! `kiln-quantized-weights`. Products of many rows read 16-bit weights from memory, and stay.
//!
//! Numerics: reassociates. The dequantised weights are no longer rounded to 16 bits: the f32
//! product is scaled, and rounded once.
//!
//! ```text
//! before:  %0 = kiln.convert %w : … f8E4M3FN> to f32   %1 = kiln.mul %0, (kiln.broadcast_in_dim %s …)   %2 = kiln.convert %1 : … to bf16   %3 = kiln.dot_general %x, %2 …
//! after:   %0 = kiln.convert %w : … f8E4M3FN> to bf16   %1 = kiln.dot_general %x, %0 … to f32   %2 = kiln.mul %1, (kiln.broadcast_in_dim %s …)   %3 = kiln.convert %2 : … to bf16
//! ```
use crate::{
    kernels::{
        marks::EACH_OP,
        prologues::{operands::dtype, weights::is_converted},
    },
    target::costs::{SKINNY_K, SKINNY_MATRIX_ROWS, SKINNY_ROWS, SKINNY_VECTORS},
};
use kiln_dialects::{ir::*, ops::*, rules::Level, sym::Dim, value::DType};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct SinkScales {}
}

impl Pass for SinkScales {
    const FLAG: &'static str = "kiln-sink-scales";
    const SUMMARY: &'static str =
        "Moves scales of 8-bit weights behind products of few rows, which then read the weights";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if root.attr(EACH_OP).is_some() {
            return Ok(());
        }
        for op in walk(root) {
            let Some(product) = ScaledProduct::of(op) else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let result = product.sink(b.at(op.loc())).at(op)?;
            op.result(0).replace_uses(result);
            op.erase();
        }
        Ok(())
    }
}

/// What the weights are multiplied by.
struct Scale {
    value: Value,
    /// The operand's dimension along which it varies.
    along: Option<usize>,
}

/// An operand of a product without a batch.
#[derive(Clone, Copy)]
struct Operand {
    value: Value,
    /// Its contracting dimension.
    k: usize,
    /// The result's dimension that its first other one is.
    first: usize,
}

/// A product of few rows with dequantised weights.
struct ScaledProduct {
    dot: DotGeneral,
    result: Value,
    /// Whether the dequantised weights are the left operand.
    is_left: bool,
    dequantised: Operand,
    few: Operand,
    /// The 8-bit weights.
    weights: Value,
    /// The permutations from them to the operand, the last one first.
    permutations: Vec<Vec<i64>>,
    scales: Vec<Scale>,
}

fn is_float(v: Value) -> bool {
    matches!(dtype(v), Some(DType::BF16 | DType::F16 | DType::F32))
}

fn sizes(v: Value) -> Option<Vec<i64>> {
    v.ty().dims().iter().map(Dim::known).collect()
}

impl Scale {
    /// A broadcast tensor that varies along at most one dimension, and not along K.
    fn of(v: Value, axes: &[usize], k: usize) -> Option<Scale> {
        let o = BroadcastInDim::of(v.def()?).filter(|o| is_float(o.input))?;
        let all = sizes(o.input)?;
        let wide: Vec<usize> = (0..all.len()).filter(|d| all[*d] != 1).collect();
        let along = match wide[..] {
            [] => None,
            [d] => Some(axes[*o.dims.get(d)? as usize]),
            _ => return None,
        };
        (along != Some(k)).then_some(Scale { value: o.input, along })
    }
}

impl Operand {
    fn of(value: Value, contract: &[i64], first: usize) -> Option<Operand> {
        let [k] = contract else { return None };
        Some(Operand { value, k: *k as usize, first })
    }
    /// The number of rows along K.
    fn rows(&self) -> Option<i64> {
        let all = sizes(self.value)?;
        (0..all.len()).filter(|d| *d != self.k).try_fold(1, |n: i64, d| n.checked_mul(all[d]))
    }
}

impl ScaledProduct {
    fn of(op: Op) -> Option<ScaledProduct> {
        let dot = DotGeneral::of(op)?;
        let narrow = |v| matches!(dtype(v), Some(DType::BF16 | DType::F16));
        if !narrow(dot.lhs) || dtype(dot.lhs) != dtype(dot.rhs) || !dot.lhs_batch.is_empty() {
            return None;
        }
        let rank = dot.lhs.ty().dims().len();
        let left = Operand::of(dot.lhs, &dot.lhs_contract, 0)?;
        let right = Operand::of(dot.rhs, &dot.rhs_contract, rank.checked_sub(1)?)?;
        [(false, right, left), (true, left, right)].into_iter().find_map(
            |(is_left, dequantised, few)| {
                let mut product = ScaledProduct {
                    dot: dot.clone(),
                    result: op.result(0),
                    is_left,
                    dequantised,
                    few,
                    weights: dequantised.value,
                    permutations: vec![],
                    scales: vec![],
                };
                product.read().filter(|()| product.is_skinny())?;
                Some(product)
            },
        )
    }

    /// Reads what the operand is computed from, down to 8-bit weights whose rows are contiguous.
    fn read(&mut self) -> Option<()> {
        let Operand { value: mut v, k, .. } = self.dequantised;
        // The operand's dimension that each dimension of `v` is.
        let mut axes: Vec<usize> = (0..v.ty().dims().len()).collect();
        loop {
            let op = v.def().filter(|_| v.uses().len() == 1)?;
            match op.kind()? {
                OpKind::Transpose => {
                    let Transpose { input, permutation } = Transpose::of(op)?;
                    let place = |d: usize| permutation.iter().position(|p| *p as usize == d);
                    axes = (0..axes.len()).map(|d| Some(axes[place(d)?])).collect::<Option<_>>()?;
                    self.permutations.push(permutation);
                    v = input;
                }
                OpKind::Mul => {
                    let Mul { lhs, rhs } = Mul::of(op)?;
                    let other = |(v, f)| Some((v, Scale::of(f, &axes, k)?));
                    let (input, scale) = other((lhs, rhs)).or_else(|| other((rhs, lhs)))?;
                    self.scales.push(scale);
                    v = input;
                }
                OpKind::Convert if is_converted(dtype(op.operand(0))?) => {
                    self.weights = op.operand(0);
                    break;
                }
                OpKind::Convert if is_float(op.operand(0)) => v = op.operand(0),
                _ => return None,
            }
        }
        let stored = self.weights.def().is_none_or(|o| o.kind() == Some(OpKind::GetGlobal));
        (stored && !self.scales.is_empty() && axes.last() == Some(&k)).then_some(())
    }

    /// Whether `skinny_gemm` takes the product.
    fn is_skinny(&self) -> bool {
        let depth = sizes(self.few.value).and_then(|all| all.get(self.few.k).copied());
        let (Some(many), Some(few)) = (self.dequantised.rows(), self.few.rows()) else {
            return false;
        };
        (1..=SKINNY_ROWS).contains(&few)
            && many >= SKINNY_MATRIX_ROWS.max(few)
            && depth.is_some_and(|k| k >= SKINNY_K && k % SKINNY_VECTORS[0] == 0)
    }

    /// Emits the product of the weights as they are, and the scales.
    fn sink(&self, b: Builder) -> Result<Value> {
        let DotGeneral { lhs, rhs, .. } = self.dot;
        let wide = Type::scalar(b.ctx, DType::F32);
        let narrow = lhs.ty().element().ok_or("is no tensor")?;
        let mut w = b.add(&Convert { input: self.weights, dtype: narrow })?;
        for permutation in self.permutations.iter().rev() {
            w = b.add(&Transpose { input: w, permutation: permutation.clone() })?;
        }
        let sizes = b.sizes_of(self.result)?;
        let (lhs, rhs) = if self.is_left { (w, rhs) } else { (lhs, w) };
        let dot = DotGeneral { lhs, rhs, element_type: Some(wide), ..self.dot.clone() };
        let mut y = b.add(&dot)?;
        for scale in self.scales.iter().rev() {
            y = b.add(&Mul { lhs: y, rhs: self.broadcast(&b, scale, &sizes)? })?;
        }
        match self.result.ty().element() {
            Some(dtype) if dtype != wide => b.add(&Convert { input: y, dtype }),
            _ => Ok(y),
        }
    }

    /// A scale in f32, of the result's shape.
    fn broadcast(&self, b: &Builder, scale: &Scale, sizes: &[Size]) -> Result<Value> {
        let Operand { k, first, .. } = self.dequantised;
        let along = scale.along.map(|d| first + d - usize::from(d > k));
        let own: Vec<Size> = along.iter().map(|d| sizes[*d]).collect();
        let mut input = scale.value;
        if input.ty().dims().len() != own.len() {
            input = b.add(&Reshape { input, sizes: own })?;
        }
        if dtype(input) != Some(DType::F32) {
            input = b.add(&Convert { input, dtype: Type::scalar(b.ctx, DType::F32) })?;
        }
        let dims = along.iter().map(|d| *d as i64).collect();
        b.add(&BroadcastInDim { input, dims, sizes: sizes.to_vec() })
    }
}
