//! `kiln-predicate-pads`: reads a tensor through a bounds predicate where only elementwise kernels
//! read a padded copy of it.
//!
//! Why: `kiln-fuse` joins a pad with what computes its operand, never with what reads it. If the
//! operand is stored anyway, a pad is a kernel of its own, which reads and writes the whole tensor:
//! 0.8 GB for the image of resnet18's max pool, whose gradient compares the elements of windows.
//! Upstream fuses `tensor.pad` with its producer by tiling; it has no reader with a predicate.
//!
//! It applies where the innermost dimension is not padded, so that loads stay vectors and the
//! predicate is uniform over each.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %p = kiln.pad %x, %v low = [1, 0] high = [1, 0]   %s = kiln.slice %p offsets = [2, 0] sizes = [8, 4] …   %0 = kiln.add %s, %y
//! after:   %g = kiln.gather %x[clamp(i + 1)] dims = [0]   %s = kiln.select (i + 1 in [0, 8)), %g, %v   %0 = kiln.add %s, %y
//! ```
use crate::kernels::frozen::is_movement;
use kiln_dialects::{ir::*, ops::*, rules::Level, value::DType};
use kiln_passes::{Numerics, Pass, broadcasting::binary, formula::value, readers::erase_dead};

kiln_passes::pass_options! {
    /// The pass.
    pub struct PredicatePads {
        /// Most reads of a padded tensor
        pub max_reads: usize = 32,
        /// Most movement ops between a pad and an elementwise op
        pub depth: usize = 4,
    }
}

impl Pass for PredicatePads {
    const FLAG: &'static str = "kiln-predicate-pads";
    const SUMMARY: &'static str =
        "Reads a tensor through a bounds predicate in place of a padded copy of it";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        // No other ops: reads of the padded tensors are erased.
        let pads = walk(root).into_iter().filter_map(|op| Some((op, Pad::of(op)?)));
        for (op, pad) in pads.collect::<Vec<_>>() {
            if !stored(pad.input, op) || !self.predicable(op, &pad) {
                continue;
            }
            let b = Builder::before(op).ok_or_at(op, "is in no block")?.at(op.loc());
            for (reader, operand) in op.result(0).uses() {
                if let Some(slice) = Slice::of(reader) {
                    reader.result(0).replace_uses(read(&b, &pad, &slice).at(reader)?);
                    reader.erase();
                } else if let Some(window) = ReduceWindow::of(reader) {
                    let v = extremum(&b, &pad, &window, reader.result(0)).at(reader)?;
                    reader.result(0).replace_uses(v);
                    reader.erase();
                } else {
                    let sizes = b.sizes_of(op.result(0))?;
                    let whole = slice_of(op.result(0), vec![0; sizes.len()], sizes, None);
                    reader.set_operand(operand, read(&b, &pad, &whole).at(reader)?);
                }
            }
            let read = op.operands();
            op.erase();
            erase_dead(read, |kind| kind == OpKind::Splat);
        }
        Ok(())
    }
}

impl PredicatePads {
    /// Whether the pad adds constants outside the innermost dimension, and few elementwise kernels
    /// read it.
    fn predicable(&self, op: Op, o: &Pad) -> bool {
        let sides = |d: usize| [o.low[d].known(), o.high[d].known()];
        let rank = o.low.len();
        let adds = |d: usize| sides(d).iter().all(|n| n.is_some_and(|n| n >= 0));
        let padded = (0..rank).any(|d| sides(d) != [Some(0); 2]);
        let some = o.input.ty().dims().iter().all(|d| d.known().is_some_and(|n| n > 0));
        let inner = rank.checked_sub(1).is_some_and(|d| sides(d) == [Some(0); 2]);
        let constant = o.value.def().is_some_and(|v| v.kind() == Some(OpKind::Splat));
        let reads = op.result(0).uses();
        let elements = |(reader, _): &(Op, usize)| match ReduceWindow::of(*reader) {
            Some(w) => w.window.iter().product::<i64>() as usize,
            None => 1,
        };
        inner
            && constant
            && padded
            && some
            && (0..rank).all(adds)
            && reads.iter().map(elements).sum::<usize>() <= self.max_reads
            && reads.iter().all(|(reader, _)| self.elementwise(*reader, self.depth))
    }

    /// Whether an op is elementwise, a small window whose elements can be compared one after the
    /// other, or a movement that only such ops read.
    fn elementwise(&self, op: Op, depth: usize) -> bool {
        let Some(kind) = op.kind() else { return false };
        if let Some(w) = ReduceWindow::of(op) {
            let unpadded = w.pad_low.iter().chain(&w.pad_high).all(|n| *n == 0);
            return is_static(op)
                && unpadded
                && matches!(w.kind, CumulativeKind::Max | CumulativeKind::Min);
        }
        if Slice::of(op).is_some_and(|o| o.offsets.iter().any(|n| n.known().is_none())) {
            return false;
        }
        let moved = || {
            let mut readers = op.result(0).uses().into_iter();
            let reads = |r: Op| ReduceWindow::of(r).is_none() && self.elementwise(r, depth - 1);
            depth > 0 && readers.all(|(reader, _)| reads(reader))
        };
        is_static(op) && (kind.is_arithmetic() || is_movement(kind) && moved())
    }
}

