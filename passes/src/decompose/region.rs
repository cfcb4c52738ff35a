//! A region over 0-d values, run for every element of a shape at once: elementwise ops on full
//! tensors, look-ups with full index tensors.
use super::tools::*;
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};
use std::collections::HashMap;

/// The shape, and what is known about values of the region so far.
pub(super) struct Batch<'a> {
    m: &'a Math<'a>,
    full: Vec<Size>,
    dims: Vec<Dim>,
    positions: Vec<Option<Value>>,
    /// Whether there are elements whose result nobody takes: positions of look-ups are then moved
    /// into range.
    pub clamp: bool,
}

/// What stands for a value of the region.
#[derive(Clone, Copy)]
enum Now {
    /// One value for all elements.
    Same(Value),
    /// The shape's dimensions in front of the value's own.
    Each(Value),
}

impl<'a> Batch<'a> {
    pub fn new(m: &'a Math<'a>, full: Vec<Size>) -> Batch<'a> {
        let dims = full.iter().map(|s| s.known().map_or(Dim::Unknown, Dim::Known)).collect();
        Batch { m, positions: vec![None; full.len()], dims, full, clamp: false }
    }
    /// The position along one axis, i64.
    pub fn position(&mut self, axis: usize) -> Result<Value> {
        if let Some(v) = self.positions[axis] {
            return Ok(v);
        }
        let v = self.m.iota(&self.full, axis)?;
        self.positions[axis] = Some(v);
        Ok(v)
    }

    /// What the block yields, in the full shape. Its first arguments stand for `first`, the others
    /// for positions.
    pub fn inline(&mut self, block: Block, first: &[Value]) -> Result<Value> {
        let args = block.args();
        let mut now: HashMap<Value, Now> =
            args.iter().copied().zip(first.iter().map(|v| Now::Each(*v))).collect();
        for (axis, arg) in
            args.into_iter().skip(first.len()).enumerate().filter(|(_, a)| !a.uses().is_empty())
        {
            now.insert(arg, Now::Each(self.position(axis)?));
        }
        for op in block.ops() {
            if op.kind() == Some(OpKind::Yield) {
                let v = op.operands().first().copied().ok_or("has a region that yields nothing")?;
                return self.each(v, &now);
            }
            let same = op.operands().iter().all(|v| matches!(get(*v, &now), Now::Same(_)));
            let results =
                if same { self.copy(op, &now)? } else { vec![Now::Each(self.batched(op, &now)?)] };
            now.extend(op.results().into_iter().zip(results));
        }
        Err("has a region without an end".into())
    }

    /// An op on what is the same for all elements, as it is.
    fn copy(&self, op: Op, now: &HashMap<Value, Now>) -> Result<Vec<Now>> {
        if !op.regions().is_empty() {
            return Err(unfit(op).into());
        }
        let operands: Vec<Value> = op.operands().iter().map(|v| raw(get(*v, now))).collect();
        let types: Vec<Type> = op.results().iter().map(|v| v.ty()).collect();
        let attrs = op.attrs();
        let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        let b = self.m.b.at(op.loc());
        Ok(b.generic(&op.name(), &operands, &types, &attrs, &mut [])?
            .results()
            .into_iter()
            .map(Now::Same)
            .collect())
    }

    /// An op on values of which some differ between elements.
    fn batched(&self, op: Op, now: &HashMap<Value, Now>) -> Result<Value> {
        let n = self.full.len() as i64;
        let b = self.m.b.at(op.loc());
        let moved = |dims: &[i64]| (0..n).chain(dims.iter().map(|d| d + n)).collect::<Vec<i64>>();
        match op.kind() {
            Some(kind) if kind.is_elementwise() => {
                let mut operands = op
                    .operands()
                    .iter()
                    .map(|v| self.each(*v, now))
                    .collect::<Result<Vec<_>, _>>()?;
                if self.clamp
                    && matches!(kind, OpKind::Div | OpKind::Rem | OpKind::FloorDiv)
                    && dtype(operands[1])?.is_int()
                {
                    // Nor does anyone take a quotient by 0.
                    let zero = self.m.compare(
                        CompareKind::Eq,
                        operands[1],
                        self.m.full_like(operands[1], 0.0)?,
                    )?;
                    operands[1] =
                        self.m.select(zero, self.m.full_like(operands[1], 1.0)?, operands[1])?;
                }
                let result = self.full_type(op.result(0).ty())?;
                let attrs = op.attrs();
                let attrs: Vec<(&str, Attr)> =
                    attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
                Ok(b.generic(&op.name(), &operands, &[result], &attrs, &mut [])?.result(0))
            }
            Some(OpKind::Gather) => {
                let o = Gather::of(op).ok_or_malformed(op)?;
                Ok(self
                    .gather(&o, now)
                    .map_err(|e| Error { message: format!("in its region: {}", e.message), ..e })?)
            }
            Some(OpKind::Reshape) => {
                let o = Reshape::of(op).ok_or_malformed(op)?;
                b.add(&Reshape {
                    input: self.each(o.input, now)?,
                    sizes: self.sizes(&o.sizes, now),
                })
            }
            Some(OpKind::BroadcastInDim) => {
                let o = BroadcastInDim::of(op).ok_or_malformed(op)?;
                b.add(&BroadcastInDim {
                    input: self.each(o.input, now)?,
                    dims: moved(&o.dims),
                    sizes: self.sizes(&o.sizes, now),
                })
            }
            Some(OpKind::Reduce) => {
                let o = Reduce::of(op).ok_or_malformed(op)?;
                let dims = moved(&o.dims).split_off(n as usize);
                b.add(&Reduce { input: self.each(o.input, now)?, dims, ..o })
            }
            _ => Err(unfit(op).into()),
        }
    }

    fn gather(&self, o: &Gather, now: &HashMap<Value, Now>) -> Result<Value> {
        let m = self.m;
        let per_element = o.indices.iter().map(|i| rank(*i)).max().unwrap_or(0);
        if per_element > 0 {
            return Err(format!(
                "kiln.gather at positions of rank {per_element} cannot be done for all elements at once"
            ).into());
        }
        let input = get(o.input, now);
        let n = self.full.len() as i64;
        let shift = if matches!(input, Now::Each(_)) { n } else { 0 };
        let mut indices = vec![];
        for (i, axis) in o.indices.iter().zip(&o.dims) {
            let mut at = self.each(*i, now)?;
            let size = m.size_of(raw(input), (axis + shift) as usize)?;
            let own =
                self.positions.iter().position(|p| *p == Some(at)).map(|axis| self.full[axis]);
            if self.clamp && own != Some(size) {
                at = m.convert(at, DType::I64)?;
                let size = m.number_like(size, at)?;
                let (low, one) = (m.full_like(at, 0.0)?, m.full_like(at, 1.0)?);
                at = m.b.add(&Clamp { input: at, low, high: m.sub(size, one)? })?;
            }
            indices.push(at);
        }
        let mut dims: Vec<i64> = o.dims.iter().map(|d| d + shift).collect();
        if shift > 0 {
            let own = (0..self.full.len())
                .map(|axis| m.iota(&self.full, axis))
                .collect::<Result<Vec<_>, _>>()?;
            indices.splice(0..0, own);
            dims.splice(0..0, 0..n);
        }
        m.b.add(&Gather { input: raw(input), indices, dims })
    }

    /// A value of the region in the full shape.
    fn each(&self, v: Value, now: &HashMap<Value, Now>) -> Result<Value> {
        match get(v, now) {
            Now::Each(v) => Ok(v),
            Now::Same(v) => {
                let n = self.full.len();
                let own = self.m.sizes_of(v)?;
                let dims: Vec<i64> = (n as i64..(n + own.len()) as i64).collect();
                self.m.broadcast(v, &dims, &[self.full.as_slice(), &own].concat())
            }
        }
    }
    fn sizes(&self, own: &[Size], now: &HashMap<Value, Now>) -> Vec<Size> {
        let outside = |s: &Size| match s {
            Size::Dynamic(v) => Size::Dynamic(raw(get(*v, now))),
            fixed => *fixed,
        };
        self.full.iter().copied().chain(own.iter().map(outside)).collect()
    }
    fn full_type(&self, own: Type) -> Result<Type> {
        let dtype = own.element().ok_or("has a region that computes no tensor")?.dtype()?;
        Ok(Type::tensor(self.m.b.ctx, dtype, &[self.dims.as_slice(), &own.dims()].concat()))
    }
}

/// Values from outside of the region are the same for all elements.
fn get(v: Value, now: &HashMap<Value, Now>) -> Now {
    now.get(&v).copied().unwrap_or(Now::Same(v))
}

fn raw(now: Now) -> Value {
    match now {
        Now::Same(v) | Now::Each(v) => v,
    }
}

fn unfit(op: Op) -> String {
    format!("has a region with {}, which cannot be done for all elements at once", op.name())
}
