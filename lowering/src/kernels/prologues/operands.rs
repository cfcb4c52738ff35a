//! What TMA, or `cp.async`, requires of a GEMM's operands when the left one has a prologue.
use crate::kernels::graph::{Graph, Leaf};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, sym::Dim, value::DType};
use std::collections::HashSet;

/// 16-bit elements per 16-byte TMA unit.
pub const UNIT: i64 = 8;

/// A tensor that is read, with its stride in elements along each loop.
pub struct StridedOperand {
    pub value: Value,
    pub strides: Vec<Dim>,
}

impl StridedOperand {
    pub fn of(graph: &Graph, leaf: &Leaf, loops: usize) -> Option<StridedOperand> {
        let zero = || Dim::Known(0);
        let (mut steps, mut stride) = (vec![zero(); loops], Dim::Known(1));
        for (at, size) in leaf.at.iter().zip(graph.facts.dims(leaf.value)).rev() {
            let lin = at.linear().filter(|l| l.constant.is_zero())?;
            for (d, n) in &lin.dims {
                let step = steps.get_mut(*d)?;
                *step = step.add(&stride.mul(&Dim::Known(n.known()?)));
            }
            stride = stride.mul(size);
        }
        Some(StridedOperand { value: leaf.value, strides: steps })
    }
    fn uses(&self, d: usize) -> bool {
        self.strides[d].known() != Some(0)
    }
    /// Whether TMA can load it: contiguous along loop `near`, and all other strides nonzero
    /// multiples of `unit` elements.
    pub fn readable(&self, graph: &Graph, near: usize, loops: &[usize], unit: i64) -> bool {
        let far = |d: &usize| {
            *d == near || self.uses(*d) && graph.facts.divisor(&self.strides[*d]) % unit == 0
        };
        self.strides[near].known() == Some(1) && loops.iter().all(far)
    }
}

/// The dimensions of an operand of size above 1: batch dimensions, its own (M or N), and K.
pub struct OperandLoops {
    pub batch: Vec<usize>,
    pub free: Vec<usize>,
    pub k: usize,
}

impl OperandLoops {
    pub fn of(dims: &[Dim], batch: &[i64], contract: &[i64]) -> Option<OperandLoops> {
        let [depth] = contract else { return None };
        let several = |d: &usize| dims[*d].known() != Some(1);
        let in_batch = |d: &usize| batch.contains(&(*d as i64));
        let own =
            (0..dims.len()).filter(|d| several(d) && !in_batch(d) && *d as i64 != *depth).collect();
        Some(OperandLoops {
            batch: batch.iter().map(|d| *d as usize).filter(several).collect(),
            free: own,
            k: *depth as usize,
        })
    }
    pub fn all(&self) -> Vec<usize> {
        self.batch.iter().chain(&self.free).copied().chain([self.k]).collect()
    }
}

/// The only tensor over all rows and columns among the inputs of the left operand's prologue.
pub fn left(graph: &Graph, lhs: Value, loops: &OperandLoops) -> Result<StridedOperand> {
    if positions(graph, lhs) {
        return Err("it depends on positions, or picks elements".into());
    }
    let (leaves, dims) = (graph.leaves(lhs), graph.facts.dims(lhs));
    let places = leaves
        .iter()
        .map(|l| StridedOperand::of(graph, l, dims.len()))
        .collect::<Option<Vec<StridedOperand>>>();
    let places = places.ok_or("it reads elements in another order")?;
    // The kernel collapses several row dimensions into one.
    let joined = |p: &StridedOperand| {
        loops.free.windows(2).all(|d| p.strides[d[0]] == p.strides[d[1]].mul(&dims[d[1]]))
    };
    if !places.iter().all(joined) {
        return Err("its operand has row dimensions that do not merge".into());
    }
    let (mut whole, others): (Vec<StridedOperand>, Vec<StridedOperand>) =
        places.into_iter().partition(|p| p.uses(loops.k) && loops.free.iter().any(|d| p.uses(*d)));
    if others.iter().any(|p| dtype(p.value).is_none_or(|d| d == DType::F64)) {
        return Err("its operand is f64".into());
    }
    let raw = whole.pop().ok_or("no tensor has all of its rows and columns")?;
    if whole.iter().any(|p| p.value != raw.value || p.strides != raw.strides) {
        return Err("it reads two whole matrices".into());
    }
    let unit = match dtype(raw.value) {
        Some(DType::BF16 | DType::F16) => UNIT,
        Some(DType::F32) => UNIT / 2,
        _ => return Err("its operand is neither bf16, f16 nor f32".into()),
    };
    match raw.readable(graph, loops.k, &loops.all(), unit) {
        true => Ok(raw),
        false => Err("TMA cannot load its operands".into()),
    }
}

/// Whether TMA can load the right operand as it is.
pub fn right(graph: &Graph, dot: &DotGeneral) -> Result<()> {
    let dims = graph.facts.dims(dot.rhs);
    let loops = OperandLoops::of(dims, &dot.rhs_batch, &dot.rhs_contract)
        .ok_or("it sums over several dimensions")?;
    let refused = || "TMA cannot load its right operand".to_string();
    let (leaves, [column]) = (graph.leaves(dot.rhs), loops.free.as_slice()) else {
        return Err(refused().into());
    };
    let place = leaves
        .first()
        .filter(|_| leaves.len() == 1)
        .and_then(|l| StridedOperand::of(graph, l, dims.len()))
        .ok_or_else(refused)?;
    let fits =
        [loops.k, *column].iter().any(|near| place.readable(graph, *near, &loops.all(), UNIT));
    if fits && dtype(place.value) == dtype(dot.rhs) { Ok(()) } else { Err(refused().into()) }
}

/// Whether the ops that compute a value use an element's position, or gather by data-dependent
/// indices.
fn positions(graph: &Graph, v: Value) -> bool {
    let (mut stack, mut seen) = (vec![v], HashSet::new());
    while let Some(v) = stack.pop() {
        let Some(op) = v.def().filter(|_| !graph.is_leaf(v) && seen.insert(v)) else { continue };
        if matches!(
            op.kind(),
            Some(
                OpKind::Iota
                    | OpKind::Gather
                    | OpKind::DynamicSlice
                    | OpKind::Reverse
                    | OpKind::Bitcast
            )
        ) {
            return true;
        }
        stack.extend(op.operands().into_iter().filter(|v| v.ty().is_tensor()));
    }
    false
}

/// The dtype of a tensor.
pub(crate) fn dtype(v: Value) -> Option<DType> {
    tensor_type(v.ty()).ok().map(|t| t.dtype)
}
