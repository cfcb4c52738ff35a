//! `kiln-expand-scans`: a cumulative sum, product or extreme becomes a reduction of what comes before each element.
//!
//! Why: a GPU has no form of a scan yet. Within one kernel the larger tensor is never in memory; the work grows with the square of the axis, which is
//! little for the masks and positions that models compute with it.
//!
//! Numerics: reassociates.
//!
//! ```text
//! before:  %0 = kiln.cumulative sum %x axis = 0 : tensor<4xf32>
//! after:   %b = kiln.broadcast_in_dim %x dims = [1] sizes = [4, 4]   %m = kiln.compare le %j, %i   %s = kiln.select %m, %b, %zero
//!          %0 = kiln.reduce sum %s dims = [1]
//! ```
use crate::pass::{Failure, Numerics, Pass};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{GRAPH_LEVELS, Level, tensor_type},
    value::DType,
};

crate::pass_options! {
    /// The pass.
    pub struct ExpandScans {}
}

impl Pass for ExpandScans {
    const FLAG: &'static str = "kiln-expand-scans";
    const SUMMARY: &'static str = "Writes cumulative sums, products and extremes as reductions";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<(), Failure> {
        for op in walk(root) {
            let Some(scan) = Cumulative::of(op) else { continue };
            let b = Builder::before(op).ok_or_else(|| Failure::at(op, "is in no block"))?;
            let result = expanded(b, &scan).map_err(|e| Failure::at(op, e))?;
            op.result(0).replace_uses(result);
            op.erase();
        }
        Ok(())
    }
}

fn expanded(b: Builder, scan: &Cumulative) -> Result<Value, String> {
    let dtype = tensor_type(scan.input.ty())?.dtype;
    let own = b.sizes_of(scan.input)?;
    let (rank, axis) = (own.len() as i64, scan.axis);
    // In front of the axis a dimension of copies, which is what stays.
    let mut sizes = own.clone();
    sizes.insert(axis as usize, *own.get(axis as usize).ok_or("has no such axis")?);
    let dims = (0..rank).map(|d| d + i64::from(d >= axis)).collect();
    let all = b.add(&BroadcastInDim { input: scan.input, dims, sizes: sizes.clone() })?;
    let i64 = Type::scalar(b.ctx, DType::I64);
    let position = |axis: i64| b.add(&Iota { sizes: sizes.clone(), axis, dtype: i64 });
    let before = b.add(&Compare { kind: CompareKind::Le, lhs: position(axis + 1)?, rhs: position(axis)? })?;
    let (kind, nothing) = match (scan.kind, dtype.is_float()) {
        (CumulativeKind::Sum, _) => (ReduceKind::Sum, Attr::scalar_int(b.ctx, dtype, 0)),
        (CumulativeKind::Prod, _) => (ReduceKind::Prod, Attr::scalar_int(b.ctx, dtype, 1)),
        (CumulativeKind::Max, true) => (ReduceKind::Max, Attr::scalar(b.ctx, dtype, f64::NEG_INFINITY)),
        (CumulativeKind::Min, true) => (ReduceKind::Min, Attr::scalar(b.ctx, dtype, f64::INFINITY)),
        (CumulativeKind::Max, false) => (ReduceKind::Max, Attr::scalar_int(b.ctx, dtype, dtype.int_range().0)),
        (CumulativeKind::Min, false) => (ReduceKind::Min, Attr::scalar_int(b.ctx, dtype, dtype.int_range().1)),
    };
    let nothing = b.add(&Splat { value: nothing, sizes })?;
    let masked = b.add(&Select { condition: before, on_true: all, on_false: nothing })?;
    b.add(&Reduce { kind, input: masked, dims: vec![axis + 1], maybe_empty: false })
}
