//! Upstream's ops in tile programs, but for control flow: memory, indices, vectors.
use super::{
    elements::{Elements, form},
    elementwise, expressions,
    memory::View,
    state::{Unit, Val},
};
use crate::{
    error::{OptionExt, Result},
    ir::{Attr, Op, OpType as _, Value, affine, gpu, llvm, memref, vector},
    value::{DType, Data},
};

/// MLIR's mark of a size that is an operand.
const DYNAMIC: i64 = i64::MIN;

impl Unit<'_> {
    /// The results of an op.
    ///
    /// # Errors
    /// The op is none of tile programs, or its operands are not possible.
    pub(super) fn upstream(&mut self, op: Op) -> Result<Vec<Val>> {
        let operands = op.operands();
        let one = |e: Elements| Ok(vec![Val::Elements(e)]);
        let name = op.name();
        match name.as_str() {
            memref::Load::NAME | vector::Load::NAME => {
                let (memory, at) = operands.split_first().ok_or_malformed(op)?;
                one(self.load(op, *memory, at, None)?)
            }
            vector::MaskedLoad::NAME => {
                let Some(([memory, at @ ..], [mask, _])) = operands.split_last_chunk() else {
                    return None.ok_or_malformed(op);
                };
                one(self.load(op, *memory, at, Some(*mask))?)
            }
            memref::Store::NAME | vector::Store::NAME => {
                let [value, memory, at @ ..] = operands.as_slice() else {
                    return None.ok_or_malformed(op);
                };
                self.store_at(*value, *memory, at, None)
            }
            vector::MaskedStore::NAME => {
                let Some(([memory, at @ ..], [mask, value])) = operands.split_last_chunk() else {
                    return None.ok_or_malformed(op);
                };
                self.store_at(*value, *memory, at, Some(*mask))
            }
            memref::Dim::NAME => {
                let (sizes, axis) = (self.memory(op.operand(0))?.sizes, op.operand(1));
                let axis = usize::try_from(self.number(axis)?).ok();
                let size = axis.and_then(|d| sizes.get(d).copied());
                one(Elements::index(size.ok_or("has no such dimension")?))
            }
            memref::Cast::NAME => Ok(vec![self.get(op.operand(0))?]),
            memref::ReinterpretCast::NAME => Ok(vec![Val::Memory(self.reinterpreted(op)?)]),
            memref::Prefetch::NAME => Ok(vec![]),
            affine::AffineApply::NAME | affine::AffineMin::NAME | affine::AffineMax::NAME => {
                one(self.affine(op)?)
            }
            vector::Broadcast::NAME => {
                let (x, (dtype, width)) = (self.elements(op.operand(0))?, form(op.result(0).ty())?);
                let n = x.len() / x.width * width;
                let of = |i: usize| if x.width == 1 { i / width } else { i };
                one(if x.len() == 1 { x.spread(n) } else { x.picked(n, &of) }.like(dtype, width))
            }
            vector::FromElements::NAME => {
                let (all, (dtype, width)) =
                    (self.all_elements(&operands)?, form(op.result(0).ty())?);
                let n = all.iter().map(Elements::len).max().ok_or_malformed(op)?;
                let data = match dtype.is_float() {
                    true => Data::F(interleaved(&all, n, &Elements::floats)?),
                    false => Data::I(interleaved(&all, n, &Elements::ints)?),
                };
                one(Elements::exact(dtype, width, data))
            }
            vector::Extract::NAME => {
                let x = self.elements(op.operand(0))?;
                let at = op.dyn_cast::<vector::Extract>().and_then(|o| o.static_position());
                let at = at.unwrap_or_default();
                let [i] = at.as_slice() else { return Err(elementwise::unknown()) };
                let i = usize::try_from(*i).ok().filter(|i| *i < x.width);
                let (i, width) = (i.ok_or_else(elementwise::unknown)?, x.width);
                // Elements whose vectors are equal stay one.
                let n = x.len() / width;
                let picked = x.picked(n, &|lane| lane * width + i);
                one(picked.like(x.dtype, 1))
            }
            gpu::BlockId::NAME | gpu::GridDim::NAME => {
                let of_block = op.dyn_cast::<gpu::BlockId>().and_then(|o| o.dimension());
                let of_grid = op.dyn_cast::<gpu::GridDim>().and_then(|o| o.dimension());
                if of_block.or(of_grid) != Some(gpu::Dimension::X) {
                    return Err("is not of the dimension x, which alone a grid has".into());
                }
                let i = if of_grid.is_some() { self.global.grid } else { self.shared.block };
                one(Elements::index(i))
            }
            // The opaque move, which hides a constant from LLVM.
            llvm::InlineAsm::NAME if op.operand_count() == 1 => {
                let text = op.dyn_cast::<llvm::InlineAsm>().and_then(|o| o.asm_string());
                match text.as_deref() == Some("mov.b32 $0, $1;") {
                    true => Ok(vec![self.get(op.operand(0))?]),
                    false => Err(elementwise::unknown()),
                }
            }
            _ if op.result_count() == 1 => {
                let operands = self.all_elements(&operands)?;
                one(elementwise::apply(op, &operands, self.role.active.as_deref())?)
            }
            _ => Err(elementwise::unknown()),
        }
    }

    fn affine(&self, op: Op) -> Result<Elements> {
        let (dims, exprs) = op.attr("map").and_then(Attr::as_affine_map).ok_or_malformed(op)?;
        let operands = self.all_elements(&op.operands())?;
        let (dims, symbols) = operands.split_at_checked(dims).ok_or_malformed(op)?;
        let all: Vec<Elements> =
            exprs.iter().map(|e| expressions::evaluate(e, dims, symbols)).collect::<Result<_>>()?;
        let n = all.iter().map(Elements::len).max().ok_or_malformed(op)?;
        let rows: Vec<&[i64]> = all.iter().map(Elements::ints).collect::<Result<_>>()?;
        let of = |i: usize| rows.iter().map(move |r| r[i % r.len()]);
        let pick = |i: usize| if op.isa::<affine::AffineMax>() { of(i).max() } else { of(i).min() };
        Ok(Elements::indices((0..n).map(pick).collect::<Option<_>>().ok_or_malformed(op)?))
    }

    fn reinterpreted(&self, op: Op) -> Result<View> {
        let operands = op.operands();
        let (from, rest) = operands.split_first().ok_or_malformed(op)?;
        let mut rest = self.numbers(rest)?.into_iter();
        let mut numbers = |name: &str| -> Result<Vec<i64>> {
            let stated = op.attr(name).and_then(Attr::as_i64s).ok_or_malformed(op)?;
            let one = |n: i64| if n == DYNAMIC { rest.next() } else { Some(n) };
            stated.into_iter().map(one).collect::<Option<_>>().ok_or_malformed(op)
        };
        let offset = numbers("static_offsets")?;
        let (sizes, strides) = (numbers("static_sizes")?, numbers("static_strides")?);
        Ok(self.memory(*from)?.cast(*offset.first().ok_or_malformed(op)?, sizes, strides))
    }

    /// The places of elements, of vectors of so many, in a buffer. None: nothing accesses it.
    fn places(
        &self,
        view: &View,
        at: &[Elements],
        (count, width): (usize, usize),
        mask: Option<&Elements>,
    ) -> Result<Vec<Option<usize>>> {
        let at: Vec<&[i64]> = at.iter().map(Elements::ints).collect::<Result<_>>()?;
        let mask = mask.map(Elements::ints).transpose()?;
        let mut places = Vec::with_capacity(count * width);
        for lane in 0..count {
            // What is the same at all positions is accessed once, if any of them runs.
            let own = |a: &[bool]| if count == 1 { a.contains(&true) } else { a[lane % a.len()] };
            let runs = self.role.active.as_deref().is_none_or(own);
            for e in 0..width {
                let chosen = mask.is_none_or(|m| m[(lane * width + e) % m.len()] != 0);
                if !runs || !chosen {
                    places.push(None);
                    continue;
                }
                let mut index: Vec<i64> = at.iter().map(|i| i[lane % i.len()]).collect();
                if let Some(last) = index.last_mut() {
                    *last += e as i64;
                }
                places.push(Some(view.place(&index)?));
            }
        }
        Ok(places)
    }
    fn load(
        &mut self,
        op: Op,
        memory: Value,
        at: &[Value],
        mask: Option<Value>,
    ) -> Result<Elements> {
        let (view, at) = (self.memory(memory)?, self.all_elements(at)?);
        let mask = mask.map(|m| self.elements(m)).transpose()?;
        let (dtype, width) = form(op.result(0).ty())?;
        let lanes = at.iter().map(Elements::len).max().unwrap_or(1);
        let lanes = lanes.max(mask.as_ref().map_or(1, |m| m.len() / m.width));
        let places = self.places(&view, &at, (lanes, width), mask.as_ref())?;
        Ok(Elements::exact(dtype, width, self.global.memory.read(&view, &places)?))
    }
    fn store_at(
        &mut self,
        value: Value,
        memory: Value,
        at: &[Value],
        mask: Option<Value>,
    ) -> Result<Vec<Val>> {
        let (view, at, value) =
            (self.memory(memory)?, self.all_elements(at)?, self.elements(value)?);
        let mask = mask.map(|m| self.elements(m)).transpose()?;
        let width = value.width;
        let lanes = at.iter().map(Elements::len).max().unwrap_or(1).max(value.len() / width);
        let lanes = lanes.max(mask.as_ref().map_or(1, |m| m.len() / m.width));
        let places = self.places(&view, &at, (lanes, width), mask.as_ref())?;
        self.global.memory.write(&view, &places, value.data())?;
        Ok(vec![])
    }
    /// Writes elements, each at its element of a flat buffer, where `keep` says so.
    pub(super) fn scatter(
        &mut self,
        view: &View,
        at: &[i64],
        values: &Elements,
        keep: &dyn Fn(usize) -> bool,
    ) -> Result<()> {
        let place = |(i, at): (usize, &i64)| {
            if keep(i) { view.place(&[*at]).map(Some) } else { Ok(None) }
        };
        let places: Vec<Option<usize>> = at.iter().enumerate().map(place).collect::<Result<_>>()?;
        self.global.memory.write(view, &places, values.data())
    }
    /// Elements of a flat buffer.
    pub(super) fn gather(&self, view: &View, at: &[i64]) -> Result<Elements> {
        let places: Vec<Option<usize>> =
            at.iter().map(|i| view.place(&[*i]).map(Some)).collect::<Result<_>>()?;
        let data = self.global.memory.read(view, &places)?;
        Ok(Elements::exact(view.dtype, 1, data))
    }
}

/// `n` vectors of one element each of some values.
fn interleaved<T: Copy>(
    all: &[Elements],
    n: usize,
    of: &dyn Fn(&Elements) -> Result<&[T]>,
) -> Result<Vec<T>> {
    let parts: Vec<&[T]> = all.iter().map(of).collect::<Result<_>>()?;
    Ok((0..n).flat_map(|i| parts.iter().map(move |p| p[i % p.len()])).collect())
}

/// A bool for each element.
pub(super) fn bools(condition: &Elements) -> Result<Vec<bool>> {
    match condition.dtype {
        DType::I1 => Ok(condition.ints()?.iter().map(|c| *c != 0).collect()),
        _ => Err("has a condition that is no i1".into()),
    }
}
