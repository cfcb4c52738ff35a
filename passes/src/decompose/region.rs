//! Vectorises a region over 0-d values: elementwise ops become ops on full tensors, gathers get
//! full index tensors (as `jax.vmap`).
use super::tools::*;
use kiln_dialects::{ir::*, ops::*, sym::Dim, value::DType};
use std::collections::HashMap;

/// The batch shape, and the mapped values of the region so far.
pub(super) struct Batch<'a> {
    m: &'a Math<'a>,
    full: Vec<Size>,
    dims: Vec<Dim>,
    positions: Vec<Option<Value>>,
    /// Whether some elements' results are discarded (masked scores): their gather indices are
    /// clamped.
    pub clamp: bool,
}

/// The tensor that a value of the region maps to.
#[derive(Clone, Copy)]
enum Mapped {
    /// The same for all elements.
    Uniform(Value),
    /// One per element: the batch dimensions come before the value's own.
    PerElement(Value),
}

impl<'a> Batch<'a> {
    pub fn new(m: &'a Math<'a>, full: Vec<Size>) -> Batch<'a> {
        let dims = full.iter().map(|s| s.known().map_or(Dim::Unknown, Dim::Known)).collect();
        Batch { m, positions: vec![None; full.len()], dims, full, clamp: false }
    }
    /// The index along one axis, i64.
    pub fn position(&mut self, axis: usize) -> Result<Value> {
        if let Some(v) = self.positions[axis] {
            return Ok(v);
        }
        let v = self.m.iota(&self.full, axis)?;
        self.positions[axis] = Some(v);
        Ok(v)
    }

    /// The yielded value in the full shape. The block's first arguments map to `first`, the others
    /// to the indices.
    pub fn inline(&mut self, block: Block, first: &[Value]) -> Result<Value> {
        let args = block.args();
        let mut mapped: HashMap<Value, Mapped> =
            args.iter().copied().zip(first.iter().map(|v| Mapped::PerElement(*v))).collect();
        for (axis, arg) in
            args.into_iter().skip(first.len()).enumerate().filter(|(_, a)| !a.uses().is_empty())
        {
            mapped.insert(arg, Mapped::PerElement(self.position(axis)?));
        }
        for op in block.ops() {
            if op.kind() == Some(OpKind::Yield) {
                let v = op.operands().first().copied().ok_or("has a yield without operands")?;
                return self.in_full_shape(v, &mapped);
            }
            let same = op.operands().iter().all(|v| matches!(get(*v, &mapped), Mapped::Uniform(_)));
            let results = if same {
                self.copy(op, &mapped)?
            } else {
                vec![Mapped::PerElement(self.batched(op, &mapped)?)]
            };
            mapped.extend(op.results().into_iter().zip(results));
        }
        Err("has a region without a terminator".into())
    }

    /// Clones an op whose operands are the same for all elements.
    fn copy(&self, op: Op, mapped: &HashMap<Value, Mapped>) -> Result<Vec<Mapped>> {
        if !op.regions().is_empty() {
            return Err(not_vectorisable(op).into());
        }
        let operands: Vec<Value> =
            op.operands().iter().map(|v| value_of(get(*v, mapped))).collect();
        let types: Vec<Type> = op.results().iter().map(|v| v.ty()).collect();
        let attrs = op.attrs();
        let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        let b = self.m.b.at(op.loc());
        Ok(b.generic(&op.name(), &operands, &types, &attrs, &mut [])?
            .results()
            .into_iter()
            .map(Mapped::Uniform)
            .collect())
    }

    /// Vectorises an op with at least one operand that differs between elements.
    fn batched(&self, op: Op, mapped: &HashMap<Value, Mapped>) -> Result<Value> {
        let n = self.full.len() as i64;
        let b = self.m.b.at(op.loc());
        let moved = |dims: &[i64]| (0..n).chain(dims.iter().map(|d| d + n)).collect::<Vec<i64>>();
        match op.kind() {
            Some(kind) if kind.is_elementwise() => {
                let mut operands = op
                    .operands()
                    .iter()
                    .map(|v| self.in_full_shape(*v, mapped))
                    .collect::<Result<Vec<_>, _>>()?;
                if self.clamp
                    && matches!(kind, OpKind::Div | OpKind::Rem | OpKind::FloorDiv)
                    && dtype(operands[1])?.is_int()
                {
                    // A discarded element may divide by 0, which would be undefined for integers.
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
                    .gather(&o, mapped)
                    .map_err(|e| Error { message: format!("in its region: {}", e.message), ..e })?)
            }
            Some(OpKind::Reshape) => {
                let o = Reshape::of(op).ok_or_malformed(op)?;
                b.add(&Reshape {
                    input: self.in_full_shape(o.input, mapped)?,
                    sizes: self.sizes(&o.sizes, mapped),
                })
            }
            Some(OpKind::BroadcastInDim) => {
                let o = BroadcastInDim::of(op).ok_or_malformed(op)?;
                b.add(&BroadcastInDim {
                    input: self.in_full_shape(o.input, mapped)?,
                    dims: moved(&o.dims),
                    sizes: self.sizes(&o.sizes, mapped),
                })
            }
            Some(OpKind::Reduce) => {
                let o = Reduce::of(op).ok_or_malformed(op)?;
                let dims = moved(&o.dims).split_off(n as usize);
                b.add(&Reduce { input: self.in_full_shape(o.input, mapped)?, dims, ..o })
            }
            _ => Err(not_vectorisable(op).into()),
        }
    }

    fn gather(&self, o: &Gather, mapped: &HashMap<Value, Mapped>) -> Result<Value> {
        let m = self.m;
        let per_element = o.indices.iter().map(|i| rank(*i)).max().unwrap_or(0);
        if per_element > 0 {
            return Err(format!(
                "kiln.gather with indices of rank {per_element} cannot be vectorised over elements"
            )
            .into());
        }
        let input = get(o.input, mapped);
        let n = self.full.len() as i64;
        let shift = if matches!(input, Mapped::PerElement(_)) { n } else { 0 };
        let mut indices = vec![];
        for (i, axis) in o.indices.iter().zip(&o.dims) {
            let mut at = self.in_full_shape(*i, mapped)?;
            let size = m.size_of(value_of(input), (axis + shift) as usize)?;
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
        m.b.add(&Gather { input: value_of(input), indices, dims })
    }

    /// A value of the region, broadcast to the full shape.
    fn in_full_shape(&self, v: Value, mapped: &HashMap<Value, Mapped>) -> Result<Value> {
        match get(v, mapped) {
            Mapped::PerElement(v) => Ok(v),
            Mapped::Uniform(v) => {
                let n = self.full.len();
                let own = self.m.sizes_of(v)?;
                let dims: Vec<i64> = (n as i64..(n + own.len()) as i64).collect();
                self.m.broadcast(v, &dims, &[self.full.as_slice(), &own].concat())
            }
        }
    }
    fn sizes(&self, own: &[Size], mapped: &HashMap<Value, Mapped>) -> Vec<Size> {
        let outside = |s: &Size| match s {
            Size::Dynamic(v) => Size::Dynamic(value_of(get(*v, mapped))),
            fixed => *fixed,
        };
        self.full.iter().copied().chain(own.iter().map(outside)).collect()
    }
    fn full_type(&self, own: Type) -> Result<Type> {
        let dtype = own.element().ok_or("has a region value that is not a tensor")?.dtype()?;
        Ok(Type::tensor(self.m.b.ctx, dtype, &[self.dims.as_slice(), &own.dims()].concat()))
    }
}

/// Values defined outside the region are the same for all elements.
fn get(v: Value, mapped: &HashMap<Value, Mapped>) -> Mapped {
    mapped.get(&v).copied().unwrap_or(Mapped::Uniform(v))
}

fn value_of(mapped: Mapped) -> Value {
    match mapped {
        Mapped::Uniform(v) | Mapped::PerElement(v) => v,
    }
}

fn not_vectorisable(op: Op) -> String {
    format!("has a region with {}, which cannot be vectorised over elements", op.name())
}
