//! `kiln-split-products`: a product whose tiles are too few for a GPU becomes products of parts of
//! the depth, and a sum of these.
//!
//! Why: a tile is one block's, so that 16 tiles of a long sum keep 16 multiprocessors busy and all
//! others idle. The parts are one more dimension of the batch, and wait in f32 for the sum, which
//! takes the product's later stages along. Two launches in a fixed order give the same bits in
//! every run, which atomic additions do not. How many parts, and whether any, says the model that
//! chooses tiles of Hopper's tensor cores, with what writing the parts and another launch take;
//! where `kiln.parts` on the module names a product, as tables of measured schedules do, what
//! stands there.
//!
//! Numerics: reassociates. The parts of 16-bit floats stay f32, and are rounded once.
//!
//! ```text
//! before:  %0 = kiln.dot_general %x, %w batch = [] x [] contract = [1] x [1] : tensor<512x16384xbf16>, tensor<512x16384xbf16>
//! after:   %a = kiln.reshape %x sizes = [512, 8, 2048]   %b = kiln.reshape %w sizes = [512, 8, 2048]
//!          %p = kiln.dot_general %a, %b batch = [1] x [1] contract = [2] x [2] : … to f32   %s = kiln.reduce sum %p dims = [0]   %0 = kiln.convert %s : … to bf16
//! ```
use crate::target::{
    Chip,
    costs::{Costs as _, Gemm, Left},
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    value::DType,
};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct SplitProducts {
        /// The chip: sm_80, sm_86, sm_89 or sm_90a; only the last one has tensor cores that the
        /// model knows
        pub chip: String = "sm_90a".into(),
        /// Most parts
        pub most: i64 = 32,
        /// Clocks that another launch takes
        pub launch: i64 = 4000,
        /// Bytes of the parts that a multiprocessor writes or reads in a clock
        pub bandwidth: i64 = 36,
    }
}

/// On a module: products, as [`Splittable::product`] has them, each with the number of its parts.
pub const PARTS: &str = "kiln.parts";

/// A product that can be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splittable {
    /// Operands' types, dimensions of the batch and of the sum, and the result's element.
    pub product: String,
    /// What divides into parts: steps of the sum.
    pub steps: i64,
    /// How many tiles of 128 by 128 it has.
    pub tiles: i64,
    /// The model's choice.
    pub parts: i64,
}

impl Splittable {
    /// What an op is.
    pub fn of(op: Op) -> Option<Splittable> {
        let (dot, pass) = (DotGeneral::of(op)?, SplitProducts::default());
        let sizes = pass.sizes(&dot)?;
        let up = |n: i64| (n + 127) / 128;
        let tiles = sizes.batch * up(sizes.rows) * up(sizes.columns);
        Some(Splittable {
            product: words(op, &dot),
            steps: sizes.steps(),
            tiles,
            parts: pass.parts(&dot).unwrap_or(1),
        })
    }
}

fn words(op: Op, o: &DotGeneral) -> String {
    let element = op.result(0).ty().element().map_or(String::new(), |e| e.to_string());
    let (lhs, rhs) = (o.lhs.ty(), o.rhs.ty());
    format!(
        "{lhs} {rhs} batch {:?} x {:?} contract {:?} x {:?} to {element}",
        o.lhs_batch, o.rhs_batch, o.lhs_contract, o.rhs_contract
    )
}

/// The sizes of a product.
#[derive(Clone, Copy)]
struct Sizes {
    batch: i64,
    rows: i64,
    columns: i64,
    depth: i64,
}

impl Sizes {
    fn steps(&self) -> i64 {
        self.depth / Chip::Sm90a.block_k()
    }
}

impl Pass for SplitProducts {
    const FLAG: &'static str = "kiln-split-products";
    const SUMMARY: &'static str = "Splits the depth of products whose tiles are too few for a GPU";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        if self.chip != Chip::Sm90a.name() {
            return Ok(());
        }
        let named = root.attr(PARTS);
        for op in walk(root) {
            let Some(dot) = DotGeneral::of(op) else { continue };
            let measured = named.and_then(|n| n.entry(&words(op, &dot))?.as_i64());
            let parts = match measured {
                Some(n) => self.sizes(&dot).filter(|s| n > 1 && s.steps() % n == 0).map(|_| n),
                None => self.parts(&dot),
            };
            let Some(parts) = parts else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let result = split(b.at(op.loc()), op, &dot, parts).at(op)?;
            op.result(0).replace_uses(result);
            op.erase();
        }
        Ok(())
    }
}

