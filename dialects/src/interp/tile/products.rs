//! Products of tiles. They are computed when they start, and what they give may be read when a
//! `kiln.tile.mma_wait` has waited for them.
use super::{
    elements::{Elements, form},
    ring::Stage,
    state::{OpenProduct, Unit, Val},
};
use crate::{
    error::{OptionExt, Result},
    ir::{Node as _, Op, Value},
    ops::{TileMma, TileMmaWait},
    sym::Dim,
    value::DType,
};

/// A ring, and a stage of it.
type StageOfRing = (usize, Stage);

/// An f32 as wgmma reads it: without the bits that tf32 lacks.
fn truncated(x: f64) -> f64 {
    f64::from(f32::from_bits((x as f32).to_bits() & !0x1fff))
}

/// Rows and columns of a tile's type.
pub(super) fn extent(v: Value) -> Result<[usize; 2]> {
    let sizes = v.ty().dims();
    match sizes.as_slice() {
        [Dim::Known(n), Dim::Known(m)] => Ok([*n as usize, *m as usize]),
        [Dim::Known(n)] => Ok([*n as usize, 1]),
        _ => Err(format!("takes {}, which is no tile", v.ty()).into()),
    }
}

/// The columns of a tile as rows.
fn transposed(x: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
}

impl Unit<'_> {
    /// The elements of an operand and, if it is in shared memory, the stage that it is in.
    fn operand(&mut self, v: Value) -> Result<(Vec<f64>, Option<StageOfRing>)> {
        let [rows, columns] = extent(v)?;
        let (mut all, from) = match self.get(v)? {
            Val::Tile(ring, tile, stage) => {
                (self.ring_mut(ring)?.read(stage, tile)?, Some((ring, stage)))
            }
            _ => (self.elements(v)?.spread(rows * columns).numbers(), None),
        };
        if form(v.ty())?.0 == DType::F32 {
            all.iter_mut().for_each(|x| *x = truncated(*x));
        }
        Ok((all, from))
    }

    pub(super) fn mma(&mut self, op: Op) -> Result<Val> {
        let o = TileMma::of(op).ok_or_malformed(op)?;
        let ([rows, columns], (dtype, _)) = (extent(op.result(0))?, form(op.result(0).ty())?);
        let ((mut left, a), (mut right, b)) = (self.operand(o.lhs)?, self.operand(o.rhs)?);
        let depth = left.len() / rows.max(1);
        if depth == 0 || right.len() != depth * columns {
            return Err("multiplies tiles of other sizes".into());
        }
        if o.transposed_lhs {
            left = transposed(&left, [depth, rows]);
        }
        if !o.transposed {
            right = transposed(&right, [depth, columns]);
        }
        // Only a product may take what is under way.
        let init = match o.init.map(|v| self.get(v)).transpose()? {
            Some(Val::Product(_, e)) | Some(Val::Elements(e)) => Some(e.spread(rows * columns)),
            Some(_) => return Err("adds to what is no fragment".into()),
            None => None,
        };
        let init = init.as_ref().map(Elements::numbers);
        let mut sums = Vec::with_capacity(rows * columns);
        for (r, row) in left.chunks_exact(depth).enumerate() {
            for (c, column) in right.chunks_exact(depth).enumerate() {
                let sum: f64 = row.iter().zip(column).map(|(x, y)| x * y).sum();
                sums.push(init.as_ref().map_or(0.0, |init| init[r * columns + c]) + sum);
            }
        }
        let products = &mut self.role.products;
        let number = products.next;
        products.next += 1;
        let left = if a.is_none() { Some(o.lhs) } else { None };
        let stages = a.into_iter().chain(b).collect();
        products.open.push_back(OpenProduct { number, stages, left });
        Ok(Val::Product(number, Elements::of_numbers(dtype, sums)))
    }

    pub(super) fn mma_wait(&mut self, op: Op) -> Result<Vec<Val>> {
        let o = TileMmaWait::of(op).ok_or_malformed(op)?;
        while self.role.products.open.len() as i64 > o.pending.max(0) {
            let done = self.role.products.open.pop_front();
            let left = done.and_then(|p| p.left);
            if left.is_some_and(|v| !o.alive.contains(&v)) {
                return Err("ends a product whose left operand is not `alive` until then".into());
            }
        }
        let one = |v: &Value| match self.get(*v)? {
            Val::Product(number, _) if self.role.products.is_open(number) => {
                Err("takes the result of a product that is still under way".into())
            }
            Val::Product(_, e) | Val::Elements(e) => Ok(Val::Elements(e)),
            _ => Err("takes what has no elements".into()),
        };
        o.values.iter().map(one).collect()
    }
}
