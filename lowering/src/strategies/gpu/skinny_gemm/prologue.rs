//! The few rows of a skinny GEMM, where the kernel computes them: each CTA runs the nests in front of
//! the products, into shared memory.
use crate::{
    analysis::{Nest, NestPlan, Poly, Role, Stage},
    emit::{
        body::Scope,
        code::Code,
        loops::{FixedDims, decode},
        partials,
    },
    strategies::gpu::{
        common::{
            cooperative::{self, CooperativeRow},
            grid_stride::{ThreadItems, items},
            ptx::Ptx,
            threads::{self, ThreadGroup},
        },
        rows::emit::exchanges,
        skinny_gemm::VECTOR,
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;
use std::collections::BTreeSet;

/// Most accesses that a thread keeps in flight.
const UNROLL: i64 = 4;
/// Most bytes of an argument that are prefetched.
const PREFETCH: usize = 16 << 10;

/// The nests that compute the few rows, with what their threads exchange results through.
pub struct RowPrologue<'a> {
    scope: &'a Scope<'a>,
    plan: &'a NestPlan,
    threads: usize,
    nests: Vec<(&'a Nest, usize, Vec<Option<Value>>)>,
}

impl<'a> RowPrologue<'a> {
    /// Of the first `count` nests of a plan, in CTAs of `threads` threads; allocates what they need
    /// of shared memory besides intermediates.
    pub fn of(
        c: Code,
        scope: &'a Scope<'a>,
        plan: &'a NestPlan,
        count: usize,
        threads: usize,
    ) -> Result<RowPrologue<'a>> {
        let one = |nest: &'a Nest| {
            let groups = groups(nest, threads);
            let exchange = exchanges(c, scope, nest, threads / groups, groups)?;
            Ok((nest, groups, exchange))
        };
        let nests = plan.nests.iter().take(count).map(one).collect::<Result<_>>()?;
        Ok(RowPrologue { scope, plan, threads, nests })
    }

    /// Prefetches what the nests read to L2 while the kernel before this one ends: a norm's weights
    /// were last read a call ago. One thread of the grid does.
    pub fn prefetch(&self, c: Code) -> Result<()> {
        let stages = self.nests.iter().flat_map(|(n, ..)| n.all());
        let reads = stages.filter_map(|s| self.scope.kernel.stages.get(s)).flat_map(Stage::reads);
        let arguments: BTreeSet<usize> = reads.map(|a| a.buffer).collect();
        let mut each = |c: Code| -> Result<()> {
            for b in &arguments {
                let Some(buffer) = self.scope.kernel.buffers.get(*b) else { continue };
                let element = buffer.element.dtype()?;
                let bytes = Poly::product(&buffer.sizes).known().unwrap_or_default();
                let bytes = (bytes.max(0) as usize * element.byte_size()).min(PREFETCH) / 16 * 16;
                if matches!(buffer.role, Role::Input(_)) && bytes > 0 {
                    let start = c.index(0)?;
                    Ptx(c).prefetch_l2(self.scope.buffer(*b)?, start, element, bytes)?;
                }
            }
            Ok(())
        };
        let place = c.add(threads::block_id(c)?, threads::thread_id(c)?)?;
        let first = c.compare(CmpIPredicate::Eq, place, c.index(0)?)?;
        c.if_else(first, &mut each, None).map(drop)
    }

    /// Emits the nests. All threads of the CTA take part; all see the results behind it.
    pub fn emit(&self, c: Code) -> Result<()> {
        for (nest, groups, exchange) in &self.nests {
            match nest.reduction.contains(&true) && partials::combinable(self.scope, nest) {
                true => self.reduction(c, nest, *groups, exchange)?,
                false => self.elements(c, nest)?,
            }
            threads::barrier(c)?;
        }
        Ok(())
    }

    /// Each result of a nest that reduces: a group of threads for each of as many as there are.
    fn reduction(
        &self,
        c: Code,
        nest: &Nest,
        groups: usize,
        exchange: &[Option<Value>],
    ) -> Result<()> {
        let free = parallel(nest);
        let sizes = free
            .iter()
            .map(|d| self.scope.poly(c, &nest.extents[*d]))
            .collect::<Result<Vec<_>>>()?;
        let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
        let group = ThreadGroup::of(c, self.threads / groups, groups)?;
        group.for_each_row_of_cta(c, groups, total, &mut |c, group, row| {
            let mut fixed: FixedDims = vec![None; nest.extents.len()];
            free.iter().zip(decode(c, row, &sizes)?).for_each(|(d, i)| fixed[*d] = Some(i));
            let vector = vector(nest, group.size);
            let rounds = innermost(nest) / (group.size * vector) as i64;
            let row = CooperativeRow {
                scope: self.scope,
                plan: self.plan,
                group,
                max_vector: vector,
                unroll: rounds.clamp(1, UNROLL) as usize,
            };
            cooperative::reduce(c, &row, nest, &fixed, exchange)?;
            // The next row exchanges through the same memory.
            if group.size > WARP { threads::barrier(c) } else { Ok(()) }
        })
    }

    /// Each element of a nest: the threads take vectors in turn.
    fn elements(&self, c: Code, nest: &Nest) -> Result<()> {
        let share = ThreadItems {
            first: threads::thread_id(c)?,
            step: c.index(self.threads as i64)?,
            active: None,
            max_vector: vector(nest, self.threads),
            unroll: 1,
            loads_first: false,
        };
        items(c, self.scope, self.plan, nest, &vec![None; nest.extents.len()], &share)
    }
}

fn parallel(nest: &Nest) -> Vec<usize> {
    (0..nest.extents.len()).filter(|d| !nest.reduction[*d]).collect()
}

/// The groups of threads into which a CTA is divided: at most one for each result, and for each
/// warp.
fn groups(nest: &Nest, threads: usize) -> usize {
    let results =
        parallel(nest).iter().try_fold(1, |n: i64, d| n.checked_mul(nest.extents[*d].known()?));
    let most = results.unwrap_or(1).clamp(1, (threads / WARP) as i64);
    1 << most.ilog2()
}

fn innermost(nest: &Nest) -> i64 {
    nest.extents.last().and_then(Poly::known).unwrap_or(1)
}

/// Elements of a vector access, so that all threads have one.
fn vector(nest: &Nest, threads: usize) -> usize {
    let each = (innermost(nest) / threads as i64).clamp(1, VECTOR as i64);
    1 << each.ilog2()
}