fn is_static(op: Op) -> bool {
    op.result(0).ty().dims().iter().all(|d| d.known().is_some())
}

/// Whether a value is in memory whatever becomes of its reader `op`.
fn stored(v: Value, op: Op) -> bool {
    let other = |(reader, _): &(Op, usize)| {
        *reader != op && !matches!(reader.kind(), Some(OpKind::BindShape | OpKind::RequireIndex))
    };
    v.def().is_none() || v.uses().iter().any(other)
}

fn slice_of(input: Value, offsets: Vec<i64>, sizes: Vec<Size>, strides: Option<Vec<i64>>) -> Slice {
    let strides = strides.unwrap_or_else(|| vec![1; sizes.len()]);
    Slice { input, offsets: Size::all(&offsets), sizes, strides }
}

/// The extremum of each window, of slices of its elements. These are its own: fusion stores what two
/// kernels gather.
fn extremum(b: &Builder, pad: &Pad, o: &ReduceWindow, result: Value) -> Result<Value> {
    let sizes = b.sizes_of(result)?;
    let kind = match o.kind {
        CumulativeKind::Max => BinaryKind::Max,
        _ => BinaryKind::Min,
    };
    let mut best: Option<Value> = None;
    for k in 0..o.window.iter().product::<i64>() {
        let (mut offsets, mut rest) = (vec![0; sizes.len()], k);
        for d in (0..sizes.len()).rev() {
            offsets[d] = rest % o.window[d] * o.dilation[d];
            rest /= o.window[d];
        }
        let strides = Some(o.strides.clone());
        let own = read(b, pad, &slice_of(o.input, offsets, sizes.clone(), strides))?;
        best = Some(match best {
            None => own,
            Some(best) => binary(b, kind, best, own)?,
        });
    }
    best.ok_or_else(|| "has no elements".into())
}

/// A slice of the padded tensor, read from the operand of the pad.
fn read(b: &Builder, pad: &Pad, o: &Slice) -> Result<Value> {
    let (rank, sizes) = (o.sizes.len(), b.sizes_of(pad.input)?);
    // Along dimensions that are padded, an index; a slice of the others.
    let mut inner = slice_of(pad.input, vec![0; rank], sizes.clone(), None);
    let mut indexed: Vec<(usize, i64, i64)> = vec![];
    let known = |s: &Size| s.known().ok_or("has a dynamic size");
    for (d, (size, read)) in sizes.iter().zip(&o.sizes).enumerate() {
        let (n, read) = (known(size)?, known(read)?);
        let first = known(&o.offsets[d])? - known(&pad.low[d])?;
        if first < 0 || first + (read - 1) * o.strides[d] >= n {
            indexed.push((d, first, n));
        } else {
            inner.offsets[d] = Size::Static(first);
            (inner.sizes[d], inner.strides[d]) = (o.sizes[d], o.strides[d]);
        }
    }
    let whole = inner.sizes == sizes && inner.strides.iter().all(|s| *s == 1);
    let input = if whole { pad.input } else { b.add(&inner)? };
    if indexed.is_empty() {
        return Ok(input);
    }
    // Indices of all dimensions up to the last of these, so that the result needs no transpose, which
    // would end fusion.
    let last = indexed.iter().map(|(d, ..)| *d).max().unwrap_or(0);
    let (over, dims) = (o.sizes[..=last].to_vec(), (0..=last as i64).collect::<Vec<_>>());
    let (mut indices, mut inside): (Vec<Value>, Option<Value>) = (vec![], None);
    for d in 0..=last {
        let dtype = Type::scalar(b.ctx, DType::I64);
        let at = b.add(&Iota { sizes: over.clone(), axis: d as i64, dtype })?;
        let Some((_, first, n)) = indexed.iter().find(|(i, ..)| *i == d) else {
            indices.push(at);
            continue;
        };
        let at = value(b, |f| match o.strides[d] {
            1 => f.of(at) + *first as f64,
            stride => f.of(at) * stride as f64 + *first as f64,
        })?;
        let own = value(b, |f| f.of(at).ge(0.0) & f.of(at).lt(*n as f64))?;
        inside = Some(match inside {
            None => own,
            Some(all) => value(b, |f| f.of(all) & f.of(own))?,
        });
        indices.push(value(b, |f| f.of(at).max(0.0).min((n - 1) as f64))?);
    }
    let inside = inside.ok_or("has no bounds")?;
    let gathered = b.add(&Gather { input, indices, dims: dims.clone() })?;
    let sizes = o.sizes.clone();
    let inside = b.add(&BroadcastInDim { input: inside, dims, sizes: sizes.clone() })?;
    let none = b.add(&BroadcastInDim { input: pad.value, dims: vec![], sizes })?;
    b.add(&Select { condition: inside, on_true: gathered, on_false: none })
}
