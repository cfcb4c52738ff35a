//! `kiln-expose-padding`: makes the padding of convolutions and pooling windows an explicit
//! `kiln.pad`, and rewrites a transposed convolution as a plain one.
//!
//! Why: padding inside a window loop is a bounds test per element. As an op it is written once, and
//! fusion can let the producer write into the interior of the padded tensor. Upstream's named
//! convolutions have no padding either.
//!
//! A bf16 or f16 convolution for a GPU keeps its padding: the copies that feed the tensor cores
//! fill out-of-bounds pixels with zeros. A depthwise convolution keeps it too. The pass runs twice:
//! before the layout is chosen, and after `kiln-layout`, when only NHWC convolutions keep it.
//!
//! Numerics: exact. Zeros add nothing; the padding of a max reduction is its identity.
//!
//! ```text
//! before:  %0 = kiln.convolution %x, %w … pad = [1, 1] x [1, 1] …
//! after:   %p = kiln.pad %x, %zero low = [0, 0, 1, 1] high = [0, 0, 1, 1]   %0 = kiln.convolution %p, %w … pad = [0, 0] x [0, 0] …
//! ```
use crate::{
    kernels::{
        frozen::{STORED, VIEW, is_movement},
        op_facts::{contracts, fits_im2col, folded_transpose, folding_op, is_dense, is_depthwise},
    },
    target::Chip,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, tensor_type},
    value::DType,
};
use kiln_passes::{Numerics, Pass, differentiate::transposed_weight};

kiln_passes::pass_options! {
    /// The pass.
    pub struct ExposePadding {
        /// Target GPU: sm_80, sm_86, sm_89 or sm_90a; empty for CPUs
        pub chip: String = String::new(),
    }
}

impl Pass for ExposePadding {
    const FLAG: &'static str = "kiln-expose-padding";
    const SUMMARY: &'static str =
        "Splits the padding of convolutions and windows into a separate pad op";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        for op in walk(root) {
            let Some(b) = Builder::before(op) else { continue };
            let new = match op.kind() {
                Some(OpKind::Convolution) if self.keeps(op) => {
                    store_image(op);
                    own_transpose(&b, op).at(op)?;
                    None
                }
                Some(OpKind::Convolution) => convolution(&b, op).at(op)?,
                Some(OpKind::ConvolutionWeightGradient) => self.weight_gradient(&b, op).at(op)?,
                Some(OpKind::ReduceWindow) => window(&b, op).at(op)?,
                _ => None,
            };
            if let Some(v) = new {
                op.result(0).replace_uses(v);
                op.erase();
            }
        }
        Ok(())
    }
}

impl ExposePadding {
    /// A weight's gradient of a padded image, but where TMA pads it, for which
    /// `kiln-weight-gradients` makes it, or the loading threads of a depthwise one.
    fn weight_gradient(&self, b: &Builder, op: Op) -> Result<Option<Value>> {
        let mut o = ConvolutionWeightGradient::of(op).ok_or_malformed(op)?;
        let loads =
            if o.depthwise { !self.chip.is_empty() } else { self.chip == Chip::Sm90a.name() };
        if loads || o.pad_low.iter().chain(&o.pad_high).all(|p| *p == 0) {
            return Ok(None);
        }
        let around = |p: &[i64]| [&[0], p, &[0]].concat();
        o.input = padded(b, o.input, 0.0, &around(&o.pad_low), &around(&o.pad_high))?;
        (o.pad_low, o.pad_high) = (vec![0; 2], vec![0; 2]);
        b.add(&o).map(Some)
    }
    /// Whether a GPU kernel pads the convolution's input as it loads it, once the layout is NHWC,
    /// which `kiln-layout` may still choose. TMA (im2col mode) needs 16-bit floats whose channels
    /// are a multiple of 16 bytes, and its pixel-box offsets are 8 bits. A depthwise convolution
    /// is padded by the loading threads.
    fn keeps(&self, op: Op) -> bool {
        let Some(o) = Convolution::of(op).filter(|o| o.strides.len() == 2 && contracts(op)) else {
            return false;
        };
        let func =
            std::iter::successors(op.parent(), |o| o.parent()).find(|o| o.isa::<func::Func>());
        let laid_out = func.is_some_and(|f| f.attr("kiln.memory_format").is_some());
        let last = folded_transpose(op).is_some() && image(&o).is_some();
        let Ok(t) = tensor_type(o.input.ty()) else { return false };
        let sizes: Option<Vec<i64>> = o.weight.ty().dims().iter().map(|d| d.known()).collect();
        let Some([_, channels, height, width]) = sizes.as_deref() else { return false };
        let narrow = matches!(t.dtype, DType::BF16 | DType::F16) && channels % 8 == 0;
        let engine =
            !self.chip.is_empty() && is_dense(op) && narrow && fits_im2col(&o, &[*height, *width]);
        let threads = !self.chip.is_empty()
            && is_depthwise(&o)
            && o.pad_low.iter().chain(&o.pad_high).all(|n| *n >= 0);
        (engine || threads)
            && (last || !laid_out)
            && t.dims.iter().skip(2).all(|d| d.known().is_some())
    }
}

