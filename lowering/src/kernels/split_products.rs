//! `kiln-split-products`: splits K of a GEMM that has too few tiles for a GPU (split-K), followed
//! by a reduction kernel.
//!
//! Why: a CTA computes one tile, so 16 tiles with a large K keep 16 SMs busy and all others idle.
//! The splits become one more batch dimension. Their f32 partial results are summed by a second
//! kernel, which takes over the GEMM's epilogue. Two launches in a fixed order are bit-reproducible
//! in every run; atomic additions are not. The cost model that selects tiles for Hopper's tensor
//! cores chooses the split factor, counting the partial results' traffic and the extra launch. An
//! entry for the GEMM in the module's `kiln.parts`, from a table of measured schedules, overrides
//! it.
//!
//! A product of few results and a large K that no tensor core takes, as the gradient of a weight
//! that mixes a few heads, would be one CTA on any chip: it is split into as many parts as fill a
//! GPU.
//!
//! Numerics: reassociates. Partial results of 16-bit GEMMs stay f32, and are rounded once.
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
        /// Target chip: sm_80, sm_86, sm_89 or sm_90a; the cost model covers the tensor cores of
        /// the last one only
        pub chip: String = "sm_90a".into(),
        /// Largest split factor
        pub most: i64 = 128,
        /// Clocks that an additional launch takes
        pub launch: i64 = 4000,
        /// Bytes per clock of partial results that an SM writes or reads
        pub bandwidth: i64 = 36,
    }
}

/// On a module: the split-K factor of each GEMM, keyed by [`Splittable::product`].
pub const PARTS: &str = "kiln.parts";

/// A GEMM that can be split along K.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splittable {
    /// Key: operand types, batch and contracting dimensions, and the result's dtype.
    pub product: String,
    /// Number of K steps; the split factor divides it.
    pub steps: i64,
    /// Number of 128 by 128 output tiles.
    pub tiles: i64,
    /// Split factor chosen by the cost model.
    pub parts: i64,
}

impl Splittable {
    /// Describes an op, if it is a GEMM that can be split.
    pub fn of(op: Op) -> Option<Splittable> {
        let (dot, pass) = (DotGeneral::of(op)?, SplitProducts::default());
        let sizes = pass.sizes(&dot)?;
        let up = |n: i64| (n + 127) / 128;
        let tiles = sizes.batch * up(sizes.rows) * up(sizes.columns);
        Some(Splittable {
            product: table_key(op, &dot),
            steps: sizes.steps(),
            tiles,
            parts: pass.parts(&dot).unwrap_or(1),
        })
    }
}

fn table_key(op: Op, o: &DotGeneral) -> String {
    let element = op.result(0).ty().element().map_or(String::new(), |e| e.to_string());
    let (lhs, rhs) = (o.lhs.ty(), o.rhs.ty());
    format!(
        "{lhs} {rhs} batch {:?} x {:?} contract {:?} x {:?} to {element}",
        o.lhs_batch, o.rhs_batch, o.lhs_contract, o.rhs_contract
    )
}

/// The sizes of a GEMM: batch, M, N, K.
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
    const SUMMARY: &'static str =
        "Splits the K dimension of GEMMs whose tiles are too few for a GPU (split-K)";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        let tensor_cores = self.chip == Chip::Sm90a.name();
        let named = root.attr(PARTS);
        for op in walk(root) {
            let Some(dot) = DotGeneral::of(op) else { continue };
            let measured = named.and_then(|n| n.entry(&table_key(op, &dot))?.as_i64());
            let parts = match measured {
                Some(n) => self.sizes(&dot).filter(|s| n > 1 && s.steps() % n == 0).map(|_| n),
                None => self.parts(&dot),
            };
            let parts = parts.filter(|_| tensor_cores).or_else(|| few_results(&dot));
            let Some(parts) = parts else { continue };
            let b = Builder::before(op).ok_or_at(op, "is in no block")?;
            let result = split(b.at(op.loc()), op, &dot, parts).at(op)?;
            op.result(0).replace_uses(result);
            op.erase();
        }
        Ok(())
    }
}

/// Most results of a product that is split without tensor cores, which one CTA would compute.
const FEW_RESULTS: i64 = 1024;
/// Most parts of such a product, and the least K of each.
const FEW_PARTS: i64 = 1024;
const LEAST_K: i64 = 1024;

