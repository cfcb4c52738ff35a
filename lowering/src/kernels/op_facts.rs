//! What single ops are to fusion and layout: whether they are expensive, which tensors they read,
//! which transpose they fold into their store.
use crate::kernels::marks::GROUPS;
use kiln_dialects::{ir::*, ops::*, sym};
use kiln_passes::{permutation::channels_last, readers::only_reader};

/// Bytes of an element of a tensor; 0 for what is none.
pub fn element_bytes(v: Value) -> usize {
    v.ty().element().and_then(|e| e.dtype().ok()).map_or(0, |d| d.byte_size())
}

/// Ops that take and produce whole buffers, unless they are lowered to loops.
pub fn is_library(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(kind, Scatter | Sort | TopK | Fft | Cumulative | DynamicUpdateSlice | PtxCall)
}

/// The value of one element that a movement op gives another shape.
pub fn moved_element(v: Value) -> Option<Value> {
    use OpKind::*;
    let op = v.def().filter(|o| matches!(o.kind(), Some(Reshape | BroadcastInDim | Transpose)))?;
    let one = |v: Value| v.ty().dims().iter().all(|d| d.known() == Some(1));
    Some(op.operand(0)).filter(|from| one(v) && one(*from))
}

/// The display name of an op: its mnemonic, or the symbol of external PTX.
pub fn title(op: Op) -> Option<String> {
    PtxCall::of(op).map(|o| o.callee).or_else(|| Some(op.kind()?.mnemonic().to_string()))
}

/// Whether an op costs more than a load and a store. A power that is one or two products does not.
pub fn heavy(op: Op) -> bool {
    use OpKind::*;
    let Some(kind) = op.kind() else { return false };
    matches!(
        kind,
        Exp | Exp2
            | Expm1
            | Log
            | Log1p
            | Log2
            | Sin
            | Cos
            | Tan
            | Asin
            | Acos
            | Atan
            | Sinh
            | Cosh
            | Tanh
            | Erf
            | Pow
            | Atan2
            | Rem
            | FloorDiv
    ) && !(kind == Pow && small_power(op.operand(1)))
}

/// Whether an exponent is a constant for which `kiln-to-linalg` emits products.
fn small_power(mut v: Value) -> bool {
    while let Some(op) = v.def().filter(|o| {
        matches!(o.kind(), Some(OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Convert))
    }) {
        v = op.operand(0);
    }
    let value = v
        .def()
        .filter(|o| matches!(o.kind(), Some(OpKind::Splat | OpKind::Constant)))
        .and_then(|o| o.attr("value"));
    let number = value
        .map(|a| a.splat_value().unwrap_or(a))
        .and_then(|a| a.as_f64().or_else(|| a.as_i64().map(|n| n as f64)));
    number.is_some_and(|n| [2.0, 3.0, 4.0].contains(&n))
}

/// The tensor operands of an op, and the tensors that its regions capture.
pub fn reads(op: Op) -> Vec<Value> {
    let own = op.operands().into_iter().filter(|v| v.ty().is_tensor());
    own.chain(captured(op)).collect()
}

/// The tensors that an op's regions capture from outside.
pub fn captured(op: Op) -> Vec<Value> {
    let inside: Vec<Op> = walk(op).into_iter().filter(|o| *o != op).collect();
    let within = |v: &Value| match v.block_arg() {
        Some((block, _)) => block.parent() == Some(op),
        None => v.def().is_some_and(|d| inside.contains(&d)),
    };
    let mut all: Vec<Value> = vec![];
    for v in inside.iter().flat_map(|o| o.operands()).filter(|v| v.ty().is_tensor() && !within(v)) {
        if !all.contains(&v) {
            all.push(v);
        }
    }
    all
}

/// Whether an op is an attention or its derivatives: a kernel of its own, which stores whole rows.
pub fn is_attention(op: Op) -> bool {
    matches!(op.kind(), Some(OpKind::Attention | OpKind::AttentionGradient))
}

