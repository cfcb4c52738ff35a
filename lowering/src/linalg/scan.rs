//! Scans: cumulative sums, products and extremes, as `kiln.structured.scan`.
use crate::linalg::{
    common::{Read, Tensors, id, neutral, reduces, start},
    expr::dtype,
    kernel::{Kernel, Nest, region},
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// A scan that prims write as a masked reduction: of a tensor that is repeated along a leading copy of
/// its axis, with an iota of either compared. `kiln-expand-scans` writes the scan of a few block totals
/// so.
pub struct MaskedScan {
    /// The value that is combined, over the reduction's dimensions.
    pub value: Value,
    /// What is combined.
    pub kind: CumulativeKind,
    /// The dimension of the axis in the result; the reduced one follows it.
    pub axis: usize,
    /// Whether an element does not combine its own.
    pub exclusive: bool,
}

impl MaskedScan {
    /// The scan that a reduction of elements of `d` is.
    pub fn of(o: &Reduce, d: DType) -> Option<MaskedScan> {
        let kind = match o.kind {
            ReduceKind::Sum => CumulativeKind::Sum,
            ReduceKind::Prod => CumulativeKind::Prod,
            ReduceKind::Max => CumulativeKind::Max,
            ReduceKind::Min => CumulativeKind::Min,
            ReduceKind::Any | ReduceKind::All => return None,
        };
        let [over] = o.dims[..] else { return None };
        let axis = over.checked_sub(1).filter(|a| *a >= 0)?;
        let sizes = o.input.ty().dims();
        let equal = sizes.get(axis as usize)?.known() == sizes.get(over as usize)?.known();
        let select = Select::of(o.input.def()?)?;
        let compare = Compare::of(select.condition.def()?)?;
        let along = |v: Value| Some(Iota::of(v.def()?)?.axis);
        let exclusive = match (compare.kind, along(compare.lhs)?, along(compare.rhs)?) {
            (CompareKind::Lt, a, b) if (a, b) == (over, axis) => true,
            (CompareKind::Le, a, b) if (a, b) == (over, axis) => false,
            (CompareKind::Gt, a, b) if (a, b) == (axis, over) => true,
            (CompareKind::Ge, a, b) if (a, b) == (axis, over) => false,
            _ => return None,
        };
        let nothing = Splat::of(select.on_false.def()?)?.value;
        let identity = neutral(o.input.ctx(), o.kind, d);
        let same = match d.is_float() {
            true => nothing.as_f64() == identity.as_f64(),
            false => nothing.as_i64() == identity.as_i64(),
        };
        // The value is the same for all elements of the result.
        let repeated = BroadcastInDim::of(select.on_true.def()?)?;
        let free = !repeated.dims.contains(&axis) && d != DType::I1;
        let found = MaskedScan { value: select.on_true, kind, axis: axis as usize, exclusive };
        (equal && sizes[axis as usize].known().is_some() && same && free).then_some(found)
    }
}

/// Lowers a cumulative op.
pub fn cumulative(k: &Kernel, o: &Cumulative) -> Tensors {
    let (d, sizes) = (dtype(o.input)?, k.sizes_of(o.input)?);
    let scan = Scan { kind: o.kind, axis: o.axis as usize, exclusive: false };
    let at = id(sizes.len());
    scan.build(k, (o.input, at), d, sizes)
}

/// A cumulative sum, product or extreme.
pub struct Scan {
    /// What is combined.
    pub kind: CumulativeKind,
    /// The loop of the result that it runs along.
    pub axis: usize,
    /// Whether an element does not combine its own.
    pub exclusive: bool,
}

impl Scan {
    /// Lowers it to `kiln.structured.scan` over a result of these sizes, of elements of `d` that are
    /// read at this index.
    pub fn build(&self, k: &Kernel, (value, at): Read, d: DType, sizes: Vec<Size>) -> Tensors {
        let init = start(k, reduces(self.kind), d, &sizes)?;
        let n = sizes.len();
        let nest = Nest {
            reduction: vec![false; n],
            sizes,
            // An operand gives the size of the axis.
            outs: vec![(init, (0..n).filter(|e| *e != self.axis).collect())],
            reads: vec![(value, at.clone())],
            body: &mut |body, _| Ok(vec![body.element(value, &at)?]),
        };
        if nest.is_empty() {
            return Ok(vec![init]);
        }
        let operands = k.operands(&nest)?;
        let mut maps = operands.maps.as_array().unwrap_or_default();
        maps.truncate(operands.ins);
        maps.push(k.map_of(n, &(0..n).collect::<Vec<_>>())?);
        let node = StructuredScan {
            inputs: operands.values[..operands.ins].to_vec(),
            init,
            kind: self.kind,
            axis: self.axis as i64,
            exclusive: self.exclusive,
            is_unsigned: d == DType::UI8,
            indexing_maps: Attr::array(k.b.ctx, &maps),
        };
        let types = &operands.types[..operands.ins];
        let mut body = region(k, &operands, 0, nest.body);
        Ok(k.b.create_with(&node, &[init.ty()], &mut [(types, &mut body)])?.results())
    }
}
