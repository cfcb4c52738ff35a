//! Rows: a group of threads runs all nests for its row; intermediates are in shared memory.
use crate::{
    analysis::{LinearExpr, Nest, NestPlan, Poly, Role},
    emit::{
        body::Scope,
        code::Code,
        loops::{FixedDims, decode, reducing},
        partials,
    },
    strategies::gpu::common::shared,
    strategies::{
        gpu::common::{
            cooperative::{self, CooperativeRow},
            grid_stride::{ThreadItems, items},
            threads::{self, ThreadGroup},
        },
        gpu::rows::Params,
    },
    target::launch::WARP,
};
use kiln_dialects::ir::*;

/// Rows with fewer results than this reduce them one after the other, each by the whole group.
const ONE_BY_ONE: i64 = 8;

/// Emits these nests: with the plan's rows if they are dependent, else with each result as a row.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    nests: &[&Nest],
    params: &Params,
) -> Result<()> {
    let first = *nests.first().ok_or("does nothing")?;
    let rows: Vec<usize> = match plan.dependent {
        true => (0..plan.rows).collect(),
        false => (0..first.extents.len()).filter(|d| !first.reduction[*d]).collect(),
    };
    let (size, groups) = (params.row_threads, params.rows_per_cta);
    let group = ThreadGroup::of(c, size, groups)?;
    let exchange: Vec<_> =
        nests.iter().map(|n| exchanges(c, scope, n, size, groups)).collect::<Result<_>>()?;
    // Each group has its own slice of the scratch.
    let kernel = with_groups(scope, plan, group.number);
    let mut scope = Scope { kernel: &kernel, ..scope.clone() };
    scope.scalars.insert(group.number, group.number);
    let sizes: Vec<Value> =
        rows.iter().map(|d| scope.poly(c, &first.extents[*d])).collect::<Result<_>>()?;
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    group.for_each_row(c, groups, total, &mut |c, group, row| {
        let all = CooperativeRow {
            scope: &scope,
            plan,
            group,
            max_vector: params.vector,
            unroll: params.unroll,
        };
        let at = decode(c, row, &sizes)?;
        for (n, exchange) in nests.iter().zip(&exchange) {
            let mut fixed: FixedDims = vec![None; n.extents.len()];
            rows.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
            nest(c, &all, n, &fixed, exchange)?;
            threads::barrier(c)?;
        }
        Ok(())
    })
}

/// Shared memory through which warps exchange the partial results of each reduction of a nest; none
/// where a group is a warp.
pub fn exchanges(
    c: Code,
    scope: &Scope<'_>,
    nest: &Nest,
    size: usize,
    groups: usize,
) -> Result<Vec<Option<Value>>> {
    if !partials::combinable(scope, nest) {
        return Ok(vec![]);
    }
    let of = |o: &crate::analysis::Output| -> Result<Option<Value>> {
        let buffer = scope.kernel.buffers.get(o.access.buffer).filter(|_| size > WARP);
        buffer.map(|b| shared(c, b.element, (size / WARP * groups) as i64)).transpose()
    };
    reducing(scope, nest).map(of).collect()
}

/// Emits one nest of a row.
fn nest(
    c: Code,
    row: &CooperativeRow<'_>,
    nest: &Nest,
    fixed: &FixedDims,
    exchange: &[Option<Value>],
) -> Result<()> {
    let CooperativeRow { scope, plan, group, max_vector: most, unroll: pieces } = row;
    let free: Vec<usize> =
        (0..nest.extents.len()).filter(|d| !nest.reduction[*d] && fixed[*d].is_none()).collect();
    let results = Poly::product(free.iter().map(|d| &nest.extents[*d])).known();
    if !partials::combinable(scope, nest) || results.is_none_or(|n| n >= ONE_BY_ONE) {
        let share = ThreadItems {
            first: group.thread,
            step: c.index(group.size as i64)?,
            active: group.active,
            max_vector: *most,
            unroll: *pieces,
            loads_first: false,
        };
        return items(c, scope, plan, nest, fixed, &share);
    }
    if free.is_empty() {
        return cooperative::reduce(c, row, nest, fixed, exchange);
    }
    let sizes: Vec<Value> =
        free.iter().map(|d| scope.poly(c, &nest.extents[*d])).collect::<Result<_>>()?;
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    c.for_loop(c.index(0)?, total, 1, &[], &mut |c, i, _| {
        let mut fixed = fixed.clone();
        free.iter().zip(decode(c, i, &sizes)?).for_each(|(d, i)| fixed[*d] = Some(i));
        cooperative::reduce(c, row, nest, &fixed, exchange)?;
        threads::barrier(c)?;
        Ok(vec![])
    })?;
    Ok(())
}

/// The kernel with the scratch of group `number`: offsets its temporaries by that many times their
/// span.
fn with_groups(scope: &Scope<'_>, plan: &NestPlan, number: Value) -> crate::analysis::Kernel {
    let mut k = scope.kernel.clone();
    let span = |b: usize| (k.span(b, 0).unwrap_or(0) + 15) / 16 * 16;
    let temporary = |b: usize| k.buffers[b].role == Role::Temporary && !plan.forwarded[b];
    let before: Vec<Option<LinearExpr>> = (0..k.buffers.len())
        .map(|b| {
            temporary(b)
                .then(|| LinearExpr::fixed(Poly::symbol(number).times(&Poly::number(span(b)))))
        })
        .collect();
    if only(number) {
        return k;
    }
    for s in &mut k.stages {
        for a in s.all_accesses() {
            if let Some(more) = before.get(a.buffer).and_then(Option::as_ref) {
                a.at = a.at.plus(more);
            }
        }
    }
    for view in k.views.values_mut() {
        if let Some(more) = before.get(view.buffer).and_then(Option::as_ref) {
            view.offset = view.offset.plus(&more.constant);
        }
    }
    k
}

/// Whether the CTA has one group.
fn only(number: Value) -> bool {
    crate::emit::code::constant_value(number) == Some(0)
}