/// The NHWC input of a convolution that reads it through a transpose, if an op computes it or it is
/// a function argument.
fn image(o: &Convolution) -> Option<Value> {
    let t = o.input.def().and_then(Transpose::of).filter(|t| t.permutation == [0, 3, 1, 2])?;
    let made = t.input.def().and_then(Op::kind);
    (!matches!(made, Some(OpKind::Splat | OpKind::Iota | OpKind::Constant))).then_some(t.input)
}

/// Marks the input of a convolution that pads as it loads as materialised in its layout, even if it
/// is only a transposed argument; a reshape as a view, whose operand is materialised.
fn store_image(op: Op) {
    let made = Convolution::of(op).and_then(|o| image(&o)).and_then(Value::def);
    let Some(made) = made else { return };
    // A contraction stores what it computes in the layout of a transpose that it folds.
    match made.kind() {
        Some(OpKind::Reshape) => made.set_attr(VIEW, Attr::unit(op.ctx())),
        Some(kind) if is_movement(kind) && folding_op(made).is_none() => {
            made.set_attr(STORED, Attr::unit(op.ctx()));
        }
        _ => {}
    }
}

/// Marks the transpose that only a padded convolution reads, so that `cse` keeps it apart.
const IMAGE: &str = "kiln.image";

/// Gives a convolution a transpose of its own if another reader of its input, such as a view or the
/// function's return, may want the NCHW value in memory: the convolution's kernel reads the NHWC
/// value.
fn own_transpose(b: &Builder, op: Op) -> Result<()> {
    let o = Convolution::of(op).ok_or_malformed(op)?;
    let (Some(image), Some(t)) = (image(&o), o.input.def().and_then(Transpose::of)) else {
        return Ok(());
    };
    // These read NHWC values through a transpose.
    let folds = |user: Op| {
        user == op || user.kind().is_some_and(|k| k.is_elementwise() || k == OpKind::Convolution)
    };
    // `cse` makes equal transposes one.
    let stored = |user: Op| {
        Transpose::of(user).is_some_and(|u| u.permutation == t.permutation)
            && user.result(0).uses().iter().any(|(reader, _)| !folds(*reader))
    };
    if image.uses().iter().any(|(user, _)| stored(*user)) {
        let own = b.create_node(&Transpose { input: image, permutation: t.permutation.clone() })?;
        own.set_attr(IMAGE, Attr::unit(op.ctx()));
        op.set_operand(0, own.result(0));
    }
    Ok(())
}

fn padded(b: &Builder, x: Value, value: f64, low: &[i64], high: &[i64]) -> Result<Value> {
    if low.iter().chain(high).all(|p| *p == 0) {
        return Ok(x);
    }
    let dtype = tensor_type(x.ty())?.dtype;
    let value = b.splat(dtype, &[], value)?;
    b.add(&Pad { input: x, value, low: Size::all(low), high: Size::all(high) })
}

fn convolution(b: &Builder, op: Op) -> Result<Option<Value>> {
    let mut o = Convolution::of(op).ok_or_malformed(op)?;
    let spatial = o.strides.len();
    if o.transposed {
        return transposed(b, o, op).map(Some);
    }
    if o.pad_low.iter().chain(&o.pad_high).all(|p| *p == 0) {
        return Ok(None);
    }
    let around = |p: &[i64]| [&[0, 0], p].concat();
    o.input = padded(b, o.input, 0.0, &around(&o.pad_low), &around(&o.pad_high))?;
    (o.pad_low, o.pad_high) = (vec![0; spatial], vec![0; spatial]);
    b.add(&o).map(Some)
}

