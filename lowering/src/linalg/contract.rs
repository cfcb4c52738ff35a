//! Contractions: matrix products, convolutions, and sums of products that reuse an operand.
use crate::{
    analysis::index_expr::{IndexExpr, through},
    kernels::op_facts::{contracts, folded_transpose, is_depthwise},
    linalg::{
        common::{Read, Tensors, id},
        expr::{Body, Input, Inputs, dtype},
        kernel::{Kernel, Nest},
        scalar::{storage, wide},
    },
};
use kiln_dialects::{ir::*, ops::*, sym::Dim as SymDim, value::DType};

/// The factors of a sum of products that reuses an operand over a loop of its result: a contraction
/// that is written as a broadcast, a product and a sum.
pub fn product(k: &Kernel, o: &Reduce, d: DType, stay: &[usize]) -> Result<Option<[Read; 2]>> {
    if o.kind != ReduceKind::Sum || o.dims.is_empty() || !d.is_float() || !of_product(k, o.input) {
        return Ok(None);
    }
    let n = o.input.ty().dims().len();
    let (mut v, mut at) = (o.input, id(n));
    while k.stored(v).is_none() {
        let Some(op) = v.def() else { return Ok(None) };
        if let Some((from, ix)) = through(op, &at, &|v, axis| k.size(v, axis).ok()) {
            (v, at) = (from, ix);
        } else if let Some(c) = Convert::of(op).filter(exact) {
            v = c.input;
        } else if op.kind() == Some(OpKind::Mul) {
            let factors = [(op.operand(0), at.clone()), (op.operand(1), at)];
            let mut inputs = Inputs::default();
            for (v, at) in &factors {
                k.scan(*v, at, &mut inputs)?;
            }
            let uses = |i: &Input, loop_: usize| i.at.iter().any(|ix| ix.uses(loop_));
            let reused = stay.iter().any(|d| inputs.list.iter().any(|i| !uses(i, *d)));
            return Ok(reused.then_some(factors));
        } else {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Whether elements of a conversion are computed in the type of its operand's.
fn exact(c: &Convert) -> bool {
    dtype(c.input).is_ok_and(|from| from.is_float() && Ok(wide(from)) == c.dtype.dtype())
}

/// Whether a value is a product behind movements and conversions that change no element.
fn of_product(k: &Kernel, mut v: Value) -> bool {
    while k.stored(v).is_none() {
        let Some(op) = v.def() else { return false };
        match op.kind() {
            Some(OpKind::Mul) => return true,
            Some(kind) if kind.family() == Family::Movement => v = op.operand(0),
            Some(OpKind::Convert) if Convert::of(op).is_some_and(|c| exact(&c)) => {
                v = op.operand(0)
            }
            _ => return false,
        }
    }
    false
}

/// The loops of a contraction, and the indices of both operands over them.
pub struct Contraction {
    /// Trip counts of the loops, parallel loops first.
    pub sizes: Vec<Size>,
    /// Number of parallel loops; the others are reduction loops.
    pub parallel: usize,
    /// The parallel loops in the order of the result's dimensions.
    pub order: Vec<usize>,
    /// Index of the left operand.
    pub lhs: Vec<IndexExpr>,
    /// Index of the right operand.
    pub rhs: Vec<IndexExpr>,
}

/// The dimensions of a contraction's result in the order in which it is stored.
fn stored_order(op: Op) -> Vec<usize> {
    let rank = op.result(0).ty().dims().len();
    let permutation = folded_transpose(op)
        .and_then(Transpose::of)
        .map(|t| t.permutation.iter().map(|p| *p as usize).collect());
    permutation.unwrap_or_else(|| (0..rank).collect())
}

/// Lowers a contraction: sums the products of two values over the reduction loops.
pub fn contract(k: &Kernel, lhs: Value, rhs: Value, result: DType, c: &Contraction) -> Tensors {
    let d = dtype(lhs)?;
    let n = c.sizes.len();
    let acc = match d.is_float() {
        // Integers are extended before they are multiplied: sums of int8 products are exact in i32.
        false => storage(result),
        true if wide(d) == DType::F32 && result == DType::F64 => DType::F64,
        true => wide(d),
    };
    // The dtype of a product.
    let narrow = if d.is_float() { d } else { acc };
    let factor = |body: &Body, x: Value| match d.is_float() {
        true => body.rounded(x, d),
        false => body.s.convert(x, d, acc),
    };
    let out = k.filled(acc, &c.order.iter().map(|d| c.sizes[*d]).collect::<Vec<_>>(), 0.0)?;
    if n == c.parallel {
        // An outer product sums nothing.
        return k.generic(Nest {
            reduction: vec![false; n],
            sizes: c.sizes.clone(),
            outs: vec![(out, c.order.clone())],
            reads: vec![(lhs, c.lhs.clone()), (rhs, c.rhs.clone())],
            body: &mut |body, sum| {
                let (x, y) = (body.element(lhs, &c.lhs)?, body.element(rhs, &c.rhs)?);
                let (x, y) = (factor(body, x)?, factor(body, y)?);
                let product = body.s.binary(BinaryKind::Mul, x, y, narrow)?;
                let product = body.s.convert(product, wide(narrow), acc)?;
                Ok(vec![body.s.binary(BinaryKind::Add, sum[0], product, acc)?])
            },
        });
    }
    k.contract(Nest {
        reduction: (0..n).map(|i| i >= c.parallel).collect(),
        sizes: c.sizes.clone(),
        outs: vec![(out, c.order.clone())],
        reads: vec![(lhs, c.lhs.clone()), (rhs, c.rhs.clone())],
        body: &mut |body, _| {
            let (x, y) = (body.element(lhs, &c.lhs)?, body.element(rhs, &c.rhs)?);
            Ok(vec![factor(body, x)?, factor(body, y)?])
        },
    })
}

/// Lowers a matrix product.
pub fn dot_general(k: &Kernel, op: Op, o: &DotGeneral) -> Tensors {
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
    let (mut lhs, mut rhs) =
        (vec![IndexExpr::number(0); ls.len()], vec![IndexExpr::number(0); rs.len()]);
    for (b, (l, r)) in o.lhs_batch.iter().zip(&o.rhs_batch).enumerate() {
        (lhs[*l as usize], rhs[*r as usize]) = (IndexExpr::dim(b), IndexExpr::dim(b));
    }
    let batch = o.lhs_batch.len();
    lf.iter().enumerate().for_each(|(i, l)| lhs[*l] = IndexExpr::dim(batch + i));
    rf.iter().enumerate().for_each(|(i, r)| rhs[*r] = IndexExpr::dim(batch + lf.len() + i));
    for (i, (l, r)) in o.lhs_contract.iter().zip(&o.rhs_contract).enumerate() {
        (lhs[*l as usize], rhs[*r as usize]) =
            (IndexExpr::dim(parallel + i), IndexExpr::dim(parallel + i));
    }
    contract(
        k,
        o.lhs,
        o.rhs,
        dtype(op.result(0))?,
        &Contraction { sizes, parallel, order: stored_order(op), lhs, rhs },
    )
}

/// A convolution whose padding `kiln-expose-padding` has kept: its NHWC input is padded within the
/// kernel.
fn padded_convolution(k: &Kernel, op: Op, o: Convolution) -> Tensors {
    let source = folded_transpose(op)
        .and(o.input.def())
        .and_then(Transpose::of)
        .filter(|t| t.permutation == [0, 3, 1, 2]);
    let (source, tensor) = source
        .and_then(|t| Some((t.input, k.stored(t.input)?)))
        .filter(|_| contracts(op))
        .ok_or("is transposed or padded; kiln-expose-padding comes first")?;
    let spatial = o.strides.len();
    let plain = Convolution { pad_low: vec![0; spatial], pad_high: vec![0; spatial], ..o.clone() };
    with_padding(k, (source, tensor), [&o.pad_low, &o.pad_high], &mut || convolution(k, op, &plain))
}

/// Lowers what reads an NHWC image of which pixels are padded with zeros. `pads`: below and above, of
/// height and width.
pub fn with_padding(
    k: &Kernel,
    (source, tensor): (Value, Value),
    pads: [&[i64]; 2],
    lower: &mut dyn FnMut() -> Tensors,
) -> Tensors {
    let [low, high] = pads.map(|p| [&[0], p, &[0]].concat());
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
        b.generic(tensor::Yield::NAME, &[zero], &[], &[], &mut []).map(|_| ())
    };
    let index = [Type::index(c); 4];
    let padded =
        k.b.generic(tensor::Pad::NAME, &[tensor], &[ty], &attrs, &mut [(&index, &mut body)])?
            .result(0);
    // Other readers of the input in this kernel read it unpadded.
    k.record_tensor(source, padded);
    let made = lower();
    k.record_tensor(source, tensor);
    made
}

/// A convolution without padding, which `kiln-expose-padding` has made a separate op.
pub fn convolution(k: &Kernel, op: Op, o: &Convolution) -> Tensors {
    if o.transposed || o.pad_low.iter().chain(&o.pad_high).any(|p| *p != 0) {
        return padded_convolution(k, op, o.clone());
    }
    let (out, weight) = (k.sizes_of(op.result(0))?, k.sizes_of(o.weight)?);
    let spatial = out.len() - 2;
    let known = |s: &Size| s.known().ok_or("has groups of an unknown number of channels");
    // Loops in memory order: an NHWC convolution also reads its input in NHWC order.
    let last = folded_transpose(op).is_some();
    if o.groups != 1 && !last && !is_depthwise(o) {
        return grouped(k, op, o, &out, &weight);
    }
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
    // A window dimension of size 1 needs no loop.
    let depth: Vec<usize> = depth.into_iter().filter(|d| weight[*d].known() != Some(1)).collect();
    let mut sizes: Vec<Size> = order.iter().map(|d| out[*d]).collect();
    let parallel = sizes.len();
    sizes.extend(depth.iter().map(|d| weight[*d]));
    // The loop over a dimension of the result, and the loop over one of the weight.
    let at = |d: usize| IndexExpr::dim(order.iter().position(|o| *o == d).unwrap_or(0));
    let inner = |d: usize| {
        depth
            .iter()
            .position(|o| *o == d)
            .map_or(IndexExpr::number(0), |i| IndexExpr::dim(parallel + i))
    };
    // Filters of one group read the same channels.
    let channel = match o.groups {
        1 => inner(1),
        groups => {
            let (filters, channels) = (known(&weight[0])? / groups, known(&weight[1])?);
            let group = match filters {
                1 => at(1),
                _ => at(1).floordiv(IndexExpr::number(filters.max(1))),
            };
            group.times(IndexExpr::number(channels)).plus(inner(1))
        }
    };
    let mut lhs = vec![at(0), channel];
    let mut rhs = vec![at(1), inner(1)];
    for i in 0..spatial {
        let window = inner(2 + i);
        lhs.push(
            at(2 + i)
                .times(IndexExpr::number(o.strides[i]))
                .plus(window.clone().times(IndexExpr::number(o.dilation[i]))),
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

/// A grouped convolution in NCHW. Groups are a loop of their own, and a dimension of the result until
/// a reshape to `[N, O, ..]`.
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
    let within = |each: i64, d: usize| {
        IndexExpr::dim(1).times(IndexExpr::number(each)).plus(IndexExpr::dim(d))
    };
    let mut lhs = vec![IndexExpr::dim(0), within(channels, parallel)];
    let mut rhs = vec![within(filters, 2), IndexExpr::dim(parallel)];
    for i in 0..spatial {
        let window = IndexExpr::dim(parallel + 1 + i);
        lhs.push(
            IndexExpr::dim(3 + i)
                .times(IndexExpr::number(o.strides[i]))
                .plus(window.clone().times(IndexExpr::number(o.dilation[i]))),
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
    let number = |d: i64| Attr::i64(c, d);
    let mut reassociation = vec![];
    for i in 0..out.len() {
        reassociation.push(Attr::array(c, &groups(i).into_iter().map(number).collect::<Vec<_>>()));
    }
    let element = made[0].ty().element().ok_or("is no tensor")?.dtype()?;
    let dims: Vec<_> =
        out.iter().map(|s| s.known().map_or(SymDim::Unknown, SymDim::Known)).collect();
    let attrs = [("reassociation", Attr::array(c, &reassociation))];
    let flat = k.b.generic(
        tensor::CollapseShape::NAME,
        &[made[0]],
        &[Type::tensor(c, element, &dims)],
        &attrs,
        &mut [],
    )?;
    Ok(vec![flat.result(0)])
}