/// The split factor of a product of few results, if its operands' rows are too short for TMA; the
/// greatest that divides K.
fn few_results(o: &DotGeneral) -> Option<i64> {
    let [depth] = o.lhs_contract[..] else { return None };
    let static_dims =
        |v: Value| v.ty().dims().iter().map(|d| d.known()).collect::<Option<Vec<_>>>();
    let (lhs, rhs) = (static_dims(o.lhs)?, static_dims(o.rhs)?);
    let float = tensor_type(o.lhs.ty()).ok()?.dtype.is_float();
    let aligned = |dims: &[i64]| dims.last().is_none_or(|n| n % 8 == 0);
    let depth = *lhs.get(usize::try_from(depth).ok()?)?;
    let batch: i64 = o.lhs_batch.iter().map(|d| lhs[*d as usize]).product();
    let (left, right): (i64, i64) = (lhs.iter().product(), rhs.iter().product());
    if !float || aligned(&lhs) && aligned(&rhs) || left.min(right) == 0 || depth < 2 * LEAST_K {
        return None;
    }
    let results = (left / depth / batch) * (right / depth);
    let parts = (2..=FEW_PARTS.min(depth / LEAST_K)).rev().find(|n| depth % n == 0);
    parts.filter(|_| results <= FEW_RESULTS)
}

/// The product of an operand's free dimensions, and its only contracting dimension; none if a size
/// is dynamic or TMA cannot load the operand.
fn sizes(v: Value, batch: &[i64], contract: &[i64]) -> Option<(i64, i64)> {
    let [depth] = contract else { return None };
    let all: Vec<i64> = v.ty().dims().iter().map(|d| d.known()).collect::<Option<_>>()?;
    let free = (0..all.len())
        .filter(|d| *d as i64 != *depth && !batch.contains(&(*d as i64)))
        .map(|d| all[d])
        .product();
    // TMA needs rows of a multiple of 16 bytes.
    (all.last()? % 8 == 0).then_some((free, *all.get(*depth as usize)?))
}

/// Whether both operands are K-major, as the kernel of products of few rows takes them; those of a
/// weight's gradient are not.
fn reads_rows(o: &DotGeneral) -> bool {
    let last = |v: Value, contract: &[i64]| contract == [v.ty().dims().len() as i64 - 1];
    last(o.lhs, &o.lhs_contract) && last(o.rhs, &o.rhs_contract)
}

impl SplitProducts {
    /// The sizes of a GEMM that can be split.
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
    /// The split-K factor, if splitting is profitable.
    fn parts(&self, o: &DotGeneral) -> Option<i64> {
        let sizes = self.sizes(o)?;
        let (Sizes { batch, rows, columns, depth }, steps) = (sizes, sizes.steps());
        let (gemm, model) = (Gemm { batch, rows, columns, k: depth }, Chip::Sm90a);
        let few = reads_rows(o).then(|| model.skinny_gemm(gemm)).flatten();
        let whole = model.tiled_gemm(gemm, Left::default()).min(few.unwrap_or(f64::MAX));
        self.fastest(gemm, whole, |n| *n <= steps && steps % n == 0).map(|(parts, _)| parts)
    }
    /// The split factor of those that `divides` allows that takes least time, and that time, if it is
    /// less than `whole`, in clocks.
    pub(super) fn fastest(
        &self,
        gemm: Gemm,
        whole: f64,
        divides: impl Fn(&i64) -> bool,
    ) -> Option<(i64, f64)> {
        let (model, Gemm { batch, rows, columns, k }) = (Chip::Sm90a, gemm);
        let time = |n: i64| {
            let bytes = 2 * 4 * n * batch * rows * columns;
            let sum =
                bytes as f64 / (model.processors() * self.bandwidth) as f64 + self.launch as f64;
            // Without a further split inside the kernel: its CTAs would only wait for each other.
            model.unsplit_gemm(Gemm { batch: batch * n, k: k / n, ..gemm }) + sum
        };
        let all = (2..=self.most).filter(divides).map(|n| (n, time(n)));
        let (parts, time) = all.min_by(|a, b| a.1.total_cmp(&b.1))?;
        // 10% margin: the cost model is no more accurate.
        (time < 0.9 * whole).then_some((parts, time))
    }
}

/// An operand with K reshaped to `[splits, K / splits]`, its batch dimensions including that of the
/// splits, and its contracting dimensions.
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