/// Rewrites a transposed convolution as a plain one: the input with `stride - 1` zeros inserted
/// after each element, and the weight reversed along its spatial dimensions.
fn transposed(b: &Builder, o: Convolution, op: Op) -> Result<Value> {
    let spatial = o.strides.len();
    let mut x = o.input;
    for (i, stride) in o.strides.iter().enumerate().filter(|(_, s)| **s != 1) {
        // [.., n, ..] as [.., n, 1, ..], padded to [.., n, stride, ..], reshaped to
        // [.., n * stride, ..], without the zeros after the last element.
        let axis = 2 + i;
        let sizes = b.sizes_of(x)?;
        let split = [&sizes[..=axis], &[Size::Static(1)], &sizes[axis + 1..]].concat();
        x = b.add(&Reshape { input: x, sizes: split })?;
        let (low, mut high) = (vec![0; sizes.len() + 1], vec![0; sizes.len() + 1]);
        high[axis + 1] = stride - 1;
        x = padded(b, x, 0.0, &low, &high)?;
        let mut joined = sizes.clone();
        joined[axis] = linear(b, sizes[axis], *stride, 0)?;
        x = b.add(&Reshape { input: x, sizes: joined.clone() })?;
        joined[axis] = linear(b, sizes[axis], *stride, 1 - stride)?;
        let zero = vec![Size::Static(0); sizes.len()];
        x = b.add(&Slice {
            input: x,
            offsets: zero,
            sizes: joined,
            strides: vec![1; sizes.len()],
        })?;
    }
    let kernel: Vec<i64> = o.weight.ty().dims()[2..]
        .iter()
        .map(|d| d.known())
        .collect::<Option<_>>()
        .ok_or("has a weight of unknown size")?;
    let extra = o.output_padding.clone().unwrap_or_else(|| vec![0; spatial]);
    let reach = |i: usize| o.dilation[i] * (kernel[i] - 1);
    let low: Vec<i64> =
        [0, 0].into_iter().chain((0..spatial).map(|i| reach(i) - o.pad_low[i])).collect();
    let high: Vec<i64> = [0, 0]
        .into_iter()
        .chain((0..spatial).map(|i| reach(i) - o.pad_high[i] + extra[i]))
        .collect();
    x = padded(b, x, 0.0, &low, &high)?;
    let weight = transposed_weight(b, o.weight, o.groups)?;
    let ones = || vec![1; spatial];
    let plain = Convolution {
        input: x,
        weight,
        strides: ones(),
        pad_low: vec![0; spatial],
        pad_high: vec![0; spatial],
        dilation: o.dilation.clone(),
        groups: o.groups,
        transposed: false,
        output_padding: None,
    };
    let v = b.add(&plain)?;
    if v.ty() == op.result(0).ty() {
        Ok(v)
    } else {
        Err(format!("would have type {} as a plain convolution", v.ty()).into())
    }
}

/// `size * factor + add`.
fn linear(b: &Builder, size: Size, factor: i64, add: i64) -> Result<Size> {
    let v = match size {
        Size::Static(n) => return Ok(Size::Static(n * factor + add)),
        Size::Dynamic(v) => v,
    };
    let index = [Type::index(b.ctx)];
    let apply = |kind, lhs, n| -> Result<Value> {
        Ok(b.create_with(&SymExpr { kind, lhs, rhs: b.index(n)? }, &index, &mut [])?.result(0))
    };
    let product = apply(SymKind::Mul, v, factor)?;
    if add == 0 {
        Ok(Size::Dynamic(product))
    } else {
        apply(SymKind::Add, product, add).map(Size::Dynamic)
    }
}

fn window(b: &Builder, op: Op) -> Result<Option<Value>> {
    let mut o = ReduceWindow::of(op).ok_or_malformed(op)?;
    if o.pad_low.iter().chain(&o.pad_high).all(|p| *p == 0) {
        return Ok(None);
    }
    let d = tensor_type(o.input.ty())?.dtype;
    let identity = match (o.kind, d) {
        (CumulativeKind::Sum, _) => 0.0,
        (CumulativeKind::Prod, _) => 1.0,
        (CumulativeKind::Max, DType::F8E4M3FN) => -448.0,
        (CumulativeKind::Min, DType::F8E4M3FN) => 448.0,
        (CumulativeKind::Max, d) if d.is_float() => f64::NEG_INFINITY,
        (CumulativeKind::Min, d) if d.is_float() => f64::INFINITY,
        (CumulativeKind::Max, d) => d.int_range().0 as f64,
        (CumulativeKind::Min, d) => d.int_range().1 as f64,
    };
    // Of a widened input the narrow elements are padded: fewer bytes are stored.
    let narrow = o.input.def().and_then(Convert::of).filter(|c| {
        let infinite = |d: DType| matches!(d, DType::BF16 | DType::F16 | DType::F32);
        let from = tensor_type(c.input.ty()).map(|t| t.dtype);
        infinite(d) && from.is_ok_and(|f| infinite(f) && f.byte_size() < d.byte_size())
    });
    o.input = match narrow {
        Some(c) => {
            let input = padded(b, c.input, identity, &o.pad_low, &o.pad_high)?;
            b.add(&Convert { input, ..c })?
        }
        None => padded(b, o.input, identity, &o.pad_low, &o.pad_high)?,
    };
    let n = o.window.len();
    (o.pad_low, o.pad_high) = (vec![0; n], vec![0; n]);
    b.add(&o).map(Some)
}
