//! Hides what lies beyond a size from ops that would mix it with what lies before.
use super::bounded::Bounded;
use crate::analysis::sizes::SizeBuilder;
use kiln_dialects::{
    ir::*,
    ops::{self, BinaryKind, CompareKind, OpKind, ReduceKind, ScatterKind, SymKind},
    rules::{Sizes as _, tensor_type},
    sym::{Atom, Dim},
    value::DType,
};
use kiln_passes::expand_scans::identity;
use std::collections::HashMap;

/// Rewrites the ops of a function.
pub(super) struct Masks<'a> {
    sizes: &'a Bounded<'a>,
    symbols: HashMap<String, ops::Sym>,
    /// Sizes as 0-d i64.
    counts: HashMap<Dim, Value>,
    /// Ops without uses, to be erased.
    pub(super) replaced: Vec<Op>,
}

impl<'a> Masks<'a> {
    pub(super) fn new(sizes: &'a Bounded<'a>, func: Op) -> Masks<'a> {
        let symbols = walk(func).into_iter().filter_map(ops::Sym::of);
        let symbols = symbols.map(|s| (s.name.clone(), s)).collect();
        Masks { sizes, symbols, counts: HashMap::new(), replaced: vec![] }
    }

    pub(super) fn op(&mut self, op: Op) -> Result<()> {
        let Some(b) = Builder::before(op).map(|b| b.at(op.loc())) else { return Ok(()) };
        match op.kind() {
            Some(OpKind::Reduce) => self.reduce(b, op),
            Some(OpKind::DotGeneral) => self.dot_general(b, op),
            Some(OpKind::Gather) => self.gather(b, op),
            Some(OpKind::Scatter) => self.scatter(b, op),
            Some(OpKind::Slice) => self.slice(b, op),
            Some(OpKind::Pad) => self.pad(b, op),
            Some(OpKind::Require) => {
                let reads = self.sizes.dims(op).iter().any(|d| self.sizes.reads(d));
                self.replaced.extend(reads.then_some(op));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reduce(&mut self, b: Builder, op: Op) -> Result<()> {
        let o = ops::Reduce::of(op).ok_or_malformed(op)?;
        let axes = self.beyond(o.input, &o.dims);
        let neutral = identity(b.ctx, o.kind, dtype(o.input)?);
        let hidden = self.hide(b, o.input, &axes, neutral)?;
        op.set_operand(0, hidden);
        Ok(())
    }

    fn dot_general(&mut self, b: Builder, op: Op) -> Result<()> {
        let o = ops::DotGeneral::of(op).ok_or_malformed(op)?;
        for (i, v, dims) in [(0, o.lhs, &o.lhs_contract), (1, o.rhs, &o.rhs_contract)] {
            let axes = self.beyond(v, dims);
            let zero = identity(b.ctx, ReduceKind::Sum, dtype(v)?);
            // On both sides: a product of 0 and what is not finite is not 0.
            op.set_operand(i, self.hide(b, v, &axes, zero)?);
        }
        Ok(())
    }

    /// Indices beyond the size are 0.
    fn gather(&mut self, b: Builder, op: Op) -> Result<()> {
        let o = ops::Gather::of(op).ok_or_malformed(op)?;
        for (i, index) in o.indices.iter().enumerate() {
            let axes = self.sizes.padded(*index);
            let zero = Attr::scalar_int(b.ctx, dtype(*index)?, 0);
            op.set_operand(1 + i, self.hide(b, *index, &axes, zero)?);
        }
        Ok(())
    }

    /// Updates beyond the size are neutral, or go to a row that is cut off.
    fn scatter(&mut self, b: Builder, op: Op) -> Result<()> {
        let mut o = ops::Scatter::of(op).ok_or_malformed(op)?;
        let axes = o.indices.first().map_or(vec![], |i| self.sizes.padded(*i));
        let Some(axis) = axes.first().copied() else { return Ok(()) };
        let sizes = b.sizes_of(o.input)?;
        let kind = match o.kind {
            ScatterKind::Assign => None,
            ScatterKind::Add => Some(ReduceKind::Sum),
            ScatterKind::Mul => Some(ReduceKind::Prod),
            ScatterKind::Max => Some(ReduceKind::Max),
            ScatterKind::Min => Some(ReduceKind::Min),
        };
        let some = o.dims.iter().all(|d| sizes[*d as usize].known().is_some_and(|n| n > 0));
        if let Some(kind) = kind.filter(|_| some) {
            let neutral = identity(b.ctx, kind, dtype(o.updates)?);
            o.updates = self.hide(b, o.updates, &axes, neutral)?;
            for (index, d) in o.indices.iter_mut().zip(&o.dims) {
                // Spread, since updates of one row follow each other.
                let shape = b.sizes_of(*index)?;
                let place = place(b, &shape, axis)?;
                let size = number(b, sizes[*d as usize], DType::I64, &shape)?;
                let spread = binary(b, BinaryKind::Rem, place, size)?;
                *index = self.choose(b, *index, &axes, convert(b, spread, dtype(*index)?)?)?;
            }
            op.result(0).replace_uses(b.add(&o)?);
        } else {
            let first = *o.dims.first().ok_or("has no dimensions")? as usize;
            let (whole, mut high) = (o.input, vec![Size::Static(0); sizes.len()]);
            high[first] = Size::Static(1);
            let value = b.splat(dtype(whole)?, &[], 0.0)?;
            let low = vec![Size::Static(0); sizes.len()];
            o.input = b.add(&ops::Pad { input: whole, value, low: low.clone(), high })?;
            for (i, index) in o.indices.iter_mut().enumerate() {
                let end = if i == 0 { sizes[first] } else { Size::Static(0) };
                let end = number(b, end, dtype(*index)?, &b.sizes_of(*index)?)?;
                *index = self.choose(b, *index, &axes, end)?;
            }
            let input = b.add(&o)?;
            let strides = vec![1; sizes.len()];
            let cut = b.add(&ops::Slice { input, offsets: low, sizes, strides })?;
            op.result(0).replace_uses(cut);
        }
        self.replaced.push(op);
        Ok(())
    }

    /// An offset that depends on data is one of the device.
    fn slice(&mut self, b: Builder, op: Op) -> Result<()> {
        let o = ops::Slice::of(op).ok_or_malformed(op)?;
        let offsets: Vec<Dim> = o.offsets.iter().map(|s| self.sizes.facts.size(s)).collect();
        if !offsets.iter().any(|d| self.sizes.reads(d)) {
            return Ok(());
        }
        let starts = offsets.iter().map(|d| self.count(b, d)).collect::<Result<_>>()?;
        let made = b.add(&ops::DynamicSlice { input: o.input, starts, sizes: o.sizes })?;
        op.result(0).replace_uses(made);
        self.replaced.push(op);
        Ok(())
    }

    /// The padding begins at the size.
    fn pad(&mut self, b: Builder, op: Op) -> Result<()> {
        let mut o = ops::Pad::of(op).ok_or_malformed(op)?;
        let axes = self.sizes.padded(o.input);
        if axes.is_empty() {
            return Ok(());
        }
        let beyond = broadcast(b, o.value, &b.sizes_of(o.input)?)?;
        let input = self.choose(b, o.input, &axes, beyond)?;
        for axis in axes {
            if self.sizes.reads(&self.sizes.facts.size(&o.high[axis])) {
                let high = self.sizes.fixed_high(op, &o, axis).ok_or("has no known size")?;
                o.high[axis] = Size::Static(high);
            }
        }
        op.result(0).replace_uses(b.add(&ops::Pad { input, ..o })?);
        self.replaced.push(op);
        Ok(())
    }

    /// Those of the dimensions that go on beyond a size.
    fn beyond(&self, v: Value, dims: &[i64]) -> Vec<usize> {
        self.sizes.padded(v).into_iter().filter(|axis| dims.contains(&(*axis as i64))).collect()
    }

    /// A value with `fill` beyond the sizes of these dimensions.
    fn hide(&mut self, b: Builder, v: Value, axes: &[usize], fill: Attr) -> Result<Value> {
        if axes.is_empty() {
            return Ok(v);
        }
        let fill = b.add(&ops::Splat { value: fill, sizes: b.sizes_of(v)? })?;
        self.choose(b, v, axes, fill)
    }

    /// The first value before the sizes of these dimensions, and the second one beyond.
    fn choose(&mut self, b: Builder, v: Value, axes: &[usize], beyond: Value) -> Result<Value> {
        let (shape, mut chosen) = (b.sizes_of(v)?, v);
        for axis in axes {
            let count = self.count(b, &self.sizes.facts.dims(v)[*axis])?;
            let (lhs, rhs) = (place(b, &shape, *axis)?, broadcast(b, count, &shape)?);
            let condition = b.add(&ops::Compare { kind: CompareKind::Lt, lhs, rhs })?;
            chosen = b.add(&ops::Select { condition, on_true: chosen, on_false: beyond })?;
        }
        Ok(chosen)
    }

    /// A size as a 0-d i64.
    fn count(&mut self, b: Builder, d: &Dim) -> Result<Value> {
        Counts { b, masks: self }.build(d)
    }
}

fn dtype(v: Value) -> Result<DType> {
    tensor_type(v.ty()).map(|t| t.dtype)
}

fn convert(b: Builder, input: Value, to: DType) -> Result<Value> {
    if dtype(input)? == to {
        return Ok(input);
    }
    b.add(&ops::Convert { input, dtype: Type::scalar(b.ctx, to) })
}

fn binary(b: Builder, kind: BinaryKind, x: Value, y: Value) -> Result<Value> {
    Ok(b.generic(kind.op().name(), &[x, y], &[x.ty()], &[], &mut [])?.result(0))
}

/// The index along a dimension.
fn place(b: Builder, shape: &[Size], axis: usize) -> Result<Value> {
    let dtype = Type::scalar(b.ctx, DType::I64);
    b.add(&ops::Iota { sizes: shape.to_vec(), axis: axis as i64, dtype })
}

fn broadcast(b: Builder, input: Value, shape: &[Size]) -> Result<Value> {
    b.add(&ops::BroadcastInDim { input, dims: vec![], sizes: shape.to_vec() })
}

/// A tensor filled with a size.
fn number(b: Builder, size: Size, to: DType, shape: &[Size]) -> Result<Value> {
    broadcast(b, b.size_as_tensor(size, to)?, shape)
}

/// Sizes as 0-d i64, from the values of the chosen ones.
struct Counts<'m, 'a> {
    b: Builder,
    masks: &'m mut Masks<'a>,
}

impl SizeBuilder for Counts<'_, '_> {
    type Output = Value;
    fn number(&mut self, n: i64) -> Result<Value> {
        self.b.size_as_tensor(Size::Static(n), DType::I64)
    }
    fn leaf(&mut self, a: &Atom, whole: &Dim) -> Result<Value> {
        let Atom::Sym(name) = a else {
            return Err(format!("has a size that no symbol names ({whole})").into());
        };
        if let Some(u) = self.masks.sizes.chosen.get(name) {
            return Ok(u.value);
        }
        let sym = self.masks.symbols.get(name).ok_or_else(|| format!("has no symbol {name}"))?;
        let size = self.b.create_with(sym, &[Type::index(self.b.ctx)], &mut [])?.result(0);
        self.b.size_as_tensor(Size::Dynamic(size), DType::I64)
    }
    fn apply(&mut self, kind: SymKind, lhs: Value, rhs: Value) -> Result<Value> {
        let kind = match kind {
            SymKind::Add => BinaryKind::Add,
            SymKind::Mul => BinaryKind::Mul,
            SymKind::Floordiv => BinaryKind::FloorDiv,
            SymKind::Mod => BinaryKind::Rem,
            SymKind::Min => BinaryKind::Min,
            SymKind::Max => BinaryKind::Max,
            SymKind::Pow => BinaryKind::Pow,
        };
        binary(self.b, kind, lhs, rhs)
    }
    fn cached(&self, d: &Dim) -> Option<Value> {
        self.masks.counts.get(d).copied()
    }
    fn cache(&mut self, d: &Dim, made: Value) {
        self.masks.counts.insert(d.clone(), made);
    }
}