/// The only dimension of an operand that is summed, if another one is neither that nor of the
/// batch.
fn sizes(v: Value, batch: &[i64], contract: &[i64]) -> Option<(i64, i64)> {
    let [depth] = contract else { return None };
    let all: Vec<i64> = v.ty().dims().iter().map(|d| d.known()).collect::<Option<_>>()?;
    let free = (0..all.len())
        .filter(|d| *d as i64 != *depth && !batch.contains(&(*d as i64)))
        .map(|d| all[d])
        .product();
    // The copy engine reads rows of a multiple of 16 bytes.
    (all.last()? % 8 == 0).then_some((free, *all.get(*depth as usize)?))
}

impl SplitProducts {
    /// The sizes of a product that can be split.
    fn sizes(&self, o: &DotGeneral) -> Option<Sizes> {
        let element = |v: Value| {
            v.ty()
                .element()
                .and_then(|e| e.dtype().ok())
                .filter(|d| [DType::BF16, DType::F16].contains(d))
        };
        if element(o.lhs)? != element(o.rhs)? {
            return None;
        }
        let ((rows, depth), (columns, _)) = (
            sizes(o.lhs, &o.lhs_batch, &o.lhs_contract)?,
            sizes(o.rhs, &o.rhs_batch, &o.rhs_contract)?,
        );
        let batch: i64 = o
            .lhs_batch
            .iter()
            .map(|d| o.lhs.ty().dims()[*d as usize].known())
            .product::<Option<i64>>()?;
        let step = Chip::Sm90a.block_k();
        ([rows, columns, batch].iter().all(|n| *n > 0) && depth % step == 0).then_some(Sizes {
            batch,
            rows,
            columns,
            depth,
        })
    }
    /// Into how many parts a product is split, if that pays.
    fn parts(&self, o: &DotGeneral) -> Option<i64> {
        let sizes = self.sizes(o)?;
        let (Sizes { batch, rows, columns, depth }, steps) = (sizes, sizes.steps());
        let (gemm, model) = (Gemm { batch, rows, columns, k: depth }, Chip::Sm90a);
        let few = model.skinny_gemm(gemm);
        let whole = model.tiled_gemm(gemm, Left::default()).min(few.unwrap_or(f64::MAX));
        let time = |n: i64| {
            let bytes = 2 * 4 * n * batch * rows * columns;
            let sum = bytes as f64 / (Chip::Sm90a.processors() * self.bandwidth) as f64
                + self.launch as f64;
            // Parts of parts only wait for each other.
            model.unsplit_gemm(Gemm { batch: batch * n, k: depth / n, ..gemm }) + sum
        };
        let all = (2..=self.most.min(steps)).filter(|n| steps % n == 0).map(|n| (n, time(n)));
        let (parts, time) = all.min_by(|a, b| a.1.total_cmp(&b.1))?;
        // The model is no better than that.
        (time < 0.9 * whole).then_some(parts)
    }
}

/// An operand with the depth as two dimensions, the parts in front; the batch's dimensions with
/// that of the parts, and the depth of a part.
fn operand(
    b: Builder,
    v: Value,
    batch: &[i64],
    contract: &[i64],
    parts: i64,
) -> Result<(Value, Vec<i64>, Vec<i64>)> {
    let depth = *contract.first().ok_or("sums nothing")?;
    let mut sizes = b.sizes_of(v)?;
    let all = sizes[depth as usize].known().ok_or("has an open depth")?;
    sizes.splice(depth as usize..=depth as usize, [Size::Static(parts), Size::Static(all / parts)]);
    let batch = batch.iter().map(|d| if *d > depth { d + 1 } else { *d }).chain([depth]).collect();
    Ok((b.add(&Reshape { input: v, sizes })?, batch, vec![depth + 1]))
}

fn split(b: Builder, op: Op, o: &DotGeneral, parts: i64) -> Result<Value> {
    let (lhs, lhs_batch, lhs_contract) = operand(b, o.lhs, &o.lhs_batch, &o.lhs_contract, parts)?;
    let (rhs, rhs_batch, rhs_contract) = operand(b, o.rhs, &o.rhs_batch, &o.rhs_contract, parts)?;
    let wide = Type::scalar(b.ctx, DType::F32);
    let place = lhs_batch.len() as i64 - 1;
    let products = b.add(&DotGeneral {
        lhs,
        rhs,
        lhs_batch,
        rhs_batch,
        lhs_contract,
        rhs_contract,
        element_type: Some(wide),
    })?;
    let sum = b.add(&Reduce {
        kind: ReduceKind::Sum,
        input: products,
        dims: vec![place],
        maybe_empty: false,
    })?;
    let dtype = tensor_type(op.result(0).ty())?.dtype;
    if dtype == DType::F32 {
        Ok(sum)
    } else {
        b.add(&Convert { input: sum, dtype: Type::scalar(b.ctx, dtype) })
    }
}
