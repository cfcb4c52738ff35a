//! Accumulator fragments as the tensor-core instructions leave them in a warp's registers: of a 16
//! x 8 block, a thread holds 2 contiguous elements of a row and 2 of the row 8 below.
use crate::{
    analysis::{Access, Kernel, Nest, NestPlan, Output, Poly},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::decode,
    },
    strategies::gpu::{
        common::{
            accumulators,
            ptx::Ptx,
            vector_width::{narrow_width, width},
        },
        wgmma_gemm::TensorCoreProduct,
    },
};
use kiln_dialects::ir::*;

/// A matrix product in its kernel, with its CTA tile.
pub struct ProductResults<'a> {
    pub scope: &'a Scope<'a>,
    pub plan: &'a NestPlan,
    pub nest: &'a Nest,
    pub product: &'a TensorCoreProduct,
    /// Outputs of its stages, in the order of the right operands.
    pub outs: Vec<&'a Output>,
    /// Rows and columns of the CTA tile.
    pub tile: [usize; 2],
}

/// A warp's fragment of a tile.
pub struct WarpFragment<'a> {
    pub batch: &'a [Value],
    /// The thread's first row and column, of index type.
    pub at: [Value; 2],
    /// Distance between the blocks of 16 rows.
    pub row_stride: usize,
    /// The thread's accumulators by block of 16 rows and by right operand: four per 8 columns.
    pub values: &'a [Vec<&'a [Value]>],
}