/// The transposes that a contraction or attention folds into its stores, one for each result: each
/// the only reader, if it keeps the innermost dimension (whole vectors), or converts a convolution's
/// result to NHWC. None, if a result has no such transpose.
pub fn folded_transposes(op: Op) -> Vec<Op> {
    let image = match op.kind() {
        Some(OpKind::DotGeneral | OpKind::Attention | OpKind::AttentionGradient) => false,
        Some(OpKind::Convolution) if contracts(op) => true,
        _ => return vec![],
    };
    let folded = |v: Value| -> Option<Op> {
        let reader = only_reader(v)?;
        let permutation = Transpose::of(reader)?.permutation;
        let last = permutation.last().is_some_and(|p| *p as usize == permutation.len() - 1);
        let fits = if image { permutation == channels_last(permutation.len()) } else { last };
        fits.then_some(reader)
    };
    // The second result of an attention, its log-sum-exp, has no transpose of its own. It is there
    // when the transpose is, so that nothing may read it before.
    let gradient = op.kind() == Some(OpKind::AttentionGradient);
    let count = if gradient { op.result_count() } else { 1 };
    let all: Option<Vec<Op>> = op.results().into_iter().take(count).map(folded).collect();
    let others: Vec<Op> =
        op.results().iter().skip(count).flat_map(|v| v.uses()).map(|(user, _)| user).collect();
    let early = |t: &Op| {
        let between = std::iter::successors(op.next(), |o| o.next()).take_while(|o| o != t);
        !others.is_empty() && between.into_iter().any(|o| others.contains(&o))
    };
    all.filter(|all| !all.first().is_some_and(early)).unwrap_or_default()
}

/// The transpose that a contraction or attention folds into the store of its first result.
pub fn folded_transpose(op: Op) -> Option<Op> {
    folded_transposes(op).first().copied()
}

/// The op that pads a value with zeros, if one does.
pub fn zero_padding(v: Value) -> Option<Pad> {
    let pad = v.def().and_then(Pad::of)?;
    let value = pad.value.def().and_then(Splat::of)?.value;
    (value.as_f64() == Some(0.0)).then_some(pad)
}

/// The contraction or attention that folds this transpose into its store.
pub fn folding_op(op: Op) -> Option<Op> {
    let from = Transpose::of(op)?.input.def()?;
    folded_transposes(from).contains(&op).then_some(from)
}

/// Whether a convolution is a plain contraction: not transposed, and either one group or groups of
/// known size.
pub fn contracts(op: Op) -> bool {
    let Some(o) = Convolution::of(op) else { return false };
    let known = |d: usize| o.weight.ty().dims().get(d).is_some_and(|n| n.known().is_some());
    !o.transposed && (o.groups == 1 || known(0) && known(1))
}

/// Whether TMA's im2col mode can address the windows of a convolution: traversal strides of at most 8,
/// and pixel-box offsets of 8 bits.
pub fn fits_im2col(o: &Convolution, window: &[i64]) -> bool {
    window.len() == o.strides.len()
        && window.iter().enumerate().all(|(i, n)| {
            let reach = o.dilation[i].saturating_mul(n - 1);
            (1..=8).contains(&o.strides[i])
                && reach < 256
                && (0..128).contains(&o.pad_low[i])
                && (-128..128).contains(&(o.pad_high[i] - reach))
        })
}

/// Whether a convolution has one group, or groups that tensor cores read (`kiln-merge-groups`).
pub fn is_dense(op: Op) -> bool {
    Convolution::of(op).is_some_and(|o| o.groups == 1 || op.attr(GROUPS).is_some())
}

/// Whether each channel of a convolution is a group of its own, with one filter.
pub fn is_depthwise(o: &Convolution) -> bool {
    let known = |d: usize| o.weight.ty().dims().get(d).and_then(sym::Dim::known);
    o.groups != 1 && known(0) == Some(o.groups) && known(1) == Some(1)
}
