//! Code of column reductions. Neighbouring threads take neighbouring (contiguous) columns, several
//! each. Threads along K share a column and combine their partial results through shared memory by
//! a tree reduction.
use crate::{
    analysis::{Nest, NestPlan, Output},
    emit::{
        body::{ForwardedElements, Scope},
        code::Code,
        lanes::Lanes,
        loops::{FixedDims, Loops, decode, reducing},
        partials as partial,
    },
    strategies::gpu::common::{exchange, shared},
    strategies::{
        gpu::column_reduction::Params,
        gpu::common::{
            threads,
            vector_width::{fast_dim, narrow_width},
        },
    },
};
use kiln_dialects::ir::*;

/// One nest.
pub fn emit(
    c: Code,
    scope: &Scope<'_>,
    plan: &NestPlan,
    nest: &Nest,
    params: &Params,
) -> Result<()> {
    if !partial::combinable(scope, nest) {
        return Err("reduces no columns whose partial results combine".into());
    }
    let (columns, parts) = (params.columns, params.k_threads);
    let (free, depth): (Vec<usize>, Vec<usize>) =
        (0..nest.extents.len()).partition(|d| !nest.reduction[*d]);
    let fast = fast_dim(scope.kernel, plan, nest, &free)
        .ok_or("has one result, which has no neighbours")?;
    let mut lanes = narrow_width(scope.kernel, plan, nest, fast, None).min(params.vector);
    while lanes > 1 && !nest.extents[fast].multiple_of(lanes as i64) {
        lanes /= 2;
    }
    let each = Lanes { count: lanes, mask: None };
    let loops = Loops { scope, nest, vector: Some(fast), lanes, unroll: 1 };
    let (wide, outer): (Value, Vec<usize>) =
        (c.index(lanes as i64)?, free.into_iter().filter(|d| *d != fast).collect());
    let size = |d: &usize| scope.poly(c, &nest.extents[*d]);
    let mut sizes: Vec<Value> = outer.iter().map(size).collect::<Result<_>>()?;
    sizes.push(c.div(size(&fast)?, wide)?);
    let k_sizes: Vec<Value> = depth.iter().map(size).collect::<Result<_>>()?;
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    let all = k_sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;

    let (across, thread) = (c.index(columns as i64)?, threads::thread_id(c)?);
    let (column, part) = (c.rem(thread, across)?, c.div(thread, across)?);
    let place = c.mul(thread, wide)?;
    let memory = |o: &Output| {
        shared(
            c,
            scope.kernel.buffers.get(o.access.buffer).ok_or("has no buffer")?.element,
            (columns * parts * lanes) as i64,
        )
    };
    let memory: Vec<Value> =
        if parts > 1 { reducing(scope, nest).map(memory).collect::<Result<_>>()? } else { vec![] };
    threads::for_each_tile_of(c, across, total, &mut |c, base, _| {
        let item = c.add(base, column)?;
        let inside = c.less_than(item, total)?;
        let at = decode(c, c.select(inside, item, base)?, &sizes)?;
        let mut fixed: FixedDims = vec![None; nest.extents.len()];
        outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
        let first = c.mul(*at.last().ok_or("has no loops")?, wide)?;
        let lane = loops.lane(c, first, 0)?;
        let running = partial::identities(c, scope, nest, lanes)?;
        let mut parts_of = c.for_unrolled(
            part,
            all,
            c.index(parts as i64)?,
            params.unroll,
            &running,
            &mut |c, i, running| {
                let mut fixed = fixed.clone();
                depth.iter().zip(decode(c, i, &k_sizes)?).for_each(|(d, i)| fixed[*d] = Some(i));
                let dims = loops.dims(c, &fixed, Some(lane))?;
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
            },
        )?;
        let mut left = parts;
        while left > 1 {
            left /= 2;
            let keep = |c: Code, from: i64, to: i64, values: &[Value]| -> Result<()> {
                let mine = c
                    .all_of(&[
                        c.compare(CmpIPredicate::Uge, part, c.index(from)?)?,
                        c.less_than(part, c.index(to)?)?,
                    ])?
                    .ok_or("has no threads")?;
                let store = |c: Code, (v, m): (&Value, &Value)| {
                    exchange(c, *m, place, Some(*v), v.ty()).map(drop)
                };
                c.if_else(
                    mine,
                    &mut |c| values.iter().zip(&memory).try_for_each(|pair| store(c, pair)),
                    None,
                )
            };
            // One level of the tree: the upper half stores its partial results, the lower half
            // loads them.
            keep(c, left as i64, 2 * left as i64, &parts_of)?;
            threads::barrier(c)?;
            let behind = c.add(place, c.index((left * columns * lanes) as i64)?)?;
            let takes = c.less_than(part, c.index(left as i64)?)?;
            let from = c.select(takes, behind, place)?;
            let take = |(v, m): (&Value, &Value)| {
                exchange(c, *m, from, None, v.ty())?.ok_or_else(|| "has nothing to take".into())
            };
            let others = parts_of.iter().zip(&memory).map(take).collect::<Result<Vec<_>>>()?;
            parts_of = partial::combined(c, scope, nest, lanes, &parts_of, &others)?;
        }
        let dims = loops.dims(c, &fixed, Some(lane))?;
        let nearest = if parts == 1 {
            None
        } else {
            Some(c.compare(CmpIPredicate::Eq, part, c.index(0)?)?)
        };
        let elected = c
            .all_of(&[Some(inside), nearest].into_iter().flatten().collect::<Vec<_>>())?
            .ok_or("has no thread")?;
        let finish = &mut |c: Code| -> Result<()> {
            let results = partial::combine_initial(
                c,
                scope,
                nest,
                &dims,
                lanes,
                &parts_of,
                &ForwardedElements::new(),
            )?;
            loops.finish(c, &dims, each, &results)
        };
        c.if_else(elected, finish, None)?;
        // WAR barrier: the next columns' partial results overwrite this shared memory.
        if parts > 1 {
            threads::barrier(c)?;
        }
        Ok(vec![])
    })?;
    Ok(())
}