impl ProductResults<'_> {
    /// Row count (M).
    pub fn rows(&self, c: Code) -> Result<Value> {
        self.count(c, &self.product.roles.rows)
    }
    fn count(&self, c: Code, dims: &[usize]) -> Result<Value> {
        let size = |d: &usize| self.scope.poly(c, &self.nest.extents[*d]);
        match dims {
            [one] => size(one),
            _ => dims.iter().try_fold(c.index(1)?, |all, d| c.mul(all, size(d)?)),
        }
    }
    /// Column count (N).
    pub fn columns(&self, c: Code) -> Result<Value> {
        self.count(c, &self.product.roles.columns)
    }
    /// Trip count of the K loop, one at least.
    pub fn steps(&self, c: Code) -> Result<Value> {
        let depth = Poly::product(self.product.roles.k.iter().map(|d| &self.nest.extents[*d]));
        match depth.known() {
            Some(_) => c.index(self.product.steps(self.nest)),
            None => {
                c.ceil_div(self.scope.poly(c, &depth)?, c.index(self.product.k_per_stage() as i64)?)
            }
        }
    }
    fn multiple(&self, dims: &[usize], of: usize) -> bool {
        let size = Poly::product(dims.iter().filter_map(|d| self.nest.extents.get(*d)));
        size.multiple_of(of as i64)
    }
    /// Whether M, and N, are a multiple of the tile's.
    pub fn is_full(&self) -> [bool; 2] {
        let roles = &self.product.roles;
        [self.multiple(&roles.rows, self.tile[0]), self.multiple(&roles.columns, self.tile[1])]
    }
    /// The kernel without the product's operands, whose accesses do not limit the vector width, since
    /// they go through shared memory; and the innermost columns.
    fn later_stages(&self) -> (Kernel, usize) {
        let mut kernel = self.scope.kernel.clone();
        self.product.stages.iter().for_each(|s| kernel.stages[*s].inputs.clear());
        (kernel, self.product.roles.columns.last().copied().unwrap_or_default())
    }
    /// How many of a thread's two contiguous elements one op takes.
    pub fn lanes(&self) -> Lanes {
        let (kernel, over) = self.later_stages();
        let pairs = self.multiple(&[over], 2) && width(&kernel, self.plan, self.nest, over) >= 2;
        Lanes { count: if pairs { 2 } else { 1 }, mask: None }
    }
    /// How many elements are aligned and contiguous along the columns, if later stages read elements
    /// of 16 bits there, and these are more than the lanes take.
    pub fn run(&self) -> Option<i64> {
        let (kernel, over) = self.later_stages();
        let halves = |a: &Access| {
            let forwarded = self.plan.forwarded.get(a.buffer).copied().unwrap_or(false);
            let element = kernel.buffers.get(a.buffer).and_then(|b| b.element.dtype().ok());
            !forwarded
                && element.is_some_and(|d| d.byte_size() == 2)
                && a.at.coefficient(over).known() == Some(1)
        };
        let stages = self.nest.all().filter_map(|s| kernel.stages.get(s));
        let width = narrow_width(&kernel, self.plan, self.nest, over, None);
        (width > self.lanes().count
            && self.multiple(&[over], width)
            && stages.flat_map(|s| s.reads()).any(halves))
        .then_some(width as i64)
    }
    /// Loop dimensions of an element.
    pub fn dims(
        &self,
        c: Code,
        batch: &[Value],
        row: Value,
        column: LaneValue,
    ) -> Result<Vec<LaneValue>> {
        let roles = &self.product.roles;
        let mut dims = vec![LaneValue::Uniform(c.index(0)?); self.nest.extents.len()];
        roles.batch.iter().zip(batch).for_each(|(d, i)| dims[*d] = LaneValue::Uniform(*i));
        let along = |all: &[usize], at: Value| -> Result<Vec<Value>> {
            let sizes: Vec<Value> = all
                .iter()
                .map(|d| self.scope.poly(c, &self.nest.extents[*d]))
                .collect::<Result<_>>()?;
            decode(c, at, &sizes)
        };
        let rows = along(&roles.rows, row)?;
        roles.rows.iter().zip(rows).for_each(|(d, i)| dims[*d] = LaneValue::Uniform(i));
        if let [one] = roles.columns[..] {
            dims[one] = column;
            return Ok(dims);
        }
        // The lanes differ in the last dimension alone.
        let (first, lanes) = match column {
            LaneValue::Strided(first, step) => (first, Some(step)),
            LaneValue::Uniform(first) => (first, None),
            _ => return Err("has columns that do not follow each other".into()),
        };
        for (d, i) in roles.columns.iter().zip(along(&roles.columns, first)?) {
            let lanes = lanes.filter(|_| Some(d) == roles.columns.last());
            dims[*d] = lanes.map_or(LaneValue::Uniform(i), |step| LaneValue::Strided(i, step));
        }
        Ok(dims)
    }
    /// Contiguous accumulators of each right operand: a scalar, or a vector of the lanes. Returns
    /// what the stages computed of them.
    pub fn element(
        &self,
        c: Code,
        scope: &Scope<'_>,
        lanes: Lanes,
        batch: &[Value],
        [row, column]: [Value; 2],
        sums: &[Value],
    ) -> Result<ForwardedElements> {
        let column = if lanes.count > 1 {
            LaneValue::Strided(column, 1)
        } else {
            LaneValue::Uniform(column)
        };
        let dims = self.dims(c, batch, row, column)?;
        let lane = |v: &Value| match lanes.count {
            1 => LaneValue::Uniform(*v),
            _ => LaneValue::Vector(*v),
        };
        let all: Vec<(&Output, LaneValue)> =
            self.outs.iter().copied().zip(sums.iter().map(lane)).collect();
        accumulators::finish(c, scope, self.nest, lanes, &dims, &all)
    }
    /// The same where the accumulators are single values.
    fn store_element(
        &self,
        c: Code,
        scope: &Scope<'_>,
        lanes: Lanes,
        batch: &[Value],
        at: [Value; 2],
        sums: &[&[Value]],
    ) -> Result<()> {
        let together = |all: &&[Value]| match all {
            [one] => Ok(*one),
            _ => {
                let ty = Type::vector(all[0].ty(), all.len());
                vector::from_elements(c, all, ty)
            }
        };
        let sums = sums.iter().map(together).collect::<Result<Vec<_>>>()?;
        self.element(c, scope, lanes, batch, at, &sums).map(drop)
    }
    /// Runs the epilogue stages on the accumulators; each thread stores its own results.
    pub fn store(&self, c: Code, scope: &Scope<'_>, part: &WarpFragment<'_>) -> Result<()> {
        let (rows, columns, lanes, [whole_rows, whole_columns]) =
            (self.rows(c)?, self.columns(c)?, self.lanes(), self.is_full());
        let when =
            |c: Code, whole: bool, i: Value, n: Value, then: &mut dyn FnMut(Code) -> Result<()>| {
                if whole { then(c) } else { c.if_else(c.less_than(i, n)?, then, None) }
            };
        for (b, sums) in part.values.iter().enumerate() {
            let eights = sums.first().map_or(0, |s| s.len() / 4);
            for half in 0..2 {
                let row = c.add(part.at[0], c.index((part.row_stride * b + 8 * half) as i64)?)?;
                when(c, whole_rows, row, rows, &mut |c| {
                    for eight in 0..eights {
                        for e in (0..2).step_by(lanes.count) {
                            let own: Vec<&[Value]> = sums
                                .iter()
                                .map(|s| &s[4 * eight + 2 * half + e..][..lanes.count])
                                .collect();
                            let column = c.add(part.at[1], c.index((8 * eight + e) as i64)?)?;
                            when(c, whole_columns, column, columns, &mut |c| {
                                let at = [row, column];
                                self.store_element(c, scope, lanes, part.batch, at, &own)
                            })?;
                        }
                    }
                    Ok(())
                })?;
            }
        }
        // The next tile's `mma` needs a converged warp.
        if whole_rows && whole_columns { Ok(()) } else { Ptx(c).warp_barrier() }
    }
}
