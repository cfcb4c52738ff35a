//! Stages: the ops that get a loop nest of their own. These are reductions, contractions, windows,
//! argmax and argmin, and the slices of concat and pad.
use crate::{
    analysis::index_expr::IndexExpr,
    kernels::op_facts::{folding_op, is_attention, moved_element},
    linalg::{
        arg::arg,
        common::{Tensors, id, reduces, start},
        contract::{convolution, dot_general, product},
        expr::dtype,
        fourier::fft,
        kernel::{Kernel, Nest, slice},
        scalar::storage,
        scan::{MaskedScan, Scan, cumulative},
        weight_gradient::weight_gradient,
        winograd,
    },
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Lowers a stage; returns the tensors of the op's results.
pub fn stage(k: &Kernel, op: Op) -> Tensors {
    match op.kind() {
        Some(OpKind::Reduce) => reduce(k, &Reduce::of(op).ok_or_malformed(op)?),
        Some(OpKind::DotGeneral) => dot_general(k, op, &DotGeneral::of(op).ok_or_malformed(op)?),
        Some(OpKind::Convolution) => convolution(k, op, &Convolution::of(op).ok_or_malformed(op)?),
        Some(OpKind::ReduceWindow) => {
            reduce_window(k, op, &ReduceWindow::of(op).ok_or_malformed(op)?)
        }
        Some(OpKind::ConvolutionWeightGradient) => {
            weight_gradient(k, &ConvolutionWeightGradient::of(op).ok_or_malformed(op)?)
        }
        Some(OpKind::WinogradInput) => {
            winograd::input(k, op, &WinogradInput::of(op).ok_or_malformed(op)?)
        }
        Some(OpKind::WinogradOutput) => {
            winograd::output(k, op, &WinogradOutput::of(op).ok_or_malformed(op)?)
        }
        Some(OpKind::Cumulative) => cumulative(k, &Cumulative::of(op).ok_or_malformed(op)?),
        Some(OpKind::Fft) => fft(k, op, &Fft::of(op).ok_or_malformed(op)?),
        Some(OpKind::ArgMax) => arg(
            k,
            op.operand(0),
            ArgMax::of(op).ok_or_malformed(op)?.axis as usize,
            CompareKind::Gt,
        ),
        Some(OpKind::ArgMin) => arg(
            k,
            op.operand(0),
            ArgMin::of(op).ok_or_malformed(op)?.axis as usize,
            CompareKind::Lt,
        ),
        Some(OpKind::Concat) => concat(k, op, &Concat::of(op).ok_or_malformed(op)?),
        Some(OpKind::InsertSlice) => insert_slice(k, op, &InsertSlice::of(op).ok_or_malformed(op)?),
        Some(OpKind::Pad) => pad(k, op, &Pad::of(op).ok_or_malformed(op)?),
        _ => Err(Error::unsupported(op, "has no compiled form yet")),
    }
}

/// Whether an op is lowered as a stage.
pub fn is_stage(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(
        kind,
        Reduce
            | Cumulative
            | Fft
            | DotGeneral
            | Convolution
            | ReduceWindow
            | ConvolutionWeightGradient
            | WinogradInput
            | WinogradOutput
            | ArgMax
            | ArgMin
            | Concat
            | InsertSlice
            | Pad
    )
}

fn reduce(k: &Kernel, o: &Reduce) -> Tensors {
    let (d, sizes) = (dtype(o.input)?, k.sizes_of(o.input)?);
    let n = sizes.len();
    let gone = |i: usize| o.dims.contains(&(i as i64));
    let stay: Vec<usize> = (0..n).filter(|i| !gone(*i)).collect();
    if let Some(masked) = MaskedScan::of(o, d) {
        // The reduced dimension follows the axis, and reads what it reads.
        let inner = |i: usize| if i <= masked.axis { i } else { i - 1 };
        let at = (0..n).map(|i| IndexExpr::dim(inner(i))).collect();
        let scan = Scan { kind: masked.kind, axis: masked.axis, exclusive: masked.exclusive };
        let sizes = stay.iter().map(|i| sizes[*i]).collect();
        return scan.build(k, (masked.value, at), d, sizes);
    }
    let out = start(k, o.kind, d, &stay.iter().map(|i| sizes[*i]).collect::<Vec<_>>())?;
    let at = id(n);
    if let Some([(lhs, lhs_at), (rhs, rhs_at)]) = product(k, o, d, &stay)? {
        return k.contract(Nest {
            reduction: (0..n).map(gone).collect(),
            sizes,
            outs: vec![(out, stay)],
            reads: vec![(lhs, lhs_at.clone()), (rhs, rhs_at.clone())],
            body: &mut |body, _| Ok(vec![body.element(lhs, &lhs_at)?, body.element(rhs, &rhs_at)?]),
        });
    }
    k.generic(Nest {
        reduction: (0..n).map(gone).collect(),
        sizes,
        outs: vec![(out, stay)],
        reads: vec![(o.input, at.clone())],
        body: &mut |body, acc| {
            let x = body.element(o.input, &at)?;
            if d == DType::I1 {
                // As bytes, so that the combiner is the last op of an iteration.
                let x = body.s.store(x, Type::scalar(body.s.b.ctx, storage(d)))?;
                let or = matches!(o.kind, ReduceKind::Any | ReduceKind::Sum | ReduceKind::Max);
                let combine = if or { arith::ori } else { arith::andi };
                return Ok(vec![combine(body.s, acc[0], x)?]);
            }
            let acc = body.s.load(acc[0], d)?;
            Ok(vec![body.s.combine(o.kind, acc, x, d)?])
        },
    })
}

fn reduce_window(k: &Kernel, op: Op, o: &ReduceWindow) -> Tensors {
    if o.pad_low.iter().chain(&o.pad_high).any(|p| *p != 0) {
        return Err("is padded; kiln-expose-padding comes first".into());
    }
    let kind = reduces(o.kind);
    let (d, mut sizes) = (dtype(o.input)?, k.sizes_of(op.result(0))?);
    let parallel = sizes.len();
    let windows: Vec<usize> = (0..parallel).filter(|i| o.window[*i] != 1).collect();
    let out = start(k, kind, d, &sizes)?;
    sizes.extend(windows.iter().map(|i| Size::Static(o.window[*i])));
    let n = sizes.len();
    let position = |i: usize| {
        let base = IndexExpr::dim(i).times(IndexExpr::number(o.strides[i]));
        match windows.iter().position(|w| *w == i) {
            Some(w) => {
                base.plus(IndexExpr::dim(parallel + w).times(IndexExpr::number(o.dilation[i])))
            }
            None => base,
        }
    };
    let at: Vec<IndexExpr> = (0..parallel).map(position).collect();
    k.generic(Nest {
        reduction: (0..n).map(|i| i >= parallel).collect(),
        sizes,
        outs: vec![(out, (0..parallel).collect())],
        reads: vec![(o.input, at.clone())],
        body: &mut |body, acc| {
            let x = body.element(o.input, &at)?;
            let acc = body.s.load(acc[0], d)?;
            Ok(vec![body.s.combine(kind, acc, x, d)?])
        },
    })
}

/// Extracts a slice of `whole`, lets `write` fill it, and inserts it back.
fn write_slice(
    k: &Kernel,
    whole: Value,
    offsets: &[Size],
    sizes: &[Size],
    write: &mut dyn FnMut(Value) -> Result<Value>,
) -> Result<Value> {
    // Nothing to write; an MLIR slice may not start at the end.
    if sizes.iter().any(|s| s.known() == Some(0)) {
        return Ok(whole);
    }
    let element = whole.ty().element().ok_or("is no tensor")?.dtype()?;
    let filled = write(slice(k.b, whole, offsets, sizes, element)?)?;
    tensor::insert_slice(k.b, filled, whole, offsets, sizes, &Size::all(&vec![1; sizes.len()]))
}

fn concat(k: &Kernel, op: Op, o: &Concat) -> Tensors {
    let axis = o.axis as usize;
    let sizes = k.sizes_of(op.result(0))?;
    let mut whole = k.empty(storage(dtype(op.result(0))?), &sizes)?;
    let (mut offset, mut slices) = (Size::Static(0), vec![]);
    for v in &o.inputs {
        let own = k.sizes_of(*v)?;
        let mut offsets = vec![Size::Static(0); sizes.len()];
        offsets[axis] = offset;
        offset = sum(k, offset, own[axis])?;
        slices.push((*v, offsets, own));
    }
    // Slices that are a contraction's epilogue come first, right after it.
    slices.sort_by_key(|(v, ..)| !depends_on_stage(*v));
    for (v, offsets, own) in slices {
        whole = write_slice(k, whole, &offsets, &own, &mut |part| k.write(v, &own, part))?;
    }
    Ok(vec![whole])
}

/// Inserts a slice into the kernel's destination operand, or into a new tensor.
fn insert_slice(k: &Kernel, op: Op, o: &InsertSlice) -> Tensors {
    let whole = match o.dest {
        Some(whole) => k.stored(whole).ok_or("writes on what is in no memory")?,
        None => k.empty(storage(dtype(op.result(0))?), &k.sizes_of(op.result(0))?)?,
    };
    let new = |s: &Size| if let Size::Dynamic(v) = s { Size::Dynamic(k.new_index(*v)) } else { *s };
    let (own, mut offsets) = (k.sizes_of(o.source)?, o.offsets.iter().map(new).collect::<Vec<_>>());
    if let Some((start, axis)) = o.start.zip(o.axis) {
        let axis = usize::try_from(axis).map_err(|_| "has a negative axis")?;
        let (n, size) = (own[axis], k.sizes_of(op.result(0))?[axis]);
        offsets[axis] = sum(k, offsets[axis], moved_by(k, start, offsets[axis], n, size)?)?;
    }
    // An attention has no epilogue of other loops: it writes the slice itself.
    let made = o
        .source
        .def()
        .filter(|d| o.source.uses().len() == 1 && is_attention(folding_op(*d).unwrap_or(*d)));
    let direct = made.and_then(|_| k.stored(o.source));
    let mut fill = |part| direct.map_or_else(|| k.write(o.source, &own, part), Ok);
    Ok(vec![write_slice(k, whole, &offsets, &own, &mut fill)?])
}

/// The element of a 0-d integer, clamped so that a slice of `own` elements that starts at `offset`
/// stays within `size`.
fn moved_by(k: &Kernel, start: Value, offset: Size, own: Size, size: Size) -> Result<Size> {
    let mut same = std::iter::successors(Some(start), |v| moved_element(*v));
    let tensor = same.find_map(|v| k.stored(v)).ok_or("starts at what is in no memory")?;
    let zero = k.b.index(0)?;
    let first = tensor::extract(k.b, tensor, &vec![zero; tensor.ty().dims().len()])?;
    let start = arith::index_cast(k.b, first, Type::index(k.b.ctx))?;
    let room = match (size, offset, own) {
        (Size::Static(size), Size::Static(offset), Size::Static(own)) => {
            Size::Static(size - offset - own)
        }
        _ => apply(k, arith::subi, apply(k, arith::subi, size, offset)?, own)?,
    };
    let start = apply(k, arith::minsi, Size::Dynamic(start), room)?;
    apply(k, arith::maxsi, start, Size::Static(0))
}

/// Whether a value of the kernel depends on a stage.
fn depends_on_stage(v: Value) -> bool {
    let (mut stack, mut seen) = (vec![v], std::collections::HashSet::new());
    while let Some(v) = stack.pop() {
        let Some(op) = v.def().filter(|op| seen.insert(*op)) else { continue };
        if op.kind().is_some_and(is_stage) {
            return true;
        }
        stack.extend(op.operands());
    }
    false
}

fn sum(k: &Kernel, a: Size, b: Size) -> Result<Size> {
    if a.known() == Some(0) {
        return Ok(b);
    }
    if let (Some(x), Some(y)) = (a.known(), b.known()) {
        return Ok(Size::Static(x + y));
    }
    apply(k, arith::addi, a, b)
}

type SizeOp = fn(Builder, Value, Value) -> Result<Value>;

fn apply(k: &Kernel, op: SizeOp, a: Size, b: Size) -> Result<Size> {
    let ssa = |s: Size| match s {
        Size::Static(n) => k.b.index(n),
        Size::Dynamic(v) => Ok(v),
    };
    op(k.b, ssa(a)?, ssa(b)?).map(Size::Dynamic)
}

/// Splits a padding count into elements added and elements removed, one of which is 0.
fn added_and_removed(k: &Kernel, count: Size) -> Result<(Size, Size)> {
    let zero = Size::Static(0);
    match count {
        Size::Static(n) => Ok((Size::Static(n.max(0)), Size::Static(-n.min(0)))),
        Size::Dynamic(v) => {
            let count = Size::Dynamic(k.new_index(v));
            Ok((
                apply(k, arith::maxsi, count, zero)?,
                apply(k, arith::maxsi, apply(k, arith::subi, zero, count)?, zero)?,
            ))
        }
    }
}

fn pad(k: &Kernel, op: Op, o: &Pad) -> Tensors {
    let (sizes, own) = (k.sizes_of(op.result(0))?, k.sizes_of(o.input)?);
    let n = sizes.len();
    let mut whole = k.empty(storage(dtype(op.result(0))?), &sizes)?;
    // A negative count removes: reads start that many elements later.
    let split =
        |all: &[Size]| all.iter().map(|s| added_and_removed(k, *s)).collect::<Result<Vec<_>, _>>();
    let (low, high) = (split(&o.low)?, split(&o.high)?);
    let offsets: Vec<Size> = low.iter().map(|(added, _)| *added).collect();
    let mut inner = vec![];
    for i in 0..n {
        let removed = sum(k, low[i].1, high[i].1)?;
        inner.push(match (own[i].known(), removed.known()) {
            (_, Some(0)) => own[i],
            (Some(size), Some(removed)) => Size::Static(size - removed),
            _ => apply(k, arith::subi, own[i], removed)?,
        });
    }
    let at: Vec<IndexExpr> =
        (0..n).map(|i| IndexExpr::dim(i).plus(IndexExpr::size(low[i].1))).collect();
    // The interior first: it can be the epilogue of the stage that computes it.
    whole = write_slice(k, whole, &offsets, &inner, &mut |slice| {
        let nest = Nest {
            reduction: vec![false; n],
            sizes: inner.clone(),
            outs: vec![(slice, (0..n).collect())],
            reads: vec![(o.input, at.clone())],
            body: &mut |body, _| Ok(vec![body.element(o.input, &at)?]),
        };
        k.generic(nest).map(|r| r[0])
    })?;
    // The border as disjoint slices: before and after along each dimension, within the interior of
    // the earlier dimensions.
    for d in 0..n {
        let behind = sum(k, offsets[d], inner[d])?;
        for (start, count) in [(Size::Static(0), low[d].0), (behind, high[d].0)] {
            if count.known() == Some(0) {
                continue;
            }
            let mut at: Vec<Size> =
                (0..n).map(|i| if i < d { offsets[i] } else { Size::Static(0) }).collect();
            let mut size: Vec<Size> =
                (0..n).map(|i| if i < d { inner[i] } else { sizes[i] }).collect();
            (at[d], size[d]) = (start, count);
            whole = write_slice(k, whole, &at, &size, &mut |part| {
                let nest = Nest {
                    reduction: vec![false; n],
                    sizes: size.clone(),
                    outs: vec![(part, (0..n).collect())],
                    reads: vec![(o.value, vec![])],
                    body: &mut |body, _| Ok(vec![body.element(o.value, &[])?]),
                };
                k.generic(nest).map(|r| r[0])
            })?;
        }
    }
    Ok(vec![whole])
}
