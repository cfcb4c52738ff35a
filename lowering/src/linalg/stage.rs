//! The ops that need a nest of their own: reductions, contractions, windows, positions, and the
//! pieces of concat and pad.
use crate::{
    analysis::index_expr::Ix,
    kernels::graph::{contracts, turned},
    linalg::{
        arg::arg,
        expr::{Body, dtype},
        kernel::{Kernel, Nest, Slice, id, neutral, start},
        scalar::{storage, wide},
    },
};
use kiln_dialects::{ir::*, ops::*, sym::Dim as SymDim, value::DType};

type Tensors = Result<Vec<Value>, String>;

/// The tensors of an op's results.
pub fn stage(k: &Kernel, op: Op) -> Tensors {
    match op.kind() {
        Some(OpKind::Reduce) => reduce(k, &Reduce::of(op).ok_or("is malformed")?),
        Some(OpKind::DotGeneral) => dot_general(k, op, &DotGeneral::of(op).ok_or("is malformed")?),
        Some(OpKind::Convolution) => {
            convolution(k, op, &Convolution::of(op).ok_or("is malformed")?)
        }
        Some(OpKind::ReduceWindow) => {
            reduce_window(k, op, &ReduceWindow::of(op).ok_or("is malformed")?)
        }
        Some(OpKind::Cumulative) => cumulative(k, &Cumulative::of(op).ok_or("is malformed")?),
        Some(OpKind::ArgMax) => arg(
            k,
            op.operand(0),
            ArgMax::of(op).ok_or("is malformed")?.axis as usize,
            CompareKind::Gt,
        ),
        Some(OpKind::ArgMin) => arg(
            k,
            op.operand(0),
            ArgMin::of(op).ok_or("is malformed")?.axis as usize,
            CompareKind::Lt,
        ),
        Some(OpKind::Concat) => concat(k, op, &Concat::of(op).ok_or("is malformed")?),
        Some(OpKind::InsertSlice) => place(k, op, &InsertSlice::of(op).ok_or("is malformed")?),
        Some(OpKind::Pad) => pad(k, op, &Pad::of(op).ok_or("is malformed")?),
        _ => Err("has no compiled form yet".into()),
    }
}

