//! Slices moved above elementwise ops.
use kiln_dialects::{ir::*, ops::*, rules::tensor_type};

/// A slice without its input.
pub(crate) struct SliceSpec {
    offsets: Vec<Size>,
    /// `None` is all of a dimension: reading its size would be one more use of the input.
    sizes: Vec<Option<Size>>,
    strides: Vec<i64>,
}

impl From<Slice> for SliceSpec {
    fn from(o: Slice) -> SliceSpec {
        SliceSpec {
            offsets: o.offsets,
            sizes: o.sizes.into_iter().map(Some).collect(),
            strides: o.strides,
        }
    }
}

impl SliceSpec {
    /// `size` elements along one axis, all of the others.
    pub(crate) fn along(axis: usize, offset: i64, size: i64, rank: usize) -> SliceSpec {
        let (mut offsets, mut sizes) = (vec![Size::Static(0); rank], vec![None; rank]);
        offsets[axis] = Size::Static(offset);
        sizes[axis] = Some(Size::Static(size));
        SliceSpec { offsets, sizes, strides: vec![1; rank] }
    }

    /// The slice of an elementwise op's result, computed from slices of its operands. `known` gives
    /// slices that exist already.
    pub(crate) fn of_elementwise(
        &self,
        b: &Builder,
        op: Op,
        known: &dyn Fn(Value) -> Option<Value>,
    ) -> Result<Value> {
        let operands = op.operands();
        let parts = operands
            .iter()
            .map(|v| known(*v).map_or_else(|| self.of_operand(b, *v, known), Ok))
            .collect::<Result<Vec<_>, _>>()?;
        let copy = b
            .at(op.loc())
            .clone_op(op, &|o| operands.iter().position(|x| *x == o).map_or(o, |i| parts[i]))?;
        let dtype = tensor_type(op.result(0).ty())?.dtype;
        let dims = parts.first().ok_or("reads nothing")?.ty().dims();
        copy.result(0).set_ty(Type::tensor(b.ctx, dtype, &dims));
        Ok(copy.result(0))
    }

    fn of_operand(
        &self,
        b: &Builder,
        input: Value,
        known: &dyn Fn(Value) -> Option<Value>,
    ) -> Result<Value> {
        if let Some(op) = input.def() {
            if let Some(o) = Splat::of(op) {
                return b.add(&Splat { sizes: self.sizes_within(&o.sizes), ..o });
            }
            if let Some(o) = BroadcastInDim::of(op) {
                let input = self.of_broadcast(b, &o)?;
                return b.add(&BroadcastInDim { input, sizes: self.sizes_within(&o.sizes), ..o });
            }
            if op.kind().is_some_and(OpKind::is_arithmetic) && input.uses().len() == 1 {
                return self.of_elementwise(b, op, known);
            }
        }
        self.slice(b, input)
    }

    fn slice(&self, b: &Builder, input: Value) -> Result<Value> {
        let own = |(d, n): (usize, &Option<Size>)| n.map_or_else(|| b.size_of(input, d), Ok);
        let sizes = self.sizes.iter().enumerate().map(own).collect::<Result<_>>()?;
        b.add(&Slice { input, offsets: self.offsets.clone(), sizes, strides: self.strides.clone() })
    }

    /// The slice's sizes in a tensor of these sizes.
    fn sizes_within(&self, whole: &[Size]) -> Vec<Size> {
        self.sizes.iter().zip(whole).map(|(own, all)| own.unwrap_or(*all)).collect()
    }

    /// The input of a broadcast, sliced in the dimensions that it has.
    fn of_broadcast(&self, b: &Builder, o: &BroadcastInDim) -> Result<Value> {
        let mut own = SliceSpec { offsets: vec![], sizes: vec![], strides: vec![] };
        for (d, size) in o.dims.iter().map(|d| *d as usize).zip(o.input.ty().dims()) {
            let one = size.known() == Some(1);
            own.offsets.push(if one { Size::Static(0) } else { self.offsets[d] });
            own.sizes.push(self.sizes[d].filter(|_| !one));
            own.strides.push(if one { 1 } else { self.strides[d] });
        }
        let whole = own.sizes.iter().all(|n| n.is_none());
        if whole { Ok(o.input) } else { own.slice(b, o.input) }
    }
}

/// Ops that only change indexing.
pub(crate) fn is_view(kind: OpKind) -> bool {
    use OpKind::{BroadcastInDim, Concat, Reshape, Slice, Splat, Transpose};
    matches!(kind, BroadcastInDim | Concat | Reshape | Slice | Splat | Transpose)
}

/// Whether a value is materialised anyway, or is elementwise in such values.
pub(crate) fn is_materialised(v: Value, depth: usize) -> bool {
    let Some(op) = v.def() else { return true };
    let Some(kind) = op.kind() else { return true };
    if v.uses().len() > 1
        || matches!(kind, OpKind::GetGlobal | OpKind::Constant | OpKind::Splat | OpKind::Iota)
    {
        return true;
    }
    let made = kind.is_elementwise() || (is_view(kind) && kind != OpKind::Concat);
    let mut tensors = op.operands().into_iter().filter(|o| o.ty().is_tensor());
    made && depth > 0 && tensors.all(|o| is_materialised(o, depth - 1))
}
