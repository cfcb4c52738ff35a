//! Zeros appended to the operands of a GEMM.
use super::operand::Stored;
use crate::kernels::frozen::STORED;
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, value::DType};
use std::collections::{HashMap, hash_map::Entry};

/// Elements to append.
pub(super) struct Padding {
    /// In K, to the left and to the right operand. If only one has rows of K, its rows are padded in
    /// memory alone: the product reads them without the zeros.
    pub(super) depth: [i64; 2],
    /// To the innermost dimension of the left and of the right operand, where that is not K.
    pub(super) rows: [i64; 2],
}

/// The padded values of a block, so that the gradients of both factors share one.
#[derive(Default)]
pub(in crate::kernels) struct Pads {
    padded: HashMap<(Value, Vec<i64>), Value>,
    zeros: HashMap<DType, Value>,
}

impl Pads {
    /// A value with zeros appended. Where only rows grow, the reshape of a value is one of the padded
    /// value.
    fn of(&mut self, b: &Builder, v: Value, high: Vec<i64>) -> Result<Value> {
        if let Some(known) = self.padded.get(&(v, high.clone())) {
            return Ok(*known);
        }
        let rows = high.split_last().filter(|(_, others)| others.iter().all(|n| *n == 0));
        let inner = v.def().and_then(Reshape::of).map(|o| o.input).filter(|x| {
            let (from, to) = (x.ty().dims(), v.ty().dims());
            from.last().is_some_and(|n| n.known().is_some() && Some(n) == to.last())
        });
        let made = match (rows, inner) {
            (Some((more, _)), Some(inner)) => {
                let mut below = vec![0; inner.ty().dims().len()];
                if let Some(last) = below.last_mut() {
                    *last = *more;
                }
                let mut sizes = b.sizes_of(v)?;
                if let Some(Size::Static(n)) = sizes.last_mut() {
                    *n += more;
                }
                let input = self.of(b, inner, below)?;
                b.add(&Reshape { input, sizes })?
            }
            _ => {
                let dtype = tensor_type(v.ty())?.dtype;
                let value = match self.zeros.entry(dtype) {
                    Entry::Occupied(zero) => *zero.get(),
                    Entry::Vacant(place) => *place.insert(b.splat(dtype, &[], 0.0)?),
                };
                let low = Size::all(&vec![0; high.len()]);
                b.add(&Pad { input: v, value, low, high: Size::all(&high) })?
            }
        };
        self.padded.insert((v, high), made);
        Ok(made)
    }
    /// A value whose rows are so many elements longer in memory: the first elements of a padded one.
    pub(in crate::kernels) fn longer_rows(
        &mut self,
        b: &Builder,
        v: Value,
        more: i64,
    ) -> Result<Value> {
        let mut high = vec![0; v.ty().dims().len()];
        if let Some(last) = high.last_mut() {
            *last = more;
        }
        let input = self.of(b, v, high)?;
        // The padded tensor: that of which a reshape is read is one already.
        let mut stored = input;
        while let Some(o) = stored.def().and_then(Reshape::of) {
            stored = o.input;
        }
        if let Some(op) = stored.def() {
            op.set_attr(STORED, Attr::unit(b.ctx));
        }
        let mut sizes = b.sizes_of(input)?;
        if let Some(Size::Static(n)) = sizes.last_mut() {
            *n -= more;
        }
        front(b, input, sizes)
    }
}

/// The product of the padded operands, without the results of the padding.
pub(super) fn padded(
    b: &Builder,
    o: &DotGeneral,
    more: &Padding,
    pads: &mut Pads,
) -> Result<Value> {
    let alone = more.depth.contains(&0);
    let mut pad = |v: Value, contract: &[i64], rows: i64, depth: i64| {
        let Stored { base, order } = Stored::of(v);
        let mut high = vec![0; order.len()];
        for (d, inner) in order.iter().enumerate() {
            let last = *inner + 1 == order.len() as i64;
            high[*inner as usize] = match contract.contains(&(d as i64)) {
                true => depth,
                false if last => rows,
                false => 0,
            };
        }
        if high.iter().all(|n| *n == 0) {
            return Ok(v);
        }
        // K is innermost in memory.
        let input = match depth > 0 && alone {
            true => pads.longer_rows(b, base, depth)?,
            false => pads.of(b, base, high)?,
        };
        match order.is_sorted() {
            true => Ok(input),
            false => b.add(&Transpose { input, permutation: order }),
        }
    };
    let lhs = pad(o.lhs, &o.lhs_contract, more.rows[0], more.depth[0])?;
    let rhs = pad(o.rhs, &o.rhs_contract, more.rows[1], more.depth[1])?;
    let whole = b.add(&DotGeneral { lhs, rhs, ..o.clone() })?;
    if more.rows == [0, 0] {
        return Ok(whole);
    }
    // Results have the batch, the free dimensions of the left operand, those of the right one.
    let mut sizes: Vec<Size> = b.sizes_of(whole)?;
    let mut at = o.lhs_batch.len();
    for (v, batch, contract, rows) in [
        (o.lhs, &o.lhs_batch, &o.lhs_contract, more.rows[0]),
        (o.rhs, &o.rhs_batch, &o.rhs_contract, more.rows[1]),
    ] {
        let last = Stored::of(v).innermost();
        let free = |d: &usize| ![batch, contract].iter().any(|all| all.contains(&(*d as i64)));
        for d in (0..v.ty().dims().len()).filter(free) {
            if let Some(Size::Static(n)) = sizes.get_mut(at).filter(|_| last == Some(d)) {
                *n -= rows;
            }
            at += 1;
        }
    }
    front(b, whole, sizes)
}

/// The first elements along each dimension.
fn front(b: &Builder, input: Value, sizes: Vec<Size>) -> Result<Value> {
    let (offsets, strides) = (Size::all(&vec![0; sizes.len()]), vec![1; sizes.len()]);
    b.add(&Slice { input, offsets, sizes, strides })
}