/// Whether an op is one of those.
pub fn is_stage(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(
        kind,
        Reduce
            | Cumulative
            | DotGeneral
            | Convolution
            | ReduceWindow
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
    let out = start(k, o.kind, d, &stay.iter().map(|i| sizes[*i]).collect::<Vec<_>>())?;
    let at = id(n);
    k.generic(Nest {
        reduction: (0..n).map(gone).collect(),
        sizes,
        outs: vec![(out, stay)],
        reads: vec![(o.input, at.clone())],
        body: &mut |body, acc| {
            let x = body.element(o.input, &at)?;
            if d == DType::I1 {
                // As bytes, so that the last op of an iteration is the one that combines.
                let x = body.s.store(x, Type::scalar(body.s.b.ctx, storage(d)))?;
                let or = matches!(o.kind, ReduceKind::Any | ReduceKind::Sum | ReduceKind::Max);
                return Ok(vec![
                    body.s.same(if or { "arith.ori" } else { "arith.andi" }, &[acc[0], x])?,
                ]);
            }
            let acc = body.s.load(acc[0], d)?;
            Ok(vec![body.s.combine(o.kind, acc, x, d)?])
        },
    })
}

fn reduces(kind: CumulativeKind) -> ReduceKind {
    match kind {
        CumulativeKind::Sum => ReduceKind::Sum,
        CumulativeKind::Prod => ReduceKind::Prod,
        CumulativeKind::Max => ReduceKind::Max,
        CumulativeKind::Min => ReduceKind::Min,
    }
}

/// For each element of an axis a reduction of the whole axis, in which what comes behind the
/// element counts as nothing: a schedule knows that this is one walk.
fn cumulative(k: &Kernel, o: &Cumulative) -> Tensors {
    let (d, mut sizes, kind, i) =
        (dtype(o.input)?, k.sizes_of(o.input)?, reduces(o.kind), o.axis as usize);
    let out = start(k, kind, d, &sizes)?;
    // Behind the loop of the element stands that of what it is made of.
    sizes.insert(i + 1, sizes[i]);
    let n = sizes.len();
    let stay: Vec<usize> = (0..n).filter(|e| *e != i + 1).collect();
    let at: Vec<Ix> = (0..n).filter(|e| *e != i).map(|e| Ix::dim(e, n)).collect();
    k.generic(Nest {
        reduction: (0..n).map(|e| e == i + 1).collect(),
        sizes,
        outs: vec![(out, stay)],
        reads: vec![(o.input, at.clone())],
        body: &mut |body, acc| {
            let x = body.element(o.input, &at)?;
            let (of, element) = (body.dim(i + 1)?, body.dim(i)?);
            let counts = body.s.cmpi(7, of, element)?;
            let x = body.s.select(counts, x, body.s.constant(neutral(body.s.b.ctx, kind, d))?)?;
            let acc = body.s.load(acc[0], d)?;
            Ok(vec![body.s.combine(kind, acc, x, d)?])
        },
    })
}

/// Loops of a contraction, and the position of both operands over them.
pub struct Contraction {
    /// Sizes of the loops.
    pub sizes: Vec<Size>,
    /// How many of the loops stay.
    pub parallel: usize,
    /// Those in the order of the result.
    pub order: Vec<usize>,
    /// Where the left operand is read.
    pub lhs: Vec<Ix>,
    /// Where the right operand is read.
    pub rhs: Vec<Ix>,
}

/// The order in which a contraction's result is stored, by its dimensions.
fn stored_order(op: Op) -> Vec<usize> {
    let rank = op.result(0).ty().dims().len();
    let permutation = turned(op)
        .and_then(Transpose::of)
        .map(|t| t.permutation.iter().map(|p| *p as usize).collect());
    permutation.unwrap_or_else(|| (0..rank).collect())
}

/// Sums the products of two values over the last loops.
pub fn contract(k: &Kernel, lhs: Value, rhs: Value, result: DType, c: &Contraction) -> Tensors {
    let d = dtype(lhs)?;
    let n = c.sizes.len();
    let acc = if d.is_float() && wide(d) == DType::F32 && result == DType::F64 {
        DType::F64
    } else {
        wide(d)
    };
    let out = k.filled(acc, &c.order.iter().map(|d| c.sizes[*d]).collect::<Vec<_>>(), 0.0)?;
    k.generic(Nest {
        reduction: (0..n).map(|i| i >= c.parallel).collect(),
        sizes: c.sizes.clone(),
        outs: vec![(out, c.order.clone())],
        reads: vec![(lhs, c.lhs.clone()), (rhs, c.rhs.clone())],
        body: &mut |body, sum| {
            let (x, y) = (body.element(lhs, &c.lhs)?, body.element(rhs, &c.rhs)?);
            let (x, y) = (rounded(body, x, d)?, rounded(body, y, d)?);
            let product = body.s.binary(BinaryKind::Mul, x, y, d)?;
            let product = body.s.convert(product, wide(d), acc)?;
            Ok(vec![body.s.binary(BinaryKind::Add, sum[0], product, acc)?])
        },
    })
}

/// A factor as it would lie in memory: what is computed of an operand is rounded as if it were
/// stored.
fn rounded(body: &Body, x: Value, d: DType) -> Result<Value, String> {
    let stored = x.def().is_some_and(|o| o.is("arith.extf") && o.operand(0).ty().dtype() == Ok(d));
    let narrow = d.is_float() && wide(d) != d;
    if narrow && !stored { body.s.convert(x, wide(d), d) } else { Ok(x) }
}

fn dot_general(k: &Kernel, op: Op, o: &DotGeneral) -> Tensors {
    let (ls, rs) = (k.sizes_of(o.lhs)?, k.sizes_of(o.rhs)?);
    let free = |n: usize, batch: &[i64], contract: &[i64]| {
        (0..n as i64)
            .filter(|i| !batch.contains(i) && !contract.contains(i))
            .map(|i| i as usize)
            .collect::<Vec<_>>()
    };
    let (lf, rf) = (
        free(ls.len(), &o.lhs_batch, &o.lhs_contract),
        free(rs.len(), &o.rhs_batch, &o.rhs_contract),
    );
    let mut sizes: Vec<Size> = o.lhs_batch.iter().map(|i| ls[*i as usize]).collect();
    sizes.extend(lf.iter().map(|i| ls[*i]));
    sizes.extend(rf.iter().map(|i| rs[*i]));
    let parallel = sizes.len();
    sizes.extend(o.lhs_contract.iter().map(|i| ls[*i as usize]));
    let n = sizes.len();
    let (mut lhs, mut rhs) = (vec![Ix::number(0, n); ls.len()], vec![Ix::number(0, n); rs.len()]);
    for (b, (l, r)) in o.lhs_batch.iter().zip(&o.rhs_batch).enumerate() {
        (lhs[*l as usize], rhs[*r as usize]) = (Ix::dim(b, n), Ix::dim(b, n));
    }
    let batch = o.lhs_batch.len();
    lf.iter().enumerate().for_each(|(i, l)| lhs[*l] = Ix::dim(batch + i, n));
    rf.iter().enumerate().for_each(|(i, r)| rhs[*r] = Ix::dim(batch + lf.len() + i, n));
    for (i, (l, r)) in o.lhs_contract.iter().zip(&o.rhs_contract).enumerate() {
        (lhs[*l as usize], rhs[*r as usize]) = (Ix::dim(parallel + i, n), Ix::dim(parallel + i, n));
    }
    contract(
        k,
        o.lhs,
        o.rhs,
        dtype(op.result(0))?,
        &Contraction { sizes, parallel, order: stored_order(op), lhs, rhs },
    )
}

/// A convolution whose padding `kiln-expose-padding` has left: its input, with channels last, is
/// padded within the kernel.
fn padded_convolution(k: &Kernel, op: Op, o: Convolution) -> Tensors {
    let source = turned(op)
        .and(o.input.def())
        .and_then(Transpose::of)
        .filter(|t| t.permutation == [0, 3, 1, 2]);
    let (source, tensor) = source
        .and_then(|t| Some((t.input, k.stored(t.input)?)))
        .filter(|_| contracts(op))
        .ok_or("is transposed or padded; kiln-expose-padding comes first")?;
    let around = |p: &[i64]| [&[0], p, &[0]].concat();
    let (low, high) = (around(&o.pad_low), around(&o.pad_high));
    let c = k.b.ctx;
    let d = storage(dtype(source)?);
    let grown = |(n, (l, h)): (SymDim, (&i64, &i64))| {
        n.known().map_or(SymDim::Unknown, |n| SymDim::Known(n + l + h))
    };
    let ty = Type::tensor(
        c,
        d,
        &tensor.ty().dims().into_iter().zip(low.iter().zip(&high)).map(grown).collect::<Vec<_>>(),
    );
    let attrs = [
        ("static_low", Attr::i64s(c, &low)),
        ("static_high", Attr::i64s(c, &high)),
        ("operandSegmentSizes", Attr::i32s(c, &[1, 0, 0])),
    ];
    let mut body = |b: Builder, _: Vec<Value>| {
        let zero = crate::linalg::scalar::Scalars { b }.constant(Attr::scalar(c, d, 0.0))?;
        b.generic("tensor.yield", &[zero], &[], &[], &mut []).map(|_| ())
    };
    let index = [Type::index(c); 4];
    let padded =
        k.b.generic("tensor.pad", &[tensor], &[ty], &attrs, &mut [(&index, &mut body)])?.result(0);
    // Other readers of the input in this kernel see it as it is.
    k.keep(source, padded);
    let spatial = o.strides.len();
    let made = convolution(
        k,
        op,
        &Convolution { pad_low: vec![0; spatial], pad_high: vec![0; spatial], ..o },
    );
    k.keep(source, tensor);
    made
}

/// Without padding, which `kiln-expose-padding` has made an op of its own.
fn convolution(k: &Kernel, op: Op, o: &Convolution) -> Tensors {
    if o.transposed || o.pad_low.iter().chain(&o.pad_high).any(|p| *p != 0) {
        return padded_convolution(k, op, o.clone());
    }
    let (out, weight) = (k.sizes_of(op.result(0))?, k.sizes_of(o.weight)?);
    let spatial = out.len() - 2;
    let depthwise = o.groups != 1;
    let one_each = weight[1].known() == Some(1) && weight[0].known() == Some(o.groups);
    if depthwise && !one_each {
        return grouped(k, op, o, &out, &weight);
    }
    // Loops in the order of memory: what is stored with channels last is read so as well.
    let last = turned(op).is_some();
    let order = if last {
        [vec![0], (2..spatial + 2).collect(), vec![1]].concat()
    } else {
        (0..spatial + 2).collect::<Vec<_>>()
    };
    let depth = if last {
        [(2..spatial + 2).collect(), vec![1]].concat()
    } else {
        (1..spatial + 2).collect::<Vec<_>>()
    };
    // A window of one step is no loop.
    let depth: Vec<usize> = depth.into_iter().filter(|d| weight[*d].known() != Some(1)).collect();
    let mut sizes: Vec<Size> = order.iter().map(|d| out[*d]).collect();
    let parallel = sizes.len();
    sizes.extend(depth.iter().map(|d| weight[*d]));
    let n = sizes.len();
    // The loops over a dimension of the result, and of the weight.
    let at = |d: usize| Ix::dim(order.iter().position(|o| *o == d).unwrap_or(0), n);
    let inner = |d: usize| {
        depth.iter().position(|o| *o == d).map_or(Ix::number(0, n), |i| Ix::dim(parallel + i, n))
    };
    let mut lhs = vec![at(0), if depthwise { at(1) } else { inner(1) }];
    let mut rhs = vec![at(1), inner(1)];
    for i in 0..spatial {
        let window = inner(2 + i);
        lhs.push(
            at(2 + i)
                .times(Ix::number(o.strides[i], n))
                .plus(window.clone().times(Ix::number(o.dilation[i], n))),
        );
        rhs.push(window);
    }
    contract(
        k,
        o.input,
        o.weight,
        dtype(op.result(0))?,
        &Contraction { sizes, parallel, order: (0..parallel).collect(), lhs, rhs },
    )
}

/// Groups are a loop of their own; the result has them as a dimension until it is seen as `[N, O,
/// ..]` again.
fn grouped(k: &Kernel, op: Op, o: &Convolution, out: &[Size], weight: &[Size]) -> Tensors {
    let known = |s: &Size| {
        s.known()
            .ok_or("has groups of an unknown number of channels, which have no compiled form yet")
    };
    let (filters, channels) = (known(&weight[0])? / o.groups, known(&weight[1])?);
    let spatial = out.len() - 2;
    let mut sizes = vec![out[0], Size::Static(o.groups), Size::Static(filters)];
    sizes.extend(&out[2..]);
    let parallel = sizes.len();
    sizes.extend(&weight[1..]);
    let n = sizes.len();
    let within = |each: i64, d: usize| Ix::dim(1, n).times(Ix::number(each, n)).plus(Ix::dim(d, n));
    let mut lhs = vec![Ix::dim(0, n), within(channels, parallel)];
    let mut rhs = vec![within(filters, 2), Ix::dim(parallel, n)];
    for i in 0..spatial {
        let window = Ix::dim(parallel + 1 + i, n);
        lhs.push(
            Ix::dim(3 + i, n)
                .times(Ix::number(o.strides[i], n))
                .plus(window.clone().times(Ix::number(o.dilation[i], n))),
        );
        rhs.push(window);
    }
    let made = contract(
        k,
        o.input,
        o.weight,
        dtype(op.result(0))?,
        &Contraction { sizes, parallel, order: (0..parallel).collect(), lhs, rhs },
    )?;
    let c = k.b.ctx;
    let groups = |i: usize| if i == 1 { vec![1, 2] } else { vec![i as i64 + i64::from(i > 1)] };
    let number = |d: i64| Attr::parse(c, &format!("{d} : i64")).ok_or("made a bad attribute");
    let mut reassociation = vec![];
    for i in 0..out.len() {
        reassociation.push(Attr::array(
            c,
            &groups(i).into_iter().map(number).collect::<Result<Vec<_>, _>>()?,
        ));
    }
    let element = made[0].ty().element().ok_or("is no tensor")?.dtype()?;
    let dims: Vec<_> =
        out.iter().map(|s| s.known().map_or(SymDim::Unknown, SymDim::Known)).collect();
    let attrs = [("reassociation", Attr::array(c, &reassociation))];
    let flat = k.b.generic(
        "tensor.collapse_shape",
        &[made[0]],
        &[Type::tensor(c, element, &dims)],
        &attrs,
        &mut [],
    )?;
    Ok(vec![flat.result(0)])
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
    let place = |i: usize| {
        let base = Ix::dim(i, n).times(Ix::number(o.strides[i], n));
        match windows.iter().position(|w| *w == i) {
            Some(w) => base.plus(Ix::dim(parallel + w, n).times(Ix::number(o.dilation[i], n))),
            None => base,
        }
    };
    let at: Vec<Ix> = (0..parallel).map(place).collect();
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

/// A box of `whole`, filled by `write`, put back.
fn piece(
    k: &Kernel,
    whole: Value,
    offsets: &[Size],
    sizes: &[Size],
    write: &mut dyn FnMut(Value) -> Result<Value, String>,
) -> Result<Value, String> {
    // Nothing to write; a slice of MLIR may not start at the end.
    if sizes.iter().any(|s| s.known() == Some(0)) {
        return Ok(whole);
    }
    let slice = Slice { offsets: offsets.to_vec(), sizes: sizes.to_vec() };
    let c = k.b.ctx;
    let element = whole.ty().element().ok_or("is no tensor")?.dtype()?;
    let ty = slice.ty(c, element);
    let part =
        k.b.generic(
            "tensor.extract_slice",
            &slice.operands(&[whole]),
            &[ty],
            &slice.attrs(c, &[1]),
            &mut [],
        )?
        .result(0);
    let filled = write(part)?;
    let op = k.b.generic(
        "tensor.insert_slice",
        &slice.operands(&[filled, whole]),
        &[whole.ty()],
        &slice.attrs(c, &[1, 1]),
        &mut [],
    )?;
    Ok(op.result(0))
}

fn concat(k: &Kernel, op: Op, o: &Concat) -> Tensors {
    let axis = o.axis as usize;
    let sizes = k.sizes_of(op.result(0))?;
    let mut whole = k.empty(storage(dtype(op.result(0))?), &sizes)?;
    let (mut offset, mut pieces) = (Size::Static(0), vec![]);
    for v in &o.inputs {
        let own = k.sizes_of(*v)?;
        let mut offsets = vec![Size::Static(0); sizes.len()];
        offsets[axis] = offset;
        offset = sum(k, offset, own[axis])?;
        pieces.push((*v, offsets, own));
    }
    // The end of a contraction comes right behind it.
    pieces.sort_by_key(|(v, ..)| !of_stage(*v));
    for (v, offsets, own) in pieces {
        whole = piece(k, whole, &offsets, &own, &mut |part| k.write(v, &own, part))?;
    }
    Ok(vec![whole])
}

/// A piece put into what the kernel is given, or into a new tensor.
fn place(k: &Kernel, op: Op, o: &InsertSlice) -> Tensors {
    let whole = match o.dest {
        Some(whole) => k.stored(whole).ok_or("writes on what is in no memory")?,
        None => k.empty(storage(dtype(op.result(0))?), &k.sizes_of(op.result(0))?)?,
    };
    let new = |s: &Size| if let Size::Dynamic(v) = s { Size::Dynamic(k.new_index(*v)) } else { *s };
    let (own, offsets) = (k.sizes_of(o.source)?, o.offsets.iter().map(new).collect::<Vec<_>>());
    Ok(vec![piece(k, whole, &offsets, &own, &mut |part| k.write(o.source, &own, part))?])
}

/// Whether a value of the kernel depends on what has a nest of its own.
fn of_stage(v: Value) -> bool {
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

fn sum(k: &Kernel, a: Size, b: Size) -> Result<Size, String> {
    if let (Some(x), Some(y)) = (a.known(), b.known()) {
        return Ok(Size::Static(x + y));
    }
    apply(k, "arith.addi", a, b)
}

fn apply(k: &Kernel, name: &str, a: Size, b: Size) -> Result<Size, String> {
    let ssa = |s: Size| match s {
        Size::Static(n) => k.b.index(n),
        Size::Dynamic(v) => Ok(v),
    };
    let op = k.b.generic(name, &[ssa(a)?, ssa(b)?], &[Type::index(k.b.ctx)], &[], &mut [])?;
    Ok(Size::Dynamic(op.result(0)))
}

/// A padding as what it adds and what it removes, of which one is 0.
fn added_and_removed(k: &Kernel, count: Size) -> Result<(Size, Size), String> {
    let zero = Size::Static(0);
    match count {
        Size::Static(n) => Ok((Size::Static(n.max(0)), Size::Static(-n.min(0)))),
        Size::Dynamic(v) => {
            let count = Size::Dynamic(k.new_index(v));
            Ok((
                apply(k, "arith.maxsi", count, zero)?,
                apply(k, "arith.maxsi", apply(k, "arith.subi", zero, count)?, zero)?,
            ))
        }
    }
}

fn pad(k: &Kernel, op: Op, o: &Pad) -> Tensors {
    let (sizes, own) = (k.sizes_of(op.result(0))?, k.sizes_of(o.input)?);
    let n = sizes.len();
    let mut whole = k.empty(storage(dtype(op.result(0))?), &sizes)?;
    // A negative count removes: reading starts that much later.
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
            _ => apply(k, "arith.subi", own[i], removed)?,
        });
    }
    let at: Vec<Ix> = (0..n).map(|i| Ix::dim(i, n).plus(Ix::size(low[i].1, n))).collect();
    // The middle first: it can be the end of what computes it.
    whole = piece(k, whole, &offsets, &inner, &mut |slice| {
        let nest = Nest {
            reduction: vec![false; n],
            sizes: inner.clone(),
            outs: vec![(slice, (0..n).collect())],
            reads: vec![(o.input, at.clone())],
            body: &mut |body, _| Ok(vec![body.element(o.input, &at)?]),
        };
        k.generic(nest).map(|r| r[0])
    })?;
    // The border in boxes that do not overlap: in front and behind along one dimension, within the
    // middle of the earlier ones.
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
            whole = piece(k, whole, &at, &size, &mut |part| {
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
