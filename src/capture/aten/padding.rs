//! Padding by a tensor's own elements: reflected, repeated, or from the other end.
use super::{Cx, Outcome, Row, tools::*};
use kiln_dialects::{ir::*, ops::*, value::DType};

macro_rules! pad_row {
    ($name:literal, $mode:ident) => {
        Row {
            name: $name,
            arguments: "self, padding",
            build: |cx, a| {
                let x = cx.tensor(a, "self")?;
                let pairs = a.sizes(if a.has("pad") { "pad" } else { "padding" })?;
                extended(cx, x, &pairs, Mode::$mode)
            },
        }
    };
}

/// Rows of this family.
pub(super) const ROWS: &[Row] = &[
    pad_row!("aten.reflection_pad1d.default", Reflect),
    pad_row!("aten.reflection_pad2d.default", Reflect),
    pad_row!("aten.reflection_pad3d.default", Reflect),
    pad_row!("aten.replication_pad1d.default", Replicate),
    pad_row!("aten.replication_pad2d.default", Replicate),
    pad_row!("aten.replication_pad3d.default", Replicate),
    pad_row!("aten._pad_circular.default", Circular),
];

/// Where an element outside comes from.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Mode {
    /// Mirrored at the border element.
    Reflect,
    /// The border element.
    Replicate,
    /// The other end.
    Circular,
}

impl Mode {
    /// By PyTorch's name.
    pub fn named(name: &str) -> Result<Mode> {
        match name {
            "reflect" => Ok(Mode::Reflect),
            "replicate" => Ok(Mode::Replicate),
            "circular" => Ok(Mode::Circular),
            other => Err(format!("Unrecognised padding mode {other}").into()),
        }
    }
}

/// What is left of a dimension after its negative counts, and the positive ones.
fn cropped(cx: &Cx, x: Value, at: usize, low: Size, high: Size) -> Result<(Value, Size, Size)> {
    let split = |p: Size| match p.known() {
        Some(p) if p < 0 => (Size::Static(-p), Size::Static(0)),
        _ => (Size::Static(0), p),
    };
    let ((start, low), (end, high)) = (split(low), split(high));
    if start.known() == Some(0) && end.known() == Some(0) {
        return Ok((x, low, high));
    }
    let left = cx.size_sub(cx.size_sub(cx.b.size_of(x, at)?, start)?, end)?;
    Ok((cx.part(x, at, start, left)?, low, high))
}

/// Pads dimensions from the last one on, by pairs; negative counts crop.
pub(super) fn extended(cx: &mut Cx, mut x: Value, pairs: &[Size], mode: Mode) -> Result<Outcome> {
    let rank = rank_of(x);
    let (mut axes, mut outs, mut lows) = (vec![], vec![], vec![]);
    for (i, pair) in pairs.chunks(2).enumerate().rev() {
        let at = rank.checked_sub(i + 1).ok_or("pads more dimensions than there are")?;
        let [low, high] = pair else { return Err("has half a pair".into()) };
        if low.known() == Some(0) && high.known() == Some(0) {
            continue;
        }
        fits(mode, cx.b.size_of(x, at)?, *low, *high)?;
        let (mut low, mut high) = (*low, *high);
        if mode == Mode::Circular {
            // The other end is that of what is left.
            (x, low, high) = cropped(cx, x, at, low, high)?;
        }
        axes.push(at);
        outs.push(cx.size_add(cx.size_add(cx.b.size_of(x, at)?, low)?, high)?);
        lows.push(low);
    }
    if axes.is_empty() {
        return cx.one(x);
    }
    let mut indices = vec![];
    for (k, (at, low)) in axes.iter().zip(lows).enumerate() {
        let n = cx.size_value(cx.b.size_of(x, *at)?)?;
        let i = cx.iota(DType::I64, outs.clone(), k)?;
        let i = cx.binary(BinaryKind::Sub, i, cx.size_value(low)?)?;
        indices.push(source(cx, mode, i, n)?);
    }
    let dims = axes.iter().map(|d| *d as i64).collect();
    let v = cx.b.add(&Gather { input: x, indices, dims })?;
    // Gathered dimensions are first; each goes back to its place.
    let count = axes.len() as i64;
    let mut others = count..rank as i64;
    let order = (0..rank).map(|d| match axes.iter().position(|a| *a == d) {
        Some(k) => Ok(k as i64),
        None => others.next().ok_or("has too few dimensions"),
    });
    let v = cx.transpose(v, order.collect::<Result<_, _>>()?)?;
    cx.one(v)
}

/// Err: the padding needs elements that the dimension does not have.
fn fits(mode: Mode, n: Size, low: Size, high: Size) -> Result<()> {
    let Some(n) = n.known() else { return Ok(()) };
    for p in [low, high].into_iter().filter_map(Size::known) {
        if mode == Mode::Reflect && p >= n && n > 0 {
            return Err(format!(
                "Padding size should be less than the corresponding input dimension, but got: padding {p} at a dimension of size {n}"
            ).into());
        }
        if mode == Mode::Circular && p > n {
            return Err("Padding value causes wrapping around more than once.".into());
        }
    }
    Ok(())
}

/// The position in a dimension of size `n` that position `i` reads.
fn source(cx: &Cx, mode: Mode, i: Value, n: Value) -> Result<Value> {
    super::formula::value(cx, |f| {
        let (i, n) = (f.of(i), f.of(n));
        let last = n - 1.0;
        match mode {
            Mode::Reflect => last - (last - i.abs()).abs(),
            Mode::Replicate => i.max(0.0).min(last),
            Mode::Circular => {
                let i = i.lt(0.0).select(i + n, i);
                i.ge(n).select(i - n, i)
            }
        }
    })
}
