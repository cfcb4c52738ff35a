//! Recurrent layers and cells. A layer is one product over all steps, then a scan of the rest.
use super::{Args, Cx, Outcome, Row, dropout::dropped, formula::value, formula::*, tools::*};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, sym::Dim};

/// A row of a layer and of its cell.
macro_rules! layer {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first",
            build: |cx, a| layers(cx, a, Kind::$kind),
        }
    };
}
macro_rules! cell {
    ($name:literal, $kind:ident) => {
        Row {
            name: $name,
            arguments: "input, hx, w_ih, w_hh, b_ih=None, b_hh=None",
            build: |cx, a| cell(cx, a, Kind::$kind),
        }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    layer!("aten.lstm.input", Lstm),
    layer!("aten.gru.input", Gru),
    layer!("aten.rnn_tanh.input", Tanh),
    layer!("aten.rnn_relu.input", Relu),
    cell!("aten.lstm_cell.default", Lstm),
    cell!("aten.gru_cell.default", Gru),
    cell!("aten.rnn_tanh_cell.default", Tanh),
    cell!("aten.rnn_relu_cell.default", Relu),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The parameters of one direction of a layer.
struct Weights {
    input: Value,
    hidden: Value,
    biases: Option<(Value, Value)>,
    projection: Option<Value>,
}

fn sigmoid(x: Term<'_>) -> Term<'_> {
    1.0 / ((-x).exp() + 1.0)
}

/// Part `k` of `count` along the last dimension.
fn part(cx: &mut Cx, x: Value, k: i64, count: i64) -> Result<Value> {
    let n = rank_of(x);
    let mut sizes = cx.b.sizes_of(x)?;
    let mut offsets = vec![Size::Static(0); n];
    let (Some(size), Some(offset)) = (sizes.last_mut(), offsets.last_mut()) else {
        return Err("has gates of rank 0".into());
    };
    *size = cx.size_div(*size, Size::Static(count))?;
    *offset = cx.size_mul(*size, Size::Static(k))?;
    cx.b.add(&Slice { input: x, offsets, sizes, strides: vec![1; n] })
}

/// One step: from the input's share of the gates and the state to the new state. The first of the
/// state is the output.
fn step(cx: &mut Cx, kind: Kind, x: Value, state: &[Value], w: &Weights) -> Result<Vec<Value>> {
    let hidden = *state.first().ok_or("has no state")?;
    let bias = w.biases.map(|(_, hidden)| hidden);
    let h = cx.b.add(&Linear { input: hidden, weight: w.hidden, bias })?;
    match kind {
        Kind::Tanh => Ok(vec![value(cx, |f| (f.of(x) + f.of(h)).tanh())?]),
        Kind::Relu => Ok(vec![value(cx, |f| (f.of(x) + f.of(h)).max(0.0))?]),
        Kind::Gru => {
            let (xr, hr) = (part(cx, x, 0, 3)?, part(cx, h, 0, 3)?);
            let (xz, hz) = (part(cx, x, 1, 3)?, part(cx, h, 1, 3)?);
            let (xn, hn) = (part(cx, x, 2, 3)?, part(cx, h, 2, 3)?);
            let new = value(cx, |f| {
                let reset = sigmoid(f.of(xr) + f.of(hr));
                let update = sigmoid(f.of(xz) + f.of(hz));
                let new = (f.of(xn) + reset * f.of(hn)).tanh();
                new + update * (f.of(hidden) - new)
            })?;
            Ok(vec![new])
        }
        Kind::Lstm => {
            let cell = *state.get(1).ok_or("has no cell state")?;
            let gates = cx.binary(BinaryKind::Add, x, h)?;
            let (i, forget) = (part(cx, gates, 0, 4)?, part(cx, gates, 1, 4)?);
            let (g, o) = (part(cx, gates, 2, 4)?, part(cx, gates, 3, 4)?);
            let cell = value(cx, |f| {
                sigmoid(f.of(forget)) * f.of(cell) + sigmoid(f.of(i)) * f.of(g).tanh()
            })?;
            let mut output = value(cx, |f| sigmoid(f.of(o)) * f.of(cell).tanh())?;
            if let Some(weight) = w.projection {
                output = cx.b.add(&Linear { input: output, weight, bias: None })?;
            }
            Ok(vec![output, cell])
        }
    }
}

/// The loop of [`scan`]: the new state from the state and one row of each input.
type Step<'s> = dyn FnMut(&mut Cx, &[Value], &[Value]) -> Result<Vec<Value>> + 's;

/// Runs `step` over the first dimension of `inputs`: the final state and, if `stacks`, the first of
/// the state after each step, stacked.
pub(super) fn scan(
    cx: &mut Cx,
    state: Vec<Value>,
    inputs: Vec<Value>,
    reverse: bool,
    stacks: bool,
    step: &mut Step<'_>,
) -> Result<(Vec<Value>, Option<Value>)> {
    let b = cx.b;
    let mut types: Vec<Type> = state.iter().map(|v| v.ty()).collect();
    let mut results = types.clone();
    let mut sizes = state.iter().map(|v| b.sizes_of(*v)).collect::<Result<Vec<_>, _>>()?;
    let (mut length, mut known) = (Size::Static(0), Dim::Known(0));
    for v in &inputs {
        let all = b.sizes_of(*v)?;
        let ty = tensor_type(v.ty())?;
        let (Some((first, rest)), Some((dim, row))) = (all.split_first(), ty.dims.split_first())
        else {
            return Err("scans a tensor of rank 0".into());
        };
        (length, known) = (*first, dim.clone());
        sizes.push(rest.to_vec());
        types.push(Type::tensor(b.ctx, ty.dtype, row));
    }
    if stacks {
        let row = tensor_type(state.first().ok_or("has no state")?.ty())?;
        results.push(Type::tensor(b.ctx, row.dtype, &[vec![known], row.dims].concat()));
    }
    let count = state.len();
    let mut failed = None;
    let mut body = |inner: Builder, args: Vec<Value>| {
        cx.b = inner;
        let made = (|| -> Result<()> {
            for (value, sizes) in args.iter().zip(&sizes) {
                bind(&inner, *value, sizes.clone())?;
            }
            let (state, rows) = args.split_at_checked(count).ok_or("has too few arguments")?;
            let mut values = step(cx, state, rows)?;
            if let Some(first) = values.first().copied().filter(|_| stacks) {
                values.push(first);
            }
            inner.create_with(&Yield { values }, &[], &mut [])?;
            Ok(())
        })();
        made.map_err(|e| {
            failed = Some(e);
            "has a step that cannot be emitted".into()
        })
    };
    let segments = Attr::i32s(b.ctx, &[count as i32, inputs.len() as i32]);
    let mut attrs = vec![("operandSegmentSizes", segments)];
    if reverse {
        attrs.push(("reverse", Attr::unit(b.ctx)));
    }
    let operands = [state, inputs].concat();
    let regions = &mut [(&types[..], &mut body as &mut RegionFill)];
    let op = b.generic(OpKind::Scan.name(), &operands, &results, &attrs, regions);
    cx.b = b;
    let op = match (op, failed) {
        (_, Some(e)) => return Err(e),
        (op, None) => op?,
    };
    let mut finals = op.results();
    let stacked = if stacks { finals.pop() } else { None };
    // Symbolic sizes of the results are those of the state, and the input's number of steps.
    for (value, sizes) in finals.iter().zip(&sizes) {
        bind(&b, *value, sizes.clone())?;
    }
    if let (Some(value), Some(row)) = (stacked, sizes.first()) {
        bind(&b, value, [&[length], row.as_slice()].concat())?;
    }
    Ok((finals, stacked))
}

/// Names the symbolic sizes of a value.
fn bind(b: &Builder, value: Value, sizes: Vec<Size>) -> Result<()> {
    if sizes.iter().any(|s| s.known().is_none()) {
        b.create_with(&BindShape { value, sizes }, &[], &mut [])?;
    }
    Ok(())
}

/// One direction of a layer over `x` [T, B, I]: the outputs [T, B, H] and the final state.
fn direction(
    cx: &mut Cx,
    kind: Kind,
    x: Value,
    state: Vec<Value>,
    w: &Weights,
    reverse: bool,
) -> Result<(Value, Vec<Value>)> {
    let bias = w.biases.map(|(input, _)| input);
    let gates = cx.b.add(&Linear { input: x, weight: w.input, bias })?;
    let (finals, stacked) = scan(cx, state, vec![gates], reverse, true, &mut |cx, state, rows| {
        step(cx, kind, *rows.first().ok_or("has no input")?, state, w)
    })?;
    Ok((stacked.ok_or("has no outputs")?, finals))
}

/// Row `k` of the first dimension, which goes.
fn row(cx: &Cx, x: Value, k: i64) -> Result<Value> {
    let mut sizes = cx.b.sizes_of(x)?;
    let n = sizes.len();
    let (Some(first), mut offsets) = (sizes.first_mut(), vec![Size::Static(0); n]) else {
        return Err("has a state of rank 0".into());
    };
    *first = Size::Static(1);
    if let Some(offset) = offsets.first_mut() {
        *offset = Size::Static(k);
    }
    let v = cx.b.add(&Slice { input: x, offsets, sizes: sizes.clone(), strides: vec![1; n] })?;
    cx.reshape(v, sizes.into_iter().skip(1).collect())
}

/// Stacked along a new first dimension.
fn stacked(cx: &Cx, all: &[Value]) -> Result<Value> {
    let one = |v: &Value| cx.reshape(*v, [vec![Size::Static(1)], cx.b.sizes_of(*v)?].concat());
    let inputs = all.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    cx.b.add(&Concat { inputs, axis: 0 })
}

fn layers(cx: &mut Cx, a: &Args<'_>, kind: Kind) -> Result<Outcome> {
    let mut x = cx.tensor(a, "input")?;
    let states = match kind {
        Kind::Lstm => cx.tensors(a, "hx")?,
        _ => vec![cx.tensor(a, "hx")?],
    };
    let params = cx.tensors(a, "params")?;
    let count = a.int("num_layers", Some(1))?;
    let p = if a.flag("train", false)? { a.float("dropout", Some(0.0))? } else { 0.0 };
    if rank_of(x) != 3 {
        return Err(format!("RNN: Expected input to be 3D, got {}D instead", rank_of(x)).into());
    }
    let batch_first = a.flag("batch_first", false)?;
    if batch_first {
        x = cx.transpose(x, vec![1, 0, 2])?;
    }
    let directions = if a.flag("bidirectional", false)? { 2 } else { 1 };
    let biases = a.flag("has_biases", true)?;
    let all = usize::try_from(count * directions).map_err(|_| "has fewer than no layers")?;
    let each = params.len().checked_div(all).unwrap_or(0);
    let projected = match (kind, biases, each) {
        (Kind::Lstm, true, 5) | (Kind::Lstm, false, 3) => true,
        (_, true, 4) | (_, false, 2) => false,
        _ => return Err(format!("has {} parameters for {all} layers", params.len()).into()),
    };
    let mut finals: Vec<Vec<Value>> = vec![vec![]; states.len()];
    for (layer, weights) in params.chunks(each * directions as usize).enumerate() {
        let mut outputs = vec![];
        for (way, w) in weights.chunks(each).enumerate() {
            let [input, hidden, rest @ ..] = w else { return Err("has too few weights".into()) };
            let weights = Weights {
                input: *input,
                hidden: *hidden,
                biases: match rest {
                    [input, hidden, ..] if biases => Some((*input, *hidden)),
                    _ => None,
                },
                projection: if projected { rest.last().copied() } else { None },
            };
            let at = layer as i64 * directions + way as i64;
            let state = states.iter().map(|s| row(cx, *s, at)).collect::<Result<Vec<_>>>()?;
            let (output, last) = direction(cx, kind, x, state, &weights, way == 1)?;
            outputs.push(output);
            finals.iter_mut().zip(last).for_each(|(all, v)| all.push(v));
        }
        x = match outputs.as_slice() {
            [one] => *one,
            _ => cx.b.add(&Concat { inputs: outputs, axis: 2 })?,
        };
        if p > 0.0 && layer as i64 + 1 < count {
            x = dropped(cx, x, p)?;
        }
    }
    if batch_first {
        x = cx.transpose(x, vec![1, 0, 2])?;
    }
    let mut results = vec![x];
    for all in &finals {
        results.push(stacked(cx, all)?);
    }
    cx.many(&results)
}

fn cell(cx: &mut Cx, a: &Args<'_>, kind: Kind) -> Result<Outcome> {
    let input = cx.tensor(a, "input")?;
    let state = match kind {
        Kind::Lstm => cx.tensors(a, "hx")?,
        _ => vec![cx.tensor(a, "hx")?],
    };
    let (w_ih, w_hh) = (cx.tensor(a, "w_ih")?, cx.tensor(a, "w_hh")?);
    let biases = match (cx.optional(a, "b_ih")?, cx.optional(a, "b_hh")?) {
        (Some(input), Some(hidden)) => Some((input, hidden)),
        _ => None,
    };
    let weights = Weights { input: w_ih, hidden: w_hh, biases, projection: None };
    let bias = weights.biases.map(|(input, _)| input);
    let gates = cx.b.add(&Linear { input, weight: w_ih, bias })?;
    let new = step(cx, kind, gates, &state, &weights)?;
    match new.as_slice() {
        [one] => cx.one(*one),
        all => cx.many(all),
    }
}
