//! Cooperative reduction by a group of threads: partial results per thread, then warp shuffles.
use crate::{
    analysis::{Nest, NestPlan},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::{FixedDims, Loops, decode},
        partials,
    },
    strategies::gpu::common::{
        threads::ThreadGroup,
        vector_width::{fast_dim, width},
    },
};
use kiln_dialects::ir::*;

/// What all nests of a row share.
pub struct CooperativeRow<'a> {
    /// Scope of the emitted code.
    pub scope: &'a Scope<'a>,
    /// The kernel's nests.
    pub plan: &'a NestPlan,
    /// The thread group.
    pub group: ThreadGroup,
    /// Most elements per vector access.
    pub max_vector: usize,
    /// Accesses that a thread keeps in flight.
    pub unroll: usize,
}

/// Reduces all reduction dimensions of a nest whose parallel dimensions are fixed; the group's
/// first thread then runs the stages that follow on the results. `exchange`: shared memory for each
/// output.
pub fn reduce(
    c: Code,
    row: &CooperativeRow<'_>,
    nest: &Nest,
    fixed: &FixedDims,
    exchange: &[Option<Value>],
) -> Result<()> {
    let CooperativeRow { scope, plan, group, max_vector: most, unroll: pieces } = row;
    let depth: Vec<usize> = (0..nest.extents.len()).filter(|d| nest.reduction[*d]).collect();
    let fast = fast_dim(scope.kernel, plan, nest, &depth).ok_or("has nothing to reduce")?;
    let mut lanes = width(scope.kernel, plan, nest, fast).min((*most).max(1));
    while lanes > 1 && !nest.extents[fast].multiple_of(lanes as i64) {
        lanes /= 2;
    }
    let outer: Vec<usize> = depth.into_iter().filter(|d| *d != fast).collect();
    let wide = c.index(lanes as i64)?;
    let mut sizes: Vec<Value> =
        outer.iter().map(|d| scope.poly(c, &nest.extents[*d])).collect::<Result<_>>()?;
    sizes.push(c.div(scope.poly(c, &nest.extents[fast])?, wide)?);
    let mut total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    if let Some(active) = group.active {
        total = c.select(active, total, c.index(0)?)?;
    }
    let loops = Loops { scope, nest, vector: Some(fast), lanes, unroll: 1 };
    let each = Lanes { count: lanes, mask: None };
    let running = partials::identities(c, scope, nest, lanes)?;
    let step = c.index(group.size as i64)?;
    let parts =
        c.for_unrolled(group.thread, total, step, *pieces, &running, &mut |c, i, running| {
            let mut fixed = fixed.clone();
            let at = decode(c, i, &sizes)?;
            outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
            let start = c.mul(*at.last().ok_or("has no loops")?, wide)?;
            let dims = loops.dims(c, &fixed, Some(loops.lane(c, start, 0)?))?;
            let mut running = running.to_vec();
            scope.iteration(
                c,
                &nest.stages,
                &dims,
                each,
                &mut running,
                &mut ForwardedElements::new(),
            )?;
            Ok(running)
        })?;
    let dims = loops.dims(c, fixed, None)?;
    let ending = FinalReduction {
        scope,
        group: *group,
        lanes,
        dims: &dims,
        forwarded: &ForwardedElements::new(),
    };
    let results = ending.results(c, nest, &parts, exchange)?;
    let one = Lanes { count: 1, mask: None };
    match group.elected(c)? {
        Some(elected) => c.if_else(elected, &mut |c| loops.finish(c, &dims, one, &results), None),
        None => loops.finish(c, &dims, one, &results),
    }
}

/// How per-thread partial results become final values.
pub struct FinalReduction<'a> {
    /// Scope of the emitted code.
    pub scope: &'a Scope<'a>,
    /// The thread group.
    pub group: ThreadGroup,
    /// Lanes of a partial result.
    pub lanes: usize,
    /// Loop dimensions of the results.
    pub dims: &'a [LaneValue],
    /// Elements that are already in registers.
    pub forwarded: &'a ForwardedElements,
}

impl FinalReduction<'_> {
    /// Final values of all reductions of a nest, the same in all threads of the group. `memory`:
    /// for each value one shared-memory slot per warp of the CTA.
    pub fn results(
        &self,
        c: Code,
        nest: &Nest,
        parts: &[Value],
        memory: &[Option<Value>],
    ) -> Result<Vec<Value>> {
        let mine = partials::reduce_lanes(c, self.scope, nest, self.lanes, parts)?;
        let two = |a: &[Value], b: &[Value]| partials::combined(c, self.scope, nest, 1, a, b);
        let values = self.group.all_reduce(c, &mine, memory, &two)?;
        partials::combine_initial(c, self.scope, nest, self.dims, 1, &values, self.forwarded)
    }
}
